"""Annotation files of newer benchmarks, in the forms in which public code writes and reads them."""

from __future__ import annotations

import json

import pytest
from real_data import base64_text, encoded_image, own_cache, write_parquet, write_tsv  # noqa: F401

from codev_env.errors import TaskError
from codev_env.scoring import is_correct
from codev_env.tasks import load_tasks, open_bench

OPTIONS = "A. To the left \nB. To the right\nC. Front right\nD. Front left"
TREE = {
    "question": "In which direction is the sign?",
    "answer": "C",
    "category": "Reasoning/Perspective Transform",
    "target_instances": "[[6.0, 5.0, 19.0, 29.0], [40.0, 10.0, 49.0, 17.0]]",
}


def write_jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return path


def put_image(path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded_image(**options))


def test_treebench_as_tsv_has_the_boxes_of_the_evidence(tmp_path):
    image = base64_text(encoded_image())
    rows = [{"index": i, "image": image, "multi-choice options": OPTIONS, **TREE} for i in range(3)]
    tasks = open_bench("treebench", write_tsv(tmp_path / "TreeBench.tsv", rows), "test")
    task = tasks[2]
    assert (len(tasks), task.task_id, task.category) == (3, "treebench-2", TREE["category"])
    assert task.choices == ("To the left", "To the right", "Front right", "Front left")
    assert (task.answer, task.meta["label"]) == ("Front right", "C")
    assert task.targets == ((6, 5, 19, 29), (40, 10, 49, 17))
    assert is_correct(task, "<answer>C</answer>") and not is_correct(task, "B")


def test_treebench_as_jsonl_has_its_images_in_a_folder(tmp_path):
    put_image(tmp_path / "TreeBench" / "images" / "image_000000.jpg")
    row = {"question_id": 0, "image": "image_000000.jpg", "options": OPTIONS, **TREE}
    write_jsonl(tmp_path / "TreeBench" / "treebench.jsonl", [row])
    task = load_tasks(tmp_path / "TreeBench", "test", bench="treebench")[0]
    assert (task.image.size, len(task.targets), task.source) == ((64, 48), 2, "real")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"target_instances": "[]"}, "target_instances"),
        ({"target_instances": "somewhere"}, "box"),
        ({"options": "left, right"}, "options are"),
        ({"options": ""}, "no options"),
        ({"answer": "E"}, "options are A, B, C, D"),
        ({"answer": ""}, "'answer' is empty"),
        ({"category": ""}, "category"),
    ],
)
def test_rows_that_are_not_of_the_format_are_refused(tmp_path, changes, says):
    row = {"question_id": 0, "image": base64_text(encoded_image()), "options": OPTIONS, **TREE, **changes}
    with pytest.raises(TaskError, match=says):
        open_bench("treebench", write_jsonl(tmp_path / "treebench.jsonl", [row]), "test")


def test_a_file_without_the_columns_is_refused(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"picture": "a.jpg", "query": "?", "answer": "A"}])
    with pytest.raises(TaskError, match="has no column 'image' or 'images' or 'file_name', which TreeBench needs"):
        open_bench("treebench", path, "test")


def test_visualprobe_has_free_answers_and_paths_from_the_folder_above(tmp_path):
    put_image(tmp_path / "VisualProbe_Hard" / "data" / "visual_probe_hard_60.jpg")
    row = {
        "question_id": "visual_probe_hard_60",
        "image": "VisualProbe_Hard/data/visual_probe_hard_60.jpg",
        "question": "What is the color of the lampshade?",
        "answer": "White.",
        "category": "visual_probe_hard",
    }
    path = write_jsonl(tmp_path / "VisualProbe_Hard" / "visual_probe_hard.jsonl", [row])
    task = open_bench("visualprobe", path.parent, "test")[0]
    assert (task.choices, task.answer, task.image.size) == ((), "White.", (64, 48))
    assert is_correct(task, "<answer>white</answer>")


