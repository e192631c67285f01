"""The work of one node: warm sandboxes, provenance and judges behind a queue, without any network code."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from PIL import Image

import codev_env
from codev_env.errors import CodevError, JudgeError, SandboxError
from codev_env.farm.counts import NodeCounts
from codev_env.farm.messages import (
    Beat,
    Call,
    Close,
    EpisodeSetup,
    Failed,
    Missing,
    NodeReport,
    Open,
    PackedImage,
    Ran,
    Request,
    Result,
    Returned,
    RunProgram,
    digest_of,
    pack,
    unpack,
)
from codev_env.farm.programs import LocalPrograms
from codev_env.judges import AsyncJudge, BatchJudge, ServedJudge
from codev_env.memory import machine_memory
from codev_env.sandbox import Limits, Sandbox, raise_limit
from codev_env.types import Step, StepScore, Task

LIBRARIES = ("numpy", "pillow", "RestrictedPython")
"""Libraries of which other versions may give other results."""
_JUDGES = 64  # threads that wait for a judge's server
_BEAT_BYTES = 64 << 20  # pixels of one sign of life


@cache
def source_digest() -> str:
    """Return a hash of the source files of this package: two with one version number may still differ."""
    root, content = Path(codev_env.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()[:12]


@dataclass(eq=False)
class _RunningEpisode:
    """An episode on the node."""

    task: Task
    setup: EpisodeSetup
    programs: LocalPrograms | None = None
    steps: list[Step] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)  # hashes of images that the driver has
    busy: bool = False
    closed: bool = False


@dataclass(frozen=True)
class _Unreadable:
    """A setup or a task that cannot be read here: why."""

    reason: str


class NodeWork:
    """Runs the episodes of one driver on a node. Thread-safe.

    Args:
        slots: Programs that run at the same time.
        images_mb: MiB of images that are kept for later episodes.
        allow_weaker: Work even if the kernel lacks required layers of the sandbox.
    """

    def __init__(self, slots: int, images_mb: int = 4096, allow_weaker: bool = False) -> None:
        self._allow_weaker, self._room = allow_weaker, images_mb << 20
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._results: deque[Result] = deque()
        self._images: OrderedDict[str, Image.Image] = OrderedDict()
        self._kept = 0
        self._setups: dict[str, EpisodeSetup | _Unreadable] = {}
        self._episodes: dict[int, _RunningEpisode | _Unreadable] = {}
        self._boxes: dict[Limits, Sandbox] = {}
        self._counts = NodeCounts()
        self._busy_s, self._waiting = 0.0, 0
        self._threads = ThreadPoolExecutor(slots, "codev-node")
        self._judges = ThreadPoolExecutor(_JUDGES, "codev-judge")

    def hello(self) -> NodeReport:
        """Start the first sandbox worker and report what is in force here."""
        raise_limit()  # the actor's process is its own
        layers, refused = {}, ""
        try:
            layers = self._box(Limits()).describe()
        except SandboxError as error:
            refused = str(error)
        return NodeReport(
            version=codev_env.__version__,
            source=source_digest(),
            layers=layers,
            refused=refused,
            libraries={name: metadata.version(name) for name in LIBRARIES},
            pid=os.getpid(),
        )

    def submit(self, batch: Sequence[Request]) -> int:
        """Take requests, in order; returns their number. Results come with `collect`."""
        for request in batch:
            if isinstance(request, Open):
                self._open(request)
            elif isinstance(request, Close):
                self._close(request.episode)
            else:
                with self._lock:
                    self._waiting += 1
                self._threads.submit(self._work, request)
        return len(batch)

    def collect(self, beat_s: float) -> Beat:
        """Wait until there are results, at most for `beat_s` seconds, and return them."""
        with self._ready:
            if not self._results:
                self._ready.wait(beat_s)
            taken, size = [], 0
            while self._results and size < _BEAT_BYTES:
                result = self._results.popleft()
                if isinstance(result, Ran):
                    size += sum(image.bytes for image in result.images if not isinstance(image, str))
                taken.append(result)
            return Beat(tuple(taken), self._busy_s, self._waiting, self._counts.take(), _memory_free())

    def close(self) -> None:
        """End all episodes and close the sandboxes."""
        for number in list(self._episodes):
            self._close(number)
        self._threads.shutdown(cancel_futures=True)
        self._judges.shutdown(cancel_futures=True)
        for box in self._boxes.values():
            box.close()

    # Episodes

    def _open(self, request: Open) -> None:
        with self._lock:
            if request.setup_bytes and request.setup not in self._setups:
                self._setups[request.setup] = _loaded(request.setup_bytes)
            setup = self._setups.get(request.setup)
        if isinstance(setup, EpisodeSetup):
            self._counts.watch(request.setup, setup.judge)
        given = {packed.digest: unpack(packed) for packed in request.pixels}
        images = [self._image(digest, given.get(digest)) for digest in request.images]
        if setup is None or None in images:
            return
        task = _loaded(request.task)
        with self._lock:
            if isinstance(setup, _Unreadable) or isinstance(task, _Unreadable):
                self._episodes[request.episode] = setup if isinstance(setup, _Unreadable) else task
                return
            task = replace(task, images=tuple(images))
            self._episodes[request.episode] = _RunningEpisode(task, setup, shared=set(request.images))

    def _image(self, digest: str, given: Image.Image | None) -> Image.Image | None:
        """Return an image by its hash and keep it; the ones that were not used for longest make room."""
        with self._lock:
            image = self._images.pop(digest, None)
            if image is None:
                image = given
                self._kept += _bytes(given) if given else 0
            if image is None:
                return None
            self._images[digest] = image
            while self._kept > self._room and len(self._images) > 1:
                self._kept -= _bytes(self._images.popitem(last=False)[1])
        return image

    def _close(self, number: int) -> None:
        with self._lock:
            episode = self._episodes.pop(number, None)
            if episode is None or isinstance(episode, _Unreadable):
                return
            episode.closed = True
            if episode.busy:
                return  # the thread that runs its program closes it
        self._threads.submit(_end, episode)

    # Programs

    def _work(self, request: RunProgram | Call) -> None:
        started = time.monotonic()
        with self._lock:
            self._waiting -= 1
        try:
            if isinstance(request, Call):
                function, arguments = pickle.loads(request.content)
                value = function(self._box(request.limits), *arguments)
                self._reply(Returned(request.number, pickle.dumps(value)))
            else:
                self._run(request)
        except BaseException as error:
            self._reply(_failed(request.number, error))
        finally:
            with self._lock:
                self._busy_s += time.monotonic() - started

    def _run(self, request: RunProgram) -> None:
        with self._lock:
            episode = self._episodes.get(request.episode)
            if isinstance(episode, _RunningEpisode):
                episode.busy = True
        if episode is None:
            return self._reply(Missing(request.number))
        if isinstance(episode, _Unreadable):
            return self._reply(Failed(request.number, "ConfigError", episode.reason))
        self._counts.hear(episode.setup.judge, request.elsewhere)
        try:
            step = self._execute(request, episode)
        except BaseException as error:
            return self._settle(episode, _failed(request.number, error))
        if isinstance(episode.setup.judge, AsyncJudge | BatchJudge | ServedJudge):
            self._judges.submit(self._finish, request, episode, step)  # its server takes no thread of the programs
        else:
            self._finish(request, episode, step)

    def _execute(self, request: RunProgram, episode: _RunningEpisode) -> Step:
        episode.steps += request.before
        probed = zip(episode.steps, request.probed, strict=True)
        episode.steps = [step if known == step.probed else replace(step, probed=known) for step, known in probed]
        if episode.programs is None:
            episode.programs = LocalPrograms(self._box(episode.setup.limits), episode.setup.dialect, episode.task)
        return episode.programs.run(request.action, request.turn)

    def _finish(self, request: RunProgram, episode: _RunningEpisode, step: Step) -> None:
        try:
            result: Result = self._judged(request, episode, step)
        except BaseException as error:
            result = _failed(request.number, error)
        self._settle(episode, result)

    def _judged(self, request: RunProgram, episode: _RunningEpisode, step: Step) -> Ran:
        """Judge a turn and keep it for the turns after it."""
        score = _score(episode, step)
        assert step.execution is not None
        images = tuple(self._packed(episode, image) for image in step.execution.images)
        episode.steps.append(replace(step, score=score))
        return Ran(request.number, replace(step.execution, images=()), images, step.regions, score)

    def _packed(self, episode: _RunningEpisode, image: Image.Image) -> PackedImage | str:
        digest = digest_of(image)
        if digest in episode.shared:
            return digest
        episode.shared.add(digest)
        return pack(image)

    def _settle(self, episode: _RunningEpisode, result: Result) -> None:
        """Reply, but first be ready for the next turn: the driver sends it as soon as it has this one's result."""
        with self._lock:
            episode.busy = False
            closed = episode.closed
        if closed:
            _end(episode)
        self._reply(result)

    def _reply(self, result: Result) -> None:
        with self._ready:
            self._results.append(result)
            self._ready.notify()

    def _box(self, limits: Limits) -> Sandbox:
        with self._lock:
            if limits not in self._boxes:
                self._boxes[limits] = Sandbox(limits, allow_weaker=self._allow_weaker)
            return self._boxes[limits]


def _memory_free() -> float:
    memory = machine_memory()
    return memory.free_share if memory else 1.0


def _score(episode: _RunningEpisode, step: Step) -> StepScore | None:
    judge = episode.setup.judge
    try:
        score = judge.score(episode.task, step, tuple(episode.steps))
        pickle.dumps(score)  # one that cannot travel must not take other results with it
        return score
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(f"judge {judge.name!r} failed on {episode.task.task_id!r}: {error!r}") from error


def _loaded(content: bytes) -> Any:
    """Read what the driver, which is trusted, has pickled."""
    try:
        return pickle.loads(content)
    except Exception as error:
        return _Unreadable(f"a dialect, judge or task cannot be read: {error!r}. Its module has to be installed")


def _failed(number: int, error: BaseException) -> Failed:
    if not isinstance(error, CodevError):
        return Failed(number, type(error).__name__, repr(error))
    known = next(kind for kind in type(error).__mro__ if kind.__module__ == CodevError.__module__)
    return Failed(number, known.__name__, str(error), error.usage)


def _end(episode: _RunningEpisode) -> None:
    programs, episode.programs = episode.programs, None
    if programs is not None:
        programs.close()


def _bytes(image: Image.Image) -> int:
    return image.width * image.height * len(image.getbands())
