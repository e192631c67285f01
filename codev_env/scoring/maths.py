"""`math-verify`: open answers compared as mathematics, by the package of that name in a process of its own.

The package stops itself by `signal.alarm`, which works only in a main thread and not inside of a long computation in
C. Here it runs without, in a worker that the kernel stops after so many seconds of CPU time: from any thread, and
whatever the answer makes it compute. CPU time, so that a busy machine does not make an answer wrong.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codev_env.errors import ConfigError
from codev_env.locks import ForkLock
from codev_env.scoring import numbers
from codev_env.scoring.formulas import DELIMITED, FORMULA, claims, entries, latex, signs
from codev_env.scoring.labels import is_label
from codev_env.scoring.rules import PHRASE, score_rules, unboxed
from codev_env.scoring.scorer import How, Score, ScorerError, untagged
from codev_env.types import Task

MAX_CHARACTERS = 1000
MAX_DEPTH = 16
START_S = 120.0
"""Seconds to wait for a worker to start."""

_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{3,}")
# Letters, digits and punctuation, without an operator or a command; in it, a word or a code: ON, 7th, K9, AB-12.
_SPELLED = re.compile(r"(?:[^\W_]|[\s,;:.'\"()\[\]#&!?-])*")
_WORD_OR_CODE = re.compile(r"[^\W\d_]{2}|[^\W\d_]\s*\d|[^\W\d_]\s+[^\W\d_]")
_AMOUNT = re.compile(r"\W*\d[\d.,]*\s*[^\W\d_]+\W*")
_NUMBER_AND_UNIT = re.compile(r"^\W*[\d.,]*\d\W*[^\W\d_]")
_MEASURED = re.compile(r"\d\W*[^\W\d_]")
_LISTED = re.compile(r"\d\s+\d")
_LETTER = re.compile(r"[^\W\d_]")
_LEAD = re.compile(rf"^\s*(?:{PHRASE}(?: is\b|:| =)|(?:it|there|this|that)(?: is| are)\b):?", re.IGNORECASE)
# Under these words a number is not the answer, or not the only one.
_HEDGE = re.compile(
    r"\b(?:not|never|or|either|neither|nor|less|more|least|most|than|between|maybe|minus|negative)\b|n't\b",
    re.IGNORECASE,
)
_NUMBER_AND_WORD = re.compile(r"^[-+]?[\d.,]*\d[\d.,]*\s+([^\W\d_]+)$")
_SCALES = frozenset("percent dozen hundred thousand million billion trillion half third quarter squared cubed".split())


def installed() -> bool:
    """Whether the package math-verify is installed."""
    return importlib.util.find_spec("math_verify") is not None


class NotMathematicsError(ScorerError):
    """The task's own answer cannot be read as mathematics."""


