"""Documents: pages of paragraphs in small print, and questions about single words, counts and paragraphs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from codev_env.errors import TaskError, unknown
from codev_env.geometry import as_box
from codev_env.tasks.generators import drawing
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
    stream,
)
from codev_env.tasks.generators.lettering import lettering, write_centered, write_text
from codev_env.tasks.generators.paragraphs import (
    Paragraph,
    Place,
    find_word,
    inner_places,
    opening,
    opening_places,
    replace_by_any,
    replace_word,
    space_width,
    word_width,
    write_paragraph,
)
from codev_env.tasks.generators.search import COLORS
from codev_env.tasks.generators.words import WORDS
from codev_env.types import Task

CATEGORIES = ("recognition", "counting", "paragraph")
"""Categories of questions, after MVToolBench (CodeVision, arXiv 2512.03746)."""

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_A4 = (8.27, 11.69)  # inches
_ATTEMPTS = 100
_MARGIN = 0.06  # of the shorter side
_LEADING = 1.45  # height of a line, in font sizes
_GUTTER = 2  # space between columns and between paragraphs, in font sizes


class _Question(NamedTuple):
    """A question and the places of its evidence."""

    text: str
    answer: str
    evidence: list[Place]
    is_number: bool = False


@dataclass(frozen=True)
class DocumentOptions(SceneOptions):
    """Options of a page; the targets are the words that are the evidence, each in the exact box of its ink.

    `recognition` asks for a word of one line: the shortest, the longest or the one at a place. `counting` asks how
    often a word occurs in a paragraph or on the page, how many words a line has, or how many lines a paragraph has.
    `paragraph` asks for the first or last word of the paragraph that holds a word, or on which of its lines. Answers
    are free.
    """

    kind: ClassVar[str] = "documents"

    sizes: tuple[tuple[int, int], ...] = ((1654, 2339), (2339, 1654))
    """Widths and heights in pixels; each page takes one pair. The default is A4 at 200 dots per inch."""
    categories: tuple[str, ...] = CATEGORIES
    """The categories of questions."""
    font: tuple[int, int] = (20, 26)
    """Least and greatest size of the text in pixels."""
    paragraphs: tuple[int, int] = (8, 16)
    """Least and greatest number of paragraphs; fewer if the page is full."""
    lines: tuple[int, int] = (3, 7)
    """Least and greatest number of lines of a paragraph."""
    measure: tuple[int, int] = (22, 36)
    """Least and greatest width of a column, in font sizes; there are as many columns as the page holds."""
    contrast: tuple[float, float] = (0.7, 1.0)
    """Least and greatest contrast of the ink: 0 is that of the paper, 1 is black."""
    pictures: float = 0.2
    """Probability that a place without a paragraph shows an illustration."""

    def __post_init__(self) -> None:
        require_sizes("sizes", self.sizes, 256)
        require_names("categories", self.categories, CATEGORIES)
        require_range("font", self.font, 9, 200)
        require_range("paragraphs", self.paragraphs, 2, 500)
        require_range("lines", self.lines, 2, 10)
        require_range("measure", self.measure, 14, 60)
        require_range("contrast", self.contrast, 0.2, 1)
        require(0 <= self.pictures <= 1, "pictures", self.pictures, "a probability from 0 to 1")
        for size in self.sizes:
            places = len(_places(size, self.font[1], self.measure[1], self.lines[1]))
            allowed = f"small enough for 2 paragraphs on {size[0]}x{size[1]} pixels with lines={self.lines!r}"
            require(places >= 2, "font", self.font, f"{allowed} and measure={self.measure!r}")

    def only(self, category: str) -> DocumentOptions:
        """Return a copy that asks questions of one category; raises `ConfigError` for one it does not have."""
        if category not in self.categories:
            raise unknown("category of documents", category, self.categories)
        return replace(self, categories=(category,))

    def at_difficulty(self, difficulty: float) -> DocumentOptions:
        """Return a copy for a level of difficulty.

        Sets `sizes` to A4, upright and lying, from 120 up to 300 dots per inch, `font` from 30 down to 12, `paragraphs`
        from (3, 4) up to (40, 80), `contrast` from 1 down to 0.55, `pictures` from 0 to 0.3 and `measure` to (20, 28).
        At 1 every target is smaller than 0.01 % of the page. Raises `ConfigError` for a difficulty out of range.
        """
        d = check_difficulty(difficulty)
        width, height = (round(inches * grade(d, 120, 300)) for inches in _A4)
        font = round(grade(d, 30, 12))
        contrast = grade(d, 1, 0.55)
        return replace(
            self,
            sizes=((width, height), (height, width)),
            font=(font, font),
            measure=(20, 28),
            paragraphs=grade_range(d, (3, 4), (40, 80)),
            contrast=(contrast, contrast),
            pictures=0.3 * d,
        )

    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the scene that belongs to a seed; see `SceneOptions.draw`."""
        layout, look = stream(seed, 0), stream(seed, 1)
        size = pick(layout, self.sizes)
        category = pick(layout, self.categories)
        font, measure = between(layout, *self.font), between(layout, *self.measure)
        places = _places(size, font, measure, self.lines[1])
        order = layout.permutation(len(places)).tolist()
        count = min(len(places), between(layout, *self.paragraphs))
        page, question = self._write(layout, category, count, font, measure * font)
        # In reading order: column by column.
        corners = [places[i] for i in sorted(order[:count])]
        image, ink = _paper(look, size, float(look.uniform(*self.contrast)))
        objects = [
            item
            for number, (corner, paragraph) in enumerate(zip(corners, page, strict=True))
            for item in _print(image, number, paragraph, corner, font, ink)
        ]
        for i in order[count:]:
            if look.random() < self.pictures:
                _illustration(look, image, places[i], (measure * font, int(self.lines[1] * font * _LEADING)))
        _head_and_foot(look, image, font, ink)
        index = {(item["paragraph"], item["line"], item["word"]): i for i, item in enumerate(objects)}
        targets = [index[place] for place in question.evidence]
        return Task(
            task_id=task_id,
            images=(image,),
            question=question.text,
            answer=question.answer,
            targets=tuple(as_box(objects[i]["box"]) for i in targets),
            category=category,
            meta={
                "objects": objects,
                "targets": targets,
                "font": font,
                **answer_fields("integer" if question.is_number else "text", ()),
            },
        )

    def _write(
        self, rng: np.random.Generator, category: str, count: int, font: int, width: int
    ) -> tuple[list[Paragraph], _Question]:
        """Write paragraphs and find a question with a unique answer."""
        ask = {"recognition": _ask_word, "counting": _ask_count, "paragraph": _ask_paragraph}[category]
        for _ in range(_ATTEMPTS):
            page = [write_paragraph(rng, between(rng, *self.lines), font, width) for _ in range(count)]
            if len({opening(paragraph) for paragraph in page}) < count:
                continue
            for _ in range(_ATTEMPTS):
                question = ask(rng, page, font, width)
                if question is not None:
                    return page, question
        raise TaskError(
            f"no question of category {category!r} found for a page of {count} paragraphs after {_ATTEMPTS} attempts; "
            f"use more 'lines' (now {self.lines!r}) or a larger 'measure' (now {self.measure!r})."
        )


