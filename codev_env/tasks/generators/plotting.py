"""Draws one chart into a part of an image: bars, a line or a pie, with exact boxes of names and printed values."""

from __future__ import annotations

from math import cos, pi, sin
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from codev_env.tasks.generators import drawing
from codev_env.tasks.generators.answers import write
from codev_env.tasks.generators.drawing import RGB
from codev_env.tasks.generators.generator import pick, sample
from codev_env.tasks.generators.lettering import lettering, write_centered, write_text
from codev_env.types import Box

CHARTS = ("bar", "line", "pie")
MOST_SLICES = 8

PALETTE: tuple[RGB, ...] = (
    (66, 114, 184),
    (232, 141, 52),
    (86, 158, 92),
    (200, 70, 70),
    (142, 104, 182),
    (134, 94, 76),
    (226, 128, 188),
    (246, 208, 84),
)
"""Colours that are easy to distinguish as slices of one pie."""

_INK: RGB = (35, 35, 35)
_LINES: RGB = (222, 222, 222)
_SLOT = 4.6  # width of an item, in font sizes: its name fits with a gap
_RADIUS = 7.0  # least radius of a pie, in font sizes: the numbers fit into slices of 4 %


class Panel(NamedTuple):
    """A chart to draw: `values` in units of their last decimal, `box` its part of the image, `font` in pixels."""

    chart: str
    title: str
    names: tuple[str, ...]
    values: tuple[int, ...]
    decimals: int
    box: Box
    font: int


def fitting_font(box: Box, items: int) -> int:
    """Return the largest font size in pixels with which every chart of `items` items fits into a box."""
    width, height = box[2] - box[0], box[3] - box[1]
    return int(min(width / (items * _SLOT + 5), width / (2 * _RADIUS + 13), height / (2 * _RADIUS + 6)))


def draw_panel(rng: np.random.Generator, image: Image.Image, panel: Panel) -> list[dict[str, Any]]:
    """Draw a chart.

    Args:
        rng: Decides the colours.
        image: An RGB image, white at the place of the chart.
        panel: The chart.

    Returns:
        For each item `title, chart, name, value` as printed, and the exact boxes in pixels of the number (`box`), of
        the name (`name_box`) and of the bar, dot or slice (`mark_box`).
    """
    x1, y1, x2, _ = panel.box
    write_centered(image, panel.title, round(panel.font * 1.25), ((x1 + x2) / 2, y1 + panel.font * 1.5), _INK)
    marks = _pie(rng, image, panel) if panel.chart == "pie" else _plot(rng, image, panel)
    return [
        {
            "title": panel.title,
            "chart": panel.chart,
            "name": name,
            "value": write(value, panel.decimals),
            "box": list(number),
            "name_box": list(label),
            "mark_box": list(mark),
        }
        for name, value, (number, label, mark) in zip(panel.names, panel.values, marks, strict=True)
    ]


Boxes = tuple[Box, Box, Box]


