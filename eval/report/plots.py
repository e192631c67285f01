"""Small plots as plain data: curves over steps, histograms, intervals, seconds by phase; `plots.html.j2` draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codev_eval.report.formats import duration, percent, short, whole_percent

WIDTH, HEIGHT = 340, 200
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 28
STRIP_WIDTH, STRIP_LINE, STRIP_MARGIN = 240, 16, 6
HUES = 6
"""Colours of phases in the CSS."""


@dataclass(frozen=True)
class Scale:
    """A linear map from values to pixels.

    Attributes:
        low: Value at `start`.
        high: Value at `end`; the map is constant if it equals `low`.
        start: Pixel.
        end: Pixel.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


@dataclass(frozen=True)
class Frame:
    """The area of a plot within its image, in pixels, and its horizontal grid lines.

    Attributes:
        grid: Height and label of each line.
    """

    grid: tuple[tuple[float, str], ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    baseline: int = HEIGHT - BOTTOM + 17


@dataclass(frozen=True)
class Curve:
    """A curve: the values thin, their running mean thick.

    Attributes:
        title: Title.
        value: The last mean, as text.
        summary: The whole curve in a sentence.
        frame: Area and grid.
        raw: Points of the values, in pixels.
        mean: Points of the running mean, in pixels.
        first: Label of the first step.
        last: Label of the last step.
    """

    title: str
    value: str
    summary: str
    frame: Frame
    raw: tuple[tuple[float, float], ...]
    mean: tuple[tuple[float, float], ...]
    first: str
    last: str


@dataclass(frozen=True)
class Histogram:
    """Counts of values in equal bins from 0 to 1.

    Attributes:
        title: Title.
        value: Mean of the values, as text; empty without.
        summary: All counts in a sentence.
        frame: Area and grid.
        bars: Left, top, width and height of each bar, in pixels.
    """

    title: str
    value: str
    summary: str
    frame: Frame
    bars: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True)
class Axis:
    """The axis of strips: its ends, and position in pixels and label of each line.

    Attributes:
        low: Value at the left end.
        high: Value at the right end.
        ticks: Lines.
        width: Of a strip.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    width: int = STRIP_WIDTH


@dataclass(frozen=True)
class Strip:
    """Values with their intervals on an axis, one line each, in pixels.

    Attributes:
        height: Of the strip.
        grid: Positions of vertical lines.
        rows: CSS class, height, position of the value, and ends of its interval (or `None`) of each line.
        width: Of the strip.
    """

    height: int
    grid: tuple[float, ...]
    rows: tuple[tuple[str, float, float, tuple[float, float] | None], ...]
    width: int = STRIP_WIDTH


@dataclass(frozen=True)
class Phase:
    """A part of a bar of seconds: its name, number of its colour, share of the whole, and texts of both."""

    name: str
    hue: int
    share: float
    duration: str
    percent: str


def curve(title: str, steps: Sequence[float], values: Sequence[float], *, share: bool = False) -> Curve | None:
    """Return a curve, `None` without a finite point.

    Args:
        title: Title.
        steps: Positions on the horizontal axis, ascending.
        values: One value per step; points that are not finite are left out.
        share: The values are shares of one: the axis goes from 0 to 100 %.
    """
    points = [(float(s), float(v)) for s, v in zip(steps, values, strict=True) if math.isfinite(s) and math.isfinite(v)]
    if not points:
        return None
    xs, ys = [x for x, _ in points], [y for _, y in points]
    ticks = [0, 0.25, 0.5, 0.75, 1] if share and min(ys) >= 0 and max(ys) <= 1 else nice_ticks(min(ys), max(ys))
    across = Scale(xs[0], xs[-1], LEFT, WIDTH - RIGHT)
    up = Scale(min(ticks[0], *ys), max(ticks[-1], *ys), HEIGHT - BOTTOM, TOP)
    show, label = (percent, whole_percent) if share else (short, short)
    mean = running_mean(ys, max(1, len(ys) // 12))
    first, last = short(xs[0]), short(xs[-1])
    return Curve(
        title,
        show(mean[-1]),
        f"{title}: from {show(mean[0])} at step {first} to {show(mean[-1])} at step {last}",
        Frame(tuple((up(tick), label(tick)) for tick in ticks)),
        tuple((across(x), up(y)) for x, y in points),
        tuple((across(x), up(y)) for x, y in zip(xs, mean, strict=True)),
        first,
        last,
    )


def histogram(title: str, bins: Sequence[int], value: str = "") -> Histogram:
    """Return the counts of values in equal bins from 0 to 1.

    Args:
        title: Title.
        bins: Counts.
        value: Mean of the values, as text.
    """
    most = max([1, *bins])
    across = Scale(0, len(bins), LEFT, WIDTH - RIGHT)
    up = Scale(0, most, HEIGHT - BOTTOM, TOP)
    bars = tuple(
        (across(number) + 1, up(count), across(1) - across(0) - 2, up(0) - up(count))
        for number, count in enumerate(bins)
    )
    counts = ", ".join(f"{n / len(bins):.1f}: {count}" for n, count in enumerate(bins))
    frame = Frame(((up(most), str(most)), (up(0), "0")))
    return Histogram(title, value, f"{title}, episodes from {counts}", frame, bars)


def _across(low: float, high: float) -> Scale:
    return Scale(low, high, STRIP_MARGIN, STRIP_WIDTH - STRIP_MARGIN)


def axis(high: float) -> Axis:
    """Return an axis for numbers from 0 to about `high`, which ends at a round number."""
    top = nice_ticks(0.0, high, 2)[-1]
    scale = _across(0.0, top)
    return Axis(0.0, top, tuple((scale(value), short(value)) for value in (0.0, top / 2, top)))


SHARES = Axis(0.0, 1.0, tuple((_across(0, 1)(value), whole_percent(value)) for value in (0, 0.5, 1)))
"""For shares: 0, 50 and 100 %."""
POINTS = Axis(
    -1.0, 1.0, tuple((_across(-1, 1)(value), f"{100 * value:+.0f}" if value else "0") for value in (-1, 0, 1))
)
"""For differences of shares, in percentage points."""


def intervals(rows: Sequence[tuple[str, float, tuple[float, float] | None]], top: float, low: float = 0.0) -> Strip:
    """Return values with their intervals on an axis from `low` to `top`, one line per row.

    Args:
        rows: CSS class, value and `(low, high)` (or `None`) each.
        top: Right end of the axis.
        low: Left end of the axis.
    """
    scale = _across(low, top)

    def at(value: float) -> float:
        return scale(min(max(value, low), top))

    lines = tuple(
        (kind, STRIP_LINE * (number + 0.5), at(value), interval and (at(interval[0]), at(interval[1])))
        for number, (kind, value, interval) in enumerate(rows)
    )
    return Strip(STRIP_LINE * len(rows), (at(low), at((low + top) / 2), at(top)), lines)


def phases(seconds: Mapping[str, float]) -> list[Phase]:
    """Return the seconds by phase as parts of a bar; none where nothing took time."""
    total = sum(seconds.values())
    if total <= 0:
        return []
    return [
        Phase(name, number % HUES, value / total, duration(value), percent(value / total))
        for number, (name, value) in enumerate(seconds.items())
    ]


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return about `count` round numbers that cover `low` to `high`."""
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, 1e-10):  # what rounding below would show as the same number
        pad = size * 0.5 if size > 1e-10 else 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of the last `window` values at each position."""
    return [sum(part) / len(part) for part in (values[max(0, end - window) : end] for end in range(1, len(values) + 1))]