# ---- questions


def _ask_word(rng: np.random.Generator, page: list[Paragraph], font: int, width: int) -> _Question | None:
    """Ask for a word of a line."""
    p = between(rng, 0, len(page) - 1)
    n = between(rng, 0, len(page[p]) - 1)
    line = page[p][n]
    where = f'on line {n + 1} of the paragraph that begins with "{opening(page[p])}"'
    kind = pick(rng, ("shortest", "longest", "place"))
    if kind == "place":
        i = between(rng, 0, min(len(line), len(_ORDINALS)) - 1)
        return _Question(f"What is the {_ORDINALS[i]} word {where}?", line[i].text, [(p, n, i)])
    lengths = [len(word.text) for word in line]
    best = min(lengths) if kind == "shortest" else max(lengths)
    if lengths.count(best) > 1:
        return None
    i = lengths.index(best)
    return _Question(f"What is the {kind} word {where}?", line[i].text, [(p, n, i)])


def _ask_count(rng: np.random.Generator, page: list[Paragraph], font: int, width: int) -> _Question | None:
    """Ask how often a word occurs, how many words a line has, or how many lines a paragraph has."""
    p = between(rng, 0, len(page) - 1)
    named = f'the paragraph that begins with "{opening(page[p])}"'
    kind = pick(rng, ("paragraph", "page", "line", "lines"))
    if kind == "lines":
        # The first word of each line distinguishes it from the others.
        return _Question(
            f"How many lines does {named} have?", str(len(page[p])), [(p, n, 0) for n in range(len(page[p]))], True
        )
    if kind == "line":
        n = between(rng, 0, len(page[p]) - 1)
        evidence = [(p, n, i) for i in range(len(page[p][n]))]
        return _Question(f"How many words are on line {n + 1} of {named}?", str(len(evidence)), evidence, True)
    word = pick(rng, WORDS)
    places = inner_places(page, range(p, p + 1) if kind == "paragraph" else range(len(page)))
    wanted = between(rng, 1, 5)
    for number in rng.permutation(len(places)).tolist():
        here = [place for place in find_word(page, word) if kind == "page" or place[0] == p]
        if len(here) >= wanted:
            break
        replace_word(page, places[number], word, font, width)
    found = [place for place in find_word(page, word) if kind == "page" or place[0] == p]
    if not found:
        return None
    where = named if kind == "paragraph" else "the paragraphs of this page"
    text = f'How many times does the word "{word}" occur in {where}, with or without a capital letter?'
    return _Question(text, str(len(found)), found, True)


