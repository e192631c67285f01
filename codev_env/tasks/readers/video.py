"""Questions about videos of your own: rows that name a video file, decoded in a process of its own, frames on demand.

Decoders of video are large and read files nobody knows. So neither the trainer nor the sandbox has one: a process
under limits (`video_worker`) decodes the frames at fixed times, first the one that is shown, the others when a program
runs for the first time. Programs find them as `frames` and `video`; nothing is decoded at their wish, so that a program
cannot reach the decoder, and provenance runs it again on coded frames like on other images.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from codev_env.benches import Bench
from codev_env.errors import ConfigError, TaskError
from codev_env.geometry import ImageBox
from codev_env.tasks.readers.boxes import Frame
from codev_env.tasks.readers.cells import parsed
from codev_env.tasks.readers.fields import brief, is_number, letter_answer, other_fields, plain, scorer_meta
from codev_env.tasks.readers.files import find_files, of_split, only_split, split_of, table_of
from codev_env.tasks.readers.images import Rules
from codev_env.tasks.readers.own_text import read_choices, single_text
from codev_env.tasks.readers.rowset import DraftTask, OnError, RowTaskSet, Scan, problems_of
from codev_env.tasks.readers.table import RowTable
from codev_env.types import Box, Task

_SUFFIXES = (".jsonl", ".json", ".parquet", ".tsv")
_USED = frozenset({"video", "question", "answer", "choices", "targets", "category", "id"})


@dataclass(frozen=True)
class VideoLimits:
    """Which frames of a video are decoded.

    Attributes:
        fps: Frames a second; fewer where a video would have more than `max_frames`: then evenly spread.
        max_frames: Most frames, 2 to 64: programs have all of them in memory.
        max_pixels: Most pixels of a frame; larger ones are scaled down, with their boxes.
        max_seconds: Longest video.
        max_source_pixels: Most pixels of a frame in the file.
        cpu_s: Seconds of processor time to decode one video.
        memory_mb: Memory in MiB to decode one video.
    """

    fps: float = 1.0
    max_frames: int = 32
    max_pixels: int = 640 * 480
    max_seconds: float = 3600.0
    max_source_pixels: int = 7680 * 4320
    cpu_s: int = 120
    memory_mb: int = 4096

    def __post_init__(self) -> None:
        for name, low, high in (
            ("fps", 0.001, 1000),
            ("max_frames", 2, 64),
            ("max_pixels", 28 * 28, 3840 * 2160),
            ("max_seconds", 0.1, 86400),
            ("max_source_pixels", 28 * 28, 2**31),
            ("cpu_s", 1, 3600),
            ("memory_mb", 512, 65536),
        ):
            value = getattr(self, name)
            if not is_number(value) or not low <= value <= high:
                raise ConfigError(f"option {name} of videos is {value!r}; expected a number from {low:g} to {high:g}.")


def open_video(
    path: str | Path,
    split: str = "test",
    *,
    bench: Bench,
    fps: float = 1.0,
    max_frames: int = 32,
    max_pixels: int = 640 * 480,
    subset: str | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
    images: Rules = None,
) -> RowTaskSet:
    """Open questions about videos; needs `pip install 'codev-env[video]'`.

    A row has `video` (a path, relative to the file), `question`, `answer`, and where known `choices` (a list; the
    answer is one of them or its letter), `targets` (a list of `{"seconds": s, "box": [x1, y1, x2, y2]}`, in pixels of
    the video as players show it), `category` and `id`.

    Args:
        path: A JSONL, JSON, Parquet or TSV file, or a folder with one for each split.
        split: Which file of a folder.
        bench: The row of `BENCHES`.
        fps: See `VideoLimits`, as `max_frames` and `max_pixels`.
        max_frames: Most frames of a video.
        max_pixels: Most pixels of a frame.
        subset: Only this category.
        seed: Not used: the order of the options is part of the data.
        on_error: How to treat bad rows, see `RowTaskSet`.
        images: Not used: `VideoLimits` are the rules of frames.

    Raises:
        TaskError: Missing or invalid data; the message names file and row.
        ConfigError: An option that cannot be used.
    """
    only_split(bench.title, split, bench.splits)
    files = find_files(path, _SUFFIXES, "rows with 'video', 'question' and 'answer' as JSONL, JSON, Parquet or TSV")
    if Path(path).is_dir() and any(split_of(file.stem) for file in files):
        files = of_split(files, split)
    if not files:
        raise TaskError(f"{path}: has no file for split {split!r}.")
    limits = VideoLimits(fps, max_frames, max_pixels)
    return VideoTaskSet(table_of(files), VideoReader(bench.name, limits), subset=subset, on_error=on_error)


@dataclass(frozen=True)
class VideoReader:
    """Rows of a video file, a question and an answer.

    Attributes:
        bench: Name of the benchmark.
        limits: The frames to decode.
    """

    bench: str
    limits: VideoLimits
    image_column: str = "video"
    frame: Frame = "stored"

    def scan(self, table: RowTable) -> Scan:
        """Check ids, questions, answers and evidence of all rows."""
        table.require("video", "question", "answer")
        names = [name for name in ("id", *sorted(_USED - {"id"})) if table.has(name)]
        columns = {name: table.values(name) for name in names}
        numbers = columns.get("id", range(len(table)))
        categories = [plain(value) for value in columns.get("category", [""] * len(table))]
        return Scan(
            [f"{self.bench}-{plain(number)}" for number in numbers], categories, problems_of(table, columns, self.read)
        )

    def read(self, row: Mapping[str, Any], where: str, index: int = 0) -> DraftTask:
        """Read one row; the evidence stays in seconds and pixels of the video, in `meta["evidence"]`."""
        question, answer = (plain(single_text(row[name], name, where)) for name in ("question", "answer"))
        for name, value in (("video", plain(row["video"])), ("question", question), ("answer", answer)):
            if not value:
                raise TaskError(f"{where}: {name!r} is empty.")
        options = read_choices(row.get("choices"), where)
        choices = tuple(option.text for option in options)
        if choices and answer not in choices:
            answer = letter_answer(where, answer, {option.letter: option.text for option in options})
        targets = parsed(row.get("targets"), where) or ()
        evidence = [_evidence(entry, where) for entry in (targets if isinstance(targets, list | tuple) else [targets])]
        rest = other_fields(row, _USED)
        kind = "multi_choice" if choices else "free_form"
        return DraftTask(
            images=plain(row["video"]),
            question=question,
            answer=answer,
            choices=choices,
            category=plain(row.get("category")),
            meta={**rest, **scorer_meta(self.bench, question_type=kind), "evidence": evidence},
        )


def _evidence(entry: Any, where: str) -> dict[str, Any]:
    box: Any = entry.get("box") if isinstance(entry, Mapping) else None
    seconds: Any = entry.get("seconds") if isinstance(entry, Mapping) else None
    good = isinstance(box, Sequence) and len(box) == 4 and all(map(is_number, box)) and is_number(seconds)
    if not good or not (0 <= box[0] < box[2] and 0 <= box[1] < box[3] and seconds >= 0):
        raise TaskError(f"{where}: a target is {brief(entry)}; expected {{'seconds': s, 'box': [x1, y1, x2, y2]}}.")
    return {"seconds": float(seconds), "box": [float(value) for value in box]}


class VideoTaskSet(RowTaskSet):
    """Rows about videos; a task decodes the frame that is shown, and the others when they are first read."""

    def _task(self, row: int, draft: DraftTask) -> Task:
        where, reader = self._table.where(row), self._reader
        assert isinstance(reader, VideoReader)
        path = self._folder(row) / draft.images
        frames = open_frames(path, where, reader.limits)
        targets = tuple(_placed(entry, frames, where) for entry in draft.meta["evidence"])
        return Task(
            task_id=self._ids[row],
            images=frames,
            question=draft.question,
            answer=draft.answer,
            choices=draft.choices,
            targets=targets,
            source=self.source,
            category=draft.category,
            meta={**draft.meta, "video": {"seconds": frames.seconds, "size": list(frames.source)}},
            shown=1,
            times=frames.times,
        )


def _placed(entry: Mapping[str, Any], frames: Frames, where: str) -> Box:
    """Return the box of an evidence on the frame that `video.at` gives for its second, in pixels of that frame."""
    number = min(range(len(frames)), key=lambda i: abs(frames.times[i] - entry["seconds"]))
    (width, height), (w, h) = frames.source, frames.size
    x1, y1, x2, y2 = entry["box"]
    if entry["seconds"] > frames.seconds or x2 > width or y2 > height:
        raise TaskError(f"{where}: the target {entry} is not in the video ({frames.seconds:g} s, {width}x{height}).")
    box = (
        math.floor(x1 * w / width),
        math.floor(y1 * h / height),
        math.ceil(x2 * w / width),
        math.ceil(y2 * h / height),
    )
    return ImageBox((box[0], box[1], min(w, max(box[2], box[0] + 1)), min(h, max(box[3], box[1] + 1))), number)


class Frames(Sequence[Image.Image]):
    """The frames of a video: the first one is decoded at once, the others together when one of them is read.

    Attributes:
        times: The second of each frame.
        seconds: Length of the video.
        source: (width, height) in the file, as players show it: after its rotation.
        size: (width, height) of the frames.
    """

    def __init__(self, path: Path, where: str, limits: VideoLimits, about: Mapping[str, Any]) -> None:
        self._path, self._where, self._limits = path, where, limits
        self.seconds, self.source = float(about["seconds"]), (about["width"], about["height"])
        # A frame for the part of a second at the end, but none for what rounding adds to a length.
        count = min(limits.max_frames, max(1, math.ceil(self.seconds * limits.fps - 1e-6)))
        step = 1 / limits.fps if count < limits.max_frames else self.seconds / count
        self.times = tuple(round(number * max(step, 1e-3), 3) for number in range(count))
        factor = min(1.0, math.sqrt(limits.max_pixels / (self.source[0] * self.source[1])))
        self.size = (max(28, int(self.source[0] * factor)), max(28, int(self.source[1] * factor)))
        self._decoded: list[Image.Image] = self._read(self.times[:1])
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, index: Any) -> Any:
        """Return a frame, or the frames of a slice; raises `TaskError` if the video is damaged."""
        wanted = range(len(self))[index]
        if wanted in (range(0, 1), 0):
            return tuple(self._decoded[:1]) if isinstance(index, slice) else self._decoded[0]
        with self._lock:
            if len(self._decoded) < len(self):
                self._decoded = self._read(self.times)
        return tuple(self._decoded[index]) if isinstance(index, slice) else self._decoded[index]

    def __iter__(self) -> Iterator[Image.Image]:
        return iter(self[:])

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied to another process: the first frame, and how to decode the others."""
        return {**self.__dict__, "_decoded": self._decoded[:1], "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _read(self, times: Sequence[float]) -> list[Image.Image]:
        reply, data = _ask(self._path, self._where, self._limits, list(times), self.size)
        each = self.size[0] * self.size[1] * 3
        if reply.get("frames") != len(times) or len(data) != each * len(times):
            raise TaskError(f"{self._where}: {self._path} has fewer frames than it says. Repair it or remove the row.")
        return [Image.frombytes("RGB", self.size, data[n * each : (n + 1) * each]) for n in range(len(times))]


def open_frames(path: Path, where: str, limits: VideoLimits) -> Frames:
    """Open a video; raises `TaskError` if it cannot be read, or is too long or too large."""
    if not os.path.isfile(path):  # `Path.is_file` raises for a name that is too long
        raise TaskError(f"{where}: the video {path} is missing. Download it, or remove the row.")
    about, _ = _ask(path, where, limits, None, (0, 0))
    seconds, width, height = (_number(about.get(name)) for name in ("seconds", "width", "height"))
    if min(seconds, width, height) <= 0:
        raise TaskError(f"{where}: {path} does not say how long or how large it is. Encode it again, as MP4.")
    if seconds > limits.max_seconds:
        raise TaskError(f"{where}: {path} takes {seconds:.0f} s, more than {limits.max_seconds:g} s. Cut it.")
    if width * height > limits.max_source_pixels:
        raise TaskError(
            f"{where}: {path} has frames of {width}x{height}, more than {limits.max_source_pixels} pixels. Scale it."
        )
    return Frames(path, where, limits, about)


def _number(value: Any) -> Any:
    return value if is_number(value) else 0


def _ask(
    path: Path, where: str, limits: VideoLimits, times: list[float] | None, size: tuple[int, int]
) -> tuple[dict[str, Any], bytes]:
    """Run the decoder on one video; raises `TaskError` with what is wrong, `ConfigError` if PyAV is missing."""
    if importlib.util.find_spec("av") is None:
        raise ConfigError("videos need PyAV, which is not installed. Install it: pip install 'codev-env[video]'.")
    request: dict[str, Any] = {"path": str(path.resolve()), "times": times, "size": size}
    request |= {"cpu_s": int(limits.cpu_s), "memory": int(limits.memory_mb) << 20}
    request["pixels"] = int(limits.max_source_pixels)
    most = (len(times or ()) * size[0] * size[1] * 3) + 65536
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    env = {**kept, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry), "OMP_NUM_THREADS": "1"}
    script = str(Path(__file__).with_name("video_worker.py"))
    try:
        done = subprocess.run(
            [sys.executable, "-P", script, json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=env,
            timeout=60 + 20 * limits.cpu_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TaskError(f"{where}: {path} could not be decoded ({type(error).__name__}). Try again.") from error
    line, _, data = done.stdout.partition(b"\n")
    try:
        reply = dict(json.loads(line)) if len(done.stdout) <= most else {"error": "more frames than asked for"}
    except ValueError:
        why = f"its decoder ended with status {done.returncode}: more than {limits.cpu_s:g} s, or damaged"
        reply = {"error": why}
    if "error" in reply:
        raise TaskError(f"{where}: {path} is no video that can be read ({reply['error']}). Encode it again, as MP4.")
    return reply, data
