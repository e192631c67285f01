"""The figures of a study, as SVG files of their own: they carry their colours, and are readable on light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from codev_eval.report.plots import nice_ticks

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 40, 44
ROW = 26
COLOURS = ("#5b8def", "#e0803b", "#3fa66b", "#c95bb5", "#d9534f", "#8c7ae6", "#b89a2f", "#4db6c4", "#a0674b", "#6b8e23")
GREY = "#8a8f98"

Points = Sequence[tuple[float, float, float, float]]
"""Along a curve: position, mean, and the ends of its interval."""


def curves(title: str, across: str, series: Mapping[str, Points], colours: Mapping[str, str]) -> str:
    """Draw shares, 0 to 100 %, over a position, with their intervals as bands, and their names at their ends.

    `colours` are by name; others are grey.
    """
    series = {name: points for name, points in series.items() if points}
    xs = [point[0] for points in series.values() for point in points]
    if not xs:
        return ""
    low, high = min(xs), max(xs)
    span = (high - low) or 1.0

    def at(x: float, y: float) -> str:
        clipped = min(1.0, max(0.0, y))
        left = LEFT + (x - low) / span * (WIDTH - LEFT - RIGHT)
        return f"{left:.1f},{TOP + (1 - clipped) * (HEIGHT - TOP - BOTTOM):.1f}"

    body = [_across(TOP + (1 - y) * (HEIGHT - TOP - BOTTOM), f"{y:.0%}") for y in (0, 0.25, 0.5, 0.75, 1)]
    for tick in nice_ticks(low, high):
        if low <= tick <= high:
            x = at(tick, 0).split(",")[0]
            body.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    body.append(f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>')
    for name, points in series.items():
        colour = colours.get(name, GREY)
        upper = [at(x, top) for x, _, _, top in points]
        lower = [at(x, bottom) for x, _, bottom, _ in points]
        line = " ".join(at(x, mean) for x, mean, _, _ in points)
        body.append(f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{colour}" fill-opacity="0.15"/>')
        body.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    body += _labels({name: points[-1][1] for name, points in series.items()}, colours)
    return _svg(title, HEIGHT, body)


def dots(
    title: str, rows: Mapping[str, tuple[Sequence[float], float, float, float]], colours: Mapping[str, str]
) -> str:
    """Draw shares, a row for each name: every seed's value, the mean, and its interval if that is finite.

    Args:
        title: What is shown.
        rows: By name: the values, their mean, and the ends of its interval.
        colours: By name; grey for others.
    """
    if not rows:
        return ""
    ends = [x for values, mean, low, high in rows.values() for x in (*values, mean)]
    first, last = min(0.0, *ends), max(1.0, *ends)
    height = TOP + ROW * len(rows) + BOTTOM

    def at(value: float) -> float:
        return RIGHT + (min(last, max(first, value)) - first) / (last - first) * (WIDTH - RIGHT - 30)

    body = []
    for tick in nice_ticks(first, last):
        if first <= tick <= last:
            x, end = at(tick), TOP + ROW * len(rows)
            body.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{end}" stroke="#8884" />')
            body.append(f'<text x="{x:.1f}" y="{end + 18}" text-anchor="middle">{tick:.0%}</text>')
    for number, (name, (values, mean, low, high)) in enumerate(rows.items()):
        y, colour = TOP + ROW * (number + 0.5), colours.get(name, GREY)
        body.append(f'<text x="{RIGHT - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        if math.isfinite(high - low):
            body.append(
                f'<line x1="{at(low):.1f}" x2="{at(high):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3" '
                'stroke-opacity="0.5"/>'
            )
        body += [f'<circle cx="{at(v):.1f}" cy="{y}" r="3" fill="{colour}" fill-opacity="0.6"/>' for v in values]
        body.append(f'<rect x="{at(mean) - 2:.1f}" y="{y - 8}" width="4" height="16" fill="{colour}"/>')
    return _svg(title, height, body)


def _labels(ends: Mapping[str, float], colours: Mapping[str, str]) -> list[str]:
    """Write the names at the ends of curves, moved apart where they would lie over each other."""
    body, places = [], [_label_place(value) for value in ends.values()]
    order = sorted(range(len(places)), key=lambda number: places[number])
    for above, below in zip(order, order[1:], strict=False):
        places[below] = max(places[below], places[above] + 14)
    over = max(0.0, max(places) - (HEIGHT - BOTTOM + 6))
    for name, y in zip(ends, places, strict=True):
        colour = colours.get(name, GREY)
        body.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y - over:.1f}" style="fill:{colour}">{escape(name)}</text>')
    return body


def _label_place(value: float) -> float:
    return TOP + (1 - min(1.0, max(0.0, value))) * (HEIGHT - TOP - BOTTOM) + 4


def _across(y: float, label: str) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _svg(title: str, height: float, body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}"><style>text{{font:13px system-ui,sans-serif;fill:#7d838c}}</style>'
        f'<text x="{LEFT}" y="22" style="font-weight:600;font-size:15px">{escape(title)}</text>{"".join(body)}</svg>\n'
    )
