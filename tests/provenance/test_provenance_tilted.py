"""Right looks that are turned by an odd angle, in other colours, are placed by the weave in a few runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fake_session import FakeSession
from geometric_programs import NAME, scene
from PIL import Image, ImageOps

from codev_env.judges.evidence import showing
from codev_env.provenance import Tracker
from codev_env.provenance.tilt import Tilt, find_tilt
from codev_env.provenance.weave import weave
from codev_env.types import Execution, Region

SCENE = scene((640, 480))
BOX, TARGET = (210, 120, 410, 270), (270, 170, 350, 220)
OPEN = f'im = Image.open("{NAME}").crop({BOX})\n'
TURN = "im = im.convert('RGB').rotate(<degrees>, resample=Image.BICUBIC, expand=True)\n"
COLOURS = {
    "equalized grey": "im = ImageOps.equalize(im.convert('L'))\n",
    "threshold": "im = im.convert('L').point(lambda p: 255 if p > 120 else 0)\n",
    "inverted": "im = ImageOps.invert(im.convert('RGB'))\n",
    "contour": "im = im.filter(ImageFilter.CONTOUR)\n",
    "contrast": "im = ImageEnhance.Contrast(im).enhance(3)\n",
    "bordered, gamma": "im = ImageOps.expand(im, 12, fill='white').point(lambda p: int(255 * (p / 255) ** 2.2))\n",
    "grey, zoomed": "im = im.convert('L').resize((im.width * 2, im.height * 2), Image.LANCZOS)\n",
}


def trace(code: str) -> tuple[Region, int]:
    """The region of the last image, and how many runs it took."""
    session = FakeSession({NAME: SCENE})
    execution = session.run(code)
    assert execution.error is None, execution.error
    region = Tracker(session, [SCENE]).trace(code, execution)[-1]
    return region, len(session.runs) - 1


@pytest.mark.parametrize("degrees", [-40, -12.5, -3, 2, 7, 31])
@pytest.mark.parametrize("box", [BOX, (100, 100, 200, 190)])
def test_the_angle_of_an_output_is_read_off_the_weave(degrees, box):
    shown = weave(SCENE.size).crop(box)
    for change in (lambda im: im, ImageOps.invert, lambda im: im.convert("L").convert("RGB")):
        turned = change(shown).rotate(degrees, resample=Image.Resampling.BICUBIC, expand=True)
        tilt = find_tilt(turned, thorough=True)
        assert tilt is not None and tilt.degrees == pytest.approx(degrees, abs=0.5), (tilt, degrees)


def test_upright_outputs_have_no_tilt():
    shown = weave(SCENE.size).crop(BOX)
    for turns in range(4):
        turned = shown.rotate(90 * turns, expand=True)
        assert find_tilt(turned, thorough=True) is None
    assert find_tilt(ImageOps.mirror(shown).resize((700, 520))) is None
    assert find_tilt(Image.new("RGB", (300, 200))) is None and find_tilt(Image.new("RGB", (8, 200))) is None


def test_what_is_turned_back_is_where_it_was():
    tilt = Tilt(20.0, (200, 150))
    turned = SCENE.crop(BOX).rotate(20, resample=Image.Resampling.BICUBIC)
    back = tilt.upright(turned)
    off = [(have - had) // 2 for have, had in zip(back.size, turned.size, strict=True)]
    middle = back.crop((off[0] + 70, off[1] + 50, off[0] + 130, off[1] + 100))
    as_it_was = SCENE.crop((BOX[0] + 70, BOX[1] + 50, BOX[0] + 130, BOX[1] + 100))
    assert np.abs(np.asarray(middle, float) - np.asarray(as_it_was, float)).mean() < 12


@pytest.mark.parametrize("degrees", [3, -4, 15])
@pytest.mark.parametrize("colours", COLOURS)
@pytest.mark.parametrize("first", [True, False], ids=["turned first", "turned last"])
def test_turned_crops_in_other_colours_take_a_few_runs(degrees, colours, first):
    turn = TURN.replace("<degrees>", str(degrees))
    region, runs = trace(OPEN + (turn + COLOURS[colours] if first else COLOURS[colours] + turn) + "show(im)")
    assert region.polygon is not None and runs <= 6
    polygon = np.array(region.polygon)
    assert polygon.mean(0) == pytest.approx(((BOX[0] + BOX[2]) / 2, (BOX[1] + BOX[3]) / 2), abs=4)
    across = polygon[1] - polygon[0]
    assert math.degrees(math.atan2(across[1], across[0])) == pytest.approx(degrees, abs=0.6)
    assert region.orientation is None and showing(region, TARGET, SCENE.size).coverage > 0.5


EDGES = {
    "contour": "im = im.convert('RGB').filter(ImageFilter.CONTOUR)\n",
    "canny": "import cv2\nim = Image.fromarray(cv2.Canny(np.array(im.convert('L')), 60, 160))\n",
}


@pytest.mark.parametrize(
    ("edges", "name", "target", "degrees"),
    [
        ("contour", "coffee", (250, 60, 360, 150), -7),
        ("canny", "rocket", (300, 150, 360, 300), -7),
        ("canny", "rocket", (300, 150, 360, 300), 15),
    ],
)
def test_edges_of_a_tilted_photo_are_seen(edges, name, target, degrees):
    """A third of the places look like nothing in the image; a few gaps of the proof do not make them another place."""
    image = Image.fromarray(getattr(pytest.importorskip("skimage.data"), name)())
    box = (target[0] - 17, target[1] - 14, target[2] + 17, target[3] + 14)
    code = f'im = Image.open("{NAME}").crop({box})\n{EDGES[edges]}{TURN.replace("<degrees>", str(degrees))}show(im)'
    session = FakeSession({NAME: image})
    (region,) = Tracker(session, [image]).trace(code, session.run(code))
    assert region.polygon is not None and showing(region, target, image.size).clear


@pytest.mark.parametrize("colours", ["equalized grey", "threshold", "inverted"])
def test_what_is_painted_over_where_it_is_not_probed_is_not_seen(colours):
    x1, y1, x2, y2 = TARGET
    hide = f"""