def test_mme_realworld_lite_as_jsonl_and_as_tsv(tmp_path):
    texts = [
        "(A) Upper right",
        "(B) Upper left",
        "(C) Lower right",
        "(D) Lower left",
        "(E) This image doesn't feature it.",
    ]
    put_image(tmp_path / "lite" / "imgs" / "dota.png")
    common = {"question": "Where is the crane?", "answer": "A", "category": "Remote Sensing"}
    row = {"question_id": "position/2527", "image": "dota.png", "options": "\n".join(texts), **common}
    one = open_bench("mme-realworld-lite", write_jsonl(tmp_path / "lite" / "lite.jsonl", [row]), "test")[0]
    row = {"index": 7, "image": base64_text(encoded_image()), "multi-choice options": str(texts), **common}
    other = open_bench("mme-realworld-lite", write_tsv(tmp_path / "mme_realworld_lite.tsv", [row]), "test")[0]
    assert one.choices == other.choices == tuple(text[4:] for text in texts)
    assert one.answer == other.answer == "Upper right"


def test_o3bench_names_its_images_as_the_hub_does(tmp_path):
    put_image(tmp_path / "test" / "images" / "chart" / "1-3.png")
    row = {
        "file_name": "images/chart/1-3.png",
        "subset": "chart",
        "question": "What was the change?",
        "options": "A. −$13,046\nB. −$14,895\nC. −$14,837\nD. $14,837\nE. −$15,967\nF. No right choice",
        "answer": "C",
    }
    write_jsonl(tmp_path / "test" / "metadata.jsonl", [row])
    task = open_bench("o3bench", tmp_path / "test", "test")[0]
    assert (task.category, task.answer, len(task.choices)) == ("chart", "−$14,837", 6)
    assert is_correct(task, "-$14,837") and not is_correct(task, "$14,837")


def test_zoombench_has_two_views_of_each_question(tmp_path):
    whole, crop = ({"bytes": encoded_image(size=size), "path": None} for size in ((64, 48), (32, 32)))
    prompt = "<image>What is on the sign?\nA. STOP\nB. SLOW\nC. GO\nD. EXIT"
    rows = [
        {"image": whole, "crop_image": crop, "prompt": prompt, "answer": "B"},
        {"image": whole, "crop_image": crop, "prompt": "How many birds?", "answer": "7"},
    ]
    path = write_parquet(tmp_path / "test.parquet", rows)
    full, cut = open_bench("zoombench", path, "test"), open_bench("zoombench-crop", path, "test")
    assert [tasks[0].image.size for tasks in (full, cut)] == [(64, 48), (32, 32)]
    assert full[0].question == cut[0].question == "What is on the sign?"
    assert (full[0].answer, full[1].answer, full[1].choices) == ("SLOW", "7", ())


def test_zoombench_as_it_is_on_the_hub(tmp_path):
    whole, crop = ({"bytes": encoded_image(size=size), "path": None} for size in ((64, 48), (32, 28)))
    common = {"image": whole, "crop_image": crop, "bbox": [8, 4, 40, 28]}
    query = "Is the lamp on? Select from the following choices.\n(A) Yes\n(B) No"
    rows = [
        {"id": 1, "query": query, "response": "B", "question_type": "mcq", **common},
        {"id": 2, "query": "How many lamps are there?", "response": "7", "question_type": "blank", **common},
    ]
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "test.parquet", rows)
    full, cut = open_bench("zoombench", tmp_path, "test"), open_bench("zoombench-crop", tmp_path, "test")
    assert [task.choices for task in full] == [("Yes", "No"), ()]
    assert [task.answer for task in full] == [task.answer for task in cut] == ["No", "7"]
    assert full[1].targets == ((8, 4, 40, 28),)
    assert (cut[1].targets, cut[1].image.size) == ((), (32, 28))  # The box is on the whole image.


