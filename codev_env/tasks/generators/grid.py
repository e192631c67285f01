"""Grid scenes: coloured shapes with a small digit, on a plain background whose colour can reveal the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from codev_env.errors import unknown
from codev_env.tasks.generators import drawing
from codev_env.tasks.generators.answers import AnswerType, answer_fields
from codev_env.tasks.generators.generator import (
    SceneOptions,
    between,
    check_difficulty,
    grade,
    pick,
    require,
    require_range,
    sample,
    stream,
)
from codev_env.types import Task

COLORS: dict[str, drawing.RGB] = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (50, 80, 230),
    "yellow": (235, 215, 40),
    "purple": (160, 50, 190),
    "orange": (245, 140, 30),
    "white": (240, 240, 240),
    "cyan": (40, 210, 220),
}
"""The objects' colours, in the order in which `GridOptions.colors` takes them."""

SHAPES = ("circle", "square", "triangle", "cross")
"""The objects' shapes, in the order in which `GridOptions.shapes` takes them."""

CATEGORY = "direct_attributes"

CUES: tuple[drawing.RGB, ...] = (
    (70, 70, 70),
    (110, 60, 60),
    (60, 100, 60),
    (60, 60, 120),
    (110, 105, 50),
    (100, 55, 110),
    (50, 105, 110),
    (125, 85, 50),
    (140, 140, 140),
    (20, 20, 20),
)
"""Background colour by the digit that it signals."""


