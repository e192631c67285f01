"""The text of generated documents: paragraphs of lines, and words that are replaced and found by place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from codev_env.tasks.generators.generator import sample
from codev_env.tasks.generators.lettering import lettering
from codev_env.tasks.generators.words import WORDS

_TRIES = 50


class Word(NamedTuple):
    """A word of a page as printed, and the punctuation mark after it."""

    text: str
    tail: str = ""


Paragraph = list[list[Word]]
"""Lines of words."""

Place = tuple[int, int, int]
"""Place of a word: paragraph, line and word, all counted from 0."""


def write_paragraph(rng: np.random.Generator, n_lines: int, font: int, width: int) -> Paragraph:
    """Fill `n_lines` lines with words, the last one only in part."""
    numbers = iter(rng.integers(len(WORDS), size=n_lines * width // font).tolist())
    marks = iter(rng.random(n_lines * width // font).tolist())
    lines: Paragraph = []
    capital = True
    space = space_width(font)
    for number in range(n_lines):
        last = number == n_lines - 1
        limit = width * rng.uniform(0.3, 0.9) if last else width
        line: list[Word] = []
        used = 0
        while True:
            text, mark = WORDS[next(numbers)], next(marks)
            # Questions refer to a paragraph by its first two words: no full stop between them.
            opens = not lines and not line
            tail = "" if opens else "." if mark < 0.1 else "," if mark < 0.18 else ""
            word = Word(text.capitalize() if capital else text, tail)
            used += word_width(word, font) + space
            if used - space > limit and len(line) >= 2:
                break
            line.append(word)
            capital = tail == "."
        lines.append(line)
    lines[-1][-1] = lines[-1][-1]._replace(tail=".")
    return lines


def word_width(word: Word, font: int) -> int:
    """Return the advance of a word and its punctuation in pixels."""
    return lettering(word.text, font).advance + (lettering(word.tail, font).advance if word.tail else 0)


def space_width(font: int) -> int:
    """Return the space between two words in pixels."""
    return round(font * 0.3)


def line_width(line: list[Word], font: int) -> int:
    """Return the width of a line in pixels."""
    return sum(word_width(word, font) for word in line) + space_width(font) * (len(line) - 1)


def opening(paragraph: Paragraph) -> str:
    """Return the two words by which a question refers to a paragraph."""
    return f"{paragraph[0][0].text} {paragraph[0][1].text}"


def replace_word(page: list[Paragraph], place: Place, new: str, font: int, width: int) -> bool:
    """Replace the word at a place, unless the line would get too wide; returns whether it did."""
    paragraph, number, position = place
    line = page[paragraph][number]
    old = line[position]
    text = new.capitalize() if old.text[0].isupper() else new
    changed = [*line[:position], old._replace(text=text), *line[position + 1 :]]
    if line_width(changed, font) > width:
        return False
    page[paragraph][number] = changed
    return True


def replace_by_any(
    rng: np.random.Generator, page: list[Paragraph], place: Place, unwanted: str, font: int, width: int
) -> bool:
    """Replace the word at a place by any word but one; returns whether one fitted."""
    news = (word for word in sample(rng, WORDS, _TRIES) if word != unwanted)
    return any(replace_word(page, place, word, font, width) for word in news)


def inner_places(page: list[Paragraph], paragraphs: range) -> list[Place]:
    """Return the places of all words of some paragraphs, except for their opening words."""
    return [(p, n, i) for p in paragraphs for n, line in enumerate(page[p]) for i in range(len(line)) if n > 0 or i > 1]


def opening_places(page: list[Paragraph]) -> set[Place]:
    """Return the places of the opening words of all paragraphs."""
    return {(p, 0, i) for p in range(len(page)) for i in (0, 1)}


def find_word(page: list[Paragraph], word: str) -> list[Place]:
    """Return the places of a word in reading order, ignoring case."""
    return [
        (p, n, i)
        for p, paragraph in enumerate(page)
        for n, line in enumerate(paragraph)
        for i, found in enumerate(line)
        if found.text.lower() == word
    ]
