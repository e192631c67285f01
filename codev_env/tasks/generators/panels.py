"""Pages of small charts and of form fields, for a model of a million weights: grid scenes that hold no digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from PIL import Image, ImageDraw

from codev_env.tasks.generators import drawing
from codev_env.tasks.generators.answers import AnswerType
from codev_env.tasks.generators.generator import between, require
from codev_env.tasks.generators.grid import COLORS, GridOptions

_PAPER, _INK, _GREY = (235, 235, 230), (40, 40, 45), (170, 170, 165)
_BAR, _PERIOD = 2, 3
"""Width of a bar, and from one bar to the next, in pixels."""


@dataclass(frozen=True)
class ChartPageOptions(GridOptions):
    """Options of a page of bar charts: "Which bar of the red chart is highest, counted from 0?".

    Each chart has a title strip of its colour, and one bar for each value of `digits`. The bars are too narrow for a
    down-scaled view of the page. The background is a shortcut, as in `GridOptions`.
    """

    kind: ClassVar[str] = "chartpage"
    question: ClassVar[str] = "Which bar of the {color} {shape} is highest, counted from 0?"
    shape_names: ClassVar[tuple[str, ...]] = ("chart",)

    shapes: int = 1
    """Number of kinds of panels; there is one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        most = (self.sprite - 4) // _PERIOD
        require(self.digits <= most, "digits", self.digits, f"at most {most}: a chart has a bar for each")

    def size_of(self, shape: str) -> tuple[int, int]:
        """Width and height of a chart in pixels."""
        return self.sprite, self.sprite

    def _objects(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        """Decide the charts, and the heights of their bars as shares of the tallest."""
        charts = super()._objects(rng)
        for chart in charts:
            heights = (0.25 + 0.4 * rng.random(self.digits)).round(3).tolist()
            heights[chart["digit"]] = 1.0
            chart["heights"] = heights
        return charts

    def picture(self, item: dict[str, Any]) -> tuple[Image.Image, None]:
        """A chart; it is a rectangle, without a mask."""
        side = self.sprite
        panel = Image.new("RGB", (side, side), _PAPER)
        draw = ImageDraw.Draw(panel)
        strip, floor = side // 4, side - 3
        draw.rectangle((0, 0, side - 1, strip - 1), fill=COLORS[item["color"]])
        draw.line((2, floor, side - 3, floor), fill=_INK)
        left, room = (side - self.digits * _PERIOD) // 2 + 1, floor - strip - 2
        for number, height in enumerate(item["heights"]):
            x = left + number * _PERIOD
            draw.rectangle((x, floor - round(height * room), x + _BAR - 1, floor - 1), fill=_INK)
        return panel, None


@dataclass(frozen=True)
class FormPageOptions(GridOptions):
    """Options of a page of form fields: "What letter is in the red field?".

    Each field has a tab of its colour, a letter, and lines of small print. The letter is too small for a down-scaled
    view of the page. The background is a shortcut, as in `GridOptions`.
    """

    kind: ClassVar[str] = "formpage"
    labels: ClassVar[str] = "FHKLMPRTUX"
    answers: ClassVar[AnswerType] = "text"
    question: ClassVar[str] = "What letter is in the {color} {shape}?"
    shape_names: ClassVar[tuple[str, ...]] = ("field",)

    shapes: int = 1
    """Number of kinds of panels; there is one."""

    def size_of(self, shape: str) -> tuple[int, int]:
        """Width and height of a field in pixels."""
        return self.sprite, self.sprite * 3 // 4

    def _objects(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        """Decide the fields, and the lengths of their lines of small print in pixels."""
        fields = super()._objects(rng)
        for field in fields:
            field["print"] = [between(rng, 4, self.sprite // 3) for _ in range(3)]
        return fields

    def picture(self, item: dict[str, Any]) -> tuple[Image.Image, None]:
        """A field; it is a rectangle, without a mask."""
        width, height = self.size_of(item["shape"])
        panel = Image.new("RGB", (width, height), _PAPER)
        draw = ImageDraw.Draw(panel)
        tab = width // 4
        draw.rectangle((0, 0, tab - 1, height - 1), fill=COLORS[item["color"]])
        for number, length in enumerate(item["print"]):
            y = height // 5 + number * (height - 2 * (height // 5)) // 2
            draw.line((width - 2 - length, y, width - 3, y), fill=_GREY)
        letter = drawing.badge(item["label"], max(1, self.glyph - 1))
        panel.paste(letter, (tab + 1, (height - letter.height) // 2))
        return panel, None