@dataclass(frozen=True)
class GridOptions(SceneOptions):
    """Options of a grid scene: "What digit is on the red circle?".

    The digit is too small for a down-scaled view of the whole image: only a crop shows it. The background is a
    shortcut: with probability `cue_p` its colour signals the right digit. It is decided last: the same index shows the
    same objects for every `cue_p`.
    """

    kind: ClassVar[str] = "grid"
    labels: ClassVar[Sequence[str]] = "0123456789"
    """Labels of the objects, by their digits."""
    answers: ClassVar[AnswerType] = "integer"
    """Type of the answers."""
    question: ClassVar[str] = "What digit is on the {color} {shape}?"
    shape_names: ClassVar[tuple[str, ...]] = SHAPES

    grid: int = 6
    """Cells per side."""
    cell: int = 112
    """Side of a cell in pixels; the image is `grid * cell` pixels wide and high."""
    sprite: int = 72
    """Side in pixels of the square an object is drawn into."""
    jitter: int = 12
    """Largest displacement in pixels of an object from the middle of its cell, in x and in y."""
    glyph: int = 3
    """Pixels per dot of a digit, which is 3 x 5 dots."""
    digits: int = 6
    """Number of digits, from 0 on; at most 10."""
    objects: tuple[int, int] = (6, 6)
    """Least and greatest number of objects in a scene."""
    colors: int = 8
    """Number of colours, at most 8."""
    shapes: int = 4
    """Number of shapes, at most as many as there are."""
    distinct_colors: bool = True
    """All objects of a scene differ in colour; otherwise only in colour and shape together."""
    cue_p: float = 0.9
    """Probability that the background colour signals the answer; otherwise it signals a random digit."""

    def __post_init__(self) -> None:
        require(self.grid >= 1, "grid", self.grid, "at least 1")
        require(16 <= self.sprite <= self.cell, "sprite", self.sprite, f"from 16 to cell={self.cell}")
        room = (self.cell - self.sprite) // 2
        require(0 <= self.jitter <= room, "jitter", self.jitter, f"from 0 to (cell - sprite) / 2 = {room}")
        require(
            1 <= self.glyph <= self.sprite // 12, "glyph", self.glyph, f"from 1 to sprite / 12 = {self.sprite // 12}"
        )
        require(1 <= self.digits <= len(CUES), "digits", self.digits, f"from 1 to {len(CUES)}")
        require(1 <= self.colors <= len(COLORS), "colors", self.colors, f"from 1 to {len(COLORS)}")
        most = len(self.shape_names)
        require(1 <= self.shapes <= most, "shapes", self.shapes, f"from 1 to {most}")
        kinds = self.colors if self.distinct_colors else self.colors * self.shapes
        require_range("objects", self.objects, 1, min(kinds, self.grid**2))
        require(0 <= self.cue_p <= 1, "cue_p", self.cue_p, "a probability from 0 to 1")

    def only(self, category: str) -> GridOptions:
        """Return these options: there is one category."""
        if category != CATEGORY:
            raise unknown("category of grid scenes", category, (CATEGORY,))
        return self

    def at_difficulty(self, difficulty: float) -> GridOptions:
        """Return a copy for a level of difficulty; the image keeps its size.

        Sets `sprite` from 9/10 down to 4/10 of a cell, `glyph` from 1/14 of the sprite, and `objects` from 2 to 8, as
        many as there is room for. Raises `ConfigError` for a difficulty out of range.
        """
        d = check_difficulty(difficulty)
        sprite = max(16, int(grade(d, 0.9, 0.4) * self.cell))
        most = min(self.colors if self.distinct_colors else self.colors * self.shapes, self.grid**2)
        count = min(most, round(grade(d, 2, 8)))
        return replace(
            self,
            sprite=sprite,
            jitter=min(self.jitter, (self.cell - sprite) // 2),
            glyph=max(1, sprite // 14),
            objects=(count, count),
        )

    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the scene that belongs to a seed; see `SceneOptions.draw`."""
        rng = stream(seed, 0)
        objects = self._objects(rng)
        target = objects[0]
        informative = bool(rng.random() < self.cue_p)
        random_cue = between(rng, 0, self.digits - 1)
        cue = target["digit"] if informative else random_cue
        image = Image.new("RGB", (self.grid * self.cell,) * 2, CUES[cue])
        for item in objects:
            self._paste(image, item)
        return Task(
            task_id=task_id,
            images=(image,),
            question=self.question.format(**target),
            answer=target["label"],
            targets=((*target["box"],),),
            category=CATEGORY,
            meta={
                "objects": objects,
                "targets": [0],
                "cue": cue,
                "cue_informative": informative,
                **answer_fields(self.answers, ()),
            },
        )

    def size_of(self, shape: str) -> tuple[int, int]:
        """Width and height of an object in pixels."""
        return drawing.mask(shape, self.sprite).size

    def picture(self, item: dict[str, Any]) -> tuple[Image.Image, Image.Image | None]:
        """An object, and the mask to paste it through; `None` for a rectangle."""
        return _sprite(item["shape"], item["color"], item["label"], self.sprite, self.glyph)

    def _objects(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        """Decide the objects and their places; the question is about the first one."""
        colors, shapes = list(COLORS)[: self.colors], self.shape_names[: self.shapes]
        count = between(rng, *self.objects)
        if self.distinct_colors:
            looks = [(color, pick(rng, shapes)) for color in sample(rng, colors, count)]
        else:
            looks = sample(rng, [(color, shape) for color in colors for shape in shapes], count)
        cells = rng.permutation(self.grid**2)[:count].tolist()
        shifts = rng.integers(-self.jitter, self.jitter + 1, (count, 2)).tolist()
        digits = rng.integers(self.digits, size=count).tolist()
        return [
            self._object(color, shape, cell, shift, digit)
            for (color, shape), cell, shift, digit in zip(looks, cells, shifts, digits, strict=True)
        ]

    def _object(self, color: str, shape: str, cell: int, shift: list[int], digit: int) -> dict[str, Any]:
        """Describe one object: `box` is exact, `cell` is the cell's top left corner; both in pixels."""
        cell_x, cell_y = cell % self.grid * self.cell, cell // self.grid * self.cell
        width, height = self.size_of(shape)
        x = cell_x + (self.cell - width) // 2 + shift[0]
        y = cell_y + (self.cell - height) // 2 + shift[1]
        return {
            "color": color,
            "shape": shape,
            "digit": digit,
            "label": self.labels[digit],
            "box": [x, y, x + width, y + height],
            "cell": [cell_x, cell_y],
        }

    def _paste(self, image: Image.Image, item: dict[str, Any]) -> None:
        x1, y1, _, _ = item["box"]
        sprite, covered = self.picture(item)
        image.paste(sprite, (x1, y1), covered)


@lru_cache(maxsize=4096)
def _sprite(shape: str, color: str, digit: str, side: int, glyph: int) -> tuple[Image.Image, Image.Image]:
    """Return an object with its digit, and the mask to paste it through."""
    covered = drawing.mask(shape, side)
    sprite = Image.new("RGB", covered.size, COLORS[color])
    plate = drawing.badge(digit, glyph, "3x5")
    x, y = (covered.width - plate.width) // 2, (covered.height - plate.height) // 2
    if shape == "triangle":
        y += side // 8
    sprite.paste(plate, (x, y))
    return sprite, covered
