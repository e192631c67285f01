"""What an execution says of the parts that a program cut out of images and arrays."""

from __future__ import annotations

import pytest
from PIL import Image

from codev_env.sandbox import Sandbox

SIZE = (60, 40)
INSIDE = (SIZE, (10, 5, 30, 25))


@pytest.mark.parametrize(
    ("code", "cuts"),
    [
        ("image.crop((10, 5, 30, 25))", (INSIDE,)),
        ("image.crop([10.2, 4.6, 30, 25])", (INSIDE,)),
        ("image.crop((10, 5, 30, 25)).crop((1, 2, 3, 4))", (INSIDE, ((20, 20), (1, 2, 3, 4)))),
        ("np.array(image)[5:25, 10:30]", (INSIDE,)),
        ("np.array(image)[5:25, 10:30, ::-1]", (INSIDE,)),
        ("np.array(image.convert('L'))[5:-15, 10:30]", (INSIDE,)),
        ("np.array(image)[5:25][:, 10:30]", ((SIZE, (0, 5, 60, 25)), ((60, 20), (10, 0, 30, 20)))),
        ("import cv2\ncv2.imread('input.png')[5:25, 10:30]", (INSIDE,)),
        ("a = np.array(image)\na[5:25, 10:30] = 0", ()),
        ("np.array(image)[5:25:2, 10:30]", ()),
        ("np.array(image)[5:5, 10:30]", ()),
        ("image.crop((10, 5, 90, 25))", ()),
        ("image.crop((30, 5, 30, 25))", ()),
        ("image.crop()", ()),
        ("[1, 2, 3][1:], 'text'[:2], np.arange(9)[2:4], {}.get(1)", ()),
        ("image.crop((10, 5, 30, 25))\n1 / 0", (INSIDE,)),
        ("def f(a):\n    return a[5:25, 10:30]\nf(np.array(image))", (INSIDE,)),
        ("for _ in range(3):\n    image.crop((10, 5, 30, 25))", (INSIDE,)),
    ],
)
def test_cuts(code: str, cuts: tuple) -> None:
    with Sandbox() as box, box.session({"input.png": Image.new("RGB", SIZE)}) as session:
        assert session.run(code).cuts == cuts
        assert session.run("show(image)").cuts == ()


def test_the_last_cuts_are_kept() -> None:
    with Sandbox() as box, box.session({"input.png": Image.new("RGB", (200, 40))}) as session:
        cuts = session.run("for x in range(100):\n    image.crop((x, 0, x + 5, 5))").cuts
    assert [part[0] for _size, part in cuts] == list(range(36, 100))


def test_slices_of_everything_else_mean_what_they_mean() -> None:
    code = """
class Odd:
    def __getitem__(self, key):
        return key
print([1, 2, 3][1:], 'text'[:2], (1, 2)[::-1], Odd()[1:2, 3:4], Odd()[:])
a = [1, 2, 3, 4]
a[1:3] = [9]
del a[:1]
a[:1] += [7]
print(a, np.arange(6).reshape(2, 3)[:, 1:][0])
b'x'[5, 1:2]
"""
    with Sandbox() as box, box.session({"input.png": Image.new("RGB", SIZE)}) as session:
        execution = session.run(code)
    wanted = "[2, 3] te (2, 1) (slice(1, 2, None), slice(3, 4, None)) slice(None, None, None)\n[9, 7, 4] [1 2]\n"
    assert execution.stdout == wanted
    assert (execution.error or "").startswith("TypeError") and "line 11" in execution.error
