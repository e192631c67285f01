"""Crops of a line of print, which are too narrow for the weave, and enlarged crops in other colours."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from test_provenance_exact import left_open, placed

from codev_env.provenance import exact

SIZE, BOX = (420, 315), (30, 40, 140, 66)


def page() -> Image.Image:
    """Lines of print on paper that is not even."""
    noise = np.random.default_rng(0).integers(0, 8, (SIZE[1], SIZE[0], 1))
    image = Image.fromarray((np.array([238, 234, 226]) + noise).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(("orchard temple", "a jar of copper", "river and meadow", "eight quiet lamps")):
        draw.text((32, 42 + 30 * number), line, (60, 58, 70), font_size=18)
    return image


PAGE = page()
CUT = PAGE.crop(BOX)
CHANGES = {
    "autocontrast": ImageOps.autocontrast(CUT),
    "contrast": ImageEnhance.Contrast(CUT).enhance(2.5),
    "brightness": ImageEnhance.Brightness(CUT).enhance(1.4),
    "grey equalized": ImageOps.equalize(CUT.convert("L")),
    "inverted": ImageOps.invert(CUT),
    "threshold": CUT.convert("L").point(lambda level: 255 if level > 140 else 0),
}
ZOOMED = {
    "contrast": ImageEnhance.Contrast(CUT.resize((330, 78), Image.Resampling.LANCZOS)).enhance(2),
    "grey": ImageOps.autocontrast(CUT.convert("L").resize((440, 104))),
    "threshold": CUT.convert("L").resize((220, 52)).point(lambda level: 255 if level > 140 else 0),
    "nearest": ImageOps.invert(CUT.resize((220, 52), Image.Resampling.NEAREST)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_line_of_print_in_other_colours(change: str) -> None:
    region = placed(CHANGES[change].convert("RGB"), (SIZE, BOX), image=PAGE)
    assert (region.box, region.orientation, region.scale, region.seen) == (BOX, "rot0", 1.0, None)


@pytest.mark.parametrize("change", ZOOMED)
def test_an_enlarged_cut_in_other_colours(change: str) -> None:
    output = ZOOMED[change].convert("RGB")
    region = placed(output, (SIZE, BOX), image=PAGE)
    assert (region.box, region.orientation, region.seen) == (BOX, "rot0", None)
    assert region.scale == pytest.approx(output.width / CUT.width)


@pytest.mark.parametrize("change", ZOOMED)
def test_a_few_rows_tell_another_place(change: str, monkeypatch) -> None:
    def never(*_given: object) -> None:
        raise AssertionError("all of the output was compared")

    monkeypatch.setattr(exact, "Recoloured", never)
    assert left_open(ZOOMED[change].convert("RGB"), (SIZE, (30, 70, 140, 96)), image=PAGE)


@pytest.mark.parametrize("zoom", [1, 3])
@pytest.mark.parametrize("shown", [(31, 40, 141, 66), (30, 70, 140, 96), (60, 40, 170, 66), (30, 130, 140, 156)])
def test_another_line_is_never_taken_for_a_cut(shown: tuple[int, int, int, int], zoom: int) -> None:
    for changed in (
        ImageOps.autocontrast(PAGE.crop(shown)),
        PAGE.crop(shown).convert("L").point(lambda p: 255 * (p > 140)),
    ):
        output = changed.convert("RGB").resize((110 * zoom, 26 * zoom))
        assert left_open(output, (SIZE, BOX), image=PAGE)


@pytest.mark.parametrize("zoom", [1, 3])
@pytest.mark.parametrize("level", [40, 100])
def test_a_word_that_a_threshold_or_paint_hides_is_left_open(zoom: int, level: int) -> None:
    cut = CUT.copy()
    cut.paste(PAGE.crop((300, 40, 335, 66)), (75, 0))  # Paper, and a word that is fainter than the rest of the line.
    ImageDraw.Draw(cut).text((80, 2), "in", (130, 130, 130), font_size=18)
    image = PAGE.copy()
    image.paste(cut, BOX[:2])
    grey = cut.convert("L").resize((110 * zoom, 26 * zoom))
    assert left_open(grey.point(lambda p: 255 * (p > level)).convert("RGB"), (SIZE, BOX), image=image)
    assert not left_open(grey.point(lambda p: 255 * (p > 170)).convert("RGB"), (SIZE, BOX), image=image)
    painted = ImageOps.autocontrast(grey).convert("RGB")
    painted.paste((250, 250, 250), (10 * zoom, 4 * zoom, 40 * zoom, 22 * zoom))
    assert left_open(painted, (SIZE, BOX), image=image)
