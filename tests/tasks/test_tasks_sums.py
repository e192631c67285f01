"""Generated sums: prices on tags, answers that follow from them, exact boxes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
import re
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.errors import ConfigError
from codev_env.scoring import is_correct
from codev_env.tasks import SceneTaskSet, load_tasks
from codev_env.tasks.generators.answers import choices_for, write
from codev_env.tasks.generators.hr import HRBenchOptions
from codev_env.tasks.generators.sums import CATEGORIES, SumsOptions

SMALL = SumsOptions(sizes=((800, 600),), distractors=(4, 9), target_share=(0.06, 0.08), photo_share=0)


def pixels(task) -> np.ndarray:
    return np.asarray(task.image)


def solve(task) -> str:
    """Answer a question from the prices alone."""
    names = [f"{item['color']} {item['shape']}" for item in task.meta["objects"]]
    prices = [Decimal(item["label"]) for item in task.meta["objects"]]

    def price(name: str) -> Decimal:
        (found,) = [value for other, value in zip(names, prices, strict=True) if other == name]
        return found

    def all_of(many: str) -> list[Decimal]:
        return [p for name, p in zip(names, prices, strict=True) if many in (f"{name}s", f"{name}es", name)]

    question = task.question
    if m := re.match(r"Which costs less, the (.+) or the (.+)\?", question):
        assert price(m[1]) != price(m[2])
        return min(m.groups(), key=price)
    if m := re.match(r"How much do the (.+) and the (.+) cost together\?", question):
        return str(price(m[1]) + price(m[2]))
    if m := re.match(r"How much more does the (.+) cost than the (.+?)\?", question):
        return str(price(m[1]) - price(m[2]))
    if m := re.match(r"How much do (\d+) (.+) cost\?", question):
        (one,) = all_of(m[2])
        return str(int(m[1]) * one)
    if m := re.match(r"How much do all (.+) cost together\?", question):
        return str(sum(all_of(m[1])))
    m = re.match(r"What are the prices of all (.+), from the lowest to the highest\?", question)
    return f"[{', '.join(str(value) for value in sorted(all_of(m[1])))}]"


@pytest.mark.parametrize("category", CATEGORIES)
def test_answers_follow_from_the_prices(category):
    seen = Counter()
    for task in SceneTaskSet(SMALL.only(category), "train", size=40):
        assert task.answer == solve(task)
        assert is_correct(task, task.answer)
        n_targets = len(task.targets)
        assert task.targets == tuple(tuple(item["box"]) for item in task.meta["objects"][:n_targets])
        assert task.meta["targets"] == list(range(n_targets))
        assert n_targets == {"product": 1, "total": n_targets, "list": n_targets}.get(category, 2)
        if task.choices:
            assert len(set(task.choices)) == (2 if category == "compare" else 4) and task.answer in task.choices
        if task.meta["answer_type"] == "float":
            assert len(task.answer.split(".")[1]) == task.meta["precision"] == task.meta["decimals"]
        seen[task.meta["question_type"], task.meta["answer_type"]] += 1
    free = {"list": {"list"}, "compare": {"text"}}.get(category, {"integer", "float"})
    assert {kind for question, kind in seen if question == "free_form"} == free
    assert ("multi_choice", "text") in seen or category == "list"


def test_boxes_hold_object_and_tag_and_do_not_overlap():
    for task in SceneTaskSet(SMALL, "train", size=15):
        count = np.zeros(task.image.size[::-1], int)
        for item in task.meta["objects"]:
            x1, y1, x2, y2 = item["box"]
            a, b, c, d = item["tag_box"]
            assert 0 <= x1 <= a < c <= x2 <= task.image.width and 0 <= y1 < b < d == y2 <= task.image.height
            tag = pixels(task)[b:d, a:c]
            rim = np.concatenate([tag[0], tag[-1], tag[:, 0], tag[:, -1]])
            assert (rim == 20).all() and (tag[1:-1, 1:-1].min() < 90) and (tag[1:-1, 1:-1].max() > 230)
            count[y1:y2, x1:x2] += 1
        assert count.max() == 1


@pytest.mark.parametrize("number", range(8))
def test_without_the_targets_only_their_boxes_change(monkeypatch, number):
    seed = np.random.SeedSequence(number)
    task = SMALL.draw("t", seed)
    real, calls = SumsOptions._paste, itertools.count()

    def paste(self, image, *args):
        return real(self, Image.new("RGB", image.size) if next(calls) < len(task.targets) else image, *args)

    monkeypatch.setattr(SumsOptions, "_paste", paste)
    changed = (pixels(task) != pixels(SMALL.draw("t", seed))).any(2)
    for x1, y1, x2, y2 in task.targets:
        inside = changed[y1:y2, x1:x2]
        rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
        # Where a rim happens to have the colour of the background, the change is a pixel smaller than the target.
        assert max(rows[0], columns[0], y2 - y1 - 1 - rows[-1], x2 - x1 - 1 - columns[-1]) <= 1
        changed[y1:y2, x1:x2] = False
    assert not changed.any()


def test_targets_shrink_with_difficulty():
    def share(difficulty: float) -> float:
        options = dataclasses.replace(SumsOptions(photo_share=0, sizes=((1280, 960),)).at_difficulty(difficulty))
        tasks = SceneTaskSet(options, "test", size=10)
        return float(
            np.mean([(x2 - x1) * (y2 - y1) / np.prod(t.image.size) for t in tasks for x1, y1, x2, y2 in t.targets])
        )

    shares = [share(d) for d in (0, 0.25, 0.5, 0.75, 1)]
    assert all(a > b for a, b in zip(shares, shares[1:], strict=False))


def test_options():
    assert SumsOptions().with_overrides(json.loads(json.dumps(dataclasses.asdict(SMALL)))) == SMALL
    assert pickle.loads(pickle.dumps(SMALL)) == SMALL
    tasks = load_tasks("synthetic", "val", scenes={"preset": "sums", "photo_share": 0}, subset="product")
    assert {tasks[i].category for i in range(5)} == {"product"}
    for changes, message in (
        ({"categories": ("quotient",)}, "one or more of sum, difference"),
        ({"decimals": ()}, "'decimals' is"),
        ({"choice_share": 2}, "'choice_share' is"),
        ({"distractors": (0, 500)}, "places for them"),
    ):
        with pytest.raises(ConfigError, match=message):
            dataclasses.replace(SMALL, **changes)
    with pytest.raises(ConfigError, match="unknown category of sums scenes"):
        SMALL.only("quotient")


def test_splits_differ():
    scenes = {
        json.dumps(SceneTaskSet(SMALL, split)[index].meta["objects"])
        for split in ("train", "val", "test")
        for index in range(5)
    }
    assert len(scenes) == 15


@given(st.integers(-(10**6), 10**6), st.integers(0, 2))
def test_numbers_are_written_exactly(value, decimals):
    assert Decimal(write(value, decimals)) == Decimal(value).scaleb(-decimals)


@given(
    value=st.integers(0, 10**5),
    decimals=st.integers(0, 2),
    tempting=st.lists(st.integers(-5, 10**5), max_size=5),
    least=st.integers(0, 1),
    seed=st.integers(0, 2**32),
)
def test_four_different_choices_hold_the_answer(value, decimals, tempting, least, seed):
    value = max(value, least)
    choices = choices_for(np.random.default_rng(seed), value, decimals, tempting, least)
    assert len(set(choices)) == 4 and write(value, decimals) in choices
    assert all(Decimal(choice) >= Decimal(least).scaleb(-decimals) for choice in choices)


def sets_of(value: int, decimals: int = 0, tempting: tuple[int, ...] = (), least: int = 0) -> set[frozenset[int]]:
    """The choices that a number may get, as numbers."""
    drawn = (choices_for(np.random.default_rng(seed), value, decimals, tempting, least) for seed in range(12))
    return {frozenset(int(Decimal(choice).scaleb(decimals)) for choice in choices) for choices in drawn}


@given(value=st.integers(0, 10**6), decimals=st.integers(0, 2), least=st.integers(0, 1))
def test_each_of_the_choices_might_be_the_right_one(value, decimals, least):
    for choices in sets_of(max(value, least), decimals, least=least):
        assert all(choices in sets_of(other, decimals, least=least) for other in choices)


def test_numbers_of_the_image_are_choices_where_any_of_them_might_be_right():
    shown = (12, 30, 45, 77)
    assert all(sets_of(value, tempting=shown, least=1) == {frozenset(shown)} for value in shown)
    # The sum of two of them is none of them: it would be the largest.
    assert all(len(choices & {12, 30, 45, 77}) == 0 for choices in sets_of(122, tempting=shown, least=1))


def test_the_least_number_is_not_always_the_smallest_choice():
    found = Counter(
        sorted(map(int, choices_for(np.random.default_rng(seed), 1 + seed % 8, least=1))).index(1 + seed % 8)
        for seed in range(800)
    )
    assert min(found.values()) > 160 and len(found) == 4


def test_all_choices_of_a_product_can_be_divided():
    for task in SceneTaskSet(dataclasses.replace(SMALL.only("product"), choice_share=1), "train", size=10):
        pieces = Decimal(task.meta["pieces"]) / 10 ** task.meta["decimals"]
        assert all(Decimal(choice) % pieces == 0 for choice in task.choices)


def test_counts_of_hrbench_scenes_are_each_choice_equally_often():
    ranks = Counter()
    for seed in range(400):
        puzzle = HRBenchOptions()._puzzle(np.random.default_rng(seed), "cross")
        if puzzle.answer:  # that of a position is known once the objects have their places
            ranks[sorted(map(int, puzzle.choices)).index(int(puzzle.answer))] += 1
    assert min(ranks.values()) > 0.8 * sum(ranks.values()) / 4 and len(ranks) == 4
