from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from codev_env.errors import ConfigError, JudgeError
from codev_env.geometry import iou
from codev_env.judges import GroundTruthJudge, get_judge
from codev_env.judges.evidence import showing
from codev_env.provenance.coordinates import area, box_polygon, clip
from codev_env.types import Code, Execution, Region, Step, Task

SIZE = (200, 100)
IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (100, 200, 3), dtype=np.uint8))
TARGET = (100, 50, 120, 60)
TASK = Task("t", (IMAGE,), "?", "a", targets=(TARGET, (10, 10, 20, 20)))
SINGLE = Task("t", (IMAGE,), "?", "a", targets=(TARGET,))


def region(box, **changes) -> Region:
    x1, y1, x2, y2 = box
    clipped = (max(x1, 0), max(y1, 0), min(x2, SIZE[0]), min(y2, SIZE[1]))
    values = {"orientation": "rot0", "scale": 1.0, "original_share": 1.0, "how": "probe"}
    return Region(polygon=box_polygon(box), box=clipped, **(values | changes))


def crop_step(*boxes, error=None, **changes) -> Step:
    images = tuple(IMAGE.crop(box) for box in boxes)
    regions = tuple(region(box, **changes) for box in boxes)
    return Step("", Code(""), Execution(images=images, error=error, stop="error" if error else "ok"), regions)


def judged(step, *history, task=TASK):
    return GroundTruthJudge().score(task, step, history)


def test_crop_around_a_target_is_worth_one_and_faithful():
    for box in (TARGET, (90, 45, 130, 65), (5, 5, 25, 25)):
        score = judged(crop_step(box), task=replace(TASK, targets=(TARGET if box[0] > 50 else (10, 10, 20, 20),)))
        assert (score.value, score.faithful) == (1.0, True)


def test_by_hand():
    # A = 20000, |T| = 200, t = 0.01: limit = 2 t^(2/3) = 0.092832, and 1 % more for rounding.
    score = judged(crop_step((110, 30, 150, 100)))  # half of the target, V = 0.14
    compact = 0.5 - 0.5 * math.log2(0.14 / (1.01 * 0.092832))
    assert score.value == pytest.approx(0.5 * compact * 0.75, rel=1e-3)
    assert not score.faithful
    assert "coverage 0.50" in score.why and "one of several targets" in score.why
    # A quarter of the image and more is lazy.
    for box in ((100, 50, 200, 100), (0, 0, 198, 100), (20, 0, 200, 90)):
        assert (judged(crop_step(box)).value, judged(crop_step(box)).faithful) == (0.0, False)


@pytest.mark.parametrize(
    "target, box, value",
    [
        ((0, 0, 80, 100), (0, 0, 100, 100), 1.0),  # t = 0.4: limit 1.0858, half of it 0.54
        ((0, 0, 80, 100), (0, 0, 120, 100), 0.5 - 0.5 * math.log2(0.6 / (1.01 * 1.08577))),
        ((0, 0, 80, 100), (0, 0, 140, 100), 0.5 - 0.5 * math.log2(0.7 / (1.01 * 1.08577))),
        ((0, 0, 80, 100), (0, 0, 180, 100), 0.5 - 0.5 * math.log2(0.9 / (1.01 * 1.08577))),
        ((0, 0, 150, 100), (0, 0, 160, 100), 1.0),  # t = 0.75: limit 1.651
    ],
)
def test_large_targets(target, box, value):
    view = showing(region(box), target, SIZE)
    assert view.value == pytest.approx(value, rel=1e-4) and view.clear


def test_nine_tenths_of_the_image_are_all_of_it():
    large = replace(SINGLE, targets=((0, 0, 150, 100),))
    assert judged(crop_step((0, 0, 180, 100)), task=large).faithful
    score = judged(crop_step((0, 0, 184, 100)), task=large)
    assert (score.value, score.faithful, score.any_crop) == (0.0, False, False)


def test_one_of_several_targets_is_partial_until_all_were_shown():
    first, second = crop_step((90, 45, 130, 65)), crop_step((5, 5, 25, 25))
    assert (judged(first).value, judged(first).faithful) == (0.75, True)
    assert judged(second, first).value == 1.0
    assert judged(crop_step((90, 45, 130, 65), (5, 5, 25, 25))).value == 1.0


def test_tiling_the_image_is_no_search():
    tiles = [(x, y, x + 40, y + 25) for y in range(0, 100, 25) for x in range(0, 200, 40)]  # 20 of A / 20
    hit = tiles.index((80, 50, 120, 75))
    compact = 0.5 - 0.5 * math.log2(0.05 / (1.01 * 0.092832))
    assert judged(crop_step(tiles[hit])).value == pytest.approx(0.75 * compact, rel=1e-4)
    wrong = [crop_step(tile) for tile in tiles[1:hit]]  # tiles[0] shows the other target
    # With one wrong tile 0.1 are shown, with two 0.15 = 1.6 limits.
    scores = [judged(crop_step(tiles[hit]), *wrong[:n]) for n in range(4)]
    assert [score.faithful for score in scores] == [True, True, False, False]
    assert scores[1].value > 0.7 > 0.3 > scores[2].value > scores[3].value == 0.0
    assert "search" in scores[3].why and all(score.any_crop for score in scores)
    assert judged(crop_step(*tiles)).value == 0.0
    # Zooming in over large crops is: they are no tiles.
    zoom = judged(crop_step((90, 45, 130, 65)), crop_step((0, 0, 110, 100)), crop_step((60, 0, 200, 100)))
    assert (zoom.value, zoom.faithful) == (0.75, True)


