"""Small repairs of programs. Each can be switched off, and each one made is named in `Execution.repairs`."""

from __future__ import annotations

import ast
import contextlib
import re
import textwrap
from collections.abc import Iterator

from codev_env.sandbox.language.policy import parse

IMPORTS = {
    "cv": "cv2", "cv2": "cv2", "np": "numpy", "numpy": "numpy", "plt": "matplotlib.pyplot", "math": "math",
    "re": "re", "json": "json", "random": "random", "os": "os", "io": "io", "base64": "base64",
    "collections": "collections", "itertools": "itertools", "functools": "functools", "statistics": "statistics",
    "string": "string", "Image": "PIL.Image", "ImageDraw": "PIL.ImageDraw", "ImageEnhance": "PIL.ImageEnhance",
    "ImageFilter": "PIL.ImageFilter", "ImageFont": "PIL.ImageFont", "ImageOps": "PIL.ImageOps",
    "ImageChops": "PIL.ImageChops", "ImageStat": "PIL.ImageStat",
    "pd": "pandas",
}  # fmt: skip
"""By name: the module that it stands for when a program uses it without an import."""

_COMMAND = re.compile(r"^([ \t]*)(?:%%?[a-zA-Z_]|!).*$", re.MULTILINE)
"""A line such as `%matplotlib inline` or `!pip install x`."""

READY = frozenset("Image ImageDraw ImageEnhance ImageFilter ImageFont ImageOps np math cv2".split())
"""Names that are defined for every program; their use needs no repair."""


def parse_repaired(source: str) -> tuple[ast.Module, list[str]]:
    """Parse a program; if it is not valid Python, try other indentation and ordinary spaces.

    Returns:
        The syntax tree and the repairs made.

    Raises:
        Refused: It is too deep.
        SyntaxError: It is not valid Python, repaired or not.
    """
    try:
        return parse(source), []
    except SyntaxError as error:
        for text, repair in _candidates(source):
            with contextlib.suppress(SyntaxError):
                return parse(text), [repair]
        raise error


def _candidates(source: str) -> Iterator[tuple[str, str]]:
    spaced = source.replace("\u00a0", " ")
    if spaced != source:
        yield spaced, "no-break spaces replaced"
    plain = _COMMAND.sub(r"\1pass", spaced)
    if plain != spaced:
        yield plain, "notebook commands removed"
        spaced = plain
    dedented = textwrap.dedent(spaced.expandtabs(4)).strip("\n")
    yield dedented, "indentation removed"
    # The first line of a block often loses its indentation when the block is cut out of a message.
    first, _newline, rest = dedented.partition("\n")
    yield f"{first}\n{textwrap.dedent(rest)}", "indentation removed"
