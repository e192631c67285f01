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
        ("SQUARE", {}, "unknown shape 'SQUARE'. Did you mean 'square'"),
        ("squ", {}, "unknown shape 'squ'. Did you mean 'square'"),
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


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("./own_shapes:SQUARE", r"'\./own_shapes' is a path. Write it as 'module:attribute', own_shapes:SQUARE"),
        ("own_shapes.py:SQUARE", "'own_shapes.py' is a path. Write it as 'module:attribute', own_shapes:SQUARE"),
        ("localhost:8000/v1#x", "address of a server with http:// in front: http://localhost:8000/v1#x"),
        ("htp://node:8000/v1#x", "address of a server with http:// in front: http://node:8000/v1#x"),
        ("own_shapez:SQUARE", "No module named 'own_shapez'.* is looked for in the working folder"),
        ("own_shapes:SQARE", "has no attribute 'SQARE'. Write it as 'module:attribute'. Did you mean 'SQUARE'?"),
        (
            "own_lacking:x",
            r"its module raises ModuleNotFoundError: No module named 'no_such' \(.*own_lacking.py, line 2",
        ),
        ("own_broken:x", r"its module raises SyntaxError: .*\(own_broken.py, line 1\)"),
        ("own_failing:x", r"its module raises ZeroDivisionError: division by zero \(.*own_failing.py, line 1\)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_explained(tmp_path, monkeypatch, path, said):
    (tmp_path / "own_shapes.py").write_text("SQUARE = 4\n")
    (tmp_path / "own_lacking.py").write_text("\nimport no_such\n")
    (tmp_path / "own_broken.py").write_text("def x(:\n")
    (tmp_path / "own_failing.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=said):
        SHAPES.find(path)


@pytest.mark.parametrize("given", ["square,round", "square round", "square, round"])
def test_several_names_in_one_word_are_recognised(given):
    with pytest.raises(ConfigError, match="Give each name as a word or an entry of its own: square round"):
        SHAPES.find(given)
