"""Runs the programs of an episode again, on other images, as far as a later program depends on them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from PIL import Image

from codev_env.errors import NoRoom
from codev_env.types import Execution

KILLED = ("timeout", "memory")
SHARED = ("code", "weave")
"""Views whose images depend on nothing but sizes."""
_log = logging.getLogger(__name__)


class ProbeSession(Protocol):
    """The part of a sandbox session that provenance needs."""

    @property
    def persist(self) -> Literal["images", "variables"]:
        """State that later runs find: saved files, or variables, too."""
        ...

    def run(self, code: str, *, view: str = "main") -> Execution:
        """Run a program in a view."""
        ...

    def add_view(
        self, name: str, images: Mapping[str, Image.Image], *, replace: bool = False, shared: bool = False
    ) -> None:
        """Make an independent namespace over other images of the same names; raises `NoRoom` where there is none."""
        ...


class _Turn(NamedTuple):
    """A program of the episode, and the files of earlier ones that it read and those that it left."""

    code: str
    reads: frozenset[str]
    saves: frozenset[str]
    killed: bool


class Reruns:
    """The programs of one episode, which run again in views of its session.

    Args:
        session: The session.
        names: The names that programs open the input images by.
    """

    def __init__(self, session: ProbeSession, names: Sequence[str]) -> None:
        self._session, self._names = session, tuple(names)
        self._history: list[_Turn] = []
        self._needed: list[int] = []
        self._done: dict[str, set[int]] = {}
        self._refused: set[str] = set()
        self._left = 0

    def add(self, code: str, execution: Execution) -> None:
        """Note the episode's next program and its result."""
        killed = execution.stop in KILLED
        self._history.append(_Turn(code, frozenset(execution.reads), frozenset(execution.saves), killed))

    def begin(self, most: int) -> None:
        """Begin to run the last program again: with all those that it depends on, `most` runs."""
        self._needed, self._left = self._needed_turns(), most

    def forget(self, view: str | None = None) -> None:
        """Begin a view, or all of them, anew when it is next used."""
        for name in [view] if view is not None else list(self._done):
            self._done.pop(name, None)

    def affords(self, stage: str, runs: int, views: Sequence[str] = ()) -> bool:
        """Whether so many runs of the last program, and those of earlier ones that they need, are left.

        Args:
            stage: The stage, for the log.
            runs: How many, each in a view of its own.
            views: Those of the views that exist.
        """
        needed = (runs - len(views)) * len(self._needed) + sum(len(self._missing(view)) for view in views)
        if needed > self._left:
            _log.info("provenance leaves out the stage %r: it takes %d runs, %d are left", stage, needed, self._left)
        return needed <= self._left

    def run(self, view: str, images: Sequence[Image.Image]) -> Execution:
        """Run the needed programs that a view has not seen; return the last one's result, an empty one if it failed."""
        result = Execution()
        if view in self._refused:
            return result
        missing = self._missing(view)
        if view not in self._done:
            try:
                given = dict(zip(self._names, images, strict=True))
                self._session.add_view(view, given, replace=True, shared=view in SHARED)
            except NoRoom as error:
                # Too many large inputs: the regions that this view would find stay unknown; the episode continues.
                self._refused.add(view)
                warnings.warn(f"provenance works without the view {view!r}: {error}", RuntimeWarning, stacklevel=2)
                return result
            self._done[view] = set()
        for at in missing:
            turn = self._history[at]
            result = self._session.run(turn.code, view=view)
            self._left -= 1
            self._done[view].add(at)
            if result.stop in KILLED and not turn.saves <= set(result.saves):
                del self._done[view]  # Files are missing that later programs read.
                return Execution()
        return result

    def _missing(self, view: str) -> list[int]:
        """The needed turns that have yet to run in a view; one that has run later ones than these is given up."""
        missing = [at for at in self._needed if at not in self._done.get(view, ())]
        if not missing or missing[0] > max(self._done.get(view, ()), default=-1):
            return missing
        del self._done[view]  # An earlier program would replace the files of a later one.
        return self._needed

    def _needed_turns(self) -> list[int]:
        """The last turn and those before it that it depends on, in order: by the files it reads, or by variables.

        A program that ran several times draws other random numbers each time, by how often it ran in the view.
        """
        *earlier, last = range(len(self._history))
        wanted, codes, needed = self._history[last].reads, {self._history[last].code}, [last]
        for at in reversed(earlier):
            turn = self._history[at]
            runs = not turn.killed and (self._session.persist == "variables" or turn.code in codes)
            if runs or turn.saves & wanted:
                needed.append(at)
                wanted = (wanted - turn.saves) | turn.reads
                codes.add(turn.code)
        return needed[::-1]
