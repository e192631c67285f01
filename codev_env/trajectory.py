"""The record of an episode that everything downstream reads; on disk `trajectories.jsonl` plus `images/*.png`."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast, overload

from PIL import Image

from codev_env.errors import TrajectoryError
from codev_env.types import ActionKind, Box, Region, Source, Stop

SCHEMA = 1
FILE_NAME = "trajectories.jsonl"
IMAGE_DIR = "images"
_MODES = ("RGB", "L", "RGBA")
_REGION = tuple(f.name for f in fields(Region) if f.compare)


class ImageFiles(Sequence[Image.Image]):
    """Images of a trajectory that was read back: each access decodes the file, nothing is kept in memory.

    Attributes:
        files: Paths of the PNG files.
        sizes: (width, height) of each, known without decoding.
    """

    def __init__(self, files: Sequence[Path], sizes: Sequence[tuple[int, int]]) -> None:
        self.files = tuple(files)
        self.sizes = tuple(sizes)

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...
    @overload
    def __getitem__(self, index: slice) -> ImageFiles: ...
    def __getitem__(self, index: int | slice) -> Image.Image | ImageFiles:
        if isinstance(index, slice):
            return ImageFiles(self.files[index], self.sizes[index])
        path = self.files[index]
        try:
            with Image.open(path) as opened:
                opened.load()
                return opened.copy()
        except (OSError, SyntaxError) as error:
            raise TrajectoryError(
                f"cannot read image {path}: {error}. It belongs to {path.parent.parent / FILE_NAME}; "
                "restore it or write the trajectories again."
            ) from error

    def __eq__(self, other: object) -> bool:
        return same_images(self, other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return f"ImageFiles({[path.name for path in self.files]})"


def same_images(a: Sequence[Image.Image], b: Sequence[Image.Image]) -> bool:
    """Whether two sequences hold the same pixels; metadata of the files is not compared."""
    if len(a) != len(b):
        return False
    if isinstance(a, ImageFiles) and isinstance(b, ImageFiles) and a.files == b.files:
        return True
    return all(x.mode == y.mode and x.size == y.size and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


class _Record:
    """Equality by value, images by their pixels."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        pairs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(cast(Any, self)))
        return all(same_images(a, b) if name == "images" else a == b for name, a, b in pairs)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class TurnRecord(_Record):
    """One turn: what the agent wrote, what ran, what it was shown afterwards and what it was paid.

    Attributes:
        action: The raw text of the agent.
        kind: `"code"`, `"answer"` or `"invalid"`.
        code: The program that ran, for `kind == "code"`.
        stdout: What it printed.
        error: Its error message.
        stop: Why it ended; see `Execution.stop`.
        observation: Text shown after the action; one `IMAGE_PLACEHOLDER` per image.
        images: Images shown after the action.
        crop_boxes: For each image the box of the original it shows, `None` where unknown.
        reward: The step's reward.
        reward_terms: The same by term; adds up to `reward`.
        score: The judge's score of the tool call, `None` where there was none.
        score_why: The judge's reason.
        faithful: The tool call showed a target as its main content.
        judge_failed: The tool call could not be judged, because the judge could not be had.
        wall_s: Seconds the program ran.
        regions: For each image that the program returned, what it shows of the original; without `seen`.
        problems: Flaws of format in the action.
        probed: Whether the policy's answer would have been right before and after the turn, see `Step.probed`.
    """

    action: str
    kind: ActionKind
    code: str | None = None
    stdout: str = ""
    error: str | None = None
    stop: Stop | None = None
    observation: str = ""
    images: Sequence[Image.Image] = ()
    crop_boxes: tuple[Box | None, ...] = ()
    reward: float = 0.0
    reward_terms: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None
    score_why: str = ""
    faithful: bool = False
    judge_failed: bool = False
    wall_s: float = 0.0
    regions: tuple[Region, ...] = ()
    problems: tuple[str, ...] = ()
    probed: tuple[bool, bool] | None = None

    def paid_more(self, terms: Mapping[str, float]) -> TurnRecord:
        """Return the turn with more reward, given by term."""
        total = {name: value + terms.get(name, 0.0) for name, value in self.reward_terms.items()}
        return replace(self, reward=sum(total.values()), reward_terms=total)


