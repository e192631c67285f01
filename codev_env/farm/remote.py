"""An episode whose programs run on a node, and the judge that scores there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from PIL import Image

from codev_env import errors
from codev_env.errors import CodevError, EpisodeLost, FarmError, JudgeError
from codev_env.farm.counts import FarmCounts
from codev_env.farm.link import NodeGone, NodeLink
from codev_env.farm.messages import (
    Close,
    Failed,
    Missing,
    Open,
    PackedImage,
    Ran,
    Result,
    RunProgram,
    digest_of,
    pack,
    unpack,
)
from codev_env.judges import Judge, for_view
from codev_env.threads import is_wanted
from codev_env.types import Code, Step, StepScore, Task

MOST_LOSSES = 4
"""So many nodes in a row may be lost under one program before it is blamed for that."""
TROUBLE = ("SandboxError", "NoRoom")
"""Failures of a node's machine, not of an episode."""


class Nodes(Protocol):
    """The side of a farm that its episodes see.

    Attributes:
        counts: What judges have counted.
    """

    counts: FarmCounts

    def enter(self, images: Sequence[str]) -> NodeLink:
        """Choose a node for an episode with these images and count it there."""
        ...

    def leave(self, link: NodeLink) -> None:
        """Count an episode off its node."""
        ...

    def number(self) -> int:
        """Return a number that is given once."""
        ...

    def dumps(self, value: object, name: str) -> bytes:
        """Pickle a value; raises `ConfigError` where it cannot travel."""
        ...

    def moved(self) -> None:
        """Count a program that goes to another node."""
        ...

    def trouble(self, link: NodeLink, reason: str) -> None:
        """Note that the sandbox of a node failed."""
        ...

    def worked(self, link: NodeLink) -> None:
        """Note that a program ran on a node."""
        ...

    def lost_episode(self, reason: str) -> EpisodeLost:
        """Count an episode that has to start again, and return the error that says so."""
        ...


