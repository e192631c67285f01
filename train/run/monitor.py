"""TensorBoard, other trackers and `history.jsonl`: what happened in each update, for people and for the report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codev_env.farm.farm import farm_metrics
from codev_env.files import read_rows, write_text
from codev_env.geometry import boxes_on
from codev_env.trajectory import Trajectory
from codev_train.run.trackers import FENCE, RunTracker

HISTORY = "history.jsonl"
_WIDEST = 4  # of an image in `draw`, as a multiple of its height: a strip may be a hundred times as wide as high


class Monitor:
    """Writes scalars, images and transcripts of a run; only the main process writes.

    Args:
        folder: The run folder: events go to `tensorboard/`, one line per update to `history.jsonl`.
        active: Whether this process writes.
        start: Updates that are already done; later lines of an interrupted run are dropped.
        trackers: Trackers beside TensorBoard, which get the same; the monitor closes them.
    """

    def __init__(self, folder: Path, active: bool = True, start: int = 0, trackers: Sequence[RunTracker] = ()) -> None:
        self.folder, self._writer, self._trackers = folder, None, trackers if active else ()
        if active:
            from torch.utils.tensorboard import SummaryWriter

            # Events after `start` in earlier files are hidden: these updates run again.
            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)
            _cut_history(folder / HISTORY, start)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers under their names; those that are not finite are left out."""
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        if self._writer:
            for name, value in finite.items():
                self._writer.add_scalar(name, value, step)
        for tracker in self._trackers:
            tracker.scalars(finite, step)

    def update(self, values: Mapping[str, float], step: int) -> None:
        """Write the numbers of one policy update, and of the farm if there is one, to TensorBoard and the history."""
        values = {**values, **farm_metrics()}
        self.scalars(values, step)
        if self._writer:
            row = {"step": step} | {k: v if math.isfinite(v) else None for k, v in values.items()}
            with (self.folder / HISTORY).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            self._writer.flush()  # A process that is killed writes nothing more.

    def history(self) -> list[dict[str, Any]]:
        """Return the rows of the updates that are done; only the main process has any."""
        return read_rows(self.folder / HISTORY) if self._writer else []

    def episodes(self, trajectories: list[Trajectory], step: int) -> None:
        """Show episodes: the image with target (green) and crop boxes (red), the crops, and the transcript."""
        if self._writer:
            images, texts = list(map(draw, trajectories)), list(map(transcript, trajectories))
            for number, (image, text) in enumerate(zip(images, texts, strict=True)):
                self._writer.add_image(f"episodes/{number}", image, step, dataformats="HWC")
                self._writer.add_text(f"episodes/{number}", text, step)
            for tracker in self._trackers:
                tracker.episodes(images, texts, step)

    def close(self) -> None:
        """Flush and close the event file and the trackers."""
        for tracker in self._trackers:
            tracker.close()
        if self._writer:
            self._writer.close()


def _cut_history(path: Path, start: int) -> None:
    if path.exists():
        write_text(path, "".join(json.dumps(row) + "\n" for row in read_rows(path) if row["step"] <= start))


def draw(trajectory: Trajectory, height: int = 336) -> np.ndarray[Any, Any]:
    """Draw the input image with target and crop boxes, and beside it the returned images; uint8 HxWx3.

    Images are as high as `height`, unless they would be more than four times as wide.
    """
    from PIL import Image, ImageDraw

    image = trajectory.images[0].convert("RGB")
    pen = ImageDraw.Draw(image)
    width = max(2, image.height // 150)
    for box in boxes_on(0, trajectory.targets):
        pen.rectangle(box, outline=(0, 200, 0), width=width)
    for box in boxes_on(0, (box for turn in trajectory.turns for box in turn.crop_boxes)):
        pen.rectangle(box, outline=(230, 0, 0), width=width)
    shown = [image, *(crop.convert("RGB") for turn in trajectory.turns for crop in turn.images)]
    scales = [min(height / i.height, _WIDEST * height / i.width) for i in shown]
    shown = [
        i.resize((max(1, round(i.width * scale)), max(1, round(i.height * scale))))
        for i, scale in zip(shown, scales, strict=True)
    ]
    sheet = Image.new("RGB", (sum(i.width + 4 for i in shown), height), (255, 255, 255))
    x = 0
    for part in shown:
        sheet.paste(part, (x, 0))
        x += part.width + 4
    return np.asarray(sheet)


def transcript(trajectory: Trajectory) -> str:
    """Write an episode as Markdown: every turn with its reward terms."""
    lines = [f"**{trajectory.question}**  answer: {trajectory.answer}"]
    for turn in trajectory.turns:
        terms = ", ".join(f"{name} {value:+.2f}" for name, value in turn.reward_terms.items())
        lines += [FENCE, turn.action, *([turn.observation] if turn.observation else []), FENCE, terms]
    lines.append(f"correct: {trajectory.is_correct}, faithful: {trajectory.is_faithful}")
    return "\n\n".join(lines)
