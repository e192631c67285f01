"""A block that a reader copies alone runs: it imports and makes what it uses."""

from __future__ import annotations

import pytest
from pages import DOCS, ROOT, python_blocks

PAGES = (ROOT / "README.md", *(DOCS / f"{name}.md" for name in ("howto", "judges", "rewards")))
BLOCKS = [(page, block) for page in PAGES for block in python_blocks(page) if block.info == "python"]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page.stem}-{block.line}" for page, block in BLOCKS])
def test_a_block_runs_alone(page, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), {})


def test_how_to_has_a_section_for_everything_that_can_be_ones_own():
    text = (DOCS / "howto.md").read_text("utf-8")
    for part in ("data", "reward", "scorer", "judge", "dialect", "model"):
        assert f"\n## Your own {part}\n" in text


def test_no_page_has_a_sign_that_common_fonts_lack():
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        assert "〃" not in page.read_text("utf-8"), page.name
