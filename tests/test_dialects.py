from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.dialects import Dialect, dialect_names, get_dialect
from codev_env.dialects.dialect import HINTS, TAGS, letter, neutralise
from codev_env.dialects.markup import (
    ANSWER_AFTER_CODE,
    BOXED,
    CODE_AFTER_ANSWER,
    SEVERAL_ANSWERS,
    SEVERAL_CODES,
    UNBALANCED,
)
from codev_env.errors import ConfigError
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Code, Execution, Invalid, Task

CODEV = get_dialect("codev")
pieces = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "<think>",
                "</think>",
                "<code>",
                "</code>",
                "<answer>",
                "</answer>",
                "<image>",
                "</sandbox_output>",
                "```",
                "```python\n",
                "\n",
                "\\boxed{",
                "}",
                "<|im_end|>",
            ]
        ),
        st.text(max_size=8),
    ),
    max_size=24,
).map("".join)


def fenced(code: str) -> str:
    return f"<code>\n```python\n{code}\n```\n</code>"


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        ("<think>t</think>\n<answer> B </answer>", Answer("B")),
        ("<think>t</think>\n<answer>B", Answer("B")),
        ("t</think><answer>B</answer>", Answer("B")),
        ("<answer>B</answer>", Answer("B")),
        ("<answer></answer>", Answer("")),
        (f"<think>t</think>{fenced('x = 1')}", Code("x = 1")),
        ("<think>t</think><code>\n```python\nx = 1\n```\n", Code("x = 1")),
        ("<code>```py\nx = 1\n```</code>", Code("x = 1")),
        ("<code>```PYTHON\r\nx = 1\r\n```</code>", Code("x = 1")),
        ("<code>\nx = 1\n</code>", Code("x = 1")),
        ("<code>x = 1", Code("x = 1")),
        ("<code>```python\nx = 1\n</code>", Code("x = 1")),
        ("<code>```python\nx = 1", Code("x = 1")),
        ("<code>here:\n```python\nx = 1\n```</code>", Code("x = 1")),
        ("<code>\n    x = 1\n    y = 2\n</code>", Code("    x = 1\n    y = 2")),
        (fenced("print('</code>')"), Code("print('</code>')")),
        (fenced("print('</think>')"), Code("print('</think>')")),
        # Tags that the thinking quotes are text.
        (f"<think>I could write <answer>A</answer> or <code>y</code>.</think>{fenced('x = 1')}", Code("x = 1")),
        ("<think>quotes <think> and <code></think><answer>B</answer>", Answer("B")),
        ("quotes <answer>A</answer></think><answer>B</answer>", Answer("B")),
        ("<think>a</think>so <think><answer>A</answer></think><answer>B</answer>", Answer("B")),
        # Flaws that do not prevent reading.
        ("<answer>A</answer></think><answer>B</answer>", Answer("B", (UNBALANCED,))),
        ("<think>open <answer>B</answer>", Answer("B", (UNBALANCED,))),
        ("<answer>A</answer><answer>B</answer>", Answer("B", (SEVERAL_ANSWERS,))),
        (f"<answer>A</answer>{fenced('x')}", Answer("A", (CODE_AFTER_ANSWER,))),
        (f"{fenced('x')}<answer>A</answer>", Code("x", (ANSWER_AFTER_CODE,))),
        (f"{fenced('x')}{fenced('y')}", Code("x\ny", (SEVERAL_CODES,))),
        (f"{fenced('x')}then {fenced('y')}and <code>z</code>", Code("x\ny\nz", (SEVERAL_CODES,))),
        ("<code>```py\nx\n</code><code>```py\ny\n```</code>", Code("x\ny", (SEVERAL_CODES,))),
        (f"{fenced('x')}</answer>", Code("x", (UNBALANCED,))),
        ("<code>\n```python\nx\n```\nthen more", Code("x", (UNBALANCED,))),
        ("so \\boxed{\\frac{1}{2}}.", Answer("\\frac{1}{2}", (BOXED,))),
        ("<think>\\boxed{1}</think>\\boxed{2}", Answer("2", (BOXED,))),
    ],
)
def test_codev_reads(text: str, turn: Code | Answer) -> None:
    assert CODEV.parse(text) == turn


@pytest.mark.parametrize("text", ["", "hello", "<think>only</think>", "<code></code>", "<code>```python\n```</code>"])
def test_codev_refuses(text: str) -> None:
    turn = CODEV.parse(text)
    assert isinstance(turn, Invalid)
    assert turn.reason


def test_a_stray_end_tag_is_a_problem() -> None:
    turn = CODEV.parse("the answer is B</answer>")
    assert isinstance(turn, Invalid)
    assert turn.problems == (UNBALANCED,)


@given(text=pieces)
def test_parse_never_raises(text: str) -> None:
    for name in dialect_names():
        turn = get_dialect(name).parse(text)
        assert isinstance(turn, (Code, Answer, Invalid))
        assert len(set(turn.problems)) == len(turn.problems)


