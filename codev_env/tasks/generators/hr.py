"""Search scenes for HR-Bench: single objects and relations in images of 4K and 8K, each asked in four cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codev_env.tasks.generators.answers import choices_for
from codev_env.tasks.generators.counting import counting_puzzle
from codev_env.tasks.generators.generator import between, pick
from codev_env.tasks.generators.search import ATTRIBUTES, Puzzle, ScatterOptions, attribute_puzzle, position_puzzle

CATEGORIES = ("single", "cross")
"""The categories of HR-Bench (arXiv 2408.15556): fine-grained perception of one instance, and across instances."""

_MOST_COUNTED = 8
"""A multiple of 2 x 4, so that each of the four choices is right equally often."""


@dataclass(frozen=True)
class HRBenchOptions(ScatterOptions):
    """Options of a scene for HR-Bench; every question has four choices.

    `single` asks for the colour of an object, or the letter or digit on it. `cross` asks where one object lies, seen
    from another, or how many objects of one colour and shape there are. As in HR-Bench, four consecutive tasks are one
    question whose choices are rotated by one place each; `meta["cycle_category"]`, "0" to "3", is the rotation.
    """

    kind: ClassVar[str] = "hrbench"
    all_categories: ClassVar[tuple[str, ...]] = CATEGORIES
    coarse: ClassVar[int] = 2

    sizes: tuple[tuple[int, int], ...] = ((3840, 2160), (2160, 3840))
    """Widths and heights in pixels; each scene takes one pair."""
    categories: tuple[str, ...] = CATEGORIES
    """The categories of questions."""
    distractors: tuple[int, int] = (60, 120)
    """Least and greatest number of distractors."""
    target_share: tuple[float, float] = (0.011, 0.018)
    """Side of a target, as a share of the image's longer side; never below 24 pixels."""
    distractor_share: tuple[float, float] = (0.011, 0.035)
    """Side of a distractor, as a share of the image's longer side; never below 24 pixels."""

    @property
    def cycles(self) -> int:
        """Four: each question is asked once with the right choice in each place."""
        return 4

    def _most_targets(self) -> int:
        return _MOST_COUNTED

    def _puzzle(self, rng: np.random.Generator, category: str) -> Puzzle:
        if category == "single":
            return attribute_puzzle(rng, pick(rng, ATTRIBUTES), between(rng, *self.distractors))
        if rng.random() < 0.5:
            return position_puzzle(rng, self.distractors, diagonal=True)
        count = between(rng, 1, _MOST_COUNTED)
        counted = counting_puzzle(rng, "color_and_shape", count, between(rng, *self.distractors))
        return counted._replace(choices=choices_for(rng, count, least=1))
