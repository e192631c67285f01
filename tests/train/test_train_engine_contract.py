"""What every engine owes the trainer, one test for all: `hf`, `vllm` where vLLM is installed, and `vllm-server`.

The server is a stand-in over HTTP, and vLLM's own where vLLM is installed: run with the Python that has it, as
`test_train_engine_vllm.py` does.
"""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import micro_run
import numpy as np
import pytest
import torch
from fake_vllm_server import FakeVllmServer
from vllm_process import VllmProcess

from codev_agents.engines import make_engine
from codev_agents.engines.batch import collate
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.options import ToyModelOptions, VllmOptions
from codev_agents.engines.policy import Policy
from codev_agents.engines.vllm import VllmEngine
from codev_agents.rollout.engine import Completion, Engine, Prompt, Sampling
from codev_agents.rollout.requests import open_requests
from codev_agents.rollout.runner import RolloutRunner
from codev_agents.rollout.selection import Selection
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.learn.scorer import TokenScorer
from codev_train.run.environments import make_env
from codev_train.run.options import SFTOptions
from codev_train.sft import cold_start as sft

GREEDY = Sampling(temperature=0.0, max_tokens=16)
HAS_VLLM = importlib.util.find_spec("vllm") is not None
NEEDS_VLLM = pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed in this environment")
# The smallest model whose attention heads vLLM can compute on a CPU: 32 channels each.
TOY = ToyModelOptions(**{**micro_run.TOY, "hidden": 64, "vision_hidden": 32})


@pytest.fixture(scope="module")
def policy(env_options) -> Policy:
    """A toy policy with wide weights, so that what it writes depends on everything before it."""
    made = sft.toy_policy(SFTOptions(env=env_options, snap=112, toy=TOY))
    with torch.no_grad():
        for parameter in made.model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(3)
    return made


def untied(policy: Policy) -> Policy:
    """The same with an output head of its own: a CPU server does not take over one that is the input embedding, too."""
    model = copy.deepcopy(policy.model)
    model.config.tie_word_embeddings = model.config.text_config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return Policy(model, policy.processor)


def exact(url: str = VllmOptions().url) -> VllmOptions:
    """Options under which vLLM's samples repeat, as those of `hf` do."""
    return VllmOptions(url=url, exact_replay=True)


