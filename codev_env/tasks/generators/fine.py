"""Panels whose detail no down-scaled view holds: digits and letters in strokes of one pixel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from codev_env.tasks.generators import drawing
from codev_env.tasks.generators.answers import AnswerType
from codev_env.tasks.generators.generator import between, check_difficulty, grade, require
from codev_env.tasks.generators.grid import COLORS, GridOptions

_TAB, _INK = 8, 80
"""Width in pixels of a panel's coloured tab, and the contrast of its detail in levels of grey."""


@dataclass(frozen=True)
class FineOptions(GridOptions):
    """Options of panels with a fine digit: "What digit is on the red panel?".

    The colour of a panel is seen in a down-scaled view, its detail is not. The plate's brightness is random; the detail
    is lighter or darker than the plate, at a random place on it, without its low frequencies (down-scaling keeps
    only these), and under noise. The background signals nothing by default.
    """

    kind: ClassVar[str] = "finedigit"
    question: ClassVar[str] = "What digit is on the {color} {shape}?"
    shape_names: ClassVar[tuple[str, ...]] = ("panel",)

    grid: int = 10
    cell: int = 56
    sprite: int = 40
    jitter: int = 8
    glyph: int = 1
    shapes: int = 1
    cue_p: float = 0.0
    noise: int = 10
    """Standard deviation of the noise on a panel, in levels of grey."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.sprite >= 40, "sprite", self.sprite, "at least 40")
        require(0 <= self.noise <= 40, "noise", self.noise, "from 0 to 40")

    def at_difficulty(self, difficulty: float) -> FineOptions:
        """Return a copy with noise from 5 to 15 levels and 2 to 8 panels; their size does not change."""
        level = check_difficulty(difficulty)
        count = min(self.colors, self.grid**2, round(grade(level, 2, 8)))
        return replace(self, noise=round(grade(level, 5, 15)), objects=(count, count))

    def size_of(self, shape: str) -> tuple[int, int]:
        """Width and height of a panel in pixels."""
        return self.sprite, self.sprite * 3 // 4

    def picture(self, item: dict[str, Any]) -> tuple[Image.Image, None]:
        """A panel; it is a rectangle, without a mask."""
        width, height = self.size_of(item["shape"])
        ink = np.zeros((height, width - _TAB))
        dots = np.kron(drawing.dots(item["label"], "5x7"), np.ones((self.glyph, self.glyph)))
        x, y = (
            (room - size) * share // 100 for room, size, share in zip(ink.shape, dots.shape, item["at"], strict=True)
        )
        ink[x : x + dots.shape[0], y : y + dots.shape[1]] = dots
        noise = np.random.default_rng(item["grain"]).normal(0, self.noise, ink.shape)
        grey = item["plate"] + item["sign"] * _INK * (ink - _blurred(ink)) + noise
        panel = Image.new("RGB", (width, height), COLORS[item["color"]])
        panel.paste(Image.fromarray(grey.round().clip(0, 255).astype(np.uint8)), (_TAB, 0))
        return panel, None

    def _objects(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        """Decide the panels, and what makes each look different: plate, polarity, place and noise."""
        panels = super()._objects(rng)
        for panel in panels:
            panel["plate"], panel["sign"] = between(rng, 100, 155), 2 * between(rng, 0, 1) - 1
            panel["at"], panel["grain"] = [between(rng, 30, 70), between(rng, 30, 70)], between(rng, 0, 2**31)
        return panels


def _blurred(image: np.ndarray) -> np.ndarray:
    """Blur with a binomial kernel of standard deviation 1.4 pixels; the edges wrap around."""
    for axis in (0, 1, 0, 1):
        shifted = [w * np.roll(image, s, axis) for s, w in zip(range(-2, 3), (1, 4, 6, 4, 1), strict=True)]
        image = np.sum(shifted, axis=0) / 16
    return image


@dataclass(frozen=True)
class FineLetterOptions(FineOptions):
    """Options of panels with a fine letter: "What letter is on the red panel?"."""

    kind: ClassVar[str] = "fineletter"
    labels: ClassVar[str] = "FHKLMPRTUX"
    answers: ClassVar[AnswerType] = "text"
    question: ClassVar[str] = "What letter is on the {color} {shape}?"
