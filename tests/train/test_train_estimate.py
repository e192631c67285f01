"""Estimates of memory and time against numbers computed by hand, and the sizes they start from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import Qwen2_5_VLConfig, Qwen3VLConfig

from codev_agents.engines.options import LoraOptions, VllmOptions
from codev_env.errors import ConfigError
from codev_train.run import estimate
from codev_train.run.config import read_request
from codev_train.run.machine import gpu_check
from codev_train.run.model_size import config_size, find_size, measure
from codev_train.run.options import EstimateOptions, ImitationOptions, OptimizerOptions, TrainOptions
from codev_train.run.sizes import GPUS, KNOWN_MODELS, Gpu, ModelSize, known_model

# Two layers of 3700 parameters, two tables of 800, a vision tower of 1000.
SIZE = ModelSize(
    name="small",
    parameters=10_000,
    vision=1000,
    table=800,
    tied=False,
    hidden=8,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=4,
    intermediate=16,
    vocab=100,
    vision_hidden=4,
    vision_layers=3,
    vision_intermediate=8,
    patch=12,
)
ASSUMED = EstimateOptions(gpus=2, gpu="h100", trajectory=40, response=10, images=0.5, mfu=0.5, decode=0.5, network=1e-6)
RUN = TrainOptions(prompts=4, group=2, max_tokens=10, max_length=100, token_budget=64, estimate=ASSUMED)
SLOW = Gpu(memory=1e5, flops=1e6, bandwidth=1e5)


def run(**changes) -> TrainOptions:
    assumed = {k: changes.pop(k) for k in list(changes) if k in EstimateOptions.__dataclass_fields__}
    return dataclasses.replace(RUN, estimate=dataclasses.replace(ASSUMED, **assumed), **changes)


def test_parts_of_a_model():
    assert SIZE.language == 10_000 - 1000 - 2 * 800
    assert dataclasses.replace(SIZE, tied=True).language == 10_000 - 1000 - 800
    assert SIZE.kv_values == 2 * 2 * 1 * 4


def test_memory_of_full_training_in_fp32():
    found = estimate.memory(SIZE, RUN)
    assert (found.weights, found.optimizer, found.gradients) == (40_000, 80_000, 40_000)
    assert found.copies == found.reference == 0
    # Longest trajectory 2 * 40 = 80 tokens, more than the budget. A layer keeps 4 * (48 + 24 + 8 + 64) = 576 bytes a
    # token; one of the vision tower 4 * (24 + 24 + 32) = 320 for each of 4 * 40 patches, which have 12 numbers.
    assert found.activations == 160 * 12 * 4 + 80 * 2 * 576 + 160 * 3 * 320
    # A quarter of 80 tokens is sampled.
    assert found.logits == 5 * 4 * 20 * 100
    # Gradients of gate and up of 80 tokens; the tower's are as many. AdamW's temporaries are as large as the weights.
    assert (found.layer, found.step) == (80 * 2 * 4 * 16, 40_000)
    # `hf`: 8 episodes on 2 GPUs, each 80 tokens of 16 numbers in fp32.
    assert found.engine == 4 * 80 * 16 * 4
    assert found.always == 120_000 and found.rollouts == 120_000 + found.engine
    assert found.update == 160_000 + found.activations + found.logits == found.peak
    assert sum(found.parts().values()) == found.update + found.layer + found.step + found.engine


def test_shards_divide_what_is_held_and_gather_two_layers_and_the_tables():
    whole, half = estimate.memory(SIZE, run(kl=0.1)), estimate.memory(SIZE, run(kl=0.1, shards=2))
    for part in ("weights", "gradients", "optimizer", "reference"):
        assert getattr(half, part) == getattr(whole, part) / 2 > 0
    assert (whole.copies, half.copies) == (0, 4 * (2 * 3700 + 1600))
    assert half.activations == whole.activations
    assert half.engine == whole.engine + 40_000  # `hf` samples with a whole copy


def test_processes_that_share_a_row_out_hold_their_part_of_it():
    alone, shared = estimate.memory(SIZE, RUN), estimate.memory(SIZE, run(sequence_parallel=2))
    # 40 of the 80 tokens in the language model and the head, all patches in the vision tower.
    assert shared.activations == 160 * 12 * 4 + 40 * 2 * 576 + 160 * 3 * 320
    assert shared.logits == alone.logits / 2
    assert (shared.weights, shared.engine) == (alone.weights, alone.engine)
    # Both GPUs work on the same passes, and both run the vision tower.
    assert estimate.passes_per_step(run(sequence_parallel=2)) == 2 * estimate.passes_per_step(RUN)
    assert estimate.update_flops(SIZE, run(sequence_parallel=2)) == 3 * (659_200 + 2 * 160_000)


def test_passes_of_a_step():
    # 4 trajectories of 40 tokens on each GPU in passes of 80 tokens are two, in passes of 160 one.
    assert estimate.passes_per_step(RUN) == 2
    assert estimate.passes_per_step(run(token_budget=160)) == 1


def test_bf16_computes_with_copies_of_half_the_size():
    found = estimate.memory(SIZE, run(precision="bf16"))
    # All weights but the embedding table.
    assert (found.weights, found.copies) == (40_000, 2 * 9200)
    # Both norms keep inputs and normalised inputs in fp32, and outputs in bf16 five times: 26 * 8 bytes. The tower's
    # stream is bf16, and its norms' outputs have three uses: 18 * 4. Pixels are kept in both types.
    pixels = 160 * 12 * 6
    assert found.activations == pixels + 80 * 2 * (208 + 2 * 96) + 160 * 3 * (72 + 2 * 56)
    shard = estimate.memory(SIZE, run(precision="bf16", shards=2))
    # Weights in bf16 are gathered: no copies for each use.
    assert shard.copies == 2 * (2 * 3700 + 1600)
    assert shard.activations == pixels + 80 * 2 * (16 * 8 + 2 * 96) + 160 * 3 * (16 * 4 + 2 * 56)


def test_padded_rows_keep_a_mask_and_keys_of_all_heads():
    packed, padded = (estimate.memory(SIZE, run(token_budget=budget, micro_batch=2)).activations for budget in (160, 0))
    # 160 tokens in 2 layers: 3 q + 2 kv = 32 numbers, or 4 q = 32 and a mask of 80.
    assert padded - packed == 160 * 2 * 4 * 80
    alone = estimate.memory(SIZE, run(token_budget=0, micro_batch=1)).activations
    assert alone == estimate.memory(SIZE, RUN).activations - 80 * 2 * 4 * 8  # the output once only


def test_normalised_queries_and_keys_are_kept():
    plain, normed = (estimate.memory(dataclasses.replace(SIZE, qk_norm=norm), RUN).activations for norm in (0, 1))
    assert normed - plain == 80 * 2 * 8 * (8 + 4)


@pytest.mark.parametrize(("tied", "tables"), [(False, 1), (True, 3)])
def test_gradients_of_the_tables_are_added_up_after_the_activations(tied, tables):
    size, lora = dataclasses.replace(SIZE, tied=tied, vocab=10), run(lora=LoraOptions(rank=2))
    assert estimate.step_bytes(size, run(optimizer=OptimizerOptions(name="adamw8bit"))) == 4 * 800 * tables
    assert estimate.step_bytes(size, lora) == 4 * estimate.trained_parameters(size, lora)
    # Two processes: gradients in fp32, a copy that is added up, and half of the sum.
    halved = run(shards=2, optimizer=OptimizerOptions(name="adamw8bit"))
    assert estimate.step_bytes(size, halved) == 10 * size.tables
    found = estimate.memory(size, run(trajectory=1, token_budget=1))
    assert found.update == found.always + found.gradients + found.step


def test_checkpointing_keeps_the_residual_stream_and_one_layer():
    found = estimate.memory(SIZE, run(gradient_checkpointing=True))
    assert found.activations == 160 * 12 * 4 + 80 * 2 * 4 * 8 + 160 * 3 * 4 * 4
    assert found.layer == max(80 * (576 + 2 * 4 * 16), 160 * (320 + 2 * 4 * 8))
    assert found.update == found.always + found.gradients + found.activations + found.layer  # the logits are gone


def test_kept_layers_have_their_activations_and_run_once():
    found = estimate.memory(SIZE, run(gradient_checkpointing=True, kept_layers=1))
    none, every = (estimate.memory(SIZE, run(gradient_checkpointing=True, kept_layers=kept)) for kept in (0, 99))
    assert found.activations == (none.activations + every.activations) / 2 > none.activations
    again, once = (estimate.update_flops(SIZE, run(gradient_checkpointing=True, kept_layers=kept)) for kept in (0, 2))
    forward = 40 * (14_800 + 1280) + 2 * 10 * 800
    assert again - once == forward
    assert estimate.update_flops(SIZE, run(gradient_checkpointing=True, kept_layers=1)) == (again + once) / 2
    with pytest.raises(ConfigError, match=r"--kept-layers is 1; it must be 0 without gradient-checkpointing"):
        read_request(["--kept-layers", "1"]).parse("train", TrainOptions, "codev train")


def test_what_is_frozen_has_no_gradient():
    frozen = estimate.memory(SIZE, run(train_vision=False))
    assert (frozen.gradients, frozen.optimizer, frozen.weights) == (36_000, 72_000, 40_000)
    assert frozen.activations == 160 * 12 * 4 + 80 * 2 * 576
    # Rank 2: q and o 2 * (8 + 8), k and v 2 * (8 + 4), the feed-forward part 3 * (8 + 16): 128 per layer and rank.
    adapters = 2 * 2 * 128
    lora = estimate.memory(SIZE, run(lora=LoraOptions(rank=2), kl=0.1))
    assert (lora.weights, lora.gradients, lora.optimizer) == (4 * (10_000 + adapters), 4 * adapters, 8 * adapters)
    assert lora.reference == 0
    # Frozen norms do not keep what they normalise.
    assert lora.activations == frozen.activations - 80 * 2 * 2 * 4 * 8


def test_adapters_in_bf16_are_beside_weights_in_bf16():
    adapters = 2 * 2 * 128
    found = estimate.memory(SIZE, run(lora=LoraOptions(rank=2), precision="bf16"))
    assert found.weights == 2 * 10_000 + 4 * adapters and found.copies == 2 * adapters
    # The norms keep their inputs in fp32, and outputs in bf16 five times.
    assert found.activations == 160 * 12 * 4 + 80 * 2 * (2 * 8 * (4 + 2 * 5 / 2) + 2 * 96)
    whole = run(lora=LoraOptions(rank=2), precision="bf16", gradient_checkpointing=True)
    assert estimate.memory(SIZE, whole).activations == 160 * 12 * 4 + 80 * 2 * 2 * 8  # the residual stream, in bf16
    shard = estimate.memory(SIZE, run(lora=LoraOptions(rank=2), precision="bf16", shards=2))
    assert shard.weights == found.weights / 2 and shard.copies == 2 * (2 * 3700 + 1600)
    # `hf` samples with these weights, with sharded ones from a whole copy in fp32.
    engine = estimate.engine_bytes(SIZE, run(lora=LoraOptions(rank=2), precision="bf16", engine="hf"))
    assert engine == estimate.engine_bytes(SIZE, run(engine="hf")) / 2
    assert shard.engine == 4 * 10_000 + 2 * engine


@pytest.mark.parametrize(("name", "wanted"), [("adamw", 80_000), ("adamw8bit", 20_000), ("muon", 4 * 8400 + 8 * 1600)])
def test_moments_of_each_optimizer(name, wanted):
    assert estimate.optimizer_bytes(SIZE, run(optimizer=OptimizerOptions(name=name))) == wanted


def test_tokens_of_a_pass():
    assert estimate.tokens_per_pass(run(token_budget=90)) == 90
    assert estimate.tokens_per_pass(run(token_budget=64)) == 80
    assert estimate.tokens_per_pass(run(token_budget=0, micro_batch=3)) == 240
    # A process has 4 of the 8 trajectories; two optimizer steps take 2 each.
    assert estimate.tokens_per_pass(run(token_budget=0, micro_batch=64, minibatches=2)) == 160
    # Without a mean, `max_length` is the longest and its half the mean.
    assert estimate.longest_trajectory(run(trajectory=0)) == 100 and estimate.mean_trajectory(run(trajectory=0)) == 50
    assert estimate.sampled_tokens(run(response=0)) == 10


def test_operations_of_an_update():
    # Forward: 40 tokens times (2 * 7400 + attention 2 * 40 * 8 * 2), the head for 10 tokens, 80 patches of the tower.
    forward, vision = 40 * (14_800 + 1280) + 2 * 10 * 800, 2 * 80 * 1000
    assert estimate.update_flops(SIZE, RUN) == 3 * (forward + vision)
    assert estimate.update_flops(SIZE, run(gradient_checkpointing=True)) == 4 * (forward + vision)
    assert estimate.update_flops(SIZE, run(train_vision=False)) == 3 * forward + vision
    assert estimate.update_flops(SIZE, run(kl=0.1, epochs=2)) == 7 * (forward + vision)
    assert estimate.update_flops(SIZE, run(minibatches=2, correction="token")) == 4 * (forward + vision)


def test_seconds_of_an_update():
    found = estimate.seconds(SIZE, RUN, SLOW)
    # 4 episodes on each GPU at 5e5 operations per second.
    assert found.update == pytest.approx(4 * 3 * (659_200 + 160_000) / 5e5)
    assert found.prefill == pytest.approx(4 * (2 * 30 * 7400 + 2 * 4 * 20 * 1000) / 5e5)
    # A step reads 9000 weights and 4 caches of 20 tokens on the mean, in fp32, at 5e4 bytes per second; 10 steps.
    assert found.decode == pytest.approx(10 * 4 * (9000 + 4 * 20 * 16) / 5e4)
    assert found.push == 0
    assert found.total == pytest.approx(found.prefill + found.decode + found.update)


def test_an_update_learns_from_what_is_kept_and_imitated():
    imitation = ImitationOptions(answers=3, calls=2)
    options = run(prompts=2, group=4, down_sample=2, imitation=imitation)
    assert (estimate.learned(run(prompts=2, group=4)), estimate.learned(options)) == (8, 9)
    plain, changed = (estimate.seconds(SIZE, o, SLOW) for o in (run(prompts=2, group=4), options))
    assert changed.update == pytest.approx(plain.update * 9 / 8) and changed.decode == plain.decode


def test_looks_that_self_imitation_scores_take_time_beside_an_update():
    plain = estimate.seconds(SIZE, run(prompts=2, group=4), SLOW)
    found, unscored = (
        estimate.seconds(SIZE, run(prompts=2, group=4, imitation=imitation), SLOW)
        for imitation in (ImitationOptions(answers=3), ImitationOptions(calls=3, targets=1))
    )
    # One pass for each of the 4 episodes of a GPU: as in `test_operations_of_an_update`, without the head.
    assert found.looks == pytest.approx(4 * (40 * (14_800 + 1280) + 2 * 80 * 1000) / 5e5)
    assert found.total == pytest.approx(found.prefill + found.decode + found.update + found.looks)
    assert not plain.looks and not unscored.looks


def test_guessed_answers_take_time_before_an_update():
    plain, guessed = (estimate.seconds(SIZE, run(prompts=2, group=4, candidates=n), SLOW) for n in (1, 6))
    assert guessed.prefill == pytest.approx(plain.prefill * (8 + 12) / 8) and guessed.decode == plain.decode


def test_a_push_crosses_the_network_where_weights_are_elsewhere():
    for changes in ({"engine": "vllm-server"}, {"engine": "vllm", "shards": 2}):
        assert estimate.seconds(SIZE, run(**changes), SLOW).push == pytest.approx(20_000 / 1e3)
    assert estimate.seconds(SIZE, run(engine="vllm"), SLOW).push == 0


def test_the_cache_bounds_the_episodes_that_are_decoded_together():
    # Room for 100 tokens beside the weights: two trajectories of 40, so the 4 of a GPU take two waves.
    share = (20_000 + 100 * 32) / 80e9
    options = run(engine="vllm", vllm=VllmOptions(memory=share))
    assert estimate.cache_tokens(SIZE, options) == pytest.approx(100)
    assert estimate.episodes_at_once(SIZE, options) == 2
    step = 2 * (9000 + 2 * 20 * 16) / 5e4
    assert estimate.seconds(SIZE, options, SLOW).decode == pytest.approx(2 * 10 * step)
    none = run(engine="vllm", vllm=VllmOptions(memory=1e-9))
    assert estimate.episodes_at_once(SIZE, none) == 0 and estimate.seconds(SIZE, none, SLOW).decode == float("inf")


def test_disk_room_counts_one_checkpoint_more_than_are_kept():
    assert estimate.checkpoint_bytes(SIZE, run(keep=2)) == 3 * 120_000 + 40_000


def test_moments_of_8_bits_take_the_disk_room_of_fp32_in_which_they_are_stored():
    eight = run(optimizer=OptimizerOptions(name="adamw8bit"))
    assert estimate.checkpoint_bytes(SIZE, eight) == estimate.checkpoint_bytes(SIZE, RUN)


def test_adapters_are_stored_beside_the_model_that_has_them_merged():
    adapted = run(keep=2, lora=LoraOptions(rank=2))
    trained = estimate.trained_parameters(SIZE, adapted)
    assert estimate.checkpoint_bytes(SIZE, adapted) == 3 * (40_000 + (4 + 8) * trained) + 40_000 + 4 * trained


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL-7B"),
        ("models/qwen3-vl-32b-thinking/", "Qwen3-VL-32B"),
        ("Qwen/Qwen2-VL-7B", None),
    ],
)
def test_published_models_are_known_by_name(name, found):
    size = known_model(name)
    assert (size and size.name) == found


def qwen25(size: ModelSize) -> Qwen2_5_VLConfig:
    vision = {"depth": 32, "hidden_size": 1280, "num_heads": 16, "patch_size": 14, "out_hidden_size": size.hidden}
    vision["intermediate_size"] = size.vision_intermediate
    return Qwen2_5_VLConfig(text_config=language(size), vision_config=vision, tie_word_embeddings=size.tied)


def qwen3(size: ModelSize) -> Qwen3VLConfig:
    vision = {"depth": size.vision_layers, "hidden_size": size.vision_hidden, "num_heads": 16, "patch_size": 16}
    vision |= {"intermediate_size": size.vision_intermediate, "out_hidden_size": size.hidden}
    vision |= {"num_position_embeddings": 2304, "deepstack_visual_indexes": [5, 11, 17]}
    return Qwen3VLConfig(text_config=language(size), vision_config=vision, tie_word_embeddings=size.tied)


def language(size: ModelSize) -> dict[str, int]:
    return {
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "intermediate_size": size.intermediate,
        "vocab_size": size.vocab,
        "head_dim": size.head_dim,
        "max_position_embeddings": size.positions,
    }


@pytest.mark.parametrize("size", KNOWN_MODELS.values(), ids=KNOWN_MODELS)
def test_known_sizes_are_those_that_transformers_builds(size):
    config = qwen3(size) if size.name.startswith("Qwen3") else qwen25(size)
    assert config_size(config, size.name) == size


def test_the_size_of_a_saved_model_is_read(policy, tmp_path):
    policy.model.config.save_pretrained(tmp_path)
    found = find_size(str(tmp_path))
    assert found.parameters == sum(p.numel() for p in policy.model.parameters())
    assert found.layers == policy.model.config.text_config.num_hidden_layers


def test_offload_keeps_shards_in_cpu_memory():
    plain, offload = run(kl=0.1, shards=2), run(kl=0.1, shards=2, sharding="fsdp2-offload")
    whole, found = estimate.memory(SIZE, plain), estimate.memory(SIZE, offload)
    assert found.always == found.gradients == 0 and estimate.host_bytes(SIZE, plain) == 0
    assert estimate.host_bytes(SIZE, offload) == whole.always + whole.gradients
    assert (found.copies, found.activations, found.logits) == (whole.copies, whole.activations, whole.logits)
    alone = run(sharding="fsdp2-offload")  # one process shards nothing
    assert estimate.memory(SIZE, alone) == estimate.memory(SIZE, run()) and not estimate.host_bytes(SIZE, alone)


@pytest.mark.parametrize(
    ("processes", "changes", "kept"),
    [
        (1, {}, 133),
        (8, {}, 133),
        (8, {"sharding": "fsdp2"}, 17),
        (8, {"sharding": "hsdp", "replicas": 2}, 33),
        (8, {"sharding": "fsdp2-offload"}, 0),
        (1, {"lora": LoraOptions(rank=64), "precision": "bf16"}, 19),
    ],
)
def test_a_run_that_cannot_hold_its_weights_on_its_gpus_is_stopped(processes, changes, kept, monkeypatch):
    """A 7B model in fp32 takes 16 bytes for each of 8.29e9 parameters, divided by the shards."""
    size, options = known_model("Qwen/Qwen2.5-VL-7B-Instruct"), TrainOptions(**changes)
    assert size is not None and gpu_check(size, options, processes) is None, "there is no GPU here"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for room in (30e9, 200e9):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda room=room: (room, room))
        found = gpu_check(size, options, processes)
        assert found is not None and found.detail.startswith(f"{kept} GB")
        assert found.status == ("fail" if kept * 1e9 > room else "ok")
        assert bool(found.advice) == (found.status == "fail")


def test_the_preset_for_one_gpu_of_24_gb_fits_with_room_to_spare():
    """22 GiB leave the CUDA context and what kernels allocate some room; the parts are those of docs/scaling.md."""
    options = read_request(["--preset", "qwen2.5-vl-3b-lora-24gb"]).parse("train", TrainOptions, "codev train")
    size = known_model(options.model)
    assert size is not None and GPUS[options.estimate.gpu].memory == 24 * 2**30
    found, adapters = estimate.memory(size, options), estimate.trained_parameters(size, options)
    assert found.weights == 2 * size.parameters + 4 * adapters  # all that is frozen, the vision tower too, is in bf16
    assert (found.optimizer, found.gradients, found.copies) == (8 * adapters, 4 * adapters, 2 * adapters)
    assert found.engine == 0.5 * 24 * 2**30  # it sleeps while the policy is updated
    assert max(found.update, found.rollouts) == found.peak <= 22 * 2**30
    assert found.update + found.engine > 22 * 2**30, "without its sleep it would not fit"
    # One trajectory: the prompt, an image of every view within its budget, and all that may be sampled.
    images = options.env.max_turns * options.max_pixels // (28 * 28)
    assert options.max_pixels == 512 * 28 * 28 and images + (options.env.max_turns - 1) * 600 < options.max_length
    assert estimate.episodes_at_once(size, options) >= 16
    page = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text("utf-8")
    for name, value in found.parts().items():
        assert not value or f"| {name} | {value / 2**30:.2f} |" in page, (name, value / 2**30)
    assert f"update {found.update / 2**30:.2f}, rollouts {found.rollouts / 2**30:.2f}" in page


def test_an_image_budget_bounds_the_view(policy):
    processor = policy.processor
    whole, sizes = processor.view_pixels, processor.image_processor.size
    try:
        processor.limit_pixels(56 * 56)
        assert processor.view_pixels == 56 * 56 < whole
    finally:
        processor.image_processor.size = sizes


def test_adapters_take_no_gradients_of_the_weights_below_them():
    # Half of the backward pass through the weights; attention, which has none, and scoring stay.
    weights, attention, vision = 40 * 14_800 + 2 * 10 * 800, 40 * 1280, 2 * 80 * 1000
    plain, again = run(lora=LoraOptions(rank=2)), run(lora=LoraOptions(rank=2), gradient_checkpointing=True, kl=0.1)
    assert estimate.update_flops(SIZE, plain) == 2 * weights + 3 * attention + vision
    assert estimate.update_flops(SIZE, again) == 4 * weights + 5 * attention + 2 * vision


def test_pixels_of_all_episodes_of_an_update_are_in_cpu_memory():
    # 4 trajectories a process, 20 tokens of images each, a token 4 patches of 12 numbers in fp32.
    assert estimate.pixel_bytes(SIZE, RUN) == 4 * 20 * 4 * 12 * 4
    assert estimate.pixel_bytes(SIZE, run(gpus=0)) == 2 * estimate.pixel_bytes(SIZE, RUN)
    # Those of two more updates are played ahead.
    assert estimate.pixel_bytes(SIZE, run(staleness=2)) == 3 * estimate.pixel_bytes(SIZE, RUN)


def test_pixels_of_a_token_are_those_of_the_image_processor(policy, picture):
    size = measure(policy.model, "toy")
    image = policy.processor.image(picture(224, 112))
    one = run(gpus=0, prompts=1, group=2, trajectory=2 * image.tokens, response=1, max_length=1000)
    assert estimate.pixel_bytes(size, one) == 2 * image.values.nbytes
