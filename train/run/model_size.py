"""Sizes of the model that a run starts from: read from its configuration, or known for published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from codev_agents.engines import check_engine
from codev_agents.rollout.families import family_of, positions_of
from codev_env.errors import ConfigError
from codev_train.run.sizes import ModelSize, known_model


def find_size(name: str) -> ModelSize:
    """Return the sizes of a model folder, of a published model that is known, or of one that the hub has.

    Raises:
        ConfigError: No model of that name was found, or it is of a kind that cannot be trained.
    """
    known = None if Path(name).exists() else known_model(name)
    if known:
        return known
    try:
        config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model {name!r}: its config.json cannot be read ({type(error).__name__}: "
            f"{str(error).splitlines()[0][:120]}); give a folder, or a name on the hub."
        ) from error
    try:
        return config_size(config, name)
    except ConfigError as error:
        raise ConfigError(f"model {name!r}: {error}") from error


def family_problem(name: str, engine: str) -> str:
    """Return why a model cannot be used with an engine, by its config.json; empty if it can, or has none."""
    try:
        check_engine(engine, family_of(AutoConfig.from_pretrained(name)))
    except OSError:
        return ""
    except (ValueError, ConfigError) as error:
        return str(error).splitlines()[0]
    return ""


def config_size(config: Any, name: str) -> ModelSize:
    """Return the sizes of what `transformers` makes of a configuration; no weights are allocated.

    Raises:
        ConfigError: It is of no tested family.
    """
    family_of(config)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    return measure(model, name)


def measure(model: Any, name: str) -> ModelSize:
    """Return the sizes of a model of a tested family."""
    family = family_of(model.config)
    text, vision = model.config.get_text_config(), model.config.vision_config
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return ModelSize(
        name=name,
        parameters=sum(p.numel() for p in model.parameters()),
        vision=sum(p.numel() for name in family.vision for p in model.model.get_submodule(name).parameters()),
        table=table.numel(),
        tied=head is table,
        hidden=text.hidden_size,
        layers=text.num_hidden_layers,
        heads=text.num_attention_heads,
        kv_heads=text.num_key_value_heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        intermediate=text.intermediate_size,
        vocab=table.shape[0],
        vision_hidden=vision.hidden_size,
        vision_layers=getattr(vision, family.vision_layers),
        vision_intermediate=vision.intermediate_size,
        linear=list(getattr(text, "layer_types", None) or ()).count("linear_attention"),
        patch=next(p[0].numel() for n, p in model.named_parameters() if "patch_embed" in n and p.ndim > 2),
        qk_norm=any("language_model" in n and "q_norm" in n for n, _ in model.named_parameters()),
        positions=positions_of(model.config),
    )
