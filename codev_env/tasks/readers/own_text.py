"""Question, options and answer of a row of one's own data, as plain texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from codev_env.errors import TaskError
from codev_env.tasks.readers.cells import parsed
from codev_env.tasks.readers.fields import LETTERS, brief, plain, split_options

_NUMBER = re.compile(r"([0-9]{1,2})(?:\.0+)?")  # of a choice; a column with gaps holds floats
_DIGIT = re.compile(r"[0-9]")
_PLACES = re.compile(r"(?:\s*<image>)+\s*")
_LETTER = re.compile(r"(?:\(([A-Z])\)|([A-Z])[.:)])\s+(?=\S)")


def read_question(value: Any, where: str, *, exact: bool = False) -> str:
    """Return the question without the places of images that open it: a dialect's prompt has its own.

    Args:
        value: The question, or a list of one.
        where: Names row and file in errors.
        exact: Leave the places, for rows that this project wrote.

    Raises:
        TaskError: Empty, or no single text.
    """
    text = plain(single_text(value, "question", where))
    if not exact and (places := _PLACES.match(text)):
        text = text[places.end() :]
    if not text:
        raise TaskError(f"{where}: the question is empty.")
    return text


def without_options(question: str, choices: tuple[str, ...]) -> str:
    """Return a question without the options that it lists, if these are the choices: a prompt lists them again."""
    if not choices:
        return question
    stem, found = split_options(question, running=True)
    same = tuple(found.values()) in (choices, tuple(f"{LETTERS[at]}. {text}" for at, text in enumerate(choices)))
    return stem if same else question


def read_choices(value: Any, where: str, column: str = "choices", *, exact: bool = False) -> tuple[str, ...]:
    """Return the options, without the letters "A. " in front if all have theirs in order; `()` for none.

    Args:
        value: A list, a mapping of letters to texts, or the JSON of one; `None` for no options.
        where: Names row and file in errors.
        column: Names the column in errors.
        exact: Leave the letters, for rows that this project wrote.

    Raises:
        TaskError: Anything but 2 to 26 different texts.
    """
    value = _parsed(value, where, column, '["dog", "cat"]')
    if value is None:
        return ()
    if isinstance(value, Mapping):  # {"A": "red", "B": "blue"}
        value = [value[name] for name in sorted(value) if plain(value[name])]
    texts = tuple(plain(choice) for choice in value) if isinstance(value, Sequence) else ()
    if isinstance(value, Sequence) and not isinstance(value, str) and not texts:
        return ()
    nested = bool(texts) and not all(map(_is_one, value))
    if not 2 <= len(texts) <= 26 or not all(texts) or len(set(texts)) < len(texts) or nested:
        raise TaskError(f"{where}: the choices are {brief(value)}; expected 2 to 26 different texts.")
    if exact:
        return texts
    bare = tuple(_without_letter(text, at) for at, text in enumerate(texts))
    lettered = all(short != text for short, text in zip(bare, texts, strict=True))
    return bare if lettered and len(set(bare)) == len(bare) else texts


def read_answer(value: Any, choices: tuple[str, ...], where: str) -> str:
    """Return the answer's text: of a choice named by its text, its letter, both, or its number from 0.

    Raises:
        TaskError: Empty, no single text, or none of the choices.
    """
    value = single_text(value, "answer", where)
    text = plain(value)
    if not text:
        raise TaskError(f"{where}: the answer is empty.")
    if not choices or text in choices:
        return text
    for at, choice in enumerate(choices):
        if _without_letter(text, at) == choice:
            return choice
    letter = text.strip("().: ").upper()
    if len(letter) == 1 and letter in LETTERS[: len(choices)]:
        return choices[LETTERS.index(letter)]
    number = None if isinstance(value, bool) else _NUMBER.fullmatch(text)
    if number is None or int(number[1]) >= len(choices):
        raise TaskError(
            f"{where}: the answer is {brief(value)}, which is neither one of the choices "
            f"{', '.join(map(repr, choices))} nor a letter A to {LETTERS[len(choices) - 1]} nor a number 0 to "
            f"{len(choices) - 1}."
        )
    # "2" or 2.0 beside the choices "2.00" and "3.00", or "2 cm" and "3 cm", may mean a value.
    if not isinstance(value, int) and (alike := next((choice for choice in choices if _DIGIT.search(choice)), None)):
        raise TaskError(
            f"{where}: the answer is {brief(value)}, which may be a number of a choice from 0 or a value like the "
            f"choice {alike!r}. Write the text of the choice or its letter."
        )
    return choices[int(number[1])]


def read_targets(value: Any, where: str, column: str = "targets") -> Any:
    """Return boxes that may be written as JSON text; raises `TaskError` for another text."""
    return _parsed(value, where, column, "[10, 10, 50, 50]")


def _parsed(value: Any, where: str, column: str, example: str) -> Any:
    try:
        return parsed(value, where)
    except TaskError as error:
        raise TaskError(f"{error} Write the column {column!r} as a list such as {example}.") from error


def _without_letter(text: str, at: int) -> str:
    """Return an option without its letter, if it opens with the letter of its place."""
    mark = _LETTER.match(text)
    return text[mark.end() :] if mark and (mark[1] or mark[2]) == LETTERS[at] else text


def single_text(value: Any, field: str, where: str) -> Any:
    """Return a value, or the entry of a list of one; raises `TaskError` for another list, which is no text."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        value = value[0]
    if not _is_one(value):
        raise TaskError(f"{where}: the {field} is {brief(value)}; give one text.")
    return value


def _is_one(value: Any) -> bool:
    return isinstance(value, str) or not isinstance(value, Mapping | Sequence | set | frozenset)
