"""Playing over threads: order, one player per thread, failures that stay with their episode."""

from __future__ import annotations

import signal
import threading
import time

import gymnasium as gym
import pytest

from codev_agents import AgentError, run_episode
from codev_env.errors import JudgeError
from codev_env.threads import is_given_up, until_given_up
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


def test_an_interrupt_does_not_wait_for_servers(monkeypatch):
    """A chat server may take minutes for each of several tries, and the episodes had more turns after that."""
    monkeypatch.setattr(runner, "GRACE_S", 0.2)
    begun, answers, ended = threading.Semaphore(0), threading.Event(), threading.Event()

    def ask(number: int) -> None:
        begun.release()
        answers.wait(60)
        if is_given_up():
            ended.set()

    def press() -> None:
        for _ in range(2):
            begun.acquire()
        time.sleep(0.5)  # until the main thread waits
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(ordered_map(ask, range(9), workers=2))
    assert time.monotonic() - started < 30
    asking = [thread for thread in threading.enumerate() if thread.name.startswith("codev-eval")]
    assert asking and all(thread.daemon for thread in asking)  # the process ends without them
    answers.set()
    for thread in asking:
        thread.join(30)
    assert ended.is_set() and not begun.acquire(blocking=False) and not any(thread.is_alive() for thread in asking)


def test_an_episode_that_is_given_up_asks_for_no_further_turn():
    env, given_up, asked = gym.make("codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy"), threading.Event(), []

    class Interrupted:
        name = "interrupted"

        def reset(self, env):
            pass

        def act(self, observation):
            asked.append(observation)
            given_up.set()
            return "no code and no answer"

    with pytest.raises(AgentError, match="nobody waits"):
        until_given_up(given_up, run_episode, env, Interrupted())
    assert len(asked) == 1
    env.close()


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
