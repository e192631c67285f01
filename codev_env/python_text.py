"""Python source in texts that models or files hold, parsed by one thread at a time.

CPython 3.11 keeps the depth of the tree that it builds in the interpreter, not in the thread. If the garbage collector
lets another thread parse in between, both can end in `SystemError: AST constructor recursion depth mismatch`.
"""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOCK = threading.Lock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def parse(source: str) -> ast.Module:
    """Parse a program.

    Raises:
        ValueError: It is not Python, or is nested too deeply.
    """
    with _parsing():
        return ast.parse(source)


def literal(source: str) -> Any:
    """Return the value of a literal, such as a list of texts.

    Raises:
        ValueError: It is no literal, or is nested too deeply.
    """
    with _parsing():
        return ast.literal_eval(source)


@contextmanager
def _parsing() -> Iterator[None]:
    try:
        with _LOCK:
            yield
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
