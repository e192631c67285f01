"""Reads reference transcripts: what environment and model say in turn, each part under a line `=== role`.

After `=== environment` stand the sizes of the images that come with the part, as in `=== environment 103x108 640x480`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "transcripts"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))

_HEAD = re.compile(r"^=== (environment|model)((?: \d+x\d+)*)\n", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """What one side says: its text, and (width, height) of the images in it."""

    role: str
    text: str
    sizes: tuple[tuple[int, int], ...]


def read_transcript(name: str) -> list[Part]:
    """Return the parts of a transcript, by the name of its dialect."""
    pieces = _HEAD.split((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))[1:]
    parts = []
    for role, sizes, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        found = [tuple(map(int, size.split("x"))) for size in sizes.split()]
        parts.append(Part(role, text.removesuffix("\n"), tuple((w, h) for w, h in found)))
    return parts