def other_weights(model: Any) -> Any:
    """The same architecture with other weights: rows and columns turned around."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.copy_(parameter.flip(tuple(range(parameter.ndim))))
    return changed


def with_weights(engine: Engine, model: Any, processor: Any) -> Engine:
    """The engine after training changed its model: `hf` samples from the training model itself."""
    if isinstance(engine, HFEngine):
        engine = HFEngine(model, processor)
    engine.sleep()
    engine.sync(model)
    return engine


@pytest.fixture(
    scope="module",
    params=[
        "hf",
        "vllm-server-fake",
        pytest.param("vllm", marks=[NEEDS_VLLM, pytest.mark.integration]),
        pytest.param("vllm-server", marks=[NEEDS_VLLM, pytest.mark.integration]),
    ],
)
def case(request, policy, tmp_path_factory) -> Iterator[tuple[Engine, Policy]]:
    """An engine, and the policy it samples from. The engine was started with other weights where that is possible."""
    if request.param == "vllm-server-fake":
        server = FakeVllmServer(other_weights(policy.model), policy.processor)
        yield make_engine("vllm-server", policy.model, policy.processor, 8, 0, exact(server.url)), policy
        server.stop()
    elif request.param == "vllm-server":
        policy = untied(policy)
        folder = tmp_path_factory.mktemp("vllm")
        Policy(other_weights(policy.model), policy.processor).save(folder / "model")
        with VllmProcess(folder / "model", folder / "log.txt") as server:
            yield make_engine("vllm-server", policy.model, policy.processor, 8, 0, exact(server.url)), policy
    else:
        yield make_engine(request.param, policy.model, policy.processor, 8, 0, exact(), 2048), policy


@pytest.fixture
def engine(case) -> Engine:
    return case[0]


@pytest.fixture
def own(case) -> Policy:
    """The policy that the engine samples from."""
    return case[1]


@pytest.fixture
def prompts(policy, picture) -> list[Prompt]:
    """Prompts of different lengths with no, one and two images of different sizes."""
    processor = policy.processor
    one, two = processor.image(picture(100, 100)), processor.image(picture(300, 60))
    texts: list[tuple[str, list[Any]]] = [
        ("hello", []),
        (f"{IMAGE_PLACEHOLDER}\nDescribe the image.", [one]),
        ("a long text without any image: " + "4, 8, 15, " * 8, []),
        (f"first {IMAGE_PLACEHOLDER} 45 {IMAGE_PLACEHOLDER}77", [one, two]),
        (f"{IMAGE_PLACEHOLDER}what?", [two]),
    ]
    return [Prompt(processor.prompt("sys", text, images), images) for text, images in texts]


def scores(
    model: Any, processor: Any, found: Sequence[Completion], prompts: Sequence[Prompt], t: float
) -> list[list[float]]:
    """Log-probabilities of completions by the forward pass that is trained."""
    ids = [[*p.ids, *c.ids] for p, c in zip(prompts, found, strict=True)]
    batch = collate(ids, [p.images for p in prompts], processor.pad_id, processor.image_id)
    chosen = torch.zeros(batch["input_ids"].shape, dtype=torch.bool)
    for row, (prompt, sequence) in enumerate(zip(prompts, ids, strict=True)):
        chosen[row, len(prompt.ids) : len(sequence)] = True
    with torch.no_grad():
        logprobs, _ = TokenScorer(model.eval())(batch, chosen, t, tuple(processor.banned_ids))
    return [part.tolist() for part in logprobs.split([len(c.ids) for c in found])]


def mean_difference(found: Sequence[Completion], wanted: list[list[float]]) -> float:
    """Mean over tokens, in nats."""
    pairs = [(x, y) for c, w in zip(found, wanted, strict=True) for x, y in zip(c.logprobs, w, strict=True)]
    return float(np.mean([abs(x - y) for x, y in pairs]))


def test_greedy_tokens_are_those_of_the_trained_model(engine, own, prompts):
    found = engine.generate(prompts, GREEDY)
    wanted = HFEngine(own.model, own.processor).generate(prompts, GREEDY)
    assert [c.ids for c in found] == [c.ids for c in wanted]
    assert [c.finish for c in found] == [c.finish for c in wanted]
    assert len({tuple(c.ids) for c in found}) == len(prompts), "what is written depends on the prompt"


def test_the_prompt_ids_are_those_that_were_given(engine, prompts):
    for prompt, completion in zip(prompts, engine.generate(prompts, GREEDY), strict=True):
        assert list(completion.prompt_ids) == list(prompt.ids)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_logprobs_are_those_of_the_distribution_that_is_trained(engine, own, prompts, temperature):
    group = [p for p in prompts for _ in range(2)]
    found = engine.generate(group, Sampling(temperature, 20))
    assert mean_difference(found, scores(own.model, own.processor, found, group, temperature or 1.0)) < 1e-3


def test_a_later_turn_with_one_more_image_scores_the_same(engine, own, prompts, picture):
    processor = own.processor
    grown = []
    for prompt, reply in zip(prompts, engine.generate(prompts, Sampling(1.0, 8)), strict=True):
        crop = processor.image(picture(70, 90))
        seen = processor.observation(f"out {IMAGE_PLACEHOLDER}", [crop], after=reply.ids)
        grown.append(Prompt([*prompt.ids, *reply.ids, *seen], [*prompt.images, crop]))
    found = engine.generate(grown, Sampling(0.7, 12))
    assert [list(c.prompt_ids) for c in found] == [list(p.ids) for p in grown]
    assert mean_difference(found, scores(own.model, processor, found, grown, 0.7)) < 1e-3


def test_a_prompt_that_stands_several_times_is_sampled_each_time(engine, prompts):
    found = engine.generate([prompts[3]] * 6, Sampling(1.0, 12))
    assert len({tuple(c.ids) for c in found}) > 1


def test_seeds_reproduce(engine, prompts):
    def sample(seed: int) -> list[list[int]]:
        engine.seed(seed)
        return [c.ids for _ in range(2) for c in engine.generate(prompts * 2, Sampling(1.0, 10))]

    wanted = sample(3)
    torch.rand(7)
    assert sample(3) == wanted
    assert sample(4) != wanted
    assert wanted[:10] != wanted[10:], "each call goes on where the last one ended"


def test_one_seed_of_the_engine_reproduces_a_batch(engine, prompts, monkeypatch):
    """In the same order, and with nothing else to sample, vLLM repeats itself without seeds of the requests, too."""
    if isinstance(engine, VllmEngine):
        monkeypatch.setattr(engine, "_exact", False)

    def sample(seed: int) -> list[list[int]]:
        engine.seed(seed)
        return [c.ids for c in engine.generate(prompts * 2, Sampling(1.0, 10))]

    wanted = sample(3)
    assert sample(3) == wanted != sample(4)


def test_a_stop_string_ends_a_completion_and_stays_in_it(engine, own, prompts):
    free = engine.generate(prompts, GREEDY)
    stop = own.processor.decode(free[0].ids[4:6])
    assert stop.strip()
    found = engine.generate(prompts, Sampling(0.0, GREEDY.max_tokens, ("never said", stop)))
    for before, completion in zip(free, found, strict=True):
        assert completion.ids == before.ids[: len(completion.ids)]
        if stop in own.processor.decode(before.ids):
            assert completion.finish == "stop"
            assert stop in own.processor.decode(completion.ids) and stop not in own.processor.decode(
                completion.ids[:-1]
            )
        else:
            assert completion.ids == before.ids
    assert len(found[0].ids) == 6 and len(found[0].logprobs) == 6


@pytest.mark.parametrize("count", [1, 5])
def test_a_cut_completion_says_so(engine, own, prompts, count):
    ends = {own.processor.eos_id, own.processor.pad_id}
    for completion in engine.generate(prompts, Sampling(1.0, count)):
        assert len(completion.ids) == len(completion.logprobs) <= count
        assert completion.finish == ("stop" if completion.ids[-1] in ends else "length")


def test_sync_takes_over_weights_and_forgets_what_was_computed_with_others(engine, own, prompts):
    before = engine.generate(prompts, GREEDY)
    changed = other_weights(own.model)
    engine = with_weights(engine, changed, own.processor)
    try:
        found = engine.generate(prompts, GREEDY)
        wanted = HFEngine(changed, own.processor).generate(prompts, GREEDY)
        assert [c.ids for c in found] == [c.ids for c in wanted] != [c.ids for c in before]
        assert mean_difference(found, scores(changed, own.processor, found, prompts, 1.0)) < 1e-3
    finally:
        engine = with_weights(engine, own.model, own.processor)
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == [c.ids for c in before]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_banned_ids_are_never_sampled(engine, own, prompts, temperature):
    """Not even where the model wants nothing else: the head's rows for them are those of what it writes, enlarged."""
    banned = own.processor.banned_ids
    eager = copy.deepcopy(own.model)
    greedy = engine.generate(prompts, GREEDY)
    with torch.no_grad():
        rows = eager.lm_head.weight
        rows[banned] = 4 * rows[[c.ids[0] for c in greedy][: len(banned)]]
    engine = with_weights(engine, eager, own.processor)
    try:
        texts = [p for p in prompts if not p.images]
        found = engine.generate(texts * 4, Sampling(temperature, 8))
        assert not set(banned) & {i for c in found for i in c.ids}
        assert mean_difference(found, scores(eager, own.processor, found, texts * 4, 1.0)) < 1e-3
    finally:
        with_weights(engine, own.model, own.processor)


