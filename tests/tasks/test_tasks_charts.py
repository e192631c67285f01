"""Generated charts: exact boxes, answers that follow from the printed values, the answer types of MathVista."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codev_env.errors import ConfigError
from codev_env.scoring import is_correct
from codev_env.tasks import SceneTaskSet, load_tasks
from codev_env.tasks.generators import plotting
from codev_env.tasks.generators.charts import CATEGORIES, ChartOptions
from codev_env.tasks.generators.lettering import lettering

CHARTS = ChartOptions(panels=(1, 4), font=(11, 20))


def pixels(task) -> np.ndarray:
    return np.asarray(task.image)


def asked(task) -> list[dict]:
    return [item for item in task.meta["objects"] if item["panel"] == task.meta["panel"]]


def solve(task) -> str:
    """Answer a question from the printed values alone."""
    title = re.match(r'In the chart "(\w+)": ', task.question)
    question = task.question[title.end() :] if title else task.question
    items = asked(task)
    if title:
        assert task.meta["titles"].count(title[1]) == 1
        assert items == [item for item in task.meta["objects"] if item["title"] == title[1]]
    values = {item["name"]: Decimal(item["value"]) for item in items}
    assert len(values) == len(items) == len(set(values.values()))
    if m := re.match(r"What is the value of (.+?)\?", question):
        return str(values[m[1]])
    if m := re.match(r"Which name has the (largest|smallest) value\?", question):
        return (max if m[1] == "largest" else min)(values, key=values.__getitem__)
    if m := re.match(r"By how much is the value of (.+) greater than that of (.+?)\?", question):
        return str(values[m[1]] - values[m[2]])
    if m := re.match(r"How many values are greater than (.+)\?", question):
        return str(sum(value > Decimal(m[1]) for value in values.values()))
    m = re.match(r"What are the values of (.+) and (.+), in this order\?", question)
    return f"[{values[m[1]]}, {values[m[2]]}]"


@pytest.mark.parametrize("category", CATEGORIES)
def test_answers_follow_from_the_values(category):
    seen = Counter()
    for task in SceneTaskSet(CHARTS.only(category), "train", size=60):
        assert task.answer == solve(task)
        assert is_correct(task, task.answer)
        assert task.category == category
        evidence = [task.meta["objects"][i] for i in task.meta["targets"]]
        assert task.targets[: len(evidence)] == tuple(tuple(item["box"]) for item in evidence)
        assert task.targets[len(evidence) :] == ((tuple(evidence[0]["name_box"]),) if category == "extreme" else ())
        if category == "count":
            assert len(evidence) == int(task.answer) > 0
        if task.choices:
            assert len(set(task.choices)) == 4 and task.answer in task.choices
            assert not any(choice.startswith("-") for choice in task.choices)
        seen[task.meta["question_type"], task.meta["answer_type"]] += 1
    free = {"list": {"list"}, "extreme": {"text"}, "count": {"integer"}}.get(category, {"integer", "float"})
    assert {kind for question, kind in seen if question == "free_form"} == free
    assert ("multi_choice", "text") in seen or category == "list"


def test_float_answers_have_the_precision_they_name():
    floats = 0
    for task in SceneTaskSet(dataclasses.replace(CHARTS, decimals=(1, 2), choice_share=0), "train", size=60):
        if task.meta["answer_type"] == "float":
            floats += 1
            assert len(task.answer.split(".")[1]) == task.meta["precision"]
            assert ("one decimal place" if task.meta["precision"] == 1 else "two decimal places") in task.question
        else:
            assert task.meta["precision"] is None
    assert floats > 5


def shows(crop: np.ndarray, mask: np.ndarray) -> bool:
    """Whether a text stands on a plain ground: one colour where there is no ink, clearly another where there is."""
    ground = crop[mask == 0].astype(int)
    return len(ground) == 0 or (
        bool((ground == ground[0]).all()) and bool((abs(crop[mask > 180] - ground[0]).sum(-1) > 60).all())
    )


def test_every_number_and_name_is_where_its_box_is():
    for task in SceneTaskSet(CHARTS, "train", size=25):
        image = pixels(task)
        count = np.zeros(image.shape[:2], int)
        for item in task.meta["objects"]:
            for text, box in ((item["value"], item["box"]), (item["name"], item["name_box"])):
                x1, y1, x2, y2 = box
                assert 0 <= x1 < x2 <= task.image.width and 0 <= y1 < y2 <= task.image.height
                sizes = [s for s in range(9, 21) if lettering(text, s).mask.size == (x2 - x1, y2 - y1)]
                crop = image[y1:y2, x1:x2]
                assert any(shows(crop, np.asarray(lettering(text, s).mask)) for s in sizes)
                count[y1:y2, x1:x2] += 1
        assert count.max() == 1


def test_marks_are_where_their_boxes_are():
    for task in SceneTaskSet(dataclasses.replace(CHARTS, charts=("bar",)), "train", size=10):
        image = pixels(task)
        for item in task.meta["objects"]:
            x1, y1, x2, y2 = item["mark_box"]
            bar = image[y1:y2, x1:x2]
            assert (bar == bar[0, 0]).all()
            assert all((side != bar[0, 0]).any(1).all() for side in (image[y1:y2, x1 - 1], image[y1:y2, x2]))
            assert (image[y1 - 1, x1:x2] != bar[0, 0]).any(1).all()
    for task in SceneTaskSet(dataclasses.replace(CHARTS, charts=("pie",)), "train", size=10):
        for panel in range(len(task.meta["charts"])):
            items = [item for item in task.meta["objects"] if item["panel"] == panel]
            assert sum(int(item["value"]) for item in items) == 100
            for item in items:
                (x1, y1, x2, y2), (nx1, ny1, nx2, ny2) = item["mark_box"], item["box"]
                assert x1 <= nx1 < nx2 <= x2 and y1 <= ny1 < ny2 <= y2


def test_without_the_numbers_asked_for_only_their_boxes_change(monkeypatch):
    real = plotting.write_centered
    for number in range(8):
        seed = np.random.SeedSequence(number)
        task = CHARTS.draw("t", seed)

        def write(image, *args, targets=task.targets):
            box = real(image.copy(), *args)
            return box if box in targets else real(image, *args)

        with monkeypatch.context() as patch:
            patch.setattr(plotting, "write_centered", write)
            changed = (pixels(task) != pixels(CHARTS.draw("t", seed))).any(2)
        assert changed.any()
        for x1, y1, x2, y2 in task.targets:
            changed[y1:y2, x1:x2] = False
        assert not changed.any()


def test_targets_shrink_with_difficulty():
    def share(difficulty: float) -> float:
        tasks = SceneTaskSet(ChartOptions().at_difficulty(difficulty), "test", size=15)
        return float(
            np.mean([(x2 - x1) * (y2 - y1) / np.prod(t.image.size) for t in tasks for x1, y1, x2, y2 in t.targets])
        )

    shares = [share(d) for d in (0, 0.25, 0.5, 0.75, 1)]
    assert all(a > b for a, b in zip(shares, shares[1:], strict=False))


def test_options():
    assert ChartOptions().with_overrides(json.loads(json.dumps(dataclasses.asdict(CHARTS)))) == CHARTS
    assert pickle.loads(pickle.dumps(CHARTS)) == CHARTS
    tasks = load_tasks("synthetic", "val", scenes="charts", subset="count")
    assert {tasks[i].category for i in range(5)} == {"count"}
    for changes, message in (
        ({"charts": ("radar",)}, "one or more of bar, line, pie"),
        ({"items": (2, 5)}, "'items' is"),
        ({"panels": (1, 9), "sizes": ((300, 300),)}, "no room for legible text"),
        ({"decimals": (3,)}, "'decimals' is"),
        ({"choice_share": -1}, "'choice_share' is"),
    ):
        with pytest.raises(ConfigError, match=message):
            dataclasses.replace(CHARTS, **changes)
    with pytest.raises(ConfigError, match="unknown category of charts 'trend'"):
        CHARTS.only("trend")


@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(st.integers(700, 1700), st.integers(700, 1700)),
    panels=st.integers(1, 4),
    items=st.integers(4, 10),
    font=st.integers(9, 40),
    decimals=st.integers(0, 2),
    seed=st.integers(0, 2**40),
)
def test_any_legal_chart_can_be_drawn(size, panels, items, font, decimals, seed):
    changes = {"sizes": (size,), "panels": (panels, panels), "items": (items, items)}
    try:
        options = dataclasses.replace(CHARTS, **changes, font=(font, font), decimals=(decimals,))
    except ConfigError as error:
        assert "no room for legible text" in str(error)
        return
    task = options.draw("t", np.random.SeedSequence(seed))
    assert task.answer == solve(task)
    for item in task.meta["objects"]:
        for box in (item["box"], item["name_box"], item["mark_box"]):
            assert 0 <= box[0] < box[2] <= size[0] and 0 <= box[1] < box[3] <= size[1]
