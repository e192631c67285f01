"""The toy model is an ordinary `transformers` model with a tokenizer made for the environment."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

from codev_agents import Oracle, run_episode
from codev_agents.engines.batch import collate
from codev_agents.engines.policy import Policy
from codev_env.errors import ConfigError
from codev_env.types import IMAGE_PLACEHOLDER
from codev_train.run.environments import make_env
from codev_train.run.options import EnvOptions, SFTOptions
from codev_train.sft.cold_start import toy_policy


@pytest.fixture(scope="module")
def saved(policy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "model"
    policy.save(folder)
    return folder


@pytest.fixture
def inputs(policy, picture):
    processor = policy.processor
    images = [processor.image(picture(100, 140)), processor.image(picture(60, 60))]
    ids = processor.prompt("be brief", f"{IMAGE_PLACEHOLDER}one {IMAGE_PLACEHOLDER}two 17", images)
    return collate([ids], [images], processor.pad_id, processor.image_id)


@torch.no_grad()
def logits(model, inputs) -> torch.Tensor:
    return model.eval()(**inputs).logits


def test_a_saved_policy_loads_with_transformers_alone(policy, saved, inputs, picture):
    wanted = logits(policy.model, inputs)
    # Without the trainer's own patch embedding: the same product, summed in another order.
    plain = AutoModelForImageTextToText.from_pretrained(saved)
    torch.testing.assert_close(logits(plain, inputs), wanted, atol=1e-4, rtol=1e-4)
    again = AutoTokenizer.from_pretrained(saved)
    text = "crop((112, 0, 224, 112)) <think>é\n"
    assert again(text)["input_ids"] == policy.processor.tokenizer(text)["input_ids"]
    assert again.chat_template == policy.processor.tokenizer.chat_template
    processor = AutoImageProcessor.from_pretrained(saved, backend="pil")
    image = processor(images=[picture(90, 70)], return_tensors="pt")
    assert image["pixel_values"].shape[1] == policy.model.model.visual.patch_embed.proj.weight[0].numel()


def test_a_saved_policy_loads_bit_by_bit(policy, saved, inputs, picture):
    loaded = Policy.load(str(saved))
    assert torch.equal(logits(loaded.model, inputs), logits(policy.model, inputs))
    image = picture(80, 50)
    a, b = (p.processor.image(image) for p in (loaded, policy))
    assert a.grid == b.grid and torch.equal(a.values, b.values)
    assert loaded.processor.prompt("s", "u", []) == policy.processor.prompt("s", "u", [])


def test_a_copy_of_the_model_uses_its_own_weights(policy, inputs):
    copied = copy.deepcopy(policy.model)
    with torch.no_grad():
        copied.model.visual.patch_embed.proj.weight.add_(1.0)
    assert not torch.equal(logits(copied, inputs), logits(policy.model, inputs))


def test_one_token_per_number_and_tag(policy, env_options):
    processor = policy.processor
    env = make_env(env_options, "test")
    for index in range(5):
        for turn in run_episode(env, Oracle(snap=112), options={"index": index}).turns:
            pieces = [processor.tokenizer.decode([i]) for i in processor.encode(turn.action)]
            numbers = [p for p in pieces if re.search(r"\d", p)]
            assert numbers == re.findall(r"\d+", turn.action)
            tags = re.findall(r"</?[a-z]+>", turn.action)
            assert [p for p in pieces if p in tags] == tags


def test_the_seed_decides_the_weights(env_options, policy):
    def first(seed: int) -> torch.Tensor:
        from micro_run import TOY_OPTIONS

        return toy_policy(SFTOptions(env=env_options, toy=TOY_OPTIONS, seed=seed)).model.lm_head.weight.detach()

    assert torch.equal(first(1), first(1)) and not torch.equal(first(1), first(2))


def test_reading_the_words_of_scenes_is_shown_by_one_process(env_options, monkeypatch, capsys):
    from micro_run import TOY_OPTIONS

    from codev_train.sft import cold_start

    monkeypatch.setattr(cold_start, "CORPUS_SCENES", 7)
    toy_policy(SFTOptions(env=env_options, toy=TOY_OPTIONS), shown=False)
    assert "words of scenes" not in capsys.readouterr().err
    toy_policy(SFTOptions(env=env_options, toy=TOY_OPTIONS))
    assert "7/7" in capsys.readouterr().err.rpartition("words of scenes")[2]


def test_a_toy_needs_scenes_whose_objects_have_names():
    from PIL import Image

    from codev_env.dialects import get_dialect
    from codev_env.types import Task
    from codev_train.sft.examples import corpus

    task = Task("t", (Image.new("RGB", (8, 8)),), "Which?", "red")
    with pytest.raises(ConfigError, match="generated scenes only"):
        corpus([task], get_dialect("codev"), 0)


@pytest.mark.parametrize("lost", ["config.json", "model.safetensors", "preprocessor_config.json", "tokenizer.json"])
def test_an_incomplete_folder_is_refused_by_name(saved, tmp_path, lost):
    import shutil

    folder = tmp_path / "broken"
    shutil.copytree(saved, folder)
    (folder / lost).unlink()
    with pytest.raises(ConfigError, match=re.escape(str(folder))):
        Policy.load(str(folder))


def test_a_name_that_is_no_folder_is_refused():
    with pytest.raises(ConfigError, match="no-such-place/model"):
        Policy.load("no-such-place/model")


def test_an_environment_that_is_not_registered_is_refused():
    with pytest.raises(ConfigError, match=r"env\.id 'codev_env:CodeV-Nothing-v0'"):
        make_env(EnvOptions(id="codev_env:CodeV-Nothing-v0"), "train")
