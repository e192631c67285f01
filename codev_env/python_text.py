"""Python source in texts that models or files hold, parsed by one thread at a time.

CPython 3.11 keeps the depth of the tree that it builds in the interpreter, not in the thread. If the garbage collector
lets another thread parse in between, both can end in `SystemError: AST constructor recursion depth mismatch`. Threads
of other libraries hold no lock (each traceback that is written parses lines), so what ended so is parsed again.
"""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Read = TypeVar("_Read")

_LOCK = threading.RLock()  # what the garbage collector ends while a text is parsed may itself parse or fork
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def parse(source: str) -> ast.Module:
    """Parse a program.

    Raises:
        ValueError: It is not Python, or is nested too deeply.
    """
    return _read(ast.parse, source)


def literal(source: str) -> Any:
    """Return the value of a literal, such as a list of texts.

    Raises:
        ValueError: It is no literal, or is nested too deeply.
    """
    return _read(ast.literal_eval, source)


def _read(read: Callable[[str], _Read], source: str, tries: int = 10) -> _Read:
    try:
        with _LOCK:
            return read(source)
    except SystemError:
        if tries == 1:
            raise
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return _read(read, source, tries - 1)
