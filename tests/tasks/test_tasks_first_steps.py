"""Errors that a first attempt with one's own data meets: each names the place and what to change."""

from __future__ import annotations

import json

import gymnasium as gym
import pytest
from PIL import Image

import codev_env  # noqa: F401 - registers the environments
from codev_env.errors import TaskError
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


@pytest.mark.parametrize("data", [[ROW], [ROW, ROW], {"a": ROW, "b": ROW}])
@pytest.mark.parametrize("indent", [None, 0, 2])
def test_json_that_is_named_jsonl(folder, data, indent):
    text = json.dumps(data, indent=indent).encode()
    if isinstance(data, dict) and indent is None:
        pytest.skip("one line with an object is JSONL")
    with pytest.raises(TaskError, match=r"rows\.jsonl: this is JSON, .*name it \.json"):
        load(written(folder / "rows.jsonl", text))


def test_a_json_list_with_a_row_per_line_that_is_named_jsonl(folder):
    lines = [b"[", json.dumps(ROW).encode() + b",", ROW, b"]"]
    with pytest.raises(TaskError, match=r"rows\.jsonl: this is JSON, .*name it \.json"):
        load(written(folder / "rows.jsonl", *lines))
