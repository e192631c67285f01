"""Before and after side by side, enlarged: the crop has its place, whatever was made of its copy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from halves import half_quick
from PIL import Image

from codev_env.geometry import iou
from codev_env.judges.ground_truth import GroundTruthJudge
from codev_env.provenance import Tracker
from codev_env.provenance.coordinates import box_polygon
from codev_env.provenance.panels import parts_of
from codev_env.provenance.seams import layouts
from codev_env.sandbox import Limits, Sandbox
from codev_env.tasks import load_tasks
from codev_env.types import Box, Code, Region, Step, Task

TASKS = (0, 2, 3, 4)

LOAD = (
    "from PIL import Image, ImageEnhance, ImageFilter, ImageOps\nimport numpy as np\n"
    "im = Image.open('input.png').convert('RGB')\nc = im.crop({box})\n"
)
ENLARGED = {
    "x3 bicubic": "c = c.resize((c.width * 3, c.height * 3), Image.BICUBIC)\n",
    "x3 Lanczos": "c = c.resize((c.width * 3, c.height * 3), Image.LANCZOS)\n",
    "x2": "c = c.resize((c.width * 2, c.height * 2))\n",
    "x1": "",
}
AFTER = {
    "sharper": "e = ImageEnhance.Sharpness(c).enhance(3)\n",
    "more contrast": "e = ImageEnhance.Contrast(c).enhance(1.5)\n",
    "the same": "e = c\n",
    "grey": "e = ImageOps.grayscale(c).convert('RGB')\n",
}
ARRANGED = {
    "beside": "k = np.hstack([np.array(c), np.array(e)])\n",
    "below": "k = np.vstack([np.array(c), np.array(e)])\n",
    "a white separator": (
        "k = Image.new('RGB', (2 * c.width + 12, c.height), 'white')\nk.paste(c, (0, 0))\n"
        "k.paste(e, (c.width + 12, 0))\n"
    ),
    "three in a row": "k = np.hstack([np.array(c), np.array(e), np.array(ImageOps.autocontrast(c))])\n",
    "after, then before": "k = np.hstack([np.array(e), np.array(c)])\n",
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(Limits(wall_s=60)) as box:
        yield box


@pytest.fixture(scope="module")
def tasks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_tasks("synthetic", "test")


def around(task: Task) -> Box:
    """The first target with a quarter of its sides more around it."""
    (x1, y1, x2, y2), (width, height) = task.targets[0], task.image.size
    w, h = (x2 - x1) // 4, (y2 - y1) // 4
    return max(0, x1 - w), max(0, y1 - h), min(width, x2 + w), min(height, y2 + h)


def judged(sandbox, task: Task, program: str) -> tuple[Region, bool]:
    """What a program's image shows, and whether that is faithful."""
    with sandbox.session({"input.png": task.image}) as session:
        execution = session.run(program)
        assert execution.error is None, execution.error
        regions = Tracker(session, [task.image]).trace(program, execution)
    score = GroundTruthJudge().examine(task, Step("", Code(program), execution, regions), ())
    return regions[0], score.images[0].faithful


def off(region: Region, box: Box) -> float:
    return np.inf if region.box is None else float(np.abs(np.array(region.box) - box).max())


@pytest.mark.parametrize(("index", "enlarged", "after", "arranged"), half_quick(TASKS, ENLARGED, AFTER, ARRANGED)[::7])
def test_a_crop_beside_what_was_made_of_it_has_its_place(sandbox, tasks, index, enlarged, after, arranged):
    task = tasks[index]
    box = around(task)
    program = LOAD.format(box=box) + ENLARGED[enlarged] + AFTER[after] + ARRANGED[arranged] + "show(k)"
    region, faithful = judged(sandbox, task, program)
    tolerance = max(2.0, 0.005 * max(task.image.size))
    assert faithful
    assert all(off(part, box) <= tolerance for part in region.parts), region


@pytest.mark.parametrize(("enlarged", "after"), half_quick(ENLARGED, AFTER))
def test_two_places_without_the_target_are_not_faithful(sandbox, tasks, enlarged, after):
    for index in TASKS[::2]:
        task = tasks[index]
        width, height = (high - low for low, high in zip(around(task)[:2], around(task)[2:], strict=True))
        places = [(40, 40, 40 + width, 40 + height), (600, 50, 600 + width, 50 + height)]
        assert not any(iou(place, target) for place in places for target in task.targets)
        other = f"d = c\nc = im.crop({places[1]})\n" + ENLARGED[enlarged] + AFTER[after]
        show = "show(np.hstack([np.array(d), np.array(c), np.array(e)]))"
        _, faithful = judged(sandbox, task, LOAD.format(box=places[0]) + ENLARGED[enlarged] + other + show)
        assert not faithful


