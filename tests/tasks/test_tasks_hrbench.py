"""HR-Bench and V*Bench's TSV port: options in the row's order, letters, cycles."""

from __future__ import annotations

import json

import pytest
from real_data import (  # noqa: F401
    base64_text,
    encoded_image,
    lettered_row,
    open_hrbench4k,
    open_hrbench8k,
    own_cache,
    write_parquet,
    write_tsv,
)

from codev_env.errors import ConfigError, TaskError
from codev_env.scoring import is_correct
from codev_env.tasks.readers.vstar import VStarTaskSet, open_vstar
from codev_env.types import TaskSet


@pytest.fixture
def tsv(tmp_path):
    return write_tsv(tmp_path / "hr_bench_4k.tsv", [lettered_row(i) for i in range(8)])


def test_rows_of_all_cycles(tsv):
    tasks = open_hrbench4k(tsv.parent)
    assert isinstance(tasks, TaskSet)
    assert (len(tasks), tasks.name, tasks.source) == (8, "hrbench4k", "real")
    assert [task.meta["cycle_category"] for task in tasks] == [f"cycle_{i % 4}" for i in range(8)]
    assert [task.choices[0] for task in tasks] == ["red", "blue", "green", "white"] * 2
    assert {task.answer for task in tasks} == {"red"}
    assert [task.meta["label"] for task in tasks] == ["A", "D", "C", "B"] * 2
    assert all(is_correct(task, task.meta["label"]) and not is_correct(task, "blue") for task in tasks)
    task = tasks[tasks.index_of("hrbench4k-5")]
    assert (task.question, task.category, task.targets) == ("What is the color of mug 1?", "cross", ())
    assert (task.image.mode, task.image.size, task.image.getpixel((20, 20))) == ("RGB", (64, 48), (1, 0, 7))
    assert (task.meta["bench"], task.meta["question_type"]) == ("hrbench4k", "multi_choice")
    json.dumps(dict(task.meta))


def test_parquet_equals_tsv_and_is_preferred(tsv):
    from_tsv = list(open_hrbench4k(tsv))
    write_parquet(tsv.with_suffix(".parquet"), [lettered_row(i) for i in range(8)])
    tasks = open_hrbench4k(tsv.parent)
    assert "parquet" in repr(tasks)
    for one, other in zip(from_tsv, tasks, strict=True):
        assert (one.task_id, one.question, one.choices, one.answer) == (
            other.task_id,
            other.question,
            other.choices,
            other.answer,
        )
        assert (one.meta, one.image.tobytes()) == (other.meta, other.image.tobytes())


def test_both_sizes_in_one_folder(tsv):
    write_tsv(tsv.parent / "hr_bench_8k.tsv", [lettered_row(i, question="8K?") for i in range(4)])
    assert len(open_hrbench4k(tsv.parent)) == 8
    tasks = open_hrbench8k(tsv.parent)
    assert (len(tasks), tasks.name, tasks[0].question) == (4, "hrbench8k", "8K?")
    (tsv.parent / "hr_bench_8k.tsv").unlink()
    with pytest.raises(TaskError, match="holds no HR-Bench 8K"):
        open_hrbench8k(tsv.parent)


def test_subset(tsv):
    tasks = open_hrbench4k(tsv, subset="cross")
    assert [task.category for task in tasks] == ["cross"] * 4
    with pytest.raises(ConfigError, match="Did you mean 'cross'"):
        open_hrbench4k(tsv, subset="crosses")


def test_an_image_that_occurs_again_is_the_index_of_its_row(tmp_path):
    rows = [lettered_row(i, image=lettered_row(0)["image"] if i == 0 else "0") for i in range(4)]
    tasks = open_hrbench4k(write_tsv(tmp_path / "hr_bench_4k.tsv", rows))
    assert len({task.image.tobytes() for task in tasks}) == 1
    rows[3]["image"] = "77"
    tasks = open_hrbench4k(write_tsv(tmp_path / "hr_bench_4k.tsv", rows))
    with pytest.raises(TaskError, match=r"line 5: 'image' is '77', which is neither base64 nor another row's index"):
        tasks[3]


