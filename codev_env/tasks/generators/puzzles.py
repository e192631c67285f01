"""Puzzles whose answer is a list of numbers: pieces of an image in the right order, and differences of two panels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from PIL import Image

from codev_env.errors import unknown
from codev_env.tasks.generators import drawing, photos
from codev_env.tasks.generators.answers import answer_fields
from codev_env.tasks.generators.generator import (
    SceneOptions,
    between,
    check_difficulty,
    grade,
    pick,
    require,
    require_names,
    require_range,
    sample,
    split_of,
    stream,
)
from codev_env.tasks.generators.grid import COLORS
from codev_env.types import Box, Task

CATEGORIES = ("jigsaw", "spot_difference")
"""Categories of questions, named as two tasks of TIR-Bench are."""

_PAPER = (250, 250, 250)
_SHAPES = ("circle", "square", "triangle", "cross", "star", "heart")


@dataclass(frozen=True)
class PuzzleOptions(SceneOptions):
    """Options of puzzles: an image cut into pieces and shuffled, or two panels that differ in some cells.

    The targets are the pieces, or both views of each cell that differs. The answers are lists of numbers, for which
    TIR-Bench gives parts of a point.
    """

    kind: ClassVar[str] = "puzzle"

    categories: tuple[str, ...] = CATEGORIES
    """The categories of questions."""
    side: int = 720
    """Width and height in pixels of the whole image, or of each panel."""
    pieces: tuple[int, int] = (2, 3)
    """Least and greatest number of pieces in a row, and in a column."""
    cells: int = 5
    """Cells in a row, and in a column, of a panel."""
    differences: tuple[int, int] = (2, 5)
    """Least and greatest number of cells that differ."""
    photo_share: float = 0.75
    """Probability that the pieces are of a photograph instead of a texture."""

    def __post_init__(self) -> None:
        require_names("categories", self.categories, CATEGORIES)
        require(self.side >= 120, "side", self.side, "at least 120")
        require_range("pieces", self.pieces, 2, self.side // 60)
        require(2 <= self.cells <= self.side // 40, "cells", self.cells, f"from 2 to side / 40 = {self.side // 40}")
        require_range("differences", self.differences, 1, self.cells**2)
        require(0 <= self.photo_share <= 1, "photo_share", self.photo_share, "a probability from 0 to 1")

    def only(self, category: str) -> PuzzleOptions:
        """Return a copy with one category; raises `ConfigError` for an unknown one."""
        if category not in self.categories:
            raise unknown("category of puzzles", category, self.categories)
        return replace(self, categories=(category,))

    def at_difficulty(self, difficulty: float) -> PuzzleOptions:
        """Return a copy for a level of difficulty: 2 to 6 pieces a row, 4 to 10 cells a row, as far as there is room.

        Raises `ConfigError` for a difficulty out of range.
        """
        d = check_difficulty(difficulty)
        pieces = min(round(grade(d, 2, 6)), self.side // 60)
        cells = min(round(grade(d, 4, 10)), self.side // 40)
        most = min(self.differences[1], cells**2)
        return replace(self, pieces=(pieces, pieces), cells=cells, differences=(min(self.differences[0], most), most))

    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the puzzle that belongs to a seed; see `SceneOptions.draw`."""
        rng = stream(seed, 0)
        category = pick(rng, self.categories)
        make = self._jigsaw if category == "jigsaw" else self._differences
        puzzle = make(rng, seed)
        return Task(
            task_id=task_id,
            images=(puzzle.image,),
            question=puzzle.question,
            answer=", ".join(map(str, puzzle.numbers)),
            targets=tuple(puzzle.objects[number]["box"] for number in puzzle.targets),
            category=category,
            meta={
                "objects": [{**item, "box": list(item["box"])} for item in puzzle.objects],
                "targets": puzzle.targets,
                "meta_data": {"difficulty": puzzle.side},
                **answer_fields("list", ()),
            },
        )

    def _jigsaw(self, rng: np.random.Generator, seed: np.random.SeedSequence) -> _Puzzle:
        count = between(rng, *self.pieces)
        piece = self.side // count
        whole, _ = photos.background(stream(seed, 1), (piece * count,) * 2, self.photo_share, split=split_of(seed))
        order = rng.permutation(count * count).tolist()
        image = Image.new("RGB", whole.size, _PAPER)
        boxes = _boxes(count, piece)
        for place, original in enumerate(order):
            # A thin frame parts the pieces; the number is that of the place in the shuffled image.
            part = whole.crop(boxes[original]).resize((piece - 4, piece - 4))
            image.paste(part, (boxes[place][0] + 2, boxes[place][1] + 2))
            _write(image, str(place + 1), (boxes[place][0] + 4, boxes[place][1] + 4))
        question = (
            f"An image was cut into {count} x {count} pieces, which were shuffled and numbered. Which piece belongs "
            "where? Answer with the numbers of the pieces from left to right and top to bottom, separated by commas."
        )
        objects = [
            {"number": place + 1, "belongs": original + 1, "box": boxes[place]} for place, original in enumerate(order)
        ]
        numbers = [order.index(place) + 1 for place in range(count * count)]
        return _Puzzle(image, question, numbers, objects, list(range(count * count)), count)

    def _differences(self, rng: np.random.Generator, seed: np.random.SeedSequence) -> _Puzzle:
        cell, panel = self.side // self.cells, self.side // self.cells * self.cells
        gap = cell // 2
        image = Image.new("RGB", (2 * panel + gap, panel), _PAPER)
        total = self.cells**2
        changed = sorted(sample(rng, range(total), between(rng, *self.differences)))
        objects: list[dict[str, Any]] = []
        for number, (x1, y1, x2, y2) in enumerate(_boxes(self.cells, cell)):
            shape, color = pick(rng, _SHAPES), pick(rng, tuple(COLORS))
            other = _changed(rng, shape, color) if number in changed else (shape, color)
            for shift, look in ((0, (shape, color)), (panel + gap, other)):
                box = (x1 + shift, y1, x2 + shift, y2)
                sticker = drawing.sticker(look[0], cell * 3 // 4, COLORS[look[1]])
                place = (x1 + shift + (cell - sticker.width) // 2, y1 + (cell - sticker.height) // 2)
                image.paste(sticker, place, sticker)
                _write(image, str(number + 1), (x1 + shift, y1))
                objects.append({"number": number + 1, "shape": look[0], "color": look[1], "box": box})
        question = (
            "Which cells of the right panel differ from those of the left panel? "
            "Answer with the numbers of the cells, separated by commas."
        )
        targets = [2 * number + panel_number for number in changed for panel_number in (0, 1)]
        return _Puzzle(image, question, [number + 1 for number in changed], objects, targets, self.cells)


class _Puzzle(NamedTuple):
    """A puzzle as it is drawn: the numbers to answer with, what is shown, the positions of the evidence in that."""

    image: Image.Image
    question: str
    numbers: list[int]
    objects: list[dict[str, Any]]
    targets: list[int]
    side: int


def _boxes(count: int, side: int) -> tuple[Box, ...]:
    places = [(k % count * side, k // count * side) for k in range(count * count)]
    return tuple((x, y, x + side, y + side) for x, y in places)


def _changed(rng: np.random.Generator, shape: str, color: str) -> tuple[str, str]:
    """Return a look that differs in shape or in colour."""
    if rng.random() < 0.5:
        return pick(rng, [name for name in _SHAPES if name != shape]), color
    return shape, pick(rng, [name for name in COLORS if name != color])


def _write(image: Image.Image, text: str, place: tuple[int, int]) -> None:
    x, y = place
    for glyph in text:
        plate = drawing.badge(glyph, 2, "3x5")
        image.paste(plate, (x, y))
        x += plate.width