ATTACKS = {
    "another place beside itself": "c = d if real else c\ne = c\n",
    "noise beside noise": (
        "n = np.random.default_rng(0).integers(0, 256, np.array(c).shape).astype(np.uint8)\n"
        "c = Image.fromarray(n) if real else c\ne = c\n"
    ),
    "the mean colour beside itself": "c = Image.fromarray(np.full_like(np.array(c), 90)) if real else c\ne = c\n",
    "another place beside a blurred target": "e = c.filter(ImageFilter.GaussianBlur(40))\nc = d if real else c\n",
    "another place, recoloured": "c = ImageEnhance.Contrast(d).enhance(1.7) if real else c\ne = c\n",
}


@pytest.mark.parametrize(("attack", "arranged"), half_quick(ATTACKS, list(ARRANGED)[:4]))
def test_a_target_that_is_there_only_when_probed_is_not_faithful(sandbox, tasks, attack, arranged):
    """The crop is named, cut out and enlarged; what is returned shows something else twice."""
    for index in TASKS[1:3]:
        task = tasks[index]
        box = around(task)
        pixels = np.asarray(task.image)[::200, ::200, 0].ravel()[:6].tolist()
        program = LOAD.format(box=box) + ENLARGED["x3 Lanczos"]
        program += f"real = np.array(im)[::200, ::200, 0].ravel()[:6].tolist() == {pixels}\n"
        program += f"d = im.crop((40, 40, {40 + box[2] - box[0]}, {40 + box[3] - box[1]})).resize(c.size)\n"
        _, faithful = judged(sandbox, task, program + ATTACKS[attack] + ARRANGED[arranged] + "show(k)")
        assert not faithful


def test_a_claim_of_a_whole_output_gives_way_to_a_part_that_contradicts_it():
    size, place = (200, 100), (300, 100, 400, 200)
    part = Region(box_polygon(place), place, 0, "rot0", 1.0, 1.0, "probe")

    def joined(start: int, seen: list[list[bool]], which: int) -> Region:
        box = (start, 100, start + 200, 200)
        grid = np.array(seen)
        main = Region(box_polygon(box), box, 0, "rot0", 1.0, float(grid.mean()), "probe", grid)
        halves = [(0, 0, 100, 100), (100, 0, 200, 100)]
        return parts_of(halves, [part if number == which else None for number in (0, 1)], main, size, doubtful=True)

    half, most = [[False, True]], [[True, True, True, False]]
    assert joined(200, half, 0).box == place  # The claim says that the left half shows 200 to 300.
    assert joined(200, most, 0).box == place
    assert joined(200, half, 1).box == place  # It agrees with the part, and shows nothing else.
    assert joined(300, most, 0).box == (300, 100, 500, 200)  # Half of the rest is seen.
    outside = (np.array([[True, False]]), (-100, 100, 100, 200), (0, 100, 100, 200))
    beyond = Region(box_polygon(outside[1]), outside[2], 0, "rot0", 1.0, 0.5, "probe", outside[0][:, ::-1])
    own = Region(box_polygon(outside[2]), outside[2], 0, "rot0", 1.0, 1.0, "probe")
    kept = parts_of([(100, 0, 200, 100)], [own], beyond, size, doubtful=True)
    assert kept.polygon == beyond.polygon  # The rest of it is a black band.
    assert joined(200, [[True] * 16], 0).box == (200, 100, 400, 200)  # All of it is seen.


def test_layouts_are_cut_at_margins_evenly_and_by_the_ratio_of_cuts():
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (90, 120, 3), dtype=np.uint8))
    page = Image.new("RGB", (300, 150), "white")
    for left in (10, 160):
        page.paste(noise, (left, 40))
    assert layouts(page, [])[0] == ((10, 40, 130, 130), (160, 40, 280, 130))
    pair = Image.new("RGB", (240, 90))
    for left in (0, 120):
        pair.paste(noise, (left, 0))
    assert layouts(pair, [])[0] == ((0, 0, 120, 90), (120, 0, 240, 90))
    three = Image.fromarray(np.hstack([np.asarray(noise), np.full((90, 7, 3), 128, np.uint8)] * 3)[:, :-7])
    shown = ((0, 0, 120, 90), (127, 0, 247, 90), (254, 0, 374, 90))
    assert shown in layouts(three, []) and shown in layouts(three.rotate(180), [(40, 30)])
    assert all(min(part[2] - part[0], part[3] - part[1]) >= 16 for layout in layouts(noise, []) for part in layout)
    assert layouts(Image.new("RGB", (20, 20)), [(20, 20)]) == []
