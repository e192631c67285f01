"""MVToolBench: the box lies in the transformed image's frame, and a crop is a need, not something done."""

from __future__ import annotations

import pytest
from PIL import Image
from real_data import encoded, open_mvtool, own_cache, verl_row, write_parquet  # noqa: F401

from codev_env.errors import TaskError


def test_the_published_row(tmp_path):
    """The example of the data set's card, in an image of another size."""
    image = Image.new("RGB", (1100, 300), "gray")
    image.paste("red", (1060, 82, 1072, 286))
    row = verl_row(
        0,
        data_source="hiertext",
        prompt=[{"role": "user", "content": "<image>\nWhat is the shortest word on the line?"}],
        images=[{"bytes": encoded(image), "path": None}],
        extra_bbox=[1060, 82, 1072, 286],
        extra_question="What is the shortest word on the line?",
        extra_transform=["crop", "rotate_90"],
    )
    task = open_mvtool(write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", [row]).parent.parent, "test")[
        0
    ]
    assert (task.question, task.answer) == ("What is the shortest word on the line?", "park")
    assert task.targets == ((1060, 82, 1072, 286),)
    assert task.image.crop(task.targets[0]).getcolors() == [(12 * 204, (255, 0, 0))]
    assert (task.transform, task.meta["transform"]) == (("rotate_90",), ["crop", "rotate_90"])
    assert (task.meta["bench"], task.category) == ("mvtool", "hiertext")


def test_exif_is_not_applied_on_top_of_the_transform(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 8
    data = encoded(Image.new("RGB", (100, 60)), "JPEG", exif=exif)
    row = verl_row(0, images=[{"bytes": data, "path": None}], extra_bbox=[90, 0, 100, 10])
    task = open_mvtool(write_parquet(tmp_path / "mvtoolbench.parquet", [row]))[0]
    assert (task.image.size, task.targets) == ((100, 60), ((90, 0, 100, 10),))


def test_only_the_test_split_exists(tmp_path):
    path = write_parquet(tmp_path / "mvtoolbench.parquet", [verl_row(0)])
    with pytest.raises(TaskError, match="MVToolBench has no split 'train', only 'test'"):
        open_mvtool(path, "train")
