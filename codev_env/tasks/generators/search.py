"""Search scenes: a large photo-like image, many distractors and a small target, in the two categories of V*Bench."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from PIL import Image

from codev_env.errors import ConfigError, unknown
from codev_env.geometry import as_box
from codev_env.tasks.generators import drawing, photos
from codev_env.tasks.generators.answers import answer_fields
from codev_env.tasks.generators.generator import (
    SceneOptions,
    between,
    check_difficulty,
    grade,
    grade_range,
    pick,
    require,
    require_names,
    require_range,
    require_sizes,
    sample,
    split_of,
    stream,
)
from codev_env.types import Task

COLORS: dict[str, drawing.RGB] = {
    "red": (215, 35, 35),
    "green": (45, 165, 60),
    "blue": (45, 80, 220),
    "yellow": (245, 222, 45),
    "purple": (130, 45, 170),
    "orange": (245, 135, 25),
    "white": (240, 240, 240),
    "black": (25, 25, 25),
    "pink": (255, 150, 195),
    "cyan": (50, 210, 225),
    "brown": (125, 75, 35),
}
"""The objects' colours."""

LETTERS = tuple(c for c in drawing.GLYPHS_5X7 if c.isalpha())
DIGITS = tuple(c for c in drawing.GLYPHS_5X7 if c.isdigit())
CATEGORIES = ("direct_attributes", "relative_position")
ATTRIBUTES = ("color", "letter", "digit")
DIAGONALS = ("left and above", "left and below", "right and above", "right and below")

_N_CHOICES = 4
_GAP = 1.2  # side of a placement cell, in sides of the largest object
_MIN_DISTANCE = 0.1  # least distance of two targets along the axis that is asked for, as a share of the image


class Look(NamedTuple):
    """The look of an object, apart from its size."""

    color: str
    shape: str
    label: str


class Puzzle(NamedTuple):
    """A question and the looks that make it answerable: the first `n_targets` of `looks` are the targets.

    `axes` are those (0: x, 1: y) along which the first two must be clearly apart, because the question is about their
    position. `meta` is added to the task's metadata.
    """

    question: str
    answer: str
    choices: tuple[str, ...]
    looks: list[Look]
    n_targets: int = 1
    axes: tuple[int, ...] = ()
    meta: dict[str, Any] = {}  # never changed


