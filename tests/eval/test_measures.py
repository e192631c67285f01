"""Protocol measures on episodes made by hand, and their identities on any."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc

import pytest
from eval_samples import trajectory
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.geometry import ImageBox, iou
from codev_env.trajectory import Trajectory
from codev_env.types import Region
from codev_eval.bench.measures import (
    Guess,
    best_overlaps,
    confusion,
    distribution,
    dual,
    evidence_gain,
    looks,
    measure,
    suite_table,
)
from codev_eval.bench.paired import difference_interval, mcnemar, pass_at, pass_rates, share_interval
from codev_eval.bench.suspicions import claims_crop, hallucinates_tool_use, suspicions
from codev_eval.report.text import counts_line


def played(index: int, right: bool, tool: bool = True, looks: bool = True, sample: int = 0, **changed) -> Trajectory:
    made = trajectory(index, looks=looks, right=right, tool=tool)
    return dataclasses.replace(made, meta={"eval": {"bench": "vstar", "sample": sample}}, **changed)


@pytest.mark.parametrize(
    ("k", "correct", "samples", "value"),
    [(1, 1, 4, 0.25), (2, 1, 4, 0.5), (2, 2, 4, 5 / 6), (4, 1, 4, 1.0), (3, 0, 4, 0.0), (1, 4, 4, 1.0)],
)
def test_pass_at_k(k, correct, samples, value):
    assert pass_at(k, correct, samples) == pytest.approx(value)


def test_pass_rates_go_up_to_the_samples_that_every_task_has():
    groups = {"a": [played(0, right) for right in (True, False, False)], "b": [played(1, False)] * 3}
    found = pass_rates(groups)
    assert {k: row["value"] for k, row in found.items()} == pytest.approx({"1": 1 / 6, "2": 1 / 3, "3": 0.5})
    assert pass_rates({}) == {}


@pytest.mark.parametrize(
    ("b", "c", "p"),
    # By hand: 2 * P(X <= min) for X ~ Binomial(b + c, 1/2).
    [(0, 0, 1.0), (0, 5, 2 / 32), (1, 5, 2 * 7 / 64), (3, 3, 1.0), (10, 2, 2 * (1 + 12 + 66) / 4096)],
)
def test_mcnemar(b, c, p):
    assert mcnemar(b, c) == pytest.approx(p) and mcnemar(c, b) == pytest.approx(p)


def test_mcnemar_of_many_disagreements():
    # Near the normal distribution, with the correction for continuity; summing binomials one by one takes many minutes.
    z = (1200 - 1) / math.sqrt(61_200)
    assert mcnemar(30_000, 31_200) == pytest.approx(math.erfc(z / math.sqrt(2)), rel=1e-3)


def test_intervals_resample_tasks_and_not_episodes():
    # Ten samples of each of four tasks that are all alike within: as certain as four tasks, not as forty.
    low, high = share_interval([(10, 10), (0, 10), (10, 10), (0, 10)]) or (0, 0)
    assert low <= 0.05 and high >= 0.95
    low, high = share_interval([(1, 1)] * 10) or (0, 0)
    assert low == pytest.approx(0.7225, abs=1e-3) and high == 1.0, "Wilson, where no resample differs"
    low, high = share_interval([(1, 2)] * 10) or (0, 0)
    assert (low, high) == pytest.approx((0.2366, 0.7634), abs=1e-3), "the same"
    assert share_interval([(1, 1)]) is None and share_interval([]) is None


@pytest.mark.parametrize("hits", [0, 1, 2])
def test_one_task_that_counts_has_no_interval(hits):
    assert share_interval([(hits, 2), (0, 0), (0, 0)]) is None


def test_resampling_many_tasks_needs_little_memory():
    """1000 resamples of 20 000 tasks, all at once, are 160 MB of counts, and as much again as numbers of the sums."""
    tasks = [(float(number % 2), 1.0) for number in range(20_000)]
    tracemalloc.start()
    try:
        assert share_interval(tasks) == pytest.approx([0.493, 0.507], abs=0.002)
        assert tracemalloc.get_traced_memory()[1] < 40e6
    finally:
        tracemalloc.stop()


def test_paired_intervals_are_narrower_than_unpaired_ones():
    tasks = [(float(i % 2), 1.0) for i in range(40)]
    low, high = difference_interval(tasks, [(1.0, 1.0), *tasks[1:]]) or (0, 0)
    # One pair of forty differs: resamples have it some 0 to 3 times. Unpaired ends would be 0.2 from the difference.
    assert low == 0.0 and 2 / 40 <= high <= 4 / 40


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 1), (0, 1), (1, 0), (1 / 3, 2 / 3)])
def test_pairs_that_are_all_equal_have_no_interval(a, b):
    assert difference_interval([(a, 1.0)] * 9, [(b, 1.0)] * 9) is None


def test_everything_measured_resamples_tasks_where_they_were_played_several_times():
    claim = "<think>I zoomed in on it.</think><answer>3</answer>"
    idle = played(0, False, tool=False)
    idle = dataclasses.replace(idle, turns=(dataclasses.replace(idle.turns[-1], action=claim),))
    alike = [
        dataclasses.replace(made, task_id=str(task), meta={"eval": {"bench": "vstar", "sample": sample}})
        for task, made in enumerate((played(0, True), idle, played(0, True), idle))
        for sample in range(30)
    ]
    found = measure(alike, "vstar")
    assert found["hallucinated_tool_use"] == 0.5
    for part in (found, found["by_category"]["direct_attributes"]):
        names = set(part["ci95"]) - {"faithful_calls", "faithful_given_correct", "errors", "invalid_turns", "lazy"}
        assert {"tool_calls", "reward_mean", "turns", "crops", "accuracy", "faithful"} <= names
        for name in names:
            low, high = part["ci95"][name]
            # Four tasks say little; of 120 episodes apart, the interval would be some 0.2 wide.
            assert high - low >= 0.9, name
        # Two tasks have calls, all of them faithful: Wilson's interval of two.
        assert part["ci95"]["faithful_calls"] == pytest.approx([0.342, 1.0], abs=1e-3)


def test_episodes_without_room_for_another_turn_are_counted():
    found = measure([played(0, False, stop_reason="max_length"), played(1, True)], "vstar")
    assert (found["n_cut"], found["accuracy"]) == (1, 0.5)
    assert counts_line(found) == "2 episodes; 1 had no room for another turn and count without an answer"


def test_confusion_counts_judged_episodes():
    episodes = [played(0, True), played(1, True, looks=False), played(2, False), played(3, False, tool=False)]
    assert confusion(episodes) == {
        "faithful_correct": 1, "faithful_wrong": 1, "unfaithful_correct": 1, "unfaithful_wrong": 1,
    }  # fmt: skip
    found = measure(episodes, "vstar")
    assert found["by_category"]["direct_attributes"]["confusion"] == found["confusion"]
    assert found["suspected"]["right, not faithful"] == 1


def test_distributions_of_the_best_crop():
    episodes = [played(0, True), played(1, True, looks=False), played(2, True, tool=False)]
    assert best_overlaps(episodes, iou) == [pytest.approx(80 * 80 / (100 * 100)), 0.0]
    assert distribution([0.0, 0.25, 0.5, 1.0]) == {
        "n": 4, "mean": 0.4375, "quartiles": [0.1875, 0.375, 0.625], "bins": [1, 0, 1, 0, 0, 1, 0, 0, 0, 1],
    }  # fmt: skip
    assert distribution([])["mean"] is None


def test_the_four_terms_of_the_tool():
    #            with the tool: right?, called?      without
    with_tool = [played(0, True), played(1, True, tool=False), played(2, False), played(3, False, tool=False)]
    without = [played(0, False), played(1, False), played(2, True), played(3, True)]
    found = dual(with_tool, without)
    for term in ("call_gain", "schema_gain", "call_harm", "schema_harm"):
        assert found[term] == 0.25
    assert found["gain"] == 0.0 and found["tasks"] == 4
    assert dual([], [])["gain"] is None


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.lists(st.booleans(), min_size=1, max_size=3)), max_size=8))
def test_the_terms_add_up_to_the_gain(rows):
    with_tool, without = [], []
    for index, (right, tool, free) in enumerate(rows):
        with_tool += [light(index, right, tool), light(index, not right, not tool)][: 1 + index % 2]
        without += [light(index, was, False) for was in free]
    found = dual(with_tool, without)
    if rows:
        terms = found["call_gain"] + found["schema_gain"] - found["call_harm"] - found["schema_harm"]
        assert terms == pytest.approx(found["gain"])
        assert found["gain"] == pytest.approx(found["accuracy_with"] - found["accuracy_without"])


def test_an_answer_at_once_stands_for_an_episode_without_the_tool():
    episodes = [light(index, right, True) for index, right in enumerate((True, True, False, True))]
    found = dual(episodes, [Guess("0", True), Guess("1", False), Guess("2", True)])
    assert found["tasks"] == 3 and found["accuracy_without"] == pytest.approx(2 / 3)
    assert (found["call_gain"], found["call_harm"], found["gain"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3), 0.0)


def light(index: int, right: bool, tool: bool) -> Trajectory:
    made = CALLED if tool else IDLE
    return dataclasses.replace(made, task_id=str(index), is_correct=right)


CALLED, IDLE = trajectory(0, looks=True, right=True), trajectory(0, looks=True, right=True, tool=False)


def test_evidence_gain_counts_episodes_without_an_image_as_unchanged():
    plain = [played(0, True), played(1, True), played(2, True, tool=False), played(3, False)]
    perturbed = [played(0, False), played(1, True), played(3, False)]
    found = evidence_gain(plain, perturbed)
    assert (found["n"], found["n_looked"]) == (4, 3)
    assert (found["accuracy"], found["accuracy_perturbed"]) == (0.75, 0.5)
    assert found["visual_evidence_gain"] == 0.25
    assert found["gain_looked"] == pytest.approx(1 / 3) and found["answer_changed"] == pytest.approx(1 / 3)
    # One that could not be played again is left out on both sides.
    assert evidence_gain(plain, perturbed[1:])["n"] == 3


def test_the_average_of_a_suite_includes_the_source():
    made = [dataclasses.replace(trajectory(0, looks=True, right=r), meta={"task": {"variant": v}})
            for r, v in ((False, "rotate_90"), (False, "rotate_180"))]  # fmt: skip
    found = suite_table([played(0, True)], made)
    assert {name: row["accuracy"] for name, row in found["variants"].items()} == {
        "source": 1.0, "rotate_90": 0.0, "rotate_180": 0.0,
    }  # fmt: skip
    assert found["mean"] == {"accuracy": pytest.approx(1 / 3), "faithful": 1.0}


@pytest.mark.parametrize(
    "text",
    [
        "I zoomed in on the glove.", "I have already cropped it.", "After zooming in, the sign reads STOP.",
        "In the cropped image the dog is brown.", "The crop clearly shows a red car.", "my crop reveals it",
        "From the zoomed-in view one sees", "By magnifying the corner we learn",
    ],
)  # fmt: skip
def test_claims_of_a_crop(text):
    assert claims_crop(text)


@pytest.mark.parametrize(
    "text",
    [
        "I could crop the image, but it is clear.", "No zoom is needed.", "I will zoom in next.", "Let me crop it.",
        "The farmer shows his crop.", "The image shows a crop field.", "She rotated the wheel.",
    ],
)  # fmt: skip
def test_no_claims_of_a_crop(text):
    assert not claims_crop(text)


def test_a_claim_is_a_hallucination_only_where_no_program_returned_an_image():
    claim = "<think>I zoomed in on it.</think><answer>3</answer>"
    for tool in (True, False):
        made = played(0, True, tool=tool)
        turns = (*made.turns[:-1], dataclasses.replace(made.turns[-1], action=claim))
        made = dataclasses.replace(made, turns=turns)
        assert hallucinates_tool_use(made) is not tool
        assert ("claims a crop" in suspicions(made)) is not tool


def test_repeated_and_lazy_crops_are_suspected():
    made = played(0, True)
    twice = dataclasses.replace(made, turns=(made.turns[0], *made.turns))
    assert suspicions(made) == () and suspicions(twice) == ("repeats",)
    whole = dataclasses.replace(made.turns[0], crop_boxes=((0, 0, 672, 672),))
    assert suspicions(dataclasses.replace(made, turns=(whole, made.turns[1]))) == ("lazy",)


def two_images(*boxes) -> Trajectory:
    """An episode with crops of an image of 100 x 100 or one of 1000 x 1000."""
    images = tuple(Image.new("RGB", (side, side)) for side in (100, 1000))
    made = played(0, True, images=images)
    turns = [dataclasses.replace(made.turns[0], crop_boxes=(box,), regions=(Region(box=box),)) for box in boxes]
    return dataclasses.replace(made, turns=(*turns, made.turns[-1]))


def test_a_crop_is_lazy_by_the_size_of_its_own_image():
    tenth, whole = ImageBox((0, 0, 300, 300), 1), ImageBox((0, 0, 1000, 1000), 1)
    assert looks([two_images(tenth)])["lazy_crops"] == 0.0
    assert looks([two_images((0, 0, 100, 100), whole)])["lazy_crops"] == 1.0


def test_the_same_place_of_another_image_is_no_repetition():
    box = (10, 10, 60, 60)
    assert "repeats" not in suspicions(two_images(box, ImageBox(box, 1)))
    assert "repeats" in suspicions(two_images(ImageBox(box, 1), ImageBox(box, 1)))


def test_a_second_image_that_comes_back_as_it_is_is_suspected():
    made = two_images((0, 0, 50, 50))
    regions = (Region(box=(0, 0, 1000, 1000), image_index=1, orientation="rot0", scale=1.0),)
    turn = dataclasses.replace(made.turns[0], regions=regions)
    assert "input unchanged" in suspicions(dataclasses.replace(made, turns=(turn, made.turns[-1])))


def width(interval) -> float:
    return interval[1] - interval[0]


def test_the_four_orders_of_a_question_are_as_certain_as_one():
    made = [
        dataclasses.replace(
            played(4 * question + cycle, question % 2 == 0),
            question=f"Which, {question}?",
            choices=tuple("abcd"[cycle:] + "abcd"[:cycle]),
            answer="a",
            meta={"task": {"cycle_category": str(cycle)}},
        )
        for question in range(25)
        for cycle in range(4)
    ]
    found, single = measure(made, "hrbench4k"), measure(made[::4], "hrbench4k")
    assert found["tasks"] == 100 and found["accuracy"] == single["accuracy"]
    for part in (found, found["by_category"]["direct_attributes"]):
        assert width(part["ci95"]["accuracy"]) >= 0.9 * width(single["ci95"]["accuracy"]) > 0.3
    assert width(found["score_ci95"]) > 0.3
    assert width(suite_table(made, [])["variants"]["source"]["ci95"]["accuracy"]) > 0.3


def test_the_variants_of_a_task_are_as_certain_as_one():
    made = [
        dataclasses.replace(
            played(task, task % 2 == 0),
            task_id=f"{task}@{variant}",
            meta={"task": {"variant": variant, "source_task_id": str(task)}},
        )
        for task in range(16)
        for variant in ("source", "rotate_90", "rotate_180", "rotate_270")
    ]
    found = measure(made, "vstar")
    assert width(found["ci95"]["accuracy"]) > 0.4 and width(found["ci95"]["hallucinated_tool_use"]) > 0
    assert width(dual(made, [dataclasses.replace(t, is_correct=False) for t in made])["gain_ci95"]) > 0.4
    # Each variant alone has one episode of each task, and Wilson's interval.
    one = measure(made[::4], "vstar")["ci95"]["accuracy"]
    assert found["by_variant"]["rotate_90"]["ci95"]["accuracy"] == one == pytest.approx([0.28, 0.72], abs=0.01)


def test_the_calls_of_an_episode_are_as_certain_as_one():
    made = [played(task, True, looks=task % 2 == 0) for task in range(10)]
    many = [dataclasses.replace(t, turns=(*t.turns[:1] * 6, *t.turns[1:])) for t in made]
    found = measure(many, "vstar")
    assert found["faithful_calls"] == 0.5
    assert found["ci95"]["faithful_calls"] == measure(made, "vstar")["ci95"]["faithful_calls"]
    assert width(found["ci95"]["faithful_calls"]) > 0.5


def test_one_episode_is_no_plural():
    assert counts_line({"n": 1}) == "1 episode"
    assert counts_line({"n": 3, "tasks": 1}) == "3 episodes of 1 task"
