"""Turns as models write them and the released loops accept them: they are read here, too, without a flaw."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codev_env.dialects import dialect_names, get_dialect
from codev_env.dialects.markup import UNBALANCED
from codev_env.types import Answer, Code, Invalid

CODEV, THYME, CODEVISION, DEEPEYES, PYVISION = map(
    get_dialect, ("codev", "thyme", "codevision", "deepeyes", "pyvision")
)
CODE_TAGS = [get_dialect(name) for name in ("codev", "codev-released", "thyme", "pyvision")]
JOINS = [get_dialect(name) for name in ("codev", "codev-released", "thyme")]
EVERY = [get_dialect(name) for name in dialect_names()]


def by_name(dialect: Any) -> str:
    return dialect.name


def fence(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


@pytest.mark.parametrize("dialect", [THYME, PYVISION], ids=by_name)
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("\\boxed{7}", "7"),
        ("The answer is \\boxed{7}.", "7"),
        ("$\\boxed{7}$", "7"),
        ("**\\boxed{\\text{B}}**", "\\text{B}"),
        ("\\boxed{\\frac{1}{2}} of it", "\\frac{1}{2}"),
        ("\\boxed{A} or rather \\boxed{B}", "B"),
        ("It is \\boxed{ 7 } cm", "7"),
        ("\\boxed{}", ""),
        ("\\boxed{7", "7"),
        ("7", "7"),
    ],
)
def test_the_last_box_of_an_answer_is_the_answer(dialect: Any, said: str, answer: str) -> None:
    assert dialect.parse(f"<answer>{said}</answer>") == Answer(answer)
    assert dialect.parse(f"<answer>\n{said}\n") == Answer(answer)


@pytest.mark.parametrize("dialect", [CODEV, CODEVISION, DEEPEYES], ids=by_name)
def test_families_whose_loops_keep_the_box_keep_it(dialect: Any) -> None:
    assert dialect.parse("<answer>\\boxed{7}</answer>") == Answer("\\boxed{7}")


@pytest.mark.parametrize("dialect", JOINS, ids=by_name)
@pytest.mark.parametrize("between", ["\n", "", "\n\n", "\nThen crop it:\n"])
def test_all_fences_of_a_block_run_as_one_program(dialect: Any, between: str) -> None:
    text = f"<code>\n{fence('x = 1')}{between}{fence('print(x)')}\n</code>"
    assert dialect.parse(text) == Code("x = 1\nprint(x)")
    three = f"<code>{fence('x = 1')}\n{fence('y = 2', 'py')}\n{fence('print(x)', 'Python')}</code>"
    assert dialect.parse(three) == Code("x = 1\ny = 2\nprint(x)")


def test_pyvision_runs_the_last_fence() -> None:
    assert PYVISION.parse(f"<code>\n{fence('x = 1')}\n{fence('print(2)')}\n</code>") == Code("print(2)")
    assert PYVISION.parse(f"<code>\n{fence('x = 1')}\nIt prints:\n{fence('1', '')}\n</code>") == Code("x = 1")


@pytest.mark.parametrize("dialect", CODE_TAGS, ids=by_name)
@pytest.mark.parametrize(
    "inside",
    [
        "\n{}\nIt prints 1.\n",
        "Here is the code:\n{}\nIt prints 1.",
        "\n{}\nIt prints:\n```\n1\n```\n",
        "\n{}\n```\n",
        "\n{}\n```text\n1\n```\n",
    ],
)
def test_prose_around_the_fence_of_a_block_is_no_flaw(dialect: Any, inside: str) -> None:
    assert dialect.parse(f"<code>{inside.format(fence('print(1)'))}</code>") == Code("print(1)")


@pytest.mark.parametrize("dialect", CODE_TAGS, ids=by_name)
def test_a_block_that_is_never_closed_stays_a_flaw(dialect: Any) -> None:
    two = f"<code>\n{fence('x')}\nand <code>\n{fence('y')}\n</code>"
    for text in (two, f"<code>\n{fence('x')}\nand so on"):
        turn = dialect.parse(text)
        assert isinstance(turn, Code) and UNBALANCED in turn.problems


@pytest.mark.parametrize("dialect", JOINS, ids=by_name)
def test_end_tags_in_strings_of_later_fences_are_text(dialect: Any) -> None:
    quoted = fence("print('</code>')")
    text = f"<code>\n{fence('x = 1')}\n{quoted}\n</code>"
    assert dialect.parse(text) == Code("x = 1\nprint('</code>')")


@pytest.mark.parametrize("dialect", CODE_TAGS, ids=by_name)
@pytest.mark.parametrize("head", ["python\n", "\npython\n", " Python \r\n", "py\n", "python3\n\n", "```\npython\n"])
def test_a_bare_first_line_that_names_the_language_is_no_code(dialect: Any, head: str) -> None:
    tail = "\n```\n" if "```" in head else "\n"
    assert dialect.parse(f"<code>{head}x = 1{tail}</code>") == Code("x = 1")
    assert isinstance(dialect.parse(f"<code>{head}{tail}</code>"), Invalid)


def test_a_name_that_starts_like_the_language_is_code() -> None:
    assert CODEV.parse("<code>\npython = 1\n</code>") == Code("python = 1")


@pytest.mark.parametrize("dialect", CODE_TAGS, ids=by_name)
def test_tags_of_code_may_be_in_any_case(dialect: Any) -> None:
    assert dialect.parse("<CODE>\nx = 1\n</CODE>") == Code("x = 1")
    assert dialect.parse(f"<Think>t</THINK><Code>\n{fence('x = 1')}\n</Code>") == Code("x = 1")


@pytest.mark.parametrize("dialect", EVERY, ids=by_name)
def test_tags_of_answers_may_be_in_any_case(dialect: Any) -> None:
    assert dialect.parse("<THINK>t</Think> <Answer>B</Answer>") == Answer("B")
    assert dialect.parse("<answer>B</ANSWER>") == Answer("B")
    call = '<Tool_Call>{"name": "code_image_tool", "arguments": {"code": "x"}}</TOOL_CALL>'
    assert CODEVISION.parse(call) == Code("x")


def test_programs_and_answers_keep_the_case_of_what_is_no_tag_of_the_dialect() -> None:
    assert CODEV.parse("<code>\nprint('<B> A </B>', 'CODE')\n</code>") == Code("print('<B> A </B>', 'CODE')")
    assert CODEV.parse("<ANSWER>The Sign</ANSWER>") == Answer("The Sign")


def call(arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'code_image_tool', 'arguments': arguments})}\n</tool_call>"


@pytest.mark.parametrize(
    ("arguments", "turn"),
    [
        ({"code": "x", "image_index": 1.0}, Code("x", image_index=1)),
        ({"code": "x", "image_index": None}, Code("x")),
        (json.dumps({"code": "x", "image_index": 2}), Code("x", image_index=2)),
        (json.dumps({"code": "x\ny"}, indent=1), Code("x\ny")),
        ({"code": fence("x = 1")}, Code("x = 1")),
        ({"code": f"\n{fence('x = 1', '')}\n"}, Code("x = 1")),
        ({"code": f"{fence('x = 1')}\n{fence('result = image')}"}, Code("x = 1\nresult = image")),
        ({"code": "python\nx = 1"}, Code("x = 1")),
        ({"code": "s = '```'\nx = 1"}, Code("s = '```'\nx = 1")),
    ],
)
def test_codevision_reads_harmless_variants_of_a_call(arguments: Any, turn: Code) -> None:
    assert CODEVISION.parse(call(arguments)) == turn


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"code": "x", "image_index": 0.5}, "image_index must be a whole number"),
        ({"code": "x", "image_index": -1.0}, "image_index must be a whole number"),
        ({"code": "x", "image_index": float("nan")}, "image_index must be a whole number"),
        ({"code": "x", "image_index": float("inf")}, "image_index must be a whole number"),
        ({"code": "```python\n```"}, "code must be a text"),
        ("[1]", "no object of arguments"),
        ("[" * 10_000, "no object of arguments"),
        ({"code": fence("x" * 2049)}, "2049 characters"),
    ],
)
def test_codevision_still_refuses(arguments: Any, reason: str) -> None:
    turn = CODEVISION.parse(call(arguments))
    assert isinstance(turn, Invalid) and reason in turn.reason


def test_deepeyes_reads_arguments_as_json_text() -> None:
    arguments = json.dumps({"bbox_2d": [1, 2, 50, 60]})
    text = f"<tool_call>{json.dumps({'name': 'image_zoom_in_tool', 'arguments': arguments})}</tool_call>"
    assert DEEPEYES.parse(text) == DEEPEYES.crop((1, 2, 50, 60))


@pytest.mark.parametrize("dialect", EVERY, ids=by_name)
@pytest.mark.parametrize(
    "run",
    ["```\nx\n```\n", "```python\nx\n```\nprose ", "```\n", "```x", "<CODE>", "</code>```\nx\n```", "\\boxed{x} "],
)
def test_many_fences_are_read_in_linear_time(dialect: Any, run: str) -> None:
    """In quadratic time this would take minutes."""
    for start in (
        "<code>",
        "<code>```python\n",
        "<code>```python\nx\n```\n",
        "<answer>",
        '<tool_call>{"name": "code_image_tool", "arguments": "',
    ):
        assert isinstance(dialect.parse(start + run * (200_000 // len(run))), (Code, Answer, Invalid))


def test_many_code_blocks_are_read_in_linear_time() -> None:
    """In quadratic time this would take a minute."""
    turn = get_dialect("codev").parse("<code>\n```python\nx\n```\n" * 40_000)
    assert isinstance(turn, Code) and turn.code == "\n".join("x" * 40_000)
