"""TIR-Bench: `TIR-Bench.json` with its images in a folder or an archive, and puzzles in its place."""

from __future__ import annotations

import itertools
import json
import zipfile

import gymnasium as gym
import pytest
from real_data import encoded_image, own_cache  # noqa: F401

from codev_env.errors import TaskError
from codev_env.scoring import get_scorer, is_correct
from codev_env.tasks import load_tasks, open_bench
from codev_env.tasks.readers import archives

ROWS = [
    {"id": 0, "task": "color", "prompt": "Which?\nA. red\nB. green", "answer": "B", "image_1": "data/color/0.png"},
    {"id": 1, "task": "jigsaw", "prompt": "Order?", "answer": "2, 1, 3, 4", "meta_data": {"difficulty": 2}},
    {"id": 2, "task": "spot_difference", "prompt": "Where?", "answer": [1, 4], "image_2": "data/spot/2b.png"},
    {"id": 3, "task": "instrument", "prompt": "Volts?", "answer": 3.0},
    {"id": 4, "task": "maze", "prompt": "The letters are in the image.", "answer": "C"},
    {"id": 5, "task": "refcoco", "prompt": "Which ones?\nA. one\nB. two\nC. three", "answer": "AC"},
]
ROWS = [{"image_1": f"data/{row['task']}/{row['id']}.png", "image_2": None, **row} for row in ROWS]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "TIR-Bench.json").write_text(json.dumps(ROWS))
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as file:
        for row in ROWS:
            for name in filter(None, (row["image_1"], row["image_2"])):
                file.writestr(name, encoded_image())
        file.writestr("data/../../escaped.png", encoded_image())
        file.writestr("data/program.py", "raise SystemExit")
    return tmp_path


def test_rows_become_tasks(folder):
    tasks = open_bench("tirbench", folder, "test")
    assert [t.answer for t in tasks] == ["green", "2, 1, 3, 4", "[1, 4]", "3.0", "C", "AC"]
    assert [t.choices for t in tasks] == [("red", "green"), (), (), (), (), ()]
    assert [len(t.images) for t in tasks] == [1, 1, 2, 1, 1, 1]
    assert (tasks[0].question, tasks[0].meta["prompt"]) == ("Which?", ROWS[0]["prompt"])
    assert (tasks[1].category, tasks[1].meta["meta_data"]) == ("jigsaw", {"difficulty": 2})
    assert len(open_bench("tirbench", folder, "test", subset="maze")) == 1
    official = get_scorer("official")
    assert [official(tasks[n], text).points for n, text in ((0, "B"), (1, "1, 2, 3, 4"), (2, "1"))] == [1, 0.5, 0.5]
    assert official(tasks[5], "CA").correct and is_correct(tasks[4], "C")


def test_the_archive_is_unpacked_once_and_stays_in_its_folder(folder, monkeypatch):
    open_bench("tirbench", folder, "test")[0]
    place = archives.unpacked(folder / "data.zip")
    names = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert "data/color/0.png" in names and not any(name.endswith(".py") for name in names)
    assert not list(place.parent.parent.glob("escaped.png")) and not list(place.parent.glob(".partial*"))
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert archives.unpacked(folder / "data.zip") == place


def test_images_beside_the_rows_need_no_archive(folder):
    with zipfile.ZipFile(folder / "data.zip") as file:
        file.extractall(folder, [name for name in file.namelist() if ".." not in name])
    (folder / "data.zip").write_bytes(b"damaged")
    assert len(open_bench("tirbench", folder, "test")[2].images) == 2


@pytest.mark.parametrize("damage", [b"damaged", b""])
def test_a_damaged_archive_is_refused(folder, damage):
    (folder / "data.zip").write_bytes(damage)
    with pytest.raises(TaskError, match="cannot be unpacked"):
        open_bench("tirbench", folder, "test")


