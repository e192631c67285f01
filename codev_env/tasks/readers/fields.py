"""Checks of a row's fields: texts, options, answers, JSON, and the values of a task's metadata."""

from __future__ import annotations

import json
import math
import re
import string
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codev_env.errors import TaskError, nearest_name

LETTERS = string.ascii_uppercase

LONGEST = 10_000
"""Characters of a text up to which a task's metadata has it; longer ones are images most likely."""

_INLINE = re.compile(r"\(([A-Z])\)")
_LINES = re.compile(r"^[ \t]*(?:\(([A-Z])\)|([A-Z])[.:)])[ \t]*", re.MULTILINE)
# Options that run on in one line, "Which one? A. red B. blue": initials of names look the same.
_RUNNING = re.compile(r"(?<=\s)([A-Z])[.)] (?=\S)")
# The same in a text of options alone, where every line may begin with a letter without a point.
_MARKED = re.compile(r"(?<!\S)(?:\(([A-Z])\)|([A-Z])[.:)])[ \t]*(?=\S)")
_BARE = re.compile(r"^[ \t]*([A-Z])[ \t]+(?=\S)", re.MULTILINE)
_HALF = re.compile(r"[\ud800-\udfff]")
_INSTRUCTION = re.compile(r"\s*Answer with the option.*$", re.DOTALL)
# After the last option of training data, such as "Please answer with the letter." or an instruction to call a tool.
_TRAILING = re.compile(r"\s*\n\s*(?:Answer |Please |Choose |Select |Think |Output ).*$", re.DOTALL)


# ---- values


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number that a float can hold, and no `bool`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def brief(value: Any) -> str:
    """Return a value's repr, cut to one short line."""
    text = re.sub(r"\s*\n\s*", " ", repr(value))  # the repr of an array has several lines
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_characters(where: Path | str, *texts: str) -> None:
    """Raise `TaskError` if a text has a lone surrogate: UTF-8 cannot write it, so no model can be asked."""
    for found in texts:
        if half := _HALF.search(found):
            raise TaskError(
                f"{where}: {brief(found)} has half of a character ({ascii(half[0])[1:-1]}, a lone surrogate), which "
                "UTF-8 cannot write. Put the whole character, or remove it."
            )


# ---- JSON


def read_text(path: Path) -> str:
    """Read a file as UTF-8; raises `TaskError` with its name."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: cannot be read as UTF-8 text ({error}). Restore it or download it again.") from error


def parse_json(where: Path | str, text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; raises `TaskError` that names `where`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{where}: is not JSON ({error}). Restore it or download it again.") from error
    if not isinstance(data, dict):
        raise TaskError(f"{where}: holds a {type(data).__name__}; expected a JSON object with the question's fields.")
    return data


# ---- fields


def field(where: Path | str, data: Mapping[str, Any], key: str) -> Any:
    """Return a field that must be there."""
    if key not in data:
        raise TaskError(f"{where}: has no {key!r} (it has: {', '.join(map(repr, data)) or 'nothing'}). Add it.")
    return data[key]


def text(where: Path | str, data: Mapping[str, Any], key: str) -> str:
    """Return a field that must be a text that is not empty."""
    value = field(where, data, key)
    if not isinstance(value, str) or not value.strip():
        raise TaskError(f"{where}: {key!r} is {brief(value)}; expected a text that is not empty.")
    return value.strip()


def texts(where: Path | str, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a field that must be a list of 2 to 26 different texts."""
    return options(where, key, field(where, data, key))


def options(where: Path | str, key: str, value: Any) -> tuple[str, ...]:
    """Check options: a list of 2 to 26 different texts."""
    good = isinstance(value, Sequence) and not isinstance(value, str)
    stripped = tuple(v.strip() if isinstance(v, str) else "" for v in value) if good else ()
    if not 2 <= len(stripped) <= 26 or not all(stripped) or len(set(stripped)) < len(stripped):
        raise TaskError(f"{where}: {key!r} is {brief(value)}; expected a list of 2 to 26 different texts.")
    return stripped


