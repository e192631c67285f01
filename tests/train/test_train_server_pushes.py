"""Pushes that are given up, of several processes, to servers that hang: no server stays paused, and nobody waits."""

from __future__ import annotations

import contextlib
import copy
import errno
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fake_vllm_server import FakeVllmServer

from codev_agents.engines import make_engine, servers, vllm_server
from codev_agents.engines.options import VllmOptions
from codev_agents.rollout.engine import ClosingEngine, EngineError, Prompt, Sampling
from codev_env.app.cli import main
from codev_env.threads import until_given_up

LONG_S = 20.0


@pytest.fixture
def two(policy) -> Iterator[list[FakeVllmServer]]:
    made = [FakeVllmServer(copy.deepcopy(policy.model), policy.processor) for _ in range(2)]
    yield made
    for server in made:
        with contextlib.suppress(Exception):
            server.stop()


def engine_of(servers: list[FakeVllmServer], policy: Any, apart: bool = True, in_flight: bool = True) -> Any:
    options = VllmOptions(url=tuple(server.url for server in servers), patience=20.0)
    args = ("vllm-server", policy.model, policy.processor, 8, 0, options)
    return make_engine(*args, apart=apart, in_flight=in_flight)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def error_of(engine: Any, policy: Any) -> BaseException:
    with pytest.raises(EngineError) as caught:
        engine.sync(policy.model)
    return caught.value


