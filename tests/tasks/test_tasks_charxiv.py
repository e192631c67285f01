"""CharXiv as a checkout of its repository has it: both kinds of questions, and what is known of the figures."""

from __future__ import annotations

import json

import pytest
from real_data import encoded_image, own_cache  # noqa: F401

from codev_env.errors import ConfigError, TaskError
from codev_env.scoring import Score, aggregate
from codev_env.tasks import open_bench

REASONING = {"figure_id": 2, "query": "Which line is lowest?", "answer": "fi", "inst_category": 1, "qa_source": 3}
DESCRIPTIVE = {
    "2": {"figure_id": 2, "num_subplots": 1, "subplot_loc": [0, 0], "qids": [1, 10], "answers": ["Loss", "3"]},
    "7": {"figure_id": 7, "num_subplots": 5, "subplot_loc": [2, 1], "qids": [18, 11], "answers": ["2 by 3", "Yes"]},
    "9": {"figure_id": 9, "num_subplots": 4, "subplot_loc": "the left plot", "qids": [17], "answers": ["14"]},
}
META = {"2": {"category": "cs", "year": "20"}, "7": {"category": "q-bio", "year": "23"}, "9": {"category": "x"}}
CONSTANTS = '''
import os
OTHER = {1: "no"}
DESCRIPTIVE_RESP_INST = {
    1: """{}what is the title?
    * As it is written.
    """,
    10: "{}how many lines are there?", 11: "{}do lines cross?", 17: "{}how many ticks?", 18: "What is the layout?",
}
raise SystemExit("run")
'''


@pytest.fixture
def checkout(tmp_path):
    files = {
        "data/reasoning_val.json": json.dumps({"2": REASONING}),
        "data/descriptive_val.json": json.dumps(DESCRIPTIVE),
        "data/descriptive_test.json": json.dumps({}),
        "data/image_metadata_val.json": json.dumps(META),
        "src/constants.py": CONSTANTS,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "images").mkdir()
    for figure in DESCRIPTIVE:
        (tmp_path / "images" / f"{figure}.jpg").write_bytes(encoded_image(int(figure), kind="JPEG"))
    return tmp_path


def test_descriptive_questions_are_put_together_as_published(checkout):
    tasks = open_bench("charxiv-descriptive", checkout, "val")
    assert [task.task_id for task in tasks] == [f"charxiv-descriptive-{k}" for k in ("2_0", "2_1", "7_0", "7_1", "9_0")]
    assert [task.question.splitlines()[0] for task in tasks] == [
        "For the current plot, what is the title?",
        "For the current plot, how many lines are there?",
        "What is the layout?",
        "For the subplot at row 2 and column 1, do lines cross?",
        "For the left plot, how many ticks?",
    ]
    assert tasks[0].question.endswith("* As it is written.")
    assert [task.category for task in tasks] == [
        *("Information Extraction", "Counting", "Pattern Recognition", "Pattern Recognition", "Compositionality")
    ]
    task = tasks[3]
    assert (task.answer, task.choices, task.image.size) == ("Yes", (), (64, 48))
    assert [str(task.meta["cluster"]) for task in tasks] == ["2", "2", "7", "7", "9"]
    assert {name: task.meta[name] for name in ("qid", "subject", "year", "num_subplots")} == {
        **{"qid": 11, "subject": "q-bio", "year": "23", "num_subplots": 5}
    }
    counting = open_bench("charxiv-descriptive", checkout, "test", subset="Counting")
    assert [task.answer for task in counting] == ["3"]


def test_totals_of_descriptive_questions(checkout):
    tasks = open_bench("charxiv-descriptive", checkout, "val")
    right = (True, False, True, True, False)
    found = aggregate("charxiv-descriptive", [(task, Score(ok)) for task, ok in zip(tasks, right, strict=True)])
    assert found == pytest.approx(
        {
            "overall": 0.6,
            "category/Information Extraction": 1.0,
            "category/Counting": 0.0,
            "category/Pattern Recognition": 1.0,
            "category/Compositionality": 0.0,
            **{"question/Q1": 1.0, "question/Q10": 0.0, "question/Q18": 1.0, "question/Q11": 1.0, "question/Q17": 0.0},
            **{
                "subject/Computer Science": 0.5,
                "subject/Quantitative Biology": 1.0,
                "year/2020": 0.5,
                "year/2023": 1.0,
            },
            **{"subplots/1 Subplot": 0.5, "subplots/2-4 Subplots": 0.0, "subplots/5+ Subplots": 1.0},
        }
    )


