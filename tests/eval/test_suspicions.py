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
    assert (found["any_crop_given_correct"], found["any_crop_given_correct_ci95"]) == (None, None)


@pytest.mark.parametrize("samples", [1, 2])
def test_the_papers_rate_among_the_right_answers_stands_beside(samples):
    def judged(task, any_crop, right, sample):
        made = trajectory(task, looks=True, right=right)
        turn = dataclasses.replace(made.turns[0], score=StepScore(0.5, "", False, any_crop=any_crop))
        meta = {"eval": {"bench": "vstar", "sample": sample}}
        return dataclasses.replace(made, turns=(turn, *made.turns[1:]), meta=meta, is_faithful=False)

    rows = [(True, True), (True, True), (False, True), (True, False), (False, False)]
    found = rates([judged(task, *row, sample) for task, row in enumerate(rows) for sample in range(samples)])
    assert (found["any_crop"], found["faithful_given_correct"]) == (3 / 5, 0.0)
    assert found["any_crop_given_correct"] == 2 / 3
    low, high = found["any_crop_given_correct_ci95"]
    assert low < 2 / 3 < high
    assert rates([judged(0, True, False, 0)])["any_crop_given_correct"] is None
