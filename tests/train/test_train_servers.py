"""Several vLLM servers: queues of their own, one that dies and comes back, and weights that change meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from email.message import Message
from typing import Any
from urllib.error import HTTPError

import pytest
import torch
from fake_vllm_server import FakeVllmServer
from micro_run import history

from codev_agents.engines import http, make_engine
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.http import Client, LostAgain, LostWeights, OpenRequest, ServerLost
from codev_agents.engines.options import VllmOptions
from codev_agents.engines.policy import Policy
from codev_agents.engines.servers import Servers
from codev_agents.rollout.engine import EngineError, Prompt, Sampling
from codev_env.app.cli import main
from codev_env.types import IMAGE_PLACEHOLDER

GREEDY = Sampling(temperature=0.0, max_tokens=8)
GENERATE = "/inference/v1/generate"


@pytest.fixture
def servers(policy) -> Iterator[list[FakeVllmServer]]:
    """Two, started with other weights than the policy's."""
    made = []
    for _ in range(2):
        model = copy.deepcopy(policy.model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.neg_()
        made.append(FakeVllmServer(model, policy.processor))
    yield made
    for server in made:
        with contextlib.suppress(Exception):
            server.stop()


@pytest.fixture
def prompts(policy, picture) -> list[Prompt]:
    images = [policy.processor.image(picture(100 + 20 * number, 60)) for number in range(4)]
    return [Prompt(policy.processor.prompt("sys", f"{IMAGE_PLACEHOLDER} what?", [one]), [one]) for one in images]


@pytest.fixture
def wanted(policy, prompts) -> list[list[int]]:
    return [c.ids for c in HFEngine(policy.model, policy.processor).generate(prompts, GREEDY)]


def engine_of(servers, policy, apart: bool = True, patience: float = 20.0, version: int = 0) -> Any:
    options = VllmOptions(url=tuple(server.url for server in servers), patience=patience)
    return make_engine("vllm-server", policy.model, policy.processor, 8, 0, options, apart=apart, version=version)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def changed(policy) -> Any:
    model = copy.deepcopy(policy.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    return model


def test_all_get_the_weights_and_share_the_requests(servers, policy, prompts, wanted):
    engine = engine_of(servers, policy)
    for server in servers:
        assert server.asked.count("/collective_rpc") == 1 and not server.paused
        server.asked.clear()
    found = engine.generate(prompts, GREEDY)
    assert [c.ids for c in found] == wanted and all(set(c.versions) == {0} for c in found)
    assert all(server.asked.count(GENERATE) for server in servers)


def test_requests_of_a_task_go_to_the_same_server(servers, policy, prompts):
    engine = engine_of(servers, policy)
    for server in servers:
        server.asked.clear()
    for _ in range(4):
        engine.generate(prompts[:1], GREEDY)
    assert sorted(server.asked.count(GENERATE) for server in servers) == [0, 4]


def test_a_server_that_dies_is_left_out_and_its_requests_are_made_elsewhere(servers, policy, prompts, wanted):
    engine = engine_of(servers, policy)
    servers[0].stop()
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted
    assert -1 in engine._servers.queues
    numbers = engine.sync(policy.model)
    assert numbers["server/0_queue"] == -1 and numbers["server/lost"] >= 1
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted


def test_it_is_taken_back_with_the_newest_weights(servers, policy, prompts):
    engine, model = engine_of(servers, policy), changed(policy)
    servers[0].stop()
    engine.generate(prompts, GREEDY)
    engine.sync(model)
    servers[0].start()
    until(lambda: engine._servers.queues == [0, 0])
    assert servers[0].version == servers[1].version == engine._folder.name
    servers[0].asked.clear()
    servers[1].stop()
    found = engine.generate(prompts, GREEDY)
    assert [c.ids for c in found] == [c.ids for c in HFEngine(model, policy.processor).generate(prompts, GREEDY)]
    assert all(set(c.versions) == {1} for c in found) and servers[0].asked.count(GENERATE) == 4


def test_a_process_that_does_not_push_takes_it_back_too(servers, policy, prompts, monkeypatch):
    """Of several processes only the first one pushes; each looks for the servers that it has lost."""
    first, second = engine_of(servers, policy), engine_of(servers, policy)
    second._writes, second._group = False, object()
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", lambda found: found.__setitem__(0, first._folder))
    monkeypatch.setattr(torch.distributed, "barrier", lambda group: None)
    servers[0].stop()
    first.sync(changed(policy))
    second.sync(policy.model)  # whose weights are those of the first process
    second.generate(prompts, GREEDY)
    assert second._servers.queues == [-1, 0]
    servers[0].start()
    until(lambda: second._servers.queues == [0, 0])
    assert servers[0].version == first._folder.name


def test_a_process_that_does_not_push_gives_no_server_older_weights(servers, policy, monkeypatch):
    first, second = engine_of(servers, policy), engine_of(servers, policy)
    second._writes, second._group = False, object()
    first.sync(changed(policy))

    def meanwhile(group: object) -> None:  # the first process has pushed
        assert second._restore(second._servers.clients[0]) == first._folder.name

    monkeypatch.setattr(torch.distributed, "broadcast_object_list", lambda found: found.__setitem__(0, first._folder))
    monkeypatch.setattr(torch.distributed, "barrier", meanwhile)
    second.sync(policy.model)
    assert servers[0].version == first._folder.name


def test_weights_that_are_still_being_written_stop_no_server(servers, policy, tmp_path):
    engine = engine_of(servers, policy)
    engine._folder = tmp_path / "later"
    servers[0].asked.clear()
    with pytest.raises(ServerLost, match="being written"):
        engine._restore(engine._servers.clients[0])
    assert "/pause" not in servers[0].asked


def test_weights_are_trained_on_while_their_copy_is_pushed(servers, policy, prompts, wanted):
    engine, model = engine_of(servers, policy), copy.deepcopy(policy.model)
    engine.sync(changed(policy))
    push = engine.stage(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.neg_()
    push()
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted


class Restoring:
    """Gives weights to a server that is taken back, in steps: each returns their name, or raises."""

    def __init__(self, monkeypatch, *steps: Callable[[], str]) -> None:
        monkeypatch.setattr(Client, "get", lambda client, path, timeout=None: None)
        self.left = list(steps)
        self.servers = Servers(["http://127.0.0.1:1", "http://127.0.0.1:2"], 20, 20, self.restore)
        self.servers.announce("new")

    def restore(self, client: Client) -> str:
        return self.left.pop(0)()

    def lose(self, reason: ServerLost) -> int:
        """Lose a server, wait until it is taken back, and return how many losses were counted."""
        reasons = iter([reason])

        def action(client: Client) -> None:
            for error in reasons:
                raise error

        self.servers.ask(action)
        until(lambda: self.servers.queues == [0, 0])
        return self.servers.losses


def test_a_server_that_dies_while_it_is_taken_back_has_died_twice(monkeypatch):
    def old() -> str:
        """Newer weights have come meanwhile."""
        return "old"

    def new() -> str:
        return "new"

    def dies() -> str:
        raise ServerLost("killed") from ConnectionResetError()

    def checked() -> str:
        raise LostAgain("killed when it was checked") from ServerLost("killed")

    def says() -> str:
        raise ServerLost("its cache could not be emptied")

    dead, restarted = ServerLost("killed"), LostWeights("a completion by weights ['default']")
    for deaths, reason, steps in (
        (2, dead, [old, dies, dies, new]),
        (3, dead, [old, dies, dies, old, dies, new]),
        (3, dead, [checked, dies, old, checked, dies, new]),
        (1, dead, [old, says, old, new]),
        (1, dead, [dies, dies, new]),  # it had not come back
        (2, restarted, [dies, dies, new]),  # nobody missed it the first time
        (1, restarted, [says, old, new]),
    ):
        assert Restoring(monkeypatch, *steps).lose(reason) == deaths, (reason, steps)


def test_all_of_them_gone_is_an_error_that_names_them(servers, policy, prompts):
    engine = engine_of(servers, policy, patience=0.3)
    for server in servers:
        server.stop()
    with pytest.raises(EngineError, match=f"servers at {servers[0].url}, {servers[1].url}, .* 0.3 s"):
        engine.generate(prompts, GREEDY)


def test_all_of_them_gone_for_a_while_loses_nothing(servers, policy, prompts, wanted):
    engine = engine_of(servers, policy)
    for server in servers:
        server.stop()
    back = threading.Timer(0.5, servers[1].start)
    back.start()
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted
    back.join()


def test_too_many_requests_for_a_gateway_are_made_again(servers, policy, prompts, wanted, monkeypatch):
    monkeypatch.setattr(http, "PAUSE_S", 0.1)
    engine = engine_of(servers[:1], policy)
    servers[0].failures += [429] * 40
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted
    assert engine._servers.losses == 0  # other requests are under way there


def test_a_gateway_is_asked_again_when_it_says_until_patience_ends(monkeypatch):
    client, asked, waits, headers = Client("http://gateway", 0.2, 60.0), OpenRequest(), [], Message()
    headers["Retry-After"] = "7"

    def busy(request: Any, timeout: float) -> Any:
        raise HTTPError(request.full_url, 429, "busy", headers, io.BytesIO(b"too many"))

    monkeypatch.setattr(client._opener, "open", busy)
    monkeypatch.setattr(asked, "wait", lambda seconds: waits.append(seconds) or time.sleep(seconds))
    with pytest.raises(ServerLost, match="429: too many"):
        client.post(GENERATE, {}, asked)
    assert sum(waits) == pytest.approx(0.2, abs=0.1) and len(waits) == 1
    client.patience = 60.0
    threading.Timer(0.1, asked.give_up).start()
    monkeypatch.undo()
    monkeypatch.setattr(client._opener, "open", busy)
    started = time.monotonic()
    with pytest.raises(ServerLost):
        client.post(GENERATE, {}, asked)
    assert time.monotonic() - started < 5


def test_a_push_in_flight_keeps_the_requests_and_announces_before_the_next_token(servers, policy):
    engine = engine_of(servers, policy)
    for server in servers:
        assert server.pauses == ["mode=keep&clear_cache=true"]
        server.asked.clear()
    engine.sync(policy.model)
    for server in servers:
        pushed = [path for path in server.asked if path not in ("/weight_info", "/is_paused")]
        assert pushed == ["/pause", "/collective_rpc", "/update_weight_version", "/resume"]


@pytest.mark.parametrize("in_flight", [True, False])
def test_prefixes_are_shared_where_no_push_meets_a_request(servers, policy, prompts, in_flight, monkeypatch):
    """In flight vLLM 0.32 would have to compute images again whose pixels it has dropped."""
    options = VllmOptions(url=servers[0].url)
    engine = make_engine("vllm-server", policy.model, policy.processor, 8, 0, options, apart=True, in_flight=in_flight)
    salts, complete = [], servers[0].complete

    def noting(body, finish):
        salts.append(body.get("cache_salt"))
        return complete(body, finish)

    monkeypatch.setattr(servers[0], "complete", noting)
    engine.generate([*prompts, *prompts], GREEDY)
    assert len(set(salts)) == (8 if in_flight else 1) and (None in salts) is not in_flight


def test_a_push_that_was_cut_off_before_the_server_went_on_is_repeated(servers, policy, prompts, wanted):
    engine = engine_of(servers, policy)
    servers[0].paused = True
    servers[0].failures += [500]
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted
    until(lambda: not servers[0].paused)


def test_tokens_of_two_versions_in_one_completion(servers, policy, prompts, monkeypatch):
    """A server that was paused, got other weights and went on reports spans."""
    engine = engine_of(servers[:1], policy, version=7)
    first = engine._folder.name
    engine.sync(policy.model)
    complete = servers[0].complete

    def spanned(body, finish):
        answer = complete(body, finish)
        (choice,) = answer["choices"]
        end = len(choice["token_ids"])
        choice["weight_versions"] = [
            {"version": first, "start": 0, "end": 3},
            {"version": servers[0].version, "start": 3, "end": end},
        ]
        return answer

    monkeypatch.setattr(servers[0], "complete", spanned)
    (found,) = engine.generate(prompts[:1], GREEDY)
    assert list(found.versions) == [7] * 3 + [8] * (len(found.ids) - 3)


def test_without_apart_a_completion_of_two_versions_is_sampled_again(servers, policy, prompts, wanted, monkeypatch):
    engine = engine_of(servers[:1], policy, apart=False)
    first = engine._folder.name
    engine.sync(policy.model)
    complete, spans = servers[0].complete, [[{"version": first, "start": 0, "end": 8}]]

    def spanned(body, finish):
        answer = complete(body, finish)
        if spans:
            answer["choices"][0]["weight_versions"] = spans.pop()
        return answer

    monkeypatch.setattr(servers[0], "complete", spanned)
    (found,) = engine.generate(prompts[:1], GREEDY)
    assert found.ids == wanted[0] and not found.versions and not spans


def test_completions_of_weights_that_were_never_pushed_are_sampled_again(servers, policy, prompts, wanted):
    """A server that was started anew between two requests has its first weights."""
    engine = engine_of(servers[:1], policy)
    servers[0].stop()
    servers[0].start()
    (found,) = asyncio.run(gathered(engine, prompts[:1]))
    assert found.ids == wanted[0] and set(found.versions) == {0}


async def gathered(engine: Any, prompts: list[Prompt]) -> list[Any]:
    return await asyncio.gather(*(engine.complete(p, GREEDY, 1, contextlib.nullcontext()) for p in prompts))


@pytest.mark.parametrize("url", [(), ("http://a", "http://a"), ("node2:8000",)])
def test_bad_addresses_are_refused(url):
    with pytest.raises(ValueError, match="addresses such as"):
        VllmOptions(url=url)


def test_one_address_may_be_a_string():
    assert VllmOptions(url="http://a:1").url == ("http://a:1",)


@pytest.mark.parametrize("in_flight", ["true", "false"])
def test_a_run_whose_servers_die_in_turn(arguments, runs, start, monkeypatch, in_flight):
    """Each dies at a fixed request and comes back when the other one has answered some; no group is lost."""
    made = [FakeVllmServer(Policy.load(str(start)).model, Policy.load(str(start)).processor) for _ in range(2)]
    kills = {3: 0, 9: 1}  # by the number of a request for a completion, of all: the server that dies before the next
    complete, asked, lock = [server.complete for server in made], [0], threading.Lock()

    def counting(number: int, body: dict[str, Any], finish: str) -> dict[str, Any]:
        with lock:
            asked[0] += 1
            dies = kills.get(asked[0])
        if dies is not None:
            made[dies].stop()
            threading.Timer(0.3, made[dies].start).start()
        return complete[number](body, finish)

    for number, server in enumerate(made):
        monkeypatch.setattr(server, "complete", functools.partial(counting, number))
    words = ["--engine", "vllm-server", "--vllm.url", *(server.url for server in made), "--in-flight", in_flight]
    name = f"servers-{in_flight}"
    assert main(["train", *arguments(name, *words, "--staleness", "1", "--health.mismatch", "0.01")]) == 0
    rows = history(runs / name)
    assert [row["step"] for row in rows] == [1, 2, 3] and rows[-1]["server/lost"] >= 1
    used = [
        n for line in (runs / name / "groups" / "0.jsonl").read_text().splitlines() for n in json.loads(line)["used"]
    ]
    assert len(used) == len(set(used)) >= 6
    until(lambda: not any(timer.is_alive() for timer in threading.enumerate() if isinstance(timer, threading.Timer)))
    for server in made:
        server.stop()


@pytest.fixture
def server(start) -> Iterator[FakeVllmServer]:
    policy = Policy.load(str(start))
    made = FakeVllmServer(policy.model, policy.processor)
    yield made
    made.stop()


def loading(server: FakeVllmServer, monkeypatch, load: Callable[[int], int | None]) -> None:
    """Call `load` with the number of each push, from 0, before the server loads it; a status that it gives refuses."""
    answer, pushes = server.answer, [0]

    def counting(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/collective_rpc":
            pushes[0] += 1
            if status := load(pushes[0] - 1):
                return status, {"error": "told to refuse"}
        return answer(path, body)

    monkeypatch.setattr(server, "answer", counting)


@pytest.mark.parametrize("in_flight", ["true", "false"])
def test_the_trainer_does_not_wait_for_a_push(server, arguments, runs, monkeypatch, in_flight):
    slow = 1.0
    loading(server, monkeypatch, lambda number: time.sleep(slow if number == 1 else 0))
    name = f"slow-push-{in_flight}"
    words = ["--engine", "vllm-server", "--vllm.url", server.url, "--staleness", "2", "--in-flight", in_flight]
    assert main(["train", *arguments(name, *words)]) == 0
    rows = history(runs / name)
    assert rows[0]["seconds/push"] < slow <= rows[1]["async/push_seconds"]
    assert server.version != "default" and not server.paused
    newest = Policy.load(str(runs / name / "model")).model.state_dict()
    for key, weight in server.model.state_dict().items():
        torch.testing.assert_close(weight, newest[key])


def test_a_push_that_is_refused_ends_the_run(server, arguments, monkeypatch, capsys):
    loading(server, monkeypatch, lambda number: 400 if number == 2 else None)
    words = ["--engine", "vllm-server", "--vllm.url", server.url, "--staleness", "1"]
    assert main(["train", *arguments("refused-push", *words)]) == 1
    assert "/collective_rpc refused with status 400" in capsys.readouterr().err