def plain(value: Any) -> str:
    """Return a value as text: numbers in plain form, `3.0` as `3`; `None` and NaN as `""`."""
    if isinstance(value, str):
        return value.strip()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value).strip()


def optional(value: Any) -> Any:
    """Return `None` for NaN, an empty text, and the texts `nan` and `None`, which data sets write for it."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, str) and value.strip() in ("", "nan", "None"):
        return None
    return value


def shuffled(choices: tuple[str, ...], task_id: str, seed: int) -> tuple[str, ...]:
    """Shuffle by seed and task id: the order does not depend on other rows."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(task_id.encode(errors="surrogatepass"))))
    return tuple(choices[i] for i in rng.permutation(len(choices)))


def letter_answer(where: str, letter: Any, choices: Mapping[str, str], key: str = "answer") -> str:
    """Return the text of the option that a letter names; raises `TaskError` for a letter without an option."""
    name = plain(letter).strip("().: ").upper()
    if name not in choices:
        raise TaskError(f"{where}: {key!r} is {brief(letter)}, but the options are {', '.join(choices) or 'none'}.")
    return choices[name]


def scorer_meta(
    bench: str,
    *,
    question_type: str,
    answer_type: str = "text",
    precision: int | None = None,
    unit: str | None = None,
    cycle_category: str | None = None,
) -> dict[str, Any]:
    """Return the metadata that scorers read, the same keys for every task.

    Args:
        bench: Name of the benchmark, as in `codev_env.benches.BENCHES`.
        question_type: `"multi_choice"` or `"free_form"`, MathVista's words for all benchmarks.
        answer_type: `"text"`, `"integer"`, `"float"` or `"list"`.
        precision: Decimals of a float answer.
        unit: Unit of the answer.
        cycle_category: HR-Bench's name of the order of the options.
    """
    return {
        "bench": bench,
        "question_type": question_type,
        "answer_type": answer_type,
        "precision": precision,
        "unit": unit,
        "cycle_category": cycle_category,
    }


def jsonable(value: Any) -> Any:
    """Return a value for JSON: bytes are left out, other types that JSON lacks become text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items() if not isinstance(v, bytes)}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [jsonable(v) for v in value if not isinstance(v, bytes)]
    return str(value)


def other_fields(row: Mapping[str, Any], used: Collection[str]) -> dict[str, Any]:
    """Return the fields of a row that a task has no other place for, as values for JSON.

    Bytes and texts of more than `LONGEST` characters are left out at any depth: trajectories repeat the metadata.
    """
    return {name: jsonable(_light(value)) for name, value in row.items() if name not in used and not _is_heavy(value)}


def _light(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _light(entry) for name, entry in value.items() if not _is_heavy(entry)}
    if isinstance(value, list | tuple):
        return [_light(entry) for entry in value if not _is_heavy(entry)]
    return value


def _is_heavy(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview) or (isinstance(value, str) and len(value) > LONGEST)


def number_form(decimals: int) -> str:
    """Return a line that asks for a number with so many decimals, 0 for an integer: scorers compare what is written."""
    if not decimals:
        return "\nAnswer with an integer."
    return f"\nAnswer with a number with {decimals} decimal{'s' if decimals > 1 else ''}."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean …?"` for a name near a known one, else `""`."""
    near = nearest_name(name, known)
    return f" Did you mean {near!r}?" if near else ""


# ---- options inside a question


def split_inline(question: str) -> tuple[str, dict[str, str]]:
    """Split "What …? (A) red (B) blue Answer with the option's letter …", on one line or several."""
    return _split(_INSTRUCTION.sub("", question), _INLINE)