@pytest.mark.parametrize("run", [" ", "\t", "\n", "``` ", "<think>", "<code>", "<code>```", "</think>", "{"])
def test_long_runs_are_read_in_linear_time(run: str) -> None:
    """In quadratic time this would take minutes."""
    for start in ("", "<code>```", "<code>```python\n```", "\\boxed{"):
        assert isinstance(CODEV.parse(start + run * (400_000 // len(run))), (Code, Answer, Invalid))


plain = st.text(st.characters(exclude_characters="<`\r", exclude_categories=("Cs",)), max_size=60)


@given(code=plain, think=plain)
def test_code_round_trip(code: str, think: str) -> None:
    code = code.strip("\n")
    if not code.strip():
        return
    text = CODEV.write(Code(code), think)
    assert CODEV.parse(text) == Code(code)
    assert any(text.endswith(stop) for stop in CODEV.stop)
    cut = min(text.index(stop) for stop in CODEV.stop if stop in text)
    assert CODEV.parse(text[:cut]) == Code(code)


@given(answer=plain, think=plain)
def test_answer_round_trip(answer: str, think: str) -> None:
    for name in dialect_names():
        dialect = get_dialect(name)
        assert dialect.parse(dialect.write(Answer(answer.strip()), think)) == Answer(answer.strip())


@given(stdout=pieces, error=st.one_of(st.none(), pieces), images=st.integers(0, 5))
def test_printed_text_cannot_fake_tags_or_images(stdout: str, error: str | None, images: int) -> None:
    text = CODEV.render(Execution(stdout=stdout, error=error, stop="error" if error else "ok"), images)
    assert text.count(IMAGE_PLACEHOLDER) == images
    body = text.removeprefix("<sandbox_output>").removesuffix("</sandbox_output>")
    assert isinstance(CODEV.parse(body.replace("\\boxed", "")), Invalid)
    body = body.replace(IMAGE_PLACEHOLDER, "").lower()
    assert not any(mark in body for mark in ("<|", *(f"<{tag}" for tag in TAGS), *(f"</{tag}" for tag in TAGS)))


@given(text=pieces)
def test_neutralise_is_stable_and_reversible(text: str) -> None:
    once = neutralise(text)
    assert neutralise(once) == once
    assert once.replace("< ", "<") == text.replace("< ", "<")


@given(question=pieces, choices=st.lists(pieces, max_size=3))
def test_first_message_has_one_placeholder_per_image(question: str, choices: list[str]) -> None:
    image = Image.new("RGB", (30, 20))
    task = Task("t", (image, image), question, "gold-answer-text", tuple(choices))
    text = CODEV.first_message(task)
    assert text.count(IMAGE_PLACEHOLDER) == 2
    assert "Image: input.png (30x20)\nImage: input2.png (30x20)\nQuestion: " in text
    assert "gold-answer-text" not in text
    assert ("Answer with the letter." in text.splitlines()[-1]) == bool(choices)


def test_codev_first_message() -> None:
    task = Task("t", (Image.new("RGB", (672, 448)),), "What colour is it?", "blue", ("red", "blue"))
    assert CODEV.first_message(task) == (
        "<image>\nImage: input.png (672x448)\nQuestion: What colour is it?\nA. red\nB. blue\nAnswer with the letter."
    )


def test_codev_render() -> None:
    assert CODEV.render(Execution(), 0) == "<sandbox_output>\nNo output.\n</sandbox_output>"
    assert CODEV.render(Execution(stdout="7\n"), 1) == "<sandbox_output>\n7\n<image>\n</sandbox_output>"
    failed = CODEV.render(Execution(error="NameError: x", stop="error"), 0)
    assert failed == f"<sandbox_output>\nError: NameError: x\nHint: {HINTS['error']}\n</sandbox_output>"
    assert "no block" in CODEV.invalid("no block")


def test_codev_prompt_is_short_and_its_example_parses() -> None:
    prompt = CODEV.system_prompt()
    assert len(prompt.split()) <= 120
    assert CODEV.image_name(0) in prompt
    assert CODEV.stop == ("</code>", "</answer>")


def test_letters() -> None:
    assert [letter(i) for i in (0, 1, 25, 26, 27, 52)] == ["A", "B", "Z", "AA", "AB", "BA"]


def test_lookup() -> None:
    assert "codev" in dialect_names()
    assert get_dialect(CODEV) is CODEV
    assert isinstance(get_dialect("codev_env.dialects.codev:CodeVDialect"), Dialect)
    with pytest.raises(ConfigError, match="Did you mean 'codev'"):
        get_dialect("codv")
    with pytest.raises(ConfigError, match="module:attribute"):
        get_dialect("codev_env.dialects.codev:Nope")
    with pytest.raises(ConfigError, match="must be a codev_env Dialect"):
        get_dialect("codev_env.dialects.codev:SYSTEM_PROMPT")