def test_texts_with_tabs_quotes_and_line_ends(tmp_path):
    question = 'Which "sign"\tsays:\nOPEN?'
    path = write_tsv(tmp_path / "hr_bench_4k.tsv", [lettered_row(0, question=question, A='"'), lettered_row(1)])
    tasks = open_hrbench4k(path)
    assert (tasks[0].question, tasks[0].choices[0], tasks[1].question) == (question, '"', "What is the color of mug 0?")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "E"}, r"line 4: 'answer' is 'E', but the options are A, B, C, D"),
        ({"answer": ""}, r"line 4: 'answer' is ''"),
        ({"D": "", "answer": "D"}, r"line 4: 'answer' is 'D', but the options are A, B, C\."),
        ({"B": ""}, r"line 4: has the options A, C, D; expected A, B and so on"),
        ({"question": " "}, r"line 4: 'question' is empty"),
        ({"category": "both"}, r"line 4: 'category' is 'both'; expected one of single, cross"),
        ({"cycle_category": ""}, r"line 4: 'cycle_category' is empty"),
        ({"index": 1}, r"line 4: the id 'hrbench4k-1' occurs twice, first in .*line 3"),
        ({"index": ""}, r"line 4: 'index' is empty"),
    ],
)
def test_bad_rows(tmp_path, change, message):
    rows = [lettered_row(i, **(change if i == 2 else {})) for i in range(8)]
    path = write_tsv(tmp_path / "hr_bench_4k.tsv", rows)
    with pytest.raises(TaskError, match=message + r".*on_error='skip'"):
        open_hrbench4k(path)
    with pytest.warns(UserWarning, match="left out 1 of 8 rows"):
        tasks = open_hrbench4k(path, on_error="skip")
    assert len(tasks) == 7
    assert [bad.row for bad in tasks.skipped] == [2]
    assert [task.meta["index"] for task in tasks] == [str(i) for i in range(8) if i != 2]


def test_missing_columns_and_files(tmp_path):
    path = write_tsv(
        tmp_path / "hr_bench_4k.tsv", [{k: v for k, v in lettered_row(0).items() if k != "cycle_category"}]
    )
    with pytest.raises(TaskError, match=r"has no column 'cycle_category'.* Its columns: index, question"):
        open_hrbench4k(path)
    with pytest.raises(TaskError, match="no such file or folder. Expected hr_bench_4k.parquet or hr_bench_4k.tsv"):
        open_hrbench4k(tmp_path / "nothing")
    with pytest.raises(TaskError, match="has no split 'train', only 'test'"):
        open_hrbench4k(path, "train")
    with pytest.raises(TaskError, match="not a file of a known kind"):
        open_hrbench4k(__file__)
    with pytest.raises(ConfigError, match="unknown on_error 'ignore'"):
        open_hrbench4k(path, on_error="ignore")


# ---- V*Bench as TSV


def vstar_rows() -> list[dict]:
    rows = [lettered_row(i, category="direct_attributes") for i in range(2)]
    rows.append(lettered_row(2, category="relative_position", A="left", B="right", C="", D="", answer="B"))
    return [{k: v for k, v in row.items() if k != "cycle_category"} for row in rows]


def test_vstar_tsv(tmp_path):
    path = write_tsv(tmp_path / "VStarBench.tsv", vstar_rows())
    for source in (path, tmp_path):
        tasks = open_vstar(source)
        assert [task.choices for task in tasks] == [
            ("red", "blue", "green", "white"),
            ("blue", "green", "white", "red"),
            ("left", "right"),
        ]
        assert [task.answer for task in tasks] == ["red", "red", "right"]
        assert (tasks[2].category, tasks[2].meta["bench"], tasks[2].targets) == ("relative_position", "vstar", ())
    assert len(VStarTaskSet(tmp_path, category="relative_position")) == 1


def test_vstar_tsv_with_a_wrong_letter(tmp_path):
    rows = vstar_rows()
    rows[1]["answer"] = "F"
    path = write_tsv(tmp_path / "VStarBench.tsv", rows)
    with pytest.raises(TaskError, match="line 3: 'answer' is 'F'"):
        open_vstar(path)


def test_vstar_folder_skips_bad_rows(vstar):
    (vstar / "direct_attributes" / "sa_2.jpg").unlink()
    (vstar / "relative_position" / "sa_9.json").write_text("{")
    with pytest.warns(UserWarning, match="left out 2 of 4 rows"):
        tasks = open_vstar(vstar, on_error="skip")
    assert [task.task_id for task in tasks] == ["direct_attributes-sa_1", "direct_attributes-sa_3"]
    assert ["sa_2.json" in bad.reason or "sa_9.json" in bad.reason for bad in tasks.skipped] == [True, True]


def test_vstar_metadata_for_scorers(vstar):
    meta = open_vstar(vstar)[0].meta
    assert (meta["bench"], meta["question_type"], meta["answer_type"]) == ("vstar", "multi_choice", "text")


def test_base64_that_is_none(tmp_path):
    rows = [lettered_row(0, image="!" * 100), lettered_row(1, image=base64_text(encoded_image())[:-7])]
    tasks = open_hrbench4k(write_tsv(tmp_path / "hr_bench_4k.tsv", rows))
    for index in range(2):
        with pytest.raises(TaskError, match=rf"hr_bench_4k.tsv, line {index + 2}: the image"):
            tasks[index]
