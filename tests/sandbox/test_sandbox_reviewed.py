"""A new release of a library adds nothing to what programs can reach before somebody has reviewed it."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from codev_env.sandbox.language import guards, reviewed
from codev_env.sandbox.language.facade import Facade
from codev_env.sandbox.language.refusals import RefusedAttribute


@pytest.mark.integration
def test_the_installed_libraries_have_nothing_new() -> None:
    script = Path(__file__).with_name("review_names.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_a_new_function_is_left_out_and_named() -> None:
    facade = Facade("math", {"sin": math.sin, "launch": print, "tau": math.tau})
    assert reviewed.keep_reviewed({"math": facade}) == ["math.launch"]
    assert dir(facade) == ["sin", "tau"]
    with pytest.raises(AttributeError, match=r"'launch' here: it is new, and nobody has reviewed"):
        facade.launch  # noqa: B018


def test_a_refused_name_says_why_unless_there_is_something_to_use_instead() -> None:
    facade = Facade("numpy", {"memmap": print}, {"matrix": "use np.array"})
    assert reviewed.keep_reviewed({"numpy": facade}) == []
    with pytest.raises(AttributeError, match="'memmap' here: reads or writes files"):
        facade.memmap  # noqa: B018
    with pytest.raises(AttributeError, match="'matrix' here: use np.array"):
        facade.matrix  # noqa: B018


def test_a_new_attribute_of_a_class_and_of_its_new_base_is_hidden() -> None:
    base = type("NewBase", (), {"open_socket": print, "__module__": "PIL.Image"})
    image = type("Image", (base,), {"crop": len, "write_anything": print, "__module__": "PIL.Image"})
    new = reviewed.keep_reviewed({"PIL.Image": Facade("PIL.Image", {"Image": image})})
    assert new == ["class Image: open_socket", "class Image: write_anything"]
    assert guards.guarded_getattr(image(), "crop")
    for name in ("open_socket", "write_anything"):
        with pytest.raises(RefusedAttribute):
            guards.guarded_getattr(image(), name)


def test_modules_without_a_rule_are_left_alone() -> None:
    facade = Facade("json", {"dumps": print})
    assert reviewed.keep_reviewed({"json": facade}) == []
    assert dir(facade) == ["dumps"]


def test_a_missing_table_is_an_error_and_not_a_library_without_limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reviewed, "FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"math\.txt"):
        reviewed.keep_reviewed({"math": Facade("math", {"sin": math.sin})})


def test_no_name_is_both_allowed_and_refused() -> None:
    for library in reviewed.LIBRARIES:
        table = reviewed.read(library)
        assert table.allowed
        for module, reasons in table.refused.items():
            for names in reasons.values():
                assert not names & table.allowed.get(module, set()), (library, module)
