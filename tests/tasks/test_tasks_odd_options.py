"""Options and rows as the published files of TreeBench and MME-RealWorld-Lite have them in a few places."""

from __future__ import annotations

import json

import pytest
from real_data import encoded_image, own_cache  # noqa: F401

from codev_env.benches import BENCHES
from codev_env.errors import TaskError
from codev_env.scoring import aggregate
from codev_env.tasks import open_bench
from codev_env.tasks.readers import hub
from codev_env.tasks.readers.fields import given_options


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("A. red  B. blue \nC. green \nD. white ", ("red", "blue", "green", "white")),
        ("A. It is red. \nB. It is blue. C. It is green. \nD. It is white.", 4),
        ("A. It is red. B. It is blue. C. It is green.", ("It is red.", "It is blue.", "It is green.")),
        ("(A) one (B) two\n(C) three", ("one", "two", "three")),
        ("A cast iron \nB polished copper\n C stone \nD glass", ("cast iron", "polished copper", "stone", "glass")),
        ("A.The third one\nB. The fourth one", ("The third one", "The fourth one")),
        ("A. George\nB. John C. Reilly\nC. Mary", ("George", "John C. Reilly", "Mary")),
        ("A. a long\ntext\nB. another", ("a long\ntext", "another")),
        # The last letter twice: shown as it is published, and the answer's letter keeps its meaning.
        ("(A) left\n(B) right\n(C) above\n(C) none\n(D) other", ("left", "right", "above\n(C) none", "other")),
        (
            ["(A) left", "(B) right", "(C) above", "(C) none", "(D) other"],
            ("left", "right", "above\n(C) none", "other"),
        ),
        (["(A) Lincoln", "(A) Johnson"], ("(A) Lincoln", "(A) Johnson")),
        ("A plan\nand no options", ()),
        ("A plan B", ()),
    ],
)
def test_letters_without_a_point_and_options_that_share_a_line(text, choices):
    found = tuple(given_options(text).values())
    assert len(found) == choices if isinstance(choices, int) else found == choices


def rows_of(tmp_path, bench, rows):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(encoded_image())
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return open_bench(bench, tmp_path / "rows.jsonl", "test")


ROW = {
    "question_id": "Perception/Driving/1",
    "image": "a.png",
    "question": "What color is the light?",
    "options": "(A) red\n(B) green",
    "answer": "B",
    "category": "Autonomous_Driving",
}


def test_rows_that_are_repeated_in_full_all_count(tmp_path):
    tasks = rows_of(tmp_path, "mme-realworld-lite", [ROW, {**ROW, "question_id": "Perception/Driving/2"}, ROW, ROW])
    ids = [task.task_id.removeprefix("mme-realworld-lite-") for task in tasks]
    assert ids == ["Perception/Driving/1", "Perception/Driving/2", "Perception/Driving/1#2", "Perception/Driving/1#3"]
    assert len({task.question for task in tasks}) == 1 and tasks.index_of(tasks[3].task_id) == 3
    scores = aggregate("mme-realworld-lite", [(task, index > 0) for index, task in enumerate(tasks)])
    assert scores["overall"] == scores["Perception/Autonomous_Driving"] == 0.75


def test_rows_with_one_id_and_different_content_are_refused(tmp_path):
    with pytest.raises(TaskError, match="occurs twice"):
        rows_of(tmp_path, "mme-realworld-lite", [ROW, {**ROW, "answer": "A"}])


def test_other_benchmarks_refuse_repeated_rows(tmp_path):
    with pytest.raises(TaskError, match="occurs twice"):
        rows_of(tmp_path, "blink", [ROW, ROW])


@pytest.mark.parametrize("solution", ["White.", ["White."]])
def test_visualprobe_as_its_authors_publish_it(tmp_path, solution):
    folder = tmp_path / "VisualProbe_Easy"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "visual_probe_easy_6.jpg").write_bytes(encoded_image())
    row = {
        "images": ["VisualProbe_Easy/data/visual_probe_easy_6.jpg"],
        "doc_id": "visual_probe_easy_6",
        "problem": "<image>\nWhat is the color of the lamp?",
        "solution": solution,
        "data_source": "visual_probe_easy",
    }
    (folder / "val.json").write_text(json.dumps([row]), "utf-8")
    (task,) = open_bench("visualprobe", folder, "test")
    assert (task.task_id, task.category) == ("visualprobe-visual_probe_easy_6", "visual_probe_easy")
    assert (task.question, task.answer, task.image.size) == ("What is the color of the lamp?", "White.", (64, 48))


def test_o3bench_is_found_as_the_hub_has_it(tmp_path, monkeypatch):
    (tmp_path / "test" / "images" / "chart").mkdir(parents=True)
    (tmp_path / "test" / "images" / "chart" / "1-3.png").write_bytes(encoded_image())
    row = {"file_name": "images/chart/1-3.png", "subset": "chart", "question": "Which?", "options": "A. 1\nB. 2"}
    (tmp_path / "test" / "metadata.jsonl").write_text(json.dumps({**row, "answer": "B"}), "utf-8")
    monkeypatch.setattr(hub, "fetch", lambda bench: tmp_path)
    (task,) = open_bench("o3bench", "hub", "test")
    assert (task.answer, task.image.size) == ("2", (64, 48))
    (tmp_path / "test").rename(tmp_path / "other")
    with pytest.raises(TaskError, match="has none of the files"):
        open_bench("o3bench", "hub", "test")


def test_every_benchmark_of_the_hub_is_looked_for_where_its_files_are():
    for bench in (bench for bench in BENCHES.values() if bench.hub and bench.reader != "vstar"):
        rows = [pattern for pattern in bench.hub.patterns if not pattern.endswith(("/*", ".zip"))]
        folders = {pattern.rpartition("/")[0] for pattern in rows}
        assert folders <= {"", "data", *bench.splits}, bench.name


def test_the_parts_of_visualprobe_are_one_benchmark_by_category(tmp_path):
    for part in ("Easy", "Hard"):
        folder = tmp_path / f"VisualProbe_{part}"
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "1.jpg").write_bytes(encoded_image())
        row = {
            "images": [f"VisualProbe_{part}/data/1.jpg"],
            "doc_id": f"visual_probe_{part.lower()}_1",
            "problem": "<image>\nWhich?",
            "solution": "White.",
            "data_source": f"visual_probe_{part.lower()}",
        }
        (folder / "val.json").write_text(json.dumps([row]), "utf-8")
    tasks = open_bench("visualprobe", tmp_path, "test")
    assert [task.category for task in tasks] == ["visual_probe_easy", "visual_probe_hard"]
    assert len(open_bench("visualprobe", tmp_path, "test", subset="visual_probe_hard")) == 1
    assert len(open_bench("visualprobe", tmp_path / "VisualProbe_Hard", "test")) == 1
    assert set(aggregate("visualprobe", [(task, True) for task in tasks])) == {
        "overall",
        "visual_probe_easy",
        "visual_probe_hard",
    }
