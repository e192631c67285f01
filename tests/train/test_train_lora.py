"""Adapters: they alone are trained, merged weights are those of the adapted model, and training goes on from a file."""

from __future__ import annotations

import copy
import dataclasses
import re

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from codev_agents.engines import vision
from codev_agents.engines.batch import collate
from codev_agents.engines.lora import ADAPTERS, WithoutAdapters, has_adapters
from codev_agents.engines.options import LoraOptions
from codev_agents.engines.policy import Policy
from codev_env.errors import ConfigError
from codev_train.learn.optimizer import make_optimizer
from codev_train.learn.scorer import TokenScorer
from codev_train.learn.trained import load_trained
from codev_train.run.options import OptimizerOptions, SFTOptions, StageOptions, TrainOptions
from codev_train.sft.start import make_start

OPTIONS = LoraOptions(rank=2, alpha=4.0)
enable = Policy.checkpoint_gradients


def fresh(policy: Policy) -> Policy:
    return dataclasses.replace(policy, model=copy.deepcopy(policy.model))


@pytest.fixture
def batch(policy, picture):
    processor = policy.processor
    image = processor.image(picture(112, 112))
    ids = processor.prompt("look", "<image>what is it?", [image])
    return collate([ids], [[image]], processor.pad_id, processor.image_id)


@pytest.fixture
def adapted(policy) -> Policy:
    """A policy whose adapters have been trained for a step, so that they do something."""
    pytest.importorskip("peft", reason="peft is not installed: pip install 'codev-env[lora]'")
    torch.manual_seed(0)
    made = fresh(policy)
    made.restrict(True, OPTIONS)
    with torch.no_grad():
        for name, parameter in made.model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.1)
    return made


def logits(model, batch) -> torch.Tensor:
    with torch.no_grad():
        return model(**batch).logits


def test_without_peft_the_option_says_what_to_install(policy, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(ConfigError, match=r"lora.rank is 2.*pip install 'codev-env\[lora\]'"):
        fresh(policy).restrict(True, OPTIONS)


def test_a_frozen_vision_tower_is_not_trained_and_needs_no_gradient(policy, batch):
    frozen = fresh(policy)
    frozen.restrict(False, LoraOptions())
    scorer = TokenScorer(frozen.model)
    for name in ("adamw", "muon"):
        optimizer = make_optimizer(scorer, OptimizerOptions(name=name, lr=0.01, weight_decay=0.1))
        chosen = torch.zeros(batch["input_ids"].shape, dtype=torch.bool)
        chosen[:, -3:] = True
        scorer(batch, chosen)[0].sum().backward()
        optimizer.step()
    for (path, before), after in zip(policy.model.named_parameters(), frozen.model.parameters(), strict=True):
        assert torch.equal(before, after) == ("visual" in path), path
        assert (after.grad is None) == ("visual" in path)


def test_only_adapters_of_the_language_model_are_trained(policy, adapted):
    names = [name for name, p in adapted.model.named_parameters() if p.requires_grad]
    assert names and all("lora_" in name and "language_model" in name for name in names)
    layers = adapted.model.config.get_text_config().num_hidden_layers
    assert len(names) == layers * 7 * 2
    assert has_adapters(adapted.model) and not has_adapters(policy.model)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_fresh_adapters_change_nothing_and_have_gradients(policy, batch, checkpointing):
    pytest.importorskip("peft", reason="peft is not installed: pip install 'codev-env[lora]'")
    made = fresh(policy)
    made.restrict(True, OPTIONS)
    torch.testing.assert_close(logits(made.model, batch), logits(policy.model, batch))
    if checkpointing:
        made.model.gradient_checkpointing_enable()
    made.model.train()
    chosen = torch.zeros(batch["input_ids"].shape, dtype=torch.bool)
    chosen[:, -3:] = True
    TokenScorer(made.model)(batch, chosen)[0].sum().backward()
    trained = [p for p in made.model.parameters() if p.requires_grad]
    assert sum(bool(p.grad is not None and p.grad.any()) for p in trained) == len(trained) // 2, "B is 0, so A has none"


def test_merged_weights_are_the_adapted_model(policy, adapted, batch):
    wanted = logits(adapted.model, batch)
    assert (wanted - logits(policy.model, batch)).abs().max() > 0.1
    state = adapted.weights().merged
    assert state.keys() == dict(policy.model.named_parameters()).keys()
    plain = fresh(policy)
    plain.model.load_state_dict(state, strict=False)  # the head is tied
    torch.testing.assert_close(logits(plain.model, batch), wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits(adapted.model, batch), wanted, atol=0, rtol=0)


def test_weights_in_bf16_have_adapters_in_fp32_and_are_merged_without_rounding(policy, tmp_path):
    pytest.importorskip("peft", reason="peft is not installed: pip install 'codev-env[lora]'")
    policy.save(tmp_path / "start")
    made = Policy.load(str(tmp_path / "start"), torch.bfloat16)
    made.restrict(True, OPTIONS)
    with torch.no_grad():
        for name, parameter in made.model.named_parameters():
            assert parameter.dtype == (torch.float32 if "lora_" in name else torch.bfloat16), name
            if "lora_" in name:
                parameter.normal_(std=0.01)
    made.save(tmp_path / "model")
    saved = Policy.load(str(tmp_path / "model")).model.get_submodule("model.language_model.layers.0.self_attn.q_proj")
    layer = made.model.get_submodule("model.language_model.layers.0.self_attn.q_proj")
    wanted = layer.base_layer.weight.float() + layer.get_delta_weight("default")
    torch.testing.assert_close(saved.weight, wanted, atol=0, rtol=0)
    assert not torch.equal(wanted, wanted.bfloat16().float())


def test_a_saved_model_of_bf16_weights_and_adapters_says_that_it_is_in_fp32(policy, tmp_path):
    pytest.importorskip("peft", reason="peft is not installed: pip install 'codev-env[lora]'")
    made = fresh(policy)
    made.model.to(torch.bfloat16)
    made.restrict(True, OPTIONS)
    made.save(tmp_path / "model")
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "model")  # in the type that config.json names
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    assert loaded.config.get_text_config().dtype == torch.float32


