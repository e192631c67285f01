"""Turns that end within a tag, because generation was cut off there, and answers inside of answers."""

from __future__ import annotations

import pytest

from codev_env.dialects import Dialect, dialect_names, get_dialect
from codev_env.types import Answer, Code

EVERY = [get_dialect(name) for name in dialect_names()]
CODE_TAGS = [get_dialect(name) for name in ("codev", "codev-released", "thyme", "pyvision")]


def parts(tag: str) -> list[str]:
    return [tag[:end] for end in range(2, len(tag))]


@pytest.mark.parametrize("dialect", EVERY, ids=lambda dialect: dialect.name)
def test_the_beginning_of_an_end_tag_is_no_part_of_the_answer(dialect: Dialect) -> None:
    for part in parts("</answer>"):
        assert dialect.parse(f"<answer>B{part}") == Answer("B")
    for text in ("a <", "a </b>", "x < y", "B</cod"):
        assert dialect.parse(f"<answer>{text}") == Answer(text)


@pytest.mark.parametrize("dialect", CODE_TAGS, ids=lambda dialect: dialect.name)
def test_the_beginning_of_an_end_tag_is_no_part_of_the_program(dialect: Dialect) -> None:
    for part in parts("</code>"):
        assert dialect.parse(f"<code>\nx = 1\n{part}") == Code("x = 1")
        assert dialect.parse(f"<code>\n```python\nx = 1\n{part}") == Code("x = 1")
        turn = dialect.parse(f"<code>\n```python\nx = 1\n```\n{part}")
        assert isinstance(turn, Code) and turn.code == "x = 1"
    assert dialect.parse("<code>\n```python\nx = 1\n``") == Code("x = 1")
    assert dialect.parse("<code>\nx = a <") == Code("x = a <")


@pytest.mark.parametrize("dialect", EVERY, ids=lambda dialect: dialect.name)
def test_of_an_answer_within_an_answer_the_inner_one_counts(dialect: Dialect) -> None:
    turn = dialect.parse("<answer><answer>B</answer></answer>")
    assert isinstance(turn, Answer) and turn.text == "B" and turn.problems
    turn = dialect.parse("<answer>A</answer>\n<answer>B</ans")
    assert isinstance(turn, Answer) and turn.text == "B" and turn.problems
