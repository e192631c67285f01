"""Look-up by name: rows, import paths, classes that are made, and the messages of what cannot be found."""

from __future__ import annotations

import pytest

from codev_env.errors import ConfigError
from codev_env.registry import Registry


class Shape:
    def __init__(self, sides: int = 4) -> None:
        self.sides = sides


class Round(Shape):
    pass


def triangle() -> Shape:
    return Shape(3)


def needs_more(colour: str) -> Shape:
    raise AssertionError


SQUARE = Shape()
NUMBER = 4
HERE = __name__


def is_shape(found: object) -> bool:
    return isinstance(found, Shape)


SHAPES: Registry[Shape] = Registry(
    "shape",
    {"square": SQUARE, "round": Round, "lazy": f"{HERE}:triangle", "gone": "no_such_module:shape"},
    is_shape,
    "a Shape",
    makes=True,
    forms=("N-gon",),
)


def test_a_row_is_found_by_its_name():
    assert SHAPES.find("square") is SQUARE is SHAPES["square"]
    assert list(SHAPES) == ["square", "round", "lazy", "gone"] and len(SHAPES) == 4


def test_a_row_by_path_is_imported_when_it_is_read():
    assert SHAPES["lazy"] is triangle
    with pytest.raises(ConfigError, match="cannot import the shape 'no_such_module:shape'"):
        SHAPES.find("gone")


def test_classes_and_functions_make_what_is_found():
    assert type(SHAPES.find("round")) is Round and SHAPES.find("lazy").sides == 3
    assert SHAPES.find("round") is not SHAPES.find("round")
    assert SHAPES.find(f"{HERE}:Shape", sides=5).sides == 5
    assert SHAPES.find(f"{HERE}:SQUARE") is SQUARE


def test_without_makes_a_class_stays_one():
    assert Registry("class", {"round": Round}).find("round") is Round


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("sqare", {}, r"unknown shape 'sqare'. Did you mean 'square'\? Known: N-gon, gone, lazy, module:attribute, "),
        (7, {}, "unknown shape 7"),
        (None, {}, "unknown shape None"),
        ("", {}, "unknown shape ''"),
        (f"{HERE}:nothing", {}, "cannot import the shape .* Write it as 'module:attribute'"),
        (":", {}, "cannot import the shape"),
        (f"{HERE}:NUMBER", {}, "is a int; it must be a Shape"),
        (f"{HERE}:is_shape", {}, r"with options \[\]: missing a required argument: 'found'. Its options: found"),
        (f"{HERE}:needs_more", {}, "Its options: colour"),
        ("round", {"corners": 3}, r"with options \['corners'\]: .* Its options: sides"),
        ("square", {"sides": 3}, r"has no options, got \['sides'\]"),
    ],
)
def test_what_cannot_be_found_is_one_clear_error(name, options, said):
    with pytest.raises(ConfigError, match=said):
        SHAPES.find(name, **options)


def test_a_function_that_makes_none_is_told_what_is_wanted():
    with pytest.raises(ConfigError, match="It is a function; it must be a Shape, or make one"):
        SHAPES.find(f"{HERE}:is_shape")