def test_autocast_gets_inputs_as_they_are_and_adapters_work_without_it(policy, batch, monkeypatch):
    monkeypatch.setattr(vision, "DEVICES", ("cpu",))  # as on a GPU
    pytest.importorskip("peft", reason="peft is not installed: pip install 'codev-env[lora]'")
    made = fresh(policy)
    made.model.to(torch.bfloat16)
    made.restrict(False, OPTIONS)
    layer = made.model.get_submodule("model.language_model.layers.0.mlp.down_proj")
    seen: list[torch.dtype] = []
    layer.lora_A["default"].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    alone = logits(made.model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(logits(made.model, batch), alone), "fresh adapters change nothing"
    assert seen == [torch.float32, torch.bfloat16]


def test_an_adapter_added_by_its_own_product_has_the_same_output_and_gradients(policy, monkeypatch):
    pytest.importorskip("peft", reason="peft is not installed: pip install 'codev-env[lora]'")
    made = fresh(policy)
    made.restrict(False, OPTIONS)
    layer = made.model.get_submodule("model.language_model.layers.0.mlp.down_proj")
    torch.nn.init.normal_(layer.lora_B["default"].weight)
    x = torch.randn(2, 3, layer.in_features, requires_grad=True)

    def run() -> tuple[torch.Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x)
        trained = [layer.lora_A["default"].weight, layer.lora_B["default"].weight]
        return out, *torch.autograd.grad(out.float().pow(2).sum(), [x, *trained])

    plain = run()
    monkeypatch.setattr(vision, "DEVICES", ("cpu",))  # as on a GPU
    calls: list[float] = []
    addmm = torch.addmm
    monkeypatch.setattr(torch, "addmm", lambda *args, alpha: calls.append(alpha) or addmm(*args, alpha=alpha))
    found = run()
    assert calls == [OPTIONS.alpha / OPTIONS.rank] and found[0].shape == plain[0].shape
    layer.enable_adapters(False)  # as for the reference of a KL term
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x), layer.base_layer(x)) and len(calls) == 1
    layer.enable_adapters(True)
    for a, b in zip(found, plain, strict=True):
        limit = 2e-2 * float(b.detach().abs().max())
        torch.testing.assert_close(a.float(), b.float(), atol=limit, rtol=0)