def test_reasoning_questions_have_the_same_parts(checkout):
    (task,) = open_bench("charxiv", checkout, "val")
    assert (task.task_id, task.question, task.category) == ("charxiv-2", "Which line is lowest?", "1")
    assert aggregate("charxiv", [(task, True)]) == {
        "overall": 1.0,
        "answer_type/Text-in-Chart": 1.0,
        "source/Completely Human": 1.0,
        "subject/Computer Science": 1.0,
        "subplots/1 Subplot": 1.0,
        "year/2020": 1.0,
    }
    (checkout / "data" / "image_metadata_val.json").unlink()
    (alone,) = open_bench("charxiv", checkout / "data" / "reasoning_val.json", "val")
    assert "subject" not in alone.meta and alone.meta["num_subplots"] == 1


@pytest.mark.parametrize(
    ("kind", "answer", "form"),
    [
        (1, "fi", ""),
        (2, "0.5", ""),
        (3, "0.5", "\nAnswer with a number that is written in the chart."),
        (4, "12", "\nAnswer with an integer."),
        (4, "-0.5", "\nAnswer with a number with 1 decimal."),
        (4, "1.250", "\nAnswer with a number with 3 decimals."),
    ],
)
def test_reasoning_questions_about_numbers_name_the_form_of_the_answer(checkout, kind, answer, form):
    row = REASONING | {"inst_category": kind, "answer": answer}
    (checkout / "data" / "reasoning_val.json").write_text(json.dumps({"2": row}))
    (task,) = open_bench("charxiv", checkout, "val")
    assert (task.question, task.meta["query"]) == (f"Which line is lowest?{form}", "Which line is lowest?")


@pytest.mark.parametrize(
    ("figure", "says"),
    [
        ({"qids": [1]}, "two equal lists"),
        ({"qids": [1, 20]}, "number of a template"),
        ({"qids": [1, 2]}, "number of a template"),
        ({"qids": [1, [2]]}, "number of a template"),
        ({"qids": None}, "two equal lists"),
        ({"answers": ["Loss", ""]}, "'answer' is empty"),
        ({"subplot_loc": [1]}, "subplot_loc"),
        ({"subplot_loc": None}, "subplot_loc"),
    ],
)
def test_figures_that_are_not_of_the_format_are_refused(checkout, figure, says):
    rows = {**DESCRIPTIVE, "2": {**DESCRIPTIVE["2"], **figure}}
    (checkout / "data" / "descriptive_val.json").write_text(json.dumps(rows))
    with pytest.raises(TaskError, match=says):
        open_bench("charxiv-descriptive", checkout, "val")
    with pytest.warns(UserWarning, match="left out 1 of"):
        assert len(open_bench("charxiv-descriptive", checkout, "val", on_error="skip")) >= 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("X = 1", "has no DESCRIPTIVE_RESP_INST"),
        ("DESCRIPTIVE_RESP_INST = open('x')", "cannot be read"),
        ("DESCRIPTIVE_RESP_INST = {1: 2}", "has no DESCRIPTIVE_RESP_INST"),
        ("DESCRIPTIVE_RESP_INST = [", "cannot be read"),
        (None, "src/constants.py"),
    ],
)
def test_the_texts_of_the_questions_are_needed_and_never_run(checkout, text, says):
    (checkout / "src" / "constants.py").unlink()
    if text is not None:
        (checkout / "src" / "constants.py").write_text(text)
    with pytest.raises(TaskError, match=says):
        open_bench("charxiv-descriptive", checkout, "val")


def test_other_folders_and_options_are_refused(checkout):
    (checkout / "data" / "reasoning_val.json").unlink()
    with pytest.raises(TaskError, match=r"needs one file reasoning_val.json"):
        open_bench("charxiv", checkout, "val")
    (checkout / "data" / "image_metadata_val.json").write_text("{")
    with pytest.raises(TaskError, match="image_metadata_val.json: is not JSON"):
        open_bench("charxiv-descriptive", checkout, "val")
    with pytest.raises(ConfigError, match="mode"):
        open_bench("charxiv", checkout, "val", mode="x")
