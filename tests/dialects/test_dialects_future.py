"""Future statements, which Python takes before any other line: also where a dialect puts lines before a program."""

from __future__ import annotations

import gymnasium as gym
import pytest

from codev_env.dialects import get_dialect
from codev_env.dialects.future import without_future
from codev_env.types import Code

CLASS = "class Box:\n    def larger(self, other: Box) -> Nowhere: ..."
"""Names that are not there yet, which are legal in annotations under the future statement alone."""


@pytest.fixture(scope="module", params=["codev", "thyme", "codevision", "pyvision"])
def env(request):
    made = gym.make("codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy", dialect=request.param)
    yield made
    made.close()


def ran(env, code: str) -> str:
    env.reset(seed=0)
    return env.step(env.unwrapped.dialect.write(Code(code)))[0]["text"]


@pytest.mark.parametrize(
    "head",
    [
        "from __future__ import annotations",
        '"""Look\nclosely: é."""\n\n# Then count.\nfrom __future__ import (\n    annotations,\n)\n',
        "from __future__ import division; from __future__ import annotations  # é",
    ],
)
def test_programs_may_open_with_future_statements(env, head):
    text = ran(env, f"{head}\n{CLASS}\nprint('it ran')\nprint(1 / 0)")
    assert "it ran" in text and f"(line {head.count(chr(10)) + 5}: print(1 / 0))" in text, text


def test_a_future_statement_that_comes_too_late_is_named(env):
    assert "(line 2: " in ran(env, "x = 1\nfrom __future__ import annotations")
    assert "nonsense is not defined (line 1: " in ran(env, "from __future__ import nonsense")


def test_what_follows_on_the_line_of_a_future_statement_keeps_its_place():
    assert without_future("from __future__ import division; x = 1\ny = 2") == (
        "from __future__ import division",
        "x = 1\ny = 2",
    )
    program = get_dialect("codevision").program(Code("from __future__ import division; result = 1"), ["image_0.png"])
    assert compile(program, "", "exec") and program.splitlines()[1] == "result = 1"


@pytest.mark.parametrize(
    "code",
    ["", "x = 1", "x = '__future__'", "from __future__ import", "1\nfrom __future__ import division", "\0__future__"],
)
def test_other_programs_stay_as_they_are(code):
    assert without_future(code) == ("", code)


def test_lines_are_counted_as_python_counts_them():
    future, rest = without_future("# a\x0cb\u2028c\r\nfrom __future__ import division\r\nx = 1")
    assert future and rest == "\n\nx = 1"
