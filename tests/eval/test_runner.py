"""Playing over threads: order, one player per thread, failures that stay with their episode."""

from __future__ import annotations

import threading
import time

import pytest

from codev_env.errors import JudgeError
from codev_env.trajectory import Trajectory
from codev_eval.bench import runner
from codev_eval.bench.runner import Failure, ordered_map, play


def test_results_come_in_order_and_few_wait():
    started: list[int] = []

    def work(number: int) -> int:
        started.append(number)
        time.sleep(0.02 if number % 2 == 0 else 0)
        return number * 10

    results = ordered_map(work, iter(range(100)), workers=2)
    assert next(results) == 0
    time.sleep(0.1)
    assert len(started) <= 4
    assert list(results) == [number * 10 for number in range(1, 100)]


def test_an_error_ends_it_without_starting_the_rest():
    started: list[int] = []

    def work(number: int) -> int:
        started.append(number)
        raise KeyError(number)

    with pytest.raises(KeyError):
        list(ordered_map(work, range(100), workers=2))
    assert len(started) <= 4


class FakeEnv:
    """Counts how many threads use it at once."""

    def __init__(self) -> None:
        self.lock, self.closed = threading.Lock(), False

    def close(self) -> None:
        self.closed = True


def test_a_failed_episode_is_reported_and_the_others_go_on(monkeypatch):
    def run_episode(env, agent, *, seed, options, meta):
        assert env.lock.acquire(blocking=False), "two threads share an environment"
        try:
            time.sleep(0.002)
            if options["index"] == 3:
                raise JudgeError("no answer\nfrom the judge")
            return Trajectory(task_id=f"{agent}-{seed}", index=options["index"])
        finally:
            env.lock.release()

    monkeypatch.setattr(runner, "run_episode", run_episode)
    envs = [FakeEnv(), FakeEnv()]
    outcomes = list(play([(envs[0], "a"), (envs[1], "b")], range(8), seed=100))  # type: ignore[list-item]
    assert [outcome.index for outcome in outcomes] == list(range(8))
    assert outcomes[3] == Failure(3, "JudgeError: no answer from the judge")
    assert {o.task_id.split("-")[1] for o in outcomes if isinstance(o, Trajectory)} == {
        str(100 + i) for i in range(8) if i != 3
    }
    assert all(env.closed for env in envs)
