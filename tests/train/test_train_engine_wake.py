"""The order in which the `vllm` engine frees memory and wakes vLLM, with a stand-in for vLLM and for the GPU."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import threading
import types
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from codev_agents.engines.options import VllmOptions
from codev_agents.engines.vllm import VllmEngine
from codev_agents.rollout.engine import EngineError, Prompt, Sampling

MIB = 2**20


class FakeGpu:
    """Notes what happens to its memory; emptying the cache leaves 100 MiB, gathering weights takes 50."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.reserved = 0

    def note(self, event: str, *, reserved: int | None = None, result: Any = None) -> Callable[..., Any]:
        def happens(*args: Any, **options: Any) -> Any:
            self.events.append(event + "".join(f" {tag}" for tag in options.get("tags", ())))
            self.reserved = self.reserved if reserved is None else reserved
            return result

        return happens


class FakeCore:
    """vLLM's engine: processes prompts in a thread, and ends every request in the next step."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.renderer = gpu, self
        self.params: list[dict[str, Any]] = []
        self.left: list[str] = []
        self.threads: list[int] = []
        self.reset_encoder_cache = lambda: None

    def render_cmpl(self, prompts: list[dict[str, Any]], *, skip_mm_cache: bool) -> list[dict[str, Any]]:
        assert skip_mm_cache
        self.gpu.note("process")()
        self.threads.append(threading.get_ident())
        return prompts

    async def render_cmpl_async(self, prompts: list[dict[str, Any]], *, skip_mm_cache: bool) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.render_cmpl, prompts, skip_mm_cache=skip_mm_cache)

    def add_request(self, name: str, given: dict[str, Any], params: dict[str, Any]) -> None:
        self.params.append(params)
        self.left.append(name)

    def has_unfinished_requests(self) -> bool:
        return bool(self.left)

    def step(self) -> list[Any]:
        self.gpu.note("step")()
        self.threads.append(threading.get_ident())
        sampled = types.SimpleNamespace(finish_reason="stop", token_ids=[], logprobs=[])
        ended = [
            types.SimpleNamespace(request_id=name, outputs=[sampled], finished=True, prompt_token_ids=[])
            for name in self.left
        ]
        self.left.clear()
        return ended


class Offloaded:
    """A model whose weights are in CPU memory, though it runs on a GPU."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("only its configuration is copied")


@pytest.fixture
def gpu(monkeypatch) -> FakeGpu:
    gpu = FakeGpu()

    class FakeLLM:
        def __init__(self, *args: Any, **options: Any) -> None:
            assert options["enable_sleep_mode"]
            self.llm_engine = FakeCore(gpu)

        sleep = staticmethod(gpu.note("sleep"))
        wake_up = staticmethod(gpu.note("wake"))
        reset_prefix_cache = reset_mm_cache = staticmethod(lambda: None)

        def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
            assert method == "reload_weights" and len(list(kwargs["weights_iterator"])) > 1
            gpu.note("load", reserved=gpu.reserved + 50 * MIB)()

    monkeypatch.setitem(sys.modules, "vllm", types.SimpleNamespace(LLM=FakeLLM, SamplingParams=dict))
    kinds = types.SimpleNamespace(FINAL_ONLY=0)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", types.SimpleNamespace(RequestOutputKind=kinds))
    monkeypatch.setattr(gc, "collect", gpu.note("collect"))
    monkeypatch.setattr(torch.cuda, "empty_cache", gpu.note("empty", reserved=100 * MIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: gpu.reserved)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8 * MIB, 9 * MIB))
    return gpu


@pytest.mark.parametrize("exact_replay", [False, True])
def test_requests_have_seeds_of_their_own_if_exact_replay_is_asked_for(policy, gpu, monkeypatch, exact_replay):
    """Without, vLLM draws from the generators of the process: PyTorch's, or numpy's for its second model runner."""
    engine = VllmEngine(
        Offloaded(policy.model), policy.processor, VllmOptions(exact_replay=exact_replay), device="cuda"
    )
    asked = engine._llm.llm_engine.params

    def draw(seed: int) -> tuple[float, float]:
        engine.seed(seed)
        engine.generate([Prompt([1]), Prompt([2])], Sampling())
        return torch.rand(()).item(), np.random.random()

    before = draw(2**61)
    again, other = draw(2**61), draw(5)
    assert len(asked) == 6 and ("seed" in asked[0]) == exact_replay
    if exact_replay:
        assert asked[0]["seed"] != asked[1]["seed"] and asked[:2] == asked[2:4] and before != again
    else:
        assert before == again and before[0] != other[0] and before[1] != other[1]


def test_images_are_processed_beside_the_thread_that_steps_and_before_decoding_counts(policy, gpu):
    """Time in which vLLM has nothing but images that are being processed is idle time of the engine."""
    engine = VllmEngine(Offloaded(policy.model), policy.processor, VllmOptions(), device="cuda")
    core = engine._llm.llm_engine
    gpu.events.clear()

    @contextlib.contextmanager
    def decoding():
        gpu.events.append("decoding")
        yield
        gpu.events.append("decoded")

    asyncio.run(engine.complete(Prompt([1]), Sampling(), 0, decoding()))
    assert gpu.events == ["process", "decoding", "step", "decoded"]
    processed, stepped = core.threads
    assert stepped == threading.get_ident() != processed


def test_cached_blocks_are_returned_before_each_part_of_vllm_wakes(policy, gpu):
    model = Offloaded(policy.model)
    engine = VllmEngine(model, policy.processor, VllmOptions(), device="cuda")
    assert gpu.events == ["collect", "empty", "load"], "vLLM is awake when it starts, in memory that a cold start used"

    engine.sleep()
    gpu.reserved = 900 * MIB  # of an update
    gpu.events.clear()
    with unittest.TestCase().assertLogs("codev_agents.engines", logging.INFO) as logged:
        numbers = engine.sync(model)
    assert gpu.events == ["collect", "empty", "wake weights", "load", "collect", "empty", "wake kv_cache"]
    assert numbers == {
        "memory/reserved_before_wake": 900.0,
        "memory/reserved_at_wake": 100.0,
        "memory/reserved_before_cache": 150.0,
        "memory/reserved_at_cache": 100.0,
    }
    assert "PyTorch reserves 100 MiB, 900 before; 8 MiB are free" in "\n".join(logged.output)
    assert engine.sync(model) == {}, "it is awake"


def test_caches_of_earlier_weights_that_vllm_keeps_are_an_error(policy, gpu):
    engine = VllmEngine(Offloaded(policy.model), policy.processor, VllmOptions(), device="cuda")
    engine._llm.reset_prefix_cache = lambda: False
    with pytest.raises(EngineError, match="kept its prefix cache"):
        engine.sync(policy.model)