@dataclass(frozen=True)
class ScatterOptions(SceneOptions):
    """Options of scenes that show many objects, none overlapping, on a photograph or a texture."""

    all_categories: ClassVar[tuple[str, ...]]
    """The categories that `categories` may name."""
    min_side: ClassVar[int] = 24
    """Least side of an object in pixels: a glyph of 5 x 7 dots needs that much."""
    coarse: ClassVar[int] = 1
    """Coarseness of the background; see `photos.background`."""

    sizes: tuple[tuple[int, int], ...] = ((2048, 1536), (2048, 1152), (1536, 2048), (1600, 1200), (1536, 1024))
    """Widths and heights in pixels; each scene takes one pair."""
    categories: tuple[str, ...] = ()
    """The categories of questions."""
    distractors: tuple[int, int] = (40, 80)
    """Least and greatest number of distractors."""
    target_share: tuple[float, float] = (0.018, 0.026)
    """Side of a target, as a share of the image's longer side; never below 24 pixels."""
    distractor_share: tuple[float, float] = (0.018, 0.045)
    """Side of a distractor, as a share of the image's longer side; never below 24 pixels."""
    photo_share: float = 0.75
    """Probability of a photograph as background instead of a texture."""

    def __post_init__(self) -> None:
        require_sizes("sizes", self.sizes, 256)
        require_names("categories", self.categories, self.all_categories)
        require_range("distractors", self.distractors, 0, 1000)
        require_range("target_share", self.target_share, 0.001, 0.1)
        require_range("distractor_share", self.distractor_share, 0.001, 0.2)
        require(0 <= self.photo_share <= 1, "photo_share", self.photo_share, "a probability from 0 to 1")
        for size in self.sizes:
            columns, rows, _ = self._cells(size)
            places, most = columns * rows, self.distractors[1] + self._most_targets()
            if min(columns, rows) < 4 or places < 2 * most:
                raise ConfigError(
                    f"scene option 'distractors' is {self.distractors!r}, but an image of {size[0]}x{size[1]} pixels "
                    f"has only {places} places for them; use at most {places // 2 - self._most_targets()} or a smaller "
                    f"'distractor_share' (now {self.distractor_share!r})."
                )

    def only(self, category: str) -> Self:
        """Return a copy that asks questions of one category; raises `ConfigError` for one it does not have."""
        if category not in self.categories:
            raise unknown(f"category of {self.kind} scenes", category, self.categories)
        return replace(self, categories=(category,))

    def at_difficulty(self, difficulty: float) -> Self:
        """Return a copy for a level of difficulty; the image keeps its size.

        Sets `target_share` from (0.07, 0.1) down to (0.009, 0.012), `distractor_share` from (0.07, 0.1) down to
        (0.009, 0.024) and `distractors` from (6, 12) up to (100, 200), halved where an image has no room for them.
        Raises `ConfigError` for a difficulty out of range.
        """
        d = check_difficulty(difficulty)
        target = (grade(d, 0.07, 0.009), grade(d, 0.1, 0.012))
        others = (target[0], grade(d, 0.1, 0.024))
        return self._graded(target, others, grade_range(d, (6, 12), (100, 200)))

    def _graded(self, target: tuple[float, float], others: tuple[float, float], distractors: tuple[int, int]) -> Self:
        """Return a copy with these shares, and this many distractors, halved where an image has no room for them."""
        least, most = distractors
        while most > self._room(others[1]):
            least, most = least // 2, most // 2
        return replace(self, target_share=target, distractor_share=others, distractors=(least, most))

    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the scene that belongs to a seed; see `SceneOptions.draw`."""
        # Two streams: the objects do not depend on which photographs are installed.
        layout, look = stream(seed, 0), stream(seed, 1)
        size = pick(layout, self.sizes)
        category = pick(layout, self.categories)
        puzzle = self._puzzle(layout, category)
        places = self._places(layout, size, puzzle)
        if puzzle.axes:
            where = [position(places[0], places[1], axis) for axis in puzzle.axes]
            puzzle = puzzle._replace(answer=" and ".join(where))
        image, backdrop = photos.background(look, size, self.photo_share, self.coarse, split_of(seed))
        objects = [self._paste(image, look_, *place) for look_, place in zip(puzzle.looks, places, strict=True)]
        return Task(
            task_id=task_id,
            images=(image,),
            question=puzzle.question,
            answer=puzzle.answer,
            choices=puzzle.choices,
            targets=tuple(as_box(item["box"]) for item in objects[: puzzle.n_targets]),
            category=category,
            meta={
                "objects": objects,
                "targets": list(range(puzzle.n_targets)),
                "background": backdrop,
                **answer_fields("text", puzzle.choices),
                **puzzle.meta,
            },
        )

    @abstractmethod
    def _puzzle(self, rng: np.random.Generator, category: str) -> Puzzle:
        """Return a question of a category with the objects that make it answerable."""

    def _most_targets(self) -> int:
        """Return the largest number of targets of a scene."""
        return 2

    def _paste(self, image: Image.Image, look: Look, x: int, y: int, side: int) -> dict[str, Any]:
        """Draw one object inside a square and return its description; `box` is exact, in pixels."""
        return _paste(image, look, x, y, side)

    def _cells(self, size: tuple[int, int], largest: float | None = None) -> tuple[int, int, int]:
        """Return columns, rows and pitch in pixels of the invisible cells that keep objects apart."""
        share = max(self.distractor_share[1], self.target_share[1]) if largest is None else largest
        pitch = int(max(self.min_side, share * max(size)) * _GAP)
        return size[0] // pitch, size[1] // pitch, pitch

    def _room(self, largest: float) -> int:
        """Return the number of distractors that fit into every size if the largest object has that share."""
        cells = [self._cells(size, largest) for size in self.sizes]
        return min(columns * rows for columns, rows, _ in cells) // 2 - self._most_targets()

    def _places(self, rng: np.random.Generator, size: tuple[int, int], puzzle: Puzzle) -> list[tuple[int, int, int]]:
        """Give each object x, y and side in pixels, no two overlapping."""
        columns, rows, pitch = self._cells(size)
        cells = rng.permutation(columns * rows).tolist()
        if puzzle.axes:
            _separate(cells, columns, {axis: size[axis] * _MIN_DISTANCE / pitch + 1 for axis in puzzle.axes})
        places = []
        for number in range(len(puzzle.looks)):
            share = rng.uniform(*(self.target_share if number < puzzle.n_targets else self.distractor_share))
            # Even sides: half as many sprites to draw.
            side = max(self.min_side, int(share * max(size)) // 2 * 2)
            shift = rng.integers(0, pitch - side + 1, 2).tolist()
            row, column = divmod(cells[number], columns)
            places.append((column * pitch + shift[0], row * pitch + shift[1], side))
        return places


@dataclass(frozen=True)
class SearchOptions(ScatterOptions):
    """Options of a search scene.

    `direct_attributes` asks for the colour of an object whose shape occurs once, or for the letter or digit on an
    object whose colour and shape occur together once, among objects that share one of the two. `relative_position`
    asks for the relative position of two such objects.
    """

    kind: ClassVar[str] = "search"
    all_categories: ClassVar[tuple[str, ...]] = CATEGORIES

    categories: tuple[str, ...] = CATEGORIES
    """The categories of questions."""
    attributes: tuple[str, ...] = ATTRIBUTES
    """Attributes that `direct_attributes` asks for: `"color"`, `"letter"`, `"digit"`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_names("attributes", self.attributes, ATTRIBUTES)

    def _puzzle(self, rng: np.random.Generator, category: str) -> Puzzle:
        if category == "relative_position":
            return position_puzzle(rng, self.distractors)
        attribute = pick(rng, self.attributes)
        return attribute_puzzle(rng, attribute, between(rng, *self.distractors))


