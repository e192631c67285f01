"""Mixtures, turned scenes, the cycles of HR-Bench, and difficulty as an option of every preset."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections import Counter

import numpy as np
import pytest
from real_data import lettered_row, open_hrbench4k, own_cache, write_tsv  # noqa: F401

from codev_env.errors import ConfigError
from codev_env.scoring import is_correct
from codev_env.tasks import SCENES, SceneTaskSet, SearchOptions, load_tasks
from codev_env.tasks.generators.charts import ChartOptions
from codev_env.tasks.generators.counting import CountingOptions
from codev_env.tasks.generators.documents import DocumentOptions
from codev_env.tasks.generators.hr import HRBenchOptions
from codev_env.tasks.generators.mix import TURNS, MixOptions, TurnedOptions
from codev_env.tasks.generators.search import DIAGONALS
from codev_env.tasks.generators.sums import SumsOptions
from codev_env.tasks.readers.cache import TASKS
from codev_env.tasks.scenes import parse_scenes
from codev_env.transforms import inverse, transform_box, transform_image

SEARCH = SearchOptions(sizes=((640, 480),), distractors=(5, 20), photo_share=0)
PAGES = DocumentOptions(sizes=((900, 700),), font=(12, 14), paragraphs=(4, 8), measure=(16, 20))
HR = HRBenchOptions(sizes=((800, 600), (601, 801)), distractors=(5, 20), photo_share=0)
MIX = MixOptions(parts=(SEARCH, ChartOptions(), PAGES), weights=(2, 1, 1))


def same(a, b) -> bool:
    return dataclasses.replace(a, images=()) == dataclasses.replace(b, images=()) and np.array_equal(a.image, b.image)


# ---- mixtures


def test_mixture_takes_parts_by_weight_and_the_same_one_for_the_same_index():
    first, second = (SceneTaskSet(MIX, "train", size=size) for size in (80, 1000))
    kinds = Counter(task.meta["kind"] for task in first)
    assert set(kinds) == {"search", "charts", "documents"} and 25 < kinds["search"] < 55
    assert all(same(first[i], second[i]) for i in range(5))
    assert [task.task_id for task in first][:2] == ["mix-train-0-0", "mix-train-0-1"]
    only_search = SceneTaskSet(dataclasses.replace(MIX, weights=(1, 0, 0)), "train", size=20)
    assert {task.meta["kind"] for task in only_search} == {"search"}


def test_mixture_keeps_the_parts_that_have_a_category():
    tasks = SceneTaskSet(MIX.only("count"), "train", size=5)
    assert {(task.meta["kind"], task.category) for task in tasks} == {("charts", "count")}
    with pytest.raises(ConfigError, match="no part of this mixture has it"):
        MIX.only("spelling")


def test_options_of_a_mixture_reach_its_parts():
    changed = MIX.with_overrides(json.loads('{"photo_share": 0.5, "font": [13, 14], "weights": [1, 1, 0]}'))
    assert changed.parts[0] == dataclasses.replace(SEARCH, photo_share=0.5)
    assert changed.parts[1] == dataclasses.replace(ChartOptions(), font=(13, 14))
    assert changed.parts[2] == dataclasses.replace(PAGES, font=(13, 14))
    assert changed.weights == (1, 1, 0)
    with pytest.raises(ConfigError, match="unknown option of mix scenes 'photo_shares'. Did you mean 'photo_share'"):
        MIX.with_overrides({"photo_shares": 1})
    assert MIX.at_difficulty(0.5).parts[1] == ChartOptions().at_difficulty(0.5)


def test_what_mixtures_and_turned_scenes_are_made_of_comes_from_json():
    given = {"preset": "mathvista", "parts": [{"preset": "sums", "difficulty": 0.2}, "toy"], "photo_share": 0}
    options = parse_scenes(json.loads(json.dumps(given)), "train").options
    assert options == MixOptions(
        parts=(dataclasses.replace(SumsOptions().at_difficulty(0.2), photo_share=0), SCENES["toy"]), weights=(1, 1)
    )
    given = {
        "preset": "mvtool",
        "scenes": {"preset": "charts"},
        "transforms": ["rotate_90"],
        "difficulty": 1,
        "seed": 3,
    }
    tasks = parse_scenes(given, "train")
    assert tasks.seed == 3 and tasks.options == TurnedOptions(ChartOptions().at_difficulty(1), ("rotate_90",))
    weighted = parse_scenes({"preset": "codev-rl", "parts": ["toy", "charts"], "weights": [3, 1]}, "train").options
    assert weighted.weights == (3, 1)


@pytest.mark.parametrize(
    ("scenes", "message"),
    [
        ({"preset": "mathvista", "parts": ["sumz"]}, "unknown scene preset 'sumz'. Did you mean 'sums'"),
        ({"preset": "mathvista", "parts": [{"difficulty": 1}]}, "unknown scene preset None"),
        ({"preset": "mathvista", "parts": "sums"}, "'parts' is 'sums'; its type must be"),
        ({"preset": "mathvista", "parts": ["sums"], "weights": [1, 2]}, "1 numbers of at least 0"),
        ({"preset": "toy", "parts": ["sums"]}, "unknown option of grid scenes 'parts'"),
    ],
)
def test_bad_parts_are_named(scenes, message):
    with pytest.raises(ConfigError, match=message):
        parse_scenes(scenes, "train")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": (1, 1)}, "3 numbers of at least 0"),
        ({"weights": (0, 0, 0)}, "not all 0"),
        ({"weights": (1, -1, 1)}, "3 numbers of at least 0"),
        ({"parts": ()}, "one or more kinds"),
        ({"parts": (HR,), "weights": (1,)}, "do not come in cycles"),
    ],
)
def test_bad_mixtures_are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(MIX, **changes)


# ---- turned scenes


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("scenes", [SEARCH, PAGES, ChartOptions()], ids=["search", "documents", "charts"])
def test_turning_back_gives_the_scene(name, scenes):
    """Pixels, targets and every box of the metadata, compared with the scene drawn upright."""
    seed = np.random.SeedSequence(5)
    task = TurnedOptions(scenes=scenes, transforms=(name,)).draw("t", seed)
    upright = scenes.draw("t", np.random.SeedSequence(5, spawn_key=(1,)))
    assert task.transform == ("crop", name)
    assert (task.question, task.answer, task.choices) == (upright.question, upright.answer, upright.choices)
    assert np.array_equal(transform_image(task.image, inverse(name)), upright.image)

    def back(box):
        return transform_box(tuple(box), task.image.size, inverse(name))

    assert tuple(back(box) for box in task.targets) == upright.targets
    for item, other in zip(task.meta["objects"], upright.meta["objects"], strict=True):
        assert item.keys() == other.keys()
        for key, value in other.items():
            assert (list(back(item[key])) if key.endswith("box") else item[key]) == value
    assert task.targets != upright.targets


def test_turned_scenes_take_every_transform():
    tasks = SceneTaskSet(TurnedOptions(scenes=SEARCH), "train", size=50)
    assert {task.transform[-1] for task in tasks} == set(TURNS)
    changed = TurnedOptions(scenes=SEARCH).with_overrides({"transforms": ["rotate_180"], "distractors": [1, 2]})
    assert changed == TurnedOptions(dataclasses.replace(SEARCH, distractors=(1, 2)), ("rotate_180",))
    with pytest.raises(ConfigError, match="'transforms' is"):
        TurnedOptions(scenes=SEARCH, transforms=("rotate_45",))
    with pytest.raises(ConfigError, match="'scenes' is None"):
        TurnedOptions()
    with pytest.raises(ConfigError, match="unknown category of search scenes"):
        TurnedOptions(scenes=SEARCH).only("spelling")


# ---- HR-Bench


def test_four_consecutive_tasks_rotate_the_choices_of_one_question():
    tasks = SceneTaskSet(HR, "test", size=24)
    for first in range(0, 24, 4):
        cycle = [tasks[first + turn] for turn in range(4)]
        assert [task.meta["cycle_category"] for task in cycle] == ["0", "1", "2", "3"]
        assert len({task.question for task in cycle}) == len({task.answer for task in cycle}) == 1
        assert len({task.task_id for task in cycle}) == 4
        assert {task.choices.index(task.answer) for task in cycle} == {0, 1, 2, 3}
        assert all(set(task.choices) == set(cycle[0].choices) and is_correct(task, task.answer) for task in cycle)
        assert all(tasks.index_of(task.task_id) == first + turn for turn, task in enumerate(cycle))
    assert tasks[0].question != tasks[4].question


def test_generated_tasks_tell_scorers_what_real_ones_tell(tmp_path):
    keys = {"bench", "question_type", "answer_type", "precision", "unit"}
    real = open_hrbench4k(write_tsv(tmp_path / "hr_bench_4k.tsv", [lettered_row(i) for i in range(4)]))[1].meta
    made = SceneTaskSet(HR, "test", bench="hrbench4k")[1]
    assert {key: made.meta[key] for key in keys} == {key: real[key] for key in keys}
    assert {"cycle_category", "label"} <= made.meta.keys() & real.keys()
    assert made.choices["ABCD".index(made.meta["label"])] == made.answer
    assert SceneTaskSet(SEARCH, "test")[0].meta["question_type"] == "multi_choice"
    assert SceneTaskSet(SCENES["toy"], "test")[0].meta["question_type"] == "free_form"


def test_hr_questions_follow_from_the_objects():
    kinds = Counter()
    for task in SceneTaskSet(HR, "train", size=240):
        if task.meta["cycle_category"] != "0":
            continue
        objects = task.meta["objects"]
        targets = [objects[i] for i in task.meta["targets"]]
        assert task.targets == tuple(tuple(item["box"]) for item in targets)
        assert len(set(task.choices)) == 4
        looks = [(item["color"], item["shape"]) for item in objects]
        if task.question.startswith("Where"):
            (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = task.targets
            left, above = ax1 + ax2 < bx1 + bx2, ay1 + ay2 < by1 + by2
            assert task.answer == f"{'left' if left else 'right'} and {'above' if above else 'below'}"
            assert abs(ax1 + ax2 - bx1 - bx2) >= 0.2 * task.image.width
            assert abs(ay1 + ay2 - by1 - by2) >= 0.2 * task.image.height
            one, other = (f"the {item['color']} {item['shape']}" for item in targets)
            assert task.question == f"Where is {one}, seen from {other}?"
            assert set(task.choices) == set(DIAGONALS) and looks.count(looks[0]) == looks.count(looks[1]) == 1
            kinds["cross", "where"] += 1
        elif task.question.startswith("How many"):
            assert task.answer == str(looks.count(looks[0])) == str(len(targets))
            kinds["cross", "count"] += 1
        else:
            assert len(targets) == 1 and looks.count(looks[0]) == 1
            assert task.answer in (targets[0]["color"], targets[0]["label"])
            kinds["single", ""] += 1
    assert min(kinds.values()) > 5 and len(kinds) == 3


def test_hr_presets_are_4k_and_8k():
    for name, side in (("hrbench-4k", 3840), ("hrbench-8k", 7680)):
        tasks = load_tasks("synthetic", "test", scenes={"preset": name, "photo_share": 0}, subset="single")
        task = tasks[1]
        assert max(task.image.size) == side and task.category == "single"
        assert all(max(x2 - x1, y2 - y1) < 0.02 * side for x1, y1, x2, y2 in task.targets)


# ---- every kind


@pytest.mark.parametrize("options", [MIX, HR, ChartOptions(), PAGES, CountingOptions(photo_share=0), SumsOptions()])
def test_splits_and_seeds_are_different_streams_and_always_the_same(options):
    def scenes():
        for split in ("train", "val", "test"):
            for seed in (0, 1):
                yield json.dumps(SceneTaskSet(options, split, seed=seed)[8].meta["objects"])

    first = list(scenes())
    assert len(set(first)) == 6
    TASKS.clear()
    assert list(scenes()) == first


def test_scenes_that_stand_in_for_a_benchmark_name_it():
    tasks = parse_scenes({"difficulty": 0.5}, "test", default="charts", bench="mathvista")
    assert tasks.options == ChartOptions().at_difficulty(0.5)
    plain = SceneTaskSet(tasks.options, "test")
    assert tasks[0].meta == {"bench": "mathvista", **plain[0].meta} and "bench" not in plain[0].meta
    assert parse_scenes("sums", "test", default="charts").options == SumsOptions()
    assert SceneTaskSet(HR, "test", bench="hrbench4k")[1].meta["bench"] == "hrbench4k"


# ---- every preset


@pytest.mark.parametrize("name", SCENES)
def test_difficulty_of_every_preset(name):
    levels = [SCENES[name].at_difficulty(d) for d in (0.0, 0.5, 1.0)]
    assert len(set(levels)) == 3
    assert pickle.loads(pickle.dumps(levels[1])) == levels[1]
    tasks = load_tasks("synthetic", "val", scenes=json.loads(json.dumps({"preset": name, "difficulty": 0.5})))
    assert tasks.options == levels[1]
    with pytest.raises(ConfigError, match="difficulty is 2"):
        SCENES[name].at_difficulty(2)


@pytest.mark.parametrize("name", ["tiny", "toy", "vstar", "deepeyes"])
def test_targets_shrink_with_difficulty(name):
    def share(difficulty: float) -> float:
        options = SCENES[name].at_difficulty(difficulty)
        if isinstance(options, SearchOptions):
            options = dataclasses.replace(options, photo_share=0, sizes=((2048, 1536),))
        tasks = SceneTaskSet(options, "test", size=2)
        return float(
            np.mean([(x2 - x1) * (y2 - y1) / np.prod(t.image.size) for t in tasks for x1, y1, x2, y2 in t.targets])
        )

    shares = [share(d) for d in (0, 0.25, 0.5, 0.75, 1)]
    assert all(a >= b for a, b in zip(shares, shares[1:], strict=False)) and shares[0] > 2 * shares[-1]
