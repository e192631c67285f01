"""The programs of one episode: run in a sandbox, and traced; the same code here and on the nodes of a farm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from codev_env.errors import CodevError
from codev_env.seeds import seed_of
from codev_env.types import Code, Execution, Region, Step, Task

if TYPE_CHECKING:
    from codev_env.dialects import Dialect
    from codev_env.sandbox import Sandbox

_log = logging.getLogger(__name__)


class Programs(Protocol):
    """Runs the programs of one episode, one after the other."""

    def start(self, action: str, turn: Code, history: Sequence[Step]) -> Callable[[], Step]:
        """Begin to run the program of a turn.

        Args:
            action: The model's raw text.
            turn: The same, parsed.
            history: The turns before it.

        Returns:
            A function that waits for the program and returns the turn with its execution and regions. On a farm the
            turn has its score, too.
        """
        ...

    def close(self) -> None:
        """Free what the episode holds; a second call does nothing."""
        ...


class LocalPrograms:
    """Programs in a sandbox of this process. The first one opens the session.

    Args:
        sandbox: Runs them.
        dialect: How the model talks.
        task: The task of the episode.
    """

    def __init__(self, sandbox: Sandbox, dialect: Dialect, task: Task) -> None:
        from codev_env.provenance import Tracker

        images = {dialect.image_name(i): image for i, image in enumerate(task.images)}
        self._task_id = task.task_id
        # Seeded by the task, so that a program with random numbers gives the same image each time it is run.
        seed = seed_of(task.task_id)
        self._dialect = dialect
        video = {"times": task.times} if task.times else {}
        self._session = sandbox.session(images, seed=seed, persist=dialect.persist, repairs=dialect.repairs, **video)
        # Not the programs' seed: their random numbers must not reveal where provenance looks.
        self._tracker = Tracker(self._session, images, secret=seed_of(f"grid of {task.task_id}"))
        self._seen = tuple(images)

    def start(self, action: str, turn: Code, history: Sequence[Step]) -> Callable[[], Step]:
        """Return a function that runs the program; see `Programs.start`."""
        return partial(self.run, action, turn)

    def run(self, action: str, turn: Code) -> Step:
        """Run the program of a turn and trace where the pixels of its images come from."""
        # The same text runs here and in the tracker's views, so that it sees what the program sees.
        program, seen = self._dialect.program(turn, self._seen), self._seen
        execution = self._session.run(program)
        regions = self._regions(program, execution)
        self._seen = (*seen, *execution.names)
        return Step(action, turn, self._dialect.report(execution, seen), regions)

    def _regions(self, program: str, execution: Execution) -> tuple[Region, ...]:
        """Trace the images of a program; where tracing itself fails they stay unknown, with a warning.

        The policy chooses what it returns: no image, however odd, may end a training run.
        """
        try:
            return tuple(self._tracker.trace(program, execution))
        except CodevError:
            raise
        except Exception:
            count = len(execution.images)
            message = "provenance failed on a program of task %r: the regions of its images (%d) are unknown"
            _log.warning(message, self._task_id, count, exc_info=True)
            return (Region(),) * count

    def close(self) -> None:
        """Close the session."""
        self._session.close()
