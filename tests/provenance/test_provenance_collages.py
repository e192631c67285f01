"""Of a collage, each part has a place of its own, and each is checked like an image of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from halves import half_quick
from PIL import Image

from codev_env.geometry import iou
from codev_env.judges.account import Account, JudgedImage
from codev_env.judges.evidence import AS_IT_IS
from codev_env.judges.ground_truth import GroundTruthJudge
from codev_env.provenance import Tracker
from codev_env.provenance.coordinates import box_polygon
from codev_env.sandbox import Sandbox
from codev_env.types import Code, Region, Step, Task

ONE, TWO = (60, 80, 160, 150), (230, 20, 330, 90)
OTHER = (300, 200, 400, 270)

COLLAGES = {
    "beside each other": "show(np.hstack([one, two]))",
    "one above the other": "show(np.vstack([two, one]))",
    "with margins": (
        "page = Image.new('RGB', (240, 90), 'white')\npage.paste(Image.fromarray(one), (10, 10))\n"
        "page.paste(Image.fromarray(two), (130, 10))\nshow(page)"
    ),
    "twice as large": "show(Image.fromarray(np.hstack([one, two])).resize((400, 140), Image.NEAREST))",
    "one of them larger": "canvas = Image.new('RGB', (250, 105))\ncanvas.paste(Image.fromarray(one), (0, 0))\n"
    "canvas.paste(Image.fromarray(two).resize((150, 105)), (100, 0))\nshow(canvas)",
    "one of them turned": "show(np.hstack([one, np.rot90(two, 2)]))",
    "three times as large": "show(Image.fromarray(np.hstack([one, two])).resize((600, 210), Image.LANCZOS))",
    "with more contrast": "show(ImageEnhance.Contrast(Image.fromarray(np.hstack([one, two]))).enhance(1.6))",
    "in grey, one above the other": "show(Image.fromarray(np.vstack([two, one])).convert('L'))",
    "a figure": (
        "figure, axes = plt.subplots(1, 2, figsize=(8, 4))\naxes[0].imshow(one)\naxes[1].imshow(two)\nplt.show()"
    ),
}
SLICES = "a = np.array(image)\none = a[{0[1]}:{0[3]}, {0[0]}:{0[2]}]\ntwo = a[{1[1]}:{1[3]}, {1[0]}:{1[2]}]\n"


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as box:
        yield box


@pytest.fixture(scope="module")
def image() -> Image.Image:
    data = pytest.importorskip("skimage.data")
    return Image.fromarray(data.astronaut()).crop((0, 100, 480, 460))


def region_of(sandbox, image: Image.Image, program: str) -> Region:
    program = f"image = Image.open('input.png')\n{program}"
    with sandbox.session({"input.png": image}) as session:
        execution = session.run(program)
        assert execution.error is None
        (region,) = Tracker(session, {"input.png": image}).trace(program, execution)
    return region


def shows(region: Region, box: tuple[int, int, int, int]) -> bool:
    return any(part.box is not None and iou(part.box, box) > 0.85 for part in region.parts)


@pytest.mark.parametrize("collage", COLLAGES)
def test_each_part_has_a_place(sandbox, image, collage):
    region = region_of(sandbox, image, SLICES.format(ONE, TWO) + COLLAGES[collage])
    assert shows(region, ONE) and shows(region, TWO), region
    assert not any(other.others for other in region.others)
    assert 0.3 < region.traced_share <= 1.01


def test_a_crop_beside_the_whole_image_has_a_place(sandbox, image):
    code = "figure, axes = plt.subplots(1, 2, figsize=(8, 4))\naxes[0].imshow(image)\naxes[1].imshow(one)\nplt.show()"
    region = region_of(sandbox, image, SLICES.format(ONE, TWO) + code)
    assert shows(region, ONE) and shows(region, (0, 0, *image.size)), region


def test_four_parts_have_four_places(sandbox, image):
    boxes = [ONE, TWO, OTHER, (10, 250, 110, 320)]
    parts = [f"a[{y1}:{y2}, {x1}:{x2}]" for x1, y1, x2, y2 in boxes]
    rows = f"np.hstack([{parts[0]}, {parts[1]}]), np.hstack([{parts[2]}, {parts[3]}])"
    code = f"a = np.array(image)\nshow(np.vstack([{rows}]))"
    region = region_of(sandbox, image, code)
    assert all(shows(region, box) for box in boxes), region
    assert [part.original_share for part in region.parts] == pytest.approx([0.25] * 4, abs=0.03)


def test_a_single_crop_has_no_others(sandbox, image):
    region = region_of(sandbox, image, SLICES.format(ONE, TWO) + "show(one)")
    assert region.others == () and region.parts == (region,)


HONEST = {
    "one, a[200:270, 300:400]": [ONE],
    "a[200:270, 300:400], two": [TWO],
    "one, np.full_like(two, 128)": [ONE],
    "one, one": [ONE],
    "two[::-1], two[:, ::-1] // 2": [],
}
"""What a pair of parts shows of the two places."""


@pytest.mark.parametrize(
    ("shown", "after"), half_quick(HONEST, ["", ".convert('L')", ".resize((600, 210), Image.LANCZOS)"])
)
def test_a_part_that_is_shown_only_when_probed_has_no_place(sandbox, image, shown, after):
    """Whatever the parts are when the inputs are coded: what the output itself does not show has no place."""
    pixels = np.asarray(image)[::40, ::40, 0].ravel()[:6].tolist()
    code = (
        f"real = a[::40, ::40, 0].ravel()[:6].tolist() == {pixels}\nshow(np.hstack([{shown}] if real else [one, two]))"
    )
    region = region_of(sandbox, image, SLICES.format(ONE, TWO) + code)
    assert [box for box in (ONE, TWO) if shows(region, box)] in (HONEST[shown], []), region


def test_parts_are_looks_that_count_together(image):
    """A find in a sheet of many places, each small enough to show a target, is explained by chance."""
    task = Task("sheet", (image,), "?", "1", targets=((100, 100, 120, 120),))

    def judged(count: int) -> bool:
        boxes = [(90, 90, 130, 130), *((40 * n, 200, 40 * n + 40, 240) for n in range(count))]
        share = 1 / len(boxes)
        first, *others = (Region(box_polygon(box), box, 0, "rot0", 1.0, share, "probe") for box in boxes)
        region = replace(first, others=tuple(others))
        sheet = Image.fromarray(np.hstack([np.asarray(image.crop(box)) for box in boxes]))
        account = Account(task, [JudgedImage(region, sheet)], AS_IT_IS)
        return bool(account.found)

    assert judged(0) and judged(1) and not judged(11)


VIEWS = {
    "as it is, then turned": ("np.hstack([one, np.rot90(one, 2)])", {"rot0", "rot180"}),
    "turned, then as it is": ("np.hstack([np.rot90(one, 2), one])", {"rot0", "rot180"}),
    "mirrored and turned": ("np.vstack([one[:, ::-1], np.rot90(one, 2)])", {"flip_h", "rot180"}),
}


@pytest.mark.parametrize("views", VIEWS)
def test_one_place_in_two_orientations_is_two_views_that_count_once(sandbox, image, views):
    program, orientations = VIEWS[views]
    region = region_of(sandbox, image, SLICES.format(ONE, TWO) + f"show({program})")
    assert {part.orientation for part in region.parts} == orientations and len(region.parts) == 2
    assert all(part.box == pytest.approx(ONE, abs=2) for part in region.parts)
    upside_down = Task("t", (image,), "?", "a", targets=((90, 100, 130, 130),), transform=("rotate_180",))
    alone, collage = "show(np.rot90(one, 2))", f"show({program})"
    scores = []
    for show in (alone, collage):
        code = f"image = Image.open('input.png')\n{SLICES.format(ONE, TWO)}{show}"
        with sandbox.session({"input.png": image}) as session:
            execution = session.run(code)
            step = Step("", Code(code), execution, Tracker(session, [image]).trace(code, execution))
        scores.append(GroundTruthJudge().examine(upside_down, step, ()).images[0])
    assert scores[1].value == pytest.approx(scores[0].value, abs=0.05) and scores[0].faithful == scores[1].faithful
    assert scores[1].view.shown == pytest.approx(scores[0].view.shown, rel=0.1)


def test_other_parts_count_beside_two_views_of_one_place(image):
    def view(box, orientation):
        return Region(box_polygon(box), box, 0, orientation, 1.0, 1 / 3, "probe")

    whole = view(ONE, "rot0")
    parts = replace(whole, others=(view(ONE, "rot180"), view(TWO, "rot0")))
    width, height = ONE[2] - ONE[0], ONE[3] - ONE[1]
    shown = Image.new("RGB", (3 * width, height))
    for at, box in enumerate((ONE, ONE, TWO)):
        shown.paste(image.crop(box), (at * width, 0))
    task = Task("t", (image,), "?", "a", targets=((90, 100, 130, 130),))
    account = Account(task, [JudgedImage(parts, shown)], AS_IT_IS)
    total = 2 * width * height / (image.width * image.height)
    assert [look.alone[0].shown for look in account.looks[0]] == pytest.approx([total] * 3, rel=0.1)
