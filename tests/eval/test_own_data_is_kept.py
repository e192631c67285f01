"""No command writes its results over the data that it was given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from codev_env.app import cli


@pytest.fixture
def rows(tmp_path, monkeypatch) -> Path:
    """A user's own data: rows beside a folder of images."""
    monkeypatch.setenv("CODEV_CACHE", str(tmp_path / "cache"))
    photos = tmp_path / "photos"
    (photos / "images").mkdir(parents=True)
    lines = []
    for number in range(2):
        Image.new("RGB", (64, 48), (90 * number, 0, 0)).save(photos / "images" / f"{number}.png")
        lines.append({"image": f"{number}.png", "question": f"Is it {number}?", "answer": "yes"})
    path = photos / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def contents(rows: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(rows.parent.rglob("*")) if path.is_file()}


def refused(capsys: pytest.CaptureFixture[str], rows: Path, *words: str) -> str:
    before = contents(rows)
    assert cli.main([*words, "--bench", "dataset"] if words[:2] != ("data", "replay") else list(words)) == 1
    assert contents(rows) == before
    return capsys.readouterr().err


def test_a_filter_replaces_only_a_file_of_its_own(rows, tmp_path, capsys):
    words = ["data", "filter", "--agent", "scripted:random", "--rollouts", "1", "--workers", "1", "--data", str(rows)]
    assert "is not what `codev data filter` writes" in refused(capsys, rows, *words, "--out", str(rows))
    kept = tmp_path / "kept.jsonl"
    for _ in range(2):
        assert cli.main([*words, "--bench", "dataset", "--keep", "0", "1", "--out", str(kept)]) == 0
    assert len(kept.read_text().splitlines()) == 2


def test_a_filter_continues_only_a_journal_of_its_own(rows, tmp_path, capsys):
    words = ["data", "filter", "--agent", "scripted:random", "--rollouts", "1", "--workers", "1", "--data", str(rows)]
    other, torn = rows.parent / "kept.jsonl.rollouts", tmp_path / "torn.jsonl.rollouts"
    other.write_text("notes of somebody, without an end of line")
    assert "holds no rollouts" in refused(capsys, rows, *words, "--out", str(rows.parent / "kept.jsonl"))
    torn.write_text('{"settin')  # of a process that died while it wrote its first line
    assert cli.main([*words, "--bench", "dataset", "--out", str(tmp_path / "torn.jsonl")]) == 0
    assert len(torn.read_text().splitlines()) == 3


@pytest.mark.parametrize("name", ["sheet.png", "sheet.jpg"])
def test_a_contact_sheet_replaces_only_another_one(rows, tmp_path, capsys, name):
    words = ["data", "show", "--per-row", "1", "--width", "300", "--n", "1", "--data", str(rows)]
    photo = rows.parent / "images" / "1.png"
    assert "is no contact sheet" in refused(capsys, rows, *words, "--out", str(photo))
    assert "is no contact sheet" in refused(capsys, rows, *words, "--out", str(rows))
    for _ in range(2):
        assert cli.main([*words, "--bench", "dataset", "--out", str(tmp_path / name)]) == 0


def test_results_have_another_folder_than_the_data(rows, capsys, monkeypatch):
    monkeypatch.chdir(rows.parent)
    words = ["eval", "--model", "scripted:none", "--data", ".", "--out", str(rows.parent)]
    assert "is the folder of the data; give another one, such as runs/photos" in refused(capsys, rows, *words)
    words = ["data", "replay", "--format", "thyme", "--data", str(rows.parent), "--out", "."]
    assert "is the folder of the data" in refused(capsys, rows, *words)
