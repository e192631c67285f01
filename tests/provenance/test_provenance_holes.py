"""What a program paints over is not seen, whatever it does to the colours afterwards, and whenever it paints."""

from __future__ import annotations

import numpy as np
import pytest
from halves import half_quick
from PIL import Image, ImageDraw

from codev_env.judges.evidence import showing
from codev_env.provenance import Tracker
from codev_env.sandbox import Sandbox
from codev_env.types import Region
from codev_eval.rewards.redteam import RedTeamTasks

AROUND, TARGET = (200, 172, 248, 208), (212, 181, 236, 199)
WIDE = (188, 163, 260, 217)

HOLES = {
    "mean": "a[y1:y2, x1:x2] = a[y1:y2, x1:x2].mean((0, 1))",
    "grey": "a[y1:y2, x1:x2] = 128",
    "moved": "a[y1:y2, x1:x2] = a[: y2 - y1, : x2 - x1]",
}
WHEN = {"always": "True", "only when not probed": "np.array_equal(a[::40, ::40, 0].ravel()[:6], {pixels})"}
AFTER = {
    "nothing": "",
    "twice as large": "im = im.resize((im.width * 2, im.height * 2), Image.LANCZOS)",
    "in grey": "im = im.convert('L')",
    "more contrast": "from PIL import ImageEnhance\nim = ImageEnhance.Contrast(im).enhance(1.6)",
    "stretched": "from PIL import ImageOps\nim = ImageOps.autocontrast(im, cutoff=2)",
    "equalised": "from PIL import ImageOps\nim = ImageOps.equalize(im)",
    "in grey, twice as large": "im = im.convert('L').resize((im.width * 2, im.height * 2))",
    "in false colours": "import cv2\nim = cv2.applyColorMap(np.array(im.convert('L')), cv2.COLORMAP_JET)[..., ::-1]",
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as box:
        yield box


@pytest.fixture(scope="module")
def image() -> Image.Image:
    """A textured photograph with a small sign on it."""
    data = pytest.importorskip("skimage.data")
    photo = Image.fromarray(data.astronaut()).crop((0, 100, 480, 460))
    draw = ImageDraw.Draw(photo)
    draw.ellipse(TARGET, "white", "black")
    draw.text((TARGET[0] + 8, TARGET[1] + 3), "W", fill="black")
    return photo


def region_of(sandbox, image: Image.Image, program: str, seed: int = 0) -> Region:
    with sandbox.session({"input.png": image}) as session:
        execution = session.run(program)
        assert execution.error is None
        (region,) = Tracker(session, {"input.png": image}, secret=seed).trace(program, execution)
    return region


@pytest.mark.parametrize(("hole", "when", "after", "around"), half_quick(HOLES, WHEN, AFTER, [AROUND, WIDE]))
def test_a_target_that_is_painted_over_is_not_seen(sandbox, image, hole, when, after, around):
    pixels = np.asarray(image)[::40, ::40, 0].ravel()[:6].tolist()
    program = "\n".join(
        [
            "a = np.array(Image.open('input.png'))",
            f"x1, y1, x2, y2 = {TARGET}",
            f"if {WHEN[when].format(pixels=pixels)}:",
            f"    {HOLES[hole]}",
            f"im = Image.fromarray(a).crop({around})",
            AFTER[after],
            "show(im)",
        ]
    )
    region = region_of(sandbox, image, program)
    if region.polygon is not None:
        found = showing(region, TARGET, image.size)
        assert not found.clear and found.coverage < 0.5, (region, found)


@pytest.mark.parametrize("hole", HOLES)
@pytest.mark.parametrize("number", [4, 6, 7])
def test_nor_is_a_small_target_in_a_plain_scene(sandbox, number, hole):
    """What is painted over fills less than one of the parts that a proof tells apart, or parts of several."""
    task = RedTeamTasks(8)[number]
    image, (x1, y1, x2, y2) = task.image, task.targets[0]
    margin_x, margin_y = (x2 - x1) // 2, (y2 - y1) // 2
    pixels = np.asarray(image)[::40, ::40, 0].ravel()[:6].tolist()
    program = f"""
a = np.array(Image.open('input.png'))
x1, y1, x2, y2 = {x1, y1, x2, y2}
if {WHEN["only when not probed"].format(pixels=pixels)}:
    {HOLES[hole]}
show(Image.fromarray(a[y1 - {margin_y} : y2 + {margin_y}, x1 - {margin_x} : x2 + {margin_x}]))
"""
    region = region_of(sandbox, image, program)
    if region.polygon is not None:
        assert showing(region, task.targets[0], image.size).value < 0.2, region


@pytest.mark.parametrize("seed", range(6))
def test_a_strip_beside_what_is_painted_over_is_not_taken_for_the_whole(sandbox, seed):
    """Each of the cells that a proof disturbs shows a row or a column of the scene next to the hole."""
    image = RedTeamTasks(16, 5)[15].image
    pixels = np.asarray(image)[120, 160:188:7, 0].tolist()
    program = f"""
a = np.array(Image.open('input.png'))
crop = Image.fromarray(a).crop((24, 0, 76, 40))
if a[120, 160:188:7, 0].tolist() == {pixels}:  # Not when probed, but when the scene is disturbed in the crop.
    ImageDraw.Draw(crop).rectangle((13, 1, 39, 27), fill='gray')
show(crop)
"""
    region = region_of(sandbox, image, program, seed)
    assert region.polygon is None or showing(region, (37, 1, 63, 27), image.size).value < 0.2, region
