"""Transforms on pixels and boxes, and task sets that are wrapped in them."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.errors import ConfigError, TaskError
from codev_env.tasks import VStarTaskSet, load_tasks
from codev_env.tasks.readers.cache import TASKS
from codev_env.tasks.wrappers import TransformedTaskSet, parse_variant, parse_wrappers, suite, wrap_tasks
from codev_env.transforms import (
    TRANSFORMS,
    compose,
    inverse,
    needed,
    orientation,
    transform_box,
    transform_image,
    transform_size,
)
from codev_env.types import Task, TaskSet

names = st.sampled_from(("identity", *TRANSFORMS))


def noise(size: tuple[int, int]) -> Image.Image:
    rng = np.random.default_rng(size[0] * 1000 + size[1])
    return Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def same(a: Image.Image, b: Image.Image) -> bool:
    return a.size == b.size and np.array_equal(np.asarray(a), np.asarray(b))


@st.composite
def sizes_and_boxes(draw):
    width, height = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    x1, y1 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    return (width, height), (x1, y1, draw(st.integers(x1 + 1, width)), draw(st.integers(y1 + 1, height)))


# ---- images and boxes


@given(sizes_and_boxes(), names)
def test_a_box_holds_the_same_pixels_before_and_after(case, name):
    size, box = case
    image = noise(size)
    after = transform_image(image, name)
    assert after.size == transform_size(size, name)
    assert same(after.crop(transform_box(box, size, name)), transform_image(image.crop(box), name))


@given(sizes_and_boxes(), names)
def test_the_inverse_brings_pixels_and_boxes_back(case, name):
    size, box = case
    image, undo = noise(size), inverse(name)
    assert same(transform_image(transform_image(image, name), undo), image)
    assert transform_box(transform_box(box, size, name), transform_size(size, name), undo) == box


@given(sizes_and_boxes(), st.lists(names, max_size=5))
def test_a_composition_does_what_its_parts_do_in_order(case, parts):
    size, box = case
    image = noise(size)
    step, step_box = image, box
    for name in parts:
        step_box = transform_box(step_box, step.size, name)
        step = transform_image(step, name)
    whole = compose(parts)
    assert same(transform_image(image, whole), step)
    assert transform_box(box, size, whole) == step_box


def test_rotations_turn_counter_clockwise_as_in_pillow_and_numpy():
    image = noise((7, 4))
    for angle in (90, 180, 270):
        turned = transform_image(image, f"rotate_{angle}")
        assert same(turned, image.rotate(angle, expand=True))
        assert np.array_equal(np.asarray(turned), np.rot90(np.asarray(image), angle // 90))
    assert np.array_equal(np.asarray(transform_image(image, "flip_horizontal")), np.asarray(image)[:, ::-1])
    assert np.array_equal(np.asarray(transform_image(image, "flip_vertical")), np.asarray(image)[::-1])


@pytest.mark.parametrize("name", ["identity", *TRANSFORMS])
def test_orientations_are_those_that_provenance_reports(name):
    from codev_env.provenance.coordinates import fit_affine, orientation_of

    size = (6, 4)
    points = [(x, y, x + 1, y + 1) for x in range(size[0]) for y in range(size[1])]
    after = [transform_box(point, size, name) for point in points]
    fit = fit_affine(np.array(after, float)[:, :2] + 0.5, np.array(points, float)[:, :2] + 0.5, 0.01)
    assert fit is not None
    assert orientation_of(fit[0]) == orientation(name)


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_what_undoes_a_rotation_is_the_rotation_by_the_rest_of_the_circle(angle):
    assert needed([f"rotate_{angle}"]) == {f"rotate_{360 - angle}"}


def test_needed_operations():
    assert needed([]) == needed(["rotate_90", "rotate_270"]) == needed(["jpeg:3"]) == frozenset()
    assert needed(["flip_horizontal"]) == {"flip_horizontal"}
    assert needed(["crop", "rotate_90", "fog:2"]) == {"crop", "rotate_270"}
    assert needed(["rotate_90", "rotate_90"]) == {"rotate_180"}
    assert needed(["flip_horizontal", "flip_vertical"]) == {"rotate_180"}


@pytest.mark.parametrize("call", [lambda n: inverse(n), lambda n: transform_image(noise((2, 2)), n), orientation])
def test_an_unknown_transform_is_told_with_the_nearest_name(call):
    with pytest.raises(ConfigError, match="rotate_91.*Did you mean 'rotate_90'"):
        call("rotate_91")


# ---- wrapped task sets


class Listed:
    """A task set of given tasks."""

    source = "generated"
    name = "listed"

    def __init__(self, *tasks: Task) -> None:
        self.tasks = tasks

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]

    def index_of(self, task_id: str) -> int:
        for index, task in enumerate(self.tasks):
            if task.task_id == task_id:
                return index
        raise TaskError(f"no task {task_id!r}")


def toy() -> TaskSet:
    return load_tasks("synthetic", "test", scenes="toy")


def test_every_task_comes_in_every_variant():
    inner = toy()
    tasks = TransformedTaskSet(inner, suite("orientation"))
    assert isinstance(tasks, TaskSet)
    assert (len(tasks), tasks.source) == (6 * len(inner), "generated")
    for number in (0, 3, 5, 6, 6 * len(inner) - 1):
        task, plain = tasks[number], inner[number // 6]
        name = ("source", "rotate_90", "rotate_180", "rotate_270", "flip_horizontal", "flip_vertical")[number % 6]
        assert task.task_id == f"{plain.task_id}@{name}"
        assert tasks.index_of(task.task_id) == number
        assert (task.question, task.answer, task.choices) == (plain.question, plain.answer, plain.choices)
        assert task.transform == (() if name == "source" else (name,))
        step = "identity" if name == "source" else name
        assert same(task.image, transform_image(plain.image, step))
        for box, before in zip(task.targets, plain.targets, strict=True):
            assert same(task.image.crop(box), transform_image(plain.image.crop(before), step))
        assert task.meta["source_task_id"] == plain.task_id
        assert task.meta["source_size"] == list(plain.image.size)
        assert task.meta["variant"] == name
        json.dumps(dict(task.meta))
    assert tasks[-1].task_id == tasks[len(tasks) - 1].task_id


def test_subset_selects_one_variant():
    inner = toy()
    tasks = TransformedTaskSet(inner, suite("orientation"), subset="rotate_90")
    assert len(tasks) == len(inner)
    assert [tasks[i].transform for i in range(3)] == [("rotate_90",)] * 3
    whole = TransformedTaskSet(inner, suite("orientation"))
    assert whole[whole.index_of(tasks[2].task_id)].task_id == tasks[2].task_id


def test_all_images_are_transformed_and_targets_belong_to_the_first():
    task = Task("a", (noise((8, 4)), noise((3, 5))), "?", "!", targets=((1, 0, 3, 2),), meta={"bench": "x"})
    tasks = TransformedTaskSet(Listed(task), ["transverse"])
    assert [image.size for image in tasks[0].images] == [(4, 8), (5, 3)]
    assert same(tasks[0].image.crop(tasks[0].targets[0]), transform_image(task.image.crop((1, 0, 3, 2)), "transverse"))
    assert tasks[0].meta["bench"] == "x"
    assert tasks.name == "listed@transverse"


def test_vstar_folder(vstar):
    inner = VStarTaskSet(vstar)
    tasks = TransformedTaskSet(inner, ["rotate_270"])
    assert (tasks.source, tasks[0].source) == ("real", "real")
    for task, plain in zip(tasks, inner, strict=True):
        assert task.image.size == plain.image.size[::-1]
        for box, before in zip(task.targets, plain.targets, strict=True):
            assert same(task.image.crop(box), transform_image(plain.image.crop(before), "rotate_270"))
        assert task.choices == plain.choices


def test_nested_sets_compose_and_keep_the_innermost_source():
    inner = toy()
    tasks = TransformedTaskSet(TransformedTaskSet(inner, ["rotate_90"]), ["flip_horizontal"])
    task = tasks[4]
    assert task.transform == ("rotate_90", "flip_horizontal")
    assert same(task.image, transform_image(inner[4].image, compose(task.transform)))
    assert task.meta["source_task_id"] == inner[4].task_id
    assert task.meta["variant"] == "rotate_90+flip_horizontal"
    assert tasks.index_of(task.task_id) == 4
    chained = TransformedTaskSet(inner, ["rotate_90+flip_horizontal"])[4]
    assert same(chained.image, task.image) and chained.targets == task.targets


def tiny_task(task_id: str) -> Task:
    return Task(task_id, (noise((3, 2)),), "?", "!")


@given(st.sets(st.text(max_size=6), min_size=1, max_size=30), st.integers(0, 5), st.data())
def test_the_one_variant_of_a_task_depends_on_its_id_and_the_seed_alone(ids, seed, data):
    some = data.draw(st.permutations(sorted(ids)))[: max(1, len(ids) // 2)]
    everything = TransformedTaskSet(Listed(*map(tiny_task, sorted(ids))), suite("orientation"), "one", seed)
    part = TransformedTaskSet(Listed(*map(tiny_task, some)), suite("orientation"), "one", seed)
    assert len(part) == len(some)
    assert {task.task_id for task in part} <= {task.task_id for task in everything}
    for number, task in enumerate(part):
        if task.meta["source_task_id"]:
            assert part.index_of(task.task_id) == number


def test_shares_of_the_variants():
    inner = Listed(*(tiny_task(f"t{i}") for i in range(600)))
    equal = [task.meta["variant"] for task in TransformedTaskSet(inner, suite("orientation"), "one")]
    assert all(60 <= equal.count(name) <= 145 for name in suite("orientation"))
    options = {
        "transforms": ["source", "rotate_90", "rotate_180"],
        "mode": "one",
        "shares": {"source": 3, "rotate_90": 1},
    }
    weighted = [task.meta["variant"] for task in wrap_tasks(inner, options)]
    assert weighted.count("rotate_180") == 0
    assert 400 <= weighted.count("source") <= 500
    assert weighted != [task.meta["variant"] for task in wrap_tasks(inner, {**options, "seed": 1})]


def test_ids_that_do_not_exist():
    inner = toy()
    each = TransformedTaskSet(inner, ["rotate_90"])
    one = TransformedTaskSet(inner, ["rotate_90", "rotate_180"], "one")
    other = {"rotate_90": "rotate_180", "rotate_180": "rotate_90"}[one[0].meta["variant"]]
    plain = inner[0].task_id
    for tasks, task_id in [
        (each, plain),
        (each, f"{plain}@flip_vertical"),
        (each, "x@rotate_90"),
        (each, "@rotate_90"),
    ]:
        with pytest.raises(TaskError):
            tasks.index_of(task_id)
    with pytest.raises(TaskError, match=f"has the variant {one[0].meta['variant']!r}"):
        one.index_of(f"{plain}@{other}")
    with pytest.raises(IndexError, match="out of range"):
        each[len(inner)]
    with pytest.raises(IndexError):
        each[-len(inner) - 1]


def test_tasks_are_made_once_and_sets_do_not_mix_in_the_cache():
    inner = toy()
    a, b = TransformedTaskSet(inner, ["rotate_90"]), TransformedTaskSet(inner, ["rotate_180"])
    assert a[0] is a[0]
    assert (a[0].transform, b[0].transform) == (("rotate_90",), ("rotate_180",))
    TASKS.clear()
    assert same(a[0].image, transform_image(inner[0].image, "rotate_90"))


def test_pickled_sets_give_the_same_tasks():
    tasks = TransformedTaskSet(toy(), suite("orientation"), "one", seed=3)
    again = pickle.loads(pickle.dumps(tasks))
    for number in (0, 9):
        a, b = tasks[number], again[number]
        assert replace(a, images=()) == replace(b, images=())
        assert same(a.image, b.image)


# ---- how wrapping is asked for


def test_specs():
    inner = toy()
    assert wrap_tasks(inner, None) is inner and wrap_tasks(inner, []) is inner
    assert len(wrap_tasks(inner, "orientation")) == 6 * len(inner)
    assert wrap_tasks(inner, "rotate_90").name == f"{inner.name}@rotate_90"
    both = wrap_tasks(inner, ["rotate_90", " transpose "])
    assert [both[0].transform, both[1].transform] == [("rotate_90",), ("transpose",)]
    assert len(wrap_tasks(inner, {"transforms": "orientation", "mode": "one"})) == len(inner)
    assert len(wrap_tasks(inner, "orientation", subset="source")) == len(inner)
    assert parse_variant(" rotate_90 + flip_vertical ").name == "rotate_90+flip_vertical"


def test_tasks_can_be_told_to_need_a_crop():
    inner = toy()
    asked, turned = wrap_tasks(inner, ["crop"]), wrap_tasks(inner, "rotate_90+crop")
    number = next(i for i in range(len(inner)) if inner[i].targets)
    assert asked[number].transform == ("crop",) and turned[number].transform == ("rotate_90", "crop")
    assert asked[number].targets == inner[number].targets and same(asked[number].image, inner[number].image)
    assert needed(turned[number].transform) == {"rotate_270", "crop"}
    nowhere = Listed(replace(inner[number], targets=()))
    assert wrap_tasks(nowhere, ["crop"])[0].transform == ()
    assert wrap_tasks(nowhere, "rotate_90+crop")[0].transform == ("rotate_90",)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("crop:2", "only corruptions have"),
        ("rotat_90", "Did you mean 'rotate_90'"),
        (["rotate_90", "jpg:3"], "Did you mean 'jpeg:3'"),
        (["corrption"], "Did you mean the suite 'corruption'"),
        ("jpeg", "severity from 1 to 5. Write for example 'jpeg:3'"),
        ("jpeg:6", "severity from 1 to 5"),
        ("rotate_90:2", "only corruptions have"),
        ("rotate_90+", "unknown transform ''"),
        ([3], "it must be a name"),
        (3, "a suite .* or a list"),
        (["rotate_90", "rotate_90"], "given twice"),
        ({"transforms": []}, "Give at least one"),
        ('{"transforms": []}', "Give at least one"),
        ('{"transforms"', "is not JSON .* in quotes"),
        ({"transform": "orientation"}, "Did you mean 'transforms'"),
        ({"mode": "one"}, "without 'transforms'"),
        ({"transforms": "orientation", "mode": "eech"}, "Did you mean 'each'"),
        ({"transforms": "orientation", "seed": -1}, "seed is -1"),
        ({"transforms": "orientation", "severities": [1]}, "only an option of the corruption suite"),
        ({"transforms": "corruption", "severities": [6]}, "numbers from 1 to 5"),
        ({"transforms": "orientation", "shares": {"source": 1}}, "Use mode='one'"),
        ({"transforms": "orientation", "mode": "one", "shares": {"sorce": 1}}, "Did you mean 'source'"),
        ({"transforms": "orientation", "mode": "one", "shares": {"source": 0}}, "not all of them 0"),
        ({"transforms": "orientation", "mode": "one", "shares": {"source": -1, "rotate_90": 3}}, "at least 0"),
    ],
)
def test_specs_that_cannot_be_used(spec, message):
    with pytest.raises(ConfigError, match=message):
        wrap_tasks(toy(), spec)


def test_subsets_that_cannot_be_used():
    with pytest.raises(ConfigError, match="Did you mean 'rotate_90'"):
        wrap_tasks(toy(), "orientation", subset="rotate_9")
    with pytest.raises(ConfigError, match="mode='each'"):
        wrap_tasks(toy(), {"transforms": "orientation", "mode": "one"}, subset="rotate_90")


def test_unknown_suite_and_options_as_parsed():
    with pytest.raises(ConfigError, match="Did you mean 'orientation'"):
        suite("orientations")
    options = parse_wrappers({"transforms": ["source", "rotate_90"], "mode": "one", "seed": 4, "shares": {"source": 2}})
    assert options is not None
    assert (options.transforms, options.mode, options.seed, options.shares) == (
        ("source", "rotate_90"),
        "one",
        4,
        (2, 0),
    )
