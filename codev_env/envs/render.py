"""Drawing an episode for people: one frame on a fixed canvas, or text."""

from __future__ import annotations

import re
import sys
import textwrap

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from codev_env.geometry import boxes_on
from codev_env.types import Episode, Step

WIDTH, HEIGHT = 960, 640
_IMAGE = (0, 0, 640, 480)
_CROPS = (640, 0, 960, 480)
_TEXT = (0, 480, 960, 640)
_TARGET, _CROP = (40, 170, 80), (230, 60, 40)
_LINES, _COLUMNS = 11, 150
_LAST = 4  # lines of a long text that are kept at its end
_CONTROL = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Characters that a terminal obeys: they move the cursor, or begin a sequence that may do anything."""


def frame(episode: Episode) -> NDArray[np.uint8]:
    """Draw the original with target boxes (green) and crop boxes (red), the last crops, and the last turn.

    Returns:
        A uint8 array of shape (640, 960, 3).
    """
    canvas = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(canvas)
    left, top, scale = _place(canvas, episode.task.image, _IMAGE)
    last = _last_run(episode)
    parts = [part for region in last.regions for part in region.parts] if last else []
    regions = [part for part in parts if part.image_index == 0]
    crops = [region.box for region in regions if region.box is not None]
    for boxes, colour in ((boxes_on(0, episode.task.targets), _TARGET), (crops, _CROP)):
        for x1, y1, x2, y2 in boxes:
            corners = (left + x1 * scale, top + y1 * scale, left + x2 * scale, top + y2 * scale)
            draw.rectangle(corners, outline=colour, width=2)
    _draw_crops(canvas, last)
    draw.multiline_text((_TEXT[0] + 8, _TEXT[1] + 8), _drawable(text(episode)), fill="black", spacing=2)
    return np.array(canvas, dtype=np.uint8)


def text(episode: Episode) -> str:
    """Return the question, and the last turn with its output and score, in a few lines."""
    lines = [f"[{episode.task.task_id}] {episode.task.question}"]
    if episode.steps:
        step = episode.steps[-1]
        lines += [f"--- turn {len(episode.steps)}", step.action.strip()]
        if step.execution is not None:
            output = [step.execution.stdout.strip(), f"{len(step.execution.images)} image(s)", step.execution.error]
            lines.append("--- " + "; ".join(part for part in output if part))
        if step.score is not None and step.score.value is not None:
            lines.append(f"--- score {step.score.value:.2f}: {step.score.why}")
    if episode.done:
        verdict = "correct" if episode.is_correct else "not correct"
        lines.append(f"--- end ({episode.stop_reason}): {verdict}")
    return "\n".join(lines)


def print_text(episode: Episode) -> None:
    """Print `text`, with a question mark for what the terminal cannot show or would obey: models write anything."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(_CONTROL.sub("?", text(episode)).encode(encoding, "replace").decode(encoding), flush=True)


def _last_run(episode: Episode) -> Step | None:
    return next((step for step in reversed(episode.steps) if step.execution is not None), None)


def _draw_crops(canvas: Image.Image, step: Step | None) -> None:
    images = step.execution.images[:3] if step is not None and step.execution is not None else ()
    for row, image in enumerate(images):
        height = (_CROPS[3] - _CROPS[1]) // len(images)
        _place(canvas, image, (_CROPS[0], _CROPS[1] + row * height, _CROPS[2], _CROPS[1] + (row + 1) * height))


def _place(canvas: Image.Image, image: Image.Image, area: tuple[int, int, int, int]) -> tuple[int, int, float]:
    """Paste an image scaled to fit an area; return its left and top edge and the scale."""
    x1, y1, x2, y2 = area
    scale = min((x2 - x1 - 8) / image.width, (y2 - y1 - 8) / image.height)
    size = (max(1, int(image.width * scale)), max(1, int(image.height * scale)))
    canvas.paste(image.convert("RGB").resize(size), (x1 + 4, y1 + 4))
    return x1 + 4, y1 + 4, scale


def _drawable(message: str) -> str:
    """Wrap text and replace what Pillow's built-in font may not know."""
    lines = [part for line in message.splitlines() for part in (textwrap.wrap(line, _COLUMNS) or [""])]
    if len(lines) > _LINES:  # The end has the score.
        lines = [*lines[: _LINES - 1 - _LAST], "...", *lines[-_LAST:]]
    return "\n".join(lines).encode("latin-1", "replace").decode("latin-1")
