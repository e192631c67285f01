"""The engines at the real vocabulary: stop strings inside tokens, borders of turns, six images, weights pushed.

`hf`, or `vllm` by a Python that has vLLM: `test_vllm.py` runs this file with it.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch
from models import IDS, NARROW, make_policy, photograph, recite

from codev_agents.engines import make_engine
from codev_agents.engines.batch import collate
from codev_agents.rollout.engine import Prompt, Sampling
from codev_agents.rollout.tokens import TokenSequence
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.learn.scorer import TokenScorer

pytestmark = pytest.mark.integration
ENGINE = "vllm" if importlib.util.find_spec("vllm") else "hf"


@pytest.fixture(scope="module")
def policy():
    return make_policy(NARROW)


@pytest.fixture(scope="module")
def engine(policy):
    return make_engine(ENGINE, policy.model, policy.processor, max_batch=8, seed=0, max_length=16384)


@pytest.mark.parametrize(
    ("text", "stop", "written"),
    [
        ("A crop.</code>\nThen more", "</code>", "A crop.</code>\n"),  # the token is ">" with a line break
        ("A crop.</answer>y or no", "</answer>", "A crop.</answer>y"),  # … or with a letter
        ("Grüße 图像👧</code> end", "</code>", "Grüße 图像👧</code>"),
        ("Nothing stops this one", "</code>", "Nothing stops this one"),
    ],
)
def test_a_stop_string_that_ends_inside_a_token_ends_the_completion_after_it(policy, engine, text, stop, written):
    ids = recite(policy, text)
    engine.sync(policy.model)
    prompt = Prompt(policy.processor.prompt("Be brief.", "Which colour?", []))
    (found,) = engine.generate([prompt], Sampling(0.0, 64, (stop,)))
    assert found.finish == "stop"
    assert found.ids == [*ids, policy.processor.eos_id][: len(found.ids)], "other ids than the model writes"
    assert policy.processor.decode(found.ids).startswith(written)
    cut = policy.processor.decode(found.ids[:-1])
    assert stop not in cut, f"the completion went on after {stop}: {policy.processor.decode(found.ids)!r}"


@pytest.mark.parametrize(("role", "rest"), [("assistant", "\n<sandbox_output>"), ("user", "\n<sandbox_output>")])
def test_the_border_of_two_turns_reaches_the_engine_as_it_was_sampled(policy, engine, role, rest):
    """Written as text, the environment's first line break would become one token with what is before it."""
    recite(policy, "A crop.</code>")
    engine.sync(policy.model)
    processor, sequence = policy.processor, TokenSequence()
    sequence.add_observation(processor.prompt("Be brief.", "Which colour?", []))
    (found,) = engine.generate([Prompt(sequence.ids)], Sampling(0.0, 64, ("</code>",)))
    sequence.add_action(found.ids, found.logprobs, 0)
    image = processor.image(photograph(280, 140))
    text = f"{rest} {IMAGE_PLACEHOLDER}\n</sandbox_output>"
    sequence.add_observation(processor.observation(text, [image], sequence.ids, role), [image])
    again = processor.tokenizer(processor.tokenizer.decode(sequence.ids))["input_ids"]
    assert again != sequence.ids, "no border merges: this case checks nothing"
    (found,) = engine.generate([Prompt(sequence.ids, sequence.images)], Sampling(0.0, 2))
    assert list(found.prompt_ids) == sequence.ids


def test_weights_that_were_pushed_are_sampled_from(policy, engine):
    prompt = Prompt(policy.processor.prompt("Be brief.", "Which colour?", []))
    for text in ("The bird is red", "Zwei graue Katzen"):
        recite(policy, text)
        engine.sync(policy.model)
        (found,) = engine.generate([prompt], Sampling(0.0, 32))
        assert policy.processor.decode(found.ids) == text


def test_tokens_in_are_tokens_out_with_six_images(policy, engine):
    """The ids of six images of 1600x900 pixels (10 944 image tokens) and of the reply are those trained on, and
    the trainer computes the engine's log-probabilities for them."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.06)
    engine.sync(policy.model)
    processor = policy.processor
    images = [processor.image(photograph(1600, 900, number)) for number in range(6)]
    text = " and ".join(f"image {n}: {IMAGE_PLACEHOLDER}" for n in range(6))
    ids = processor.prompt("Be brief.", text, images)
    assert ids.count(IDS.image_id) == 6 * 1824
    (found,) = engine.generate([Prompt(ids, images)], Sampling(1.0, 8))
    assert list(found.prompt_ids) == ids, "the engine read other prompt ids"
    assert len(found.ids) == len(found.logprobs) and not set(found.ids) & set(processor.banned_ids)
    sequence = [*ids, *found.ids]
    batch = collate([sequence], [images], processor.pad_id, processor.image_id)
    chosen = torch.zeros(1, len(sequence), dtype=torch.bool)
    chosen[0, len(ids) :] = True
    with torch.no_grad():
        logprobs, _ = TokenScorer(policy.model)(batch, chosen, 1.0, tuple(processor.banned_ids), packed=True)
    assert logprobs.tolist() == pytest.approx(found.logprobs, abs=2e-3)
