"""Python source in coloured pieces, by Pygments."""

from __future__ import annotations

import functools
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pygments.lexer import Lexer

Pieces = list[tuple[str, str]]
"""CSS class and text of each piece, in order; the texts joined are the source."""


def highlight(source: str) -> Pieces:
    """Split Python source into pieces of one colour each.

    Classes: `k` keyword, `s` string, `n` number, `c` comment, `b` built-in name, and `""` for all else. Source that is
    not valid Python keeps every character: the text of a model is never dropped.
    """
    lexer, classes = _python()
    # The unprocessed tokens, because preprocessing would change line ends and drop a byte order mark.
    tokens = ((classes(kind), text) for _, kind, text in lexer.get_tokens_unprocessed(source))
    return [(name, "".join(text for _, text in run)) for name, run in groupby(tokens, key=lambda token: token[0])]


@functools.cache
def _python() -> tuple[Lexer, Any]:
    from pygments.lexers.python import PythonLexer
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    classes = (
        (Keyword, "k"),
        (Operator.Word, "k"),
        (String, "s"),
        (Number, "n"),
        (Comment, "c"),
        (Name.Builtin.Pseudo, ""),  # `self` and `cls`
        (Name.Builtin, "b"),
        (Name.Exception, "b"),
    )

    @functools.cache
    def class_of(kind: Any) -> str:
        return next((name for parent, name in classes if kind in parent), "")

    return PythonLexer(), class_of
