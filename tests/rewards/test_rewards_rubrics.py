"""Which rubric of the released CodeV code scores a task: by its data source, with calculation for unknown ones."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import pytest
from reward_episodes import answer, episode, task

from codev_env.benches import BENCHES, suite_of
from codev_env.rewards import get_reward
from codev_env.rewards.codev import CALCULATION, COUNTING, SEARCH, rubric
from codev_env.tasks import generators, load_tasks
from codev_env.types import Episode, Task


def rubric_of(category: str, bench: str = "", source: str = "real") -> str:
    meta = {"bench": bench} if bench else {}
    return rubric(Episode(dataclasses.replace(task(), category=category, source=source, meta=meta)))


@pytest.mark.parametrize("source", ["MMK12", "geo3k", "ChartQA", "unknown", "VStar", "thinklite_eureka"])
@pytest.mark.parametrize("bench", ["", "codev-rl", "deepeyes", "mathvista", "dataset"])
def test_an_unknown_data_source_is_a_calculation(source: str, bench: str) -> None:
    assert rubric_of(source, bench) == rubric_of(source, bench, "generated") == CALCULATION


def test_a_right_answer_without_code_is_paid_as_a_calculation() -> None:
    unknown = dataclasses.replace(task(), category="MMK12", source="real")
    assert get_reward("tapo-released").value(episode(unknown, answer()))["tool"] == 0.5


@pytest.mark.parametrize("bench", ["", "codev-rl", "vstar"])
def test_named_sources_come_first(bench: str) -> None:
    assert [rubric_of(name, bench) for name in ("vstar", "chart", "high_res")] == [SEARCH] * 3
    assert (rubric_of("GeoQA", bench), rubric_of("IconQA", bench)) == (CALCULATION, COUNTING)


@pytest.mark.parametrize("bench", [*suite_of("zoom"), "mvtool"])
def test_visual_search_benchmarks_stay_searches(bench: str) -> None:
    for category in (*BENCHES[bench].categories, "Perception/OCR", ""):
        assert rubric_of(category, bench) == SEARCH


def test_real_data_with_a_word_that_scenes_use_are_no_scenes() -> None:
    assert rubric_of("count", "chartqapro") == rubric_of("color") == CALCULATION


def test_every_category_of_generated_scenes_is_a_search() -> None:
    names: set[str] = set()
    for found in pkgutil.iter_modules(generators.__path__, f"{generators.__name__}."):
        module = importlib.import_module(found.name)
        names.update(getattr(module, "CATEGORIES", ()))
        for value in vars(module).values():
            names.update(getattr(value, "all_categories", ()) if isinstance(value, type) else ())
    names.update(played(bench).category for bench in ("tirbench", "blink", "video", "codev-rl"))
    assert len(names) > 10 and {name: rubric_of(name, "", "generated") for name in names} == dict.fromkeys(
        names, SEARCH
    )


def played(bench: str) -> Task:
    return load_tasks("synthetic", BENCHES[bench].splits[0], bench=bench)[0]
