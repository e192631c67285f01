"""Training sets in verl's form: questions with and without options, boxes, transforms, several files."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from real_data import encoded, open_codev_rl, open_codevision_rl, open_deepeyes, own_cache, verl_row, write_parquet  # noqa: F401

from codev_env.errors import ConfigError, TaskError
from codev_env.scoring import get_scorer, is_correct
from codev_env.types import Task

OPENERS = {"codev-rl": open_codev_rl, "codevision-rl": open_codevision_rl, "deepeyes": open_deepeyes}


@pytest.mark.parametrize("bench", OPENERS)
def test_one_row(tmp_path, bench):
    path = write_parquet(tmp_path / "train.parquet", [verl_row(0), verl_row(1, data_source="chart", extra_bbox=None)])
    tasks = OPENERS[bench](path)
    task = tasks[0]
    assert (tasks.name, task.task_id, task.meta["bench"]) == (bench, f"{bench}-train-0", bench)
    assert (task.question, task.answer, task.choices) == ("What is word 0?", "park", ())
    assert (task.category, task.targets, task.transform) == ("vstar", ((10, 8, 20, 30),), ())
    assert (tasks[1].category, tasks[1].targets) == ("chart", ())
    assert (task.meta["extra_info"]["index"], task.meta["env_name"]) == (0, "visual_toolbox_v2")
    assert "prompt" not in task.meta
    json.dumps(dict(task.meta), allow_nan=False)


def opened(tmp_path, *rows, **options):
    return open_codev_rl(write_parquet(tmp_path / "train.parquet", rows), **options)


def test_options_in_the_question_become_choices(tmp_path):
    text = "Which color?\nA. red\nB. blue\nC. dark red\nPlease answer with the letter."
    tasks = opened(
        tmp_path,
        verl_row(0, extra_question=text, reward_model={"ground_truth": "B", "style": "model"}),
        verl_row(1, extra_question=text, reward_model={"ground_truth": "dark red", "style": "model"}),
        verl_row(2, extra_question=text, reward_model={"ground_truth": "green", "style": "model"}),
    )
    assert tasks[0].choices == tasks[1].choices == ("red", "blue", "dark red")
    assert (tasks[0].question, tasks[0].answer, tasks[1].answer) == ("Which color?", "blue", "dark red")
    assert is_correct(tasks[0], "(B)") and is_correct(tasks[1], "C")
    assert (tasks[2].question, tasks[2].choices, tasks[2].answer) == (text, (), "green")


def test_options_that_only_the_prompt_has(tmp_path):
    asked = (
        "<image>\nWhat does the curve show?\nA) growth\nB) decay\n"
        "Think first, call **image_zoom_in_tool** if needed, then answer. Format strictly as: <think>…</think>"
    )
    tasks = opened(
        tmp_path,
        verl_row(
            0,
            prompt=[{"role": "user", "content": asked}],
            extra_question="What does the curve show?",
            reward_model={"ground_truth": "B", "style": "model"},
        ),
    )
    assert (tasks[0].question, tasks[0].choices, tasks[0].answer) == (
        "What does the curve show?",
        ("growth", "decay"),
        "decay",
    )


def test_a_question_that_only_the_prompt_has(tmp_path):
    asked = "<image>\nIs it day?\nThink first, call **image_zoom_in_tool** if needed, then answer."
    tasks = opened(tmp_path, verl_row(0, prompt=[{"role": "user", "content": asked}], extra_question=None))
    assert tasks[0].question == "Is it day?"


def test_boxes_in_all_their_forms(tmp_path):
    rows = [
        verl_row(0, extra_bbox="[[1, 2, 3, 4], [5, 6, 7.5, 8]]"),
        verl_row(1, extra_bbox="[0, 0, 0, 0]"),
        verl_row(2, extra_bbox=""),
        verl_row(3, extra_bbox=None, extra_bbox_2d=[1, 2, 64, 48]),
        verl_row(4, extra_bbox="[[0, 0, 0, 0], [1, 1, 2, 2]]"),
    ]
    for number, row in enumerate(rows):
        row["extra_info"].setdefault("bbox_2d", None)
        row["extra_info"]["index"] = number
    tasks = opened(tmp_path, *rows)
    assert [task.targets for task in tasks] == [
        ((1, 2, 3, 4), (5, 6, 8, 8)),
        (),
        (),
        ((1, 2, 64, 48),),
        ((1, 1, 2, 2),),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra_bbox": [1, 2, 3]}, r"row 1: .*expected \[x1, y1, x2, y2\] in pixels|row 1: a box is"),
        ({"extra_bbox": [9, 2, 3, 4]}, "row 1: the box .* has no area"),
        ({"reward_model": {"ground_truth": "", "style": "model"}}, "row 1: 'reward_model.ground_truth' is ''"),
    ],
)
def test_bad_rows_are_found_when_opened(tmp_path, change, message):
    rows = [verl_row(0), verl_row(1, **change), verl_row(2)]
    with pytest.raises(TaskError, match=message):
        opened(tmp_path, *rows)
    with pytest.warns(UserWarning, match="left out 1 of 3"):
        tasks = opened(tmp_path, *rows, on_error="skip")
    assert [task.task_id for task in tasks] == ["codev-rl-train-0", "codev-rl-train-2"]


def test_a_box_outside_its_image_is_found_when_asked_for(tmp_path):
    tasks = opened(tmp_path, verl_row(0, extra_bbox=[60, 40, 80, 50]))
    with pytest.raises(TaskError, match=r"train.parquet, row 0: the box \[60, 40, 80, 50\].* which is 64x48 pixels"):
        tasks[0]


def test_several_answers(tmp_path):
    tasks = opened(tmp_path, verl_row(0, reward_model={"ground_truth": ["park", "the park"], "style": "rule"}))
    assert (tasks[0].answer, tasks[0].meta["answers"]) == ("park", ["park", "the park"])


def test_each_of_several_right_answers_is_right(tmp_path):
    several = verl_row(0, reward_model={"ground_truth": ["park", "the green"], "style": "rule"})
    one = verl_row(1, reward_model={"ground_truth": ["park"], "style": "rule"})
    first, plain = opened(tmp_path, several, one)
    assert [is_correct(first, text) for text in ("park", "The answer is the green.", "green", "a")] == [1, 1, 0, 0]
    assert get_scorer("answer")(first, "the green").correct and "accepted_answers" not in plain.meta
    json.dumps(dict(first.meta), allow_nan=False)


@pytest.mark.parametrize("told", ["yes", True, 5, {"a": 1}, [1, None]])
def test_a_column_of_that_name_with_other_content_changes_nothing(told):
    task = Task("t", (Image.new("RGB", (1, 1)),), "?", "park", meta={"accepted_answers": told})
    assert is_correct(task, "park") and not any(is_correct(task, text) for text in ("y", "True", "5", "a", "1"))


def test_transforms(tmp_path):
    rows = [
        verl_row(0, extra_transform=["crop", "rotate_90"]),
        verl_row(1, extra_transform=["flip_horizontal", "rotate_180"]),
        verl_row(2, extra_transform=[]),
        verl_row(3, extra_transform=None),
    ]
    tasks = opened(tmp_path, *rows)
    assert [task.transform for task in tasks] == [("rotate_90",), ("flip_horizontal", "rotate_180"), (), ()]
    assert tasks[0].meta["transform"] == ["crop", "rotate_90"]


def test_extra_info_written_as_json(tmp_path):
    tasks = opened(tmp_path, verl_row(0, extra_info=json.dumps(verl_row(0)["extra_info"])))
    assert (tasks[0].targets, tasks[0].question) == (((10, 8, 20, 30),), "What is word 0?")


def test_several_images(tmp_path):
    cells = [{"bytes": encoded(Image.new("RGB", (40 + i, 40))), "path": None} for i in range(3)]
    assert [image.width for image in opened(tmp_path, verl_row(0, images=cells))[0].images] == [40, 41, 42]
    with pytest.raises(TaskError, match="row 0: has no image"):
        opened(tmp_path, verl_row(0, images=None))[0]


def test_images_that_are_files(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(encoded(Image.new("RGB", (50, 40))))
    row = verl_row(0, images=[{"bytes": None, "path": "images/a.png"}])
    other = verl_row(1, images=[{"bytes": None, "path": "a.png"}])
    assert [task.image.size for task in opened(tmp_path, row, other)] == [(50, 40), (50, 40)]


def test_several_files(tmp_path):
    for number in (1, 2):
        write_parquet(tmp_path / f"train_group_{number}.parquet", [verl_row(0), verl_row(1, data_source=f"s{number}")])
    write_parquet(tmp_path / "val.parquet", [verl_row(5)])
    tasks = open_codevision_rl(tmp_path, "train")
    assert [task.task_id.removeprefix("codevision-rl-train_group_") for task in tasks] == ["1-0", "1-1", "2-0", "2-1"]
    assert len(open_codevision_rl(tmp_path, "train", subset="s2")) == 1
    assert open_codevision_rl(tmp_path, "val")[0].question == "What is word 5?"
    with pytest.raises(TaskError, match="has no split 'test'; its files are train_group_1.parquet"):
        open_codevision_rl(tmp_path, "test")
    with pytest.raises(ConfigError, match="unknown category of codevision-rl 's3'. Did you mean"):
        open_codevision_rl(tmp_path, subset="s3")


def test_files_of_different_columns(tmp_path):
    write_parquet(tmp_path / "a.parquet", [verl_row(0)])
    other = verl_row(1, extra_bbox_2d=[1.5, 2.0, 3.0, 4.0])
    del other["ability"], other["extra_info"]["bbox"]
    write_parquet(tmp_path / "b.parquet", [dict(reversed(other.items()))])
    tasks = open_deepeyes(tmp_path)
    assert [task.targets for task in tasks] == [((10, 8, 20, 30),), ((1, 2, 3, 4),)]
    write_parquet(tmp_path / "c.parquet", [{"images": None}])
    with pytest.raises(
        TaskError, match=r"c\.parquet: has no column 'reward_model\.ground_truth'.* Its columns: images"
    ):
        open_deepeyes(tmp_path)


def test_missing_columns(tmp_path):
    path = write_parquet(tmp_path / "train.parquet", [{"image": "x", "reward_model": {"ground_truth": "a"}}])
    with pytest.raises(TaskError, match="has no column 'images'. Did you mean 'image'"):
        open_deepeyes(path)


def test_images_stay_as_they_are_stored(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(Image.new("RGB", (64, 48)), "JPEG", exif=exif)
    task = opened(tmp_path, verl_row(0, images=[{"bytes": data, "path": None}]))[0]
    assert (task.image.size, task.targets) == ((64, 48), ((10, 8, 20, 30),))


def test_small_images_are_scaled_with_their_boxes(tmp_path):
    data = encoded(Image.new("RGB", (20, 14)))
    task = opened(tmp_path, verl_row(0, images=[{"bytes": data, "path": None}], extra_bbox=[1, 2, 20, 14]))[0]
    assert (task.image.size, task.targets) == ((40, 28), ((2, 4, 40, 28),))
    assert task.meta["resized"] == [{"from": [20, 14], "to": [40, 28]}]
