"""`codev data show` and `codev data check`, and the options that choose tasks in every command."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codev_env.app.arguments import parse
from codev_env.app.cli import main
from codev_env.errors import ConfigError, TaskError
from codev_env.tasks import SCENES, SceneTaskSet
from codev_eval.bench.choice import TaskChoice
from codev_eval.data import cli as data
from codev_eval.data.sheet import sheet

TOY = SceneTaskSet(SCENES["toy"], "test")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEV_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def table(tmp_path) -> Path:
    """A user's own table: other column names, images in another folder, one of them truncated."""
    (tmp_path / "shots").mkdir()
    rows = []
    for number in range(4):
        Image.new("RGB", (80, 60), (number, 0, 0)).save(tmp_path / "shots" / f"{number}.png")
        rows.append(
            {"photo": f"{number}.png", "q": f"Is it {number}?", "label": "B", "one": "no", "two": f"yes, {number}"}
        )
    broken = tmp_path / "shots" / "2.png"
    broken.write_bytes(broken.read_bytes()[:50])
    path = tmp_path / "table.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def own(table: Path) -> list[str]:
    columns = ["--columns", "image=photo", "question=q", "answer=label", "choices=one,two"]
    return ["--bench", "dataset", "--data", str(table), *columns, "--image-folder", str(table.parent / "shots")]


def choose(*options: str) -> TaskChoice:
    return parse(TaskChoice, ["--data", "synthetic", *options], "codev data")


# ---- which tasks


def test_scenes_may_be_a_name_or_json_and_have_a_difficulty():
    assert choose("--scenes", "toy").load().options == SCENES["toy"]  # type: ignore[attr-defined]
    changed = choose("--scenes", '{"preset": "toy", "cue_p": 0.0, "size": 7}').load()
    assert len(changed) == 7 and changed.options.cue_p == 0.0  # type: ignore[attr-defined]
    hard = choose("--scenes", "toy", "--difficulty", "1").load()
    assert hard.options == SCENES["toy"].at_difficulty(1)  # type: ignore[attr-defined]
    assert choose("--difficulty", "0").load().options == SCENES["vstar"].at_difficulty(0)  # type: ignore[attr-defined]


def test_wrap_may_be_a_suite_names_or_json():
    assert len(choose("--scenes", "toy", "--wrap", "orientation").load()) == 6000
    assert choose("--scenes", "toy", "--wrap", "rotate_90", "source").load()[1].meta["variant"] == "source"
    one = choose("--scenes", "toy", "--wrap", '{"transforms": "orientation", "mode": "one"}').load()
    assert len(one) == 1000


def test_columns_and_reader_describe_your_own_data(table):
    tasks = parse(TaskChoice, [*own(table), "--reader", "shuffle_choices=true", "boxes=xywh"], "codev data").load()
    task = tasks[1]
    assert (task.question, task.answer, sorted(task.choices)) == ("Is it 1?", "yes, 1", ["no", "yes, 1"])
    assert task.image.getpixel((0, 0)) == (1, 0, 0)


def test_only_the_tasks_of_a_file(tmp_path):
    (tmp_path / "some.jsonl").write_text(json.dumps({"task_id": TOY[3].task_id}))
    assert [task.task_id for task in choose("--scenes", "toy", "--only", str(tmp_path / "some.jsonl")).load()] == [
        TOY[3].task_id
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--columns", "image"], "--columns image: write NAME=VALUE"),
        (["--columns", "image=photo"], "columns, reader and image_folder describe your own data"),
        (["--scenes", "{"], "--scenes {: is not JSON"),
        (["--wrap", "orientatio"], "Did you mean the suite 'orientation'"),
        (["--difficulty", "3"], "difficulty is 3.0"),
        (["--data", "synthetc"], "Did you mean 'synthetic'"),
    ],
)
def test_what_cannot_be_used(options, message):
    with pytest.raises(ConfigError, match=message):
        choose(*options).load()


def test_a_column_that_is_not_there_is_told_as_it_is_given(table):
    options = [*own(table), "--columns", "image=foto", "question=q", "answer=label"]
    with pytest.raises(TaskError, match="no column 'foto'. Did you mean 'photo'"):
        parse(TaskChoice, options, "codev data").load()


# ---- show


def test_show_writes_a_file(tmp_path, capsys):
    out = tmp_path / "new" / "sheet.png"
    assert (
        data.main(["show", "--scenes", "toy", "--n", "4", "--per-row", "2", "--width", "600", "--out", str(out)]) == 0
    )
    assert f"{out}: 4 tasks" in capsys.readouterr().out
    with Image.open(out) as written:
        assert np.array_equal(written, sheet(TOY, range(4), 2, 600))


def test_show_takes_what_it_is_told(tmp_path, table):
    out = tmp_path / "sheet.png"

    def shown(*options: str) -> bytes:
        small = ["--n", "2", "--per-row", "2", "--width", "500", "--out", str(out)]
        assert data.main(["show", *options, *small]) == 0
        return out.read_bytes()

    assert shown("--scenes", "toy", "--seed", "3") != shown("--scenes", "toy", "--seed", "4")
    assert shown("--scenes", "toy", "--start", "4") != shown("--scenes", "toy")
    assert shown("--scenes", "toy", "--wrap", "rotate_90") != shown("--scenes", "toy")
    assert shown(*own(table)) != shown("--scenes", "documents", "--difficulty", "0", "--subset", "counting")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "0"], "--n is 0"),
        (["--start", "5000"], "the set has 1000 tasks"),
        (["--start", "1", "--seed", "2"], "not both"),
        (["--difficulty", "3"], "difficulty is 3.0"),
        (["--scenes", "toys"], "unknown scene preset"),
        (["--out", "sheet.unknown", "--n", "1", "--per-row", "1"], "--out .* cannot be written"),
    ],
)
def test_bad_commands(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        data.main(["show", "--scenes", "toy", *arguments])


def test_a_sheet_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    show = ["data", "show", "--scenes", "toy", "--n", "1", "--per-row", "1", "--out", str(tmp_path / "sheet.png")]
    assert main(show) == 0
    before = (tmp_path / "sheet.png").read_bytes()
    monkeypatch.setattr(Path, "write_bytes", full)
    assert main([*show, "--start", "1"]) == 1
    assert "No space left on device. Make room" in capsys.readouterr().err
    assert (tmp_path / "sheet.png").read_bytes() == before and len(list(tmp_path.glob("*.png"))) == 1


# ---- check


def test_check_tells_bad_rows_and_fails(table, capsys):
    assert data.main(["check", *own(table)]) == 1
    out = capsys.readouterr().out
    assert "1 of 4 tasks cannot be used" in out and "     1  the image is broken" in out
    assert f"{table}, line 3: " in out
    # Again, wrapped: what was found is remembered.
    assert data.main(["check", *own(table), "--wrap", "orientation"]) == 1
    assert "1 of 4 tasks" in capsys.readouterr().out


def test_check_counts_rows_whose_metadata_is_bad_and_names_only_so_many(table, capsys):
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[0]["label"] = rows[1]["label"] = "Z"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert data.main(["check", *own(table), "--show", "1"]) == 1
    out = capsys.readouterr().out
    assert "3 of 4 tasks" in out and "     2  the answer is …" in out
    assert "line 1: " in out and "line 2: " not in out and "and 2 more" in out


def test_check_of_good_data(capsys, table):
    assert data.main(["check", "--data", "synthetic", "--scenes", "toy", "--n", "5"]) == 0
    assert "All 5 tasks can be used." in capsys.readouterr().out
    assert data.main(["check", *own(table), "--n", "2"]) == 0