def test_an_archive_that_grows_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_LEAST", 1000)
    with zipfile.ZipFile(tmp_path / "data.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.png", bytes(1_000_000))
    with pytest.raises(TaskError, match="far more than images would"):
        archives.unpacked(tmp_path / "data.zip")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"task": "chess"}, "expected one of color, contrast"),
        ({"answer": ""}, "'answer' is empty"),
        ({"answer": None}, "'answer' is empty"),
        ({"prompt": " "}, "'prompt' is empty"),
        ({"id": ""}, "'id' is empty"),
        ({"task": "jigsaw"}, "'difficulty' None"),
        ({"task": "jigsaw", "meta_data": {"difficulty": True}}, "'difficulty' True"),
        ({"id": 1}, "occurs twice"),
    ],
)
def test_rows_that_are_not_of_the_format_are_refused(tmp_path, changes, says):
    (tmp_path / "TIR-Bench.json").write_text(json.dumps([{**ROWS[0], **changes}, ROWS[1]]))
    with pytest.raises(TaskError, match=says):
        open_bench("tirbench", tmp_path, "test")


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "TIR-Bench.json").write_text(json.dumps([{"question": "?", "answer": "A"}]))
    with pytest.raises(TaskError, match="'id'"):
        open_bench("tirbench", tmp_path, "test")


def test_puzzles_have_exact_evidence_and_parts_of_a_point():
    tasks = load_tasks("synthetic", "test", bench="tirbench", scenes="puzzles")
    official = get_scorer("official")
    kinds = set()
    for task in (tasks[n] for n in range(12)):
        kinds.add(task.category)
        numbers = [int(n) for n in task.answer.split(", ")]
        side = task.meta["meta_data"]["difficulty"]
        assert official(task, task.answer).correct and not official(task, "no idea").correct
        assert all(0 <= x1 < x2 <= task.image.width and y2 <= task.image.height for x1, _, x2, y2 in task.targets)
        if task.category == "jigsaw":
            assert sorted(numbers) == list(range(1, side**2 + 1)) and len(task.targets) == side**2
        else:
            assert len(task.targets) == 2 * len(numbers)
            cut = {task.image.crop(box).tobytes() for box in task.targets[:2]}
            assert len(cut) == 2
            assert official(task, task.answer.rsplit(",", 1)[0]).points == pytest.approx(1 - 1 / len(numbers))
    assert kinds == {"jigsaw", "spot_difference"}


def test_a_jigsaw_is_put_together_by_its_answer():
    task = load_tasks("synthetic", "train", scenes={"preset": "puzzles", "pieces": [3, 3], "categories": ["jigsaw"]})[1]
    side = task.image.width // 3
    order = [int(n) - 1 for n in task.answer.split(", ")]
    rows = [[task.image.crop(task.targets[place]).convert("L") for place in order[r * 3 : r * 3 + 3]] for r in range(3)]
    edges = [
        abs(a.getpixel((side - 3, y)) - b.getpixel((2, y)))
        for row in rows
        for a, b in itertools.pairwise(row)
        for y in range(30, side - 4, 10)
    ]
    assert sum(edges) / len(edges) < 30


def test_the_environment_keeps_the_share(tmp_path):
    env = gym.make("codev_env:CodeV-TIRBench-v0", data="synthetic", scenes="puzzles", scorer="official", split="test")
    env.reset(options={"index": 0})
    answer = env.unwrapped.task.answer.split(", ")
    answer[:2] = answer[1::-1]
    _, _, done, _, info = env.step(f"<think>x</think><answer>{', '.join(answer)}</answer>")
    assert done and not info["is_correct"] and 0 < env.unwrapped.episode.share < 1
    env.close()


@pytest.mark.parametrize(
    ("prompt", "choices"),
    [
        ("Which? A. red B. blue", ("red", "blue")),
        ("Which one:\nA. red B) blue", ("red", "blue")),
        ("Is it A. Smith or B. Jones?", ()),
        ("Which is it? A. red", ()),
        ("Which? A. red B. red", ()),
    ],
)
def test_options_may_run_on_in_one_line(tmp_path, prompt, choices):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "0.png").write_bytes(encoded_image())
    row = {"id": 0, "task": "color", "prompt": prompt, "answer": "B", "image_1": "data/0.png"}
    (tmp_path / "TIR-Bench.json").write_text(json.dumps([row]))
    task = open_bench("tirbench", tmp_path, "test")[0]
    assert (task.choices, task.meta["prompt"]) == (choices, prompt)
    assert all(is_correct(task, text) for text in ("B", "B. It", "(B) it", "The answer is B. It"))
    assert not any(is_correct(task, text) for text in ("A", "A. red", "A or B"))
    assert get_scorer("official")(task, "B").points == 1