def attribute_puzzle(rng: np.random.Generator, attribute: str, distractors: int) -> Puzzle:
    """Make up a question for the colour of an object, or the letter or digit on it, with four choices.

    Args:
        rng: Decides all random values.
        attribute: One of `ATTRIBUTES`.
        distractors: How many other objects there are; none fits the question.
    """
    if attribute == "color":
        target = random_look(rng)
        others = [random_look(rng, shapes=without(drawing.SHAPES, target.shape)) for _ in range(distractors)]
        wrong = sample(rng, without(tuple(COLORS), target.color), _N_CHOICES - 1)
        return _puzzle(rng, f"What is the color of the {target.shape}?", target.color, wrong, [target, *others])
    glyphs = LETTERS if attribute == "letter" else DIGITS
    target = random_look(rng)._replace(label=pick(rng, glyphs))
    others = [near_miss(rng, (target,)) for _ in range(distractors)]
    wrong = sample(rng, without(glyphs, target.label), _N_CHOICES - 1)
    question = f"What {attribute} is on the {target.color} {target.shape}?"
    return _puzzle(rng, question, target.label, wrong, [target, *others])


def position_puzzle(rng: np.random.Generator, distractors: tuple[int, int], diagonal: bool = False) -> Puzzle:
    """Return a question about the relative position of two objects; its answer follows from their places.

    Args:
        rng: Decides all random values.
        distractors: Least and greatest number of other objects.
        diagonal: Ask along both axes, with four choices, instead of along one of them with two.
    """
    first = random_look(rng)
    second = near_miss(rng, (first,))
    others = [near_miss(rng, (first, second)) for _ in range(between(rng, *distractors))]
    if not any(look.label in drawing.telling() for look in (first, second, *others)):
        # Left and right need an upright image, and a scene must show which way is up.
        first = first._replace(label=drawing.telling()[ord(first.label) % len(drawing.telling())])
    looks = [first, second, *others]
    one, other = (f"the {look.color} {look.shape}" for look in (first, second))
    if diagonal:
        choices = tuple(sample(rng, DIAGONALS, _N_CHOICES))
        return Puzzle(f"Where is {one}, seen from {other}?", "", choices, looks, 2, (0, 1))
    axis = between(rng, 0, 1)
    words = ("left", "right") if axis == 0 else ("above", "below")
    where = "on the left or right side of" if axis == 0 else "above or below"
    return Puzzle(f"Is {one} {where} {other}?", "", tuple(sample(rng, words, 2)), looks, 2, (axis,))


