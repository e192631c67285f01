"""Error messages for the author of a program, which are the same on every machine."""

from __future__ import annotations

import re
import sys
import traceback

from codev_env.sandbox.language.context import OutputFull, clean, plain
from codev_env.sandbox.language.imaging import ResultError
from codev_env.sandbox.language.refusals import Refused

NO_MEMORY = "the program needed more memory than is allowed: work on a smaller crop."

_FOLDERS = sorted({sys.base_prefix, *(path for path in sys.path if path.strip("/"))}, key=len, reverse=True)
_INSTALLED = re.compile(rf"(?:{'|'.join(map(re.escape, _FOLDERS))})/[^\s'\")]*")
"""Paths of Python and its packages, which import errors name."""

_CLEARER = (
    ("metaclass conflict", "a class cannot be derived from this one here: keep an object of it as an attribute."),
    (
        "returned NULL without setting an exception",
        "the bytes of an array of objects are addresses, and not available here: convert it first, as in "
        "array.astype(float).",
    ),
)
"""By a part of a message of Python's that does not name what to do: one that does."""

_OUTER = re.compile(r"^[\w.<>]+\.<locals>\.")
"""The function that made the one which a message names."""

_PATH = re.compile(r"(?<![\w.:/*])/(?:[\w.+@-]+/)+[\w.+@-]*")


def explain(problem: BaseException, source: str) -> tuple[str, str]:
    """The meaning of an exception of a program: `Execution.stop`, and a message that its author can act on."""
    if isinstance(problem, MemoryError):
        return "memory", NO_MEMORY
    if isinstance(problem, OutputFull):
        return (
            "output",
            "far too much was printed, and the program was ended: print less, for example a part of a list.",
        )
    if isinstance(problem, SyntaxError):
        return "error", f"{type(problem).__name__}: {_syntax(problem)}"
    message = _text(problem) + _where(problem, source)
    if isinstance(problem, Refused):
        return "refused", message
    if isinstance(problem, ResultError):
        return "result", message
    return "error", f"{type(problem).__name__}: {message}"


def without_places(message: str, source: str = "") -> str:
    """A message without addresses of objects and paths of the machine; those that the program names stay."""

    def replaced(found: re.Match[str]) -> str:
        path = found[0]
        return path if path in source or path.startswith(("/workspace", "/tmp/tmp")) else "…"

    return _PATH.sub(replaced, _INSTALLED.sub("…", clean(message)))


def _text(problem: BaseException) -> str:
    try:
        text = _OUTER.sub("", plain(str(problem))[:4000])
    except BaseException:  # a program's own `__str__` may raise anything
        return ""
    known = isinstance(problem, TypeError | SystemError)
    return next((clearer for said, clearer in _CLEARER if known and said in text), text)


def _syntax(problem: SyntaxError) -> str:
    try:
        line = f" (line {problem.lineno}: {(problem.text or '').strip()[:120]})" if problem.lineno else ""
        return f"{problem.msg}{line}"
    except BaseException:  # a program may set the attributes to anything
        return ""


def _where(problem: BaseException, source: str) -> str:
    numbers = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == "<code>"]
    if not numbers or numbers[-1] is None:
        return ""
    lines = source.splitlines()
    text = lines[numbers[-1] - 1].strip()[:120] if numbers[-1] <= len(lines) else ""
    return f" (line {numbers[-1]}: {text})"
