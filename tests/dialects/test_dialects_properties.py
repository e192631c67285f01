"""What holds in every dialect for any text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.dialects import Dialect, dialect_names, get_dialect
from codev_env.dialects.dialect import TAGS
from codev_env.sandbox import REPAIRS
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Code, Execution, Invalid, Stop, Task, Turn

DIALECTS = [get_dialect(name) for name in dialect_names()]
EVERY = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
WRITES_CODE = pytest.mark.parametrize(
    "dialect", [dialect for dialect in DIALECTS if dialect.name != "deepeyes"], ids=lambda dialect: dialect.name
)
CALLS = {
    "codevision": '{"name": "code_image_tool", "arguments": {"code": "x = 1", "description": "", "image_index": 1}}',
    "deepeyes": '{"name": "image_zoom_in_tool", "arguments": {"bbox_2d": [1, 2, 3, 4], "label": "a"}}',
}

MARKUP = [
    *(f"<{tag}>" for tag in TAGS), *(f"</{tag}>" for tag in TAGS), "<image_clue_0>", "</image_clue_12>", "<|im_end|>",
    "<|vision_start|>", "```", "```python\n", "\\boxed{", "{", "}", "[", "]", '"', "'", "\\", "\n", " ", ",", ":",
    "1e999", "NaN", "-7", '"name"', '"arguments"', '"code"', '"bbox_2d"', '"image_index"', "code_image_tool",
    "image_zoom_in_tool", '{"name": "code_image_tool", "arguments": {', '{"name": "image_zoom_in_tool", "arguments": {',
    *CALLS.values(),
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(MARKUP), st.text(max_size=6)), max_size=24).map("".join)
plain = st.text(st.characters(exclude_characters="<`\r", exclude_categories=("Cs",)), max_size=60)
programs = plain.map(lambda text: text.strip("\n")).filter(str.strip)


@EVERY
@given(text=texts)
def test_parse_never_raises(dialect: Dialect, text: str) -> None:
    turn = dialect.parse(text)
    assert isinstance(turn, (Code, Answer, Invalid))
    assert len(set(turn.problems)) == len(turn.problems)
    assert not isinstance(turn, Code) or turn.code.strip()
    assert not isinstance(turn, Invalid) or turn.reason
    dialect.render(Execution(error=turn.reason if isinstance(turn, Invalid) else None), 0)


@EVERY
@given(parts=st.lists(st.one_of(st.sampled_from(MARKUP), st.text(max_size=4)), max_size=6))
def test_calls_with_any_arguments_never_raise(dialect: Dialect, parts: list[str]) -> None:
    for start in ("", "<tool_call>\n", *(f"<tool_call>{call[: call.rindex(':') + 2]}" for call in CALLS.values())):
        assert isinstance(dialect.parse(start + "".join(parts)), (Code, Answer, Invalid))


@WRITES_CODE
@given(code=programs, think=plain)
def test_code_round_trip(dialect: Dialect, code: str, think: str) -> None:
    text = dialect.write(Code(code), think)
    assert dialect.parse(text) == Code(code)
    _check_cut(dialect, text, Code(code))


@EVERY
@given(answer=plain.map(str.strip), think=plain)
def test_answer_round_trip(dialect: Dialect, answer: str, think: str) -> None:
    text = dialect.write(Answer(answer), think)
    assert dialect.parse(text) == Answer(answer)
    _check_cut(dialect, text, Answer(answer))


@EVERY
@given(corner=st.tuples(*[st.integers(-50, 3000)] * 2), size=st.tuples(*[st.integers(1, 2000)] * 2), think=plain)
def test_crop_round_trip(dialect: Dialect, corner: tuple[int, int], size: tuple[int, int], think: str) -> None:
    turn = dialect.crop((*corner, corner[0] + size[0], corner[1] + size[1]))
    text = dialect.write(turn, think)
    assert dialect.parse(text) == turn
    _check_cut(dialect, text, turn)


def _check_cut(dialect: Dialect, text: str, turn: Turn) -> None:
    """Generation ends at the first stop string, whether or not that is returned."""
    assert any(text.endswith(stop) for stop in dialect.stop)
    first = min((text.index(stop), stop) for stop in dialect.stop if stop in text)
    assert dialect.parse(text[: first[0]]) == turn
    assert dialect.parse(text[: first[0]] + first[1]) == turn


@EVERY
@pytest.mark.parametrize(
    "run",
    [" ", "\t", "\n", "``` ", "<think>", "</think>", "<code>", "<code>```", "<tool_call>", "</tool_call>", "<answer>",
     "{", "[", '{"name":', '"', "\\", "-", "(", "9", "\\boxed{", "```python\n"],
)  # fmt: skip
def test_long_texts_are_read_in_linear_time(dialect: Dialect, run: str) -> None:
    """In quadratic time this would take minutes."""
    starts = ["", "<code>```", "<code>```python\n```", "\\boxed{", "<tool_call>", "<tool_call>```json\n", "<think>"]
    for start in [*starts, *(f"<tool_call>{call}" for call in CALLS.values())]:
        assert isinstance(dialect.parse(start + run * (100_000 // len(run))), (Code, Answer, Invalid))


@EVERY
@given(
    stdout=texts,
    error=st.one_of(st.none(), texts),
    images=st.integers(0, 5),
    names=st.lists(texts, max_size=5),
    stop=st.sampled_from(["error", "refused", "timeout", "memory", "output", "result"]),
)
def test_printed_text_cannot_open_or_close_anything(
    dialect: Dialect, stdout: str, error: str | None, images: int, names: list[str], stop: Stop
) -> None:
    execution = Execution(stdout=stdout, error=error, stop=stop if error is not None else "ok", names=tuple(names))
    harmless = Execution(error=None if error is None else "e", stop=execution.stop, stdout="o" if stdout else "")
    for text in (dialect.render(execution, images), dialect.render(dialect.report(execution, ["a"]), images)):
        assert text.count(IMAGE_PLACEHOLDER) == images
        assert sorted(_tags(text)) == sorted(_tags(dialect.render(harmless, images)))


@EVERY
@given(reason=texts)
def test_the_reason_of_an_invalid_turn_cannot_either(dialect: Dialect, reason: str) -> None:
    assert _tags(dialect.invalid(reason)) == _tags(dialect.invalid("reason"))


@EVERY
@given(question=texts, choices=st.lists(texts, max_size=3), count=st.integers(1, 3))
def test_first_message(dialect: Dialect, question: str, choices: list[str], count: int) -> None:
    image = Image.new("RGB", (30, 20))
    task = Task("t", (image,) * count, question, "gold-answer-text", tuple(choices))
    text = dialect.first_message(task)
    plain_task = Task("t", (image,) * count, "question", "gold-answer-text", ("choice",) * len(choices))
    assert text.count(IMAGE_PLACEHOLDER) == count
    assert _tags(text) == _tags(dialect.first_message(plain_task))
    assert "gold-answer-text" not in text
    assert [f"{chr(65 + i)}. " in text for i in range(len(choices))] == [True] * len(choices)


def _tags(text: str) -> list[str]:
    """Return all that a chat template, a parser or a placeholder search would take for markup."""
    return re.findall(rf"<(?:/?(?:{'|'.join(TAGS)})(?:_\d+)?\b|\|)", text, re.IGNORECASE)


@EVERY
def test_declarations(dialect: Dialect) -> None:
    assert dialect.stop
    assert dialect.persist in ("images", "variables")
    assert dialect.observation_role == ("assistant" if dialect.name == "thyme" else "user")
    assert set(dialect.repairs) <= set(REPAIRS)
    names = [dialect.image_name(i) for i in range(12)]
    assert len(set(names)) == 12
    assert not any("/" in name for name in names)


@EVERY
def test_the_example_in_the_prompt_is_a_turn(dialect: Dialect) -> None:
    """What the system prompt shows must be what the parser reads."""
    prompt = dialect.system_prompt()
    tag = "tool_call" if dialect.name in CALLS else "code"
    example = prompt[prompt.index(f"<{tag}>") : prompt.index(f"</{tag}>") + len(f"</{tag}>")]
    turn = dialect.parse(example)
    assert isinstance(turn, Code)
    assert not turn.problems
    assert IMAGE_PLACEHOLDER not in prompt
