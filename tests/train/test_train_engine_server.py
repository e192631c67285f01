"""The `vllm-server` engine and a server that fails: nothing is lost, nothing is sampled by the wrong weights."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import math
import resource
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_vllm_server import FakeVllmServer

from codev_agents.engines import make_engine, weights_folder
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.options import VllmOptions
from codev_agents.engines.pixels import to_image
from codev_agents.engines.vllm_request import one_per_image
from codev_agents.engines.weights import named_weights
from codev_agents.engines.weights_folder import WeightsFolder
from codev_agents.rollout.engine import EngineError, Prompt, Sampling
from codev_env.errors import ConfigError
from codev_env.types import IMAGE_PLACEHOLDER

GREEDY = Sampling(temperature=0.0, max_tokens=8)
GENERATE = "/inference/v1/generate"


@pytest.fixture
def server(policy) -> Iterator[FakeVllmServer]:
    """A server that was started with other weights than the policy's."""
    model = copy.deepcopy(policy.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.neg_()
    server = FakeVllmServer(model, policy.processor)
    yield server
    server.stop()


@pytest.fixture
def prompts(policy, picture) -> list[Prompt]:
    image = policy.processor.image(picture(100, 60))
    texts: list[tuple[str, list[Any]]] = [("hello", []), (f"{IMAGE_PLACEHOLDER} what?", [image])]
    return [Prompt(policy.processor.prompt("sys", text, images), images) for text, images in texts]


@pytest.fixture
def wanted(policy, prompts) -> list[list[int]]:
    return [c.ids for c in HFEngine(policy.model, policy.processor).generate(prompts, GREEDY)]


def engine_of(server: FakeVllmServer, policy: Any, patience: float = 20.0, exact_replay: bool = False) -> Any:
    options = VllmOptions(url=server.url, patience=patience, exact_replay=exact_replay)
    return make_engine("vllm-server", policy.model, policy.processor, 4, 0, options)


def test_a_push_resets_every_cache_and_is_made_once(server, policy, prompts, wanted):
    engine = engine_of(server, policy)
    resets = [path for path in server.asked if path.startswith("/reset")]
    assert sorted(resets) == ["/reset_encoder_cache", "/reset_mm_cache", "/reset_prefix_cache"]
    assert server.asked.index("/collective_rpc") < server.asked.index(resets[0]) < server.asked.index("/resume")
    for _ in range(2):
        assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted
    assert server.asked.count("/collective_rpc") == 1
    engine.sync(policy.model)
    assert server.asked.count("/collective_rpc") == 2


@pytest.mark.parametrize("failures", [["drop"], [500], [503, "drop"], ["abort"], ["drop", 500, 502, "abort"]])
def test_a_failed_request_is_made_again(server, policy, prompts, wanted, failures):
    engine = engine_of(server, policy)
    server.failures += failures
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted
    assert not server.failures


IMPOSSIBLE: list[dict[str, Any]] = [
    {"logprobs": {"content": [{"logprob": math.nan}]}},
    {"logprobs": {"content": [{"logprob": -math.inf}]}},
    {"token_ids": [-1]},
    {"token_ids": [10**6]},
    {"token_ids": [10**12]},
]


@pytest.mark.parametrize("odd", IMPOSSIBLE)
def test_a_completion_that_no_model_samples_is_asked_for_again(server, policy, prompts, wanted, monkeypatch, odd):
    """Its tokens cannot be read, or would end the update."""
    engine, complete, left = engine_of(server, policy), server.complete, [odd]

    def garbled(*given: Any) -> dict[str, Any]:
        answer = complete(*given)
        return answer | {"choices": [answer["choices"][0] | left.pop()]} if left else answer

    monkeypatch.setattr(server, "complete", garbled)
    short = Sampling(temperature=0.0, max_tokens=1)
    assert [c.ids for c in engine.generate(prompts, short)] == [ids[:1] for ids in wanted] and not left


@pytest.mark.parametrize("exact_replay", [False, True])
def test_requests_carry_seeds_if_exact_replay_is_asked_for(server, policy, prompts, exact_replay):
    engine = engine_of(server, policy, exact_replay=exact_replay)
    engine.generate(prompts * 2, Sampling(1.0, 2))
    asyncio.run(engine.complete(prompts[0], Sampling(1.0, 2), 5, contextlib.nullcontext()))
    if exact_replay:
        assert len(set(server.seeds)) == 5 and server.seeds[-1] == 5
    else:
        assert server.seeds == [None] * 5


def test_an_answer_that_got_lost_is_sampled_again_the_same(server, policy, prompts):
    engine = engine_of(server, policy, exact_replay=True)
    engine.seed(7)
    first = engine.generate(prompts, Sampling(1.0, 8))
    engine.seed(7)
    server.failures += ["drop", "drop"]
    assert [c.ids for c in engine.generate(prompts, Sampling(1.0, 8))] == [c.ids for c in first]


def test_a_request_that_is_given_up_is_not_made_again(server, policy, prompts, monkeypatch):
    """A push of weights ends what the server still samples for groups that are not needed."""
    engine, complete = engine_of(server, policy), server.complete
    begun, pushed = threading.Event(), threading.Event()

    def ended_by_a_push(body, finish):
        begun.set()
        assert pushed.wait(20)
        return complete(body, "abort")

    async def give_up() -> None:
        asked = asyncio.create_task(engine.complete(prompts[0], Sampling(1.0, 2), 5, contextlib.nullcontext()))
        await asyncio.to_thread(begun.wait, 20)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    monkeypatch.setattr(server, "complete", ended_by_a_push)
    before = server.asked.count(GENERATE)
    asyncio.run(give_up())
    pushed.set()
    engine._threads.shutdown()
    assert server.asked.count(GENERATE) == before + 1


def test_a_restarted_server_gets_the_weights_again(server, policy, prompts, wanted):
    engine = engine_of(server, policy)
    server.stop()
    server.start()
    assert server.version == "default"
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted
    assert server.asked.count("/collective_rpc") == 2


def test_a_call_waits_for_a_server_that_comes_back(server, policy, prompts, wanted):
    engine = engine_of(server, policy)
    server.stop()
    back = threading.Timer(0.5, server.start)
    back.start()
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == wanted
    back.join()


def test_a_server_that_stays_away_is_an_error(server, policy, prompts):
    engine = engine_of(server, policy, patience=0.3)
    server.stop()
    try:
        with pytest.raises(
            EngineError, match=rf"no answer from .* at {server.url}, tried again for 0.3 s .*--vllm.url"
        ):
            engine.generate(prompts, GREEDY)
    finally:
        server.start()


def test_a_server_that_fails_every_time_is_an_error(server, policy, prompts):
    engine = engine_of(server, policy)
    server.failures += [500] * 20
    with pytest.raises(EngineError, match="is there, but 5 tries .* status 500"):
        engine.generate(prompts[:1], GREEDY)
    assert len(server.failures) == 15


def test_a_push_is_not_done_before_every_cache_is_empty(server, policy):
    engine = engine_of(server, policy)
    server.stuck, before = 2, server.version
    engine.sync(policy.model)
    assert not server.stuck and server.version != before
    done = [path for path in server.asked if path != "/weight_info"]
    assert done[-2:] == ["/resume", "/update_weight_version"]


def test_a_refusal_is_an_error_at_once(server, policy, prompts):
    engine = engine_of(server, policy)
    server.failures += [400, 404]
    with pytest.raises(EngineError, match=f"{server.url}{GENERATE} refused with status 400: .*told to fail"):
        engine.generate(prompts[:1], GREEDY)
    assert server.failures == [404]


def test_other_logprobs_than_those_sampled_from_are_refused(server, policy):
    server.report = -2.5
    with pytest.raises(ConfigError, match="--logprobs-mode processed_logprobs"):
        engine_of(server, policy)


def test_processes_that_write_no_weights_keep_none(server, policy, monkeypatch):
    """All gather them one by one; only the first process holds them whole, for the file."""
    engine, made, alive = engine_of(server, policy), [], []

    def gathered(*_):
        for number in range(5):
            weight = torch.zeros(3)
            made.append(weakref.ref(weight))
            yield str(number), weight

    monkeypatch.setattr("codev_agents.engines.vllm_server.named_weights", gathered)
    engine._writes, engine._group = False, object()
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", lambda found: None)
    monkeypatch.setattr(torch.distributed, "barrier", lambda group: alive.extend(ref() for ref in made))
    engine.sync(policy.model)
    assert alive == [None] * 5


def test_only_the_newest_weights_are_kept(server, policy, tmp_path):
    options = VllmOptions(url=server.url, folder=str(tmp_path))
    engine = make_engine("vllm-server", policy.model, policy.processor, 4, 0, options)
    engine.sync(policy.model)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    del engine
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(("width", "height"), [(112, 112), (300, 60), (57, 200), (10, 10), (640, 480)])
def test_an_image_survives_being_sent(policy, picture, width, height):
    """An engine that processes the picture sees the same pixels as the trainer."""
    processor = policy.processor
    block = processor.image(picture(width, height))
    sent = to_image(block, processor.image_processor)
    again = processor.image(sent)
    assert again.grid == block.grid and torch.equal(again.values, block.values)
    patch = processor.image_processor.patch_size
    assert sent.size == (block.grid[2] * patch, block.grid[1] * patch)


def test_every_image_is_sent_as_one_token(policy, picture):
    processor = policy.processor
    images = [processor.image(picture(*size)) for size in ((56, 56), (112, 112), (56, 112))]
    text = f"{IMAGE_PLACEHOLDER}{IMAGE_PLACEHOLDER} and {IMAGE_PLACEHOLDER}"
    ids = processor.prompt("", text, images)
    short = one_per_image(Prompt(ids, images), processor.image_id)
    assert short.count(processor.image_id) == 3
    assert len(ids) - len(short) == sum(image.tokens - 1 for image in images)
    assert [i for i in short if i != processor.image_id] == [i for i in ids if i != processor.image_id]


class Adapted(torch.nn.Module):
    """A linear layer with a low-rank adapter, as peft makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = torch.nn.Linear(2, 2)
        self.lora_A = torch.nn.Linear(2, 1, bias=False)

    def get_delta_weight(self, name: str) -> torch.Tensor:
        assert name == "default"
        return torch.tensor([[1.0, 0.0], [0.0, 2.0]])


def test_adapters_are_merged_on_the_way():
    model = torch.nn.ModuleDict({"head": torch.nn.Linear(2, 1), "layer": Adapted()})
    found = dict(named_weights(model, torch.float64))
    assert set(found) == {"head.weight", "head.bias", "layer.weight", "layer.bias"}
    base = model["layer"].base_layer.weight.detach()
    assert torch.equal(found["layer.weight"], (base + torch.tensor([[1.0, 0.0], [0.0, 2.0]])).double())
    assert all(weight.dtype == torch.float64 for weight in found.values())


def test_an_unknown_engine_names_the_nearest(policy):
    with pytest.raises(ConfigError, match="Did you mean 'vllm'"):
        make_engine("vlm", policy.model, policy.processor, 4, 0)


def test_vllm_that_is_not_installed_is_named(policy, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_LOGGING_LEVEL", "VLLM_CPU_OMP_THREADS_BIND"):
        monkeypatch.setenv(name, "0")
    with pytest.raises(ConfigError, match=r"codev-env\[vllm\]"):
        make_engine("vllm", policy.model, policy.processor, 4, 0)


KILLED = """
import os, signal, sys
from codev_agents.engines.weights_folder import WeightsFolder
kept = WeightsFolder(sys.argv[1])
(kept.path / "model.safetensors").write_text("weights")
print(kept.path, flush=True)
if sys.argv[2] == "waits":
    sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_weights_of_a_killed_process_are_removed_and_those_of_a_living_one_are_let_be(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen([*command, "waits"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living:
        there = Path(living.stdout.readline().strip())
        gone = Path(subprocess.run([*command, "ends"], stdout=subprocess.PIPE, text=True).stdout.strip())
        assert there.is_dir() and gone.is_dir()
        elsewhere, nobodys = tmp_path / "codev-weights-elsewhere", tmp_path / "codev-weights-old"
        for folder in (elsewhere, nobodys):
            shutil.copytree(gone, folder)
        (elsewhere / "owner").write_text("another machine")
        (nobodys / "owner").unlink()  # as where locks do not work
        first = WeightsFolder(str(tmp_path))
        second = WeightsFolder(str(tmp_path))
        assert {*tmp_path.iterdir()} == {there, elsewhere, nobodys, first.path, second.path}
        living.stdin.close()
    third = WeightsFolder(str(tmp_path))
    assert not there.exists() and third.path.exists()
    path = third.path
    del third
    assert not path.exists()


def test_a_disk_without_locks_keeps_everything(tmp_path, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(weights_folder, "lock_file", fail)
    first = WeightsFolder(str(tmp_path))
    second = WeightsFolder(str(tmp_path))
    assert {*tmp_path.iterdir()} == {first.path, second.path}
    assert not list(tmp_path.rglob("owner")), "nobody may take it for one that is given up"


def test_a_full_disk_under_a_push_says_what_to_do_and_leaves_nothing(server, policy, tmp_path):
    options = VllmOptions(url=server.url, folder=str(tmp_path))
    engine = make_engine("vllm-server", policy.model, policy.processor, 4, 0, options)
    before = {path.name for path in tmp_path.rglob("*")}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(EngineError, match=r"cannot write the weights .*--vllm\.folder.*--resume"):
            engine.sync(policy.model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name for path in tmp_path.rglob("*")} == before
    engine.sync(policy.model)


def test_processes_wait_for_a_push_as_long_as_for_episodes(server, policy, monkeypatch):
    made = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "new_group", lambda **options: made.append(options))
    engine_of(server, policy)
    (options,) = made
    assert options["backend"] == "gloo" and options["timeout"].total_seconds() == 6 * 3600
