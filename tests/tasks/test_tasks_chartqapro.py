"""ChartQAPro as the hub's Parquet file and as VLMEvalKit's TSV."""

from __future__ import annotations

import pytest
from real_data import base64_text, encoded_image, own_cache, write_parquet, write_tsv  # noqa: F401

from codev_env.errors import TaskError
from codev_env.scoring import get_scorer
from codev_env.tasks import load_tasks, open_bench

ROWS = [
    {"Question": ["How many?"], "Answer": ["12"], "Question Type": "Factoid", "Year": ["NO"], "Paragraph": ""},
    {
        "Question": ["When did it begin?", "And when did it end?"],
        "Answer": ["2010", "2016"],
        "Question Type": "Conversational",
        "Year": ["YES", "YES"],
        "Paragraph": "The survey ran for years.",
    },
    {"Question": ["It rose."], "Answer": ["true"], "Question Type": "Fact Checking", "Year": ["NO"], "Paragraph": ""},
    {"Question": ["Which?"], "Answer": [""], "Question Type": "Hypothetical", "Year": ["NO"], "Paragraph": ""},
]


def with_images(rows):
    return [{**row, "image": encoded_image(number)} for number, row in enumerate(rows)]


def test_the_hub_s_file(tmp_path):
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", with_images(ROWS))
    tasks = open_bench("chartqapro", tmp_path, "test")
    assert [(task.task_id, task.category, task.answer) for task in tasks] == [
        ("chartqapro-0", "Factoid", "12"),
        ("chartqapro-1", "Conversational", "2016"),
        ("chartqapro-2", "Fact Checking", "true"),
        ("chartqapro-3", "Hypothetical", ""),
    ]
    assert tasks[0].question.startswith("How many?\n\n") and "unanswerable" in tasks[0].question
    talk = tasks[1].question
    assert (
        talk.index("survey ran")
        < talk.index("When did it begin?")
        < talk.index("2010")
        < talk.index("when did it end?")
    )
    assert "2016" not in talk and "true or false" in tasks[2].question
    score = get_scorer("official")
    assert score(tasks[1], "2016").correct and not score(tasks[1], "2017").correct
    assert score(tasks[0], "12.3").correct and not score(tasks[3], "x").correct
    assert [task.answer for task in open_bench("chartqapro", tmp_path, "test", subset="Factoid")] == ["12"]


def test_vlmevalkit_s_file(tmp_path):
    rows = [
        {
            "index": 7,
            "image": base64_text(encoded_image()),
            "question": str(row["Question"]),
            "answer": str(row["Answer"]),
            "question_type": row["Question Type"],
            "year": str(row["Year"]),
        }
        for row in ROWS[1:2]
    ]
    (task,) = open_bench("chartqapro", write_tsv(tmp_path / "ChartQAPro.tsv", rows), "test")
    assert (task.task_id, task.answer, task.meta["year"]) == ("chartqapro-7", "2016", ["YES", "YES"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"Question Type": "Riddle"}, "type is 'Riddle'"),
        ({"Question": ["a", "b"]}, "2 questions and 1 answers"),
        ({"Question": [" "]}, "1 questions"),
        ({"Year": ["2010"]}, "YES or NO"),
        ({"Answer": []}, "1 questions and 0 answers"),
    ],
)
def test_rows_that_are_not_of_the_format_are_refused(tmp_path, changes, says):
    path = write_parquet(tmp_path / "test.parquet", with_images([{**ROWS[0], **changes}]))
    with pytest.raises(TaskError, match=says):
        open_bench("chartqapro", path, "test")


def test_other_files_are_refused(tmp_path):
    path = write_parquet(tmp_path / "test.parquet", [{"image": encoded_image(), "Question": ["a"]}])
    with pytest.raises(TaskError, match="'Answer' or 'answer'"):
        open_bench("chartqapro", path, "test")


def test_generated_charts_stand_in_for_it():
    tasks = load_tasks("synthetic", "test", bench="chartqapro")
    score = get_scorer("official")
    assert all(score(tasks[n], tasks[n].answer).correct for n in range(12))
    assert tasks[0].meta["bench"] == "chartqapro"
