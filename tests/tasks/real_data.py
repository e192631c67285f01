"""Small data in the formats of the benchmarks and training sets, for the tests of their readers."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from codev_env.tasks import open_bench

open_hrbench4k, open_hrbench8k = partial(open_bench, "hrbench4k"), partial(open_bench, "hrbench8k")
open_mathvista, open_mvtool = partial(open_bench, "mathvista"), partial(open_bench, "mvtool")
open_codev_rl, open_codevision_rl = partial(open_bench, "codev-rl"), partial(open_bench, "codevision-rl")
open_deepeyes = partial(open_bench, "deepeyes")

LETTERS = "ABCD"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch) -> Path:
    """A cache folder of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CODEV_CACHE", str(folder))
    return folder


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """Return an image file's bytes."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def encoded_image(number: int = 0, size: tuple[int, int] = (64, 48), kind: str = "PNG") -> bytes:
    """Return an encoded image of one colour per number, with a white top left corner of 8x4 pixels."""
    image = Image.new("RGB", size, (number % 200, number // 200, 7))
    image.paste("white", (0, 0, 8, 4))
    return encoded(image, kind)


def base64_text(data: bytes) -> str:
    """Return bytes as base64 text."""
    return base64.b64encode(data).decode()


def write_tsv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as tab-separated values, as pandas does."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], group: int | None = None) -> Path:
    """Write rows as Parquet."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=group)
    return path


def lettered_row(index: int, /, **changes: Any) -> dict[str, Any]:
    """Return a row of HR-Bench: question `index // 4` in the order `index % 4` of its options."""
    texts = ["red", "blue", "green", "white"]
    cycle = index % 4
    turned = texts[cycle:] + texts[:cycle]
    row = {
        "index": index,
        "question": f"What is the color of mug {index // 4}?",
        **dict(zip(LETTERS, turned, strict=True)),
        "answer": LETTERS[turned.index("red")],
        "category": "single" if index < 4 else "cross",
        "cycle_category": f"cycle_{cycle}",
        "image": base64_text(encoded_image(index // 4)),
    }
    return {**row, **changes}


def verl_row(index: int, /, **changes: Any) -> dict[str, Any]:
    """Return a row of a training set in verl's form; `extra_…` changes fields of `extra_info`."""
    extra = {
        "answer": "park",
        "question": f"What is word {index}?",
        "index": index,
        "split": "train",
        "bbox": [10, 8, 20, 30],
        "transform": [],
    }
    extra.update({key.removeprefix("extra_"): value for key, value in changes.items() if key.startswith("extra_")})
    row = {
        "data_source": "vstar",
        "prompt": [
            {"role": "system", "content": "You may call image_zoom_in_tool."},
            {"role": "user", "content": f"<image>\nWhat is word {index}?"},
        ],
        "images": [{"bytes": encoded_image(index), "path": None}],
        "ability": "vqa",
        "env_name": "visual_toolbox_v2",
        "reward_model": {"ground_truth": "park", "style": "model"},
        "extra_info": extra,
    }
    return {**row, **{key: value for key, value in changes.items() if not key.startswith("extra_")}}