@dataclass(frozen=True)
class MathVerifyScorer:
    """The scorer `math-verify`; needs `pip install math-verify`.

    An answer that the rules find right is right. Otherwise, where the task has no choices and its answer is mathematics
    (no words or codes), both are parsed and compared. Stricter than the package, which reads the last number of any
    text and drops units: words such as "not" and "or" outside of formulas make an answer unreadable; words are allowed
    around formulas marked as LaTeX, and one word after a number ("5 apples" for 5); a unit must be that of the right
    answer where that has one. Too long, too deep or too slow answers are wrong.

    Attributes:
        cpu_s: Seconds of CPU time for one answer.

    Raises:
        ConfigError: The package is missing, or `cpu_s` is not above 0.
    """

    cpu_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0 < self.cpu_s < float("inf"):
            raise ConfigError(f"option cpu_s is {self.cpu_s!r}; expected seconds above 0.")
        if not installed():
            raise ConfigError(
                "scorer 'math-verify' needs the package math-verify. Install it: pip install math-verify."
            )

    def __call__(self, task: Task, answer: str, /) -> Score:
        """Score one answer; raises `ScorerError` if the worker cannot run or cannot read the task's own answer."""
        score = score_rules(task, answer)
        text = untagged(answer)
        if score.correct or task.choices or not text:
            return score
        if _prose(task.answer):
            return Score(False, score.extracted, score.how, "not the same; the right answer is no mathematics")
        for problem in (_too_long(task.answer), _too_deep(task.answer)):
            if problem:
                raise NotMathematicsError(
                    f"task {task.task_id!r}: its own answer is {problem}; math-verify cannot read it."
                )
        problem = _too_long(text) or _too_deep(text)
        if problem:
            return Score(False, why=f"the answer is {problem}")
        text = unboxed(_LEAD.sub("", text).strip().rstrip(".").rstrip())
        named = score_rules(task, text)
        if is_label(task.answer) or is_label(named.extracted) or _are_names(task.answer, named.extracted):
            why = f"{named.why}; a word, a code, a date or a time is no mathematics"
            return replace(named, how="math" if named.correct else named.how, why=why)
        given, right = (numbers.read(numbers.undelimited(part)) for part in (text, task.answer))
        if right is None and _LISTED.search(task.answer):
            return Score(False, score.extracted, score.how, "not the same; the right answer is a list")
        if given is not None and right is not None:
            equal = numbers.equal(given, right)
            if equal is not None:
                return Score(equal, text, "math", "equal" if equal else "not equal")
            if numbers.differ(given, right):
                return Score(False, why="another unit")
        if right is None and entries(task.answer)[1]:
            return self._compare_lists(task, text)
        if right is not None and numbers.has_sign(right) and _MEASURED.search(_COMMAND.sub(" ", text)):
            return Score(False, why="another unit")
        return self._compare(task, text)

    def _compare_lists(self, task: Task, text: str) -> Score:
        """Compare entry by entry: the package takes a list for a set."""
        (around, wanted), (written, given) = entries(task.answer), entries(text)
        # Two numbers in brackets may be an interval or a point.
        alike = len(wanted) > 2 or "" in (around, written) or around == written
        if len(wanted) != len(given) or not alike:
            return Score(False, text, "math", "not equal: another list")
        for right, entry in zip(wanted, given, strict=True):
            score = self(replace(task, answer=right), entry)
            if not score.correct:
                how: How = "math" if score.how == "math" else "none"
                return Score(False, text, how, f"the entry {entry[:40]!r}: {score.why}")
        return Score(True, text, "math", "equal")

    def _compare(self, task: Task, text: str) -> Score:
        gold, written = latex(task.answer), latex(text)
        forms = _forms(written, _unit(gold), equations="=" in gold) if signs(gold) == signs(written) else []
        if not forms:
            return Score(False, why="not mathematics alone, or a hedge, another unit, or a sign such as < or ±")
        with _LOCK:
            reply = _ask({"gold": _delimited(gold), "answers": forms, "cpu_s": self.cpu_s}, self.cpu_s)
        if not reply.get("gold"):
            why = reply.get("problem", "it does not parse")
            raise NotMathematicsError(
                f"task {task.task_id!r}: math-verify cannot read its own answer {task.answer[:80]!r} ({why}). "
                "Use the scorer 'rules' or 'llm'."
            )
        if "problem" in reply:
            return Score(False, why=reply["problem"])
        if not reply["read"]:
            return Score(False, why="does not parse as mathematics")
        return Score(reply["same"], text, "math", "equal" if reply["same"] else "not equal")


def verified(first: str, second: str, cpu_s: float = 5.0) -> bool:
    """Return what the package says by default of two texts: `verify(parse(first), parse(second))`.

    Raises:
        ConfigError: The package is missing.
        ScorerError: The worker cannot run.
    """
    MathVerifyScorer(cpu_s)  # Raises if the package is missing.
    with _LOCK:
        reply = _ask({"gold": first, "answers": [second], "cpu_s": cpu_s, "fallback": True}, cpu_s)
    return bool(reply.get("same"))


def _prose(text: str) -> bool:
    return bool(_WORD.search(_COMMAND.sub(" ", text)))


def _are_names(gold: str, answer: str) -> bool:
    """Return whether two texts are words or codes: as products of variables, NO would be ON, and B7 would be 7B.

    An amount such as "2x", "7B" or "5 cm" is mathematics, unless the answer has the letters first.
    """
    # A mark on a letter, such as a vowel sign, is as good as a letter here.
    gold, answer = (
        "".join("x" if unicodedata.category(char).startswith("M") else char for char in text) for text in (gold, answer)
    )
    if not (_SPELLED.fullmatch(gold) and _SPELLED.fullmatch(answer)):
        return False
    return bool(_WORD_OR_CODE.search(answer if _AMOUNT.fullmatch(gold) else gold))


def _delimited(text: str) -> str:
    return text if DELIMITED.search(text) else f"${text}$"


