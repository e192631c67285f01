"""A crop that nobody can read shows nothing, or next to no detail, although a program could take that back."""

from __future__ import annotations

import numpy as np
import pytest
import skimage.data
from fake_session import FakeSession
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from codev_env.judges.evidence import showing
from codev_env.provenance import Tracker, detail
from codev_env.provenance.detail import Patch
from codev_env.types import Region

PHOTO = Image.fromarray(skimage.data.astronaut())
FACE = (175, 55, 275, 165)
START = f"""
c = Image.open("input.png").crop({FACE})
a, g = np.asarray(c).astype(int), np.asarray(c.convert("L")).astype(int)
rng = np.random.default_rng(1)
table = rng.permutation(256)
scattered = Image.fromarray(table[g].astype(np.uint8))
noise = Image.fromarray(rng.integers(0, 256, a.shape).astype(np.uint8))
large = Image.fromarray(rng.integers(0, 256, (28, 25, 3)).astype(np.uint8)).resize(c.size, 0)
"""
SCATTERED = {
    "lowest bit": "(g & 1) * 255",
    "two lowest bits": "(a & 3) * 64",
    "product": "a * 37 % 256",
    "product of grey": "g * 97 % 256",
    "permuted": "table[a]",
    "permuted grey": "table[g]",
    "waves": "127 + 127 * np.sin(a * 9.0)",
    "permuted, repeated": "table[a].repeat(2, 0).repeat(2, 1)",
    "permuted, enlarged": "scattered.resize((300, 330))",
    "permuted, enlarged in pixels": "scattered.resize((300, 330), 0)",
    "permuted, blurred": "scattered.filter(ImageFilter.GaussianBlur(1))",
    "under noise": "np.clip(a + rng.integers(-255, 256, a.shape), 0, 255)",
    "blended with noise": "Image.blend(c, noise, 0.8)",
    "blended with large noise": "Image.blend(c, large, 0.75)",
    "encrypted": "a ^ rng.integers(0, 256, a.shape)",
}
LEGIBLE = {
    "inverted": "255 - a",
    "one bit inverted": "a ^ 0x40",
    "dark": "a // 8",
    "wrapped once": "a * 2 % 256",
    "highest bit": "(a & 128)",
    "sensor noise": "np.clip(a + rng.normal(0, 25, a.shape), 0, 255)",
    "half a blend": "Image.blend(c, noise, 0.3)",
    "slopes across": "np.clip(np.abs(np.gradient(g.astype(float), axis=1)) * 4, 0, 255)",
    "emboss": "c.filter(ImageFilter.EMBOSS)",
}


def shown(image: Image.Image, start: str, output: str) -> Region:
    program = f"{start}\no = {output}\nshow(o if isinstance(o, Image.Image) else Image.fromarray(o.astype(np.uint8)))"
    session = FakeSession({"input.png": image})
    execution = session.run(program)
    assert execution.error is None, execution.error
    (region,) = Tracker(session, {"input.png": image}).trace(program, execution)
    return region


@pytest.mark.parametrize("name", SCATTERED)
def test_a_crop_in_scattered_colours_is_not_placed(name):
    assert shown(PHOTO, START, SCATTERED[name]).polygon is None


@pytest.mark.parametrize("name", LEGIBLE)
def test_a_crop_that_can_still_be_read_is(name):
    region = shown(PHOTO, START, LEGIBLE[name])
    assert region.box is not None and np.abs(np.subtract(region.box, FACE)).max() <= 2, region


def test_chance_makes_no_likeness_of_a_few_pixels():
    found = []
    for side in (12, 14, 16):
        for seed in range(6):
            box = (195 + 9 * seed, 110 + 5 * seed, 195 + 9 * seed + side, 110 + 5 * seed + side)
            start = (
                f'a = np.asarray(Image.open("input.png").crop({box})).astype(int)\nrng = np.random.default_rng({seed})'
            )
            found += [shown(PHOTO, start, f"a {sign} rng.integers(0, 256, a.shape)").polygon for sign in "^+"]
    assert not any(found)


NARROW = """
c = Image.open("input.png").crop((195, 85, 233, 145))
w, h = c.size
"""
ENLARGED = f"""
c = Image.open("input.png").crop({FACE})
c = c.resize((4 * c.width, 4 * c.height))
a, w, h = np.asarray(c), c.width, c.height
rng = np.random.default_rng(1)
y, x = np.mgrid[:h, :w]
"""
LOST = {
    "pixels of a narrow crop": (NARROW, "c.resize((w // 4, h // 4)).resize((w, h), 0)"),
    "a narrow crop blurred": (NARROW, "c.filter(ImageFilter.GaussianBlur(3))"),
    "behind frosted glass": (
        ENLARGED,
        "a[(y + rng.integers(-24, 25, (h, w))).clip(0, h - 1), (x + rng.integers(-24, 25, (h, w))).clip(0, w - 1)]",
    ),
    "blurred after it was enlarged": (ENLARGED, "c.filter(ImageFilter.GaussianBlur(16))"),
}


@pytest.mark.parametrize("name", LOST)
def test_detail_is_lost_in_narrow_and_in_enlarged_crops(name):
    region = shown(PHOTO, *LOST[name])
    assert region.scale is None or region.scale < 0.5, region


@pytest.mark.parametrize(
    "output", ["c.resize((4 * w, 4 * h)).filter(ImageFilter.SHARPEN)", "c.convert('L').resize((3 * w, 3 * h))"]
)
def test_detail_is_left_in_a_narrow_crop(output):
    assert shown(PHOTO, NARROW, output).scale >= 0.9


