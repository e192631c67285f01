"""Runs episodes of an agent over a few threads and yields them in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

import gymnasium as gym

from codev_agents import Agent, run_episode
from codev_env.errors import CodevError
from codev_env.threads import DaemonThreads, until_given_up
from codev_env.trajectory import Trajectory
from codev_env.usage import EpisodeUsage

T = TypeVar("T")
R = TypeVar("R")
Player = tuple[gym.Env[Any, Any], Agent]
Key = tuple[int, int]
"""Names an episode: index of its task, and number of the sample."""
Describe = Callable[[Key], Mapping[str, Any]]
"""Returns the JSON-able extras of an episode's record."""
GRACE_S = 5.0  # longest wait for functions under way whose results nobody wants, in seconds


@dataclass(frozen=True)
class Failure:
    """An episode that could not be played to its end.

    Attributes:
        index: Index of the task in its set.
        reason: One line for people.
        sample: Number of the sample of the task.
        usage: What it took.
    """

    index: int
    reason: str
    sample: int = 0
    usage: EpisodeUsage = field(default=EpisodeUsage(), compare=False)

    @classmethod
    def of(cls, key: Key, error: CodevError) -> Failure:
        """Return the failure of an episode by the error that ended it."""
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return cls(key[0], reason, key[1], error.usage or EpisodeUsage())


def no_meta(key: Key) -> Mapping[str, Any]:
    """Return no extras."""
    return {}


def play(
    players: Sequence[Player],
    indices: Iterable[int],
    *,
    seed: int = 0,
    samples: int = 1,
    skip: Container[Key] = (),
    meta: Describe = no_meta,
) -> Generator[Trajectory | Failure]:
    """Play episodes of each task, several at a time, and yield the outcomes in the order of `indices`.

    Args:
        players: An environment with an agent for each thread; the environments are closed in the end.
        indices: Indices of the tasks.
        seed: Passed, with the task's index added, to `env.reset`.
        samples: Episodes of each task; an agent's attribute `seed` is `seed` plus the number of the sample.
        skip: Episodes to leave out.
        meta: Returns the extras of each record.

    Yields:
        The record of the episode, or a `Failure` where the agent, the judge, the sandbox or the task failed.
    """
    free: SimpleQueue[Player] = SimpleQueue()
    for player in players:
        free.put(player)

    def episode(key: Key) -> Trajectory | Failure:
        index, sample = key
        env, agent = player = free.get()
        try:
            if samples > 1:
                agent.seed = seed + sample  # type: ignore[attr-defined]
            return run_episode(env, agent, seed=seed + index, options={"index": index}, meta=meta(key))
        except CodevError as error:
            return Failure.of(key, error)
        finally:
            free.put(player)

    try:
        yield from ordered_map(episode, keys(indices, samples, skip), len(players))
    finally:
        for env, _ in players:
            env.close()


def keys(indices: Iterable[int], samples: int = 1, skip: Container[Key] = ()) -> Iterator[Key]:
    """Yield the episodes to play: all samples of a task, then the next task."""
    return ((index, sample) for index in indices for sample in range(samples) if (index, sample) not in skip)


def ordered_map(function: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Map over threads, in order, with few results waiting: an episode holds its images in memory.

    After an error or Ctrl-C what is under way is waited for, but not as long as a server may take to answer.
    """
    waiting: deque[Future[R]] = deque()
    given_up, threads = threading.Event(), DaemonThreads(workers, "codev-eval")
    try:
        for item in items:
            waiting.append(threads.submit(until_given_up, given_up, function, item))
            if len(waiting) >= 2 * workers:
                yield waiting[0].result()
                waiting.popleft()
        while waiting:
            yield waiting[0].result()
            waiting.popleft()
    finally:
        given_up.set()
        threads.close()
        wait([future for future in waiting if not future.cancel()], GRACE_S)
