"""vLLM servers that fail in other ways than by being gone: cut-off and odd answers, silence, other flags, bad disks."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_vllm_server import FakeVllmServer

from codev_agents.engines import http, make_engine, servers, vllm_server, weights_folder
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.http import Client, OpenRequest, ServerLost
from codev_agents.engines.options import VllmOptions
from codev_agents.engines.servers import Servers
from codev_agents.rollout.engine import EngineError, Prompt, Sampling
from codev_env.errors import ConfigError
from codev_train.learn.ahead import Ahead

GREEDY = Sampling(temperature=0.0, max_tokens=8)
LONG_S = 60.0  # a wait that only a broken implementation sits through


class Socket:
    """A server that answers each connection with the same bytes; without any it says nothing."""

    def __init__(self, answer: bytes = b"") -> None:
        self._answer, self._socket, self.taken = answer, socket.create_server(("127.0.0.1", 0)), threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        for one in (self._socket, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._open.append(connection)
                connection.recv(1 << 16)
                self.taken.set()
                if self._answer:
                    connection.sendall(self._answer)
                    connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def silent() -> Iterator[Socket]:
    made = Socket()
    yield made
    made.close()


@pytest.fixture
def two(policy) -> Iterator[list[FakeVllmServer]]:
    made = [FakeVllmServer(copy.deepcopy(policy.model), policy.processor) for _ in range(2)]
    yield made
    for server in made:
        with contextlib.suppress(Exception):
            server.stop()


@pytest.fixture
def prompts(policy) -> list[Prompt]:
    return [Prompt(policy.processor.prompt("sys", "hello", []))]


def engine_of(urls: list[str], policy: Any, **options: Any) -> Any:
    given = VllmOptions(url=tuple(urls), **({"patience": 20.0} | options))
    return make_engine("vllm-server", policy.model, policy.processor, 8, 0, given, apart=True)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Restorer:
    """Stands for an engine; `fails` are the errors of the next restorations."""

    def __init__(self, *fails: Exception) -> None:
        self.fails = list(fails)

    def restore(self, client: Client) -> str:
        if self.fails:
            raise self.fails.pop(0)
        return "newest"


def servers_of(restorer: Restorer, *urls: str) -> Servers:
    made = Servers(urls, 20.0, LONG_S, restorer.restore)
    made.announce("newest")
    return made


@pytest.mark.parametrize(("status", "kind"), [(500, ServerLost), (400, EngineError)])
def test_an_error_whose_text_is_cut_off_is_an_error_of_the_server(status, kind):
    server = Socket(b"HTTP/1.1 %d X\r\nContent-Length: 1000\r\n\r\nthe engine" % status)
    try:
        with pytest.raises(kind, match=f"status {status}"):
            Client(server.url, 1.0, LONG_S).post("/any")
    finally:
        server.close()


ODD: list[Callable[[dict[str, Any]], Any]] = [
    lambda answer: None,
    lambda answer: [],
    lambda answer: {"error": "busy"},
    lambda answer: answer | {"choices": []},
    lambda answer: answer | {"choices": [answer["choices"][0] | {"logprobs": None}]},
    lambda answer: answer | {"choices": [answer["choices"][0] | {"logprobs": {"content": []}}]},
    lambda answer: answer | {"choices": [answer["choices"][0] | {"token_ids": None}]},
]


@pytest.mark.parametrize("odd", ODD)
def test_an_answer_that_is_no_completion_is_asked_for_again(two, policy, prompts, monkeypatch, odd):
    engine = engine_of([two[0].url], policy)
    complete, left = two[0].complete, [odd]
    monkeypatch.setattr(two[0], "complete", lambda *given: left.pop()(complete(*given)) if left else complete(*given))
    (found,) = engine.generate(prompts, GREEDY)
    assert found.ids == HFEngine(policy.model, policy.processor).generate(prompts, GREEDY)[0].ids and not left


def of_nothing(answer: dict[str, Any]) -> dict[str, Any]:
    """Log-probabilities that are no numbers, as a gateway may write them that knows no infinity."""
    choice = answer["choices"][0]
    content = [{"logprob": None} for _ in choice["token_ids"]]
    return answer | {"choices": [choice | {"logprobs": {"content": content}}]}


@pytest.mark.parametrize("odd", [of_nothing, lambda answer: answer | {"prompt_token_ids": None}])
def test_an_answer_with_nothing_in_the_place_of_numbers_is_asked_for_again(two, policy, prompts, monkeypatch, odd):
    engine = engine_of([two[0].url], policy)
    complete, left = two[0].complete, [odd]
    monkeypatch.setattr(two[0], "complete", lambda *given: left.pop()(complete(*given)) if left else complete(*given))
    (found,) = engine.generate(prompts, GREEDY)
    assert not left and max(found.logprobs) <= 0 and list(found.prompt_ids) == prompts[0].ids


def test_a_server_that_does_not_say_its_weights_is_left_out(two, policy, monkeypatch):
    engine, answer = engine_of([server.url for server in two], policy), two[0].answer
    monkeypatch.setattr(
        two[0], "answer", lambda path, body: (200, None) if path == "/weight_info" else answer(path, body)
    )
    assert engine.sync(policy.model)["server/0_queue"] == -1


def test_a_silent_server_holds_a_push_no_longer_than_a_look_and_its_requests_go_elsewhere(
    two, silent, policy, prompts, monkeypatch
):
    """As a machine that was switched off: connections stay, and nothing comes."""
    monkeypatch.setattr(vllm_server, "STATE_S", 0.3)
    monkeypatch.setattr(servers, "LOOK_S", 0.2)
    engine = engine_of([server.url for server in two], policy)
    client, url = engine._servers.clients[0], two[0].url
    client.url = silent.url
    thread = threading.Thread(target=lambda: found.extend(engine.generate(prompts, GREEDY)), daemon=True)
    found: list[Any] = []
    thread.start()
    assert silent.taken.wait(LONG_S)
    started = time.monotonic()
    assert engine.sync(policy.model)["server/0_queue"] == -1
    thread.join(LONG_S)
    assert found and time.monotonic() - started < LONG_S / 2
    client.url = url
    until(lambda: engine._servers.queues == [0, 0])


def test_a_completion_that_is_given_up_ends_its_connection_and_loses_no_server(silent):
    engine = vllm_server.VllmServerEngine.__new__(vllm_server.VllmServerEngine)
    restorer = Restorer()
    engine._servers = servers_of(restorer, silent.url)
    engine._threads = ThreadPoolExecutor(1)
    engine._request = lambda *given: {"any": 1}

    async def give_up() -> None:
        asked = asyncio.create_task(engine.complete(None, GREEDY, 1, contextlib.nullcontext()))
        await asyncio.to_thread(silent.taken.wait, LONG_S)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    started = time.monotonic()
    asyncio.run(give_up())
    engine._threads.shutdown()  # as at the end of the process
    assert time.monotonic() - started < LONG_S / 2
    assert engine._servers.losses == 0 and engine._servers.queues == [0]


def test_a_request_that_is_given_up_is_not_sent(silent):
    asked = OpenRequest()
    asked.give_up()
    with pytest.raises(ServerLost, match="given up"):
        Client(silent.url, 1.0, LONG_S).post("/any", {}, asked)
    assert not silent.taken.is_set()


def ask(made: Servers, tasks: int = 8) -> Counter[str]:
    """Ask for so many tasks at the same time; returns how many requests each server got."""
    found, together = Counter[str](), threading.Barrier(tasks)

    def action(client: Client) -> None:
        together.wait(LONG_S)
        found[client.url] += 1

    threads = [threading.Thread(target=made.ask, args=(action, task)) for task in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_server_that_comes_back_gets_tasks_again(monkeypatch):
    """Those that are not played at the moment; the others stay, with their caches."""
    restorer = Restorer()
    made = servers_of(restorer, "http://one", "http://two")
    first = ask(made)
    assert ask(made) == first == {"http://one": 4, "http://two": 4}
    made._lost[made.clients[0]] = ServerLost("told to be")
    assert ask(made) == {"http://two": 8}
    del made._lost[made.clients[0]]
    assert ask(made) == {"http://two": 8}
    monkeypatch.setattr(servers, "HOME_S", 0.0)
    assert ask(made) == first


def test_a_server_is_looked_for_again_after_an_error_of_the_disk(monkeypatch, capsys):
    restorer = Restorer(OSError(errno.ENOSPC, "No space left"), OSError(errno.ENOSPC, "No space left"))
    made = servers_of(restorer, "http://one", "http://two")
    monkeypatch.setattr(Client, "get", lambda *given: None)
    made._lose(made.clients[0], ServerLost("told to be"))
    until(lambda: made.queues == [0, 0])
    assert capsys.readouterr().err.count("http://one is left out") == 1


def test_every_server_is_checked_for_what_it_reports(two, policy):
    two[1].report = -2.5
    with pytest.raises(ConfigError, match=f"{two[1].url} reports .*--logprobs-mode processed_logprobs"):
        engine_of([server.url for server in two], policy)


def test_a_server_that_comes_back_with_other_flags_is_left_out(two, policy, prompts, capsys):
    engine = engine_of([server.url for server in two], policy)
    two[0].stop()
    engine.sync(policy.model)
    two[0].report = -2.5
    two[0].start()
    said: list[str] = []
    until(lambda: bool(said.append(capsys.readouterr().err) or "processed_logprobs" in "".join(said)))
    assert engine._servers.queues == [-1, 0]
    two[0].report = 0.0
    until(lambda: engine._servers.queues == [0, 0])


def test_a_disk_without_locks_gives_weights_to_servers(two, policy, monkeypatch):
    def fail(*given: Any, **options: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(weights_folder, "lock_file", fail)
    engine = engine_of([two[0].url], policy)
    assert two[0].version == engine._folder.name


def test_weights_that_a_disk_keeps_do_not_end_a_push(two, policy, monkeypatch):
    engine, rmtree = engine_of([two[0].url], policy), shutil.rmtree

    def busy(path: Any, ignore_errors: bool = False, **options: Any) -> None:
        if not ignore_errors:
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        rmtree(path, ignore_errors=True, **options)

    monkeypatch.setattr(vllm_server.shutil, "rmtree", busy)
    engine.sync(policy.model)
    assert two[0].version == engine._folder.name


def test_a_server_that_dies_again_before_it_is_taken_back_is_lost_twice(two, policy):
    engine = engine_of([server.url for server in two], policy)
    two[0].stop()
    engine.sync(policy.model)
    assert engine._servers.losses == 1
    two[0].failures.append("drop")  # the check of what it reports
    two[0].start()
    until(lambda: engine._servers.queues == [0, 0])
    assert engine._servers.losses == 2


def test_a_server_that_was_started_again_between_two_requests_is_counted(two, policy):
    engine = engine_of([server.url for server in two], policy)
    two[0].stop()
    two[0].start()
    assert engine.sync(policy.model)["server/lost"] == 1 and two[0].version == engine._folder.name
    assert engine.sync(policy.model)["server/lost"] == 1


def test_the_history_has_the_losses_so_far_and_not_those_at_the_last_push(two, policy, prompts):
    """Of a push in another thread the numbers come an update late."""
    engine = engine_of([server.url for server in two], policy)
    ahead = Ahead.__new__(Ahead)
    ahead._engine, ahead._pushing, ahead._thread = engine, None, ThreadPoolExecutor(1)
    ahead._stream, ahead._told = SimpleNamespace(updating=contextlib.nullcontext), {"server/lost": 0.0}
    ahead.push(policy.model)
    assert ahead.told()["server/lost"] == 0
    ahead.settle()
    two[0].stop()
    engine.generate(prompts, GREEDY)
    ahead.push(policy.model)
    assert ahead.told() | {"async/push_seconds": 0.0} == {
        "server/0_queue": -1,
        "server/1_queue": 0,
        "server/lost": 1,
        "async/push_seconds": 0.0,
    }
    ahead.settle()


def test_a_server_that_dies_while_nobody_asks_is_noticed_and_a_slow_one_is_not_lost(two, silent, policy, monkeypatch):
    engine = engine_of([server.url for server in two], policy)
    two[0].stop()
    numbers = engine.numbers()
    assert numbers["server/0_queue"] == -1 and numbers["server/lost"] == 1
    monkeypatch.setattr(servers, "NOTICE_S", 0.1)
    monkeypatch.setattr(engine._servers.clients[1], "url", silent.url)
    assert engine.numbers()["server/1_queue"] == 0 and silent.taken.is_set()


def test_many_slow_servers_are_asked_side_by_side(monkeypatch):
    together = threading.Barrier(3)
    monkeypatch.setattr(Client, "get", lambda self, path, timeout: together.wait(LONG_S / 6))
    servers_of(Restorer(), *(f"http://127.0.0.1:{port}" for port in (1, 2, 3))).notice()


def test_requests_of_an_engine_that_hangs_behind_a_healthy_server_go_elsewhere(two, policy, prompts, monkeypatch):
    engine = engine_of([server.url for server in two], policy)
    begun, ends, answer = threading.Event(), threading.Event(), two[0].answer

    def hanging(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path != "/health":
            begun.set()
            ends.wait(LONG_S)
        return answer(path, body)

    monkeypatch.setattr(two[0], "answer", hanging)
    monkeypatch.setattr(vllm_server, "STATE_S", 0.3)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(engine.generate(prompts, GREEDY)), daemon=True)
    thread.start()
    assert begun.wait(LONG_S)
    assert engine.sync(policy.model)["server/0_queue"] == -1
    thread.join(LONG_S / 2)
    assert found
    ends.set()


@pytest.mark.parametrize("hangs", [True, False])
def test_an_engine_that_hangs_is_noticed_before_the_next_push_and_a_slow_one_is_waited_for(
    two, policy, prompts, monkeypatch, hangs
):
    """Its health is fine, since that is asked of the process in front of it."""
    monkeypatch.setattr(servers, "SILENT_S", 0.1)
    monkeypatch.setattr(vllm_server, "STATE_S", 0.3 if hangs else LONG_S)
    engine = engine_of([server.url for server in two], policy)
    ends, answer, checked = threading.Event(), two[0].answer, threading.Event()

    def answered(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/weight_info":
            checked.set()
        if path == vllm_server.GENERATE or (hangs and path != "/health"):
            ends.wait(LONG_S)
        return answer(path, body)

    monkeypatch.setattr(two[0], "answer", answered)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(engine.generate(prompts, GREEDY)), daemon=True)
    thread.start()
    assert checked.wait(LONG_S)
    if hangs:
        thread.join(LONG_S / 2)
        assert found and engine._servers.losses == 1 and engine._servers.queues == [-1, 0]
        ends.set()
        until(lambda: engine._servers.queues == [0, 0])
    else:
        time.sleep(0.5)
        assert not found and engine._servers.losses == 0
        ends.set()
        thread.join(LONG_S / 2)
        assert found


def test_an_engine_is_not_checked_while_it_loads_weights(two, policy, prompts, monkeypatch):
    """A load may take minutes, in which the engine answers nothing."""
    monkeypatch.setattr(servers, "SILENT_S", 0.05)
    monkeypatch.setattr(vllm_server, "STATE_S", 0.3)
    engine = engine_of([two[0].url], policy)
    asked, loads, ends, answer = threading.Event(), threading.Event(), threading.Event(), two[0].answer

    def answered(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == vllm_server.GENERATE:
            asked.set()
            ends.wait(LONG_S)
        if path == "/collective_rpc":
            loads.set()
            time.sleep(1.0)
        elif loads.is_set() and not ends.is_set() and path == "/weight_info":
            time.sleep(1.0)  # it waits behind the load
        found = answer(path, body)
        if path == "/resume":
            ends.set()
        return found

    monkeypatch.setattr(two[0], "answer", answered)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(engine.generate(prompts, GREEDY)), daemon=True)
    thread.start()
    assert asked.wait(LONG_S)
    engine.sync(policy.model)
    thread.join(LONG_S / 2)
    assert found and engine._servers.losses == 0


def test_a_process_that_does_not_push_notices_a_silent_server_too(two, silent, policy, prompts, monkeypatch):
    monkeypatch.setattr(vllm_server, "STATE_S", 0.3)
    first, second = (engine_of([server.url for server in two], policy) for _ in range(2))
    second._writes, second._group = False, object()
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", lambda found: found.__setitem__(0, first._folder))
    monkeypatch.setattr(torch.distributed, "barrier", lambda group: None)
    second._servers.clients[0].url = silent.url
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(second.generate(prompts, GREEDY)), daemon=True)
    thread.start()
    assert silent.taken.wait(LONG_S)
    assert second.sync(policy.model)["server/0_queue"] == -1
    thread.join(LONG_S / 2)
    assert found


@pytest.mark.parametrize("silent_for", ["every path", "the weights alone"])
def test_a_server_that_falls_silent_while_it_loads_holds_no_push(two, policy, monkeypatch, silent_for):
    """One that is slow, but answers to checks, is waited for."""
    engine = engine_of([server.url for server in two], policy)
    ends, answer, silent = threading.Event(), two[0].answer, threading.Event()

    def hanging(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/collective_rpc":
            silent.set()
        if silent.is_set() and (silent_for == "every path" or path == "/collective_rpc"):
            ends.wait(LONG_S if silent_for == "every path" else 1.0)
        return answer(path, body)

    monkeypatch.setattr(two[0], "answer", hanging)
    monkeypatch.setattr(servers, "LOAD_S", 0.2)
    monkeypatch.setattr(servers, "LOOK_S", 0.2 if silent_for == "every path" else LONG_S)
    started = time.monotonic()
    queue = engine.sync(policy.model)["server/0_queue"]
    assert queue == (-1 if silent_for == "every path" else 0) and time.monotonic() - started < LONG_S / 2
    ends.set()


def test_an_interrupted_push_waits_for_no_server(two, policy, monkeypatch):
    engine = engine_of([server.url for server in two], policy)
    ends, answer = threading.Event(), two[0].answer

    def hanging(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/collective_rpc":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            ends.wait(LONG_S)
        return answer(path, body)

    monkeypatch.setattr(two[0], "answer", hanging)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        engine.sync(policy.model)
    assert time.monotonic() - started < LONG_S / 2
    pushing = [thread for thread in threading.enumerate() if thread.name.startswith("vllm-push")]
    assert pushing and all(thread.daemon for thread in pushing)  # the process ends without them
    ends.set()


def test_more_servers_than_tries_may_be_gone_at_the_same_time():
    """As after a power failure; the requests wait for those that come back."""
    restorer = Restorer(*[ServerLost("not yet")] * 40)
    made = servers_of(restorer, *[f"http://127.0.0.1:{port}" for port in range(1, 9)])
    back = threading.Event()

    def action(client: Client) -> str:
        if not back.is_set():
            raise ServerLost("told to be")
        return client.url

    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(made.ask(action)), daemon=True)
    thread.start()
    until(lambda: made.queues == [-1] * 8)
    back.set()
    with made._changed:
        made._lost.clear()
        made._changed.notify_all()
    thread.join(LONG_S)
    assert len(found) == 1


def test_a_machine_that_takes_no_connection_is_not_waited_for_as_long_as_a_completion(monkeypatch):
    """Nobody can end a request whose connection is still being made."""
    monkeypatch.setattr(http, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as others:
        for _ in range(4):  # more than it keeps: further ones get no answer
            waiting = others.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        client = Client(f"http://127.0.0.1:{full.getsockname()[1]}", 1.0, LONG_S)
        started = time.monotonic()
        with pytest.raises(ServerLost, match="timed out"):
            client.post("/any", {}, OpenRequest())
        assert time.monotonic() - started < LONG_S / 2


def test_a_request_that_is_given_up_waits_for_no_server():
    """Else the process could not end while all of them are gone."""
    made, asked, said = servers_of(Restorer(), "http://127.0.0.1:1"), OpenRequest(), []

    def ask() -> None:
        with pytest.raises(EngineError) as found:
            made.ask(lambda client: client.post("/any", {}, asked), None, asked)
        said.append(str(found.value))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    until(lambda: made.queues == [-1])
    asked.give_up()
    thread.join(LONG_S / 4)
    assert said == ["nobody waits for this completion any more"]


def test_a_server_that_refuses_when_it_is_back_is_named(monkeypatch, capsys):
    """As one that was started without the endpoints for weights."""
    made = servers_of(restorer := Restorer(*[EngineError("refused with status 404")] * 2), "http://one", "http://two")
    monkeypatch.setattr(Client, "get", lambda *given: None)
    made._lose(made.clients[0], ServerLost("told to be"))
    until(lambda: made.queues == [0, 0])
    assert capsys.readouterr().err.count("http://one is left out: refused with status 404") == 1 and not restorer.fails


def test_a_gateway_that_asks_to_wait_does_not_end_a_run(two, policy, prompts):
    engine = engine_of([two[0].url], policy)
    two[0].failures += [429, 408]
    (found,) = engine.generate(prompts, GREEDY)
    assert found.ids == HFEngine(policy.model, policy.processor).generate(prompts, GREEDY)[0].ids
    two[0].failures.append(400)
    with pytest.raises(EngineError, match="refused with status 400"):
        engine.generate(prompts, GREEDY)


def test_the_other_requests_of_a_batch_that_fails_are_given_up(two, policy, prompts, monkeypatch):
    """As after Ctrl-C: the process cannot end before its requests."""
    engine, answer, begun = engine_of([two[0].url], policy), two[0].answer, threading.Event()
    ends, long = threading.Event(), Prompt([*prompts[0].ids, *prompts[0].ids])

    def refusing(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path != vllm_server.GENERATE:
            return answer(path, body)
        if len(body["token_ids"]) == len(long.ids):
            begun.set()
            ends.wait(LONG_S)
            return 200, None
        assert begun.wait(LONG_S)
        return 400, {"error": "told to fail"}

    monkeypatch.setattr(two[0], "answer", refusing)
    started = time.monotonic()
    with pytest.raises(EngineError, match="status 400"):
        engine.generate([*prompts, long], GREEDY)
    until(lambda: engine._servers.queues == [0])
    assert time.monotonic() - started < LONG_S / 2 and engine._servers.losses == 0
    ends.set()
