"""Cuts in other colours that are placed without a further run, and what is left to a probe."""

from __future__ import annotations

import numpy as np
import pytest
from geometric_programs import scene
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from test_provenance_exact import BOX, SCENE, SIZE, left_open, placed

from codev_env.provenance import Tracker
from codev_env.provenance.tables import Recoloured
from codev_env.sandbox import Sandbox
from codev_env.transforms import TRANSFORMS, orientation, transform_image
from codev_env.types import Execution

CUT = SCENE.crop(BOX)
PIXELS = np.asarray(CUT)
CHANGES = {
    "grey": CUT.convert("L"),
    "grey inverted": ImageOps.invert(CUT.convert("L")),
    "inverted": ImageOps.invert(CUT),
    "autocontrast": ImageOps.autocontrast(CUT, cutoff=1),
    "contrast": ImageEnhance.Contrast(CUT).enhance(1.3),
    "brightness": ImageEnhance.Brightness(CUT).enhance(0.6),
    "gamma": CUT.point([int(255 * (value / 255) ** 0.5) for value in range(256)] * 3),
    "mean": Image.fromarray(PIXELS.mean(2).astype(np.uint8)),
    "largest": Image.fromarray(PIXELS.max(2)),
    "white balance": Image.fromarray((PIXELS * np.array([0.9, 1.0, 0.7])).astype(np.uint8)),
    "colour map": ImageOps.colorize(CUT.convert("L"), "navy", "yellow"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_colour(change: str) -> None:
    region = placed(CHANGES[change].convert("RGB"), (SIZE, BOX))
    assert (region.box, region.orientation, region.scale, region.seen) == (BOX, "rot0", 1.0, None)


@pytest.mark.parametrize("turn", TRANSFORMS)
def test_a_turned_cut_in_grey(turn: str) -> None:
    region = placed(transform_image(CUT.convert("L").convert("RGB"), turn), (SIZE, BOX))
    assert (region.box, region.orientation) == (BOX, orientation(turn))


def test_opencv_rounds_grey_in_its_own_way() -> None:
    cv2 = pytest.importorskip("cv2")
    assert placed(Image.fromarray(cv2.cvtColor(PIXELS, cv2.COLOR_RGB2GRAY)).convert("RGB"), (SIZE, BOX)).box == BOX


@pytest.mark.parametrize("shown", [(41, 30, 201, 150), (40, 28, 200, 148), (200, 150, 360, 270), (0, 0, 160, 120)])
def test_another_place_in_grey_is_never_taken_for_a_cut(shown: tuple) -> None:
    output = SCENE.crop(shown).convert("L").convert("RGB")
    assert left_open(output, (SIZE, BOX))


@pytest.mark.parametrize("fill", [(128, 128, 128), (255, 255, 255), "noise"])
def test_a_cut_that_is_painted_over_in_other_colours_is_left_open(fill: object) -> None:
    output = ImageOps.autocontrast(CUT.convert("L"), cutoff=2).convert("RGB")
    patch = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8))
    output.paste(patch if fill == "noise" else fill, (60, 40) if fill == "noise" else (60, 40, 90, 60))  # type: ignore[arg-type]
    assert not Recoloured(CUT).shows(output)
    assert left_open(output, (SIZE, BOX))


def target_on_paper() -> Image.Image:
    """Print, and a target whose colours appear nowhere else."""
    image = Image.new("RGB", SIZE, (250, 250, 250))
    draw = ImageDraw.Draw(image)
    draw.text((20, 20), "some lines of print,\nof which there are many\nall over the paper", (20, 20, 20), font_size=30)
    for x in range(100, 140):
        draw.line((x, 190, x, 230), (140 + x % 4 * 9, 150, 130))
    return image


def test_a_table_that_hides_the_target_shows_no_target() -> None:
    image, box = target_on_paper(), (10, 10, 380, 260)
    cut = image.crop(box)
    assert Recoloured(cut).shows(cut.convert("L").convert("RGB"))
    white = Image.fromarray(np.where(np.asarray(cut.convert("L")) > 100, 255, 0).astype(np.uint8)).convert("RGB")
    assert not Recoloured(cut).shows(white)
    assert left_open(white, (SIZE, box), image=image)


def test_noise_and_plain_outputs_are_no_tables() -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, PIXELS.shape, np.uint8))
    for output in (noise, Image.new("RGB", CUT.size, "red"), scene(CUT.size, 7)):
        assert not Recoloured(CUT).shows(output)
    few = noise.crop((0, 0, 40, 33))  # Most values appear once: a table would fit anything.
    assert not Recoloured(few).shows(scene((40, 33), 3))


@pytest.mark.parametrize(
    "line",
    ["convert('L')", "point(lambda p: 255 - p)", "convert('L').point(lambda p: 255 - p)", "transpose(1).convert('L')"],
)
def test_the_region_is_that_of_a_probe(line: str) -> None:
    code = f"show(image.crop({BOX}).{line})"
    with Sandbox() as made, made.session({"input.png": SCENE}) as session:
        execution = session.run(code)
        (probed,) = Tracker(session, {"input.png": SCENE}).trace(code, Execution(images=execution.images))
    region = placed(execution.images[0], *execution.cuts)
    assert (probed.box, probed.orientation) == (region.box, region.orientation)
    assert probed.scale == pytest.approx(region.scale, rel=0.1)
    assert probed.original_share == pytest.approx(region.original_share, abs=0.03)
