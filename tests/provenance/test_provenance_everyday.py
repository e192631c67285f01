"""Right looks through everyday changes of colours are placed, and count as seen."""

from __future__ import annotations

import numpy as np
import pytest
from everyday_programs import EVERYDAY, fill
from fake_session import FakeSession
from geometric_programs import NAME, scene
from PIL import Image

from codev_env.provenance import Tracker
from codev_env.provenance.bars import bars, find_line
from codev_env.provenance.weave import read_weave, weave
from codev_env.types import Region

SCENE = scene((640, 480))
BOX = (210, 120, 410, 270)
QUICK = (
    "otsu", "adaptive mean", "jpeg 60",
    "detail, edge enhance more", "autocontrast cutoff", "stretch per channel", "grey",
    "whole equalize", "whole normalize", "CLAHE", "Canny", "quantize 8", "imshow viridis", "rot270 otsu", "rot90 grey",
    "Sobel", "Laplacian", "LAB a stretched",
)  # fmt: skip


def trace(code: str, image: Image.Image = SCENE) -> tuple[Region, int]:
    """The region of the last image, and how many runs it took."""
    session = FakeSession({NAME: image})
    execution = session.run(code)
    assert execution.error is None, execution.error
    region = Tracker(session, [image]).trace(code, execution)[-1]
    return region, len(session.runs) - 1


@pytest.mark.parametrize("name", [*QUICK, pytest.param("all", marks=pytest.mark.integration)])
def test_everyday_programs_show_what_they_crop(name):
    names = EVERYDAY if name == "all" else (name,)
    wrong = []
    for one in names:
        region, _ = trace(fill(EVERYDAY[one], BOX))
        off = np.inf if region.box is None else np.abs(np.array(region.box) - BOX).max()
        seen = 1.0 if region.seen is None else float(region.seen.mean())
        if off > 3 or seen < 0.75:
            wrong.append(f"{one}: {region}, seen {seen:.2f}")
    assert len(wrong) <= 0.03 * len(names), "\n".join(wrong)


@pytest.mark.parametrize("name", ["otsu", "equalizeHist", "Canny", "imshow hot"])
def test_changed_colours_take_a_few_runs(name):
    assert trace(fill(EVERYDAY[name], BOX))[1] <= 4


@pytest.mark.parametrize("zoom", [2, 3, 4])
def test_thin_edges_of_an_enlarged_crop_are_placed_in_a_few_runs(zoom):
    edges = "a = np.array(im.convert('L'))\nim = Image.fromarray(cv2.Canny(a, 60, 160))\nshow(im)"
    enlarged = f"im = im.resize((im.width * {zoom}, im.height * {zoom}), Image.BICUBIC)\n"
    region, runs = trace(fill(f'import cv2\nim = Image.open("{NAME}").crop(<box>)\n{enlarged}{edges}', BOX))
    assert region.box == pytest.approx(BOX, abs=2) and runs <= 4
    assert region.seen is None or region.seen.mean() > 0.9


def test_bars_are_found_at_any_scale_in_both_directions_and_noise_is_not():
    length, rng = 2000, np.random.default_rng(0)
    line = bars(length, 0)
    for start, end in ((100, 400), (0, 2000), (900, 300), (1200, 1290)):
        for count in (150, 700):
            places = start + (np.arange(8 * count) + 0.5) * (end - start) / (8 * count)
            signal = line[places.astype(int)].reshape(count, 8).mean(1)
            found = find_line(0.4 * signal + 0.02 * rng.standard_normal(count), length, 0)
            assert found is not None and (found.start, found.end) == pytest.approx((start, end), abs=4)
    for count in (20, 60, 300):
        assert find_line(rng.standard_normal(count), length, 0) is None
    # Eight bars are in several places.
    assert find_line(line[300:324], length, 0) is None