def test_zoombench_as_its_authors_convert_it(tmp_path):
    for name, size in (("image_0", (64, 48)), ("crop_image_0", (32, 32))):
        put_image(tmp_path / "ZoomBench" / "images" / f"{name}.png", size=size)
    query = "How many lamps are in the image? Select from the following choices.\n(A) 0\n(B) 2\n(C) 1\n(D) 3"
    rows = [
        {
            "images": ["../ZoomBench/images/image_0.png"],
            "crop_images": ["../ZoomBench/images/crop_image_0.png"],
            "query": query,
            "response": "C",
        }
    ]
    path = tmp_path / "ZoomBench" / "zoombench.json"
    path.write_text(json.dumps(rows))
    full, cut = open_bench("zoombench", path, "test")[0], open_bench("zoombench-crop", path.parent, "test")[0]
    assert [task.image.size for task in (full, cut)] == [(64, 48), (32, 32)]
    assert (full.answer, full.choices) == (cut.answer, cut.choices) == ("1", ("0", "2", "1", "3"))


def test_blink_as_vlmevalkit_publishes_it(tmp_path):
    image = base64_text(encoded_image())
    row = {"index": 3, "question": "Which is closer?", "A": "first", "B": "second", "C": "", "D": "", "answer": "B"}
    rows = [{**row, "category": "Relative_Depth", "image": str([image, image])}]
    task = open_bench("blink", write_tsv(tmp_path / "BLINK.tsv", rows), "val")[0]
    assert (task.choices, task.answer, len(task.images)) == (("first", "second"), "second", 2)


def test_charxiv_names_its_figures_by_number(tmp_path):
    put_image(tmp_path / "images" / "2.jpg")
    row = {"figure_id": 2, "query": "Which line is lowest?", "answer": "fi = 0.13", "inst_category": 1, "qa_source": 3}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reasoning_val.json").write_text(json.dumps({"2": row}))
    (tmp_path / "data" / "reasoning_test.json").write_text(json.dumps({"2": row | {"answer": ""}}))
    task = open_bench("charxiv", tmp_path, "val")[0]
    assert (task.task_id, task.category, task.image.size) == ("charxiv-2", "1", (64, 48))
    assert is_correct(task, "fi = 0.13") and not is_correct(task, "fi = -0.13")


@pytest.mark.parametrize(
    ("options", "choices"),
    [
        (["(A) 2", "(B) 2", "(C) 3"], ("2", "2", "3")),
        ("A. 2\nB. 2\nC. 3", ("2", "2", "3")),
        (["1", "2", "3"], ("1", "2", "3")),
        ([1, 2.0, 2.5], ("1", "2", "2.5")),
        ("['1', '2']", ("1", "2")),
        ({"A": "1", "B": "2"}, ("1", "2")),
        ({"B": 2, "A": 1, "C": None}, ("1", "2")),
        ("{'A': '1', 'B': '2'}", ("1", "2")),
        (["A. Lincoln", "G. Washington"], ("A. Lincoln", "G. Washington")),
        (["(A) 1", "(B) 2", ""], ("1", "2")),
    ],
)
def test_options_may_be_alike_and_come_as_a_list_or_a_mapping(tmp_path, options, choices):
    put_image(tmp_path / "images" / "a.png")
    row = {"file_name": "images/a.png", "question": "Which?", "options": options, "answer": "B", "category": "map"}
    write_jsonl(tmp_path / "metadata.jsonl", [row])
    task = open_bench("o3bench", tmp_path, "test")[0]
    assert (task.choices, task.answer, task.meta["label"]) == (choices, choices[1], "B")
    assert is_correct(task, "B") and not is_correct(task, "A")


@pytest.mark.parametrize(
    "options",
    [
        ["1"],
        ["1", "", "2"],
        ["(B) 1", "(A) 2"],
        ["(A)", "(B)"],
        [str(i) for i in range(27)],
        {"A": "1"},
        {"A": "1", "C": "2"},
        {"A": "1", "a": "2", "B": "3"},
        {"x": "1", "y": "2"},
        "1, 2",
        7,
    ],
)
def test_options_without_clear_letters_are_refused(tmp_path, options):
    put_image(tmp_path / "images" / "a.png")
    row = {"file_name": "images/a.png", "question": "Which?", "options": options, "answer": "B", "category": "map"}
    write_jsonl(tmp_path / "metadata.jsonl", [row])
    with pytest.raises(TaskError, match="the options are"):
        open_bench("o3bench", tmp_path, "test")
