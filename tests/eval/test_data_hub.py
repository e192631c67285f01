"""`codev data push` and `pull`: tasks go to a hub on 127.0.0.1 by its real client, and come back as the same tasks."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hub_server import Hub
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from codev_env.app.cli import main
from codev_env.geometry import ImageBox, image_of
from codev_env.tasks import load_tasks
from codev_env.types import Task
from codev_eval.data.hub import data_card, write_data_set
from codev_eval.data.options import PushCommand

constants = pytest.importorskip("huggingface_hub.constants")
TOY = ["--scenes", "toy", "--n", "4"]


@pytest.fixture
def served(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with Hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        address = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
        yield server


def test_tasks_come_back_as_they_were_pushed(served, tmp_path, capsys):
    assert main(["data", "push", "me/scenes", *TOY, "--private"]) == 0
    assert served.kind == "dataset" and served.private is True
    assert set(served.files) == {
        "README.md",
        "test/metadata.jsonl",
        *(f"test/images/{n:06d}.png" for n in range(4)),
    }
    capsys.readouterr()
    assert main(["data", "pull", "me/scenes", "--out", str(tmp_path / "pulled")]) == 0
    said = capsys.readouterr().out
    assert "4 tasks" in said and "--bench dataset" in said
    there, here = (
        load_tasks("synthetic", "test", scenes="toy"),
        load_tasks(str(tmp_path / "pulled"), "test", bench="dataset", reader={"boxes": "xyxy"}),
    )
    assert len(here) == 4
    for index in range(4):
        a, b = there[index], here[index]
        assert (a.task_id, a.question, a.answer, a.choices, a.targets, a.category) == (
            b.task_id,
            b.question,
            b.answer,
            b.choices,
            b.targets,
            b.category,
        )
        assert np.array_equal(a.image, b.image)
    # The command that it prints works as it is.
    words = said.splitlines()[1].split()[1:]
    assert main(words) == 0


def test_the_card_says_what_is_inside_and_no_path(served, tmp_path):
    yaml = pytest.importorskip("yaml")
    made = tmp_path / "secret"
    assert main(["data", "push", "lab/first", *TOY, "--out", str(made)]) == 0
    assert main(["data", "push", "lab/photos", "--bench", "dataset", "--data", str(made), "--n", "2"]) == 0
    card = served.files["README.md"].decode()
    _, header, text = card.split("---\n", 2)
    assert yaml.safe_load(header)["configs"][0]["data_files"] == [{"split": "test", "path": "test/**"}]
    assert "# photos\n" in text and "2 questions" in text and "codev data pull lab/photos" in text
    assert "secret" not in card and "license" not in header


def test_a_failed_upload_names_the_command_that_repeats_it(served, tmp_path, capsys):
    served.refuses = True
    kept = tmp_path / "kept"
    assert main(["data", "push", "me/scenes", *TOY, "--out", str(kept)]) == 1
    assert f"hf upload me/scenes {kept} --repo-type dataset" in capsys.readouterr().err
    assert len((kept / "test" / "metadata.jsonl").read_text().splitlines()) == 4
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".kept")]
    assert main(["data", "push", "me/scenes", *TOY]) == 1
    assert "--out FOLDER" in capsys.readouterr().err


def test_folders_that_hold_something_are_left_alone(served, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("x")
    assert main(["data", "push", "me/scenes", *TOY, "--out", str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err and not served.asked
    assert main(["data", "pull", "me/scenes", "--out", str(tmp_path / "mine.txt")]) == 1
    assert "is a file" in capsys.readouterr().err


def test_tasks_of_several_images_keep_them_all(tmp_path):
    Image.new("RGB", (40, 30), "red").save(tmp_path / "a.png")
    Image.new("RGB", (50, 30), "blue").save(tmp_path / "b.png")
    rows = [{"image": ["a.png", "b.png"], "question": "Which is red?", "answer": "the first"}]
    rows += [{"image": ["b.png"], "question": "Red? <b>", "answer": "no"}]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = load_tasks(str(tmp_path / "data.jsonl"), "test", bench="dataset")
    write_data_set(tmp_path / "out", tasks, PushCommand(repo="me/two", data="x", bench="dataset"))
    again = load_tasks(str(tmp_path / "out"), "test", bench="dataset")
    sizes = [[image.size for image in task.images] for task in (again[0], again[1])]
    assert sizes == [[(40, 30), (50, 30)], [(50, 30)]]
    assert Counter(task.answer for task in (again[0], again[1])) == Counter(["the first", "no"])


def test_a_data_set_that_is_not_there_is_told(served, tmp_path, capsys):
    assert main(["data", "pull", "me/nothing", "--out", str(tmp_path / "x")]) == 1
    assert "me/nothing could not be downloaded" in capsys.readouterr().err


def fields_of(task):
    """Every field of a task, as values that can be compared: pixels, the image of each box, metadata as JSON."""
    found = {entry.name: getattr(task, entry.name) for entry in fields(task)}
    found["images"] = [(image.mode, image.size, image.tobytes()) for image in task.images]
    found["targets"] = [(image_of(box), *box) for box in task.targets]
    found["meta"] = json.loads(json.dumps(dict(task.meta)))
    return found


KINDS = {
    **dict.fromkeys(("album", "chart-page", "charts", "form-page", "glance", "pair", "puzzles", "tiny", "video"), {}),
    **dict.fromkeys(("counting", "sums", "vstar", "hrbench-4k", "tirbench"), {"sizes": [[800, 600]], "difficulty": 0}),
    **dict.fromkeys(("documents", "mvtool"), {"difficulty": 0}),
}


@pytest.mark.parametrize(("name", "wrap"), [*((name, None) for name in KINDS), ("album", "orientation")])
def test_every_field_of_generated_tasks_comes_back(tmp_path, name, wrap):
    scenes = {"preset": name, **KINDS[name]}
    tasks = load_tasks("synthetic", "test", scenes=scenes, wrap=wrap)
    command = PushCommand(repo="me/x", scenes=json.dumps(scenes), n=3)
    write_data_set(tmp_path / "out", tasks, command)
    again = load_tasks(str(tmp_path / "out"), "test", bench="dataset", reader={"boxes": "xyxy"})
    assert again.source == tasks.source
    for index in range(3):
        assert fields_of(again[index]) == fields_of(tasks[index])


@pytest.mark.parametrize(("rules", "size"), [({"images": {"small": "keep"}}, (20, 14)), ({}, (40, 28))])
def test_small_images_come_back_unscaled_unless_rules_are_given(tmp_path, rules, size):
    def opened(data, **rules):
        return load_tasks(data, "test", bench="dataset", reader={"boxes": "xyxy", **rules})

    rows = [{"image": Image.new("RGB", (20, 14)), "question": "?", "answer": "a", "targets": [1, 2, 5, 6]}]
    tasks = opened(rows, **rules)
    assert tasks[0].image.size == size
    write_data_set(tmp_path, tasks, PushCommand(repo="me/x"))
    assert fields_of(opened(str(tmp_path))[0]) == fields_of(tasks[0])
    scaled = opened(str(tmp_path), images={"small": "upscale"})[0]
    assert (scaled.image.size, scaled.targets) == ((40, 28), ((2, 4, 10, 12),))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_every_field_of_any_task_comes_back(data):
    number, seed = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    sizes = [tuple(rng.integers(28, 60, 2).tolist()) for _ in range(number)]
    text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).map(str.strip).filter(bool)
    choices = data.draw(st.lists(text, max_size=4, unique=True).filter(lambda texts: len(texts) != 1))
    value = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5)
    )
    task = Task(
        task_id=data.draw(text),
        images=tuple(Image.fromarray(rng.integers(0, 256, (h, w, 3), np.uint8)) for w, h in sizes),
        question=data.draw(text),
        answer=data.draw(st.sampled_from(choices) if choices else text),
        choices=tuple(choices),
        targets=tuple(
            ImageBox((x, y, int(rng.integers(x, w)) + 1, int(rng.integers(y, h)) + 1), place)
            for place in data.draw(st.lists(st.integers(0, number - 1), max_size=3))
            for w, h in [sizes[place]]
            for x, y in [(int(rng.integers(w)), int(rng.integers(h)))]
        ),
        transform=tuple(data.draw(st.lists(st.sampled_from(["rotate_90", "crop"]), max_size=2))),
        source=data.draw(st.sampled_from(["real", "generated"])),
        category=data.draw(st.just("") | text),
        meta=data.draw(st.dictionaries(st.text(max_size=5), value | st.lists(value, max_size=2), max_size=4)),
        shown=data.draw(st.none() | st.integers(1, number)),
        times=tuple(sorted(rng.random(number).tolist())) if data.draw(st.booleans()) else (),
    )
    with tempfile.TemporaryDirectory() as folder:
        write_data_set(Path(folder), OneTask(task), PushCommand(repo="me/x"))
        (back,) = load_tasks(folder, "test", bench="dataset", reader={"boxes": "xyxy"})
    assert fields_of(back) == fields_of(task)


class OneTask(list):
    """A task set of one task."""

    name = "one"

    def __init__(self, task):
        super().__init__([task])
        self.source = task.source


@pytest.mark.parametrize("name", ["toy", "album"])
def test_datasets_decodes_the_images_of_what_is_pushed(tmp_path, name):
    datasets = pytest.importorskip("datasets")
    tasks = load_tasks("synthetic", "test", scenes=name)
    write_data_set(tmp_path / "out", tasks, PushCommand(repo="me/x", scenes=name, n=3))
    rows = datasets.load_dataset(str(tmp_path / "out"), split="test", cache_dir=str(tmp_path / "cache"))
    again = load_tasks(rows, "test", bench="dataset", reader={"boxes": "xyxy"})
    for index in range(3):
        assert fields_of(again[index]) == fields_of(tasks[index])
    rows.to_parquet(tmp_path / "rows.parquet")
    parquet = load_tasks(str(tmp_path / "rows.parquet"), "test", bench="dataset", reader={"boxes": "xyxy"})
    assert [fields_of(parquet[n]) for n in range(3)] == [fields_of(tasks[n]) for n in range(3)]


def never_load(*_):
    raise AssertionError("tasks are loaded before the name is checked")


@pytest.mark.parametrize("name", ["bad name!", "a/b/c", "-x", "a--b", "me/x.git"])
def test_a_bad_name_is_refused_before_anything_is_loaded(served, tmp_path, capsys, monkeypatch, name):
    monkeypatch.setattr(PushCommand, "load", never_load)
    assert main(["data", "push", *TOY, "--out", str(tmp_path / "kept"), "--", name]) == 1
    said = capsys.readouterr().err
    assert f"REPO is {name!r}; it must be NAME or OWNER/NAME" in said
    assert not served.asked and not (tmp_path / "kept").exists()


def test_a_refused_repository_is_found_before_writing(served, capsys, monkeypatch):
    monkeypatch.setattr("codev_eval.data.hub.write_data_set", never_load)
    served.refuses = True
    assert main(["data", "push", "me/scenes", *TOY]) == 1
    said = capsys.readouterr().err
    assert "me/scenes could not be made: 403" in said and "Nothing was written" in said and "hf auth login" in said


def test_the_files_of_a_failed_upload_stay(served, tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise OSError("connection lost")

    monkeypatch.setattr("huggingface_hub.HfApi.upload_folder", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["data", "push", "me/scenes", *TOY]) == 1
    said = capsys.readouterr().err
    (kept,) = tmp_path.glob("codev-push-*")
    assert f"hf upload me/scenes {kept} --repo-type dataset" in said and "connection lost" in said
    assert len((kept / "test" / "metadata.jsonl").read_text().splitlines()) == 4


def test_nothing_is_left_after_an_upload(served, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["data", "push", "me/scenes", *TOY]) == 0
    assert not list(tmp_path.glob("codev-push-*"))


def test_a_category_with_signs_of_markdown_stays_a_row_of_the_card():
    card = data_card(PushCommand(repo="me/x"), "dataset", Counter(real=3), Counter({"a|b\nc": 2, "": 1}))
    assert "| a\\|b c | 2 |" in card and "| – | 1 |" in card


def test_the_card_of_a_name_without_owner_names_the_owner(served):
    assert main(["data", "push", "scenes", *TOY]) == 0
    card = served.files["README.md"].decode()
    assert "codev data pull me/scenes --out data" in card and "# scenes\n" in card
