"""An input that comes back counts as unchanged only with the same pixels; mixed definitions have no interval."""

from __future__ import annotations

import dataclasses

import pytest
from eval_samples import trajectory
from PIL import ImageDraw, ImageOps

from codev_env.trajectory import read_trajectories, write_trajectories
from codev_env.types import Region, StepScore
from codev_eval.bench.measures import rates
from codev_eval.bench.suspicions import suspicions


def shows(made, image):
    """The episode with a call that returns that image, which shows all of the input."""
    box = (0, 0, *made.images[0].size)
    turn = dataclasses.replace(
        made.turns[0], images=(image,), crop_boxes=(box,), regions=(Region(box=box, orientation="rot0", scale=1.0),)
    )
    return dataclasses.replace(made, turns=(turn, *made.turns[1:]))


@pytest.mark.parametrize("stored", [False, True])
def test_a_whole_input_in_other_colours_or_drawn_on_is_no_unchanged_input(stored, tmp_path):
    made = trajectory(0, looks=True, right=True)
    framed = made.images[0].copy()
    ImageDraw.Draw(framed).rectangle((10, 10, 60, 60), outline="red")
    images = made.images[0].copy(), framed, ImageOps.invert(made.images[0])
    episodes = [shows(made, image) for image in images]
    if stored:
        write_trajectories(tmp_path / "trajectories.jsonl", episodes)
        episodes = list(read_trajectories(tmp_path / "trajectories.jsonl"))
    assert ["input unchanged" in suspicions(one) for one in episodes] == [True, False, False]


def test_shares_of_several_definitions_have_no_interval_with_several_samples():
    def judged(task, definition, sample):
        made = trajectory(task, looks=True, right=True)
        turn = dataclasses.replace(made.turns[0], score=StepScore(1.0, "", task > 0, definition=definition))
        turns, meta = (turn, *made.turns[1:]), {"eval": {"bench": "vstar", "sample": sample}}
        return dataclasses.replace(made, turns=turns, meta=meta, is_faithful=task > 0)

    definitions = ("boxes 2", "boxes 2, view of 4900 pixels")
    found = rates([judged(task, name, at) for task in range(4) for at, name in enumerate(definitions)])
    assert found["ci95"]["tool_calls"] is None and found["accuracy"] == 1.0
    for name in ("faithful", "faithful_and_correct", "any_crop", "faithful_calls"):
        assert (found[name], found["ci95"][name]) == (None, None)
