"""Option classes and the command lines made from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import pytest

pydantic = pytest.importorskip("pydantic")

from pydantic import Field  # noqa: E402

from codev_env.app.arguments import Parser, parse  # noqa: E402
from codev_env.app.options import (  # noqa: E402
    POSITIONAL,
    OptionError,
    ValueRefused,
    ZeroOrAboveOne,
    option_class,
    options_of,
)


@option_class
class Inner:
    """Nested options."""

    low: int = 0
    """Lowest."""
    high: Annotated[int, Field(ge=1, lt=9)] = 5
    """Highest."""


@option_class
class Base:
    """Options that others share."""

    n: Annotated[int | None, Field(ge=1)] = None
    """How many."""


@option_class
class Options(Base):
    """A command."""

    kind: Literal["red", "blue"]
    """Which colour, 100 % sure."""
    max_turns: int = 6
    """Turns."""
    ratio: ZeroOrAboveOne = 0.0
    """A ratio."""
    size: Annotated[int, Field(ge=0)] | Literal["auto"] = 0
    """A size."""
    shade: Literal["dark", "light"] | None = None
    """A shade."""
    marks: tuple[Literal["dot", "line"], ...] = ()
    """Marks."""
    names: tuple[str, ...] = ()
    """Names."""
    colours: Annotated[tuple[str, ...], Field(min_length=1)] = ("red",)
    """At least one name."""
    pair: tuple[int, int] = (0, 1)
    """Two numbers."""
    weights: dict[str, int | float] = Field(default_factory=dict)
    """Weights."""
    fast: bool = True
    """Fast."""
    inner: Inner = Field(default_factory=Inner)
    """Nested."""
    hidden: str = Field("x", init=False)

    @pydantic.model_validator(mode="after")
    def _fit(self):
        if self.inner.low > self.inner.high:
            raise ValueRefused("inner.low", self.inner.low, "at most inner.high")
        if self.names == ("a", "a"):
            raise ValueError("--names holds one twice.")
        return self


@option_class
class Placed:
    """A command with arguments by place."""

    a: Annotated[Path, POSITIONAL]
    """First."""
    b: Annotated[Path, POSITIONAL]
    """Second."""
    common: bool = False
    """Flag."""


def options(words: str = "") -> Options:
    return parse(Options, ["--kind", "red", *words.split()], "codev test")


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("--max-turns 3", {"max_turns": 3}),
        ("--max_turns=3", {"max_turns": 3}),
        ("--max-turns 3 --max-turns 4", {"max_turns": 4}),
        ("--kind blue", {"kind": "blue"}),
        ("--n 2", {"n": 2}),
        ("--names a b c", {"names": ("a", "b", "c")}),
        ("--names", {"names": ()}),
        ("--pair 2 -3", {"pair": (2, -3)}),
        ("--weights tool 0.3 cue 1", {"weights": {"tool": 0.3, "cue": 1}}),
        ("--weights tool -1e-4", {"weights": {"tool": -1e-4}}),
        ("--weights=tool 0.3", {"weights": {"tool": 0.3}}),
        ("--names=a b", {"names": ("a", "b")}),
        ("--names=a=b", {"names": ("a=b",)}),
        ("--names=--a", {"names": ("--a",)}),
        ("--inner.low -1_0", {"inner": Inner(low=-10)}),
        ("--fast", {"fast": True}),
        ("--fast False", {"fast": False}),
        ("--no-fast", {"fast": False}),
        ("--inner.low 1 --inner.high 2", {"inner": Inner(low=1, high=2)}),
    ],
)
def test_values_are_read_as_they_are_typed(words, changed):
    assert options(words) == dataclasses.replace(options(), **changed)


def test_whole_numbers_of_a_mapping_stay_whole():
    assert {name: type(value) for name, value in options("--weights a 1 b 1.0").weights.items()} == {
        "a": int,
        "b": float,
    }


@pytest.mark.parametrize("words", ["a b --common", "--common a b", "a --common b"])
def test_a_word_after_a_flag_is_an_argument_where_arguments_go_by_place(words):
    assert parse(Placed, words.split(), "codev test") == Placed(a=Path("a"), b=Path("b"), common=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--n 0", "--n is 0; it must be at least 1."),
        ("--inner.high 9", "--inner.high is 9; it must be at least 1 and below 9."),
        ("--ratio nan", "--ratio is nan; it must be a finite number."),
        ("--ratio 0.5", "--ratio is 0.5; it must be above 1, or 0 for none."),
        ("--inner.low 7", "--inner.low is 7; it must be at most inner.high."),
        ("--names a a", "--names holds one twice."),
        ("--colours", "--colours is empty; it must be at least one value."),
        ("--n 0 --ratio 1", "--n is 0; it must be at least 1. --ratio is 1; it must be above 1, or 0 for none."),
    ],
)
def test_values_out_of_range_are_all_named(words, said):
    with pytest.raises(OptionError) as caught:
        options(words)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--max-turn 3", "unknown option --max-turn. Did you mean --max-turns?"),
        ("--qqq=3", "unknown option --qqq. `codev test --help` shows all."),
        ("extra", "unexpected argument 'extra'"),
        ("--kind green", "--kind is green; it must be 'red' or 'blue'."),
        ("--max-turns many", "--max-turns is many; it must be a whole number."),
        ("--max-turns 1.5", "--max-turns is 1.5; it must be a whole number."),
        ("--size small", "--size is small; it must be a whole number or auto."),
        ("--shade pale", "--shade is pale; it must be 'dark' or 'light'."),
        ("--marks star", "--marks is star; it must be 'dot' or 'line'."),
        ("--fast maybe", "--fast is maybe; it must be True or False."),
        ("--weights tool", "--weights is tool; it must be names with values."),
        ("--weights tool x", "--weights is x; it must be a number."),
        ("--max-turns", "argument --max-turns: expected one argument"),
        ("--hidden y", "unknown option --hidden"),
    ],
)
def test_a_wrong_command_line_ends_with_one_line_and_code_2(capsys, words, said):
    with pytest.raises(SystemExit) as caught:
        options(words)
    err = capsys.readouterr().err
    assert caught.value.code == 2 and err.startswith(f"codev test: {said}") and err.count("\n") == 1


def test_the_help_is_not_indented_like_the_source(capsys):
    with pytest.raises(SystemExit):
        Parser(Options, "codev test", about="First.\n\n    Second.\n    ").parse_args(["--help"])
    assert "\nFirst.\n\nSecond.\n\n" in capsys.readouterr().out


def test_what_is_missing_is_named(capsys):
    with pytest.raises(SystemExit):
        parse(Placed, [], "codev test")
    assert capsys.readouterr().err == "codev test: the following arguments are required: A, B\n"
    with pytest.raises(SystemExit):
        parse(Options, [], "codev test")
    assert capsys.readouterr().err == "codev test: --kind is missing.\n"


def test_defaults_stand_in_for_values_out_of_range():
    parser = Parser(Options, "codev test")
    made, problems = parser.examine({"kind": "red", "n": 0, "max_turns": 9})
    assert made == Options(kind="red", max_turns=9) and [problem.name for problem in problems] == ["n"]


def test_help_names_every_option_with_its_meaning_default_and_range(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    with pytest.raises(SystemExit) as caught:
        options("--help")
    out = capsys.readouterr().out
    assert caught.value.code == 0 and out.startswith("usage: codev test [options]\n\nA command.\n")
    assert "--kind {red,blue}" in out and "Which colour, 100 % sure. (required)" in out
    assert "Highest. (default: 5; at least 1 and below 9)" in out and "inner options:" in out
    assert "How many. (at least 1)" in out, "docstrings of a base are kept"
    assert "hidden" not in out and "--no-fast" not in out


def test_options_are_frozen_checked_when_replaced_and_have_no_other_names():
    found = options()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.max_turns = 3
    with pytest.raises(ValueError):
        dataclasses.replace(found, n=0)
    with pytest.raises(ValueError):
        Options(kind="red", turns=3)
    assert [option.name for option in options_of(Inner)] == ["low", "high"]


@option_class
class Long:
    """A command with many options."""

    COMMON = ("often", "inner.low")
    often: int = 1
    """Used often."""
    seldom: int = 2
    """Used seldom."""
    flag: bool = False
    """Used seldom, too."""
    needed: str
    """Always needed."""
    inner: Inner = Field(default_factory=Inner)
    """Nested."""


def test_help_shows_the_common_options_and_help_all_the_rest(capsys):
    for flag, shown in (("--help", False), ("--help-all", True)):
        with pytest.raises(SystemExit) as caught:
            parse(Long, [flag], "codev test")
        out = capsys.readouterr().out
        assert caught.value.code == 0 and "--often" in out and "--needed" in out
        assert ("--seldom" in out) is shown and ("--flag" in out) is shown and "--no-flag" not in out
        assert ("more options" in out) is not shown
    assert parse(Long, ["--seldom", "5", "--needed", "x"], "codev test").seldom == 5


@option_class
class Wordy:
    """A command with long help."""

    COMMON = ("scale", "fast", "lines", "name")
    name: str = "x"
    """Name (a; b) of `c; d. e`; the rest is long."""
    lines: Annotated[int, Field(ge=1)] = 5
    """Lines. They count."""
    fast: bool = False
    """Be fast; 100 % so."""
    scale: float
    """Factor."""
    more: int = 1
    """Seldom."""


def test_the_short_help_has_first_clauses_in_the_order_of_use(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        parse(Wordy, ["--help"], "codev test")
    rows = capsys.readouterr().out.split("options:\n")[1].splitlines()[2:6]
    assert [" ".join(row.split()) for row in rows] == [
        "--scale FLOAT Factor. (required)",
        "--fast Be fast.",
        "--lines INT Lines. (default: 5)",
        "--name TEXT Name (a; b) of `c; d. e`. (default: x)",
    ]
    with pytest.raises(SystemExit):
        parse(Wordy, ["--help-all"], "codev test")
    assert "Lines. They count. (default: 5; at least 1)" in capsys.readouterr().out


def test_a_command_without_common_options_shows_all_and_has_no_help_all(capsys):
    with pytest.raises(SystemExit):
        options("--help")
    assert "--help-all" not in capsys.readouterr().out
