"""Halves of one crop that were read one by one are one part again, and no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from everyday_programs import EVERYDAY, fill
from fake_session import FakeSession
from geometric_programs import NAME

from codev_env.provenance import Tracker
from codev_env.provenance.coordinates import box_polygon
from codev_env.provenance.joints import joined
from codev_env.tasks import load_tasks
from codev_env.types import Box, Region

LEFT, RIGHT = (0, 0, 100, 120), (101, 0, 201, 120)
TOP, BOTTOM = (0, 0, 200, 60), (0, 60, 200, 120)


def shows(box: Box, **changes: object) -> Region:
    return replace(Region(box_polygon(box), box, 0, "rot0", 2.0, 1.0, "probe"), **changes)


@pytest.mark.parametrize(
    ("parts", "boxes", "whole"),
    [
        ((LEFT, RIGHT), ((10, 20, 60, 80), (60, 20, 110, 80)), (10, 20, 110, 80)),
        ((BOTTOM, TOP), ((10, 50, 110, 80), (10, 20, 110, 50)), (10, 20, 110, 80)),
    ],
)
def test_halves_that_continue_each_other_are_one_part(parts, boxes, whole):
    seen = np.ones((60, 50), bool)
    seen[:, 25:] = False
    regions = [shows(boxes[0], seen=seen, original_share=0.5, scale=1.9), shows(boxes[1])]
    ((bounds, region),) = joined(list(zip(parts, regions, strict=True)))
    assert bounds == (0, 0, 201 if parts[0] == LEFT else 200, 120)
    assert (region.box, region.polygon, region.scale) == (whole, box_polygon(whole), 1.9)
    assert region.original_share == pytest.approx(0.75)
    assert region.seen.mean() == pytest.approx(0.75, abs=0.02)
    assert region.seen[-1, 0] and not region.seen[-1 if parts[0] == BOTTOM else 0, 20 if parts[0] == LEFT else -1]


@pytest.mark.parametrize(
    "second",
    [
        shows((60, 26, 110, 86)),  # lower
        shows((70, 20, 120, 80)),  # with a gap
        shows((60, 20, 160, 80)),  # wider, at another scale
        shows((60, 20, 110, 80), image_index=1),
        shows((10, 20, 60, 80)),  # the same place
        shows((60, 20, 110, 80), original_share=0.7),  # a frame around it
        Region(),
        None,
    ],
)
def test_parts_that_do_not_continue_each_other_stay_apart(second):
    parts = [(LEFT, shows((10, 20, 60, 80))), (RIGHT, second)]
    assert joined(parts) == parts


def test_four_quarters_are_one_part():
    parts = [
        ((x, y, x + 100, y + 60), shows((x // 2, y // 2, x // 2 + 50, y // 2 + 30))) for y in (0, 60) for x in (0, 100)
    ]
    ((bounds, region),) = joined(parts)
    assert (bounds, region.box) == ((0, 0, 200, 120), (0, 0, 100, 60))


@pytest.mark.parametrize("name", ["threshold 127", "Laplacian"])
def test_a_small_crop_is_placed_as_a_whole(name):
    task = load_tasks("synthetic", "test", scenes="vstar")[473]
    box, session = (1134, 933, 1198, 997), FakeSession({NAME: task.image})
    code = fill(EVERYDAY[name], box)
    (region,) = Tracker(session, [task.image]).trace(code, session.run(code))
    assert region.box == box and not region.others and region.original_share >= 0.9
