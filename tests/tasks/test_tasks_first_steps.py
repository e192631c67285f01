"""Errors that a first attempt with one's own data meets: each names the place and what to change."""

from __future__ import annotations

import json

import gymnasium as gym
import pytest
from PIL import Image

import codev_env  # noqa: F401 - registers the environments
from codev_env.errors import ConfigError, TaskError
from codev_env.tasks import load_tasks

ROW = {"image": "a.png", "question": "Which?", "answer": "cat"}


@pytest.fixture
def folder(tmp_path):
    Image.new("RGB", (60, 40), (9, 0, 0)).save(tmp_path / "a.png")
    return tmp_path


def written(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
    return str(path)


def load(data, split="train", **options):
    return load_tasks(data, split, bench="dataset", **options)


@pytest.mark.parametrize("data", ["", "rows.jsonl"])
def test_rows_of_ones_own_without_a_bench_name_the_one_that_reads_them(folder, data):
    written(folder / "rows.jsonl", ROW)
    with pytest.raises(TaskError, match="use bench='dataset'"):
        load_tasks(str(folder / data), "test")


# ---- boxes


@pytest.mark.parametrize("box", [[0.1, 0.1, 0.2, 0.2], [30, 20, 5, 5]])
def test_advice_about_boxes_can_be_followed_in_an_environment(box):
    rows = [{**ROW, "image": Image.new("RGB", (60, 40)), "targets": box}]
    with pytest.raises(TaskError, match=r"reader=\{'boxes': '(normalized|xywh)'\}") as caught:
        gym.make("CodeV-Dataset-v0", data=rows)
    assert "--reader boxes=" in str(caught.value)
    form = "normalized" if box[0] < 1 else "xywh"
    assert gym.make("CodeV-Dataset-v0", data=rows, reader={"boxes": form}).reset()[1]["source"] == "real"
    with pytest.raises(TaskError, match=r"reader=\{'boxes': …\} \(--reader boxes=…\)"):
        load([{**ROW, "targets": [10, 10, 20, 2000]}], reader={"boxes": "thousand"})


# ---- lines


def test_a_line_that_is_not_utf8_names_file_and_line(folder):
    path = written(folder / "rows.jsonl", ROW, b'{"image": "a.png", "question": "Caf\xe9?", "answer": "cat"}')
    with pytest.raises(TaskError, match=r"rows\.jsonl, line 2: is not UTF-8 text \("):
        load(path)
    with pytest.warns(UserWarning, match=r"rows\.jsonl, line 2: is not UTF-8 text"):
        assert len(load(path, on_error="skip")) == 1


def test_the_first_problem_is_reported_where_no_line_can_be_read(folder):
    with pytest.raises(TaskError, match=r"rows\.jsonl, line 1: is not JSON"):
        load(written(folder / "rows.jsonl", b"{'image': 'a.png'}", b"{'image': 'b.png'}"))
    with pytest.raises(TaskError, match=r"rows\.jsonl, line 1: is not UTF-8"):
        load(written(folder / "rows.jsonl", b'{"image": "\xff"}'), on_error="skip")


@pytest.mark.parametrize(
    ("data", "indent"),
    [([ROW], None), ([ROW], 2), ([ROW, ROW], None), ([ROW, ROW], 0), ({"a": ROW}, 2), ({"a": ROW, "b": ROW}, 0)],
)
def test_json_that_is_named_jsonl(folder, data, indent):
    text = json.dumps(data, indent=indent).encode()
    with pytest.raises(TaskError, match=r"rows\.jsonl: this is JSON, .*name it \.json"):
        load(written(folder / "rows.jsonl", text))


def test_a_json_list_with_a_row_per_line_that_is_named_jsonl(folder):
    lines = [b"[", json.dumps(ROW).encode() + b",", ROW, b"]"]
    with pytest.raises(TaskError, match=r"rows\.jsonl: this is JSON, .*name it \.json"):
        load(written(folder / "rows.jsonl", *lines))


# ---- paths and splits


@pytest.fixture
def offline(monkeypatch):
    """Any call of the hub fails the test."""
    monkeypatch.setattr("codev_env.tasks.readers.dataset.ArrowTable.from_hub", lambda *_: pytest.fail("asked the hub"))


@pytest.mark.parametrize("name", ["d/nope.jsonl", "nope/rows.JSON", "d/a.tsv", "d/a.parquet", "d/a.csv", "d/nope"])
def test_a_missing_path_is_not_asked_of_the_hub(folder, offline, monkeypatch, name):
    monkeypatch.chdir(folder)
    (folder / "d").mkdir()
    with pytest.raises(TaskError, match=rf"^{name}: no such file or folder"):
        load(name)


def test_a_name_of_the_hub_still_is_one(folder, monkeypatch):
    monkeypatch.chdir(folder)
    asked = []
    monkeypatch.setattr(
        "codev_env.tasks.readers.dataset.ArrowTable.from_hub", lambda *name: asked.append(name) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        load("owner/name.v2")
    assert asked == [("owner/name.v2", "train", None)]


@pytest.mark.parametrize("name", ["test", "validation"])
def test_folders_of_other_splits_are_named(folder, name):
    written(folder / "own" / name / "metadata.jsonl", ROW)
    (folder / "own" / "notes").mkdir()
    with pytest.raises(TaskError, match=rf"own: has no split 'train'; it has '{name}'\.$"):
        load(str(folder / "own"))
    with pytest.raises(TaskError, match="none of the files that are expected here"):
        load(str(folder / "own" / "notes"))


def test_csv_is_passed_as_a_frame(folder):
    path = written(folder / "own" / "rows.csv", b"image,question,answer", b"a.png,Which?,cat")
    for data in (path, str(folder / "own")):
        with pytest.raises(TaskError, match="read it with pandas and pass the frame"):
            load(data)


def test_an_image_on_the_web_is_downloaded_first():
    tasks = load([{**ROW, "image": "https://example.com/a.png"}])
    with pytest.raises(TaskError, match=r"'https://example\.com/a\.png'\. URLs are not fetched: download it first"):
        tasks[0]


# ---- arguments of another kind


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": ["image"]}, r"columns is \['image'\]; it must map .*columns={'image': …} \(--columns image=…\)"),
        ({"columns": {"image": 3}}, r"columns\['image'\] is 3; it must be the name of one column"),
        ({"columns": {"choices": [1, 2]}}, r"columns\['choices'\] is \[1, 2\]"),
        ({"reader": "xywh"}, r"reader is 'xywh'; it must map .*reader={'boxes': 'xywh'} \(--reader boxes=xywh\)"),
        ({"reader": ["boxes"]}, r"reader is \['boxes'\]; it must map"),
        ({"wrap": 5}, "^wrap is 5; it must be a suite"),
        ({"only": [0, 1]}, r"only is \[0, 1\]; it must be the path of a file of task ids"),
        ({"only": 3}, "only is 3; it must be the path"),
    ],
)
def test_arguments_of_another_kind_are_named(options, words):
    rows = [{**ROW, "image": Image.new("RGB", (60, 40))}]
    with pytest.raises(ConfigError, match=words):
        gym.make("CodeV-Dataset-v0", data=rows, **options)


