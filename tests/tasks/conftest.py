"""A small V*Bench folder to read, and a cache that starts empty."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codev_env.tasks.readers.cache import TASKS


@pytest.fixture(autouse=True)
def empty_cache():
    TASKS.clear()
    yield
    TASKS.clear()


def _add_row(folder: Path, category: str, stem: str, *, suffix: str = ".jpg", size=(320, 240), **fields) -> Path:
    """Write one image with its JSON file; returns the JSON file."""
    (folder / category).mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(stem)).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save((folder / category / stem).with_suffix(suffix))
    row = {
        "target_object": ["mug"],
        "bbox": [[10, 20, 30, 40]],
        "question": "What is the color of the mug?",
        "options": ["The mug is red.", "The mug is blue.", "The mug is green.", "The mug is white."],
    }
    note = (folder / category / stem).with_suffix(".json")
    note.write_text(json.dumps({**row, **fields}))
    return note


@pytest.fixture
def add_row():
    """Return a function that writes one image with its JSON file."""
    return _add_row


@pytest.fixture
def vstar(tmp_path) -> Path:
    """Three attribute questions, one about a relative position."""
    folder = tmp_path / "vstar_bench"
    for stem in ("sa_1", "sa_2", "sa_3"):
        _add_row(folder, "direct_attributes", stem)
    _add_row(
        folder,
        "relative_position",
        "sa_9",
        suffix=".png",
        target_object=["mug", "dog"],
        bbox=[[0, 0, 50, 60], [200.4, 100.2, 20.2, 30.5]],
        question="Is the mug on the left or right side of the dog?",
        options=["The mug is on the left side of the dog.", "The mug is on the right side of the dog."],
    )
    return folder
