"""Arithmetic from an image: objects with price tags, and questions that calculate with some of the prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from PIL import Image, ImageDraw

from codev_env.tasks.generators import drawing
from codev_env.tasks.generators.answers import AnswerType, answer_fields, choices_for, decimals_hint, write
from codev_env.tasks.generators.counting import plural
from codev_env.tasks.generators.generator import (
    between,
    check_difficulty,
    grade,
    grade_range,
    pick,
    require,
    sample,
)
from codev_env.tasks.generators.lettering import write_centered
from codev_env.tasks.generators.search import COLORS, Look, Puzzle, ScatterOptions, near_miss, random_look

CATEGORIES = ("sum", "difference", "product", "total", "compare", "list")
"""Categories of questions."""

_MOST_SAME = 4  # objects of one look in `total` and `list`
_INK: drawing.RGB = (20, 20, 20)
_PLATE: drawing.RGB = (252, 250, 240)


@dataclass(frozen=True)
class SumsOptions(ScatterOptions):
    """Options of a scene with price tags; the targets are the objects whose prices are needed, tags included.

    `sum` and `difference` take two objects, `product` several pieces like one, `total` all objects of one look;
    `compare` asks which of two costs less, `list` for all prices of one look in order. The answers are those of
    MathVista: whole numbers, decimals with a precision, texts and lists, free or with choices; `meta` has
    `question_type`, `answer_type` and `precision`.
    """

    kind: ClassVar[str] = "sums"
    all_categories: ClassVar[tuple[str, ...]] = CATEGORIES
    min_side: ClassVar[int] = 44

    sizes: tuple[tuple[int, int], ...] = ((1280, 960), (960, 1280), (1600, 1200))
    """Widths and heights in pixels; each scene takes one pair."""
    categories: tuple[str, ...] = CATEGORIES
    """The categories of questions."""
    distractors: tuple[int, int] = (12, 24)
    """Least and greatest number of distractors."""
    target_share: tuple[float, float] = (0.05, 0.065)
    """Side of a target with its tag, as a share of the image's longer side; never below 44 pixels."""
    distractor_share: tuple[float, float] = (0.05, 0.08)
    """Side of a distractor with its tag, as a share of the image's longer side; never below 44 pixels."""
    decimals: tuple[int, ...] = (0, 0, 1, 2)
    """Numbers of decimals of the prices; each scene takes one."""
    choice_share: float = 0.5
    """Probability that a question has choices: four numbers, or the two objects that are compared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = len(self.decimals) > 0 and set(self.decimals) <= {0, 1, 2}
        require(ok, "decimals", self.decimals, "one or more of 0, 1, 2")
        require(0 <= self.choice_share <= 1, "choice_share", self.choice_share, "a probability from 0 to 1")

    def at_difficulty(self, difficulty: float) -> Self:
        """Return a copy for a level of difficulty; the image keeps its size.

        Sets `target_share` from (0.08, 0.1) down to (0.03, 0.036), `distractor_share` from (0.08, 0.1) down to
        (0.03, 0.05) and `distractors` from (3, 6) up to (60, 100), halved where an image has no room for them. Raises
        `ConfigError` for a difficulty out of range.
        """
        d = check_difficulty(difficulty)
        target = (grade(d, 0.08, 0.03), grade(d, 0.1, 0.036))
        others = (target[0], grade(d, 0.1, 0.05))
        return self._graded(target, others, grade_range(d, (3, 6), (60, 100)))

    def _most_targets(self) -> int:
        return _MOST_SAME

    def _puzzle(self, rng: np.random.Generator, category: str) -> Puzzle:
        decimals = pick(rng, self.decimals)
        has_choices = bool(rng.random() < self.choice_share)
        first = random_look(rng)
        same = category in ("total", "list")
        count = between(rng, 2, _MOST_SAME) if same else 1 if category == "product" else 2
        targets = [first] * count if same or count == 1 else [first, near_miss(rng, (first,))]
        others = [near_miss(rng, tuple(targets)) for _ in range(between(rng, *self.distractors))]
        # Different prices: no difference is 0.
        prices = rng.permutation(np.arange(10**decimals, 50 * 10**decimals))[: count + len(others)].tolist()
        prices += rng.integers(10**decimals, 50 * 10**decimals, count + len(others) - len(prices)).tolist()
        if category == "difference":
            prices[:2] = sorted(prices[:2], reverse=True)
        looks = [
            look._replace(label=write(price, decimals)) for look, price in zip([*targets, *others], prices, strict=True)
        ]
        puzzle = Puzzle("", "", (), looks, count, meta={"decimals": decimals})
        return _asked(rng, puzzle, category, prices[:count], has_choices)

    def _paste(self, image: Image.Image, look: Look, x: int, y: int, side: int) -> dict[str, Any]:
        """Draw an object and its tag below it; `tag_box` is the tag's, `box` holds both."""
        sticker = drawing.sticker(look.shape, int(side * 0.66) // 2 * 2, COLORS[look.color])
        tag = _tag(look.label, max(10, int(side * 0.27)))
        width, height = max(sticker.width, tag.width), sticker.height + tag.height
        left, top = x + (side - width) // 2, y + (side - height) // 2
        image.paste(sticker, (left + (width - sticker.width) // 2, top), sticker)
        tag_x, tag_y = left + (width - tag.width) // 2, top + sticker.height
        image.paste(tag, (tag_x, tag_y))
        return {
            **look._asdict(),
            "box": [left, top, left + width, top + height],
            "tag_box": [tag_x, tag_y, tag_x + tag.width, tag_y + tag.height],
        }


def _asked(rng: np.random.Generator, puzzle: Puzzle, category: str, prices: list[int], has_choices: bool) -> Puzzle:
    """Add the question, its answer and its choices."""
    decimals, first, pieces = puzzle.meta["decimals"], puzzle.looks[0], 1
    names = [f"{look.color} {look.shape}" for look in puzzle.looks[: puzzle.n_targets]]
    many = f"{first.color} {plural(first.shape)}"
    if category == "compare":
        cheaper = names[0] if prices[0] < prices[1] else names[1]
        question = f"Which costs less, the {names[0]} or the {names[1]}?"
        choices = tuple(sample(rng, names, 2)) if has_choices else ()
        return _finish(puzzle, question, cheaper, choices, "text")
    if category == "list":
        question = f"What are the prices of all {many}, from the lowest to the highest? Answer with a list, as [1, 2]."
        answer = f"[{', '.join(write(price, decimals) for price in sorted(prices))}]"
        return _finish(puzzle, question, answer, (), "list")
    if category == "sum":
        question, value = f"How much do the {names[0]} and the {names[1]} cost together?", sum(prices)
    elif category == "difference":
        question, value = f"How much more does the {names[0]} cost than the {names[1]}?", prices[0] - prices[1]
    elif category == "product":
        pieces = between(rng, 2, 9)
        question, value = f"How much do {pieces} {many} cost?", prices[0]
        puzzle = puzzle._replace(meta={**puzzle.meta, "pieces": pieces})
    else:
        question, value = f"How much do all {many} cost together?", sum(prices)
    # All choices of a product can be divided by the number of pieces, which the question names.
    choices = choices_for(rng, value, decimals, least=1, times=pieces) if has_choices else ()
    hint = "" if choices else decimals_hint(decimals)
    return _finish(
        puzzle, question + hint, write(pieces * value, decimals), choices, "float" if decimals else "integer"
    )


def _finish(puzzle: Puzzle, question: str, answer: str, choices: tuple[str, ...], answer_type: AnswerType) -> Puzzle:
    fields = answer_fields(answer_type, choices, puzzle.meta["decimals"])
    return puzzle._replace(question=question, answer=answer, choices=choices, meta={**puzzle.meta, **fields})


def _tag(text: str, height: int) -> Image.Image:
    """Draw a price tag: dark figures on a light plate with a rim."""
    size = round(height * 0.86)
    # Wide enough for any price: a tag's size must not reveal it.
    width = round(size * 2.6)
    tag = Image.new("RGB", (width, height), _PLATE)
    ImageDraw.Draw(tag).rectangle((0, 0, width - 1, height - 1), outline=_INK)
    write_centered(tag, text, size, (width / 2, height / 2), _INK)
    return tag