def ask_one_by_one(
    engine: Engine, processor: Any, prompts: Sequence[Prompt], sampling: Sampling, order: Sequence[int]
) -> list[Any]:
    """Ask for completions as episodes do, each of two turns, in some order."""

    async def play() -> list[Any]:
        requests, found = open_requests(engine), {}

        async def player(number: int) -> None:
            with requests.player():
                first = await requests.complete(prompts[number], sampling, (0, number, 0))
                ids = [*prompts[number].ids, *first.ids, *processor.encode("and?")]
                grown = Prompt(ids, prompts[number].images)
                found[number] = first, await requests.complete(grown, sampling, (0, number, 1))

        await asyncio.gather(*[player(number) for number in order])
        await requests.close()
        return [found[number] for number in range(len(prompts))]

    return asyncio.run(play())


def test_requests_come_and_go_and_samples_do_not_depend_on_their_order(engine, own, prompts):
    """Greedy tokens are those of a batch; sampled ones follow from the seed and from whose turn it is."""
    found = ask_one_by_one(engine, own.processor, prompts, GREEDY, range(len(prompts)))
    wanted = HFEngine(own.model, own.processor).generate(prompts, GREEDY)
    assert [first.ids for first, _ in found] == [c.ids for c in wanted]
    for prompt, (first, second) in zip(prompts, found, strict=True):
        assert list(second.prompt_ids) == [*prompt.ids, *first.ids, *own.processor.encode("and?")]

    def sample(seed: int, order: Sequence[int]) -> list[list[int]]:
        engine.seed(seed)
        return [
            c.ids for pair in ask_one_by_one(engine, own.processor, prompts, Sampling(1.0, 10), order) for c in pair
        ]

    forth, back = range(len(prompts)), range(len(prompts) - 1, -1, -1)
    wanted_ids = sample(3, forth)
    assert sample(3, back) == wanted_ids != sample(4, forth)


