"""The loader: where tasks come from, and the cache they share."""

from __future__ import annotations

import pickle
import threading
import warnings

import gymnasium as gym
import pytest
from PIL import Image

from codev_env.errors import ConfigError, TaskError
from codev_env.tasks import SCENES, SceneTaskSet, load_tasks
from codev_env.tasks.readers.cache import SizedCache, pixels_of
from codev_env.types import Task


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A working directory without data."""
    place = tmp_path / "nowhere"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("CODEV_DATA", raising=False)
    return place


def test_auto_takes_the_benchmark_from_the_data_folder(nowhere, vstar, monkeypatch):
    monkeypatch.setenv("CODEV_DATA", str(vstar.parent))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tasks = load_tasks("auto", "test")
    assert (tasks.source, len(tasks)) == ("real", 4)


def test_auto_takes_the_benchmark_from_the_working_directory(nowhere, vstar, monkeypatch):
    (nowhere / "data").mkdir()
    vstar.rename(nowhere / "data" / "vstar_bench")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_tasks("auto", "test").source == "real"


def test_auto_without_data_warns_once(nowhere):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        tasks = load_tasks("auto", "test", scenes="toy")
        assert tasks[0].source == "generated"
    assert len(seen) == 1
    assert "no V*Bench found" in str(seen[0].message) and "vstar_bench" in str(seen[0].message)
    assert seen[0].filename == __file__


def test_auto_generates_the_splits_that_the_benchmark_lacks(nowhere, vstar, monkeypatch):
    monkeypatch.setenv("CODEV_DATA", str(vstar.parent))
    with pytest.warns(UserWarning, match="no split 'train'"):
        assert load_tasks("auto", "train").source == "generated"


def test_a_path_may_be_an_object(vstar):
    assert load_tasks(vstar, "test").source == "real"
    with gym.make("CodeV-VStar-v0", data=vstar) as env:
        assert env.spec.kwargs["data"] == vstar and env.unwrapped.tasks.source == "real"
        assert pickle.loads(pickle.dumps(env.unwrapped)).tasks.source == "real"


def test_auto_does_not_hide_a_broken_benchmark(nowhere, vstar, monkeypatch):
    monkeypatch.setenv("CODEV_DATA", str(vstar.parent))
    (vstar / "direct_attributes" / "sa_1.jpg").unlink()
    with pytest.raises(TaskError, match="sa_1"):
        load_tasks("auto", "test")


def test_synthetic_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_tasks("synthetic", "test").name == "search-test-0"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"split": "tests"}, "unknown split 'tests'. Did you mean 'test'"),
        ({"bench": "vstars"}, "unknown bench 'vstars'. Did you mean 'vstar'"),
        ({"data": "some/folder", "scenes": "toy"}, "scenes only describe generated tasks"),
        ({"data": "synthetc"}, "data is 'synthetc', which is no file or folder. Did you mean 'synthetic'"),
        ({"data": "hubb"}, "Did you mean 'hub'"),
        ({"wrap": "orientatio"}, "Did you mean the suite 'orientation'"),
        ({"wrap": "orientation+jpeg:3"}, "'orientation' is a suite of many transforms: give it alone"),
        ({"wrap": "rotate_9"}, "Did you mean 'rotate_90'"),
        ({"wrap": ["orientation", "rotate_90"]}, "'orientation' is a suite of many transforms: give it alone"),
        ({"image_folder": "x"}, "columns, reader and image_folder describe your own data"),
    ],
)
def test_options_that_cannot_be_used(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        load_tasks(**{"data": "synthetic", "split": "test", **kwargs})


@pytest.mark.parametrize(
    ("bench", "looked_for"),
    [("vstar", "direct_attributes/"), ("hrbench4k", "hr_bench_4k.parquet"), ("dataset", "no such file or folder")],
)
def test_a_path_that_is_not_there_tells_what_was_looked_for(nowhere, bench, looked_for):
    with pytest.raises(TaskError, match=f"nothing: no such file or folder.*{looked_for}|nothing: {looked_for}"):
        load_tasks(str(nowhere / "nothing"), "test", bench=bench)


def test_a_folder_named_nearly_like_a_word_is_a_folder(nowhere, vstar):
    vstar.rename(nowhere / "hubs")
    assert len(load_tasks("hubs", "test")) == 4


# ---- cache


def task_of(width: int) -> Task:
    return Task(task_id=str(width), images=(Image.new("RGB", (width, 1)),), question="?", answer="a")


def test_task_sets_of_the_same_scenes_share_their_images():
    first, second = SceneTaskSet(SCENES["toy"], "test"), SceneTaskSet(SCENES["toy"], "test")
    assert first[3] is second[3]
    assert first[3] is not SceneTaskSet(SCENES["toy"], "test", seed=1)[3]


def test_each_task_is_made_once_for_all_threads():
    cache, made, go = SizedCache(1000, pixels_of), [], threading.Event()

    def make():
        made.append(1)
        go.wait(5)
        return task_of(3)

    results = []
    threads = [threading.Thread(target=lambda: results.append(cache.get("key", make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(made) == 1
    assert len(results) == 8 and len({id(r) for r in results}) == 1


def test_the_task_used_longest_ago_is_dropped_first():
    cache, made = SizedCache(25, pixels_of), []

    def get(width):
        return cache.get(width, lambda: made.append(width) or task_of(width))

    for width in (10, 11, 10, 12, 10, 11):
        get(width)
    assert made == [10, 11, 12, 11]


def test_a_task_above_the_limit_is_returned_all_the_same():
    assert SizedCache(5, pixels_of).get("big", lambda: task_of(50)).image.width == 50


def test_errors_are_not_remembered():
    cache = SizedCache(100, pixels_of)

    def fail():
        raise TaskError("broken")

    with pytest.raises(TaskError, match="broken"):
        cache.get("key", fail)
    assert cache.get("key", lambda: task_of(4)).image.width == 4
