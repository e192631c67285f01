"""Reading every task of a set once: what is bad is counted and named, whatever kind of set it is."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from real_data import lettered_row, own_cache, write_parquet, write_tsv  # noqa: F401

from codev_env.errors import TaskError
from codev_env.tasks import check_tasks, load_tasks
from codev_env.tasks.check import Checked, kind_of, summary
from codev_env.tasks.readers.rowset import RowTaskSet


@pytest.fixture
def photos(tmp_path):
    """Six rows: two with a truncated image, one whose answer is no choice."""
    (tmp_path / "photos").mkdir()
    rows = []
    for number in range(6):
        path = tmp_path / "photos" / f"{number}.png"
        Image.new("RGB", (64, 48), (number, 0, 0)).save(path)
        if number in (1, 4):
            path.write_bytes(path.read_bytes()[:60])
        rows.append({"image": path.name, "question": f"Is it {number}?", "answer": "a", "choices": ["a", "b"]})
    rows[2]["answer"] = "z"
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def open_photos(path, **options):
    return load_tasks(
        str(path), "test", bench="dataset", image_folder=path.parent / "photos", on_error="skip", **options
    )


def lines_of(checked):
    return [bad.reason.split(":")[0].rpartition(" ")[2] for bad in checked.bad]


@pytest.mark.filterwarnings("ignore:.*left out")
def test_bad_rows_are_counted_and_named(photos):
    seen = []
    checked = check_tasks(open_photos(photos), progress=lambda done, total: seen.append((done, total)))
    assert checked.checked == 6 and lines_of(checked) == ["2", "3", "5"]
    assert [(kind[:19], len(bad)) for kind, bad in checked.kinds().items()] == [
        ("the image is broken", 2),
        ("the answer is …, wh", 1),
    ]
    assert seen[-1] == (5, 5)
    text = "\n".join(summary(checked, most=2))
    assert "3 of 6 tasks cannot be used" in text and "     2  the image is broken" in text
    assert f"{photos}, line 2" in text and "line 5" not in text and "and 1 more" in text
    # The findings are stored: the rows are left out, and still reported.
    again = open_photos(photos)
    assert len(again) == 3 and lines_of(check_tasks(again)) == ["2", "3", "5"]


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("wrap", ["orientation", {"transforms": "orientation", "mode": "one"}])
def test_of_a_wrapped_set_the_sources_are_read(photos, wrap):
    tasks = open_photos(photos, wrap=wrap)
    checked = check_tasks(tasks)
    assert checked.checked == 6 and lines_of(checked) == ["2", "3", "5"]


@pytest.mark.filterwarnings("ignore:.*left out")
def test_only_the_first_ones(photos):
    # The third row was left out when the data was opened.
    assert lines_of(check_tasks(open_photos(photos), n=2)) == ["3", "2"]
    assert check_tasks(open_photos(photos, wrap=["source", "rotate_90"]), n=3).checked == 3


@pytest.mark.filterwarnings("ignore:.*left out")
def test_a_filtered_set_is_read_in_its_own_order(photos, tmp_path):
    only = tmp_path / "only.jsonl"
    only.write_text('{"task_id": "dataset-4"}\n{"task_id": "dataset-0"}\n')
    checked = check_tasks(open_photos(photos, only=only))
    assert checked.checked == 2 and lines_of(checked) == ["5"]


def test_good_data_is_good(tmp_path):
    path = write_tsv(tmp_path / "hr_bench_4k.tsv", [lettered_row(i) for i in range(4)])
    checked = check_tasks(load_tasks(str(path), "test", bench="hrbench4k"))
    assert (checked.checked, checked.bad) == (4, ())
    assert list(summary(checked)) == ["All 4 tasks can be used."]
    assert list(summary(Checked(1, ()))) == ["The only task can be used."]
    assert check_tasks(load_tasks("synthetic", "test", scenes="toy"), n=3).checked == 3


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("a/t.parquet, row 17: the image is broken (cannot read (x)). Download it again.", "the image is broken"),
        ("x.jsonl, line 3: /a/images/b.jpg: the image has 9000x10 pixels, more than", "the image has … pixels"),
        ("t.tsv, line 4: 'answer' is 'E', but the options are A, B", "'answer' is …, but the options are …"),
        ("t.tsv, line 4: the id 'a-1' occurs twice, first in t.tsv, line 3.", "the id … occurs twice"),
        ("a.json: 'bbox' is [1, 2]; expected a list. Do.", "'bbox' is …, expected a list"),
        ("a.json, line 1: the image /a/b/c.jpg is missing. Download it.", "the image … is missing"),
        ("a.json, line 1: the image My photos/c (1) d.jpg is missing. Download it.", "the image … is missing"),
        ("it failed", "it failed"),
    ],
)
def test_reasons_of_one_kind_are_told_apart_from_their_values(reason, kind):
    assert kind_of(reason) == kind


@pytest.mark.filterwarnings("ignore:.*left out")
def test_the_image_folder_counts(photos, tmp_path):
    with pytest.raises(TaskError, match="line 1: the image .*0.png is missing"):
        load_tasks(str(photos), "test", bench="dataset", reader={"shuffle_choices": True}, on_error="skip")[0]
    with pytest.raises(TaskError, match="image_folder .*none: no such folder"):
        load_tasks(str(photos), "test", bench="dataset", image_folder=tmp_path / "none")
    assert open_photos(photos)[0].image.size == (64, 48)


def parquet(path, rows):
    return write_parquet(path.with_suffix(".parquet"), rows)


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("write", [jsonl, parquet])
@pytest.mark.parametrize(
    "cell", [str, lambda name: [name], lambda name: {"path": name}], ids=["path", "list", "mapping"]
)
@pytest.mark.parametrize("folder", [".", "images"])
def test_images_that_changed_since_are_read_again(tmp_path, own_cache, write, cell, folder, monkeypatch):  # noqa: F811
    (tmp_path / folder).mkdir(exist_ok=True)
    places = [tmp_path / folder / f"{number}.png" for number in range(60)]
    for place in places:
        Image.new("RGB", (64, 48), "red").save(place)
    whole = places[0].read_bytes()
    places[3].unlink()
    rows = [{"image": cell(place.name), "question": "?", "answer": "a"} for place in places]
    path = write(tmp_path / "rows.jsonl", rows)

    def bad_and_read(on_error="raise"):
        read = []
        task = RowTaskSet._task
        monkeypatch.setattr(RowTaskSet, "_task", lambda self, row, draft: read.append(row) or task(self, row, draft))
        checked = check_tasks(load_tasks(str(path), "test", bench="dataset", on_error=on_error))
        monkeypatch.setattr(RowTaskSet, "_task", task)
        assert checked.checked == 60
        return [bad.row for bad in checked.bad], read

    assert bad_and_read() == ([3], list(range(60)))
    assert bad_and_read() == ([3], [])
    places[2].unlink()
    places[55].write_bytes(whole[:60])
    assert bad_and_read() == ([2, 3, 55], [2, 55])
    assert bad_and_read("skip") == ([2, 3, 55], [])
    for place in places:
        if not place.is_file() or place.read_bytes() != whole:
            place.write_bytes(whole)
    assert bad_and_read("skip") == ([], [2, 3, 55])
    assert bad_and_read() == ([], [])
