"""The figures of a study, as SVG files of their own: they carry their colours, and are readable on light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from codev_eval.report.plots import Scale, nice_ticks
from codev_eval.report.rendering import render

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 40, 44
ROW = 26
LABEL_LINE = 14
LETTER = 7.2
COLOURS = ("#5b8def", "#e0803b", "#3fa66b", "#c95bb5", "#d9534f", "#8c7ae6", "#b89a2f", "#4db6c4", "#a0674b", "#6b8e23")
GREY = "#8a8f98"

Points = Sequence[tuple[float, float, float, float]]
"""Along a curve: position, mean, and the ends of its interval."""
Text = tuple[float, float, str, str, str]
"""A text of a figure: place in pixels, anchor, content, and colour (empty: that of all texts)."""


def curves(title: str, across: str, series: Mapping[str, Points], colours: Mapping[str, str]) -> str:
    """Draw shares, 0 to 100 %, over a position, with their intervals as bands, and their names at their ends.

    Args:
        title: Title.
        across: Label of the horizontal axis.
        series: The curves by name.
        colours: By name; grey for others.
    """
    series = {name: points for name, points in series.items() if points}
    xs = [point[0] for points in series.values() for point in points]
    if not xs:
        return ""
    end = WIDTH - _room(series)
    x_at = Scale(min(xs), max(xs), LEFT, end)
    shares = (0, 0.25, 0.5, 0.75, 1)
    texts: list[Text] = [(LEFT - 8, _height(y) + 4, "end", f"{y:.0%}", "") for y in shares]
    ticks = [tick for tick in nice_ticks(min(xs), max(xs)) if min(xs) <= tick <= max(xs)]
    texts += [(x_at(tick), HEIGHT - BOTTOM + 16, "middle", f"{tick:g}", "") for tick in ticks]
    texts += [((LEFT + end) / 2, HEIGHT - 8, "middle", across, "")]
    texts += _labels({name: points[-1][1] for name, points in series.items()}, colours, end)
    drawn = []
    for name, points in series.items():
        upper = [(x_at(x), _height(top)) for x, _, _, top in points]
        lower = [(x_at(x), _height(bottom)) for x, _, bottom, _ in points]
        line = [(x_at(x), _height(mean)) for x, mean, _, _ in points]
        drawn.append((colours.get(name, GREY), upper + lower[::-1], line))
    grid = [(LEFT, end, _height(y), _height(y)) for y in shares]
    return _figure("curves.svg.j2", title, HEIGHT, grid, texts, curves=drawn)


def dots(
    title: str, rows: Mapping[str, tuple[Sequence[float], float, float, float]], colours: Mapping[str, str]
) -> str:
    """Draw shares, a row for each name: every seed's value, the mean, and its interval if that is finite.

    Args:
        title: Title.
        rows: By name: the values, their mean, and the ends of its interval.
        colours: By name; grey for others.
    """
    if not rows:
        return ""
    ends = [x for values, mean, low, high in rows.values() for x in (*values, mean)]
    first, last = min(0.0, *ends), max(1.0, *ends)
    room = _room(rows)
    scale, end = Scale(first, last, room, WIDTH - 30), TOP + ROW * len(rows)

    def at(value: float) -> float:
        return scale(min(last, max(first, value)))

    ticks = [tick for tick in nice_ticks(first, last) if first <= tick <= last]
    texts: list[Text] = [(at(tick), end + 18, "middle", f"{tick:.0%}", "") for tick in ticks]
    drawn = []
    for number, (name, (values, mean, low, high)) in enumerate(rows.items()):
        y = TOP + ROW * (number + 0.5)
        texts.append((room - 12, y + 4, "end", name, ""))
        interval = (at(low), at(high)) if math.isfinite(high - low) else None
        drawn.append((colours.get(name, GREY), y, [at(value) for value in values], at(mean), interval))
    grid = [(at(tick), at(tick), TOP, end) for tick in ticks]
    return _figure("dots.svg.j2", title, end + BOTTOM, grid, texts, rows=drawn)


def stacks(title: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """Draw shares that add up, a bar for each name: parts above 0 to the right, those below 0 to the left.

    Args:
        title: Title.
        rows: By name: the parts by their own names, the same for all.
    """
    if not rows:
        return ""
    parts = [*next(iter(rows.values()))]
    colours = dict(zip(parts, (GREY, *COLOURS), strict=False))
    first = min(sum(min(0.0, part) for part in row.values()) for row in rows.values())
    room = _room(rows)
    scale, end = Scale(first, 1.0, room, WIDTH - 30), TOP + ROW * len(rows)
    ticks = [tick for tick in nice_ticks(first, 1.0) if first <= tick <= 1]
    texts: list[Text] = [(scale(tick), end + 18, "middle", f"{tick:.0%}", "") for tick in ticks]
    drawn = []
    for number, (name, row) in enumerate(rows.items()):
        texts.append((room - 12, TOP + ROW * (number + 0.5) + 4, "end", name, ""))
        reached = {True: 0.0, False: 0.0}
        for part, value in row.items():
            begin = reached[value < 0]
            reached[value < 0] += value
            left, right = sorted((scale(begin), scale(begin + value)))
            drawn.append((colours[part], left, right - left, TOP + ROW * number + 5, ROW - 10))
    place = float(LEFT)
    for part in parts:
        texts.append((place, end + 42, "start", f"■ {part}", colours[part]))
        place += LETTER * (len(part) + 4)
    grid = [(scale(tick), scale(tick), TOP, end) for tick in ticks]
    return _figure("stacks.svg.j2", title, end + BOTTOM + ROW, grid, texts, bars=drawn)


def _figure(
    template: str,
    title: str,
    height: float,
    grid: Sequence[tuple[float, float, float, float]],
    texts: Sequence[Text],
    **data: Any,
) -> str:
    frame: dict[str, Any] = {"title": title, "width": WIDTH, "height": height, "left": LEFT}
    return render(template, "codev_eval.study", **frame, grid=grid, texts=texts, **data)


def _room(names: Iterable[str]) -> float:
    """Return the width that names take beside a figure, in pixels."""
    return max(float(RIGHT), LETTER * max(map(len, names)) + 20)


def _labels(ends: Mapping[str, float], colours: Mapping[str, str], place: float) -> list[Text]:
    """Write the names at the ends of curves, moved apart where they would overlap."""
    places = [_height(value) + 4 for value in ends.values()]
    order = sorted(range(len(places)), key=lambda number: places[number])
    for above, below in zip(order, order[1:], strict=False):
        places[below] = max(places[below], places[above] + LABEL_LINE)
    over = max(0.0, max(places) - (HEIGHT - BOTTOM + 6))
    return [(place + 8, y - over, "start", name, colours.get(name, GREY)) for name, y in zip(ends, places, strict=True)]


def _height(share: float) -> float:
    """Return the height of a share in a figure of curves, in pixels from the top."""
    return Scale(0, 1, HEIGHT - BOTTOM, TOP)(min(1.0, max(0.0, share)))
