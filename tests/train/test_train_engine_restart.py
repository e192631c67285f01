"""A real vLLM server that is killed or hangs while it samples, or serves a saved policy. Needs vLLM's Python."""

from __future__ import annotations

import importlib.util
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from test_train_engine_contract import other_weights, untied
from test_train_engine_contract import policy as policy  # a toy that vLLM can run; pytest takes it from here
from vllm_process import VllmProcess

from codev_agents.engines import make_engine, servers, vllm_server
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.http import Client
from codev_agents.engines.options import VllmOptions
from codev_agents.engines.policy import Policy
from codev_agents.engines.vllm_request import sampling_params
from codev_agents.engines.vllm_server import GENERATE
from codev_agents.rollout.engine import Prompt, Sampling

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed in this environment"),
]


def metric(url: str, name: str) -> float:
    """A number that the server reports about itself."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}"))


def until_busy(server: VllmProcess) -> None:
    while not metric(server.url, "num_requests_running"):
        time.sleep(0.02)


def assert_a_hanging_engine_is_left_out(server: VllmProcess, engine: Any, prompts: Any, sampling: Sampling) -> None:
    """Until it goes on; the server in front of it calls itself healthy all the while."""
    found: list[Any] = []
    call = threading.Thread(target=lambda: found.extend(engine.generate(prompts, sampling)))
    before = engine._servers.losses
    call.start()
    until_busy(server)
    with server.hanging():
        while engine._servers.losses == before:
            time.sleep(0.1)
        assert engine._servers.queues == [-1] and not found
        engine._servers.clients[0].get("/health")
    call.join()
    assert len(found) == len(prompts)


def test_a_server_that_is_killed_or_hangs_loses_nothing(policy, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(servers, "SILENT_S", 5.0)
    monkeypatch.setattr(vllm_server, "STATE_S", 5.0)
    own = untied(policy)
    Policy(other_weights(own.model), own.processor).save(tmp_path / "model")
    prompts = [Prompt(own.processor.prompt("sys", f"number {i}", [])) for i in range(4)]
    sampling = Sampling(temperature=0.0, max_tokens=1500)
    ends = {own.processor.eos_id, own.processor.pad_id}
    found: list[list[int]] = []
    with VllmProcess(tmp_path / "model", tmp_path / "log.txt") as server:
        options = VllmOptions(url=server.url, patience=300)
        engine = make_engine("vllm-server", own.model, own.processor, 4, 0, options)
        call = threading.Thread(target=lambda: found.extend(c.ids for c in engine.generate(prompts, sampling)))
        call.start()
        until_busy(server)
        server.kill()
    assert not found
    with VllmProcess(tmp_path / "model", tmp_path / "log.txt", server.port) as server:
        call.join()
        assert_a_hanging_engine_is_left_out(server, engine, prompts, sampling)
    # Long texts of random weights run in circles; the first tokens tell whose weights wrote them.
    wanted = HFEngine(own.model, own.processor).generate(prompts, Sampling(0.0, 32))
    assert [ids[:32] for ids in found] == [c.ids for c in wanted]
    assert all(len(ids) == 1500 or ids[-1] in ends for ids in found)


def test_a_saved_policy_is_served_as_it_is(policy, tmp_path: Path):
    """What a run leaves in `model/`, with its head and embedding tied; nothing is pushed."""
    policy.save(tmp_path / "model")
    ids, sampling = policy.processor.prompt("sys", "hello", []), Sampling(temperature=0.0, max_tokens=16)
    asked = {
        "token_ids": ids,
        "sampling_params": sampling_params(sampling, policy.processor, 0),
        "return_token_ids": True,
    }
    with VllmProcess(tmp_path / "model", tmp_path / "log.txt") as server:
        (choice,) = Client(server.url, 60.0, 60.0).post(GENERATE, asked)["choices"]
    (wanted,) = HFEngine(policy.model, policy.processor).generate([Prompt(ids)], sampling)
    assert choice["token_ids"] == wanted.ids