def _unit(text: str) -> str:
    """Return the letters of a text that are no LaTeX commands."""
    return "".join(_LETTER.findall(_COMMAND.sub("", text)))


def _is_unit(letters: str) -> bool:
    """Return whether letters are a unit, as opposed to variables, which the package does compare."""
    return len(set(letters)) > 1 or letters in set("mgshlLVAWNJKCF")


def _fits(text: str, unit: str) -> bool:
    letters = _unit(text)
    sums = not _NUMBER_AND_UNIT.match(text) and set(letters) <= set(unit)
    return letters in ("", unit) or sums


def _forms(text: str, unit: str, *, equations: bool) -> list[str]:
    """Return the parts of an answer that must each be equal to the right one, none if it must not be read.

    Args:
        text: The answer without phrases before it.
        unit: The letters of the right answer, which may be a unit and which the package would ignore.
        equations: Whether the right answer is an equation.
    """
    outside = FORMULA.sub(" ", text)
    if _HEDGE.search(outside):
        return []
    if _is_unit(unit) and not _fits(text, unit):
        return []
    counted = _NUMBER_AND_WORD.match(text)
    if not unit and counted and counted[1].lower() not in _SCALES:
        return [text]
    if not DELIMITED.search(text) and _prose(text):
        return []
    return [_delimited(claim) for claim in claims(text, equations=equations)]


def _too_long(text: str) -> str:
    return f"longer than {MAX_CHARACTERS} characters" if len(text) > MAX_CHARACTERS else ""


def _too_deep(text: str) -> str:
    depth = deepest = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    return f"nested deeper than {MAX_DEPTH}" if deepest > MAX_DEPTH else ""


# ---- the worker


class _Worker:
    """A process that reads one JSON object a line and answers each with lines that add up to its reply."""

    def __init__(self) -> None:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        # Nothing else of the environment: no keys, and a fixed order of sets.
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "HOME") if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("maths_worker.py"))],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self._buffer = b""
        try:
            first = self.read(START_S)
            if "error" in first:
                raise ScorerError(f"math-verify's worker: {first['error']}. Reinstall: pip install math-verify.")
        except BaseException:
            self.stop()
            raise

    def write(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")

    def read(self, seconds: float) -> dict[str, Any]:
        """Return the next line; raises `EOFError` if the worker died, `TimeoutError` after so many seconds."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        poll = select.poll()  # not `select`, which takes no descriptors above 1023
        poll.register(self.process.stdout, select.POLLIN)
        while b"\n" not in self._buffer:
            if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            chunk = self.process.stdout.read(65536)
            if not chunk:
                raise EOFError
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return dict(json.loads(line))

    def stop(self) -> int:
        """End the process and return its exit status; minus the signal's number if one ended it."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            return self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


_LOCK = ForkLock()
_worker: _Worker | None = None


def _ask(request: dict[str, Any], cpu_s: float) -> dict[str, Any]:
    """Ask the worker, a new one if it died of something else than its own limit."""
    for _ in range(2):
        reply, status = _try(request, cpu_s)
        if status is None:
            return reply
        if status == -signal.SIGPROF:
            return {**reply, "problem": f"took more than {cpu_s:g} s of CPU time"}
    return {**reply, "problem": f"ended the worker twice (exit status {status})"}


def _try(request: dict[str, Any], cpu_s: float) -> tuple[dict[str, Any], int | None]:
    """Return the reply as far as it came, and the worker's exit status if it died."""
    global _worker
    reply: dict[str, Any] = {}
    try:
        if _worker is None:
            _worker = _Worker()
        _worker.write(request)
        while "same" not in reply and reply.get("gold") is not False:
            reply |= _worker.read(START_S + 20 * cpu_s)
    except (EOFError, BrokenPipeError):
        return reply, _stop()
    except TimeoutError:
        _stop()
        raise ScorerError("math-verify's worker got no CPU time. Run fewer processes at once.") from None
    except OSError as error:
        _stop()
        raise ScorerError(f"math-verify's worker cannot be started ({error}).") from error
    except BaseException:
        # Left alive it would give this answer's reply to the next one.
        _stop()
        raise
    return reply, None


def _stop() -> int:
    global _worker
    worker, _worker = _worker, None
    return 1 if worker is None else worker.stop()


def _forget() -> None:
    """In a forked child: the worker belongs to the parent."""
    global _worker
    _worker = None


atexit.register(_stop)
os.register_at_fork(after_in_child=_forget)
