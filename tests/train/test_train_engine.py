"""The `hf` engine against `transformers` itself, and against the forward pass that is trained."""

from __future__ import annotations

import pytest
import torch

from codev_agents.engines.batch import collate
from codev_agents.engines.hf import HFEngine
from codev_agents.rollout.engine import Completion, Prompt, Sampling
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.learn.scorer import TokenScorer

GREEDY = Sampling(temperature=0.0, max_tokens=16)


@pytest.fixture
def engine(policy) -> HFEngine:
    return HFEngine(policy.model, policy.processor, seed=1)


@pytest.fixture
def prompts(policy, picture) -> list[Prompt]:
    """Prompts of different lengths with no, one and two images."""
    processor = policy.processor
    one, two = processor.image(picture(100, 100)), processor.image(picture(300, 60))
    texts = [
        ("hello", []),
        (f"{IMAGE_PLACEHOLDER}\nDescribe the image.", [one]),
        ("a long text without any image: " + "4, 8, 15, " * 8, []),
        (f"first {IMAGE_PLACEHOLDER} 45 {IMAGE_PLACEHOLDER}77", [one, two]),
        (f"{IMAGE_PLACEHOLDER}what?", [two]),
    ]
    return [Prompt(processor.prompt("sys", text, images), images) for text, images in texts]


def copies(prompt: Prompt, count: int) -> list[Prompt]:
    """Equal prompts that are not the same object."""
    return [Prompt(list(prompt.ids), list(prompt.images)) for _ in range(count)]


def scores(policy, completions: list[Completion], prompts: list[Prompt], temperature: float) -> list[list[float]]:
    """Log-probabilities of the completions by the forward pass that is trained."""
    processor = policy.processor
    ids = [[*p.ids, *c.ids] for p, c in zip(prompts, completions, strict=True)]
    batch = collate(ids, [p.images for p in prompts], processor.pad_id, processor.image_id)
    chosen = torch.zeros(batch["input_ids"].shape, dtype=torch.bool)
    for row, (prompt, sequence) in enumerate(zip(prompts, ids, strict=True)):
        chosen[row, len(prompt.ids) : len(sequence)] = True
    with torch.no_grad():
        logprobs, _ = TokenScorer(policy.model.eval())(batch, chosen, temperature, tuple(processor.banned_ids))
    return [part.tolist() for part in logprobs.split([len(c.ids) for c in completions])]


@pytest.mark.parametrize("max_batch", [1, 2, 8])
def test_greedy_tokens_are_those_of_transformers(policy, prompts, max_batch):
    processor = policy.processor
    found = HFEngine(policy.model, processor, max_batch).generate(prompts, GREEDY)
    for prompt, completion in zip(prompts, found, strict=True):
        inputs = collate([prompt.ids], [prompt.images], processor.pad_id, processor.image_id)
        wanted = policy.model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=GREEDY.max_tokens,
            suppress_tokens=processor.banned_ids,
            eos_token_id=[processor.eos_id, processor.pad_id],
            pad_token_id=processor.pad_id,
        )
        assert completion.ids == wanted[0, len(prompt.ids) :].tolist()
        assert completion.prompt_ids == prompt.ids
    assert len({tuple(c.ids) for c in found}) == len(prompts)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_logprobs_are_those_of_the_trained_forward_pass(policy, engine, prompts, temperature):
    group = [p for p in prompts for _ in range(2)]
    found = engine.generate(group, Sampling(temperature, 20))
    assert len({len(c.ids) for c in found}) >= 1 and all(len(c.ids) == len(c.logprobs) for c in found)
    for completion, wanted in zip(found, scores(policy, found, group, temperature or 1.0), strict=True):
        assert completion.logprobs == pytest.approx(wanted, abs=1e-4)


def test_a_second_turn_scores_the_same(policy, engine, prompts, picture):
    processor = policy.processor
    grown = []
    for prompt, reply in zip(prompts, engine.generate(prompts, Sampling(1.0, 8)), strict=True):
        crop = processor.image(picture(70, 90))
        seen = processor.observation(f"out {IMAGE_PLACEHOLDER}", [crop], after=reply.ids)
        grown.append(Prompt([*prompt.ids, *reply.ids, *seen], [*prompt.images, crop]))
    found = engine.generate(grown, Sampling(0.7, 12))
    for completion, wanted in zip(found, scores(policy, found, grown, 0.7), strict=True):
        assert completion.logprobs == pytest.approx(wanted, abs=1e-4)


def test_a_group_shares_its_prefill_without_a_difference(policy, engine, prompts):
    shared = [p for p in prompts for _ in range(3)]
    apart = [c for p in prompts for c in copies(p, 3)]
    engine.seed(5)
    a = engine.generate(shared, Sampling(1.0, 12))
    engine.seed(5)
    b = engine.generate(apart, Sampling(1.0, 12))
    assert [c.ids for c in a] == [c.ids for c in b]
    for x, y in zip(a, b, strict=True):
        assert x.logprobs == pytest.approx(y.logprobs, abs=1e-4)
    assert len({tuple(c.ids) for c in a}) > len(prompts), "copies of a prompt are sampled each for itself"


