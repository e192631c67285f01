"""Each model family: tokens, packing, gradients, the `hf` engine, saved models; and everything else refused by name."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from toy_families import NAMES, toy_policy
from transformers import Gemma3Config, Qwen3Config, Qwen3VLMoeConfig

from codev_agents.engines import make_engine
from codev_agents.engines.batch import collate
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.options import LoraOptions
from codev_agents.engines.policy import Policy
from codev_agents.rollout.engine import Prompt, Sampling
from codev_agents.rollout.families import FAMILIES, family_of
from codev_agents.rollout.tokens import ChatProcessor, TokenSequence
from codev_env.errors import ConfigError
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.checks import PlannedRun, check_sft, look
from codev_train.learn.scorer import TokenScorer
from codev_train.run.config import Request
from codev_train.run.model_size import config_size, measure
from codev_train.run.options import SFTOptions, TrainOptions

TOLERANCE = 1e-5


@pytest.fixture(scope="module", params=NAMES)
def toy(request) -> Policy:
    """A policy of each family; do not change its weights."""
    return toy_policy(request.param)


def pictures(processor: ChatProcessor, *sizes: tuple[int, int]) -> list:
    rng = np.random.default_rng(0)
    return [processor.image(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def trajectories(processor: ChatProcessor) -> list[TokenSequence]:
    """Trajectories of one or two turns with two images, one, none, and four."""
    made = []
    plans = [([(40, 20), (16, 16)], [(24, 40)]), ([(8, 24)], []), ([], []), ([(30, 30)], [(16, 40), (20, 20), (40, 8)])]
    for number, (first, later) in enumerate(plans):
        sequence = TokenSequence()
        images = pictures(processor, *first)
        text = "What is there?" + IMAGE_PLACEHOLDER * len(images)
        sequence.add_observation(processor.prompt("You look at images.", text, images), images)
        reply = processor.encode("Look closely at" * (number + 1))
        sequence.add_action(reply, [0.0] * len(reply), 0)
        if later:
            images = pictures(processor, *later)
            ids = processor.observation("crop" + IMAGE_PLACEHOLDER * len(images), images, sequence.ids)
            sequence.add_observation(ids, images)
            sequence.add_action(reply[:3], [0.0] * 3, 1)
        made.append(sequence)
    return made


def score(policy: Policy, sequences: list[TokenSequence], packed: bool) -> list[torch.Tensor]:
    """Score the sampled tokens; returns log-probabilities, entropies, and the gradient, of norm 1."""
    processor = policy.processor
    batch = collate([s.ids for s in sequences], [s.images for s in sequences], processor.pad_id, processor.image_id)
    chosen = torch.zeros(batch["input_ids"].shape, dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        chosen[row, : len(sequence)] = torch.tensor(sequence.turns) >= 0
    policy.model.zero_grad()
    logprobs, entropies = TokenScorer(policy.model)(batch, chosen, 0.9, tuple(processor.banned_ids), packed)
    (logprobs * torch.linspace(-1, 1, len(logprobs))).sum().backward()
    gradient = torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])
    return [logprobs.detach(), entropies.detach(), gradient / gradient.norm()]


def test_images_become_runs_of_image_tokens(toy):
    processor = toy.processor
    images = pictures(processor, (40, 20), (16, 16), (12, 40))
    text = f"both{IMAGE_PLACEHOLDER}and{IMAGE_PLACEHOLDER}{IMAGE_PLACEHOLDER}?"
    ids = processor.prompt("You look", text, images)
    token = processor.family.image_token
    shown = {"internvl": "<img>{}</img>\n"}.get(processor.family.model_type, "<|vision_start|>{}<|vision_end|>")
    runs = [shown.format(token * image.tokens) for image in images]
    before, after = "<|im_start|>system\nYou look<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    assert processor.tokenizer.decode(ids) == f"{before}both{runs[0]}and{runs[1]}{runs[2]}?{after}"
    # The model counts the same: it refuses tokens that do not fit the pixels.
    batch = collate([ids], [images], processor.pad_id, processor.image_id)
    assert torch.isfinite(toy.model(**batch).logits).all()
    with pytest.raises(Exception, match="(?i)image features and image tokens"):
        toy.model(**collate([ids], [images[:2]], processor.pad_id, processor.image_id))


def test_every_image_changes_what_follows(toy):
    """The values of an image, not only its size, reach the tokens after it."""
    sequence = trajectories(toy.processor)[3]
    before = score(toy, [sequence], packed=False)[0]
    for place in range(len(sequence.images)):
        changed = copy.copy(sequence)
        changed.images = list(sequence.images)
        block = changed.images[place]
        changed.images[place] = type(block)(block.values.flip(0) * -0.5, block.grid, block.tokens)
        assert (score(toy, [changed], packed=False)[0] - before).abs().max() > 1e-4, place


@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_equals_padded_equals_alone(toy, checkpointing):
    policy = Policy(copy.deepcopy(toy.model), toy.processor)
    if checkpointing:
        policy.model.gradient_checkpointing_enable()
    policy.model.train()
    sequences = trajectories(toy.processor)
    padded, packed = (score(policy, sequences, packed) for packed in (False, True))
    for a, b in zip(packed, padded, strict=True):
        torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=TOLERANCE)
    assert (packed[2] - padded[2]).norm() < TOLERANCE
    alone = torch.cat([score(policy, [sequence], False)[0] for sequence in sequences])
    torch.testing.assert_close(packed[0], alone, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_frozen_tower_runs_once_and_checkpoints_change_no_gradient(toy, rank):
    found = []
    for checkpointing in (False, True):
        policy = Policy(copy.deepcopy(toy.model), toy.processor)
        torch.manual_seed(0)
        policy.restrict(vision=False, adapters=LoraOptions(rank=rank))
        if checkpointing:
            policy.checkpoint_gradients()
        policy.model.train()
        calls: list[str] = []
        for tower in policy.processor.family.vision:
            for name, module in policy.model.model.get_submodule(tower).named_modules():
                module.register_forward_pre_hook(lambda *_, name=name, calls=calls: calls.append(name))
        found.append((calls, score(policy, trajectories(toy.processor), packed=True)[2]))
    (plain, expected), (again, gradient) = found
    assert plain and again == plain, "a backward pass through the tower would run it again"
    assert expected.norm() > 0
    torch.testing.assert_close(gradient, expected, atol=TOLERANCE, rtol=TOLERANCE)


def test_every_weight_gets_a_gradient_from_a_packed_row(toy):
    policy = Policy(copy.deepcopy(toy.model), toy.processor)
    score(policy, trajectories(toy.processor), packed=True)
    without = {name for name, p in policy.model.named_parameters() if p.grad is None or not p.grad.any()}
    # Keys have no bias that matters; InternVL's class token is cut off after the last layer.
    assert not {name for name in without if not name.endswith((".bias", ".lambda_1", ".lambda_2"))}


def test_the_engine_samples_with_the_probabilities_of_the_trainer(toy):
    """Groups, unequal lengths (padding on the left), and a second turn with new images."""
    policy = Policy(copy.deepcopy(toy.model), toy.processor)
    processor = policy.processor
    engine = HFEngine(policy.model, processor, seed=3)
    sequences = []
    for sequence in [s for s in trajectories(processor) for _ in range(2)]:
        cut = sequence.turns.index(0)
        first = TokenSequence()
        first.add_observation(sequence.ids[:cut], sequence.images[: _images_before(sequence, cut, processor)])
        sequences.append(first)
    shared = [prompt for s in sequences[::2] for prompt in [Prompt(tuple(s.ids), tuple(s.images))] * 2]
    for turn in range(2):
        if turn:
            for sequence in sequences:
                images = pictures(processor, (24, 40), (16, 16))
                text = "Here is" + IMAGE_PLACEHOLDER * 2
                sequence.add_observation(processor.observation(text, images, sequence.ids), images)
            shared = [Prompt(tuple(s.ids), tuple(s.images)) for s in sequences]
        for sequence, done in zip(sequences, engine.generate(shared, Sampling(0.9, 6, ())), strict=True):
            sequence.add_action(done.ids, done.logprobs, turn)
    sampled = torch.tensor([p for s in sequences for p, turn in zip(s.logprobs, s.turns, strict=True) if turn >= 0])
    for packed in (False, True):
        torch.testing.assert_close(score(policy, sequences, packed)[0], sampled, atol=TOLERANCE, rtol=TOLERANCE)


def _images_before(sequence: TokenSequence, cut: int, processor: ChatProcessor) -> int:
    tokens, count = sequence.ids[:cut].count(processor.image_id), 0
    while tokens > 0:
        tokens -= sequence.images[count].tokens
        count += 1
    return count


def test_a_saved_policy_is_loaded_as_it_was(toy, tmp_path):
    toy.save(tmp_path)
    loaded = Policy.load(str(tmp_path))
    assert loaded.processor.family == toy.processor.family
    assert loaded.processor.banned_ids == toy.processor.banned_ids
    for a, b in zip(trajectories(loaded.processor), trajectories(toy.processor), strict=True):
        assert a.ids == b.ids
    wanted, found = (score(p, trajectories(p.processor), True)[0] for p in (toy, loaded))
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


def test_frozen_vision_leaves_only_the_language_model(toy):
    policy = Policy(copy.deepcopy(toy.model), toy.processor)
    policy.restrict(vision=False, adapters=LoraOptions())
    trained = {name for name, p in policy.model.named_parameters() if p.requires_grad}
    assert trained and all("language_model" in name or name.startswith("lm_head") for name in trained)


def test_adapters_are_on_every_large_matrix_of_the_layers(toy, tmp_path):
    pytest.importorskip("peft")
    policy = Policy(copy.deepcopy(toy.model), toy.processor)
    layers = policy.model.model.language_model.layers
    wanted = {n for n, m in layers.named_modules() if isinstance(m, torch.nn.Linear) and min(m.weight.shape) > 4}
    policy.restrict(vision=False, adapters=LoraOptions(rank=2))
    adapted = {name for name, m in layers.named_modules() if hasattr(m, "get_delta_weight")}
    assert adapted == wanted
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    policy.save(tmp_path)
    wanted_scores, found = (score(p, trajectories(p.processor), True)[0] for p in (policy, Policy.load(str(tmp_path))))
    torch.testing.assert_close(found, wanted_scores, atol=1e-4, rtol=0)


def test_fsdp_gathers_layer_by_layer(toy):
    """The model names the layers of both its parts, which FSDP2 gathers one at a time."""
    parts = set(TokenScorer(toy.model)._no_split_modules)
    tower = toy.model.model.get_submodule(toy.processor.family.vision[0])
    blocks = next(m for m in tower.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 2)
    layers = [*toy.model.model.language_model.layers, *blocks]
    assert {type(layer).__name__ for layer in layers} <= parts


def test_sizes_are_counted(toy):
    size = measure(toy.model, "toy")
    vision = {id(p) for m in toy.processor.family.vision for p in toy.model.model.get_submodule(m).parameters()}
    assert size.vision == sum(p.numel() for p in toy.model.parameters() if id(p) in vision)
    assert size.vision_layers == 2 and size.parameters == sum(p.numel() for p in toy.model.parameters())


def refused() -> list:
    return [
        pytest.param(Qwen3Config(), "'qwen3' is of no tested family", id="no images"),
        pytest.param(Gemma3Config(), "'gemma3' is of no tested family", id="another family"),
        pytest.param(Qwen3VLMoeConfig(), "'qwen3_vl_moe' is of no tested family", id="experts"),
    ]


@pytest.mark.parametrize(("config", "message"), refused())
def test_another_model_is_refused_before_anything_starts(config, message, tmp_path):
    config.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=message) as refusal:
        check_sft(SFTOptions(model=str(tmp_path)))
    for family in FAMILIES:
        assert f"{family.name} ({family.model_type})" in str(refusal.value)
    with pytest.raises(ConfigError, match=message):
        Policy.load(str(tmp_path))
    with pytest.raises(ConfigError, match=message):
        config_size(config, "x")


def test_a_model_that_transformers_does_not_know_is_refused_too(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "codev-of-tomorrow"}))
    with pytest.raises(ConfigError, match="codev-of-tomorrow"):
        check_sft(SFTOptions(model=str(tmp_path)))


def test_untested_parts_of_a_family_are_refused():
    config = toy_policy("internvl").model.config
    config.text_config.model_type = "gpt_oss"
    with pytest.raises(ConfigError, match="language models qwen2 or qwen3, not 'gpt_oss'"):
        family_of(config)
    config = toy_policy("qwen2_5_vl").model.config
    config.text_config.layer_types = ["full_attention", "sliding_attention"]
    with pytest.raises(ConfigError, match="layers of full_attention, not of sliding_attention"):
        family_of(config)


@pytest.mark.parametrize("method", ["awq", "fp8"])
def test_quantised_weights_are_refused_early_and_late(method, tmp_path):
    config = toy_policy("qwen3_vl").model.config
    config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text()) | {"quantization_config": {"quant_method": method}}
    (tmp_path / "config.json").write_text(json.dumps(saved))
    with pytest.raises(ConfigError, match=f"weights are quantised \\({method}\\)"):
        check_sft(SFTOptions(model=str(tmp_path)))
    with pytest.raises(ConfigError, match=f"weights are quantised \\({method}\\)"):
        Policy.load(str(tmp_path))


@pytest.mark.parametrize("engine", ["vllm", "vllm-server"])
def test_an_untested_engine_is_refused_early_and_late(engine, tmp_path):
    policy = toy_policy("internvl")
    with pytest.raises(ConfigError, match=f"engine {engine} is not tested with InternVL; use the engine hf"):
        make_engine(engine, policy.model, policy.processor, 4, 0)
    policy.model.config.save_pretrained(tmp_path)
    checks = look(PlannedRun(Request((), ()), TrainOptions(model=str(tmp_path), engine=engine), dry=True))
    failed = [c.detail for c in checks if (c.group, c.name, c.status) == ("model", "family", "fail")]
    assert len(failed) == 1 and "not tested with InternVL" in failed[0]


def test_a_small_image_is_one_tile_and_a_large_one_several_and_a_thumbnail():
    processor = toy_policy("internvl").processor
    small, large = pictures(processor, (16, 16), (40, 20))
    assert (small.values.shape, small.tokens) == ((1, 3, 16, 16), 4)
    assert (large.values.shape, large.tokens) == ((3, 3, 16, 16), 12)


@pytest.mark.parametrize("family", NAMES)
def test_no_image_is_seen_at_more_pixels_than_the_view(family):
    processor = toy_policy(family).processor
    (large,) = pictures(processor, (400, 400))
    side = processor.image_processor.patch_size if family != "internvl" else 1
    seen = large.values.shape[0] * side**2 if family != "internvl" else large.values[:-1, 0].numel()  # less a thumbnail
    assert 0.8 * processor.view_pixels <= seen <= processor.view_pixels


@pytest.mark.parametrize("height", [1, 3])
@pytest.mark.parametrize("family", NAMES)
def test_a_strip_of_few_rows_is_seen_in_its_colour(family, height):
    processor = toy_policy(family).processor
    strip, square = (processor.image(np.full((h, 40, 3), (255, 0, 90), dtype=np.uint8)) for h in (height, 40))
    assert torch.equal(strip.values.unique(), square.values.unique())
