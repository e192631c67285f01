"""A tag that a dialect declares never survives in what a program, a task or an error puts into a prompt."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.dialects import Dialect, dialect_names, get_dialect
from codev_env.dialects.codev import CodeVDialect
from codev_env.dialects.dialect import TAGS, neutralise
from codev_env.errors import ConfigError
from codev_env.types import Answer, Code, Execution, Invalid, Stop, Task, Turn


class Careless(Dialect):
    """Writes data into prompts as they are, between tags of its own."""

    name = "careless"
    tags = ("evidence", "reply.v2", "final-answer")
    stop = ("</final-answer>",)

    def system_prompt(self) -> str:
        return "Write <evidence>code</evidence>."

    def first_message(self, task: Task) -> str:
        return f"{'<image>' * len(task.images)}{task.question}{task.choices}"

    def image_name(self, index: int) -> str:
        return f"{index}.png"

    def parse(self, text: str) -> Turn:
        return Invalid(text)

    def write(self, turn: Code | Answer, think: str = "") -> str:
        return str(turn)

    def render(self, execution: Execution, images: int) -> str:
        return f"{execution.stdout}{execution.error}{execution.names}{'<image>' * images}"

    def invalid(self, reason: str) -> str:
        return reason


class Verbose(Careless):
    """Adds a tag, and overrides one method of its base class, which it calls."""

    name = "verbose"
    tags = ("note",)

    def render(self, execution: Execution, images: int) -> str:
        return super().render(execution, images) + execution.stdout


class Evidential(CodeVDialect):
    """A dialect of the package with one tag more."""

    tags = ("evidence",)


OWN = {
    "careless": (Careless(), Careless.tags),
    "verbose": (Verbose(), (*Careless.tags, *Verbose.tags)),
    "evidential": (Evidential(), (*CodeVDialect.tags, *Evidential.tags)),
}
DIALECTS = {name: (get_dialect(name), type(get_dialect(name)).tags) for name in dialect_names()} | OWN
EVERY = pytest.mark.parametrize("name", DIALECTS)


def spelled(tag: str) -> st.SearchStrategy[str]:
    """A tag as a program may try to write it."""
    cased = st.sampled_from([tag, tag.upper(), tag.title(), tag.swapcase()])
    ends = [">", " >", "\n>", "\t x='1'>", "/>", "_3>", "_12 >", "", "<", "<|im_end|>"]
    return st.tuples(st.sampled_from(["<", "</", "<<", "\n<", "</<"]), cased, st.sampled_from(ends)).map("".join)


def hostile(tags: tuple[str, ...]) -> st.SearchStrategy[str]:
    every = sorted({*tags, *TAGS})
    parts = st.one_of(st.sampled_from(every).flatmap(spelled), st.sampled_from(["<", "</", "<|", ">", "\n", " "]))
    return st.lists(st.one_of(parts, st.text(max_size=4)), max_size=12).map("".join)


def markup(text: str, tags: tuple[str, ...]) -> list[str]:
    """All that a parser, a chat template or a placeholder search would take for markup."""
    names = "|".join(map(re.escape, {*tags, *TAGS}))
    return sorted(re.findall(rf"<(?:/?(?:{names})(?:_\d+)?(?!\w)|\|)", text, re.IGNORECASE))


@EVERY
@given(data=st.data(), images=st.integers(0, 2), stop=st.sampled_from(["error", "refused", "timeout", "output"]))
def test_no_tag_survives_in_tool_output(name: str, data: st.DataObject, images: int, stop: Stop) -> None:
    dialect, tags = DIALECTS[name]
    stdout, saved = data.draw(hostile(tags)), data.draw(hostile(tags))
    error = data.draw(st.one_of(st.none(), hostile(tags)))
    pictures = tuple(Image.new("RGB", (8, 8)) for _ in range(images))
    execution = Execution(stdout, pictures, error, stop if error is not None else "ok", names=(saved,) * images)
    harmless = Execution(
        "o" if stdout.strip() else stdout, pictures, error and "e", execution.stop, names=("n",) * images
    )
    for shown in (execution, dialect.report(execution, ["a"])):
        assert markup(dialect.render(shown, images), tags) == markup(dialect.render(harmless, images), tags)


@EVERY
@given(data=st.data())
def test_nor_in_the_question_its_choices_and_the_reason_of_an_invalid_turn(name: str, data: st.DataObject) -> None:
    dialect, tags = DIALECTS[name]
    text = hostile(tags)
    images = (Image.new("RGB", (30, 20)),)
    task = Task("t", images, data.draw(text), "gold", tuple(data.draw(st.lists(text, max_size=3))))
    plain = Task("t", images, "question", "gold", ("choice",) * len(task.choices))
    assert markup(dialect.first_message(task), tags) == markup(dialect.first_message(plain), tags)
    assert markup(dialect.invalid(data.draw(text)), tags) == markup(dialect.invalid("reason"), tags)


def test_the_tags_of_the_package_are_neutralised_in_all_its_dialects():
    declared = {tag for name in dialect_names() for tag in type(get_dialect(name)).tags}
    assert {*TAGS} == declared | {"image", "video"}
    assert {*TAGS} >= {"think", "code", "answer", "sandbox_output", "tool_call", "tool_response", "interpreter"}


def test_a_tag_of_ones_own_changes_nothing_for_other_dialects():
    assert "evidence" not in TAGS and neutralise("<evidence>") == "<evidence>"
    assert get_dialect("codev").render(Execution("<evidence>"), 0).splitlines()[1] == "<evidence>"
    assert Evidential().render(Execution("<evidence></code>"), 0).splitlines()[1] == "< evidence>< /code>"


@EVERY
@given(data=st.data())
def test_only_a_space_is_added_and_only_once(name: str, data: st.DataObject) -> None:
    dialect, tags = DIALECTS[name]
    text = data.draw(hostile(tags))
    once = dialect.neutralise(text)
    assert dialect.neutralise(once) == once and once.replace("< ", "<") == text.replace("< ", "<")


@pytest.mark.parametrize("tags", [("<evidence>",), "evidence", ("",), ("two words",), ("a|b",)])
def test_a_tag_that_is_no_name_is_refused_where_the_class_is_made(tags):
    with pytest.raises(ConfigError, match="dialect class Wrong: tags is .* names without brackets"):
        type("Wrong", (Careless,), {"tags": tags})
