"""A place of a crop that a program highlights or frames is seen; one that it scatters or wipes is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import skimage.data
from fake_session import FakeSession
from PIL import Image, ImageDraw, ImageFont

from codev_env.judges.evidence import showing
from codev_env.provenance import Tracker
from codev_env.provenance.legibility import blank, illegible
from codev_env.provenance.regions import make_region, united

PHOTOS = {
    "badge": (Image.fromarray(skimage.data.astronaut()), (278, 338, 330, 378)),
    "spoon": (Image.fromarray(skimage.data.coffee()), (325, 242, 408, 328)),
    "headlight": (Image.fromarray(skimage.data.stereo_motorcycle()[0]), (508, 122, 564, 188)),
}
START = """
c = Image.open("input.png").crop({crop})
w, h = c.size
x1, y1, x2, y2 = {place}
a = np.array(c)
t = a[y1:y2, x1:x2]
rng = np.random.default_rng(0)
def tinted(by):
    over = a.copy()
    over[y1:y2, x1:x2] = 0, 255, 255
    a[:] = cv2.addWeighted(over, by, a, 1 - by, 0)
def enhanced(by):
    part = c.crop((x1, y1, x2, y2))
    a[y1:y2, x1:x2] = ImageEnhance.Contrast(ImageEnhance.Brightness(part).enhance(1.3)).enhance(by)