@pytest.mark.parametrize(("name", "share"), [("brick", 50), ("brick", 95), ("moon", 20), ("moon", 50), ("camera", 20)])
def test_a_threshold_takes_no_detail_and_a_blur_of_it_does(name, share):
    image = Image.fromarray(getattr(skimage.data, name)()).crop((60, 60, 156, 156))
    level = np.percentile(np.asarray(image), share)
    threshold = image.point(lambda brightness: 255 * (brightness > level))

    def kept(output: Image.Image) -> float:
        patch = Patch((0.0, 0.0, 96.0, 96.0), np.asarray(output, np.float32), np.ones((3, 3), bool))
        return detail.kept(np.eye(2, 3), image, [patch])

    assert kept(threshold) >= 0.9
    assert kept(threshold.filter(ImageFilter.GaussianBlur(3))) < 0.5


CUP = Image.fromarray(skimage.data.coffee())
RIM = 'c = Image.open("input.png").crop((233, 46, 376, 163))'


@pytest.mark.parametrize("by", [60, 80])
def test_a_crop_whose_colours_leave_only_a_corner_is_not_placed(by):
    assert shown(CUP, RIM, f"ImageEnhance.Color(c).enhance({by})").polygon is None


@pytest.mark.parametrize("by", [2, 4])
def test_a_crop_whose_colours_are_stronger_is(by):
    region = shown(CUP, RIM, f"ImageEnhance.Color(c).enhance({by})")
    assert region.box == (233, 46, 376, 163) and region.original_share > 0.99


@pytest.mark.parametrize("output", ["np.stack([np.roll(row, rng.integers(-20, 21), 0) for row in a])"])
def test_rows_that_are_rolled_at_random_show_no_crop(output):
    box = (135, 338, 265, 442)
    start = f'a = np.asarray(Image.open("input.png").crop({box}))\nnp.random.seed(0)\nrng = np.random.default_rng(0)'
    region = shown(PHOTO, start, output)
    assert region.polygon is None or region.scale < 0.5, region


SIGN = Image.new("RGB", (400, 400), (190, 190, 200))
ImageDraw.Draw(SIGN).rectangle((170, 170, 229, 229), fill="gold", outline="black", width=2)
ImageDraw.Draw(SIGN).text((190, 184), "B8", "black", ImageFont.load_default(24), anchor="la")


@pytest.mark.parametrize("squeezed", ["(w, h // 8)", "(w // 8, h)"])
def test_detail_that_is_lost_along_one_axis_is_lost(squeezed):
    start = 'c = Image.open("input.png").crop((165, 165, 235, 235))\nw, h = c.size'
    region = shown(SIGN, start, f"c.resize({squeezed}).resize((w, h))")
    assert region.polygon is None or region.scale < 0.5, region


@pytest.mark.parametrize("size", [(96, 12), (12, 96)])
def test_a_squeeze_leaves_as_much_as_the_axis_that_lost_more(size):
    image = Image.fromarray(skimage.data.brick()).crop((60, 60, 156, 156))

    def kept(output: Image.Image) -> float | None:
        patch = Patch((0.0, 0.0, 96.0, 96.0), np.asarray(output, np.float32), np.ones((3, 3), bool))
        return detail.kept(np.eye(2, 3), image, [patch])

    left = kept(image.resize(size).resize(image.size))
    assert left is not None and left < 0.3
    assert kept(image.filter(ImageFilter.MedianFilter(3))) == 1.0


BLANKED = """
import cv2
a = np.asarray(Image.open("input.png").crop((155, 155, 245, 245)))
h, w = a.shape[:2]
y, x = np.mgrid[:h, :w]
g = np.where(((x // 8 + y // 8) % 2 == 0)[..., None], np.median(a, (0, 1)), a).astype(np.uint8)
c = Image.fromarray(g)
"""
AFTER_BLANKING = {
    "nothing": "c",
    "contrast": "ImageEnhance.Contrast(c).enhance(1.6)",
    "enlarged": "c.resize((3 * w, 3 * h), Image.LANCZOS)",
    "Otsu": "cv2.threshold(np.asarray(c.convert('L')), 0, 255, cv2.THRESH_OTSU)[1]",
}


@pytest.mark.parametrize("after", AFTER_BLANKING)
def test_a_crop_of_which_a_checkerboard_is_blanked_is_not_clear(after):
    region = shown(SIGN, BLANKED, AFTER_BLANKING[after])
    assert region.polygon is None or not showing(region, (170, 170, 230, 230), SIGN.size).clear, region


@pytest.mark.parametrize("output", ["c.filter(ImageFilter.UnsharpMask(radius=5, percent=150, threshold=0))", "grid(c)"])
def test_lines_and_clipped_colours_hide_no_print(output):
    image, box = Image.fromarray(skimage.data.text()).convert("RGB"), (0, 27, 200, 93)
    start = f"""
c = Image.open("input.png").crop({box})
def grid(c):
    c = c.resize((3 * c.width, 3 * c.height), Image.LANCZOS)
    draw = ImageDraw.Draw(c)
    for k in range(0, c.width, 60):
        draw.line((k, 0, k, c.height), "red")
        draw.line((0, k, c.width, k), "red")
    return c
"""
    region = shown(image, start, output)
    assert region.polygon is not None and showing(region, (40, 40, 160, 80), image.size).clear, region