def test_a_saved_policy_is_merged_and_training_goes_on_with_its_adapters(policy, adapted, batch, tmp_path):
    adapted.save(tmp_path / "model")
    assert (tmp_path / "model" / ADAPTERS).is_file()
    loaded = Policy.load(str(tmp_path / "model"))
    torch.testing.assert_close(logits(loaded.model, batch), logits(adapted.model, batch), atol=1e-4, rtol=1e-4)

    resumed = fresh(policy)
    resumed.restrict(True, OPTIONS, tmp_path / "model")
    torch.testing.assert_close(logits(resumed.model, batch), logits(adapted.model, batch), atol=0, rtol=0)
    with pytest.raises(ConfigError, match="another lora.rank"):
        fresh(policy).restrict(True, LoraOptions(rank=3), tmp_path / "model")
    with pytest.raises(ConfigError, match="adapters.safetensors is missing"):
        fresh(policy).restrict(True, OPTIONS, tmp_path)


def test_a_module_without_its_adapters_is_the_policy_it_started_from(policy, adapted, batch):
    chosen = torch.zeros(batch["input_ids"].shape, dtype=torch.bool)
    chosen[:, 3:6] = True
    scorer = TokenScorer(adapted.model)
    with torch.no_grad():
        changed, _ = scorer(batch, chosen)
        reference, _ = WithoutAdapters(scorer)(batch, chosen)
        wanted, _ = TokenScorer(policy.model)(batch, chosen)
        torch.testing.assert_close(reference, wanted)
        assert not torch.allclose(changed, wanted, atol=1e-3)
        torch.testing.assert_close(scorer(batch, chosen)[0], changed, atol=0, rtol=0)


def test_fresh_adapters_depend_on_their_seed_alone(policy):
    pytest.importorskip("peft", reason="peft is not installed: pip install 'codev-env[lora]'")

    def drawn(seed: int, before: int) -> torch.Tensor:
        torch.manual_seed(before)
        made = fresh(policy)
        made.restrict(True, OPTIONS, seed=seed)
        assert torch.equal(torch.rand(4), torch.rand(4, generator=torch.Generator().manual_seed(before)))
        return torch.cat([p.flatten() for name, p in made.model.named_parameters() if "lora_A" in name])

    assert torch.equal(drawn(1, 5), drawn(1, 6)) and not torch.equal(drawn(1, 5), drawn(2, 5))


def test_adapters_of_another_alpha_would_be_another_policy(policy, adapted, batch, tmp_path):
    adapted.save(tmp_path)
    with pytest.raises(ConfigError, match=r"trained with lora\.alpha 4, not 16.*give --lora\.alpha 4"):
        fresh(policy).restrict(True, LoraOptions(rank=2, alpha=16.0), tmp_path)
    # Files of an earlier version do not say.
    save_file(load_file(tmp_path / ADAPTERS), tmp_path / ADAPTERS)
    resumed = fresh(policy)
    resumed.restrict(True, OPTIONS, tmp_path)
    torch.testing.assert_close(logits(resumed.model, batch), logits(adapted.model, batch), atol=0, rtol=0)


def test_a_cold_start_of_adapters_is_a_whole_model_that_others_can_use(policy, env_options, tmp_path):
    """It trains adapters alone, beside frozen weights, and saves them merged, as `codev train` does."""
    pytest.importorskip("peft", reason="peft is not installed: pip install 'codev-env[lora]'")
    policy.save(tmp_path / "base")
    stage = StageOptions(steps=2, experts=2, optimizer=OptimizerOptions(lr=1e-2))
    options = SFTOptions(model=str(tmp_path / "base"), out=str(tmp_path), env=env_options, pool=2, imitate=stage)
    options = dataclasses.replace(options, lora=OPTIONS, gradient_checkpointing=True, threads=1)
    make_start(options, tmp_path / "start")
    made, base = (Policy.load(str(tmp_path / name)).model.state_dict() for name in ("start", "base"))
    changed = {name for name, weight in made.items() if not torch.equal(weight, base[name])}
    assert changed and all(re.search(r"language_model\.layers.*_proj\.weight", name) for name in changed)
    assert (tmp_path / "start" / ADAPTERS).is_file()
    trained = TrainOptions(lora=LoraOptions(rank=3))
    loaded = load_trained(trained, str(tmp_path / "start"), None, Accelerator(mixed_precision="no"))
    merged = loaded.policy.weights().merged
    assert all(torch.equal(merged[name], made[name]) for name in merged), "fresh adapters beside what was learned"