def test_a_target_that_is_painted_over_is_not_shown():
    box = (90, 40, 130, 80)  # one point of `seen` per 4 x 4 pixels; the target lies at columns 2..7, rows 2..5
    compact = 0.5 - 0.5 * math.log2(0.08 / (1.01 * 0.092832))
    seen = np.ones((10, 10), bool)
    seen[2:5, 2:8] = False
    assert judged(crop_step(box, seen=seen, original_share=0.8)).value == pytest.approx(0.0, abs=0.01)
    seen = np.ones((10, 10), bool)
    seen[:2], seen[6:] = False, False
    assert judged(crop_step(box, seen=seen, original_share=0.5)).value == pytest.approx(0.75 * compact, rel=1e-4)
    seen = np.ones((10, 10), bool)
    seen[:, :5] = False
    turned = region(box, seen=np.rot90(seen), orientation="rot90")
    turned = replace(turned, polygon=(*turned.polygon[1:], turned.polygon[0]))
    image = IMAGE.crop(box).rotate(90, expand=True)
    score = judged(Step("", Code(""), Execution(images=(image,)), (turned,)))
    assert score.value == pytest.approx(
        0.5 * compact * 0.75 * 0.5, rel=1e-4
    )  # half of the target, one of two, turned the wrong way


def whole_step(*orientations) -> Step:
    images = tuple(IMAGE.rotate(180) for _ in orientations)
    return Step(
        "", Code(""), Execution(images=images), tuple(region((0, 0, *SIZE), orientation=o) for o in orientations)
    )


def test_turning_a_turned_task_upright():
    turned = Task("t", (IMAGE,), "?", "a", targets=(TARGET,), transform=("crop", "rotate_90"))
    right, wrong = whole_step("rot270"), whole_step("rot90")
    assert (judged(right, task=turned).value, judged(right, task=turned).faithful) == (0.5, False)
    assert judged(right, right, task=turned).value == 0.0
    assert judged(wrong, task=turned).value == -0.25
    assert judged(right, wrong, task=turned).value == 0.0
    assert judged(whole_step("rot270", "rot90", "rot180"), task=turned).value == pytest.approx(-0.5 / 3)
    upright = crop_step((90, 45, 130, 65), orientation="rot270")
    assert judged(upright, right, task=turned).value == 1.0
    assert judged(crop_step((90, 45, 130, 65)), task=turned).value == 0.75
    assert judged(crop_step((90, 45, 130, 65), orientation="flip_h"), task=turned).value == 0.5


def test_turning_an_upright_task_does_not_pay():
    assert judged(whole_step("rot180")).value == -0.25
    assert judged(whole_step(None)).value == 0.0
    assert judged(crop_step((90, 45, 130, 65), orientation="rot180")).value == pytest.approx(0.75 * 0.5)


def test_wrong_crop_and_no_image_and_text_are_worth_nothing():
    assert judged(crop_step((150, 0, 190, 40))).value == 0.0
    score = judged(Step("", Code(""), Execution(stdout="3"), ()))
    assert (score.value, score.faithful) == (0.0, False)


def test_spraying_crops_does_not_pay():
    spray = judged(crop_step((90, 45, 130, 65), (150, 0, 190, 40), (160, 0, 190, 40), (170, 0, 190, 40)))
    assert spray.value == pytest.approx(0.75 / 4) and not spray.faithful
    assert judged(crop_step((90, 45, 130, 65), (150, 0, 190, 40))).faithful
    assert judged(crop_step((90, 45, 130, 65), (90, 45, 130, 65)), task=SINGLE).value == 1.0


def test_red_lines():
    outside = crop_step((150, 50, 250, 100), original_share=0.5)
    assert (judged(outside).value, judged(outside).why) == (
        -0.5,
        "invalid coordinates: reaches out of the image",
    )
    assert judged(crop_step((0, 0, *SIZE))).value == -0.5
    good = crop_step((90, 45, 130, 65))
    assert judged(good, good).value == -0.5
    assert judged(good, crop_step((150, 0, 190, 40)), task=SINGLE).value == 1.0
    assert judged(crop_step((90, 45, 130, 65), error="NameError")).value == -0.5
    black = Step("", Code(""), Execution(images=(Image.new("RGB", (9, 9)),)), (Region(how="probe"),))
    assert judged(black).value == -0.5


def test_a_little_over_the_edge_and_a_tilted_frame_are_no_red_line():
    assert judged(crop_step((5, -1, 25, 25), original_share=0.96)).value > 0.6
    assert judged(crop_step((5, -9, 25, 25), original_share=0.7, orientation=None)).value > 0


