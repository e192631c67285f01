"""How episodes ask an engine for completions: one by one, or in rounds, depending on the engine.

`Arrivals` passes each request on as it comes. `Rounds` is for an engine that only samples batches: it waits until every
player that is not done has asked, so that a batch, and with it every sample, does not depend on timing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from codev_agents.rollout.engine import AsyncEngine, Completion, Engine, Prompt, Sampling

Key = tuple[int, ...]
"""Names one completion among those of one call of the runner. Two requests with the same key get one sample."""


class IdleClock:
    """Measures how long nothing was under way, from its creation to `stop`. Thread-safe.

    Attributes:
        idle_s: Seconds so far.
    """

    def __init__(self) -> None:
        self.idle_s = 0.0
        self._under_way = 0
        self._lock = threading.RLock()
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Something is under way inside."""
        with self._lock:
            self.stop()
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                self._since = time.perf_counter()

    def read(self) -> float:
        """Return the seconds up to now."""
        with self._lock:
            return self.idle_s + (0.0 if self._under_way else time.perf_counter() - self._since)

    def stop(self) -> None:
        """Count up to now."""
        with self._lock:
            if not self._under_way:
                now = time.perf_counter()
                self.idle_s += now - self._since
                self._since = now


@dataclass(eq=False)
class _Request:
    prompt: Prompt
    sampling: Sampling
    answer: asyncio.Future[Completion]
    waiting: int = 0


class Rounds:
    """Asks for batches: a round begins when all players wait for a completion or are done.

    A batch is in the order of its keys, not of the requests.

    Args:
        engine: Samples the batches.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.clock = engine, IdleClock()
        self._busy = 0  # players that are not waiting for a completion
        self._broken = False
        self._asked: dict[Key, _Request] = {}

    @contextlib.contextmanager
    def player(self) -> Iterator[None]:
        """One player takes part inside; it asks for one completion at a time."""
        self._busy += 1
        try:
            yield
        except BaseException:
            self._broken = True  # all players are about to be cancelled: sample nothing more
            raise
        finally:
            self._busy -= 1
            self._look()

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """A player waits for another episode inside; rounds begin without it."""
        self._busy -= 1
        self._look()
        try:
            yield
        finally:
            self._busy += 1

    async def complete(self, prompt: Prompt, sampling: Sampling, key: Key) -> Completion:
        """Return the completion of the next round."""
        loop = asyncio.get_running_loop()
        request = self._asked.setdefault(key, _Request(prompt, sampling, loop.create_future()))
        request.waiting += 1
        self._busy -= 1
        self._look()
        try:
            return await asyncio.shield(request.answer)
        except asyncio.CancelledError:
            if not request.answer.done():
                request.waiting -= 1
                self._busy += 1
            raise

    async def close(self) -> None:
        """Stop the clock."""
        self.clock.stop()

    def _look(self) -> None:
        # Not at once: players that are about to begin must be counted, and an error must reach all that wait.
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        if not self._busy and self._asked and not self._broken:
            asked, self._asked = [self._asked[key] for key in sorted(self._asked)], {}
            self._busy += sum(request.waiting for request in asked)
            self._sample(asked)

    def _sample(self, asked: list[_Request]) -> None:
        for sampling in dict.fromkeys(request.sampling for request in asked):
            batch = [request for request in asked if request.sampling == sampling]
            try:
                with self.clock.work():
                    found = self.engine.generate([request.prompt for request in batch], sampling)
                for request, completion in zip(batch, found, strict=True):
                    request.answer.set_result(completion)
            except Exception as error:
                for request in asked:
                    if not request.answer.done():
                        request.answer.set_exception(error)
                return


class Arrivals:
    """Passes requests on as they come. A sample depends on its key, not on the time of its request.

    Args:
        engine: Samples the completions.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine, self.clock = engine, IdleClock()
        self._seed = engine.new_seed()
        self._tasks: dict[Key, asyncio.Task[Completion]] = {}

    @contextlib.contextmanager
    def player(self) -> Iterator[None]:
        """One player takes part inside."""
        yield

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """A player waits for another episode inside."""
        yield

    async def complete(self, prompt: Prompt, sampling: Sampling, key: Key) -> Completion:
        """Return a completion."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._ask(prompt, sampling, key))
            task.add_done_callback(lambda task: self._ended(key, task))
        return await asyncio.shield(task)

    def _ended(self, key: Key, task: asyncio.Task[Completion]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # taken note of, also where nobody waits for it any longer

    async def close(self) -> None:
        """Cancel the requests under way, and stop the clock."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.clock.stop()

    async def _ask(self, prompt: Prompt, sampling: Sampling, key: Key) -> Completion:
        seed = int(np.random.SeedSequence((self._seed, *key)).generate_state(1)[0]) >> 1
        return await self.engine.complete(prompt, sampling, seed, self.clock.work())


Requests = Rounds | Arrivals


def open_requests(engine: Engine) -> Requests:
    """Take requests for an engine: one by one if it is an `AsyncEngine`, else in rounds."""
    return Arrivals(engine) if isinstance(engine, AsyncEngine) else Rounds(engine)
