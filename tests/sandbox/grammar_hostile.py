"""Writes random programs that try forbidden things, exceed limits, or are not valid Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grammar import TABLES, Writer, harmless, read_tables
from hypothesis import strategies as st
from test_sandbox_programs import read_programs

_FOLDER = Path(__file__).parent
_KNOWN = tuple(code for name in ("everyday.txt", "escapes.txt") for code in read_programs(_FOLDER / name).values())

# `<E>` is some object, `<N>` a name of an attribute, `<G>` the name of a guard, `<path>` a file that holds the secret.
_TABLES = read_tables(_FOLDER / "grammar_hostile.txt") | {"num": tuple(str(number) for number in range(120))}
FOUND = "KIND "
"""What a line starts with in which a program reports the type of something it got hold of."""

FORBIDDEN_KINDS = frozenset("module frame code traceback cell".split())
"""Types of which no program may ever hold an object."""


_HIDDEN_ATTRIBUTE = re.compile(r"(?<!0)(?<!x)\.(__\w+|(gi|f|tb|co|cr|ag)_\w+)")
_RESERVED_NAME = re.compile(r"(?<!['.\w\[])__?[a-z]\w*_\b(?!')")


@st.composite
def hostile(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """Programs in search of a way out."""
    writer = Writer(draw, {**TABLES, **_TABLES})
    parts = ["\n".join(_TABLES["head"])]
    for _ in range(writer.choose((1, 2, 3, 5))):
        writer.fuel = 12
        one = writer.fill(writer.choose(_TABLES["S"]), 0)
        if writer.choose((False, True, True)):  # a program refused before it runs does not show what its other lines do
            one = _RESERVED_NAME.sub("Odd", _HIDDEN_ATTRIBUTE.sub(".real", one)).replace("async ", "")
        if writer.choose((False, True, True)):  # the next one runs even if this one raises
            one = "try:\n    " + one.replace("\n", "\n    ") + "\nexcept Exception as e:\n    report(e)"
        parts.append(one)
    return "\n".join(parts)


_TOKENS = (
    '\n', '\n    ', ' ', '(', ')', '[', ']', '{', '}', ':', ',', '.', '=', "'", '"', '"""', '\\', '#', '@', '*', '**',
    '->', ':=', 'lambda', 'yield', 'await', 'async ', 'not ', 'import ', 'from ', 'del ', 'global x', 'nonlocal x',
    'return', 'break', 'continue', 'pass', 'raise', 'while True:', 'else:', 'finally:', 'except*', 'match x:',
    'case _:', 'type X = int', "f'{", "}'", '\x00', '\ud800', '\udcff', '\ufeff', '\x0c', '\r', '\t', '\u2028',
    '\xa0', 'ｅｖａｌ', '__ｃlass__', 'º', '𝟘', '0x', '1e999', '1_0', '0b2', '1j', '...', '\\N{BULLET}', '\\ud800',
    'input.png', 'a.png', 'result', 'image', '__class__', '_getattr_', '{0.__class__}', 'print(',
    '# coding: latin-1\n', '# coding: nonsense\n', '%s', '-1', '0', '10**9', 'os', 'np.', 'Image.', ".save('a.png')",
    'exit()', 'raise SystemExit', 'raise KeyboardInterrupt', 'class A(Exception): pass', "x" * 300,
)  # fmt: skip


@st.composite
def mutated(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """Programs damaged at random: pieces left out, doubled, exchanged or put in."""
    text = draw(st.sampled_from(_KNOWN) | harmless() | hostile())
    for _ in range(draw(st.integers(1, 6))):
        at, length = draw(st.integers(0, max(0, len(text) - 1))), draw(st.integers(0, 30))
        piece = text[at : at + length]
        match draw(st.integers(0, 4)):
            case 0:
                text = text[:at] + draw(st.sampled_from(_TOKENS)) + text[at:]
            case 1:
                text = text[:at] + text[at + length :]
            case 2:
                text = text[:at] + piece * draw(st.integers(2, 5)) + text[at + length :]
            case 3:
                to = draw(st.integers(0, max(0, len(text) - 1)))
                text = text[:to] + piece + text[to:]
            case _:
                text = text[:at] + draw(st.sampled_from(_TOKENS)) + text[at + length :]
    return text


_DEEP = (
    ('(', '1', ')'), ('[', '', ']'), ('{1: ', '1', '}'), ('-', '1', ''), ('not ', '1', ''), ('f(', '', ')'),
    ('lambda: ', '0', ''), ('x.a', '', ''), ('x[', '0', ']'), ('1 + ', '1', ''), ('1 if 1 else ', '1', ''),
    ('[v for v in ', '[]', ']'), ("'a' ", "'b'", ''), ('2 ** ', '1', ''), ('1 < ', '1', ''), ("f'{", '1', "}'"),
    ('@f\n', 'def f(): pass', ''), ('x = ', '1', ''), ('(x := ', '1', ')'), ('*', 'x', ''), ('1;', '1', ''),
    ('if 1: ', '1', ''), ('await ', 'x', ''), ('~', '1', ''), ('x and ', 'x', ''), ('\\\n', '1', ''),
    ('(yield ', '1', ')'), ("'''", '', "'''"), ('\t', 'x', ''), ('a,', 'b', '= 1'), ('\n', 'x', '\n'),
)  # fmt: skip
_BLOCKS = ("if 1:", "for v in [1]:", "while 1:", "try:", "def f():", "class C:", "with f() as x:", "match 1:", "else:")


@st.composite
def deep(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """Text nested so deeply that parsers and compilers give up."""
    count = draw(st.sampled_from((3, 19, 21, 60, 99, 101, 149, 151, 200, 201, 400, 1000, 3000, 6000)))
    if draw(st.booleans()):
        left, middle, right = draw(st.sampled_from(_DEEP))
        return (left * count + middle + right * count)[: draw(st.sampled_from((20_100, 20_000)))]
    head = draw(st.sampled_from(_BLOCKS))
    return "\n".join(" " * level + head for level in range(min(count, 190))) + "\n" + " " * min(count, 190) + "pass"


_HUGE = (
    '9', "x" * 300, "'a'", '1,', "'\\x00'", "b'\\xff'", '1.', '1e', 'x', 'é', '\ud800', '𝕒', '\x00', ' ', '\n', '#',
    '"', '{', "u'", '0_', '1;', '()', 'lambda:0,', '́', '%', '\\', '\r', '\r\n', 'print(1)\n',
)  # fmt: skip


@st.composite
def too_much(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """Programs that ask for too much, say too much, or end strangely."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(("", "x = ", "print("))) + draw(st.sampled_from(_HUGE)) * draw(
            st.sampled_from((1, 400, 4299, 4301, 9000, 20_000))
        )
    number = draw(
        st.sampled_from(("3", "0", "-1", "300", "5000", "10 ** 5", "10 ** 7", "10 ** 9", "2 ** 31", "10 ** 30"))
    )
    return draw(st.sampled_from(_TABLES["too much"])).replace("<n>", number)


def anything() -> st.SearchStrategy[str]:
    """Any text, most of it close to a program."""
    text = st.text(st.characters(), max_size=60) | st.lists(st.sampled_from(_TOKENS), max_size=12).map("".join)
    return st.one_of(text, deep(), too_much(), mutated(), hostile(), mutated(), hostile())