def test_enlarging_or_enhancing_what_was_seen_is_no_repeat():
    first = crop_step((90, 45, 130, 65))
    crop = first.execution.images[0]
    larger = Step("", Code(""), Execution(images=(crop.resize((120, 60)),)), (region((90, 45, 130, 65), scale=3.0),))
    assert judged(larger, first, task=SINGLE).value == 1.0
    brighter = Step("", Code(""), Execution(images=(crop.point(lambda v: v // 2),)), (region((90, 45, 130, 65)),))
    assert judged(brighter, first, task=SINGLE).value == 1.0


def test_shrunken_images_and_stamps_show_less():
    score = judged(crop_step((90, 45, 130, 65), scale=0.25), task=SINGLE)
    assert score.value == pytest.approx(0.25) and not score.faithful
    stamp = Image.new("RGB", (200, 100))
    stamp.paste(IMAGE.crop((90, 45, 130, 65)), (20, 20))
    stamped = Step("", Code(""), Execution(images=(stamp,)), (region((90, 45, 130, 65), original_share=0.04),))
    score = judged(stamped, task=SINGLE)
    assert score.value == pytest.approx(0.4) and not score.faithful
    framed = Image.new("RGB", (50, 40), "white")
    framed.paste(IMAGE.crop((90, 45, 130, 65)), (5, 10))
    step = Step("", Code(""), Execution(images=(framed,)), (region((90, 45, 130, 65), original_share=0.4),))
    assert judged(step, task=SINGLE).value == 1.0


def test_unknown_origin_and_drawings_earn_nothing():
    picture = Execution(images=(IMAGE,))
    for found in (Region(), Region(how="probe")):
        score = judged(Step("", Code(""), picture, (found,)))
        assert (score.value, score.faithful) == (0.0, False)


def test_what_there_was_no_time_to_follow_is_a_failure_of_the_judge():
    picture = Execution(images=(IMAGE, IMAGE))
    score = judged(Step("", Code(""), picture, (Region(how="probe"), Region(how="late"))))
    assert (score.value, score.faithful, score.failed) == (None, False, True)
    assert "overloaded" in score.why


@given(st.tuples(*[st.integers(-20, 220)] * 4))
def test_values_stay_in_range_and_faithful_is_worth_something(corners):
    x1, x2 = sorted(corners[:2])
    y1, y2 = sorted(corners[2:])
    if x1 == x2 or y1 == y2 or x2 <= 0 or y2 <= 0 or x1 >= SIZE[0] or y1 >= SIZE[1]:
        return
    score = judged(crop_step((x1, y1, x2, y2)))
    assert -0.5 <= score.value <= 1.0
    assert score.value >= 0.25 * 0.75 or not score.faithful


@given(st.floats(0, math.tau), st.floats(20, 200), st.floats(20, 200), st.integers(0, 80), st.integers(0, 80))
@example(0.9441868456, 53.8, 53.8, 37, 30)
def test_no_rounding_makes_a_target_more_than_covered(angle, width, height, left, top):
    """A frame at any angle around a target covers all of it at most; a value above 1 would end a run."""
    target = (left, top, left + 28, top + 15)
    centre = np.array([left + 14.3, top + 7.1])
    turned = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    corners = np.array([[-width, -height], [width, -height], [width, height], [-width, height]]) @ turned.T + centre
    polygon = tuple(map(tuple, corners.tolist()))
    region = Region(polygon=polygon, box=target, scale=1.0, original_share=1.0)
    found = showing(region, target, (400, 300))
    assert 0 <= found.coverage <= 1 and 0 <= found.value <= 1


def test_get_judge():
    assert get_judge("ground_truth").name == "ground_truth"
    mine = GroundTruthJudge()
    assert get_judge(mine) is mine
    with pytest.raises(ConfigError, match="Did you mean 'ground_truth'"):
        get_judge("groundtruth")
    with pytest.raises(ConfigError, match="int"):
        get_judge(3)  # type: ignore[arg-type]


def test_tasks_without_targets():
    bare = Task("bare", (IMAGE,), "?", "a")
    step = crop_step(TARGET)
    with pytest.raises(JudgeError, match="bare"):
        judged(step, task=bare)
    assert get_judge("none").score(bare, step, ()).value is None
    auto = get_judge("auto")
    assert auto.score(SINGLE, step, ()).value == 1.0
    with pytest.warns(RuntimeWarning, match="no target boxes"):
        assert auto.score(bare, step, ()).value is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auto.score(bare, step, ())


def test_geometry():
    square = box_polygon((0, 0, 10, 10))
    assert area(square) == 100
    assert area(clip(square, (5, 5, 20, 20))) == 25
    assert clip(square, (20, 20, 30, 30)) == ()
    diamond = ((5.0, -5.0), (15.0, 5.0), (5.0, 15.0), (-5.0, 5.0))
    assert area(clip(diamond, (0, 0, 10, 10))) == 100
    assert iou((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