class FarmJudge:
    """Returns the score that a turn got on its node.

    Args:
        inner: The judge that scores there.
    """

    def __init__(self, inner: Judge) -> None:
        self.inner = inner
        self.name = inner.name

    def for_view(self, view_pixels: int) -> FarmJudge:
        """Return the same for a policy that sees an image at no more than `view_pixels` pixels."""
        return FarmJudge(for_view(self.inner, view_pixels))

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Return the score of a turn that ran on a node."""
        if step.score is None:
            raise JudgeError(f"a turn of {task.task_id!r} did not run on the farm, so no node scored it.")
        return step.score


class RemotePrograms:
    """The programs of one episode on a node of a farm; see `Programs`.

    The images leave for the node when this is made, while the model still writes its first turn. An episode whose node
    is lost before a program has run goes to another node: there is no state yet, so nothing has to be repeated.
    Afterwards the state is lost with the node, and `EpisodeLost` is raised.

    Args:
        farm: Chooses the nodes.
        setup: The pickled `EpisodeSetup`, and its hash.
        task: The task.
    """

    def __init__(self, farm: Nodes, setup: tuple[bytes, str], task: Task) -> None:
        self._farm, self._setup, self._task = farm, setup, task
        self._images: dict[str, Image.Image] = {digest_of(image): image for image in task.images}
        self._order = tuple(digest_of(image) for image in task.images)
        self._bare = farm.dumps(replace(task, images=()), f"task {task.task_id!r}")
        self._ran = False
        self._sent = 0  # turns that the node knows
        self._closed = False
        self._link: NodeLink
        self._number: int
        self._open()

    def start(self, action: str, turn: Code, history: Sequence[Step]) -> Callable[[], Step]:
        """Send the program; see `Programs.start`."""
        turns = tuple(history)
        future = self._send(action, turn, turns)

        def wait() -> Step:
            ran = self._result(future, action, turn, turns)
            self._ran, self._sent = True, len(turns) + 1
            images = [self._image(image) for image in ran.images]
            return Step(action, turn, replace(ran.execution, images=tuple(images)), ran.regions, ran.score)

        return wait

    def close(self) -> None:
        """End the episode on its node."""
        if not self._closed:
            self._closed = True
            self._link.put(Close(self._number))
            self._farm.leave(self._link)

    def _open(self, everything: bool = False) -> None:
        self._link, self._number = self._farm.enter(self._order), self._farm.number()
        self._announce(everything)

    def _announce(self, everything: bool = False) -> None:
        """Send the task, with what the node lacks."""
        content, key = self._setup
        named = (key, *self._order)

        def request(lacking: list[str]) -> Open:
            sent = dict.fromkeys(named) if everything else lacking
            pixels = tuple(pack(self._images[digest]) for digest in sent if digest != key)
            return Open(self._number, key, self._bare, self._order, content if key in sent else b"", pixels)

        self._link.announce(named, request)
        self._sent = 0

    def _send(self, action: str, turn: Code, turns: tuple[Step, ...]) -> Future[Result]:
        future: Future[Result] = Future()
        probed = tuple(step.probed for step in turns)
        elsewhere = self._farm.counts.elsewhere(self._link, self._setup[1])
        request = RunProgram(self._farm.number(), self._number, action, turn, turns[self._sent :], probed, elsewhere)
        self._link.put(request, future)
        return future

    def _result(self, future: Future[Result], action: str, turn: Code, turns: tuple[Step, ...]) -> Ran:
        """Wait for the result of a program; sends it again where that repeats nothing that had an effect."""
        losses: list[str] = []
        missed = False
        while True:
            try:
                if not is_wanted(future):
                    raise FarmError("nobody waits for this program any more.")
                result = future.result()
            except NodeGone as gone:
                losses.append(f"{self._link.spec.name}: {gone}")
                self._moved(losses, turns)
                future = self._send(action, turn, turns)
                continue
            if isinstance(result, Ran):
                self._farm.worked(self._link)
                return result
            if isinstance(result, Missing) and not missed and not self._ran:
                missed = True  # the node has made room for other images
                self._announce(everything=True)
                future = self._send(action, turn, turns)
                continue
            if isinstance(result, Failed) and result.kind in TROUBLE:
                losses.append(f"{self._link.spec.name}: {result.message}")
                self._farm.trouble(self._link, result.message)
                self._moved(losses, turns)
                future = self._send(action, turn, turns)
                continue
            if isinstance(result, Failed):
                raise error_of(result, self._link.spec.name)
            raise self._farm.lost_episode(f"{self._link.spec.name} no longer has the episode")

    def _moved(self, losses: list[str], turns: tuple[Step, ...]) -> None:
        """Go to another node, or raise `EpisodeLost` where the lost one had run a program of the episode."""
        where = f"task {self._task.task_id!r}, turn {len(turns) + 1}"
        if self._ran:
            raise self._farm.lost_episode(f"{where}: {losses[-1]}")
        if len(losses) == MOST_LOSSES:
            raise FarmError(
                f"{where}: {len(losses)} nodes were lost while they ran the first program of this episode, so it is "
                f"not tried again ({'; '.join(losses)})."
            )
        self._link.put(Close(self._number))  # the node may live on: only its sandbox failed
        self._farm.leave(self._link)
        self._farm.moved()
        self._open()

    def _image(self, image: PackedImage | str) -> Image.Image:
        if isinstance(image, str):
            return self._images[image].copy()
        found = self._images[image.digest] = unpack(image)
        return found


def error_of(failed: Failed, node: str) -> CodevError:
    """Return the error for an exception on a node: of the same class where it is one of ours."""
    kind = getattr(errors, failed.kind, None)
    if isinstance(kind, type) and issubclass(kind, CodevError) and not issubclass(kind, EpisodeLost):
        error = kind(f"{failed.message} (on node {node})")
        error.usage = failed.usage
        return error
    return FarmError(f"node {node} failed: {failed.message}")
