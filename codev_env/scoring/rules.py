"""`rules`: the project's own scorer, which decides by rules alone and is the default."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from codev_env.scoring import numbers
from codev_env.scoring.labels import needs_text, same_moment
from codev_env.scoring.plain import normalize, same_brackets
from codev_env.scoring.scorer import How, Score, is_right_letter, letters_of, right_answers
from codev_env.types import Task

_END = r"[.,;:]?$"
_LOUD_END = r"[.,;:!]?$"
_STYLE = r"\\(?:boxed|fbox|text|textbf|textit|textrm|mathrm|mathbf|mathsf|mbox)"
_KIND = r"(?:(?:final|best|correct|right) )?(?:answer|option|choice|letter)"
_LEAD = r"(?:(?:so|thus|hence|therefore|i (?:think|believe)(?: that)?),? ){0,3}"
PHRASE = rf"{_LEAD}(?:(?:the|my) )?{_KIND}"
"""Pattern of what leads to an answer: "So the final answer"."""
_CHINESE = (
    r"(?:(?:所以|因此|故),?)?"
    r"(?:(?:正确|最终)?答案(?:是|为|:):?|(?:答案|选[项择]?):?(?= ?[(\[*]*[A-Za-z](?![A-Za-z])))"
)
_ELSEWHERE = r"(?:Antwort|Respuesta|R[ée]ponse|Risposta|Resposta|Ответ|答え|解答|정답|답) ?: ?"
_IS_RIGHT = rf" is (?:correct|(?:the |my )?{_KIND})"
_FORMULA = re.compile(rf"\$\$?([^$]+)\$\$?|{_STYLE}\{{(.+)\}}|\\\((.+)\\\)|\\\[(.+)\\\]", re.DOTALL)
_WRAPPERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"^<answer>(.*)</answer>" + _LOUD_END,
        r"^\$*\\boxed\{(.*)\}\$*" + _LOUD_END,
        rf"^{_STYLE}\{{(.*)\}}" + _LOUD_END,
        rf"^#* ?[*_]{{1,3}}{PHRASE}(?: is)?:?[*_]{{1,3}}(?: is)?:? +(.*)$",
        r"^\*\*(.*)\*\*" + _LOUD_END,
        r"^`{1,3}([^`]*)`{1,3}" + _LOUD_END,
        r"^_{1,3}([^_]*)_{1,3}" + _LOUD_END,
        r"^\$\$([^$]*)\$\$" + _END,
        r"^\$([^$]*)\$" + _END,
        r"^\\\((.*)\\\)" + _END,
        r"^\\\[(.*)\\\]" + _END,
        r"^[\"'*“‘「『]([^\"'*“‘「『”’」』]*)[\"'*”’」』]" + _END,
        # Markdown's quote, or an arrow that leads to the answer; before a number or a variable it is a comparison.
        r"^(?:[-=]{0,3}>|[→⇒]) +(?=\D*$)(?=.*[^\W\d_]{2})(.*)$",
        rf"^#* ?{PHRASE}(?: is|:| :| =)? ?:?(?<=[ :])(.*)$",
        rf"^{_CHINESE}(.+)$",
        rf"^{_ELSEWHERE}(.+)$",
        rf"^(.*?){_IS_RIGHT}{_LOUD_END}",
    )
)
_MAX_WRAPPERS = 6
# "(B) red", "B. red", "B) red", "B: red"; without one of these signs "A red mug" is a text, not option A.
_LETTER_FIRST = re.compile(r"^\s*(?:[(\[{]\s*([A-Za-z])\s*[)\]}][.:,]?|([A-Za-z])\s*[.):])(?:\s+|$)(.*)$", re.DOTALL)
# "(B)red", "B.red", "B, red", "B - red": read where the option's own text follows, so that "A-frame" is none.
_LETTER_JOINED = re.compile(r"^\s*(?:[(\[{]\s*([A-Za-z])\s*[)\]}]|([A-Za-z])(?=\s*[^\w\s]))(.*)$", re.DOTALL)
# "red (B)", where the option's own text comes first.
_LETTER_LAST = re.compile(r"^(.*\S)\s*[(\[]\s*([A-Za-z])\s*[)\]][.]?$", re.DOTALL)
_CAPITAL = re.compile("[A-Z]")
_JOINT = re.compile(r"^\s*(?:[.,:;)、]|—|[-–](?=\s))?\s*")
_LETTER_ALONE = re.compile(r"^\s*[(\[{]?\s*([A-Za-z])\s*[)\]}]?\s*[.:,;!]?\s*$")
# "- B", an item of a list of Markdown.
_LETTER_LISTED = re.compile(r"^[-*+•]\s+[(\[{]?([A-Za-z])[)\]}]?[.:,;!]?$")
_ANOTHER_LETTER = re.compile(
    r"[(\[{]\s*([A-Z])\s*[)\]}]|(?<!\w)([A-Z])(?=[.):])|\b(?:or|and|not)\s+([A-Z])\b|(?<!\w)([A-Z])\s*$"
    rf"|(?<!\w)([A-Z])(?i:{_IS_RIGHT})"
)
# A letter in bold, in backticks or as a formula: **B**, **(B)**, **B.**, `B`, $B$, \text{B}.
_EMPHASIS = re.compile(
    r"(?P<mark>\*{1,3}|_{1,2}|`{1,3}|\$)(?P<inner>\(?[A-Za-z]\)?[.:,]?)(?P=mark)"
    rf"|\$?{_STYLE}\{{(?P<styled>\(?[A-Za-z]\)?)\}}\$?"
)
_BOX = "\\boxed{"
# Beside a box: words that make it one of several or none, and signs that make another number of it.
_BEFORE_BOX = re.compile(r"(?:\b(?:or|and|not|nor|than)|n't)$", re.IGNORECASE)
_AFTER_BOX = re.compile(r"^(?:or|and|nor|is(?: not|n't| wrong| incorrect))\b", re.IGNORECASE)
_COMMANDS = r"\\(?:%|(?:pm|mp|times|cdot|div|sqrt|[dtc]?frac|l[et]q?|g[et]q?|[lg]eqslant|neq?|approx|sim|neg)\b)"
_SIGN_BEFORE = re.compile(rf"(?:[-+<>≤≥±≠≈~/^−]|\b(?:minus|negative)|{_COMMANDS})$", re.IGNORECASE)
_SIGN_AFTER = re.compile(
    rf"^(?:[%‰^/\d]|[-+−] ?\d|{_COMMANDS}|(?:percent|hundred|thousand|million|billion|trillion|[kKMBT])\b)"
)
_DASHES = frozenset("-−–‒－")
_DELIMITED = re.compile(
    r"\$\$(?P<block>[^$]+)\$\$|\$(?! )(?P<inline>[^$]+)(?<! )\$(?![$\d])|\\\((?P<round>.+)\\\)|\\\[(?P<square>.+)\\\]",
    re.DOTALL,
)
# A number, or a formula by its command.
_VALUE = re.compile(r"\d|\\(?!(?:text|math[a-z]{2}|mbox|[bf]?boxed)\w*\b)[A-Za-z]")
_BULLET = re.compile(r"(?:^|\n)[ \t]{0,8}[-+*•][ \t]{1,8}$")
_BESIDE = 30  # characters before and after a box that are looked at
_AROUND_BOX = "*_$#` \t\n"
_MAX_LINES = 100
# A line that goes on with another option.
_ALSO = re.compile(r"^(?:(?:or|and|maybe|perhaps|possibly|alternatively)[,:]? +){1,3}(.*)$", re.IGNORECASE)
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200e\u200f\u2060\ufeff"))
_STYLED = ("<wide>", "<narrow>", "<font>", "<circle>")
_FULL_STOP = re.compile(r"。(?!\d)")


class _Box(NamedTuple):
    """Start and end of a box in a text, and what it holds."""

    start: int
    end: int
    content: str


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
    text = unboxed(answer)
    forms = _forms(text)
    if box := _boxed(text):
        forms += _forms(box)
    if not task.choices:
        for form, gold in product(forms, right_answers(task)):
            same = "letter" if _is_letter_first(form, gold) else _same(form, gold)
            if same is not None:
                return Score(True, form, same, "the same")
        kind: How = "number" if numbers.read(forms[-1]) is not None else "text" if forms[-1] else "none"
        return Score(False, forms[-1], kind, "not the same")
    letters = letters_of(task)
    found = next(filter(None, (_choice(form, letters) for form in forms)), None) or _choice_of_lines(text, letters)
    if found is None:
        return Score(False, why="no single option")
    letter, choice, how = found
    correct = is_right_letter(task, letter) if letter else choice == task.answer
    return Score(correct, choice, how, f"{how} of {choice[:60]!r}")


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
    text = text.translate(_INVISIBLE)
    plain = (
        unicodedata.normalize("NFKC", char) if unicodedata.decomposition(char).startswith(_STYLED) else char
        for char in text
    )
    return _FULL_STOP.sub(".", "".join(plain))


def unboxed(text: str) -> str:
    r"""Return a text without its `\boxed{…}` or `$…$` if a sign beside changes its value: `-\boxed{5}` is -5."""
    boxes = list(_boxes(text))
    found = boxes or _formulas(text)
    if len(found) != 1:
        return text
    box = found[0]
    before, after = _beside(text, found)
    tight = text[box.start - 1 : box.start] in _DASHES
    if _VALUE.search(box.content):
        signed = tight or bool(_SIGN_BEFORE.search(before) or _SIGN_AFTER.search(after))
    else:
        signed = tight and (not boxes or (len(box.content) == 1 and box.content.islower()))
    return f"{text[: box.start]}{box.content}{text[box.end :]}" if signed else text


def _formulas(text: str) -> list[_Box]:
    """Return the formulas between delimiters; none where there may be several."""
    if text.count("$") not in (0, 2, 4) or text.count("\\(") + text.count("\\[") > 1:
        return []
    return [
        _Box(match.start(), match.end(), match[match.lastgroup or 0].strip()) for match in _DELIMITED.finditer(text)
    ]


def _boxed(text: str) -> str:
    r"""Return what the only `\boxed{…}` beside other text holds; of several, only if all hold the same; else `""`."""
    found = list(_boxes(text))
    if len({box.content for box in found}) != 1:
        return ""
    before, after = _beside(text, found)
    return "" if _BEFORE_BOX.search(before) or _AFTER_BOX.search(after) else found[0].content


def _beside(text: str, found: Sequence[_Box]) -> tuple[str, str]:
    """Return what is before and after boxes, without marks such as of Markdown."""
    before, after = text[: found[0].start], text[found[-1].end :].lstrip(_AROUND_BOX)[:_BESIDE]
    return "" if _BULLET.search(before[-_BESIDE:]) else before.rstrip(_AROUND_BOX)[-_BESIDE:], after


def _boxes(text: str) -> Iterator[_Box]:
    """Yield the boxes up to the first that is never closed, in one pass."""
    start = text.find(_BOX)
    while start >= 0:
        end, depth = start + len(_BOX), 1
        while depth and end < len(text):
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        if depth:
            return
        yield _Box(start, end, text[start + len(_BOX) : end - 1].strip())
        start = text.find(_BOX, end)


def _choice_of_lines(text: str, letters: dict[str, str]) -> tuple[str, str, How] | None:
    """Return the option that the first line names, or the last one after words such as "The answer is".

    No other line may name another option alone, nor after words such as "or".
    """
    lines = [_forms(line) for line in text.splitlines() if line.strip()]
    if not 1 < len(lines) <= _MAX_LINES:
        return None
    read = [next(filter(None, (_choice(form, letters) for form in forms)), None) for forms in lines]
    others = [_choice(also[1], letters) for forms in lines if (also := _ALSO.match(forms[0]))]
    if len({found[1] for found in (*read, *others) if found}) != 1:
        return None
    return read[0] or (read[-1] if len(lines[-1]) > 1 else None)


def _choice(text: str, letters: dict[str, str]) -> tuple[str, str, How] | None:
    """Return the one option that a text names: its letter, if it is named by that, its text, and how; or `None`."""
    unmarked = _unmarked(text)
    alone = _LETTER_ALONE.match(unmarked)
    if alone and alone[1].upper() in letters:
        return alone[1].upper(), letters[alone[1].upper()], "letter"
    last = _LETTER_LAST.match(unmarked)
    if last and (own := letters.get(last[2].upper())) and _same(last[1], own):
        return last[2].upper(), own, "letter"
    # Of options that differ in punctuation or brackets alone, the one that is written so: 550 or (550).
    exact = [choice for choice in letters.values() if choice == text]
    same = set(exact) if len(exact) == 1 else {c for c in letters.values() if _same(text, c) == "text"}
    if same:
        return ("", same.pop(), "text") if len(same) == 1 else None
    equal = {choice for choice in letters.values() if _same(text, choice)}
    if equal:
        return ("", equal.pop(), "number") if len(equal) == 1 else None
    letter = _first_letter(unmarked, letters)
    return (letter, letters[letter], "letter") if letter else None


def _unmarked(text: str) -> str:
    return _EMPHASIS.sub(lambda found: found["inner"] or found["styled"], text)


def _first_letter(text: str, letters: dict[str, str]) -> str:
    """Return the letter of an option that a text begins with, `""` if it names another one as well."""
    if (listed := _LETTER_LISTED.match(text)) and listed[1].upper() in letters:
        return listed[1].upper()
    if found := _LETTER_FIRST.match(text):
        letter = (found[1] or found[2]).upper()
        return letter if letter in letters and not _contradicts(found[3], letter, letters) else ""
    found = _LETTER_JOINED.match(text)
    letter = (found[1] or found[2]).upper() if found else ""
    if found is None or letter not in letters:
        return ""
    rest = _JOINT.sub("", found[3], count=1)
    another = _LETTER_ALONE.match(rest)
    # Not "A, B", nor "A - 5" where -5 is another option.
    others = [choice for choice in letters.values() if choice != letters[letter]]
    if (another and another[1].upper() in letters) or any(_same(found[3].strip(), choice) for choice in others):
        return ""
    return letter if _same(rest, letters[letter]) else ""


def _is_letter_first(text: str, gold: str) -> bool:
    """Whether a text begins with the letter that is the right answer, where the task does not say the options."""
    found = _LETTER_FIRST.match(_unmarked(text)) if _CAPITAL.fullmatch(gold) else None
    return found is not None and (found[1] or found[2]).upper() == gold and _named(found[3]) <= {gold}


def _named(text: str) -> set[str]:
    """Return the letters that a text names as options."""
    return {next(group for group in match.groups() if group) for match in _ANOTHER_LETTER.finditer(text)}


def _contradicts(rest: str, letter: str, letters: dict[str, str]) -> bool:
    """Return whether the text after a letter names another option, by letter or by text."""
    if _same(rest, letters[letter]):
        return False
    if any(_same(rest, choice) for choice in letters.values()):
        return True
    if _named(rest) & (letters.keys() - {letter}):
        return True
    words, own = f" {normalize(rest)} ", normalize(letters[letter])
    # Longest first, so that "dark red" is not taken for "red".
    for choice in sorted(filter(None, map(normalize, letters.values())), key=len, reverse=True):
        if f" {choice} " in words and choice != own:
            return True
        words = words.replace(f" {choice} ", "  ")
    return False


def _same(text: str, gold: str) -> How | None:
    """Return how two open answers are the same, or `None`; the right one may be written as a formula: $5$."""
    formula = _FORMULA.fullmatch(gold)
    return _same_as(text, gold) or (_same(text, formula[formula.lastindex or 0].strip()) if formula else None)


def _same_as(text: str, gold: str) -> How | None:
    if needs_text(gold, text):
        return "text" if _same_text(text, gold) else None
    if same_moment(text, gold):
        return "text"
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
