"""The word list: phrases are found in prose of every kind, and names in code are not."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from pages import ROOT

spec = importlib.util.spec_from_file_location("words", ROOT / ".ci" / "words.py")
words = importlib.util.module_from_spec(spec)
sys.modules["words"] = words
spec.loader.exec_module(words)
KNOWN = words.phrases(words.LIST.read_text("utf-8"))


def found(text: str) -> list[str]:
    return [match[0] for _, s in words.sentences(text) for phrase in KNOWN for match in phrase.pattern.finditer(s)]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("A judge that cannot be had is never a score of 0.", "cannot be had"),
        ("Python and a network are all\nthat must be there.", "are all that"),
        ("Each library makes a fork dearer.", "dearer"),
        ("Its thread goes on, in nobody's place.", "nobody's"),
        ("It ends. What the machine does never does.", "What "),
        ("## What boxes count in", "What "),
        ("| name | What it does |", "What "),
        ("- Where the file is.", "Where "),
        ("The pictures of a task.", "pictures"),
        ("The error tells the line.", "tells"),
    ],
)
def test_a_phrase_is_found(text, phrase):
    assert found(text) == [phrase]


@pytest.mark.parametrize(
    "text",
    [
        "What does a crop earn?",
        "Where SciPy is missing, its tests skip.",
        "Call `told()` with `picture=...`.",
        "```python\npicture = tell()\n```",
        "See [the pages](pictures.md).",
        "A caller can tell apart two equal crops.",
        "A name that stands for a folder.",
    ],
)
def test_plain_words_and_names_in_code_are_not(text):
    assert found(text) == []


def test_a_finding_names_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    source = '"""A module."""\n\n# Fine.\n# The picture.\ntold = 1\nraise ValueError(f"{told} was told")\n'
    (tmp_path / "one.py").write_text(source)
    (tmp_path / "two.md").write_text("A page.\n\n- Fine\n- not\n  fine: dear\n")
    places = [
        (path.name, line, phrase)
        for path in sorted(tmp_path.iterdir())
        for line, phrase, _ in words.findings(path, KNOWN)
    ]
    assert places == [("one.py", 6, "told"), ("one.py", 4, "picture"), ("two.md", 4, "dear")]


def test_a_phrase_may_stay_where_the_list_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / "one.md").write_text("The picture.")
    assert not list(words.findings(tmp_path / "one.md", words.phrases("pictures?\timage\tdocs one.md")))
    assert list(words.findings(tmp_path / "one.md", words.phrases("pictures?\timage\tdocs")))
