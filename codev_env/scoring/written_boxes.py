"""Boxes that a model writes into its reasoning, against the boxes of the evidence: TreeBench's second metric."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from codev_env.geometry import iou
from codev_env.types import Box

_OPEN, _CLOSE = "<box>", "</box>"
_BOX = re.compile(r"\[(\d{1,9}),(\d{1,9}),(\d{1,9}),(\d{1,9})\]")


def written_boxes(text: str) -> list[Box]:
    """Return the boxes of a text: `<box>[x1,y1,x2,y2]</box>`, whole numbers without spaces, text after them ignored.

    Source: `Haochen-Wang409/TreeVGR`, `inference_treebench.py`. A box without area is left out.
    """
    found = []
    for content in _contents(text):
        match = _BOX.match(content.strip())
        if match:
            x1, y1, x2, y2 = map(int, match.groups())
            found += [(x1, y1, x2, y2)] if x1 < x2 and y1 < y2 else []
    return found


def written_iou(text: str, targets: Sequence[Box]) -> float:
    """Return the mean over the targets of the best IoU with a box of the text; 0 without targets.

    One box may be the best one of several targets, and boxes too many cost nothing.

    Source: as `written_boxes`.
    """
    boxes = written_boxes(text)
    best = [max((iou(target, box) for box in boxes), default=0.0) for target in targets]
    return sum(best) / len(best) if best else 0.0


def _contents(text: str) -> Iterator[str]:
    """Yield what is between the marks, in time linear in the text."""
    start = text.find(_OPEN)
    while start >= 0 and (end := text.find(_CLOSE, start + len(_OPEN))) >= 0:
        yield text[start + len(_OPEN) : end]
        start = text.find(_OPEN, end + len(_CLOSE))