def test_checkpoints_of_gradients_change_nothing_in_a_cold_start(policy, env_options, tmp_path, monkeypatch):
    policy.save(tmp_path / "base")
    stage = StageOptions(steps=2, experts=2, optimizer=OptimizerOptions(lr=1e-2))
    options = SFTOptions(model=str(tmp_path / "base"), out=str(tmp_path), env=env_options, pool=2, imitate=stage)
    enabled = []
    monkeypatch.setattr(Policy, "checkpoint_gradients", lambda self: enabled.append(enable(self)))
    for folder, spared in (("plain", False), ("spared", True)):
        make_start(dataclasses.replace(options, gradient_checkpointing=spared), tmp_path / folder)
    plain, spared = (Policy.load(str(tmp_path / name)).model.state_dict() for name in ("plain", "spared"))
    assert len(enabled) == 1 and all(torch.allclose(plain[name], spared[name], atol=1e-6) for name in plain)


@pytest.mark.parametrize("adapters", [LoraOptions(), OPTIONS], ids=["whole", "lora"])
def test_a_cold_start_computes_in_the_precision_asked_for(policy, env_options, tmp_path, monkeypatch, adapters):
    """As `codev train` does: weights that are trained stay in fp32, frozen ones beside adapters need no more."""
    if adapters.rank:
        pytest.importorskip("peft", reason="peft is not installed: pip install 'codev-env[lora]'")
    policy.save(tmp_path / "base")
    stage = StageOptions(steps=2, experts=2, optimizer=OptimizerOptions(lr=1e-2))
    options = SFTOptions(model=str(tmp_path / "base"), out=str(tmp_path), env=env_options, pool=2, imitate=stage)
    options = dataclasses.replace(options, lora=adapters)
    computed, kept, logprobs = [], [], []
    forward = TokenScorer.forward

    def seen(self, *inputs, **more):
        layer = self.model.model.language_model.layers[0].mlp
        watch = layer.register_forward_hook(lambda *call: computed.append(call[-1].dtype))
        kept.append({name: p.dtype for name, p in self.model.named_parameters() if p.requires_grad or adapters.rank})
        found = forward(self, *inputs, **more)
        watch.remove()
        logprobs.append(found[0].detach())
        return found

    monkeypatch.setattr(TokenScorer, "forward", seen)
    for precision in ("fp32", "bf16"):
        make_start(dataclasses.replace(options, precision=precision), tmp_path / precision)
    half = len(computed) // 2
    assert set(computed[:half]) == {torch.float32} and set(computed[half:]) == {torch.bfloat16}
    for name, dtype in kept[-1].items():
        assert dtype == (torch.bfloat16 if adapters.rank and "lora_" not in name else torch.float32), name
    assert {p.dtype for p in logprobs} == {torch.float32}
    torch.testing.assert_close(logprobs[0], logprobs[half], atol=0.2, rtol=0.05)
    assert not torch.equal(logprobs[0], logprobs[half])
    assert {w.dtype for w in load_file(tmp_path / "bf16" / "model.safetensors").values()} == {torch.float32}


def test_a_cold_start_can_leave_the_vision_tower_as_it_is(policy, env_options, tmp_path):
    policy.save(tmp_path / "base")
    stage = StageOptions(steps=1, experts=2, optimizer=OptimizerOptions(lr=1e-2))
    options = SFTOptions(model=str(tmp_path / "base"), out=str(tmp_path), env=env_options, pool=2, imitate=stage)
    make_start(dataclasses.replace(options, train_vision=False), tmp_path / "start")
    made, base = (Policy.load(str(tmp_path / name)).model.state_dict() for name in ("start", "base"))
    same = {name for name, weight in made.items() if torch.equal(weight, base[name])}
    assert same == {name for name in base if "visual" in name}
