"""Small plots as inline SVG: curves over steps, intervals, a bar of seconds by phase. Colours come from the CSS."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 340, 200
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 28


def curve(title: str, steps: Sequence[float], values: Sequence[float], *, share: bool = False) -> str:
    """Return a figure with one curve: the values thin, their running mean thick.

    Args:
        title: What is plotted.
        steps: Positions on the horizontal axis, ascending.
        values: One value per step; points that are not finite are left out.
        share: The values are shares of one: the axis goes from 0 to 100 %.
    """
    points = [(float(s), float(v)) for s, v in zip(steps, values, strict=True) if math.isfinite(s) and math.isfinite(v)]
    if not points:
        return ""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    ticks = [0, 0.25, 0.5, 0.75, 1] if share and min(ys) >= 0 and max(ys) <= 1 else nice_ticks(min(ys), max(ys))
    low, high = min(ticks[0], *ys), max(ticks[-1], *ys)
    show = percent if share else short
    axis_label = whole_percent if share else short
    x_span, y_span = (xs[-1] - xs[0]) or 1.0, (high - low) or 1.0

    def at(x: float, y: float) -> str:
        left = LEFT + (x - xs[0]) / x_span * (WIDTH - LEFT - RIGHT)
        top = TOP + (high - y) / y_span * (HEIGHT - TOP - BOTTOM)
        return f"{left:.1f},{top:.1f}"

    grid = "".join(_grid_line(float(at(xs[0], tick).split(",")[1]), axis_label(tick)) for tick in ticks)
    mean = running_mean(ys, max(1, len(ys) // 12))
    raw = " ".join(at(x, y) for x, y in points)
    smooth = " ".join(at(x, y) for x, y in zip(xs, mean, strict=True))
    last_x, last_y = at(xs[-1], mean[-1]).split(",")
    baseline = HEIGHT - BOTTOM + 17
    summary = f"{title}: from {show(mean[0])} at step {short(xs[0])} to {show(mean[-1])} at step {short(xs[-1])}"
    return (
        f'<figure class="curve"><figcaption>{escape(title)} <b>{show(mean[-1])}</b></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(summary)}">{grid}'
        f'<polyline class="raw" points="{raw}"/><polyline class="mean" points="{smooth}"/>'
        f'<circle class="end" cx="{last_x}" cy="{last_y}" r="3.5"/>'
        f'<text class="axis" x="{LEFT}" y="{baseline}">step {short(xs[0])}</text>'
        f'<text class="axis" x="{WIDTH - RIGHT}" y="{baseline}" text-anchor="end">{short(xs[-1])}</text></svg></figure>'
    )


def _grid_line(y: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="axis" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
    )


def intervals(rows: Sequence[tuple[str, float, tuple[float, float] | None]], top: float) -> str:
    """Return a strip that shows values with their intervals on an axis from 0 to `top`, one line per row.

    Args:
        rows: CSS class, value and `(low, high)` (or `None`) each.
        top: Right end of the axis.
    """
    width, line = 240.0, 16
    height = line * len(rows)

    def at(value: float) -> float:
        return round(6 + min(max(value / top, 0.0), 1.0) * (width - 12), 1)

    parts = [f'<line class="grid" x1="{at(top * q)}" x2="{at(top * q)}" y1="0" y2="{height}"/>' for q in (0, 0.5, 1)]
    for number, (kind, value, interval) in enumerate(rows):
        y = line * (number + 0.5)
        bar = ""
        if interval is not None:
            bar = f'<line class="interval" x1="{at(interval[0])}" x2="{at(interval[1])}" y1="{y}" y2="{y}"/>'
        parts.append(f'<g class="{escape(kind)}">{bar}<circle cx="{at(value)}" cy="{y}" r="4.5"/></g>')
    return f'<svg class="intervals" viewBox="0 0 {width:.0f} {height}" aria-hidden="true">{"".join(parts)}</svg>'


def phases(seconds: Mapping[str, float]) -> str:
    """Return a stacked bar of seconds by phase with its legend; empty where nothing took time."""
    total = sum(seconds.values())
    if total <= 0:
        return ""
    parts, legend = [], []
    for number, (name, value) in enumerate(seconds.items()):
        hue = f"phase{number % 6}"
        parts.append(f'<span class="{hue}" style="flex-grow:{value / total:.4f}"></span>')
        legend.append(
            f'<li><span class="swatch {hue}"></span>{escape(name)} <b>{duration(value)}</b>'
            f" <small>{percent(value / total)}</small></li>"
        )
    return f'<div class="phases" aria-hidden="true">{"".join(parts)}</div><ul class="legend">{"".join(legend)}</ul>'


def histogram(title: str, bins: Sequence[int]) -> str:
    """Return a figure with the counts of values in equal bins from 0 to 1."""
    total, most = sum(bins), max([1, *bins])
    wide = (WIDTH - LEFT - RIGHT) / len(bins)
    bars = []
    for number, count in enumerate(bins):
        high = count / most * (HEIGHT - TOP - BOTTOM)
        x, y = LEFT + number * wide, HEIGHT - BOTTOM - high
        bars.append(f'<rect class="bar" x="{x + 1:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{high:.1f}"/>')
    text = ", ".join(f"{n / len(bins):.1f}: {count}" for n, count in enumerate(bins))
    baseline = HEIGHT - BOTTOM + 17
    return (
        f'<figure class="curve"><figcaption>{escape(title)} <b>{total} episodes</b></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{title}, episodes from {text}")}">'
        f"{_grid_line(TOP, str(most))}{_grid_line(HEIGHT - BOTTOM, '0')}{''.join(bars)}"
        f'<text class="axis" x="{LEFT}" y="{baseline}">0</text>'
        f'<text class="axis" x="{WIDTH - RIGHT}" y="{baseline}" text-anchor="end">1</text></svg></figure>'
    )


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return about `count` round numbers that cover `low` to `high`."""
    if not high > low:
        pad = abs(low) * 0.5 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of the last `window` values at each position."""
    return [sum(part) / len(part) for part in (values[max(0, end - window) : end] for end in range(1, len(values) + 1))]


def percent(value: float) -> str:
    """`0.123` as `12.3 %`; none and all without the decimal."""
    return "0 %" if value == 0 else "100 %" if value == 1 else f"{100 * value:.1f} %"


def whole_percent(value: float) -> str:
    """`0.25` as `25 %`, for axes."""
    return f"{100 * value:.0f} %"


def short(value: float) -> str:
    """A number in few characters: `1200`, `0.25`, `1.2e-05`."""
    if value == 0:
        return "0"
    if 0.001 <= abs(value) < 100_000:
        return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{value:.1e}"


def duration(seconds: float) -> str:
    """Seconds as `12 ms`, `8.4 s`, `3 min 20 s` or `2 h 05 min`."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
