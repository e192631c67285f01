"""Tables and task sets over them: laziness, large row groups, caches, pickling, forks, validation."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from real_data import (  # noqa: F401
    base64_text,
    encoded,
    encoded_image,
    lettered_row,
    open_codev_rl,
    open_hrbench4k,
    own_cache,
    verl_row,
    write_parquet,
    write_tsv,
)

from codev_env.errors import TaskError
from codev_env.tasks.readers import parquet
from codev_env.tasks.readers.cache import TASKS
from codev_env.tasks.readers.dataset import open_dataset
from codev_env.tasks.readers.table import JsonlTable, TsvTable
from codev_env.types import TaskSet


@pytest.fixture
def groups(monkeypatch):
    """No row groups remembered from other tests, and a list of those that are read."""
    parquet._GROUPS.clear()
    yield parquet._GROUPS
    parquet._GROUPS.clear()


def rows(count: int, **changes) -> list[dict]:
    return [verl_row(i, **changes) for i in range(count)]


def test_a_row_group_is_read_only_when_asked_for(tmp_path, groups, monkeypatch):
    path = write_parquet(tmp_path / "train.parquet", rows(40), group=10)
    tasks = open_codev_rl(path)
    assert isinstance(tasks, TaskSet)
    assert len(tasks) == 40 and not groups._entries
    assert tasks[35].question == "What is word 35?"
    assert tasks[35].image.getpixel((40, 40)) == (35, 0, 7)
    assert [key[-1] for key in groups._entries] == [3]
    assert tasks[-1].question == "What is word 39?"
    with pytest.raises(IndexError):
        tasks[40]
    with pytest.raises(TypeError):
        tasks["0"]


def test_row_groups_in_memory_are_bounded(tmp_path, groups, monkeypatch):
    path = write_parquet(tmp_path / "train.parquet", rows(100), group=10)
    tasks = open_codev_rl(path)
    tasks[0]
    one = groups._size
    monkeypatch.setattr(groups, "max_size", 3 * one)
    for index in range(100):
        assert tasks[index].task_id == f"codev-rl-train-{index}"
        assert groups._size <= 3 * one + one // 2
    assert len(groups._entries) <= 3


def test_a_large_row_group_is_unpacked_once(tmp_path, groups, own_cache, monkeypatch):  # noqa: F811
    path = write_parquet(tmp_path / "train.parquet", rows(50))
    expected = list(open_codev_rl(path))
    TASKS.clear()
    groups.clear()
    monkeypatch.setattr(parquet, "GROUP_BYTES", 100)
    monkeypatch.setattr(parquet, "_PIECE_BYTES", 2000)
    tasks = open_codev_rl(path)
    assert not (own_cache / "row-groups").exists()
    for index in (49, 0, 17, 18):
        assert tasks[index] == expected[index]
        assert tasks[index].image.tobytes() == expected[index].image.tobytes()
    (arrow,) = (own_cache / "row-groups").glob("*.arrow")
    written = arrow.stat().st_mtime_ns
    assert groups._size == 0
    groups.clear()
    TASKS.clear()
    assert [task.question for task in open_codev_rl(path)] == [task.question for task in expected]
    assert arrow.stat().st_mtime_ns == written
    assert not list((own_cache / "row-groups").glob("*.part"))


def test_no_room_to_unpack(tmp_path, groups, monkeypatch):
    path = write_parquet(tmp_path / "train.parquet", rows(2))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CODEV_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1)
    with pytest.raises(TaskError, match=r"train\.parquet: its row group 0 is too large.*set CODEV_CACHE"):
        open_codev_rl(path)[0]


def test_a_file_that_changed(tmp_path):
    path = write_parquet(tmp_path / "train.parquet", rows(4))
    tasks = open_codev_rl(path)
    write_parquet(path, rows(5))
    with pytest.raises(TaskError, match="has changed since it was opened. Open the data again"):
        tasks[0]
    assert len(open_codev_rl(path)) == 5
    path.unlink()
    with pytest.raises(TaskError, match=r"train\.parquet: cannot be read"):
        tasks[1]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", b"<html>"])
def test_no_parquet(tmp_path, content):
    (tmp_path / "train.parquet").write_bytes(content)
    with pytest.raises(TaskError, match=r"train\.parquet: cannot be read as Parquet .*download"):
        open_codev_rl(tmp_path)


def test_pyarrow_is_not_installed(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "train.parquet", rows(1))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(TaskError, match=r"A Parquet file needs pyarrow .*pip install 'codev-env\[data\]'"):
        open_codev_rl(path)


def test_tasks_are_kept_and_made_once_by_threads(tmp_path, groups):
    tasks = open_codev_rl(write_parquet(tmp_path / "train.parquet", rows(30), group=7))
    assert tasks[3] is tasks[3]
    start = threading.Barrier(8)

    def read(seed: int) -> list[str]:
        start.wait(timeout=30)
        return [tasks[(seed * 7 + i * 11) % 30].question for i in range(60)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, range(8)))
    assert all(
        line == [f"What is word {(seed * 7 + i * 11) % 30}?" for i in range(60)] for seed, line in enumerate(found)
    )


def test_pickled_task_set(tmp_path):
    for tasks in (
        open_codev_rl(write_parquet(tmp_path / "train.parquet", rows(6), group=2)),
        open_hrbench4k(write_tsv(tmp_path / "hr_bench_4k.tsv", [lettered_row(i) for i in range(4)])),
    ):
        again = pickle.loads(pickle.dumps(tasks))
        TASKS.clear()
        assert [task.question for task in again] == [task.question for task in tasks]
        assert again.index_of(tasks[2].task_id) == 2


def _read(tasks, index, queue):
    queue.put(tasks[index].question)


def test_a_forked_process_reads_too(tmp_path, groups):
    tasks = open_codev_rl(write_parquet(tmp_path / "train.parquet", rows(20), group=5))
    tasks[0]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_read, args=(tasks, index, queue)) for index in (3, 12)]
    for child in children:
        child.start()
    assert {queue.get(timeout=60) for _ in children} == {"What is word 3?", "What is word 12?"}
    for child in children:
        child.join(timeout=60)


def test_index_of(tmp_path):
    tasks = open_codev_rl(write_parquet(tmp_path / "train.parquet", rows(3)))
    assert [tasks.index_of(task.task_id) for task in tasks] == [0, 1, 2]
    with pytest.raises(TaskError, match="no task 'x' in .*train.parquet. Ids look like 'codev-rl-train-0'"):
        tasks.index_of("x")


# ---- validation


def broken(count: int, *bad: int) -> list[dict]:
    return [
        verl_row(i, images=[{"bytes": encoded_image(i)[:60] if i in bad else encoded_image(i), "path": None}])
        for i in range(count)
    ]


def test_a_broken_image_is_never_another_task(tmp_path):
    path = write_parquet(tmp_path / "train.parquet", broken(6, 2))
    for on_error in ("raise", "skip"):
        tasks = open_codev_rl(path, on_error=on_error)
        assert len(tasks) == 6
        with pytest.raises(TaskError, match=r"train\.parquet, row 2: the image is broken"):
            tasks[2]
        assert tasks[3].question == "What is word 3?"


def test_validate_is_remembered(tmp_path):
    path = write_parquet(tmp_path / "train.parquet", broken(6, 2, 5))
    tasks = open_codev_rl(path, on_error="skip")
    seen = []
    report = tasks.validate(lambda done, total: seen.append((done, total)))
    assert seen == [(i, 6) for i in range(1, 7)]
    assert report.checked == 6
    assert [bad.row for bad in report.bad] == [2, 5]
    assert all(f"train.parquet, row {bad.row}: the image is broken" in bad.reason for bad in report.bad)
    with pytest.warns(UserWarning, match="left out 2 of 6 rows"):
        good = open_codev_rl(path, on_error="skip")
    assert [task.task_id[-1] for task in good] == ["0", "1", "3", "4"]
    assert [bad.row for bad in good.skipped] == [2, 5]
    assert good.validate().bad == ()
    assert len(open_codev_rl(path)) == 6


def test_validate_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("codev_env.tasks.readers.rowset._CHUNK", 2)
    path = write_parquet(tmp_path / "train.parquet", broken(9, 1, 8))

    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 5:
            raise Stop

    with pytest.raises(Stop):
        open_codev_rl(path).validate(stop)
    seen = []
    report = open_codev_rl(path).validate(lambda done, total: seen.append(done))
    assert seen == [5, 6, 7, 8, 9]
    assert [bad.row for bad in report.bad] == [1, 8]
    assert open_codev_rl(path).validate().bad == report.bad


def test_a_validated_subset_says_nothing_about_the_rest(tmp_path):
    data = broken(6, 0, 5)
    for index, row in enumerate(data):
        row["data_source"] = "chart" if index % 2 else "vstar"
    path = write_parquet(tmp_path / "train.parquet", data)
    assert [bad.row for bad in open_codev_rl(path, subset="chart").validate().bad] == [5]
    assert [bad.row for bad in open_codev_rl(path).validate().bad] == [0, 5]


def test_a_report_that_was_cut_off(tmp_path):
    path = write_parquet(tmp_path / "train.parquet", broken(4, 1))
    report = open_codev_rl(path).validate()
    report.path.write_text(report.path.read_text()[:-4])
    assert [bad.row for bad in open_codev_rl(path).validate().bad] == [1]


def test_a_repaired_image_counts_as_new(vstar):
    from codev_env.tasks.readers.vstar import open_vstar

    image = vstar / "direct_attributes" / "sa_2.jpg"
    whole = image.read_bytes()
    image.write_bytes(whole[:2000])
    assert len(open_vstar(vstar).validate().bad) == 1
    with pytest.warns(UserWarning, match="left out 1 of 4"):
        assert len(open_vstar(vstar, on_error="skip")) == 3
    image.write_bytes(whole)
    tasks = open_vstar(vstar, on_error="skip")
    assert len(tasks) == 4 and tasks[1].image.size == (320, 240)


# ---- text files

CELLS = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\t\n\"'"), max_size=12)


def tsv_text(rows) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter="\t", lineterminator="\n").writerows(rows)
    return stream.getvalue()


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=6))
@example([("", "", "\n")])
def test_tsv_is_read_as_csv_reads_it(tmp_path_factory, cells):
    path = tmp_path_factory.mktemp("tsv") / "rows.tsv"
    written = tsv_text([("a", "b", "c"), *cells])
    path.write_bytes(written.encode())
    table = TsvTable(path)
    expected = list(csv.reader(io.StringIO(written, newline=""), delimiter="\t"))[1:]
    found = [list(table.row(i).values()) for i in range(len(table))]
    # A record of white space alone, without quotes, is an empty line and no row.
    assert found == [line for line in expected if tsv_text([line]).strip()]
    assert table.values("b") == [line[1] for line in found]


def test_tsv_with_a_bare_quote_and_windows_line_ends(tmp_path):
    (tmp_path / "rows.tsv").write_bytes(b'\xef\xbb\xbfa\tb\r\n5" pipe\tx\r\n\r\ny\t"two\r\nlines"\r\n')
    table = TsvTable(tmp_path / "rows.tsv")
    assert [table.row(i) for i in range(len(table))] == [{"a": '5" pipe', "b": "x"}, {"a": "y", "b": "two\r\nlines"}]
    assert table.where(1).endswith("line 4")


def test_tsv_with_a_quote_that_is_never_closed(tmp_path):
    rows = "".join(f"{i}\t{'x' * 200}\n" for i in range(5000))
    (tmp_path / "x.tsv").write_text(f'a\tb\n1\tfine\n"2\topen\n{rows}')
    table = TsvTable(tmp_path / "x.tsv")
    assert len(table) == 2 and table.row(0) == {"a": "1", "b": "fine"}
    assert "line 3: has 1 fields, but the header has 2, because a quote is never closed" in table.problems[1]


def test_tsv_that_names_a_column_twice(tmp_path):
    (tmp_path / "rows.tsv").write_text("index\tanswer\tanswer\n1\tA\tB\n")
    with pytest.raises(TaskError, match="rows.tsv, line 1: the column 'answer' occurs twice"):
        TsvTable(tmp_path / "rows.tsv")
    (tmp_path / "rows.tsv").write_text("index\tanswer\t\t\n1\tA\t\t\n")
    assert TsvTable(tmp_path / "rows.tsv").row(0)["answer"] == "A"


def test_tsv_with_too_many_fields(tmp_path):
    (tmp_path / "rows.tsv").write_text("a\tb\n1\t2\n1\t2\t3\n")
    table = TsvTable(tmp_path / "rows.tsv")
    assert len(table) == 2
    assert "line 3: has 3 fields, but the header has 2" in table.problems[1]


def test_jsonl_keeps_long_fields_on_disk(tmp_path):
    long = "x" * 10_000
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"a": 1, "image": "{long}"}}\n\n{{"a": {{"b": 2}}}}\n{{bad\n[1]\n')
    table = JsonlTable(path)
    assert len(table) == 4
    assert table.values("a") == [1, {"b": 2}, None, None]
    assert table.values("a.b") == [None, 2, None, None]
    assert table.peek(0, "image") is None
    assert table.row(0)["image"] == long
    assert [table.where(i).rpartition(" ")[2] for i in range(4)] == ["1", "3", "4", "5"]
    assert "line 4: is not JSON" in table.problems[2] and "line 5: holds a list" in table.problems[3]


@pytest.mark.parametrize("suffix", ["jsonl", "tsv"])
def test_a_long_question_is_no_empty_one(tmp_path, suffix):
    row = {"image": base64_text(encoded_image()), "question": "Which? " + "word " * 2000, "answer": "x " * 3000 + "x"}
    if suffix == "tsv":
        path = write_tsv(tmp_path / "rows.tsv", [row])
    else:
        path = tmp_path / "rows.jsonl"
        path.write_text(json.dumps(row))
    (task,) = open_dataset(path, "test")
    assert (task.question, task.answer) == (row["question"].strip(), row["answer"])


def test_only_rows_in_which_a_field_is_long_are_read_again(tmp_path, monkeypatch):
    rows = [{"image": "x" * 5000, "question": "short"}, {"image": "x" * 5000, "question": "long " * 1000}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({**row, **({"hint": "1"} if n else {})}) + "\n" for n, row in enumerate(rows)))
    table = JsonlTable(path)
    read: list[int] = []
    whole = JsonlTable._whole
    monkeypatch.setattr(JsonlTable, "_whole", lambda self, index: (read.append(index), whole(self, index))[1])
    assert table.values("hint") == [None, "1"] and table.values("nothing") == [None, None] and read == []
    assert table.values("question") == [row["question"] for row in rows] and read == [1]
