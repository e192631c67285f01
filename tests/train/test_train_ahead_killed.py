"""Runs with `staleness` whose trainer and whose servers are killed at random moments, again and again.

Nothing is trained twice, nothing is lost but the episodes under way, and no group that has ended is played again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from micro_run import history
from process_group import start as start_process

from codev_train.run.interrupt import INTERRUPTED

pytestmark = pytest.mark.integration

KILLS = 10
STEPS = 8
GROUPS = 2  # per update
DOWN_S = 2.0  # before a server is started again


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("CODEV_KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"CODEV_KILL_SEED={seed}")
    return random.Random(seed)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    """A server in a process of its own that is started again when it has died."""

    def __init__(self, policy: Path, folder: Path, lives: Callable[[], int]) -> None:
        self.port, self.deaths = free_port(), 0
        self._policy, self._folder, self._lives = policy, folder, lives
        self._closed = threading.Event()
        self._start()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _start(self) -> None:
        words = ["serve", str(self._policy), str(self.port), str(self._lives()), "0.02"]
        output = self._folder / f"server-{self.port}"
        self._process = start_process("ahead_process", *words, output=output, variables={})

    def _watch(self) -> None:
        while not self._closed.is_set():
            self._process.join(0.05)
            if self._process.exitcode is not None and not self._closed.is_set():
                assert self._process.exitcode == -signal.SIGKILL, (self._folder / f"server-{self.port}.err").read_text()
                self.deaths += 1
                # An update or two: nobody can tell one death from two between the same two requests.
                if not self._closed.wait(DOWN_S):
                    self._start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._process.kill()
        self._process.join()


@pytest.fixture
def serve(start, tmp_path) -> Iterator[Callable[..., Server]]:
    """Starts servers; each life ends after as many requests as `lives` says, 0 for never."""
    made: list[Server] = []

    def serving(lives: Callable[[], int] = lambda: 0) -> Server:
        made.append(Server(start, tmp_path, lives))
        return made[-1]

    yield serving
    for server in made:
        server.close()


class Trainer:
    """A run in a folder of its own, started and resumed.

    Args:
        folder: Made if missing.
        words: The options of the run.
        wait_s: Seconds after which a process of it fails the test.
    """

    def __init__(self, folder: Path, words: list[str], wait_s: float = 300.0) -> None:
        self.folder, self.run, self._words, self._wait_s = folder, folder / "runs" / "run", words, wait_s
        (folder / "runs").mkdir(parents=True)

    def __call__(
        self, *more: str, kill_at: int = 0, delay: float = 0.0, stop: Callable[[], bool] = lambda: False
    ) -> int:
        """Run on until the end, or until it is killed or has stopped; returns the exit status."""
        resumes = (self.run / "options.yaml").exists()
        words = ["--resume", str(self.run)] if resumes else [*self._words, "--out", str(self.folder / "runs")]
        output = self.folder / "trainer"
        given = ["train", str(self.folder), str(kill_at), str(delay), *words, *more]
        process = start_process("ahead_process", *given, output=output, variables={})
        deadline, stopped = time.monotonic() + self._wait_s, False
        while process.exitcode is None and time.monotonic() < deadline:
            process.join(0.1)
            if not stopped and stop():
                stopped = True
                os.kill(process.pid, signal.SIGINT)
        if process.exitcode is None:
            process.kill()
            pytest.fail(f"the run does not end: {output.with_suffix('.err').read_text()[-3000:]}")
        wanted = INTERRUPTED if stopped else 0
        assert process.exitcode in (wanted, -signal.SIGKILL), output.with_suffix(".err").read_text()[-3000:]
        return process.exitcode


@pytest.fixture
def trainer(tmp_path, config, start) -> Callable[..., Trainer]:
    """Makes runs that sample with some servers."""

    def making(name: str, servers: list[Server], *more: str) -> Trainer:
        folder = tmp_path / name
        words = ["--config", str(config), "--model", str(start), "--name", "run", "--threads", "1"]
        words += ["--engine", "vllm-server", "--vllm.url", *(server.url for server in servers)]
        words += ["--vllm.folder", str(folder), "--staleness", "1", "--steps", str(STEPS), "--show-every", "100"]
        words += ["--vllm.patience", "120", "--health.mismatch", "0.01", *more]
        return Trainer(folder, words)

    return making


def notes(run: Path) -> dict[int, dict[str, Any]]:
    """The notes of each update; the last line may be torn."""
    path = run / "groups" / "0.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return {row["step"]: row for row in rows}


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def check(folder: Path, steps: int = STEPS) -> None:
    """Nothing was trained twice or left out, and no group that had ended was played again."""
    run = folder / "runs" / "run"
    assert [row["step"] for row in history(run)] == list(range(1, steps + 1))
    rows, ended, begun = notes(run), numbers(folder / "ended.txt"), numbers(folder / "begun.txt")
    assert list(rows) == list(range(1, steps + 1))
    trained = [number for row in rows.values() for number in row["trained"]]
    used = [number for row in rows.values() for number in row["used"]]
    assert len(trained) == len(set(trained)) == GROUPS * steps
    assert len(used) == len(set(used)) and set(trained) <= set(used)
    assert len(ended) == len(set(ended)), "a group that had ended was played again"
    assert set(used) <= set(ended) <= set(begun)
    # Those with the first numbers, or with others in place of those that were dropped.
    assert set(range(max(used) + 1)) - set(used) <= set(begun)
    assert not (run / "groups" / "0").exists()


def test_a_trainer_that_is_killed(trainer, serve, rng):
    servers, kills, number = [serve(), serve()], 0, 0
    train, before = trainer("run-0", servers, "--save-every", "2"), dict[int, dict[str, Any]]()
    while True:
        at, delay = rng.randint(1, 60), rng.choice([0.0, rng.uniform(0, 0.2)])
        killed = train(kill_at=at if kills < KILLS else 0, delay=delay) != 0
        kills += killed
        found = notes(train.run)
        for step in before.keys() & found.keys():
            assert found[step]["trained"] == before[step]["trained"], "other groups than before the kill"
        before = found
        if not killed:
            check(train.folder)
            if kills == KILLS:
                break
            number, before = number + 1, {}
            train = trainer(f"run-{number}", servers, "--save-every", "2")


def test_a_server_that_is_killed(trainer, serve, rng):
    left = iter([rng.randint(1, 6) for _ in range(KILLS)])
    mortal, other = serve(lambda: next(left, 0)), serve()
    train = trainer("servers", [mortal, other], "--steps", "500")
    train(stop=lambda: mortal.deaths == KILLS <= history(train.run)[-1]["server/lost"])  # it is noticed later
    done = len(history(train.run))
    rows, begun = history(train.run), numbers(train.folder / "begun.txt")
    assert mortal.deaths == KILLS <= rows[-1]["server/lost"] and not other.deaths
    assert len(begun) == len(set(begun)), "no group begins twice: a turn that is lost is sampled elsewhere"
    assert train("--steps", str(done + 2)) == 0
    assert history(train.run)[:done] == rows and history(train.run)[done]["async/updates_again"] == 0
    check(train.folder, done + 2)
