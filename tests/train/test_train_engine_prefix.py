"""Caches that outlive a turn: the `hf` engine runs only what is new, and writes what it would write without them."""

from __future__ import annotations

import copy

import pytest
import torch

from codev_agents.engines.hf import HFEngine
from codev_agents.rollout.engine import Completion, Prompt, Sampling
from codev_env.types import IMAGE_PLACEHOLDER

GREEDY = Sampling(temperature=0.0, max_tokens=12)
SAMPLED = Sampling(temperature=1.0, max_tokens=12)


@pytest.fixture
def first(policy, picture) -> list[Prompt]:
    """Two rollouts that share a prompt, one of another length, and one without an image."""
    processor = policy.processor
    one, two = processor.image(picture(100, 100)), processor.image(picture(300, 60))
    shared = Prompt(processor.prompt("sys", f"{IMAGE_PLACEHOLDER}what?", [one]), [one])
    other = Prompt(processor.prompt("sys", f"a longer question about {IMAGE_PLACEHOLDER}", [two]), [two])
    return [shared, shared, other, Prompt(processor.prompt("sys", "hello", []))]


def go_on(policy, prompts: list[Prompt], completions: list[Completion], image) -> list[Prompt]:
    """What the environment answers: an image to every second, a word to the others; the last one has ended."""
    found = []
    for number, (prompt, completion) in enumerate(zip(prompts[:-1], completions[:-1], strict=True)):
        images = [image] if number % 2 == 0 else []
        text = f"{IMAGE_PLACEHOLDER} here" if images else "nothing"
        ids = [*prompt.ids, *completion.ids, *policy.processor.observation(text, images, completion.ids)]
        found.append(Prompt(ids, [*prompt.images, *images]))
    return found


def play(policy, engine: HFEngine, prompts: list[Prompt], image, sampling: Sampling, forget: bool) -> list[Completion]:
    """Play three turns; `forget` starts each of them without caches."""
    played = []
    for _ in range(3):
        completions = engine.generate(prompts, sampling)
        played += completions
        if forget:
            engine.sleep()
        prompts = go_on(policy, prompts, completions, image)
    return played


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
@pytest.mark.parametrize("max_batch", [2, 8])
def test_turns_are_those_without_caches(policy, first, picture, sampling, max_batch):
    image = policy.processor.image(picture(60, 90))
    kept, fresh = (
        play(policy, HFEngine(policy.model, policy.processor, max_batch, seed=3), first, image, sampling, forget)
        for forget in (False, True)
    )
    assert [c.ids for c in kept] == [c.ids for c in fresh]
    for one, other in zip(kept, fresh, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_only_what_is_new_is_run(policy, first, picture):
    engine, widths = HFEngine(policy.model, policy.processor), []
    image = policy.processor.image(picture(60, 90))
    second = go_on(policy, first, (before := engine.generate(first, GREEDY)), image)
    inner = policy.model.model.language_model
    handle = inner.register_forward_pre_hook(
        lambda m, a, k: widths.append(k["inputs_embeds"].shape[1]), with_kwargs=True
    )
    try:
        engine.generate(second, GREEDY)
    finally:
        handle.remove()
    # The last token of a completion was sampled and never run.
    new = [len(p.ids) - len(q.ids) - len(c.ids) + 1 for p, q, c in zip(second, first[:-1], before[:-1], strict=True)]
    assert widths[0] == max(new)
    assert set(widths[1:]) <= {1}


def test_other_pixels_are_not_mistaken(policy, first, picture):
    """The ids of two images of one size are equal."""
    engine = HFEngine(policy.model, policy.processor)
    before = engine.generate(first, GREEDY)[0]
    other = policy.processor.image(255 - picture(100, 100))
    ids = [*first[0].ids, *before.ids, *policy.processor.observation("nothing", [], before.ids)]
    prompt = Prompt(ids, [other])
    assert (
        engine.generate([prompt], GREEDY)[0] == HFEngine(policy.model, policy.processor).generate([prompt], GREEDY)[0]
    )


def test_new_weights_begin_without_caches(policy, first, picture):
    model = copy.deepcopy(policy.model)
    engine = HFEngine(model, policy.processor)
    second = go_on(policy, first, engine.generate(first, GREEDY), policy.processor.image(picture(60, 90)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.flip(tuple(range(parameter.ndim))))
    engine.sync(model)
    assert engine.generate(second, GREEDY) == HFEngine(model, policy.processor).generate(second, GREEDY)