class Hanging:
    """Lets a server hang, though its health is fine, as soon as it is to load weights; `ends` lets it go on."""

    def __init__(self, server: FakeVllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.ends, self._answer = threading.Event(), threading.Event(), server.answer
        monkeypatch.setattr(server, "answer", self)

    def __call__(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/collective_rpc":
            self.begun.set()
        if self.begun.is_set() and path != "/health":
            assert self.ends.wait(2 * LONG_S)
        return self._answer(path, body)


def test_a_long_wait_for_the_only_server_that_loads_is_said_once(two, policy, monkeypatch, capsys):
    engine = engine_of(two[:1], policy)
    hanging = Hanging(two[0], monkeypatch)
    monkeypatch.setattr(servers, "LOAD_S", 0.05)

    def answers_after_some_rounds() -> None:
        hanging.begun.wait(LONG_S)
        time.sleep(0.4)
        hanging.ends.set()

    threading.Thread(target=answers_after_some_rounds, daemon=True).start()
    engine.sync(policy.model)
    said = capsys.readouterr().err
    assert said.count(f"the vLLM server at {two[0].url} loads weights") == 1
    assert "0.05 s" in said and f"{engine._servers.clients[0].timeout:g} s (--vllm.timeout)" in said


def test_a_server_that_hangs_while_it_loads_is_left_out_once_another_one_has_the_weights(two, policy, monkeypatch):
    engine = engine_of(two, policy)
    hanging = Hanging(two[0], monkeypatch)
    monkeypatch.setattr(servers, "LOAD_S", 0.1)
    monkeypatch.setattr(servers, "LATE_S", 0.5)
    monkeypatch.setattr(vllm_server, "STATE_S", 0.3)
    started = time.monotonic()
    assert engine.sync(policy.model)["server/0_queue"] == -1
    assert time.monotonic() - started < LONG_S / 2
    hanging.ends.set()
    until(lambda: engine._servers.queues == [0, 0])
    assert two[0].version == engine._folder.name and not two[0].paused


@pytest.mark.parametrize("apart", [True, False])
def test_a_server_goes_on_when_its_push_is_given_up(two, policy, monkeypatch, apart):
    """Otherwise it would answer nobody until the next run gives it weights."""
    engine = engine_of(two, policy, apart)
    hanging = Hanging(two[0], monkeypatch)
    found: list[BaseException] = []
    pushing = threading.Thread(target=lambda: found.append(error_of(engine, policy)), daemon=True)
    pushing.start()
    assert hanging.begun.wait(LONG_S) and two[0].paused
    monkeypatch.setattr(servers, "CLOSE_S", 0.2)
    started = time.monotonic()
    assert isinstance(engine, ClosingEngine)
    engine.close()
    pushing.join(LONG_S)
    assert time.monotonic() - started < LONG_S / 2 and "closed" in str(found[0])
    hanging.ends.set()
    until(lambda: not two[0].paused)
    time.sleep(0.3)
    assert not two[0].paused and two[0].version != engine._folder.name


def test_a_server_goes_on_when_the_first_push_is_refused(two, policy, monkeypatch):
    answer = two[0].answer
    refusing = lambda path, body: (400, "no") if path == "/collective_rpc" else answer(path, body)  # noqa: E731
    monkeypatch.setattr(two[0], "answer", refusing)
    with pytest.raises(EngineError, match="refused"):
        engine_of(two, policy)
    assert not two[0].paused


def test_a_run_that_ends_by_a_refused_push_leaves_no_server_paused(start, policy, arguments, monkeypatch, capsys):
    server = FakeVllmServer(copy.deepcopy(policy.model), policy.processor)
    answer, loads = server.answer, []

    def refusing(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        loads.extend([path] if path == "/collective_rpc" else [])
        return (400, "no") if path == "/collective_rpc" and len(loads) == 2 else answer(path, body)

    monkeypatch.setattr(server, "answer", refusing)
    words = ["--engine", "vllm-server", "--vllm.url", server.url, "--staleness", "1", "--steps", "3"]
    assert main(["train", *arguments("refused-and-paused", *words)]) == 1
    assert "refused with status 400" in capsys.readouterr().err and not server.paused
    server.stop()


def test_a_second_interrupt_does_not_wait_for_weights_that_are_written(two, policy, monkeypatch):
    """Large ones take minutes on a slow disk, in one call that no signal ends."""
    engine, ends, write = engine_of(two, policy, apart=False), threading.Event(), vllm_server.save_file

    def slow(*given: Any) -> None:
        assert threading.current_thread() is not threading.main_thread()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        assert ends.wait(2 * LONG_S)
        write(*given)

    monkeypatch.setattr(vllm_server, "save_file", slow)
    timer = threading.Timer(LONG_S, ends.set)
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        engine.sync(policy.model)
    assert time.monotonic() - started < LONG_S / 2
    timer.cancel()
    ends.set()


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_push_between_episodes_waits_for_those_of_all_processes(two, policy, monkeypatch, in_flight):
    """They share prompts, which a push must not meet."""
    engine = engine_of(two, policy, in_flight=in_flight)
    engine._group = object()
    seen: list[bool] = []
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", lambda found: None)
    monkeypatch.setattr(
        torch.distributed, "barrier", lambda group: seen.append("/pause" in two[0].asked + two[1].asked)
    )
    for server in two:
        server.asked.clear()
    engine.sync(policy.model)
    assert seen == ([True] if in_flight else [False, True])


def test_a_server_gets_no_older_weights_after_a_wait_for_its_push(two, policy):
    """A process that looks for a server that it has lost waits while another one gives it the newest weights."""
    engine = engine_of(two, policy)
    client, older = engine._servers.clients[0], engine._folder
    client.restoring.acquire()
    found: list[str] = []
    looking = threading.Thread(target=lambda: found.append(engine._restore(client)), daemon=True)
    looking.start()
    time.sleep(0.2)
    newer = older.with_name("newer")
    newer.mkdir()
    (newer / "model.safetensors").write_bytes((older / "model.safetensors").read_bytes())
    engine._folder, engine._versions["newer"], two[0].version = newer, 1, "newer"
    two[0].asked.clear()
    client.restoring.release()
    looking.join(LONG_S)
    assert found == ["newer"] and "/collective_rpc" not in two[0].asked


def test_a_batch_that_nobody_waits_for_is_given_up(two, policy, monkeypatch):
    engine, given_up, begun, ends = engine_of(two[:1], policy), threading.Event(), threading.Event(), threading.Event()
    answer, found = two[0].answer, list[BaseException]()

    def silent(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        begun.set()
        assert ends.wait(2 * LONG_S)
        return answer(path, body)

    def ask() -> None:
        with pytest.raises(EngineError, match="nobody waits") as caught:
            engine.generate([Prompt(policy.processor.prompt("sys", "hello", []))], Sampling(max_tokens=4))
        found.append(caught.value)

    monkeypatch.setattr(two[0], "answer", silent)
    asking = threading.Thread(target=until_given_up, args=(given_up, ask), daemon=True)
    asking.start()
    assert begun.wait(LONG_S)
    given_up.set()
    asking.join(LONG_S / 2)
    assert found and engine._servers.losses == 0
    ends.set()


def test_a_disk_that_fails_for_a_moment_does_not_end_the_look_at_silent_engines(monkeypatch):
    """The lock of a server is on the shared disk, which may say that its handle is stale."""
    monkeypatch.setattr(servers, "SILENT_S", 0.02)
    looked, answered = threading.Semaphore(0), threading.Event()

    class Engine:
        def restore(self, client: Any) -> str:
            return "newest"

        def check(self, client: Any) -> None:
            looked.release()
            raise OSError(errno.ESTALE, "Stale file handle")

    engine = Engine()
    made = servers.Servers(["http://127.0.0.1:9"], LONG_S, LONG_S, engine.restore, engine.check)
    request = threading.Thread(target=made.ask, args=(lambda client: answered.wait(LONG_S),), daemon=True)
    request.start()
    try:
        assert looked.acquire(timeout=LONG_S) and looked.acquire(timeout=LONG_S)
    finally:
        answered.set()
        request.join(LONG_S)
