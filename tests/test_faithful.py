"""The definition of *faithful*: honest search at every size of target, and what blind search costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from codev_agents.scripted import expand_box
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ConfigError
from codev_env.geometry import union_area
from codev_env.judges import GroundTruthJudge, for_view, get_judge
from codev_env.judges.evidence import ModelView, limit_of, showing, shown_share
from codev_env.provenance.coordinates import box_polygon
from codev_env.tasks.scenes import GridOptions, SceneTaskSet
from codev_env.types import Box, Code, Episode, Execution, Region, Step, StepScore, Task

SIZE = (2000, 1500)
IMAGE = Image.effect_noise(SIZE, 90).convert("RGB")
SHARES = (0.0005, 0.002, 0.01, 0.03, 0.06, 0.12, 0.2, 0.3, 0.4)


def target_of(share: float, x: float = 0.5, y: float = 0.5) -> Box:
    """A box of that share of the image; (0, 0) puts it into the upper left corner."""
    w, h = (round(length * share**0.5) for length in SIZE)
    left, top = round(x * (SIZE[0] - w)), round(y * (SIZE[1] - h))
    return left, top, left + w, top + h


def task_of(*targets: Box) -> Task:
    return Task("t", (IMAGE,), "?", "a", targets=targets)


def region(box: Box, **changes) -> Region:
    return replace(Region(box_polygon(box), box, 0, "rot0", 1.0, 1.0, "probe"), **changes)


def play(task: Task, *calls: Box | tuple[Box, ...]) -> Episode:
    """An episode of crops: a box is a call, and so is a tuple of boxes."""
    episode = Episode(task)
    for call in calls:
        boxes = call if isinstance(call[0], tuple) else (call,)
        images = tuple(IMAGE.resize((40, 30), box=box) for box in boxes)
        step = Step("", Code(""), Execution(images=images), tuple(region(box) for box in boxes))
        score = GroundTruthJudge().score(task, step, tuple(episode.steps))
        episode.steps.append(replace(step, score=score))
    return episode


@pytest.mark.parametrize("place", [(0.5, 0.5), (0.0, 0.0), (0.3, 1.0), (0.1, 0.05)])
@pytest.mark.parametrize("share", SHARES)
def test_an_experts_crop_is_faithful_at_every_size(share, place):
    target = target_of(share, *place)
    for margin in (0.0, 0.1, 0.25):
        score = play(task_of(target), expand_box(target, SIZE, margin)).steps[-1].score
        assert score.faithful and score.any_crop and score.value > 0.6, score.why


def test_of_a_target_of_most_of_the_image_a_crop_must_leave_out_a_tenth():
    target = target_of(0.6)
    assert play(task_of(target), target).is_faithful
    assert play(task_of(target), target_of(0.88)).is_faithful
    for margin in (0.15, 0.25):
        assert not play(task_of(target), expand_box(target, SIZE, margin)).is_faithful


def test_a_speck_of_target_is_no_main_content():
    target = target_of(0.0002, 0.4, 0.4)
    for shown, faithful in ((0.002, True), (0.006, True), (0.02, False), (0.05, False), (0.3, False)):
        assert play(task_of(target), target_of(shown, 0.4, 0.4)).is_faithful == faithful
    assert limit_of(0.0002) < 0.01


@pytest.mark.parametrize("share", SHARES[:6])
def test_coarse_to_fine_search_is_faithful(share):
    target = target_of(share, 0.2, 0.3)
    crop, half, quarter = expand_box(target, SIZE, 0.25), (0, 0, 1000, 1500), (0, 0, 1000, 750)
    whole, other_half = (0, 0, *SIZE), (1000, 0, 2000, 1500)
    for search in (
        (half, quarter, crop),
        (whole, half, quarter, crop),
        (other_half, half, quarter, crop),
        (target_of(0.5, 0.2, 0.3), target_of(0.35, 0.2, 0.3), crop),
    ):
        episode = play(task_of(target), *search)
        assert episode.is_faithful and episode.steps[-1].faithful, episode.steps[-1].score.why


@pytest.mark.parametrize("share", SHARES[:5])
def test_two_wrong_looks_before_the_right_one_are_search(share):
    target = target_of(share, 0.02, 0.02)
    crop = expand_box(target, SIZE, 0.25)
    wrong = [target_of(2.25 * share, 1.0, 1.0), target_of(2.25 * share, 1.0, 0.0)]
    episode = play(task_of(target), *wrong, crop)
    assert episode.is_faithful and episode.steps[-1].score.value >= 0.45, episode.steps[-1].score.why
    assert play(task_of(target), crop, *wrong).is_faithful


@pytest.mark.parametrize("share", SHARES[:7])
def test_a_wrong_look_before_the_right_one_is_search(share):
    target = target_of(share, 0.02, 0.02)
    episode = play(task_of(target), target_of(2.25 * share, 1.0, 1.0), expand_box(target, SIZE, 0.25))
    assert episode.is_faithful and episode.steps[-1].score.value >= 0.45, episode.steps[-1].score.why


def test_a_wrong_quarter_costs_a_small_target_nothing():
    target = target_of(0.005, 0.1, 0.1)
    episode = play(task_of(target), (1000, 750, 2000, 1500), (0, 0, 1000, 750), expand_box(target, SIZE, 0.25))
    assert [step.score.value for step in episode.steps] == [0.0, 0.0, 1.0]


def test_many_crops_are_not_faithful_in_whatever_order_the_right_one_comes():
    target = target_of(0.01, 0.5, 0.5)
    crop = expand_box(target, SIZE, 0.25)
    wrong = [target_of(0.02, x, y) for x in (0.0, 0.25, 0.75, 1.0) for y in (0.0, 1.0)]  # 0.16 in all, limit 0.139
    late, early = play(task_of(target), *wrong, crop), play(task_of(target), crop, *wrong)
    assert not late.is_faithful and not early.is_faithful
    assert early.steps[0].faithful and early.steps[-1].score.spread and all(step.any_crop for step in early.steps[:1])
    assert "search" in late.steps[-1].score.why and late.steps[-1].any_crop
    assert play(task_of(target), *wrong[:5], crop).is_faithful
    # A failed program or a call without an image does not make it faithful again.
    for execution in (Execution(error="x", stop="error"), Execution(stdout="3")):
        step = Step("", Code(""), execution)
        score = GroundTruthJudge().score(early.task, step, tuple(early.steps))
        early.steps.append(replace(step, score=score))
        assert not early.is_faithful


def test_looks_at_each_of_several_targets_are_not_in_vain():
    targets = [target_of(0.005, x, y) for x in (0.1, 0.4, 0.7, 0.95) for y in (0.1, 0.5, 0.9)]
    crops = [expand_box(target, SIZE, 0.25) for target in targets]
    episode = play(task_of(*targets), *crops)
    assert episode.is_faithful and episode.steps[-1].score.value == 1.0


def test_the_same_place_again_costs_nothing():
    target = target_of(0.01, 0.5, 0.5)
    miss = target_of(0.05, 0.1, 0.1)
    near = [(x1 + k, y1, x2 + k, y2) for k in range(6) for x1, y1, x2, y2 in [miss]]
    assert play(task_of(target), *near, expand_box(target, SIZE, 0.25)).is_faithful


def collage(share: float, background: Image.Image | None = None) -> Image.Image:
    """An image of which the first crop fills a share; the rest is noise, or a background."""
    page = background or IMAGE.resize((120, 120))
    page.paste(IMAGE.crop((900, 650, 1020, 650 + round(120 * share))), (0, 0))
    return page


def test_the_other_parts_of_a_collage_count_as_shown():
    box = target_of(0.01)
    whole = region(box, original_share=1.0)
    assert shown_share(whole, collage(1.0), IMAGE) == pytest.approx(0.01)
    quarter = region(box, original_share=0.25)
    assert shown_share(quarter, collage(0.25), IMAGE) == pytest.approx(0.04, rel=0.05)
    white = Image.new("RGB", (120, 120), "white")
    assert shown_share(quarter, collage(0.25, white), IMAGE) == pytest.approx(0.01, rel=0.1)
    # A plot's labels are a little more than its margins.
    ImageDraw.Draw(white).rectangle((0, 100, 120, 106), "black")
    assert 0.01 <= shown_share(quarter, collage(0.25, white), IMAGE) < 0.014


def test_paper_around_the_parts_of_a_collage_is_no_background():
    page = Image.new("RGB", SIZE, "white")
    draw = ImageDraw.Draw(page)
    for y in range(0, SIZE[1], 12):
        draw.line((0, y, SIZE[0], y), "black", 2)
    box = target_of(0.01)
    one = region(box, original_share=0.25)
    assert shown_share(one, page.crop((0, 0, 240, 240)), page) == pytest.approx(0.04, rel=0.1)
    # On margins of its own colour, as a plot's, the paper of a crop shows nothing beside it.
    plot = Image.new("RGB", (240, 240), "white")
    plot.paste(page.crop((*box[:2], box[0] + 120, box[1] + 120)), (60, 60))
    assert shown_share(one, plot, page) == pytest.approx(0.01, rel=0.1)


def test_what_is_painted_over_inside_a_crop_is_not_shown_beside_it():
    box = target_of(0.02)
    seen = np.ones((10, 10), bool)
    seen[:, :5] = False
    assert shown_share(region(box, original_share=0.5, seen=seen), collage(1.0), IMAGE) == pytest.approx(0.02, rel=0.01)


def test_tightness_and_size_decide_together():
    target = target_of(0.02)
    view = showing(region(target_of(0.05)), target, SIZE)
    assert view.tightness == pytest.approx(0.4, rel=0.01) and view.limit == pytest.approx(2 * 0.02 ** (2 / 3), rel=0.01)
    for share in SHARES:
        limit = limit_of(share)
        assert (share / limit) ** 2 / limit == pytest.approx(1 / 8)


def test_areas_of_unions():
    boxes = [box_polygon((0, 0, 10, 10)), box_polygon((5, 5, 15, 15)), box_polygon((20, 0, 30, 1))]
    assert union_area(boxes) == 185 and union_area([]) == 0 == union_area([()])
    diamond = ((5.0, -5.0), (15.0, 5.0), (5.0, 15.0), (-5.0, 5.0))
    assert union_area([diamond, box_polygon((0, 0, 10, 10))]) == pytest.approx(200)
    assert union_area([diamond, diamond[::-1], box_polygon((10, 0, 20, 10))]) == pytest.approx(275, rel=0.01)


def detail(box: Box, view_pixels: int, power: float = 1.0, margin: float | None = None, **changes) -> float:
    view = ModelView(view_pixels, power, margin)
    return showing(region(box, **changes), target_of(0.01), SIZE, view=view).detail


def test_detail_counts_the_pixels_that_reach_the_model():
    box = (0, 0, 200, 200)
    # min(1, s min(1, view / sqrt(area s^2))): 70 pixels a side for 200.
    for scale in (0.5, 1.0, 3.0):
        assert detail(box, 4900, scale=scale) == pytest.approx(min(1, scale * min(1, 70 / (200 * scale))))
    assert detail(box, 4900, 4.0) == pytest.approx(0.35**4)
    assert detail(box, 40_000) == 1.0 == detail(box, 10**9)
    assert detail(box, 40_000, scale=0.25) == 0.25, "what was lost before does not come back"
    # A frame takes its part of the view.
    assert detail(box, 40_000, original_share=0.25) == pytest.approx(0.5)


def test_a_margin_asks_for_no_more_detail_than_a_crop_of_the_target_can_show():
    (x1, y1, x2, y2), view = target_of(0.01), 4900
    side = ((x2 - x1) * (y2 - y1)) ** 0.5
    box = (0, 0, 200, 200)
    assert side > 70, "the target alone is larger than the view"
    assert detail(box, view, margin=1.0) == pytest.approx(side / 200)
    assert detail(box, view, 4.0, margin=2.25) == pytest.approx(min(1, 1.5 * side / 200) ** 4)
    assert detail((0, 0, 100, 100), view, 4.0, margin=2.25) == 1.0, "no crop has to be tighter than that"
    assert detail(box, view, scale=0.1, margin=2.25) == pytest.approx(0.1 / (70 / (1.5 * side))), "as small as the view"
    # Where crops of a target fit into the view, a margin changes nothing.
    assert 2.25 * side**2 < 80_000 < 160_000
    assert detail((0, 0, 400, 400), 80_000, 4.0, margin=2.25) == detail((0, 0, 400, 400), 80_000, 4.0) < 1


def test_an_expert_crop_of_a_target_larger_than_the_view_is_faithful_with_a_margin():
    target = target_of(0.01)
    for margin in (0.0, 0.25, 1.0):
        crop = expand_box(target, SIZE, margin)
        step = Step("", Code(""), Execution(images=(IMAGE.crop(crop),)), (region(crop),))
        judge = get_judge({"name": "auto", "view_pixels": 4900, "detail_power": 4, "detail_margin": 2.25})
        score = judge.score(task_of(target), step, ())
        assert score.faithful == (margin < 1)
        assert score.definition == "boxes 2, view of 4900 pixels, detail^4, detail of 2.25 targets"
        assert for_view(judge, 10_000).score(task_of(target), step, ()).definition.endswith(", detail of 2.25 targets")


def test_a_view_is_an_option_of_judges_and_environments():
    target = target_of(0.01)
    crop = expand_box(target, SIZE, 0.25)  # 300 x 225 pixels
    step = Step("", Code(""), Execution(images=(IMAGE.resize((40, 30), box=crop),)), (region(crop),))
    for judge in (
        get_judge({"name": "ground_truth", "view_pixels": 10_000}),
        get_judge('{"name": "auto", "view_pixels": 10000, "on_error": "mask"}'),
        for_view(get_judge("ground_truth"), 10_000),
        for_view(get_judge("noisy:0"), 10_000),
        for_view(get_judge({"name": "auto", "on_error": "raise"}), 10_000),
        ImageToolEnv(SceneTaskSet(GridOptions(), "test", 4), view_pixels=10_000).judge,
    ):
        score = judge.score(task_of(target), step, ())
        assert score.value == pytest.approx((10_000 / (300 * 225)) ** 0.5, rel=0.01) and not score.faithful
        assert score.definition == "boxes 2, view of 10000 pixels"
    assert (
        get_judge({"name": "auto", "detail_power": 4}).score(task_of(target), step, ()).definition
        == "boxes 2, detail^4"
    )
    assert GroundTruthJudge().score(task_of(target), step, ()).definition == "boxes 2"
    assert (
        get_judge("none") is not None and for_view(get_judge("none"), 9).score(task_of(target), step, ()).value is None
    )


@pytest.mark.parametrize(
    ("judge", "view", "match"),
    [
        ("auto", 0, "view_pixels is 0"),
        ("auto", 70.5, "view_pixels is 70.5"),
        ({"name": "auto", "detail_power": 0}, None, "detail_power is 0"),
        ({"name": "auto", "detail_margin": 0.5}, None, "detail_margin is 0.5"),
        ({"name": "none", "view_pixels": 9}, None, "view_pixels"),
        ({"name": "ground_truth", "view": 9}, None, "Did you mean 'view_pixels'|view_pixels"),
        ("judge_without_views", 9, "does not measure detail"),
    ],
)
def test_views_that_cannot_be_used_are_refused(judge, view, match):
    class Plain:
        name = "plain"

        def score(self, task, step, history):
            return StepScore(1.0)

    with pytest.raises(ConfigError, match=match):
        for_view(Plain() if judge == "judge_without_views" else get_judge(judge), view)
