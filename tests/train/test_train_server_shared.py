"""vLLM servers that are not as they were: another run gives them weights, or they have another model now."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fake_vllm_server import GENERATE, FakeVllmServer

from codev_agents.engines import make_engine, servers
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.options import VllmOptions
from codev_agents.rollout.engine import Prompt, Sampling

GREEDY = Sampling(temperature=0.0, max_tokens=2)


@pytest.fixture
def server(policy) -> Iterator[FakeVllmServer]:
    made = FakeVllmServer(copy.deepcopy(policy.model), policy.processor)
    yield made
    made.stop()


@pytest.mark.parametrize("apart", [True, False])
def test_runs_that_share_a_server_get_no_samples_of_each_other_and_say_so_once(server, policy, capsys, apart):
    def engine() -> Any:
        options = VllmOptions(url=(server.url,), patience=20.0)
        return make_engine("vllm-server", policy.model, policy.processor, 8, 0, options, apart=apart)

    prompts = [Prompt(policy.processor.prompt("sys", "hello", []))]
    first = engine()
    first.generate(prompts, GREEDY)
    second = engine()  # a run that begins takes over what another one has left: nothing to say yet
    assert not capsys.readouterr().err
    for _ in range(2):
        for one in (first, second):
            assert one.generate(prompts, GREEDY)[0].ids and server.version == one._folder.name
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and all(f"another run gives weights to the vLLM server at {server.url}" in it for it in said)


def changed(policy: Any) -> Any:
    model = copy.deepcopy(policy.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.neg_()
    return model


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("when", ["/pause", "/collective_rpc", "/update_weight_version"])
def test_a_push_of_another_run_amid_a_push_leaves_no_wrong_name(server, policy, monkeypatch, apart, when):
    """The weights that are loaded last would get the name of the others."""
    options = VllmOptions(url=(server.url,), patience=20.0)
    prompts, own = [Prompt(policy.processor.prompt("sys", "hello", []))], changed(policy)
    wanted = HFEngine(own, policy.processor).generate(prompts, GREEDY)[0].ids
    first = make_engine("vllm-server", own, policy.processor, 8, 0, options, apart=apart)
    second = make_engine("vllm-server", policy.model, policy.processor, 8, 0, options, apart=apart)
    first.sync(own)
    answer, amid = server.answer, [when]

    def met(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        found = answer(path, body)
        if amid and path.startswith(amid[0]) and body.get("new_version", first._folder.name) == first._folder.name:
            amid.clear()
            second.sync(policy.model)
        return found

    monkeypatch.setattr(server, "answer", met)
    first.sync(own)
    assert not amid and first.generate(prompts, GREEDY)[0].ids == wanted


def test_runs_that_push_at_the_same_moments_never_sample_under_the_name_of_the_other(server, policy, monkeypatch):
    options, answer, loaded, mixed = VllmOptions(url=(server.url,), patience=20.0), server.answer, [""], []

    def noting(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/collective_rpc":
            loaded.append(body["kwargs"]["weights_path"].rpartition("/")[2])
        if path == GENERATE and len(server.version) == 32 and server.version != loaded[-1]:
            mixed.append(server.version)
        return answer(path, body)

    def run() -> None:
        one = make_engine("vllm-server", policy.model, policy.processor, 8, 0, options, apart=True)
        for _ in range(4):
            one.sync(policy.model)
            one.generate([Prompt(policy.processor.prompt("sys", "hello", []))], GREEDY)
        one.close()

    monkeypatch.setattr(server, "answer", noting)
    runs = [threading.Thread(target=run, daemon=True) for _ in range(2)]
    for one in runs:
        one.start()
    for one in runs:
        one.join(60.0)
    assert len(loaded) > 8 and not mixed


def test_a_server_that_was_started_again_is_of_no_other_run(server, policy, capsys):
    options = VllmOptions(url=(server.url,), patience=20.0)
    engine = make_engine("vllm-server", policy.model, policy.processor, 8, 0, options, apart=True)
    server.stop()
    server.start()
    engine.sync(policy.model)
    assert server.version == engine._folder.name and not capsys.readouterr().err


def test_a_server_that_is_back_with_another_model_is_named(server, policy, monkeypatch, capsys):
    """It is healthy, but fails to load the weights; the run goes on with the other servers."""
    monkeypatch.setattr(servers, "PAUSE_S", 0.05)
    other = FakeVllmServer(copy.deepcopy(policy.model), policy.processor)
    try:
        options = VllmOptions(url=(server.url, other.url), patience=20.0)
        engine = make_engine("vllm-server", policy.model, policy.processor, 8, 0, options, apart=True)
        answer = other.answer

        def refuse(path: str, body: dict[str, Any]) -> tuple[int, Any]:
            return (500, "sizes of weights differ") if path == "/collective_rpc" else answer(path, body)

        monkeypatch.setattr(other, "answer", refuse)
        engine.sync(policy.model)
        said = ""
        deadline = time.monotonic() + 60.0
        while "is left out" not in said and time.monotonic() < deadline:
            time.sleep(0.02)
            said += capsys.readouterr().err
        assert f"the vLLM server at {other.url} is left out: status 500" in said and "sizes of weights" in said
        assert engine._servers.queues == [0, -1]
        monkeypatch.setattr(other, "answer", answer)
        engine.close()
    finally:
        other.stop()