"""
HIGHLIGHTS = {"tinted": "tinted(0.3)", "faintly": "tinted(0.1)", "enhanced": "enhanced(1.6)"}
SCATTERS = {
    "overflow": "t[:] = t * 37",
    "lowest bits": "t[:] = (t & 3) * 85",
    "permuted": "t[:] = rng.permutation(256)[t]",
}
AFTER = {
    "nothing": "",
    "enlarged": "c = c.resize((3 * w, 3 * h), Image.LANCZOS)",
    "in pixels": "c = c.resize((3 * w, 3 * h), 0)",
}


def coverage(photo: str, margin: int, change: str, after: str) -> float:
    image, target = PHOTOS[photo]
    left, top, right, bottom = target
    crop = max(0, left - margin), max(0, top - margin), min(image.width, right + margin), bottom + margin
    place = left - crop[0], top - crop[1], right - crop[0], bottom - crop[1]
    start = START.format(crop=crop, place=place)
    program = "\n".join([start, change, "c = Image.fromarray(a)", after, "show(c)"])
    return traced_coverage(image, target, program)


def traced_coverage(image: Image.Image, target: tuple[int, int, int, int], program: str) -> float:
    session = FakeSession({"input.png": image})
    execution = session.run(program)
    assert execution.error is None, execution.error
    (region,) = Tracker(session, {"input.png": image}, secret=7).trace(program, execution)
    return 0.0 if region.polygon is None else showing(region, target, image.size).coverage


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("change", HIGHLIGHTS)
@pytest.mark.parametrize(("photo", "margin"), [("badge", 18), ("spoon", 90), ("headlight", 20)])
def test_a_target_that_is_highlighted_is_seen(photo, margin, change, after):
    assert coverage(photo, margin, HIGHLIGHTS[change], AFTER[after]) >= 0.75


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("change", SCATTERS)
@pytest.mark.parametrize(("photo", "margin"), [("badge", 18), ("spoon", 20), ("headlight", 90)])
def test_a_target_that_is_scattered_is_not_seen(photo, margin, change, after):
    assert coverage(photo, margin, SCATTERS[change], AFTER[after]) < 0.5


FRAMES = {
    "frame": "ImageDraw.Draw(c).rectangle((x1, y1, x2, y2), outline='red', width=3)\na = np.array(c)",
    "OpenCV": "cv2.rectangle(a, (x1, y1), (x2, y2), (255, 0, 0), 2)",
    "ellipse": "ImageDraw.Draw(c).ellipse((x1, y1, x2, y2), outline='red', width=3)\na = np.array(c)",
    "arrow": "cv2.arrowedLine(a, (x1 - 12, y1 - 12), (x1 + 6, y1 + 6), (255, 0, 0), 2)",
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("change", FRAMES)
@pytest.mark.parametrize(("photo", "margin"), [("badge", 18), ("spoon", 30), ("headlight", 20)])
def test_a_target_in_a_frame_is_seen_as_it_would_be_without(photo, margin, change, after):
    assert coverage(photo, margin, FRAMES[change], AFTER[after]) >= 0.95


@pytest.mark.parametrize(
    ("hidden", "coverage"),
    [
        (np.s_[:0], 1.0),
        (np.s_[3:5], 1.0),
        (np.s_[:8], 0.5),
        (np.s_[:, 4:], 0.25),
        (np.s_[3:13, 3:13], 1 - 100 / 256),
        (np.s_[:], 0.0),
    ],
)
def test_lines_over_a_target_hide_nothing_and_patches_what_they_cover(hidden, coverage):
    seen = np.ones((32, 32), bool)
    seen[8:24, 8:24][hidden] = False
    region = make_region(np.array([[1.0, 0, 12], [0, 1, 12]]), (0, 0, 32, 32), (90, 90), 0, 1.0, seen=seen)
    assert showing(region, (20, 20, 36, 36), (90, 90)).coverage == pytest.approx(coverage, abs=0.02)


AFTER_OR_TURNED = AFTER | {"turned": "c = c.rotate(20, Image.BICUBIC, expand=True)"}
PRINTED = (300, 100, 360, 124)
WIPES = {
    "threshold": (60, "c = c.convert('L').point(lambda v: 255 * (v > 128))"),
    "Otsu": (15, "c = Image.fromarray(cv2.threshold(np.array(c.convert('L')), 0, 255, cv2.THRESH_OTSU)[1])"),
    "brighter": (15, "c = ImageEnhance.Brightness(c).enhance(1.6)"),
    "brighter, light print": (-15, "c = ImageEnhance.Brightness(c).enhance(1.3)"),
    "Canny": (15, "c = Image.fromarray(cv2.Canny(np.array(c.convert('L')), 100, 200))"),
    "few colours": (-15, "c = ImageOps.posterize(c, 2)"),
}
SHOWN = {
    "as it is": (15, ""),
    "threshold": (60, "c = c.convert('L').point(lambda v: 255 * (v > 170))"),
    "contrast": (15, "c = ImageEnhance.Contrast(c).enhance(2)"),
    "equalized": (-15, "c = ImageOps.equalize(c)"),
    "darker": (-15, "c = ImageEnhance.Brightness(c).enhance(0.5)"),
    "Canny": (60, "c = Image.fromarray(cv2.Canny(np.array(c.convert('L')), 100, 200))"),
    "adaptive": (15, "c = Image.fromarray(cv2.adaptiveThreshold(np.array(c.convert('L')), 255, 1, 0, 11, 2))"),
}


def coverage_of_print(faint: int, change: str, after: str) -> float:
    """Of light or dark print beside a bar that every change leaves."""
    noise = np.random.default_rng(1).normal(200, 2, (400, 600, 3))
    image = Image.fromarray(noise.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    draw.rectangle((60, 60, 250, 250), fill=(120, 80, 60))
    draw.ellipse((400, 200, 560, 380), fill=(60, 120, 90))
    draw.rectangle((288, 92, 372, 132), fill=(200, 200, 200))
    draw.text(PRINTED[:2], "R4K7", fill=(200 - faint,) * 3, font=ImageFont.load_default(24))
    draw.rectangle((364, 80, 374, 144), fill=(20, 20, 20))
    program = f'c = Image.open("input.png").crop((270, 70, 390, 154))\nw, h = c.size\n{change}\n{after}\nshow(c)'
    return traced_coverage(image, PRINTED, program)


@pytest.mark.parametrize("after", AFTER_OR_TURNED)
@pytest.mark.parametrize("change", WIPES)
def test_print_that_a_change_wipes_is_not_seen_for_what_stands_beside_it(change, after):
    assert coverage_of_print(*WIPES[change], AFTER_OR_TURNED[after]) < 0.4


@pytest.mark.parametrize("after", AFTER_OR_TURNED)
@pytest.mark.parametrize("change", SHOWN)
def test_print_that_a_change_keeps_is_seen(change, after):
    assert coverage_of_print(*SHOWN[change], AFTER_OR_TURNED[after]) >= 0.75


PLAIN = np.asarray(PHOTOS["badge"][0].crop((260, 320, 348, 396)), np.float32)


@pytest.mark.parametrize(
    "shown", [PLAIN, 255 - PLAIN, PLAIN / 8, np.full_like(PLAIN, 128), PLAIN.mean(-1, keepdims=True) + 0 * PLAIN]
)
def test_what_is_plain_or_in_other_colours_is_not_illegible(shown):
    assert not illegible(PLAIN, shown).any()


def test_noise_is_illegible_but_for_chance():
    noise = np.random.default_rng(0).integers(0, 256, PLAIN.shape).astype(np.float32)
    assert illegible(PLAIN, noise).mean() > 0.8


def test_places_of_two_regions_are_united_where_they_show_one_place():
    affine, bounds = np.eye(2, 3), (0, 0, 40, 20)
    upper, left = np.zeros((2, 20, 40), bool)
    upper[:10], left[:, :20] = True, True
    one, other = (make_region(affine, bounds, (90, 90), 0, 0.5, seen=seen) for seen in (upper, left))
    both = united(one, other)
    assert both.seen is not None and np.array_equal(both.seen, upper | left) and both.original_share == 0.75
    whole = united(one, make_region(affine, bounds, (90, 90), 0, 1.0))
    assert whole.seen is None and whole.original_share == 1.0
    moved = make_region(np.array([[1.0, 0, 5], [0, 1, 0]]), bounds, (90, 90), 0, 1.0)
    for unlike in (None, moved, make_region(affine, bounds, (90, 90), 1, 1.0)):
        assert united(one, unlike) is one


def test_a_place_is_blank_where_an_image_varies_and_the_output_does_not():
    image, plain = np.full((2, 40, 60, 3), 90.0, np.float32)
    image[10:30:3, 10:25], image[10:30:3, 40:50] = 120, 250
    shown = image.copy()
    shown[:, :30] = 0
    found = blank(image, shown)
    assert found[12:28, 12:23].all() and not found[:, 36:].any()
    assert not blank(image, image).any() and not blank(plain, image).any() and blank(image, plain)[12:28, 12:23].all()


@pytest.mark.parametrize(("share", "coverage"), [(0.0, 1.0), (0.5, 1.0), (0.75, 1.0), (0.875, 0.5), (1.0, 0.0)])
def test_a_target_that_is_blank_but_for_a_rest_is_covered_less(share, coverage):
    target = (20, 20, 36, 36)
    places = np.broadcast_to(np.arange(16) < 16 * share, (16, 16))
    region = replace(make_region(np.array([[1.0, 0, 20], [0, 1, 20]]), (0, 0, 16, 16), (90, 90), 0, 1.0), blank=places)
    assert showing(region, target, (90, 90)).coverage == pytest.approx(coverage)
