"""Python source to HTML with its tokens marked, by the standard library's tokenizer."""

from __future__ import annotations

import builtins
import io
import keyword
import tokenize
from collections.abc import Iterator
from html import escape

_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_"))
_STRINGS = frozenset(
    getattr(tokenize, name)
    for name in (
        "STRING",
        "FSTRING_START",
        "FSTRING_MIDDLE",
        "FSTRING_END",
        "TSTRING_START",
        "TSTRING_MIDDLE",
        "TSTRING_END",
    )
    if hasattr(tokenize, name)
)


def highlight(source: str) -> str:
    """Return `source` as HTML: every character escaped, tokens wrapped in `<span class=…>`.

    Classes: `k` keyword, `s` string, `n` number, `c` comment, `b` built-in name. Source that is not valid Python is
    marked up to the first token that cannot be read and continues plain: what a model wrote is never dropped.
    """
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    parts: list[str] = []
    cursor = 0
    for kind, begin, end in _marked(source):
        first, last = starts[begin[0] - 1] + begin[1], starts[end[0] - 1] + end[1]
        if not cursor <= first < last <= len(source):
            continue
        parts += [escape(source[cursor:first]), f'<span class="{kind}">', escape(source[first:last]), "</span>"]
        cursor = last
    return "".join([*parts, escape(source[cursor:])])


def _marked(source: str) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Yield (class, start, end) of the tokens that get a colour, until the source cannot be read further."""
    lines = source.count("\n") + 1
    try:
        for token in tokenize.generate_tokens(io.StringIO(source, newline="\n").readline):
            kind = _class_of(token)
            if kind and token.end[0] <= lines:
                yield kind, token.start, token.end
    except (tokenize.TokenError, SyntaxError, ValueError):
        return


def _class_of(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.COMMENT:
        return "c"
    if token.type in _STRINGS:
        return "s"
    if token.type == tokenize.NUMBER:
        return "n"
    if token.type == tokenize.NAME:
        return "k" if keyword.iskeyword(token.string) else "b" if token.string in _BUILTINS else ""
    return ""