def split_options(question: str, *, running: bool = False) -> tuple[str, dict[str, str]]:
    """Split a question from options at line starts ("A. red", "(A) red", "A) red", "A: red") or inline.

    Args:
        question: The question and its options.
        running: Also split "Which one? A. red B. blue", for questions whose answer is known to be a letter.

    Returns:
        The question without options, and options by letter; without options the unchanged question and `{}`.
    """
    for pattern in (_LINES, _INLINE, *([_RUNNING] if running else [])):
        stem, found = _without_instructions(question, pattern)
        ended = pattern is not _RUNNING or stem.endswith(("?", ":", ".", "!"))
        if stem and ended and _are_options(found) and len(set(found.values())) == len(found):
            return re.sub(r"\s*(?:Options|Choices)\s*:\s*$", "", stem), found
    return question.strip(), {}


def given_options(value: Any) -> dict[str, str]:
    """Return options of a field of their own by letter: from a mapping, a list, or a text with a letter before each.

    Entries of a list may have their letters, as in "A. red"; otherwise they get them in order. Unlike options that
    are found in a question, these may have equal texts, several may be on a line where not each has its own, and the
    point after the letters may be missing on all lines. `{}` for anything else.
    """
    if isinstance(value, Mapping):
        pairs = sorted((plain(name).strip("().: ").upper(), plain(text)) for name, text in value.items() if plain(text))
        found = dict(zip(LETTERS, (text for _, text in pairs), strict=False))
        return found if _are_options(found) and [name for name, _ in pairs] == list(found) else {}
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 1:
        texts = list(map(plain, value))
        while texts and not texts[-1]:  # A column of Parquet may be padded.
            texts.pop()
        marks = [mark for mark in map(_LINES.match, texts) if mark]
        letters = [mark[1] or mark[2] for mark in marks]
        expected = list(LETTERS[: len(texts)])
        if letters == expected:
            texts = [text[mark.end() :].strip() for text, mark in zip(texts, marks, strict=True)]
        elif len(marks) == len(texts) and all(mark[1] for mark in marks) and letters == sorted(letters):
            # A letter twice: its options are one, as they are where options come as one text.
            if merged := given_options("\n".join(texts)):
                return merged
        elif sorted(letters) == expected:
            return {}
        found = dict(zip(LETTERS, texts, strict=False))
        return found if _are_options(found) and len(found) == len(texts) else {}
    text = "\n".join(map(plain, value)) if isinstance(value, Sequence) and not isinstance(value, str) else plain(value)
    splits = (_without_instructions(f"?\n{text}", pattern)[1] for pattern in _patterns(text))
    return next(filter(_are_options, splits), {})


def _patterns(text: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of letters to try on a text of options."""
    letters = [mark[1] or mark[2] for mark in _LINES.finditer(text)]
    if letters and letters != list(LETTERS[: len(letters)]):
        return _MARKED, _LINES  # Some options do not begin a line.
    bare = not letters and len(_BARE.findall(text)) == sum(map(bool, map(str.strip, text.splitlines())))
    return (_BARE,) if bare else (_LINES, _INLINE, _MARKED)


def _are_options(found: Mapping[str, str]) -> bool:
    return len(found) >= 2 and all(found.values())


def _without_instructions(question: str, pattern: re.Pattern[str]) -> tuple[str, dict[str, str]]:
    stem, found = _split(_INSTRUCTION.sub("", question), pattern)
    if found:
        last = list(found)[-1]
        found[last] = _TRAILING.sub("", found[last])
    return stem, found


def _split(question: str, pattern: re.Pattern[str]) -> tuple[str, dict[str, str]]:
    markers: list[re.Match[str]] = []
    for match in pattern.finditer(question):
        if (match[1] or match[match.re.groups]) == chr(ord("A") + len(markers)):
            markers.append(match)
    if not markers:
        return question.strip(), {}
    ends = [match.start() for match in markers[1:]] + [len(question)]
    answers = [question[match.end() : end].strip() for match, end in zip(markers, ends, strict=True)]
    return question[: markers[0].start()].strip(), dict(zip(LETTERS, answers, strict=False))
