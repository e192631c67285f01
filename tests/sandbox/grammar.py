"""Writes random programs as models write them, which mean the same in plain Python.

The tables are in `grammar.txt`. `<i>` in an entry stands for an expression of type `i`, `<I>` for one that is only a
name or a number, `<i|v w>` for one that may use the integers `v` and `w`, `<block|v>` for statements, `<loop>` and
`<body>` for those of a loop and a function, `<new>` for a variable to assign to, `<lit>` and `<txt>` for numbers and
texts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from test_sandbox_programs import read_programs

_HOLE = re.compile(r"<(\w+)(?:\|([\w ]*))?>")


def read_tables(path: Path) -> dict[str, tuple[str, ...]]:
    """The tables of a file. An entry is a line or, in a table with empty lines, the text between two of them."""
    tables = {name: text.strip() for name, text in read_programs(path).items()}
    return {name: tuple(text.split("\n\n" if "\n\n" in text else "\n")) for name, text in tables.items()}


TABLES = read_tables(Path(__file__).with_name("grammar.txt"))
"""The simplest entry comes first: failing programs shrink towards it.

Products and joins are cut, so that no loop makes a number, a text or a list explode. Left out, because it differs for
good reasons: random numbers (seeded), `id` and `hash`, the order of sets of texts, JPEG (kept bit for bit), names with
two leading underscores, sizes that Pillow warns of (the limit is another one), what `str.format` says of an argument
that is missing, folders and times.
"""

_VARIABLES = {
    "I": ("i0", "i1", "i2"), "S": ("s0", "s1"), "F": ("z0", "z1"), "L": ("l0", "l1"), "D": ("d0", "d1"),
    "A": ("a0", "a1"), "M": ("m0", "m1"),
}  # fmt: skip
_TEXTS = (
    "'a b'", "''", "'é{}'", "'x7'", '"it\'s"', "'p'", "'%'", r"'\t\n'", "'0x'", "'{0}'", "' , '", "'你好'", r"'\x00'",
)  # fmt: skip
_BARE = ("path", "module", "key")
_NUMBERS = (0, 1, 2, 3, -1, 7, 20, 255, 256, -50, 10**6, 2**63, -(2**70))


@functools.cache
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


class Writer:
    """Fills holes with random entries, which get simpler with depth."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], tables: dict[str, tuple[str, ...]]) -> None:
        self.draw = draw
        self.tables = tables
        self.locals: list[str] = []
        self.fuel = 250
        self.inside: list[str] = []

    def choose(self, options: tuple[Any, ...]) -> Any:
        """One of some options; failing programs shrink to the first."""
        return options[self.draw(_below(len(options)))]

    def fill(self, template: str, depth: int = 0) -> str:
        """Replace every hole of an entry."""
        lines = []
        for line in template.split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            filled = _HOLE.sub(lambda hole: self._hole(hole[1], (hole[2] or "").split(), depth), line.strip())
            statements = line.strip().startswith(("<block", "<loop", "<body"))
            lines.append(indent + (filled.replace("\n", "\n" + indent) if statements else filled))
        return "\n".join(lines)

    def _hole(self, kind: str, names: list[str], depth: int) -> str:
        self.fuel -= 1
        self.locals += names
        try:
            if kind in ("block", "loop", "body"):
                self.inside.append(kind)
                text = self.block(depth)
                self.inside.pop()
                return text
            return self._expression(kind, depth)
        finally:
            del self.locals[len(self.locals) - len(names) :]

    def _expression(self, kind: str, depth: int) -> str:
        if kind == "lit":
            return str(self.choose(_NUMBERS))
        if kind == "txt":
            return str(self.choose(_TEXTS))
        if kind == "new":
            return "x1"
        if kind in ("fn", "gen") and "body" in self.inside:
            return {"fn": "h0", "gen": "g0"}[kind]  # no function calls itself, or the running time explodes
        if kind in _VARIABLES:
            if kind == "I" and self.locals and self.choose((False, True)):
                return str(self.choose(tuple(self.locals)))
            return str(self.choose(_VARIABLES[kind]))
        table = self.tables[kind]
        if depth > 3 or self.fuel < 0:
            table = table[:3]
        elif kind == "i" and depth < 3 and self.choose((0,) * 39 + (1,)):
            table = self.tables["risky"]
        text = self.fill(self.choose(table), depth + 1)
        return text if text.isidentifier() or text.isdigit() or kind in _BARE else f"({text})"

    def block(self, depth: int, most: int = 3) -> str:
        """A few statements."""
        return "\n".join(self.statement(depth + 1) for _ in range(self.choose(tuple(range(1, most + 1)))))

    def statement(self, depth: int) -> str:
        """One statement, of those allowed here."""
        options = TABLES["statement"]
        if depth > 3 or self.fuel < 0:
            options = options[:8]
        elif self.inside and self.inside[-1] == "loop":
            options += TABLES["in loop"] * 5
        elif "body" in self.inside:
            options += TABLES["in function"] * 4
        if self.inside.count("loop") > 1:
            options = tuple(option for option in options if "<loop" not in option)
        return self.fill(self.choose(options), depth)


@st.composite
def harmless(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """Programs that mean the same in plain Python."""
    writer = Writer(draw, TABLES)
    parts = [writer.fill("\n".join(TABLES["head"]))]
    for _ in range(writer.choose((0, 1, 2, 3))):
        parts.append(writer.fill(writer.choose(TABLES["definition"])))
    for _ in range(writer.choose((1, 2, 4, 6, 9))):
        writer.fuel = max(writer.fuel, 30)
        parts.append(writer.statement(0))
    parts.append(writer.fill("result = <m>.convert('RGB')"))
    return "\n".join(parts)