def without(items: tuple[str, ...], item: str) -> tuple[str, ...]:
    """Return all items but one."""
    return tuple(i for i in items if i != item)


def random_look(rng: np.random.Generator, shapes: tuple[str, ...] = drawing.SHAPES) -> Look:
    """Return any look whose shape is one of those given."""
    return Look(pick(rng, tuple(COLORS)), pick(rng, shapes), pick(rng, LETTERS + DIGITS))


def near_miss(rng: np.random.Generator, targets: tuple[Look, ...]) -> Look:
    """Return an object that shares the colour or the shape of a target, or neither, but never both."""
    model = pick(rng, targets)
    taken = {target[:2] for target in targets}
    while True:
        look = random_look(rng)
        share = rng.random()
        if share < 0.3:
            look = look._replace(color=model.color)
        elif share < 0.6:
            look = look._replace(shape=model.shape)
        if look[:2] not in taken:
            return look


def _puzzle(rng: np.random.Generator, question: str, answer: str, wrong: list[str], looks: list[Look]) -> Puzzle:
    return Puzzle(question, answer, tuple(sample(rng, [answer, *wrong], len(wrong) + 1)), looks)


def _separate(cells: list[int], columns: int, distances: dict[int, float]) -> None:
    """Reorder the cells so that the first two are at least `distances` cells apart along each axis."""

    def apart(i: int) -> float:
        gaps = (abs(a - b) for a, b in zip(divmod(cells[i], columns), divmod(cells[0], columns), strict=True))
        rows_gap, columns_gap = gaps
        return min((columns_gap, rows_gap)[axis] / distance for axis, distance in distances.items())

    far = next((i for i in range(1, len(cells)) if apart(i) >= 1), None)
    if far is None:
        far = max(range(1, len(cells)), key=apart)
    cells[1], cells[far] = cells[far], cells[1]


def position(first: tuple[int, int, int], second: tuple[int, int, int], axis: int) -> str:
    """Return the position of one place (x, y, side) relative to another: left or right (axis 0), above or below (1)."""
    centers = [place[axis] + place[2] / 2 for place in (first, second)]
    words = ("left", "right") if axis == 0 else ("above", "below")
    return words[0] if centers[0] < centers[1] else words[1]


def _paste(image: Image.Image, look: Look, x: int, y: int, side: int) -> dict[str, Any]:
    sticker = drawing.sticker(look.shape, side, COLORS[look.color])
    x, y = x + (side - sticker.width) // 2, y + (side - sticker.height) // 2
    image.paste(sticker, (x, y), sticker)
    plate = drawing.badge(look.label, max(1, side // 24))
    image.paste(plate, (x + (sticker.width - plate.width) // 2, y + (sticker.height - plate.height) // 2))
    return {**look._asdict(), "box": [x, y, x + sticker.width, y + sticker.height]}
