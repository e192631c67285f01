"""The families in vLLM; run by the Python that has it, as `test_train_engine_vllm.py` does."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from test_train_families import pictures, score
from toy_families import TEXTS, toy_policy

from codev_agents.engines.options import ToyModelOptions, VllmOptions
from codev_agents.engines.pixels import to_image
from codev_agents.engines.policy import Policy
from codev_agents.engines.toy import build_image_processor, build_model, build_tokenizer
from codev_agents.engines.vllm import VllmEngine
from codev_agents.rollout.engine import Prompt, Sampling
from codev_agents.rollout.tokens import ChatProcessor, TokenSequence
from codev_env.types import IMAGE_PLACEHOLDER

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed in this environment"),
]


def sample(engine: VllmEngine, policy: Policy) -> list[TokenSequence]:
    """Sample two turns of three trajectories, each turn after one to three images."""
    processor = policy.processor
    sequences = [TokenSequence() for _ in range(3)]
    for turn in range(2):
        for number, sequence in enumerate(sequences):
            images = pictures(processor, *[(40, 20), (16, 24), (48, 48)][: number + 1])
            text = "What is there?" + IMAGE_PLACEHOLDER * len(images)
            ids = processor.observation(text, images, sequence.ids) if turn else processor.prompt("Look", text, images)
            sequence.add_observation(ids, images)
        prompts = [Prompt(tuple(s.ids), tuple(s.images)) for s in sequences]
        for sequence, done in zip(sequences, engine.generate(prompts, Sampling(0.9, 6, ())), strict=True):
            assert list(done.prompt_ids) == sequence.ids
            sequence.add_action(done.ids, done.logprobs, turn)
    return sequences


@pytest.fixture
def engine_of_small_images() -> tuple[Policy, VllmEngine]:
    """A policy that sees 16 to 25 tokens of an image, and its engine."""
    policy = toy_policy("qwen2_5_vl", width=128)
    images = policy.processor.image_processor
    tokens = (images.patch_size * images.merge_size) ** 2
    images.size = {"shortest_edge": 16 * tokens, "longest_edge": 25 * tokens}
    return policy, VllmEngine(policy.model, policy.processor, VllmOptions(dtype="float32"), 4, 1024, 0)


# vLLM's linear attention on CPUs takes bf16 only; a wrong state or position changes these wide weights by 0.3 and more.
@pytest.mark.parametrize(
    ("family", "dtype", "tolerance"), [("qwen2_5_vl", "float32", 1e-5), ("qwen3_5", "bfloat16", 0.08)]
)
def test_vllm_samples_with_the_probabilities_of_the_trainer(family, dtype, tolerance):
    policy = toy_policy(family, width=128)  # heads of 32 channels: vLLM has no kernel for smaller ones
    engine = VllmEngine(policy.model, policy.processor, VllmOptions(dtype=dtype), 4, 1024, 0)
    for _ in range(2):
        sequences = sample(engine, policy)
        sampled = [p for s in sequences for p, turn in zip(s.logprobs, s.turns, strict=True) if turn >= 0]
        difference = (score(policy, sequences, packed=True)[0] - torch.tensor(sampled)).abs()
        assert difference.mean() < tolerance
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
        engine.sync(policy.model)


def test_weights_may_be_replaced_under_another_number_of_threads():
    """Where packed weights depend on the threads (CPUs without AVX-512), what was packed for two is not read as one's.

    Once oneDNN has multiplied matrices of some size, it reads the next weights of these sizes as the first ones.
    """
    options = ToyModelOptions()  # its vision tower has a layer of a size at which layouts differ
    tokenizer = build_tokenizer(TEXTS, [], [])
    model, images = build_model(options, tokenizer, seed=0).eval(), build_image_processor(options)
    policy = Policy(model, ChatProcessor(tokenizer, images))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        engine = VllmEngine(policy.model, policy.processor, VllmOptions(dtype="float32"), 4, 1024, 0)
        for threads in (2, 1):
            torch.set_num_threads(threads)
            engine.sync(policy.model)
            assert torch.get_num_threads() == threads
            sequences = sample(engine, policy)
            sampled = [p for s in sequences for p, turn in zip(s.logprobs, s.turns, strict=True) if turn >= 0]
            assert (score(policy, sequences, packed=True)[0] - torch.tensor(sampled)).abs().mean() < 1e-5
    finally:
        torch.set_num_threads(before)


def test_vllm_does_not_resize_images_again(engine_of_small_images):
    """Within narrow limits, what an image processor has resized once may be resized again by a second one."""
    policy, engine = engine_of_small_images
    processor = policy.processor
    images = pictures(processor, (300, 8), (8, 300))
    for image in images:
        assert processor.image(np.asarray(to_image(image, processor.image_processor))).grid != image.grid
    sequence = TokenSequence()
    sequence.add_observation(processor.prompt("", IMAGE_PLACEHOLDER * 2, images), images)
    (done,) = engine.generate([Prompt(tuple(sequence.ids), tuple(images))], Sampling(0.9, 6, ()))
    assert list(done.prompt_ids) == sequence.ids
    sequence.add_action(done.ids, done.logprobs, 0)
    assert (score(policy, [sequence], packed=True)[0] - torch.tensor(done.logprobs)).abs().mean() < 1e-5