@dataclass(frozen=True, eq=False)
class Trajectory(_Record):
    """One episode from its first observation to its end.

    Attributes:
        task_id: The task's identifier.
        index: The task's index in its set.
        env_id: For example `"CodeV-VStar-v0"`.
        split: `"train"`, `"val"` or `"test"`.
        source: `"real"` or `"generated"`.
        category: The task's category.
        question: The question without its choices.
        choices: The options in the order shown.
        answer: The gold answer.
        targets: Boxes of the evidence in pixels of `images[0]`.
        transform: What was done to the original image, see `Task.transform`.
        system_prompt: The dialect's system prompt.
        prompt: Text of the first observation.
        images: The input images.
        dialect: Name of the dialect.
        observation_role: Who says the turns' observations, see `Dialect.observation_role`.
        reward_name: Name of the reward.
        agent: Name of the agent.
        seed: The seed `reset` was called with.
        turns: The turns in order.
        final_answer: What the agent answered, `None` if it never did.
        is_correct: Whether that is right.
        is_faithful: Whether any tool call showed a target as its main content.
        stop_reason: `"answer"`, `"max_turns"`, ...
        meta: Anything else that is JSON-able; tuples become lists.
    """

    task_id: str
    index: int = 0
    env_id: str = ""
    split: str = ""
    source: Source = "generated"
    category: str = ""
    question: str = ""
    choices: tuple[str, ...] = ()
    answer: str = ""
    targets: tuple[Box, ...] = ()
    transform: tuple[str, ...] = ()
    system_prompt: str = ""
    prompt: str = ""
    images: Sequence[Image.Image] = ()
    dialect: str = ""
    observation_role: str = "user"
    reward_name: str = ""
    agent: str = ""
    seed: int | None = None
    turns: tuple[TurnRecord, ...] = ()
    final_answer: str | None = None
    is_correct: bool = False
    is_faithful: bool = False
    stop_reason: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            # The record in memory is what a reader of the file would see.
            object.__setattr__(self, "meta", json.loads(json.dumps(dict(self.meta), allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise TrajectoryError(f"meta of trajectory {self.task_id!r} is not JSON: {error}.") from error

    @property
    def total_reward(self) -> float:
        """The sum of the turns' rewards."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def reward_terms(self) -> dict[str, float]:
        """The sum of the turns' rewards by term."""
        total: dict[str, float] = {}
        for turn in self.turns:
            for name, value in turn.reward_terms.items():
                total[name] = total.get(name, 0.0) + value
        return total

    @property
    def image_size(self) -> tuple[int, int] | None:
        """(width, height) of the first input image, without decoding it."""
        if not len(self.images):
            return None
        return self.images.sizes[0] if isinstance(self.images, ImageFiles) else self.images[0].size


class TrajectoryWriter:
    """Appends trajectories to a folder; what was written stays readable if the process dies at any moment.

    Image files, named by their content, are complete on disk before the line that names them. A line is written whole,
    in one call, or (disk full) taken back. Safe to use from several threads.

    Args:
        folder: Made if missing; an existing file is continued, and a torn last line removed with a warning.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.path = self.folder / FILE_NAME
        (self.folder / IMAGE_DIR).mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._written: set[str] = set()
        _mend_tail(self.path)
        self._file = open(self.path, "ab", buffering=0)  # closed in close()

    def append(self, trajectory: Trajectory) -> None:
        """Write one trajectory; raises `TrajectoryError` for values that JSON or PNG cannot hold."""
        row = {"schema": SCHEMA, **self._encode(trajectory)}
        row["turns"] = [self._encode(turn) for turn in trajectory.turns]
        try:
            line = _dump(row)
        except (TypeError, ValueError) as error:
            raise TrajectoryError(f"trajectory {trajectory.task_id!r} is not JSON: {error}.") from error
        with self._lock:
            start = os.fstat(self._file.fileno()).st_size
            try:
                if self._file.write(line) != len(line):
                    raise OSError("short write: is the disk full?")
            except OSError:
                self._file.truncate(start)
                raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _encode(self, record: TurnRecord | Trajectory) -> dict[str, Any]:
        row = {f.name: getattr(record, f.name) for f in fields(record) if f.name != "turns"}
        row["images"] = [self._save_image(image) for image in record.images]
        if isinstance(record, TurnRecord):
            row["regions"] = [{name: getattr(region, name) for name in _REGION} for region in record.regions]
        return row

    def _save_image(self, image: Image.Image) -> dict[str, Any]:
        if image.mode not in _MODES:
            raise TrajectoryError(f"cannot store an image of mode {image.mode}: convert it to RGB first.")
        digest = hashlib.blake2b(f"{image.mode}{image.size}".encode(), digest_size=12)
        digest.update(image.tobytes())
        name = f"{IMAGE_DIR}/{digest.hexdigest()}.png"
        path = self.folder / name
        if name not in self._written and not path.exists():
            # Written aside and renamed: a file under its final name is always complete.
            temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
            try:
                with open(temporary, "wb") as file:
                    image.save(file, format="PNG", compress_level=1)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
        self._written.add(name)
        return {"file": name, "size": list(image.size)}


def write_trajectories(folder: str | os.PathLike[str], trajectories: Iterable[Trajectory]) -> Path:
    """Append trajectories to a folder and return the path of its `trajectories.jsonl`."""
    with TrajectoryWriter(folder) as writer:
        for trajectory in trajectories:
            writer.append(trajectory)
        return writer.path


def read_trajectories(folder: str | os.PathLike[str]) -> list[Trajectory]:
    """Read back what `TrajectoryWriter` wrote; images are decoded only when looked at.

    Args:
        folder: The folder, or the path of its `trajectories.jsonl`.

    Returns:
        The trajectories in the order written, equal to those written. A torn last line, left by a process that died
        while writing, is ignored with a warning.

    Raises:
        TrajectoryError: If the file is missing or a line cannot be used; names file and line.
    """
    path = Path(folder)
    path = path if path.is_file() else path / FILE_NAME
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise TrajectoryError(f"cannot read {path}: {error.strerror}. Give the folder a run wrote to.") from error
    complete, tail = lines[:-1], lines[-1]
    found = [_parse(path, number, line) for number, line in enumerate(complete, 1) if line.strip()]
    if tail.strip():
        try:
            found.append(_parse(path, len(lines), tail))
        except TrajectoryError:
            _warn_torn(path, len(lines))
    return found


def _dump(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:  # A lone surrogate, which a program may print, has no UTF-8: escape it.
        return json.dumps(row, allow_nan=False).encode() + b"\n"


def _parse(path: Path, number: int, line: bytes) -> Trajectory:
    where = f"{path}, line {number}"
    try:
        row = json.loads(line)
    except ValueError as error:
        raise TrajectoryError(f"{where}: not JSON ({error}). Remove the line or write the file again.") from error
    if not isinstance(row, dict) or "schema" not in row:
        raise TrajectoryError(f"{where}: not a trajectory (no `schema`).")
    if row.pop("schema") != SCHEMA:
        raise TrajectoryError(f"{where}: written with another schema; this version reads schema {SCHEMA}.")
    try:
        turns = tuple(TurnRecord(**_decode(path.parent, TurnRecord, turn)) for turn in row.pop("turns"))
        return Trajectory(**_decode(path.parent, Trajectory, row), turns=turns)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TrajectoryError(f"{where}: not a trajectory of schema {SCHEMA} ({error}).") from error


def _decode(folder: Path, kind: type[TurnRecord] | type[Trajectory], row: dict[str, Any]) -> dict[str, Any]:
    known = {f.name for f in fields(kind)}
    required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    if row.keys() - known or required - row.keys():
        raise ValueError(f"unknown fields {sorted(row.keys() - known)}, missing {sorted(required - row.keys())}")
    entries = row.get("images", [])
    row["images"] = ImageFiles([folder / e["file"] for e in entries], [(e["size"][0], e["size"][1]) for e in entries])
    for name in ("targets", "crop_boxes"):
        if name in row:
            row[name] = tuple(None if box is None else tuple(box) for box in row[name])
    for name in ("choices", "transform", "problems"):
        if name in row:
            row[name] = tuple(row[name])
    if row.get("probed") is not None:
        before, after = row["probed"]
        row["probed"] = (bool(before), bool(after))
    if "regions" in row:
        row["regions"] = tuple(_region(region) for region in row["regions"])
    return row


def _region(row: dict[str, Any]) -> Region:
    if row["polygon"] is not None:
        row["polygon"] = tuple((float(x), float(y)) for x, y in row["polygon"])
    if row["box"] is not None:
        row["box"] = tuple(row["box"])
    return Region(**row)


def _mend_tail(path: Path) -> None:
    """Make an existing file end with a whole line, so that the next one does not join a torn one."""
    if not path.exists() or not path.stat().st_size:
        return
    with open(path, "r+b") as file:
        data = file.read()
        if data.endswith(b"\n"):
            return
        start = data.rfind(b"\n") + 1
        try:
            json.loads(data[start:])
        except ValueError:
            _warn_torn(path, data.count(b"\n") + 1)
            file.truncate(start)
        else:
            file.write(b"\n")


def _warn_torn(path: Path, number: int) -> None:
    warnings.warn(f"{path}, line {number}: torn (the writer died); ignored.", RuntimeWarning, stacklevel=3)