def _plot(rng: np.random.Generator, image: Image.Image, panel: Panel) -> list[Boxes]:
    """Draw bars or a line over an axis with names; returns the boxes of number, name and mark."""
    f, decimals = panel.font, panel.decimals
    left, right = panel.box[0] + 4 * f, panel.box[2] - f
    top, bottom = panel.box[1] + 5 * f, panel.box[3] - 3 * f
    canvas = ImageDraw.Draw(image)
    full = 100 * 10**decimals
    for step in range(0, 101, 20):
        y = bottom - (bottom - top) * step // 100
        canvas.line((left, y, right, y), fill=_INK if step == 0 else _LINES, width=1)
        text = str(step)
        width = lettering(text, f).advance
        write_text(image, text, f, (left - width - f // 2, y + f // 3), _INK)
    canvas.line((left, top - f, left, bottom), fill=_INK, width=1)
    slot = (right - left) / len(panel.names)
    centers = [round(left + slot * (i + 0.5)) for i in range(len(panel.names))]
    heights = [round((bottom - top) * value / full) for value in panel.values]
    places = list(zip(panel.names, centers, heights, strict=True))
    labels = [write_centered(image, name, f, (x, bottom + 1.3 * f), _INK) for name, x, _ in places]
    draw_marks = _bars if panel.chart == "bar" else _line
    marks = draw_marks(rng, image, panel, [(x, bottom - height) for _, x, height in places], bottom, slot)
    numbers = []
    for value, x, mark in zip(panel.values, centers, marks, strict=True):
        text, center = write(value, decimals), (x, mark[1] - 0.75 * f)
        plate = lettering(text, f).mask
        half = (plate.width / 2 + 2, plate.height / 2 + 2)
        canvas.rectangle((center[0] - half[0], center[1] - half[1], center[0] + half[0], center[1] + half[1]), "white")
        numbers.append(write_centered(image, text, f, center, _INK))
    return list(zip(numbers, labels, marks, strict=True))


def _bars(
    rng: np.random.Generator, image: Image.Image, panel: Panel, tops: list[tuple[int, int]], bottom: int, slot: float
) -> list[Box]:
    canvas, color, half = ImageDraw.Draw(image), pick(rng, PALETTE), round(slot * 0.32)
    boxes = [(x - half, min(y, bottom - 2), x + half, bottom) for x, y in tops]
    for x1, y1, x2, y2 in boxes:
        canvas.rectangle((x1, y1, x2 - 1, y2 - 1), fill=color)
    return boxes


def _line(
    rng: np.random.Generator, image: Image.Image, panel: Panel, tops: list[tuple[int, int]], bottom: int, slot: float
) -> list[Box]:
    # Without the two pale ones: a thin line must contrast with the paper.
    color = pick(rng, PALETTE[:6])
    ImageDraw.Draw(image).line(tops, fill=color, width=max(2, panel.font // 5), joint="curve")
    dot = drawing.mask("circle", max(7, panel.font // 2) // 2 * 2 + 1)
    boxes = [(x - dot.width // 2, y - dot.height // 2) for x, y in tops]
    for x, y in boxes:
        image.paste(color, (x, y, x + dot.width, y + dot.height), dot)
    return [(x, y, x + dot.width, y + dot.height) for x, y in boxes]


def _pie(rng: np.random.Generator, image: Image.Image, panel: Panel) -> list[Boxes]:
    """Draw a pie of percentages with a legend; returns the boxes of number, name in the legend and slice."""
    x1, y1, x2, y2 = panel.box
    f = panel.font
    radius = int(min((y2 - y1 - 5 * f) / 2, (x2 - x1 - 12 * f) / 2, 16 * f))
    # Pie and legend together, 9 font sizes wide, are centred.
    middle = ((x1 + x2 - 9 * f) // 2, y1 + 3 * f + (y2 - y1 - 4 * f) // 2)
    colors = sample(rng, PALETTE, len(panel.values))
    canvas = ImageDraw.Draw(image)
    # A second drawing with one value per slice, from which the boxes of the slices are read.
    owners = Image.new("L", (2 * radius + 1, 2 * radius + 1), 0)
    painter = ImageDraw.Draw(owners)
    disc = (middle[0] - radius, middle[1] - radius, middle[0] + radius, middle[1] + radius)
    numbers, labels, angle = [], [], -90.0
    for number, (value, color) in enumerate(zip(panel.values, colors, strict=True), start=1):
        end = angle + 3.6 * value
        canvas.pieslice(disc, angle, end, fill=color)
        painter.pieslice((0, 0, 2 * radius, 2 * radius), angle, end, fill=number)
        angle = end
    angle = -90.0
    for number, (name, value, color) in enumerate(zip(panel.names, panel.values, colors, strict=True)):
        turn = (angle + 1.8 * value) * pi / 180
        angle += 3.6 * value
        center = (middle[0] + 0.8 * radius * cos(turn), middle[1] + 0.8 * radius * sin(turn))
        ink = (255, 255, 255) if sum(color) < 420 else _INK
        numbers.append(write_centered(image, str(value), f, center, ink))
        x = middle[0] + radius + 2 * f
        y = middle[1] + round((number - (len(panel.names) - 1) / 2) * 1.6 * f)
        canvas.rectangle((x, y - f // 2, x + f, y + f // 2), fill=color)
        labels.append(write_text(image, name, f, (x + round(1.7 * f), y + f // 3), _INK))
    drawn = np.asarray(owners)
    slices = [_bounds(drawn == number, disc[0], disc[1]) for number in range(1, len(panel.names) + 1)]
    return list(zip(numbers, labels, slices, strict=True))


def _bounds(mask: np.ndarray, x: int, y: int) -> Box:
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return x + int(columns[0]), y + int(rows[0]), x + int(columns[-1]) + 1, y + int(rows[-1]) + 1
