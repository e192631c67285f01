"""`rules`: the project's own scorer, which decides by rules alone and is the default."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from codev_env.scoring import numbers
from codev_env.scoring.plain import normalize, same_brackets
from codev_env.scoring.scorer import How, Score
from codev_env.types import Task

_END = r"[.,;:]?$"
_LOUD_END = r"[.,;:!]?$"
_STYLE = r"\\(?:boxed|fbox|text|textbf|textit|textrm|mathrm|mathbf|mathsf|mbox)"
_PHRASE = r"(?:the )?(?:(?:final|correct|right) )?(?:answer|option|choice)"
_WRAPPERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"^<answer>(.*)</answer>" + _LOUD_END,
        r"^\$*\\boxed\{(.*)\}\$*" + _LOUD_END,
        rf"^{_STYLE}\{{(.*)\}}" + _LOUD_END,
        rf"^#* ?[*_]{{1,3}}{_PHRASE}(?: is)?:?[*_]{{1,3}}(?: is)?:? +(.*)$",
        r"^\*\*(.*)\*\*" + _LOUD_END,
        r"^`{1,3}([^`]*)`{1,3}" + _LOUD_END,
        r"^_{1,3}([^_]*)_{1,3}" + _LOUD_END,
        r"^\$([^$]*)\$" + _END,
        r"^\\\((.*)\\\)" + _END,
        r"^\\\[(.*)\\\]" + _END,
        r"^[\"'*“‘「『]([^\"'*“‘「『”’」』]*)[\"'*”’」』]" + _END,
        # Markdown's quote, or an arrow that leads to the answer; before a number or a variable it is a comparison.
        r"^(?:[-=]{0,3}>|[→⇒]) +(?=\D*$)(?=.*[^\W\d_]{2})(.*)$",
        rf"^#* ?{_PHRASE}(?: is|:| :| =)? ?:?(?<=[ :])(.*)$",
    )
)
_MAX_WRAPPERS = 6
# "(B) red", "B. red", "B) red", "B: red"; without one of these signs "A red mug" is a text, not option A.
_LETTER_FIRST = re.compile(r"^\s*(?:[(\[{]\s*([A-Za-z])\s*[)\]}][.:,]?|([A-Za-z])\s*[.):])(?:\s+|$)(.*)$", re.DOTALL)
_LETTER_ALONE = re.compile(r"^\s*[(\[{]?\s*([A-Za-z])\s*[)\]}]?\s*[.:,;!]?\s*$")
_ANOTHER_LETTER = re.compile(
    r"[(\[{]\s*([A-Z])\s*[)\]}]|(?<!\w)([A-Z])(?=[.):])|\b(?:or|and|not)\s+([A-Z])\b|(?<!\w)([A-Z])\s*$"
)
# A letter in bold, in backticks or as a formula: **B**, **(B)**, **B.**, `B`, $B$, \text{B}.
_EMPHASIS = re.compile(
    r"(?P<mark>\*{1,3}|_{1,2}|`{1,3}|\$)(?P<inner>\(?[A-Za-z]\)?[.:,]?)(?P=mark)"
    rf"|\$?{_STYLE}\{{(?P<styled>\(?[A-Za-z]\)?)\}}\$?"
)
_STYLED = ("<wide>", "<narrow>", "<font>", "<circle>")
_FULL_STOP = re.compile(r"。(?!\d)")


def is_correct(task: Task, answer: str) -> bool:
    """Decide whether an answer is right.

    With choices, an option's letter in the usual forms ("B", "(B)", "B.", "B. red", "The answer is **B**.") or its
    exact text counts, where case, spaces and punctuation do not matter, but signs do (C# is not C); where a single
    letter is also the text of another option, it is read as the letter. Without choices, the same text or the same
    number counts. An answer that names several options ("A or B") or contradicts itself ("B. green" where B is red) is
    wrong.

    Args:
        task: The task with `answer` and `choices`.
        answer: Any text.
    """
    return score_rules(task, answer).correct


def score_rules(task: Task, answer: str, /) -> Score:
    """Score one answer as `is_correct` says, and report the text that was read and by which rule."""
    forms = _forms(answer)
    if not task.choices:
        for form in forms:
            same = _same(form, task.answer)
            if same is not None:
                return Score(True, form, same, "the same")
        kind: How = "number" if numbers.read(forms[-1]) is not None else "text" if forms[-1] else "none"
        return Score(False, forms[-1], kind, "not the same")
    for form in forms:
        chosen = _choice(form, task.choices)
        if chosen is not None:
            choice, how = chosen
            return Score(choice == task.answer, choice, how, f"{how} of {choice[:60]!r}")
    return Score(False, why="no single option")


def _forms(text: str) -> list[str]:
    """Return a text and what is left as tags, emphasis and phrases like "The answer is" are taken off, one by one."""
    # Without long runs of spaces, on which the patterns below would be slow.
    forms = [" ".join(_ascii(text).split())]
    for _ in range(_MAX_WRAPPERS):
        matches = (pattern.match(forms[-1]) for pattern in _WRAPPERS)
        inner = next((match[1].strip() for match in matches if match), None)
        if inner is None:
            break
        forms.append(inner)
    return forms


@lru_cache(maxsize=64)  # an answer is compared with every option
def _ascii(text: str) -> str:
    """Write letters and signs of full width, in circles or in bold Unicode as ASCII; 5² stays, which is not 52."""
    if text.isascii():
        return text
    plain = (
        unicodedata.normalize("NFKC", char) if unicodedata.decomposition(char).startswith(_STYLED) else char
        for char in text
    )
    return _FULL_STOP.sub(".", "".join(plain))


def _choice(text: str, choices: tuple[str, ...]) -> tuple[str, How] | None:
    """Return the one choice that a text names and how it names it, or `None`."""
    letters = {chr(ord("A") + i): choice for i, choice in enumerate(choices[:26])}
    unmarked = _EMPHASIS.sub(lambda found: found["inner"] or found["styled"], text)
    alone = _LETTER_ALONE.match(unmarked)
    if alone and alone[1].upper() in letters:
        return letters[alone[1].upper()], "letter"
    same = [choice for choice in choices if _same(text, choice) == "text"]
    if same:
        return (same[0], "text") if len(set(same)) == 1 else None
    equal = {choice for choice in choices if _same(text, choice)}
    if equal:
        return (equal.pop(), "number") if len(equal) == 1 else None
    first = _LETTER_FIRST.match(unmarked)
    letter = (first[1] or first[2]).upper() if first else ""
    if first is None or letter not in letters:
        return None
    return None if _contradicts(first[3], letter, letters) else (letters[letter], "letter")


def _contradicts(rest: str, letter: str, letters: dict[str, str]) -> bool:
    """Return whether the text after a letter names another option, by letter or by text."""
    if _same(rest, letters[letter]):
        return False
    if any(_same(rest, choice) for choice in letters.values()):
        return True
    named = {next(group for group in match.groups() if group) for match in _ANOTHER_LETTER.finditer(rest)}
    if named & (letters.keys() - {letter}):
        return True
    words = f" {normalize(rest)} "
    texts = {normalize(choice): other for other, choice in letters.items()}
    # Longest first, so that "dark red" is not taken for "red".
    for choice in sorted(filter(None, texts), key=len, reverse=True):
        if f" {choice} " in words and texts[choice] != letter:
            return True
        words = words.replace(f" {choice} ", "  ")
    return False


def _same(text: str, gold: str) -> How | None:
    """Return how two open answers are the same, or `None`."""
    answer, right = numbers.read(text), numbers.read(gold)
    if answer is not None and right is not None and not numbers.same(answer, right):
        return None
    if _same_text(text, gold):
        return "text"
    return "number" if answer is not None and right is not None else None


def _same_text(a: str, b: str) -> bool:
    """Compare normalised texts; texts that are all punctuation are compared as they are."""
    a, b = _ascii(a), _ascii(b)
    one, two = normalize(a), normalize(b)
    return one == two and same_brackets(a, b) if one or two else a.split() == b.split()
