"""A crop beside its copies in other colours shows one place: no more than the crop alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PIL import Image

from codev_env.geometry import iou
from codev_env.judges.account import Account, JudgedImage
from codev_env.judges.evidence import AS_IT_IS
from codev_env.provenance import Tracker
from codev_env.rewards.terms import is_view
from codev_env.sandbox import Sandbox
from codev_env.trajectory.rows import _region, _region_row
from codev_env.types import Region, Task

CROP, OTHER = (150, 45, 305, 220), (20, 250, 175, 425)
TARGET = (175, 60, 280, 200)

ARRANGED = {
    "with more contrast": "show(np.hstack([np.array(c), np.array(ImageEnhance.Contrast(c).enhance(2))]))",
    "twice": "show(np.vstack([np.array(c), np.array(c)]))",
    "sharpened, both enlarged": (
        "z = c.resize((c.width * 2, c.height * 2))\n"
        "show(np.hstack([np.array(z), np.array(z.filter(ImageFilter.SHARPEN))]))"
    ),
    "in grey, with a margin": (
        "page = Image.new('RGB', (c.width * 2 + 10, c.height), 'white')\npage.paste(c, (0, 0))\n"
        "page.paste(ImageOps.autocontrast(c.convert('L')).convert('RGB'), (c.width + 10, 0))\nshow(page)"
    ),
    "four of them": (
        "some = [c, c.convert('L').convert('RGB'), ImageOps.invert(c), ImageEnhance.Contrast(c).enhance(2)]\n"
        "page = Image.new('RGB', (2 * c.width, 2 * c.height))\n"
        "for i, one in enumerate(some):\n    page.paste(one, (i % 2 * c.width, i // 2 * c.height))\nshow(page)"
    ),
    "a figure of three": (
        "figure, axes = plt.subplots(1, 3, figsize=(12, 4))\n"
        "for axis, one in zip(axes, [c, ImageOps.equalize(c), c.convert('L')]):\n"
        "    axis.imshow(one, cmap='gray')\n    axis.axis('off')\nplt.show()"
    ),
}
OTHERS = {
    "another place": "show(np.hstack([np.array(c), np.array(d)]))",
    "another place in grey": "show(np.hstack([np.array(c), np.array(d.convert('L').convert('RGB'))]))",
    "a copy with half of another place": (
        "e = c.convert('L').convert('RGB')\ne.paste(d.crop((0, 0, 155, 90)), (0, 0))\n"
        "show(np.hstack([np.array(c), np.array(e)]))"
    ),
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as box:
        yield box


@pytest.fixture(scope="module")
def image() -> Image.Image:
    return Image.fromarray(pytest.importorskip("skimage.data").astronaut())


def traced(sandbox, image: Image.Image, program: str) -> JudgedImage:
    program = f"im = Image.open('input.png')\nc, d = im.crop({CROP}), im.crop({OTHER})\n{program}"
    with sandbox.session({"input.png": image}) as session:
        execution = session.run(program)
        assert execution.error is None, execution.error
        (region,) = Tracker(session, {"input.png": image}).trace(program, execution)
    return JudgedImage(region, execution.images[0])


def shown(image: Image.Image, one: JudgedImage) -> float:
    task = Task("t", (image,), "What?", "x", targets=(TARGET,))
    (looks,) = Account(task, [one], AS_IT_IS).looks
    return looks[0].alone[0].shown


@pytest.mark.parametrize("arranged", ARRANGED)
def test_copies_count_as_the_crop_alone(sandbox, image, arranged):
    one = traced(sandbox, image, ARRANGED[arranged])
    assert one.region.box is not None and iou(one.region.box, CROP) > 0.97
    assert not one.region.others and one.region.repeated >= 0.95 * one.region.original_share
    assert one.region.traced_share <= 1.001
    assert shown(image, one) == pytest.approx(shown(image, traced(sandbox, image, "show(c)")), rel=0.15)


def test_a_copy_under_a_threshold_is_no_other_place(sandbox, image):
    code = (
        "g = c.convert('L')\nm = float(np.array(g).mean())\nt = g.point(lambda p: 255 if p > m else 0)\n"
        "show(np.hstack([np.array(c), np.array(t.convert('RGB'))]))"
    )
    one = traced(sandbox, image, code)
    assert iou(one.region.box, CROP) > 0.97 and 0.3 < one.region.repeated < 0.5
    assert shown(image, one) < 1.3 * shown(image, traced(sandbox, image, "show(c)"))


@pytest.mark.parametrize("arranged", OTHERS)
def test_another_place_counts(sandbox, image, arranged):
    one = traced(sandbox, image, OTHERS[arranged])
    assert one.region.repeated < 0.26
    assert shown(image, one) > 1.4 * shown(image, traced(sandbox, image, "show(c)"))


def test_four_copies_are_a_view_of_the_image_and_kept_in_files():
    region = Region(((0, 0), (4, 0), (4, 4), (0, 4)), (0, 0, 4, 4), 0, "rot0", 1.0, 0.25, "probe", repeated=0.75)
    assert is_view(region) and not is_view(replace(region, repeated=0.2))
    assert _region(_region_row(region)) == region
    plain = Region(original_share=0.5)
    assert "repeated" not in _region_row(plain), "files without copies are as before"
