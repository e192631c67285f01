"""A place of a crop that a program highlights is seen; one that it scatters, so that nobody can read it, is not."""

from __future__ import annotations

import numpy as np
import pytest
import skimage.data
from fake_session import FakeSession
from PIL import Image

from codev_env.judges.evidence import showing
from codev_env.provenance import Tracker
from codev_env.provenance.legibility import illegible
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
