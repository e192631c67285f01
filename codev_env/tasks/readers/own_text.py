"""Question, options and answer of a row of one's own data, as plain texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from codev_env.errors import TaskError
from codev_env.tasks.readers.cells import parsed
from codev_env.tasks.readers.fields import LETTERS, brief, plain, split_options

_NUMBER = re.compile(r"([0-9]{1,2})(?:\.0+)?")  # of a choice; a column with gaps holds floats
_DIGIT = re.compile(r"[0-9]")
_PLACES = re.compile(r"(?:\s*<image>)+\s*")
_TAGGED = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL | re.IGNORECASE)
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


@dataclass(frozen=True)
class NamedChoice:
    """An option of a row, and the names that the answer may have for it.

    Attributes:
        text: As it is shown.
        letter: Its letter in the row, whose empty options have one, too.
        number: Its number from 0, counted alike, or its key in a mapping of numbers.
        key: Its key in a mapping, else empty.
    """

    text: str
    letter: str
    number: int
    key: str


def read_choices(
    value: Any, where: str, column: str = "choices", *, exact: bool = False, gaps: bool = False
) -> tuple[NamedChoice, ...]:
    """Return the options, without the letters "A. " in front if all have theirs; `()` for none.

    Args:
        value: A list, a mapping of letters, numbers or names to texts, or the JSON of one; `None` for no options.
        where: Names row and file in errors.
        column: Names the column in errors.
        exact: Leave the letters, for rows that this project wrote.
        gaps: Leave out the empty entries of a list, as those of a mapping are; the others keep letter and number.

    Raises:
        TaskError: Anything but 2 to 26 different texts.
    """
    value = _parsed(value, where, column, '["dog", "cat"]')
    if value is None:
        return ()
    mapped = isinstance(value, Mapping)
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    options = _options(value, gaps or mapped) if mapped or listed else []
    if not options and (mapped or listed):
        return ()
    texts = {option.text for option in options}
    nested = (mapped or listed) and not all(map(_is_one, value.values() if mapped else value))
    twice = len(texts) < len(options) or (mapped and len({option.key for option in options}) < len(options))
    if not 2 <= len(options) <= 26 or "" in texts or twice or nested:
        raise TaskError(f"{where}: the choices are {brief(value)}; expected 2 to 26 different texts.")
    bare = tuple(replace(option, text=_without_letter(option.text, option.letter)) for option in options)
    lettered = all(short.text != option.text for short, option in zip(bare, options, strict=True))
    return bare if lettered and not exact and len({option.text for option in bare}) == len(bare) else tuple(options)


def _options(value: Mapping[Any, Any] | Sequence[Any], gaps: bool) -> list[NamedChoice]:
    """Return the entries of a list or mapping, with `gaps` without the empty ones.

    Keys that are letters or numbers are sorted; others keep their order.
    """
    entries = value.items() if isinstance(value, Mapping) else [("", entry) for entry in value]
    pairs = [(_name(key), entry) for key, entry in entries]
    numbered = all(key.isdecimal() for key, _ in pairs)
    lettered = all(len(key) == 1 and key in LETTERS for key, _ in pairs)
    if numbered or lettered:
        pairs.sort(key=lambda pair: int(pair[0]) if numbered else LETTERS.index(pair[0]))
    found = []
    for place, (key, entry) in enumerate(pairs):
        letter = key if lettered else LETTERS[place : place + 1]
        number = int(key) if numbered else LETTERS.index(key) if lettered else place
        if plain(entry) or not gaps:
            found.append(NamedChoice(plain(entry), letter, number, key))
    return found


def read_answer(value: Any, options: Sequence[NamedChoice], where: str) -> str:
    """Return the answer's text: of an option named by its text, its key, its letter, letter and text, or its number.

    Answers in the tags that models are to write, `<answer> 3 </answer>`, are taken out of them.

    Raises:
        TaskError: Empty, no single text, none of the options, or the text of one and the key or number of another.
    """
    value = single_text(value, "answer", where)
    if tagged := _TAGGED.fullmatch(plain(value)):
        value = tagged[1].strip()
    text = plain(value)
    if not text:
        raise TaskError(f"{where}: the answer is empty.")
    if not options:
        return text
    name, digits = _name(text), None if isinstance(value, bool) else _NUMBER.fullmatch(text)
    by_key = _first(options, lambda option: option.key == name != "")
    by_number = _first(options, lambda option: digits is not None and option.number == int(digits[1]))
    if text in (option.text for option in options):
        if by_key not in (None, text):
            raise TaskError(
                f"{where}: the answer is {brief(value)}, which is the key of one choice and the text of another. "
                "Write the choices as a list and the answer as the text of one."
            )
        if not isinstance(value, str) and by_number not in (None, text):
            raise _may_be_a_value(value, text, where)
        return text
    found = _first(options, lambda option: _without_letter(text, option.letter) == option.text) or by_key
    by_place = _first(options, lambda option: option.letter == name != "")
    written = _first(options, lambda option: _without_letter(option.text, name) != option.text)
    if found is None and by_place is not None and written not in (None, by_place):
        raise TaskError(
            f"{where}: the answer is {brief(value)}, which is the letter of {by_place!r} by its place, but {written!r} "
            "opens with it. Write the text of the choice."
        )
    if (found := found or by_place) is not None:
        return found
    if by_number is None:
        letters, numbers = [option.letter for option in options], [option.number for option in options]
        raise TaskError(
            f"{where}: the answer is {brief(value)}, which is neither one of the choices "
            f"{', '.join(repr(option.text) for option in options)} nor a letter "
            f"{_span(letters, list(map(LETTERS.index, letters)))} nor a number {_span(numbers, numbers)}."
        )
    # "2" or 2.0 beside the choices "2.00" and "3.00", or "2 cm" and "3 cm", may mean a value.
    alike = _first(options, lambda option: _DIGIT.search(option.text) is not None)
    if not isinstance(value, int) and alike:
        raise _may_be_a_value(value, alike, where)
    return by_number


def _first(options: Sequence[NamedChoice], fits: Callable[[NamedChoice], bool]) -> str | None:
    return next((option.text for option in options if fits(option)), None)


def _may_be_a_value(value: Any, choice: str, where: str) -> TaskError:
    return TaskError(
        f"{where}: the answer is {brief(value)}, which may be a number of a choice from 0 or a value like the "
        f"choice {choice!r}. Write the text of the choice or its letter."
    )


def _span(names: Sequence[Any], places: Sequence[int]) -> str:
    """Return "A to D", or "A, C, D" where names are missing."""
    whole = places[-1] - places[0] == len(places) - 1
    return f"{names[0]} to {names[-1]}" if whole else ", ".join(map(str, names))


def _name(value: Any) -> str:
    """Return a key or an answer in the form that both have: "(b)" is "B", "02" and 2.0 are "2"."""
    text = plain(value).strip("().: ").upper()
    number = _NUMBER.fullmatch(text)
    return str(int(number[1])) if number else text


def read_targets(value: Any, where: str, column: str = "targets") -> Any:
    """Return boxes that may be written as JSON text; raises `TaskError` for another text."""
    return _parsed(value, where, column, "[10, 10, 50, 50]")


def _parsed(value: Any, where: str, column: str, example: str) -> Any:
    try:
        return parsed(value, where)
    except TaskError as error:
        raise TaskError(f"{error} Write the column {column!r} as a list such as {example}.") from error


def _without_letter(text: str, letter: str) -> str:
    """Return an option without its letter, if it opens with it."""
    mark = _LETTER.match(text)
    return text[mark.end() :] if mark and (mark[1] or mark[2]) == letter else text


def single_text(value: Any, field: str, where: str) -> Any:
    """Return a value, or the entry of a list of one; raises `TaskError` for another list, which is no text."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        value = value[0]
    if not _is_one(value):
        raise TaskError(f"{where}: the {field} is {brief(value)}; give one text.")
    return value


def _is_one(value: Any) -> bool:
    return isinstance(value, str) or not isinstance(value, Mapping | Sequence | set | frozenset)
