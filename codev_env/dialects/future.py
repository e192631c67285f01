"""Future statements of a program, which must come before the lines that a dialect puts in front."""

from __future__ import annotations

import ast
import io

from codev_env.python_text import parse


def without_future(code: str) -> tuple[str, str]:
    """Return the future statements that open a program, on one line, and the program with the lines up to them emptied.

    Lines keep their numbers. Where the program opens with none, or is not Python, it is returned as it is, with `""`.
    """
    if "__future__" not in code:
        return "", code
    try:
        body = parse(code).body
    except ValueError:
        return "", code
    found: list[ast.ImportFrom] = []
    for node in body[_has_docstring(body) :]:
        if not isinstance(node, ast.ImportFrom) or node.module != "__future__" or node.level:
            break
        found.append(node)
    if not found:
        return "", code
    last, column = found[-1].end_lineno or 1, found[-1].end_col_offset or 0
    lines = io.StringIO(code, newline="").readlines()  # as Python counts them
    tail = lines[last - 1].encode()[column:].decode().lstrip()  # columns count bytes
    rest = tail[1:].lstrip() if tail.startswith(";") else "\n"
    return "; ".join(map(ast.unparse, found)), "\n" * (last - 1) + rest + "".join(lines[last:])


def _has_docstring(body: list[ast.stmt]) -> bool:
    first = body[0] if body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