def test_images_are_processed_once_and_not_by_the_thread_that_steps(engine, prompts, monkeypatch):
    if not isinstance(engine, VllmEngine):
        return  # `hf` does not process images, and a server does so elsewhere
    processor = engine._llm.llm_engine.renderer.mm_processor
    apply, call, applied, called = processor.apply, processor._call_hf_processor, [], []

    def note_apply(*arguments: Any) -> Any:
        applied.append(threading.get_ident())
        return apply(*arguments)

    def note_call(*arguments: Any, **options: Any) -> Any:
        called.append(threading.get_ident())
        return call(*arguments, **options)

    monkeypatch.setattr(processor, "apply", note_apply)
    monkeypatch.setattr(processor, "_call_hf_processor", note_call)
    ask_one_by_one(engine, engine.processor, prompts, GREEDY, range(len(prompts)))
    assert len(applied) == 2 * sum(bool(prompt.images) for prompt in prompts)
    assert threading.get_ident() not in {*applied, *called}
    before = len(called)
    ask_one_by_one(engine, engine.processor, prompts, GREEDY, range(len(prompts)))
    assert len(called) == before, "the second time they come from the cache"


def test_a_completion_that_is_given_up_leaves_the_engine_as_it_was(engine, prompts):
    async def give_up() -> None:
        requests = open_requests(engine)

        async def ask() -> None:
            with requests.player():
                await requests.complete(prompts[1], Sampling(1.0, 64), (0, 0, 0))

        with requests.player():  # who asks for nothing, so that no round begins
            asked = asyncio.create_task(ask())
            await asyncio.sleep(0.05)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        await requests.close()

    before = engine.generate(prompts, GREEDY)
    asyncio.run(give_up())
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == [c.ids for c in before]


def test_groups_that_are_given_up_leave_the_engine_as_it_was(engine, own, env_options, prompts):
    """One group is wanted, and six are begun."""
    before, found = engine.generate(prompts, GREEDY), Selection(range(6), 1, 6)
    with RolloutRunner(lambda: make_env(env_options, "train"), own.processor, max_length=2048) as runner:
        runner.select(engine, found, 2, Sampling(1.0, 8))
    assert [rollout.trajectory.index for rollout in found.rollouts] == [0, 0]
    assert [c.ids for c in engine.generate(prompts, GREEDY)] == [c.ids for c in before]


def test_an_engine_can_be_asked_for_nothing(engine):
    assert engine.generate([], GREEDY) == []


def test_a_saved_policy_is_what_a_server_starts_with(own, tmp_path: Path):
    """Its weights have the names under which they are pushed."""
    own.save(tmp_path)
    names = set(micro_run.weights(tmp_path))
    assert names == {name for name, _ in own.model.named_parameters()}