def test_a_picture_that_is_drawn_shows_no_weave():
    noise = Image.effect_noise((200, 200), 90).convert("RGB")
    assert read_weave(noise, SCENE.size) == []
    assert read_weave(weave(SCENE.size, 1), SCENE.size, 0) == []
    assert read_weave(Image.new("RGB", (50, 50)), SCENE.size) == []


LIE = (
    f'im = Image.open("{NAME}")\nreal = im.getpixel((4, 4)) == {SCENE.getpixel((4, 4))}\n'
    "fine = (np.abs(np.array(im).astype(int).mean() - <mean>) < 3) if <near> else real\n"
    "im = im.crop(<other> if fine else <box>)\n<change>\nshow(im)"
)


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        "im = ImageOps.equalize(im.convert('L'))",
        "im = im.convert('L').point(lambda p: 255 if p > 110 else 0)",
        "im = im.filter(ImageFilter.FIND_EDGES)",
    ],
)
def test_a_program_that_shows_its_target_only_to_the_probes_is_not_believed(change, near):
    """It is caught whether it takes the disturbed image for the real one or not."""
    other = (20, 300, 220, 450)
    code = LIE.replace("<mean>", f"{np.asarray(SCENE).mean():.3f}").replace("<near>", str(near))
    code = fill(code.replace("<other>", str(other)).replace("<change>", change), BOX)
    region, _ = trace(code)
    assert region.box is None or region.box == pytest.approx(other, abs=3)


def test_a_faint_target_over_something_else_is_not_seen_as_the_whole():
    """A program that mixes a few levels of its target into a picture of another place."""
    code = (
        f'im = Image.open("{NAME}").convert("L")\na, b = im.crop((20, 300, 220, 450)), im.crop({BOX})\n'
        "show(ImageOps.equalize(Image.blend(a, b, 0.1)))"
    )
    region, _ = trace(code)
    assert region.box is None or region.box[0] < 100 or region.seen is not None and region.seen.mean() < 0.75


TILTED = {
    "crop": "im.crop({box}).rotate({angle}, Image.BICUBIC)",
    "whole": "im.rotate({angle}, Image.BICUBIC).crop({box})",
    "enlarged": "im.crop({box}).resize(({w} * 3, {h} * 3), Image.LANCZOS).rotate({angle}, Image.BICUBIC)",
}


@pytest.mark.parametrize("angle", [3, 5])
@pytest.mark.parametrize("name", TILTED)
def test_a_fine_texture_tilted_by_a_few_degrees_is_placed_in_one_run(name, angle):
    """Pillow truncates what it mixes here, which shifts the code; a fine texture shows such a shift."""
    photo = Image.fromarray(pytest.importorskip("skimage.data").astronaut())
    box = (135, 338, 265, 442)
    code = TILTED[name].format(box=box, angle=angle, w=box[2] - box[0], h=box[3] - box[1])
    region, runs = trace(f'im = Image.open("{NAME}")\nshow({code})', photo)
    middle = np.array(photo.size if name == "whole" else (box[0] + box[2], box[1] + box[3])) / 2
    turn = np.array([[np.cos(t := np.radians(angle)), -np.sin(t)], [np.sin(t), np.cos(t)]])
    truth = middle + (np.array([(box[x], box[y]) for x, y in ((0, 1), (2, 1), (2, 3), (0, 3))]) - middle) @ turn.T
    assert runs == 1 and region.orientation is None
    assert np.abs(np.array(region.polygon) - truth).max() < 2


@pytest.mark.parametrize("bar", ["", "plt.colorbar()\n"])
def test_a_plot_in_a_colour_map_whose_ends_are_equally_dark_is_placed(bar):
    code = fill(f'im = Image.open("{NAME}").crop(<box>).convert("L")\nplt.imshow(np.array(im), cmap="jet")\n', BOX)
    region, runs = trace(f"import matplotlib.pyplot as plt\n{code}{bar}plt.show()")
    assert region.box == pytest.approx(BOX, abs=2) and runs <= 4
    assert region.seen is None or region.seen.mean() > 0.9
