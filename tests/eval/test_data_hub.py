"""`codev data push` and `pull`: tasks go to a hub on 127.0.0.1 by its real client, and come back as the same tasks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hub_server import Hub

from codev_env.app.cli import main
from codev_env.tasks import load_tasks

constants = pytest.importorskip("huggingface_hub.constants")
SCENES = ["--scenes", "toy", "--n", "4"]


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
    assert main(["data", "push", "me/scenes", *SCENES, "--private"]) == 0
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
    assert main(["data", "push", "lab/first", *SCENES, "--out", str(made)]) == 0
    assert main(["data", "push", "lab/photos", "--bench", "dataset", "--data", str(made), "--n", "2"]) == 0
    card = served.files["README.md"].decode()
    _, header, text = card.split("---\n", 2)
    assert yaml.safe_load(header)["configs"][0]["data_files"] == [{"split": "test", "path": "test/*"}]
    assert "# photos\n" in text and "2 questions" in text and "codev data pull lab/photos" in text
    assert "secret" not in card and "license" not in header


def test_a_failed_upload_names_the_command_that_repeats_it(served, tmp_path, capsys):
    served.refuses = True
    kept = tmp_path / "kept"
    assert main(["data", "push", "me/scenes", *SCENES, "--out", str(kept)]) == 1
    assert f"hf upload me/scenes {kept} --repo-type dataset" in capsys.readouterr().err
    assert len((kept / "test" / "metadata.jsonl").read_text().splitlines()) == 4
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".kept")]
    assert main(["data", "push", "me/scenes", *SCENES]) == 1
    assert "--out FOLDER" in capsys.readouterr().err


def test_folders_that_hold_something_are_left_alone(served, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("x")
    assert main(["data", "push", "me/scenes", *SCENES, "--out", str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err and not served.asked
    assert main(["data", "pull", "me/scenes", "--out", str(tmp_path / "mine.txt")]) == 1
    assert "is a file" in capsys.readouterr().err


def test_tasks_of_several_images_keep_them_all(tmp_path):
    from collections import Counter

    from PIL import Image

    from codev_eval.data.hub import write_data_set
    from codev_eval.data.options import PushCommand

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
