"""How each family's texts are read: the ways models write them, and the flaws that do not prevent reading."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codev_env.dialects import get_dialect
from codev_env.dialects.markup import (
    ANSWER_AFTER_CODE,
    BOXED,
    CODE_AFTER_ANSWER,
    SEVERAL_ANSWERS,
    SEVERAL_CALLS,
    SEVERAL_CODES,
    UNBALANCED,
)
from codev_env.dialects.pyvision import CODE_OUTSIDE
from codev_env.errors import ConfigError
from codev_env.types import Answer, Code, Invalid

THYME, CODEVISION, DEEPEYES, PYVISION = map(get_dialect, ("thyme", "codevision", "deepeyes", "pyvision"))


def fenced(code: str) -> str:
    return f"<code>\n```python\n{code}\n```\n</code>"


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def edit(code: str, index: int = 0) -> str:
    return call("code_image_tool", code=code, description="d", image_index=index)


def zoom(*box: float, label: str = "") -> str:
    return call("image_zoom_in_tool", bbox_2d=box, **({"label": label} if label else {}))


CROP = DEEPEYES.crop((1, 2, 50, 60))


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        # Thinking spans the turns of one message: it may be open or closed here.
        (f"<think>first {fenced('x = 1')}", Code("x = 1")),
        (f"and then {fenced('x = 1')}", Code("x = 1")),
        ("so it is B.</think>\n<answer>B</answer>", Answer("B")),
        ("<think>t</think><answer>B", Answer("B")),
        ("<code>\n    ```python\n    x = 1\n    ```\n    </code>", Code("    x = 1\n    ")),
        ("<code>x = 1</code>", Code("x = 1")),
        (fenced("print('</code>')"), Code("print('</code>')")),
        # The first block counts, for there generation stops.
        (f"{fenced('x')}<answer>A</answer>", Code("x", (ANSWER_AFTER_CODE,))),
        (f"<answer>A</answer>{fenced('x')}", Answer("A", (CODE_AFTER_ANSWER,))),
        (f"{fenced('x')}{fenced('y')}", Code("x", (SEVERAL_CODES,))),
        ("<answer>A</answer><answer>B</answer>", Answer("B", (SEVERAL_ANSWERS,))),
        ("<code>\n```python\nx\n```\nthen more", Code("x", (UNBALANCED,))),
        ("so \\boxed{7}", Answer("7", (BOXED,))),
        ("the answer is B</answer>", Invalid("no code block and no answer block; write one of them", (UNBALANCED,))),
        ("<code></code>", Invalid("the code block is empty")),
    ],
)
def test_thyme_reads(text: str, turn: Code | Answer | Invalid) -> None:
    assert THYME.parse(text) == turn


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        (f"Let us see.\n{fenced('x = 1')}", Code("x = 1")),
        ("<code>\n```python\nx = 1\n```\n", Code("x = 1")),
        ("<answer>\n\\boxed{B}\n</answer>", Answer("B")),
        ("<answer>\n\\boxed{'B'}\n</answer>", Answer("B")),
        ("<answer>\\boxed{\\frac{1}{2}}</answer>", Answer("\\frac{1}{2}")),
        ("<answer>B</answer>", Answer("B")),
        ("It is \\boxed{B}.", Answer("B", (BOXED,))),
        ("I try:\n```python\nx = 1\n```\nWait.", Code("x = 1", (CODE_OUTSIDE,))),
        (f"{fenced('x')}{fenced('y')}", Code("x", (SEVERAL_CODES,))),
    ],
)
def test_pyvision_reads(text: str, turn: Code | Answer) -> None:
    assert PYVISION.parse(text) == turn


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        (f"<think>t</think>\n{edit('result = image')}", Code("result = image")),
        (edit("result = image", 3), Code("result = image", image_index=3)),
        (call("code_image_tool", code="x = 1"), Code("x = 1")),
        (edit("\nx = 1\ny = 2\n"), Code("x = 1\ny = 2")),
        (edit("x = 1").removesuffix("</tool_call>"), Code("x = 1")),
        # Line breaks within a string, single quotes, a fence: not JSON, but often written.
        ('<tool_call>{"name": "code_image_tool", "arguments": {"code": "x\ny"}}</tool_call>', Code("x\ny")),
        ("<tool_call>{'name': 'code_image_tool', 'arguments': {'code': 'x'}}</tool_call>", Code("x")),
        (f"<tool_call>\n```json\n{edit('x')[12:-13]}\n```\n</tool_call>", Code("x")),
        (edit("print('</tool_call>')"), Code("print('</tool_call>')")),
        (f"<think>I could write {edit('x')}</think>{edit('y')}", Code("y")),
        (f"{edit('x')}{edit('y')}", Code("x", (SEVERAL_CALLS,))),
        (f"{edit('x')}<answer>B</answer>", Code("x", (ANSWER_AFTER_CODE,))),
        (f"<answer>B</answer>{edit('x')}", Answer("B", (CODE_AFTER_ANSWER,))),
        (f"{edit('x')}</think>", Code("x", (UNBALANCED,))),
        ("<think>t</think><answer>B", Answer("B")),
        ("\\boxed{B}", Answer("B", (BOXED,))),
        (edit("x" * 2048), Code("x" * 2048)),
    ],
)
def test_codevision_reads(text: str, turn: Code | Answer) -> None:
    assert CODEVISION.parse(text) == turn


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I do not know.", "no tool_call block and no answer block"),
        ("<tool_call>result = image</tool_call>", "not a JSON object"),
        ("<tool_call>[1]</tool_call>", "not a JSON object"),
        ('<tool_call>{"name": "code_image_tool", "arguments": {"code"', "not a JSON object"),
        (call("other_tool", code="x"), "no tool 'other_tool'; call 'code_image_tool'"),
        ('<tool_call>{"name": "code_image_tool", "arguments": "x"}</tool_call>', "no object of arguments"),
        (call("code_image_tool", image_index=0), "code must be a text"),
        (edit(" \n"), "code must be a text"),
        (edit("x" * 2049), "2049 characters; at most 2048"),
        (edit("x", -1), "image_index must be a whole number"),
        (call("code_image_tool", code="x", image_index=True), "image_index must be a whole number"),
        (call("code_image_tool", code="x", image_index="0"), "image_index must be a whole number"),
    ],
)
def test_codevision_refuses(text: str, reason: str) -> None:
    turn = CODEVISION.parse(text)
    assert isinstance(turn, Invalid)
    assert reason in turn.reason


def test_codevision_writes_the_image_it_works_on() -> None:
    turn = Code("result = image.rotate(90)", image_index=2)
    text = CODEVISION.write(turn, "Turn it.")
    assert CODEVISION.parse(text) == turn
    body = text[text.index("<tool_call>") + len("<tool_call>") : text.rindex("</tool_call>")]
    arguments = json.loads(body)["arguments"]
    assert set(arguments) == {"code", "description", "image_index"}
    assert arguments["image_index"] == 2


def test_code_that_holds_a_stop_string_is_not_cut() -> None:
    code = "print('</tool_call>', '<answer>', 1 < 2)"
    text = CODEVISION.write(Code(code))
    assert text.count("</tool_call>") == 1
    assert CODEVISION.parse(text) == Code(code)


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        (zoom(1, 2, 50, 60), CROP),
        (f"<think>t</think>{zoom(1, 2, 50, 60)}", CROP),
        ("<tool_call>{'name': 'image_zoom_in_tool', 'arguments': {'bbox_2d': (1, 2, 50, 60)}}</tool_call>", CROP),
        (zoom(1, 2, 50, 60) + zoom(3, 4, 50, 60), Code(CROP.code, (SEVERAL_CALLS,))),
        ("<think>t</think><answer>B</answer>", Answer("B")),
    ],
)
def test_deepeyes_reads(text: str, turn: Code | Answer) -> None:
    assert DEEPEYES.parse(text) == turn


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (call("image_rotate_tool", angle=90), "no tool 'image_rotate_tool'"),
        (call("image_zoom_in_tool", label="a"), "bbox_2d must be four numbers"),
        (zoom(1, 2, 3), "bbox_2d must be four numbers"),
        (call("image_zoom_in_tool", bbox_2d=["1", 2, 3, 4]), "bbox_2d must be four numbers"),
        (call("image_zoom_in_tool", bbox_2d=[True, 2, 3, 4]), "bbox_2d must be four numbers"),
        (zoom(1, 2, float("nan"), 4), "bbox_2d must be four numbers"),
        (zoom(1, 2, float("inf"), 4), "bbox_2d must be four numbers"),
        (zoom(1, 2, 10**400, 4), "bbox_2d must be four numbers"),
    ],
)
def test_deepeyes_refuses(text: str, reason: str) -> None:
    turn = DEEPEYES.parse(text)
    assert isinstance(turn, Invalid)
    assert reason in turn.reason


def test_deepeyes_keeps_the_label() -> None:
    turn = DEEPEYES.parse(zoom(1.5, 2, 50, 60, label='the "red"\n</tool_call> cup'))
    assert isinstance(turn, Code)
    text = DEEPEYES.write(turn)
    assert DEEPEYES.parse(text) == turn
    assert json.loads(text[len("<tool_call>") : -len("</tool_call>")])["arguments"] == {
        "bbox_2d": [1.5, 2, 50, 60],
        "label": 'the "red"\n</tool_call> cup',
    }


@pytest.mark.parametrize("code", ["x = 1", "# image_zoom_in_tool", CROP.code + "\nprint(1)", "# image_zoom_in_tool {}"])
def test_deepeyes_can_only_crop(code: str) -> None:
    with pytest.raises(ConfigError, match="can only crop"):
        DEEPEYES.write(Code(code))
    with pytest.raises(ConfigError, match="image_index is 1"):
        DEEPEYES.crop((0, 0, 50, 50), 1)
