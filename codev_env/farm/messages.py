"""Messages between a farm and its nodes: requests and results travel in batches, and images once per node.

A message holds plain records, texts and pixels. Ray carries them by pickle between processes that trust each other; a
model's text is only ever a `str` in them.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.dialects import Dialect
from codev_env.judges import Judge
from codev_env.judges.options import JudgeStats
from codev_env.sandbox import Limits
from codev_env.types import Code, Execution, Region, Step, StepScore
from codev_env.usage import EpisodeUsage

_PLAIN = ("RGB", "L", "RGBA")
_lock = threading.Lock()
_digests: dict[int, tuple[weakref.ref[Image.Image], str]] = {}


def digest_of(image: Image.Image) -> str:
    """Return the hash of an image's content; it is computed once as long as the image exists, for images are fixed."""
    key = id(image)
    with _lock:
        known = _digests.get(key)
    if known is not None and known[0]() is image:
        return known[1]
    content = hashlib.sha256(f"{image.mode} {image.size} {image.getpalette()}".encode())
    content.update(image.tobytes())
    digest = content.hexdigest()
    with _lock:
        _digests[key] = (weakref.ref(image, lambda _: _digests.pop(key, None)), digest)
    return digest


@dataclass(frozen=True, eq=False)
class PackedImage:
    """An image that travels.

    Attributes:
        digest: The hash of its content.
        mode: Pillow's name of its mode.
        size: (width, height) in pixels.
        pixels: Its raw bytes, uint8; an image with a palette travels as Pillow pickles it.
    """

    digest: str
    mode: str
    size: tuple[int, int]
    pixels: NDArray[np.uint8] | Image.Image

    @property
    def bytes(self) -> int:
        """Bytes of its pixels."""
        return self.size[0] * self.size[1] * len(Image.getmodebandnames(self.mode))


def pack(image: Image.Image) -> PackedImage:
    """Pack an image for its way; the pixels are copied."""
    if image.mode not in _PLAIN:
        return PackedImage(digest_of(image), image.mode, image.size, image)
    return PackedImage(digest_of(image), image.mode, image.size, np.frombuffer(image.tobytes(), np.uint8))


def unpack(packed: PackedImage) -> Image.Image:
    """Make the image again; its memory is its own."""
    if isinstance(packed.pixels, Image.Image):
        return packed.pixels
    return Image.frombytes(packed.mode, packed.size, packed.pixels.tobytes())


@dataclass(frozen=True, eq=False)
class EpisodeSetup:
    """The settings that the episodes of one environment share; sent to a node once.

    Attributes:
        dialect: How the model talks.
        judge: Scores the calls, on the node.
        limits: Limits of the sandbox.
    """

    dialect: Dialect
    judge: Judge
    limits: Limits


@dataclass(frozen=True, eq=False)
class Open:
    """Begin an episode. A node that lacks the setup or an image drops it: the next `RunProgram` then is `Missing`.

    Attributes:
        episode: Its number.
        setup: The hash of `setup_bytes`.
        task: The task without its images, pickled by itself, so that one that cannot be read harms no other.
        images: The hashes of the task's images.
        setup_bytes: A pickled `EpisodeSetup`; empty where the node has it.
        pixels: The images that the node lacks.
    """

    episode: int
    setup: str
    task: bytes
    images: tuple[str, ...]
    setup_bytes: bytes = b""
    pixels: tuple[PackedImage, ...] = ()


@dataclass(frozen=True, eq=False)
class RunProgram:
    """Run, trace and judge the program of a turn; the reply is `Ran`, `Missing` or `Failed`.

    Attributes:
        number: Names the request.
        episode: The episode.
        action: The model's text.
        turn: The same, parsed.
        before: The turns since the last program.
        probed: `Step.probed` of every turn so far.
        elsewhere: What the judge has counted on other machines; `None` if it counts nothing.
    """

    number: int
    episode: int
    action: str
    turn: Code
    before: tuple[Step, ...] = ()
    probed: tuple[tuple[bool, bool] | None, ...] = ()
    elsewhere: JudgeStats | None = None


@dataclass(frozen=True, eq=False)
class Call:
    """Call a function with a sandbox of the node; the reply is `Returned` or `Failed`.

    Attributes:
        number: Names the request.
        limits: Limits of the sandbox.
        content: The function, which gets the sandbox and the arguments, and its arguments, pickled.
    """

    number: int
    limits: Limits
    content: bytes


@dataclass(frozen=True, eq=False)
class Close:
    """End an episode; there is no reply."""

    episode: int


Request = Open | RunProgram | Call | Close


@dataclass(frozen=True, eq=False)
class Ran:
    """The result of a program.

    Attributes:
        number: That of the request.
        execution: Without its images.
        images: Each packed, or the hash of one that both sides have.
        regions: Where their pixels come from.
        score: The judge's score.
    """

    number: int
    execution: Execution
    images: tuple[PackedImage | str, ...]
    regions: tuple[Region, ...]
    score: StepScore | None


@dataclass(frozen=True, eq=False)
class Returned:
    """The value that a called function returned, pickled."""

    number: int
    value: bytes


@dataclass(frozen=True, eq=False)
class Missing:
    """The node does not have the episode."""

    number: int


@dataclass(frozen=True, eq=False)
class Failed:
    """An exception on the node.

    Attributes:
        number: That of the request.
        kind: Name of its class, of those in `codev_env.errors` where it is a `CodevError`.
        message: Its text.
        usage: Its `CodevError.usage`.
    """

    number: int
    kind: str
    message: str
    usage: EpisodeUsage | None = None


Result = Ran | Returned | Missing | Failed


@dataclass(frozen=True, eq=False)
class Beat:
    """A sign of life of a node, with the results since the last one.

    Attributes:
        results: The results.
        busy_s: Seconds of its threads spent on programs, since it started.
        waiting: Programs that wait for a thread.
        counted: What judges have counted since the last one, by the hash of a setup with that judge.
        memory_free: Share of the node's memory that is free, 0 to 1.
    """

    results: tuple[Result, ...]
    busy_s: float = 0.0
    waiting: int = 0
    counted: Mapping[str, JudgeStats] = field(default_factory=dict)
    memory_free: float = 1.0


@dataclass(frozen=True)
class NodeReport:
    """A node's report of itself when it starts.

    Attributes:
        version: Version of codev_env.
        source: Hash of its source files.
        layers: The sandbox's layers in force, as `Sandbox.describe` returns them.
        refused: Why the sandbox refuses to work there; empty where it works.
        libraries: Versions of the libraries that results depend on.
        pid: Of the worker process.
    """

    version: str
    source: str
    layers: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0
