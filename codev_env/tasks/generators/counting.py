"""Counting scenes: how many objects of one look there are among many others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codev_env.tasks.generators import drawing
from codev_env.tasks.generators.answers import answer_fields, choices_for
from codev_env.tasks.generators.generator import between, pick, require, require_range
from codev_env.tasks.generators.search import COLORS, Look, Puzzle, ScatterOptions, random_look, without

CATEGORIES = ("color_and_shape", "shape", "color")
"""Categories of questions: the properties that the counted objects share."""

_PLURALS = {"cross": "crosses", "fish": "fish"}
_NEAR = 0.3  # share of the distractors with the same colour, and of those with the same shape


@dataclass(frozen=True)
class CountingOptions(ScatterOptions):
    """Options of a counting scene: "How many red mugs with a letter or digit on them are in the image?".

    The targets are the counted objects, at least one.
    """

    kind: ClassVar[str] = "counting"
    all_categories: ClassVar[tuple[str, ...]] = CATEGORIES

    sizes: tuple[tuple[int, int], ...] = ((2048, 1536), (1536, 2048), (1600, 1200))
    """Widths and heights in pixels; each scene takes one pair."""
    categories: tuple[str, ...] = CATEGORIES
    """The categories of questions."""
    count: tuple[int, int] = (1, 8)
    """Least and greatest number of counted objects."""
    choice_share: float = 0.5
    """Probability that a question has four choices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("count", self.count, 1, 100)
        require(0 <= self.choice_share <= 1, "choice_share", self.choice_share, "a probability from 0 to 1")

    def _most_targets(self) -> int:
        return self.count[1]

    def _puzzle(self, rng: np.random.Generator, category: str) -> Puzzle:
        puzzle = counting_puzzle(rng, category, between(rng, *self.count), between(rng, *self.distractors))
        choices = choices_for(rng, puzzle.n_targets, least=1) if rng.random() < self.choice_share else ()
        return puzzle._replace(choices=choices, meta=answer_fields("integer", choices))


def counting_puzzle(rng: np.random.Generator, category: str, count: int, distractors: int) -> Puzzle:
    """Return a counting question without choices.

    Args:
        rng: Decides all random values.
        category: One of `CATEGORIES`.
        count: Number of counted objects; they come first.
        distractors: Number of other objects; many share the colour or the shape, unless that would make them count.
    """
    model = random_look(rng)
    shared = {"color_and_shape": (True, True), "shape": (False, True), "color": (True, False)}[category]
    targets = [_like(random_look(rng), model, *shared) for _ in range(count)]
    others = [_unlike(rng, model, category) for _ in range(distractors)]
    noun = plural(model.shape) if shared[1] else "objects"
    what = f"{model.color} {noun}" if shared[0] else noun
    # The photograph behind can show boats, flags or stars too, but these have no sign on them.
    question = f"How many {what} with a letter or digit on them are in the image?"
    return Puzzle(question, str(count), (), [*targets, *others], count)


def plural(shape: str) -> str:
    """Return the plural of a shape's name."""
    return _PLURALS.get(shape, f"{shape}s")


def _like(look: Look, model: Look, color: bool, shape: bool) -> Look:
    return look._replace(color=model.color if color else look.color, shape=model.shape if shape else look.shape)


def _unlike(rng: np.random.Generator, model: Look, category: str) -> Look:
    """Return an object that does not count."""
    look = random_look(rng)._replace(
        color=pick(rng, without(tuple(COLORS), model.color)), shape=pick(rng, without(drawing.SHAPES, model.shape))
    )
    share = rng.random()
    if category == "color_and_shape":
        return _like(look, model, color=share < _NEAR, shape=_NEAR <= share < 2 * _NEAR)
    # The other property is free, the model's own value included.
    free = random_look(rng)
    return look._replace(color=free.color) if category == "shape" else look._replace(shape=free.shape)
