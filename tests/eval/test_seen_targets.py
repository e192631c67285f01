"""The report's marks of what a crop shows of the targets."""

from __future__ import annotations

import dataclasses

import pytest
from eval_samples import trajectory
from PIL import Image

from codev_env.geometry import ImageBox
from codev_env.provenance.coordinates import box_polygon
from codev_env.types import Region
from codev_eval.report.episodes import task_of
from codev_eval.report.images import ImageStore
from codev_eval.report.targets import seen_targets


def looked(box, **changes):
    """An episode whose crop shows a box, and its first turn."""
    polygon = changes.pop("polygon", box_polygon(box))
    region = Region(**({"polygon": polygon, "box": box, "orientation": "rot0", "original_share": 1.0} | changes))
    played = trajectory(0, looks=True, right=True)
    look = dataclasses.replace(played.turns[0], regions=(region,), crop_boxes=(box,))
    return dataclasses.replace(played, turns=(look, *played.turns[1:])), look


def test_a_crop_says_how_much_of_the_target_it_shows_and_where():
    x1, y1, x2, y2 = trajectory(0, looks=True, right=True).targets[0]
    played, look = looked((x1 - 10, y1 - 10, x2 + 10, y2 + 10))
    (seen,) = seen_targets(look, 0, played)
    assert seen.text == "100 % of the target, which fills 64 %"
    assert seen.part == pytest.approx((0.1, 0.1, 0.9, 0.9))
    half, look = looked((x1 + 40, y1, x2 + 40, y2))
    (seen,) = seen_targets(look, 0, half)
    assert seen.text.startswith("50 % of the target") and seen.part == pytest.approx((0, 0, 0.5, 1))


def test_a_turned_crop_has_its_mark_turned():
    x1, y1, x2, y2 = trajectory(0, looks=True, right=True).targets[0]
    box = (x1 - 40, y1, x2, y2)  # the target is in the right two thirds
    a, b, c, d = box_polygon(box)
    played, look = looked(box, polygon=(b, c, d, a), orientation="rot90")
    (seen,) = seen_targets(look, 0, played)
    assert seen.part == pytest.approx((0, 0, 1, 2 / 3))


def test_of_a_collage_the_part_that_shows_the_target_is_described():
    x1, y1, x2, y2 = trajectory(0, looks=True, right=True).targets[0]
    box = (x1 - 10, y1 - 10, x2 + 10, y2 + 10)
    part = Region(box_polygon(box), box, 0, "rot0", original_share=0.5)
    played, look = looked((0, 0, 5, 5), original_share=0.5, others=(part, Region()))
    assert [seen.text for seen in seen_targets(look, 0, played)] == ["100 % of the target, which fills 64 %"]


def test_nothing_is_marked_where_no_place_is_known():
    target = trajectory(0, looks=True, right=True).targets[0]
    for changes in ({"polygon": None}, {"image_index": 1}):
        played, look = looked(target, **changes)
        assert seen_targets(look, 0, played) == []
    played, look = looked(target, original_share=0.5)
    assert [seen.part for seen in seen_targets(look, 0, played)] == [None], "a frame shifts places"
    assert seen_targets(trajectory(0, looks=True, right=True).turns[0], 0, played) == []


def test_the_page_marks_the_target_in_the_crop():
    target = trajectory(0, looks=True, right=True).targets[0]
    played, _ = looked(target)
    store = ImageStore()
    (crop,) = task_of([("", played)], store).episodes[0].turns[0].crops
    assert "100 % of the target, which fills 100 %" in crop.source
    (shape,) = crop.drawing.shapes
    assert shape.kind == "target" and (shape.width, shape.height) == (
        crop.drawing.stored.width,
        crop.drawing.stored.height,
    )
    store.elements()


def test_a_target_on_another_image_is_described_by_that_image():
    target = trajectory(0, looks=True, right=True).targets[0]
    played, look = looked(target, image_index=1)
    both = (played.images[0], Image.new("RGB", tuple(2 * side for side in played.image_size)))
    played = dataclasses.replace(played, images=both, targets=(target, ImageBox(target, 1)))
    (seen,) = seen_targets(look, 0, played)
    assert seen.number == 1 and seen.text == "100 % of target 2, which fills 100 %"
