"""Two layers of published models at their real widths and vocabulary, in bf16: forward and backward, packed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import IDS, photograph
from real_vocabulary import real_tokenizer
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.initialization import no_init_weights

from codev_agents.engines.batch import collate
from codev_agents.engines.policy import Policy
from codev_agents.engines.vision import speed_up
from codev_agents.rollout.families import family_of
from codev_agents.rollout.tokens import ChatProcessor
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.learn.scorer import TokenScorer
from codev_train.run.sizes import KNOWN_MODELS, ModelSize

pytestmark = pytest.mark.integration
LAYERS = 2


def config_of(size: ModelSize) -> Any:
    """Return the configuration of a published model, cut to two layers of each kind."""
    third = size.name.startswith("Qwen3")
    rope = {"rope_type": "default", "rope_theta": 5e6 if third else 1e6}
    rope |= {"mrope_section": [24, 20, 20], "mrope_interleaved": True} if third else {"mrope_section": [16, 24, 24]}
    text = {
        "vocab_size": size.vocab,
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_parameters": rope,
        "tie_word_embeddings": size.tied,
        "bos_token_id": None,
    } | ({"head_dim": size.head_dim} if third else {})
    vision = {
        "depth": LAYERS,
        "hidden_size": size.vision_hidden,
        "intermediate_size": size.vision_intermediate,
        "num_heads": 16,
        "out_hidden_size": size.hidden,
    }
    vision |= {"deepstack_visual_indexes": [0]} if third else {"fullatt_block_indexes": [LAYERS - 1]}
    return (Qwen3VLConfig if third else Qwen2_5_VLConfig)(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=size.tied,
        image_token_id=IDS.image_id,
        vision_start_token_id=IDS.vision_start_id,
        vision_end_token_id=IDS.vision_end_id,
    )


def make_policy(size: ModelSize) -> Policy:
    """Make the policy, with random weights drawn once and repeated: billions of draws would take minutes."""
    config = config_of(size)
    third = isinstance(config, Qwen3VLConfig)
    with no_init_weights():
        kind = Qwen3VLForConditionalGeneration if third else Qwen2_5_VLForConditionalGeneration
        model = kind._from_config(config, dtype=torch.bfloat16)
    drawn = torch.randn(1_000_003, generator=torch.Generator().manual_seed(0)).mul_(0.02).to(torch.bfloat16)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(float(name.endswith("weight")))  # normalisations, and biases
                continue
            flat = parameter.view(-1)
            for start in range(0, len(flat), len(drawn)):
                part = flat[start : start + len(drawn)]
                part.copy_(drawn[: len(part)])
    speed_up(model)
    patch = 16 if third else 14
    images = Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 12845056}, patch_size=patch)
    return Policy(model.eval(), ChatProcessor(real_tokenizer(), images, family_of(config)))


@pytest.mark.parametrize(
    "name",
    [
        "Qwen2.5-VL-3B",
        pytest.param("Qwen2.5-VL-7B", marks=pytest.mark.soak),
        "Qwen3-VL-4B",
        pytest.param("Qwen3-VL-8B", marks=pytest.mark.soak),
    ],
)
def test_real_widths_are_scored_and_trained_in_bf16(name):
    """A packed row of two trajectories has the log-probabilities that the model's logits give each of them, and all
    weights, those of the vision tower too, get a finite gradient."""
    policy = make_policy(KNOWN_MODELS[name])
    model, processor = policy.model, policy.processor
    images = [[processor.image(photograph(280, 168))], []]
    texts = [f"{IMAGE_PLACEHOLDER} Which colour is the bird?", "How many are there?"]
    ids = [processor.prompt("Be brief.", text, found) for text, found in zip(texts, images, strict=True)]
    starts = [len(row) for row in ids]
    ids = [[*row, *processor.encode("<think>\nThe crop shows it.</think><answer>red</answer>")] for row in ids]

    def batch_of(rows: list[int]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        given = [ids[row] for row in rows], [images[row] for row in rows]
        batch = collate(*given, processor.pad_id, processor.image_id)
        chosen = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
        for number, row in enumerate(rows):
            chosen[number, starts[row] : len(ids[row])] = True
        return batch, chosen

    wanted = []
    with torch.no_grad():
        for row in range(2):
            batch, chosen = batch_of([row])
            logits = model(**batch, use_cache=False).logits[0].float()
            logits[:, processor.banned_ids] = -torch.inf
            scores = logits.log_softmax(-1)[chosen.roll(-1, dims=1)[0]]
            wanted.append(scores.gather(1, batch["input_ids"][chosen][:, None])[:, 0])
    logprobs, entropy = TokenScorer(model)(*batch_of([0, 1]), 1.0, tuple(processor.banned_ids), packed=True)
    spread = torch.cat(wanted).std()
    assert spread > 0.1, "every token is as likely: this model checks nothing"
    assert (logprobs - torch.cat(wanted)).abs().mean() < 0.1 * spread
    assert entropy.isfinite().all()
    logprobs.mean().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.dtype == torch.bfloat16
        assert parameter.grad is not None and parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), f"{parameter_name} has no gradient"
