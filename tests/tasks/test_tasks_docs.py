"""The Python blocks of the pages about tasks run, each on its own and offline, as a reader would paste them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from demonstration_rows import thyme_row
from real_data import base64_text, encoded_image, lettered_row, own_cache, write_parquet, write_tsv  # noqa: F401

from codev_env.tasks import load_tasks

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("tasks", "data", "scorers", "robustness", "demonstrations")
NOT_RUN = {"data": 2, "scorers": 1}
"""Blocks marked `python no-run`: what needs a network, or a server."""

_FENCE = re.compile(r"^```(python[^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [(page, *found) for page in PAGES for found in _FENCE.findall((DOCS / f"{page}.md").read_text("utf-8"))]
RUN = [(page, block) for page, info, block in BLOCKS if info == "python"]


@pytest.fixture
def place(tmp_path, monkeypatch, vstar) -> Path:
    """A working directory with small data where the pages say that data are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    vstar.rename(tmp_path / "data" / "vstar_bench")
    (tmp_path / "data" / "HR-Bench").mkdir()
    write_tsv(tmp_path / "data" / "HR-Bench" / "hr_bench_4k.tsv", [lettered_row(i) for i in range(8)])
    (tmp_path / "photos").mkdir()
    row = {"file": base64_text(encoded_image()), "q": "Which?", "gold": "B", **dict(zip("ABCD", "wxyz", strict=True))}
    (tmp_path / "photos" / "rows.jsonl").write_text(json.dumps({**row, "bbox": [1, 2, 10, 20]}))
    first = load_tasks("synthetic", "train", scenes="toy")[0].task_id
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"task_id": first}))
    name = "Thyme-SFT/data/wo_thinking_thyme_single_round-00000-of-00146.parquet"
    write_parquet(tmp_path / name, [thyme_row(("print(6 * 7)", "42")), thyme_row()])
    return tmp_path


def test_every_page_has_blocks_and_few_are_left_out():
    assert {page for page, _ in RUN} == set(PAGES)
    left_out = [page for page, info, _ in BLOCKS if info != "python"]
    assert {info for _, info, _ in BLOCKS} <= {"python", "python no-run"}
    assert {page: left_out.count(page) for page in left_out} == NOT_RUN


@pytest.mark.parametrize(("page", "block"), RUN, ids=[f"{page}-{i}" for i, (page, _) in enumerate(RUN)])
def test_a_block_runs_on_its_own(place, page, block):
    names: dict[str, object] = {}
    exec(compile(block, f"{page}.md", "exec"), names)
    assert names.keys() - {"__builtins__"}, "the block left nothing behind: did it run?"


def test_what_the_pages_say_of_values(place):
    tasks = load_tasks("synthetic", "test", scenes="vstar")
    shown = f"{tasks[0].question!r}, {tasks[0].choices!r}, {tasks[0].answer!r}"
    assert f"task.question, task.choices, task.answer  # {shown}" in (DOCS / "tasks.md").read_text("utf-8")


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", (DOCS / f"{page}.md").read_text("utf-8")):
            assert (DOCS / target).exists(), f"{page}.md links to {target}"