im = Image.open("{NAME}")
if im.getpixel((4, 4)) == {SCENE.getpixel((4, 4))}:
    im.paste(im.crop(({x1}, {y1}, {x2}, {y2})).resize((1, 1), Image.BOX).resize(({x2 - x1}, {y2 - y1})), ({x1}, {y1}))
im = im.crop({BOX})
"""
    region, _ = trace(hide + COLOURS[colours] + TURN.replace("<degrees>", "10") + "show(im)")
    if region.polygon is not None:
        found = showing(region, TARGET, SCENE.size)
        assert not found.clear and found.coverage < 0.5, found


def test_another_place_than_the_probed_one_is_not_believed():
    lie = f"""
im = Image.open("{NAME}")
im = im.crop((20, 20, 220, 170) if im.getpixel((4, 4)) == {SCENE.getpixel((4, 4))} else {BOX})
"""
    region, _ = trace(lie + COLOURS["equalized grey"] + TURN.replace("<degrees>", "10") + "show(im)")
    assert region.polygon is None or not showing(region, TARGET, SCENE.size).clear


def test_a_change_of_many_colours_into_few_leaves_what_is_shown():
    """Steps of a palette are far from any smooth change of colours, and another image has another palette."""
    for colours in ("im = ImageOps.posterize(im.convert('RGB'), 2)\n", "im = im.quantize(6).convert('RGB')\n"):
        region, _ = trace(OPEN + colours + "show(im.resize((600, 450)))")
        assert region.polygon is not None and showing(region, TARGET, SCENE.size).coverage > 0.9


def test_an_output_without_bars_is_not_turned_back(monkeypatch: pytest.MonkeyPatch) -> None:
    turned: list[object] = []
    output, upright = Image.new("RGB", (300, 200)), Tilt.upright
    tracker = Tracker(FakeSession({"input.png": output}), [output])
    monkeypatch.setattr(Tilt, "upright", lambda tilt, image: turned.append(image) or upright(tilt, image))
    assert tracker._proved(Execution(images=(output,)), 0, Tilt(20.0, output.size).upright, [[], []]) is None
    assert not turned