def test_a_missing_file_of_tasks_is_named():
    with pytest.raises(TaskError, match=r"only is 'x': no such file\. It must be a file of task ids") as caught:
        gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", only="x")
    assert "Restore" not in str(caught.value)


@pytest.mark.parametrize("name", ["columns", "reader", "image_folder"])
def test_generated_scenes_have_no_columns(name):
    value = {"columns": {"image": "photo"}, "reader": {"boxes": "xywh"}, "image_folder": "d"}[name]
    with pytest.raises(ConfigError, match=rf"option '{name}' is .* only describes data of your own"):
        load("synthetic", **{name: value})


def test_columns_are_asked_for_in_both_forms():
    with pytest.raises(TaskError, match=r"columns={'image': …} \(--columns image=…\)"):
        load([{"question": "?", "answer": "a"}])
    with pytest.raises(TaskError, match=r"columns={'answer': 'gold'} \(--columns answer=…\)"):
        load([ROW], columns={"answer": "gold"})


def test_a_box_that_starts_before_the_image_is_not_taken_for_another_form():
    rows = [{**ROW, "image": Image.new("RGB", (60, 40)), "targets": [-5, 5, 20, 20]}]
    with pytest.raises(TaskError, match=r"\[-5, 5, 20, 20\].* lies outside the image") as caught:
        load(rows)[0]
    assert "1000" not in str(caught.value)