def _ask_paragraph(rng: np.random.Generator, page: list[Paragraph], font: int, width: int) -> _Question | None:
    """Ask for something about the one paragraph that holds a word."""
    p = between(rng, 0, len(page) - 1)
    word = pick(rng, WORDS)
    replace_word(page, pick(rng, inner_places(page, range(p, p + 1))), word, font, width)
    # On a long page any word occurs several times: replace all its occurrences but one.
    places = find_word(page, word)
    kept = pick(rng, places) if places else None
    for place in places:
        if place != kept and (place in opening_places(page) or not replace_by_any(rng, page, place, word, font, width)):
            return None
    found = find_word(page, word)
    if len(found) != 1:
        return None
    p, n, _ = found[0]
    last = (p, len(page[p]) - 1, len(page[p][-1]) - 1)
    kind = pick(rng, ("first", "last", "line"))
    if kind == "line":
        text = f'On which line of its paragraph is the word "{word}"? Answer with a number; the first line is 1.'
        return _Question(text, str(n + 1), found, True)
    place = (p, 0, 0) if kind == "first" else last
    if place == found[0]:
        return None
    answer = page[place[0]][place[1]][place[2]].text
    return _Question(f'What is the {kind} word of the paragraph that holds the word "{word}"?', answer, [*found, place])


# ---- printing


def _places(size: tuple[int, int], font: int, measure: int, most_lines: int) -> list[tuple[int, int]]:
    """Return the top left corners, in pixels, of the places for paragraphs, column by column."""
    margin = int(_MARGIN * min(size))
    width, height = measure * font, int(most_lines * font * _LEADING)
    step_x, step_y = width + _GUTTER * font, height + _GUTTER * font
    top = margin + 2 * font
    columns = (size[0] - 2 * margin + _GUTTER * font) // step_x
    rows = (size[1] - top - margin - 2 * font + _GUTTER * font) // step_y
    left = (size[0] - columns * step_x + _GUTTER * font) // 2
    return [(left + column * step_x, top + row * step_y) for column in range(columns) for row in range(rows)]


def _paper(rng: np.random.Generator, size: tuple[int, int], contrast: float) -> tuple[Image.Image, drawing.RGB]:
    """Return an empty page and the colour of its ink."""
    paper = rng.integers(228, 250) + rng.integers(-6, 6, 3)
    ink = (paper * (1 - contrast) + 20 * contrast).astype(int).tolist()
    return Image.new("RGB", size, tuple(paper.tolist())), (ink[0], ink[1], ink[2])


def _print(
    image: Image.Image, number: int, paragraph: Paragraph, corner: tuple[int, int], font: int, ink: drawing.RGB
) -> list[dict[str, Any]]:
    """Print a paragraph and describe its words; `box` holds the ink of a word without punctuation, in pixels."""
    items = []
    space = space_width(font)
    for n, line in enumerate(paragraph):
        x, y = corner[0], corner[1] + round((n + 0.8) * font * _LEADING)
        for i, word in enumerate(line):
            box = write_text(image, word.text, font, (x, y), ink)
            items.append({"text": word.text, "paragraph": number, "line": n, "word": i, "box": list(box)})
            if word.tail:
                # It must not reach into the word's box, whatever the font's spacing.
                pen = max(x + lettering(word.text, font).advance, box[2] - lettering(word.tail, font).left)
                write_text(image, word.tail, font, (pen, y), ink)
            x += word_width(word, font) + space
    return items


def _illustration(rng: np.random.Generator, image: Image.Image, corner: tuple[int, int], room: tuple[int, int]) -> None:
    """Draw an illustration at an empty place: a tinted plate with a shape on it."""
    x, y = corner
    tint = tuple(rng.integers(170, 225, 3).tolist())
    ImageDraw.Draw(image).rectangle((x, y, x + room[0] - 1, y + room[1] - 1), fill=tint)
    side = int(min(room) * 0.7) // 8 * 8
    if side >= 16:
        sticker = drawing.sticker(pick(rng, drawing.SHAPES), side, pick(rng, tuple(COLORS.values())))
        at = (x + (room[0] - sticker.width) // 2, y + (room[1] - sticker.height) // 2)
        image.paste(sticker, at, sticker)


def _head_and_foot(rng: np.random.Generator, image: Image.Image, font: int, ink: drawing.RGB) -> None:
    """Draw a line at the head of the page and the page number at its foot."""
    margin = int(_MARGIN * min(image.size))
    ImageDraw.Draw(image).line((margin, margin, image.width - margin, margin), fill=ink, width=max(1, font // 12))
    write_centered(image, str(between(rng, 2, 400)), font, (image.width / 2, image.height - margin), ink)