def test_a_group_is_prefilled_once(policy, engine, prompts, monkeypatch):
    rows: list[int] = []
    forward = policy.model.forward

    def count(*args, **inputs):
        rows.append(len(inputs["input_ids"]))
        return forward(*args, **inputs)

    monkeypatch.setattr(policy.model, "forward", count)
    engine.generate([prompts[1]] * 6, Sampling(1.0, 3))
    assert rows[0] == 1 and rows[1] == 6


def test_the_seed_alone_decides_the_samples(policy, engine, prompts):
    def sample(seed: int) -> list[list[int]]:
        engine.seed(seed)
        return [c.ids for c in engine.generate(prompts * 2, Sampling(1.0, 10))]

    wanted = sample(3)
    torch.manual_seed(99)
    torch.rand(7)
    assert sample(3) == wanted
    assert sample(4) != wanted
    assert [
        c.ids for c in HFEngine(policy.model, policy.processor, seed=3).generate(prompts * 2, Sampling(1.0, 10))
    ] == (wanted)


def test_samples_do_not_depend_on_where_prompts_lie_in_memory(policy, engine):
    """Prompts of one length keep the order of the call."""
    processor = policy.processor
    texts = [processor.prompt("", text, []) for text in ("aaaa 1", "bbbb 2")]
    assert len(texts[0]) == len(texts[1])

    def sample(first: Prompt, second: Prompt) -> list[list[int]]:
        engine.seed(11)
        return [c.ids for c in engine.generate([first, second], Sampling(1.0, 6))]

    pool = [Prompt(list(text)) for _ in range(20) for text in texts]
    pairs = [(a, b) for a in pool if a.ids == texts[0] for b in pool if b.ids == texts[1]]
    up = next(pair for pair in pairs if id(pair[0]) < id(pair[1]))
    down = next(pair for pair in pairs if id(pair[0]) > id(pair[1]))
    assert sample(*up) == sample(*down)


def test_a_stop_string_ends_a_completion_and_stays_in_it(policy, engine, prompts):
    free = engine.generate(prompts, GREEDY)
    texts = [policy.processor.decode(c.ids) for c in free]
    # Stop at what the first completion says after five tokens, wherever it stands in the others.
    stop = policy.processor.decode(free[0].ids[4:6])
    assert stop.strip()
    found = engine.generate(prompts, Sampling(0.0, GREEDY.max_tokens, ("never said", stop)))
    for before, text, completion in zip(free, texts, found, strict=True):
        assert completion.ids == before.ids[: len(completion.ids)]
        if stop in text:
            assert completion.finish == "stop" and len(completion.ids) <= len(before.ids)
            said = policy.processor.decode(completion.ids)
            assert stop in said and stop not in policy.processor.decode(completion.ids[:-1])
        else:
            assert completion.ids == before.ids
    assert len(found[0].ids) == 6


def test_the_end_of_turn_stops(policy, prompts):
    """A token becomes the end of turn by name: generation stops right after it, and only for the row that wrote it."""
    engine = HFEngine(policy.model, policy.processor)
    free = engine.generate(prompts, GREEDY)
    end = free[3].ids[5]
    engine._stop_ids = {end}
    for before, completion in zip(free, engine.generate(prompts, GREEDY), strict=True):
        length = before.ids.index(end) + 1 if end in before.ids else len(before.ids)
        assert completion.ids == before.ids[:length]
        assert completion.finish == ("stop" if end in before.ids else "length")


@pytest.mark.parametrize("count", [1, 5])
def test_max_tokens(engine, prompts, count):
    for completion in engine.generate(prompts, Sampling(1.0, count)):
        assert len(completion.ids) <= count
        assert completion.finish == "length" or completion.ids[-1] in engine._stop_ids


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_banned_ids_are_never_sampled(policy, prompts, temperature):
    """Not even where the model wants nothing else."""
    banned = set(policy.processor.banned_ids)
    assert policy.processor.image_id in banned

    def wants_images(module, inputs, output):
        output.logits[..., list(banned)] += 50.0
        return output

    hook = policy.model.register_forward_hook(wants_images)
    try:
        found = HFEngine(policy.model, policy.processor).generate(prompts * 4, Sampling(temperature, 8))
    finally:
        hook.remove()
    assert not banned & {i for c in found for i in c.ids}
    assert all(lp > -30 for c in found for lp in c.logprobs)


def test_the_model_is_left_as_it_was(policy, engine, prompts):
    policy.model.train()
    engine.generate(prompts[:1], Sampling(1.0, 2))
    assert policy.model.training
    policy.model.eval()
    engine.generate(prompts[:1], Sampling(1.0, 2))
    assert not policy.model.training


def test_low_temperature_is_nearly_greedy(engine, prompts):
    greedy = engine.generate(prompts, GREEDY)
    cold = engine.generate(prompts, Sampling(1e-3, GREEDY.max_tokens))
    assert [c.ids for c in cold] == [c.ids for c in greedy]
    assert sum(lp for c in cold for lp in c.logprobs) > sum(lp for c in greedy for lp in c.logprobs)
