"""Generated scenes: exact boxes, answerable questions, separate splits, options."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
import unittest
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from codev_env.errors import ConfigError, TaskError
from codev_env.scoring import is_correct
from codev_env.tasks import SCENES, SceneTaskSet, SearchOptions, load_tasks
from codev_env.tasks.generators import drawing, photos, search
from codev_env.tasks.generators.grid import CUES
from codev_env.types import TaskSet

TOY = SCENES["toy"]
SMALL = SearchOptions(sizes=((640, 480), (480, 640)), distractors=(5, 20), photo_share=0.0)


def pixels(task) -> np.ndarray:
    return np.asarray(task.image)


def bounds(mask: np.ndarray) -> list[int]:
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


# ---- every kind


@pytest.mark.parametrize("options", [TOY, SMALL], ids=["toy", "search"])
def test_same_arguments_same_scene(options):
    a, b = SceneTaskSet(options, "val", seed=3)[17], SceneTaskSet(options, "val", size=18, seed=3)[17]
    assert dataclasses.replace(a, images=()) == dataclasses.replace(b, images=())
    assert np.array_equal(pixels(a), pixels(b))


@pytest.mark.integration
@pytest.mark.parametrize(("options", "count"), [(TOY, 100), (SMALL, 25)], ids=["toy", "search"])
def test_no_two_scenes_are_the_same_in_any_split_or_seed(options, count):
    sets = [
        SceneTaskSet(options, split, size=count, seed=seed) for split in ("train", "val", "test") for seed in (0, 1)
    ]
    scenes = Counter(json.dumps(task.meta["objects"]) for tasks in sets for task in tasks)
    assert len(scenes) == 6 * count
    ids = {task.task_id for tasks in sets for task in tasks}
    assert len(ids) == 6 * count


@pytest.mark.parametrize("name", SCENES)
def test_presets(name):
    tasks = load_tasks("synthetic", "train", scenes=name)
    assert isinstance(tasks, TaskSet)
    assert (tasks.source, len(tasks)) == ("generated", 1_000_000)
    task = tasks[999_999]
    assert task.image.mode == "RGB"
    assert task.source == "generated"
    assert task.targets
    assert is_correct(task, task.answer)
    assert tasks.index_of(task.task_id) == 999_999
    json.dumps(dict(task.meta))
    assert pickle.loads(pickle.dumps(tasks))[0].question == tasks[0].question


@pytest.mark.parametrize(("name", "sides"), [("toy", (672, 672)), ("vstar", (1024, 2048)), ("vstar-4k", (2160, 3840))])
def test_sizes_and_small_targets(name, sides):
    for task in SceneTaskSet(SCENES[name], "test", size=3):
        width, height = task.image.size
        assert sides[0] <= min(width, height) and max(width, height) <= sides[1]
        for x1, y1, x2, y2 in task.targets:
            assert 0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height
            if name != "toy":
                assert max(x2 - x1, y2 - y1) <= 0.03 * max(width, height)


def test_index_like_a_sequence():
    tasks = SceneTaskSet(TOY, "test", size=3)
    assert tasks[-1].task_id == tasks[np.int64(2)].task_id
    assert len(list(tasks)) == 3
    for index in (3, -4):
        with pytest.raises(IndexError, match="3 tasks"):
            tasks[index]
    with pytest.raises(TypeError):
        tasks["0"]


@pytest.mark.parametrize(
    "task_id", ["grid-test-0-3", "grid-train-0-0", "grid-test-1-0", "grid-test-0-01", "grid-test-0-", "", "²"]
)
def test_index_of_another_task(task_id):
    with pytest.raises(TaskError, match="grid-test-0-0 to grid-test-0-2"):
        SceneTaskSet(TOY, "test", size=3).index_of(task_id)


# ---- grid


def test_grid_boxes_are_exact():
    for task in SceneTaskSet(dataclasses.replace(TOY, distinct_colors=False, objects=(1, 12)), "train", size=40):
        drawn = (pixels(task) != CUES[task.meta["cue"]]).any(2)
        covered = np.zeros_like(drawn)
        for item in task.meta["objects"]:
            x1, y1, x2, y2 = item["box"]
            assert bounds(drawn[y1:y2, x1:x2]) == [0, 0, x2 - x1, y2 - y1]
            covered[y1:y2, x1:x2] = True
        assert not (drawn & ~covered).any()


def test_grid_objects_and_question():
    for task in SceneTaskSet(TOY, "train", size=60):
        objects = task.meta["objects"]
        assert len({item["color"] for item in objects}) == len(objects) == 6
        assert len({tuple(item["cell"]) for item in objects}) == 6
        target = objects[task.meta["targets"][0]]
        assert task.question == f"What digit is on the {target['color']} {target['shape']}?"
        assert task.answer == str(target["digit"]) == target["label"]
        assert task.targets == (tuple(target["box"]),)
        assert (task.choices, task.category) == ((), "direct_attributes")
        for item in objects:
            (x, y), (x1, y1, x2, y2) = item["cell"], item["box"]
            assert x <= x1 < x2 <= x + 112 and y <= y1 < y2 <= y + 112
            assert 60 <= x2 - x1 <= 72


def test_grid_digit_can_be_read_in_the_crop():
    options = dataclasses.replace(TOY, digits=10)
    for task in SceneTaskSet(options, "train", size=6):
        for item in task.meta["objects"]:
            crop = pixels(task)[slice(item["box"][1], item["box"][3]), slice(item["box"][0], item["box"][2])].astype(
                int
            )
            plate = np.asarray(drawing.badge(item["label"], 3, "3x5")).astype(int)
            windows = np.lib.stride_tricks.sliding_window_view(crop, plate.shape)[:, :, 0]
            assert abs(windows - plate).sum((2, 3, 4)).min() == 0


@pytest.mark.parametrize("name", ["chart-page", "form-page"])
def test_boxes_of_panels_are_exact_and_their_cue_changes_only_the_background(name):
    for index in range(20):
        task = SceneTaskSet(SCENES[name], "test")[index]
        drawn = (pixels(task) != CUES[task.meta["cue"]]).any(2)
        for x1, y1, x2, y2 in (item["box"] for item in task.meta["objects"]):
            assert drawn[y1:y2, x1:x2].all()
            drawn[y1:y2, x1:x2] = False
        assert not drawn.any()
        assert task.targets == (tuple(task.meta["objects"][0]["box"]),)
        other = SceneTaskSet(dataclasses.replace(SCENES[name], cue_p=1.0), "test")[index]
        assert other.meta["objects"] == task.meta["objects"] and other.meta["cue"] == other.meta["objects"][0]["digit"]


def test_the_highest_bar_of_a_chart_is_its_answer():
    for task in SceneTaskSet(SCENES["chart-page"], "train", size=40):
        ((x1, y1, x2, y2),) = task.targets
        color = task.meta["objects"][0]["color"]
        assert task.question == f"Which bar of the {color} chart is highest, counted from 0?"
        dark = (pixels(task)[y1 + 10 : y2 - 4, x1:x2] < 50).all(2).sum(0)
        bars = [max(run) for is_bar, run in itertools.groupby(dark.tolist(), key=bool) if is_bar]
        assert len(bars) == 6 and task.answer == str(np.argmax(bars))
        assert sorted(bars)[-1] > 1.25 * sorted(bars)[-2]


def test_the_letter_of_a_field_is_its_answer():
    for task in SceneTaskSet(dataclasses.replace(SCENES["form-page"], digits=10), "train", size=40):
        ((x1, y1, x2, y2),) = task.targets
        assert task.question == f"What letter is in the {task.meta['objects'][0]['color']} field?"
        plate = np.asarray(drawing.badge(task.answer, 2)).astype(int)
        windows = np.lib.stride_tricks.sliding_window_view(pixels(task)[y1:y2, x1:x2].astype(int), plate.shape)
        assert abs(windows[:, :, 0] - plate).sum((2, 3, 4)).min() == 0
        assert is_correct(task, task.answer) and not is_correct(task, "0")


def test_cue_tells_the_answer_as_often_as_asked():
    def share(cue_p):
        tasks = SceneTaskSet(
            dataclasses.replace(TOY, cue_p=cue_p, glyph=1, cell=24, sprite=20, jitter=1), "train", size=600
        )
        return np.mean([task.meta["cue"] == int(task.answer) for task in tasks])

    assert share(1.0) == 1.0
    assert abs(share(0.9) - (0.9 + 0.1 / 6)) < 0.05
    assert abs(share(0.0) - 1 / 6) < 0.06


def test_cue_changes_only_the_background():
    for index in range(20):
        with_cue = SceneTaskSet(dataclasses.replace(TOY, cue_p=1.0), "test")[index]
        without = SceneTaskSet(dataclasses.replace(TOY, cue_p=0.0), "test")[index]
        assert (with_cue.meta["objects"], with_cue.question) == (without.meta["objects"], without.question)
        assert (with_cue.meta["cue_informative"], without.meta["cue_informative"]) == (True, False)
        assert tuple(pixels(without)[0, 0]) == CUES[without.meta["cue"]]


def test_number_of_objects_is_a_range():
    tasks = SceneTaskSet(dataclasses.replace(TOY, objects=(2, 4)), "train", size=60)
    assert {len(task.meta["objects"]) for task in tasks} == {2, 3, 4}


# ---- search


def without_targets(monkeypatch, seed, n_targets: int):
    """Draw a scene whose targets, which are drawn first, end up on another image."""
    real, calls = search._paste, itertools.count()

    def paste(image, *args):
        return real(Image.new("RGB", image.size) if next(calls) < n_targets else image, *args)

    with monkeypatch.context() as patch:
        patch.setattr(search, "_paste", paste)
        return SMALL.draw("t", seed)


@pytest.mark.parametrize("number", range(12))
def test_search_boxes_are_exact(monkeypatch, number):
    """Without the targets, only pixels in their boxes change, and the change reaches all four sides of a box."""
    seed = np.random.SeedSequence(0, spawn_key=(number,))
    task = SMALL.draw("t", seed)
    changed = (pixels(task) != pixels(without_targets(monkeypatch, seed, len(task.targets)))).any(2)
    for x1, y1, x2, y2 in task.targets:
        # Where a rim happens to have the colour of the background, the change is a pixel smaller than the target.
        assert np.abs(np.array(bounds(changed[y1:y2, x1:x2])) - [0, 0, x2 - x1, y2 - y1]).max() <= 1
        changed[y1:y2, x1:x2] = False
    assert not changed.any()


def test_search_objects_do_not_overlap():
    for task in SceneTaskSet(SMALL, "train", size=20):
        count = np.zeros(task.image.size[::-1], int)
        for item in task.meta["objects"]:
            x1, y1, x2, y2 = item["box"]
            count[y1:y2, x1:x2] += 1
        assert count.max() == 1


def test_attribute_questions_have_one_answer():
    kinds = Counter()
    for task in SceneTaskSet(SMALL, "train", size=80):
        if task.category != "direct_attributes":
            continue
        target, *others = task.meta["objects"]
        assert task.targets == (tuple(target["box"]),)
        assert len(set(task.choices)) == 4 and task.answer in task.choices
        assert not set(task.choices) & set("ABCD")
        if "color" in task.question:
            kinds["color"] += 1
            assert task.question == f"What is the color of the {target['shape']}?"
            assert task.answer == target["color"]
            assert all(item["shape"] != target["shape"] for item in others)
        else:
            kinds[task.question.split()[1]] += 1
            assert task.question.endswith(f"is on the {target['color']} {target['shape']}?")
            assert task.answer == target["label"]
            assert all((item["color"], item["shape"]) != (target["color"], target["shape"]) for item in others)
            assert any(item["color"] == target["color"] or item["shape"] == target["shape"] for item in others)
    assert set(kinds) == {"color", "letter", "digit"}


def test_position_questions_have_one_answer():
    answers = Counter()
    for task in SceneTaskSet(dataclasses.replace(SMALL, categories=("relative_position",)), "train", size=80):
        first, second, *others = task.meta["objects"]
        axis = 0 if "left or right" in task.question else 1
        a, b = ((box[axis] + box[axis + 2]) / 2 for box in task.targets)
        assert abs(a - b) >= 0.1 * task.image.size[axis]
        before, after = ("left", "right") if axis == 0 else ("above", "below")
        assert task.answer == (before if a < b else after)
        assert set(task.choices) == {before, after}
        assert task.question.startswith(f"Is the {first['color']} {first['shape']} ")
        assert task.question.endswith(f" the {second['color']} {second['shape']}?")
        looks = [(item["color"], item["shape"]) for item in (first, second)]
        assert len(set(looks)) == 2
        assert not any((item["color"], item["shape"]) in looks for item in others)
        answers[task.answer] += 1
        answers[f"place {task.choices.index(task.answer)}"] += 1
    assert min(answers.values()) > 10 and len(answers) == 6


def test_photographs_are_used_where_they_are_installed():
    if not photos.photographs():
        pytest.skip("scikit-image and scikit-learn are not installed (extra `photos`)")
    options = dataclasses.replace(SMALL, photo_share=1.0)
    backgrounds = {task.meta["background"] for task in SceneTaskSet(options, "train", size=40)}
    assert all(name.startswith("photo:") for name in backgrounds) and len(backgrounds) > 1


@pytest.mark.integration
@pytest.mark.parametrize("preset", ["vstar", "hrbench-4k", "mvtool", "codev-rl"])
def test_splits_share_no_photograph(preset):
    if not photos.photographs():
        pytest.skip("scikit-image and scikit-learn are not installed (extra `photos`)")
    files = {split: set(photos.photographs(split)) for split in ("train", "val", "test")}
    assert set().union(*files.values()) == set(photos.photographs())
    assert sum(map(len, files.values())) == len(photos.photographs())
    assert files["train"] and files["test"]
    seen = {}
    for split in ("train", "test"):
        tasks = load_tasks("synthetic", split, scenes={"preset": preset, "size": 12})
        seen[split] = {tasks[i].meta.get("background", "") for i in range(12)} - {"", "texture"}
    assert not seen["train"] & seen["test"]


def test_scenes_with_directions_show_which_way_is_up():
    assert {"F", "L", "2", "4"} <= set(drawing.telling())
    assert not {"A", "H", "0", "8", "6", "9", "M", "W"} & set(drawing.telling())
    rng = np.random.default_rng(0)
    for _ in range(500):
        puzzle = search.position_puzzle(rng, (0, 1))
        assert any(look.label in drawing.telling() for look in puzzle.looks)


def test_without_photographs_one_warning_and_the_same_objects(monkeypatch):
    options = dataclasses.replace(SMALL, photo_share=1.0)
    usual = SceneTaskSet(options, "train")[0]
    photos.photographs.cache_clear()
    monkeypatch.setattr(photos.importlib.util, "find_spec", lambda name: None)
    try:
        with unittest.TestCase().assertLogs(photos.logger) as logged:
            scenes = [SceneTaskSet(options, "val")[i] for i in range(3)]
            seed = np.random.SeedSequence(0, spawn_key=(0, 0))
            same = options.draw("t", seed)
    finally:
        photos.photographs.cache_clear()
    assert {scene.meta["background"] for scene in [*scenes, same]} == {"texture"}
    assert same.meta["objects"] == usual.meta["objects"]
    (record,) = logged.records
    assert record.levelname == "WARNING" and "codev-env[photos]" in record.getMessage()


@pytest.mark.parametrize("shape", drawing.SHAPES)
def test_shapes_fill_their_masks(shape):
    for side in (24, 37, 72):
        mask = np.asarray(drawing.mask(shape, side))
        assert bounds(mask > 0) == [0, 0, mask.shape[1], mask.shape[0]]
        assert max(mask.shape) <= side and min(mask.shape) >= side * 0.5
        assert (mask == 255).mean() > 0.2


# ---- options


@pytest.mark.parametrize(
    ("scenes", "message"),
    [
        ("toi", "unknown scene preset 'toi'. Did you mean 'toy'"),
        ({"preset": "v-star"}, "unknown scene preset 'v-star'. Did you mean 'vstar'"),
        ({"preset": 3}, "unknown scene preset 3"),
        ({"preset": "toy", "glyf": 2}, "unknown option of grid scenes 'glyf'. Did you mean 'glyph'"),
        ({"preset": "toy", "distractors": [1, 2]}, "unknown option of grid scenes 'distractors'"),
        ({"preset": "toy", "cell": "112"}, "'cell' is '112'; its type must be int"),
        ({"preset": "toy", "cell": True}, "'cell' is True; its type must be int"),
        ({"preset": "toy", "objects": 6}, "'objects' is 6; its type must be tuple"),
        ({"preset": "toy", "objects": [1, 2, 3]}, "its type must be tuple"),
        ({"preset": "toy", "objects": [3, 2]}, "'objects' is .3, 2.; it must be a pair"),
        ({"preset": "toy", "objects": [1, 9]}, "<= 8"),
        ({"preset": "toy", "cue_p": 1.5}, "'cue_p' is 1.5; it must be a probability"),
        ({"preset": "toy", "jitter": 21}, "'jitter' is 21; it must be from 0 to .* = 20"),
        ({"preset": "toy", "glyph": 20}, "'glyph' is 20"),
        ({"preset": "toy", "size": 0}, "size of generated scenes is 0"),
        ({"preset": "toy", "seed": -1}, "seed of generated scenes is -1"),
        ({"preset": "toy", "seed": "1"}, "seed of generated scenes is '1'"),
        ({"sizes": [[100, 100]]}, "'sizes'"),
        ({"sizes": [["a", "b"]]}, "'sizes' is .*its type must be"),
        ({"sizes": []}, "'sizes'"),
        ({"distractors": [10, 900]}, "places for them; use at most"),
        ({"attributes": ["material"]}, "one or more of color, letter, digit"),
        ({"categories": []}, "one or more of direct_attributes, relative_position"),
        ({"photo_share": -1}, "'photo_share' is -1"),
    ],
)
def test_bad_options_are_named(scenes, message):
    with pytest.raises(ConfigError, match=message):
        load_tasks("synthetic", "train", scenes=scenes)


def test_options_from_json():
    given_options = json.loads('{"preset": "toy", "cue_p": 0, "objects": [2, 3], "seed": 5, "size": 7}')
    tasks = load_tasks("synthetic", "val", scenes=given_options)
    assert len(tasks) == 7
    same = SceneTaskSet(dataclasses.replace(TOY, cue_p=0, objects=(2, 3)), "val", size=7, seed=5)
    assert tasks[6].meta == {**same[6].meta, "bench": "vstar"}
    assert dataclasses.replace(tasks[6], images=(), meta={}) == dataclasses.replace(same[6], images=(), meta={})
    assert given_options == {"preset": "toy", "cue_p": 0, "objects": [2, 3], "seed": 5, "size": 7}


def test_subset_of_scenes_is_a_category():
    tasks = load_tasks("synthetic", "val", scenes=SMALL, subset="relative_position")
    assert {tasks[i].category for i in range(8)} == {"relative_position"}
    with pytest.raises(ConfigError, match="unknown category of search scenes"):
        load_tasks("synthetic", "val", scenes="vstar", subset="colors")
    with pytest.raises(ConfigError, match="unknown category of grid scenes"):
        load_tasks("synthetic", "val", scenes="toy", subset="relative_position")


def test_unknown_split():
    with pytest.raises(ConfigError, match="unknown split 'valid'. Did you mean 'val'"):
        SceneTaskSet(TOY, "valid")


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["toy", "chart-page", "form-page"]),
    st.integers(1, 5),
    st.integers(24, 60),
    st.integers(1, 10),
    st.booleans(),
    st.floats(0, 1),
    st.integers(0, 2**40),
    st.data(),
)
def test_any_legal_grid_can_be_drawn(name, grid, cell, digits, distinct, cue_p, seed, data):
    sprite = data.draw(st.integers(16, cell))
    if name == "chart-page":
        digits = min(digits, (sprite - 4) // 3)
    most = min(grid**2, 8)
    objects = tuple(sorted(data.draw(st.tuples(st.integers(1, most), st.integers(1, most)))))
    options = dataclasses.replace(
        SCENES[name],
        grid=grid,
        cell=cell,
        sprite=sprite,
        jitter=data.draw(st.integers(0, (cell - sprite) // 2)),
        glyph=data.draw(st.integers(1, sprite // 12)),
        digits=digits,
        objects=objects,
        distinct_colors=distinct,
        cue_p=cue_p,
    )
    task = SceneTaskSet(options, "train", seed=seed)[seed % 1_000_000]
    assert task.image.size == (grid * cell, grid * cell)
    assert objects[0] <= len(task.meta["objects"]) <= objects[1]
    for item in task.meta["objects"]:
        x1, y1, x2, y2 = item["box"]
        assert 0 <= x1 < x2 <= grid * cell and 0 <= y1 < y2 <= grid * cell
