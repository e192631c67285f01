"""What a refusal advises, and which methods of classes it is about."""

from __future__ import annotations

import pytest

from codev_env.sandbox import Session


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("Image.MAX_IMAGE_PIXELS = None", "leave the line out"),
        ("from PIL import ImageFile\nImageFile.LOAD_TRUNCATED_IMAGES = True", "leave it out, images are read whole"),
        ("np.zeros(3).strides = 1", "keep the value in a variable"),
    ],
)
def test_a_setting_that_is_refused_says_what_to_do(session: Session, code: str, says: str) -> None:
    execution = session.run(code)
    assert execution.stop == "refused" and says in str(execution.error)


@pytest.mark.parametrize(
    "code",
    [
        "class A(list): pass\nA.__init__",
        "class A: pass\nA().__init__",
        "class A:\n    __len__ = len\nA.__len__",
        "from enum import Enum\nclass A(Enum):\n    B = 1\nA.__repr__",
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nA.__eq__",
    ],
)
def test_only_magic_methods_of_the_program_itself_can_be_read(session: Session, code: str) -> None:
    assert session.run(code).stop == "refused"


def test_an_inset_has_no_axes_of_another_class(session: Session) -> None:
    pytest.importorskip("matplotlib")
    start = "import matplotlib.pyplot as plt\nfrom mpl_toolkits.axes_grid1 import inset_locator as made\n"
    named = session.run(f"{start}made.inset_axes(plt.gca(), 1, 1, axes_class=print)")
    by_place = session.run(f"{start}made.inset_axes(plt.gca(), 1, 1, 'center', None, None, print)")
    assert named.stop == "refused" and "leave axes_class out" in str(named.error)
    assert by_place.stop == "error" and by_place.stdout == ""


@pytest.mark.parametrize("code", ["raise SystemExit", "raise SystemExit(0)", "import sys\nraise SystemExit('no crop')"])
def test_a_program_that_raises_system_exit_is_told_what_to_call(session: Session, code: str) -> None:
    execution = session.run(f"print('before')\n{code}")
    assert (execution.stop, execution.stdout) == ("refused", "before\n")
    assert "call exit()" in str(execution.error)


def test_catching_system_exit_is_no_error_of_its_own(session: Session) -> None:
    code = "try:\n    1 / 0\nexcept SystemExit:\n    print('exit')\nexcept ZeroDivisionError:\n    print('zero')"
    assert session.run(code).stdout == "zero\n"
