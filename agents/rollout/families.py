"""Model families: one row for each that is tested, with everything in which it differs from the others."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from codev_env.errors import ConfigError


@dataclass(frozen=True)
class Family:
    """A model family. The defaults are those of the Qwen-VL families.

    Attributes:
        model_type: `model_type` of its config.json.
        name: Its name.
        text: `model_type` of the language models that are tested with it; empty if it has its own.
        layers: Kinds of attention layers of the language model (`layer_types` of the configuration) that are tested.
        image_token: The token that stands for a part of an image.
        around_image: Markup around the image tokens that the chat template leaves to the family's processor.
        control: Tokens that are meaningless without pixels: the policy gives them no probability.
        vision: Modules that turn pixels into the embeddings of image tokens, below `model.model`.
        vision_layers: Attribute of the vision configuration that has the number of layers.
        engines: The engines that are tested.
        tile_tokens: Image tokens of a tile, for families that cut images into tiles; 0 for patches on a grid. Read from
            the configuration: see `family_of`.
    """

    model_type: str
    name: str
    text: tuple[str, ...] = ()
    layers: tuple[str, ...] = ("full_attention",)
    image_token: str = "<|image_pad|>"
    around_image: tuple[str, str] = ("", "")
    control: tuple[str, ...] = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    vision: tuple[str, ...] = ("visual",)
    vision_layers: str = "depth"
    engines: tuple[str, ...] = ("hf", "vllm", "vllm-server")
    tile_tokens: int = 0


QWEN3_VL = Family("qwen3_vl", "Qwen3-VL")
FAMILIES = (
    Family("qwen2_5_vl", "Qwen2.5-VL"),
    QWEN3_VL,
    Family("qwen3_5", "Qwen3.5", layers=("full_attention", "linear_attention"), engines=("hf", "vllm")),
    Family(
        "internvl",
        "InternVL",
        text=("qwen2", "qwen3"),
        image_token="<IMG_CONTEXT>",
        around_image=("<img>", "</img>"),
        control=("<IMG_CONTEXT>", "<img>", "</img>", "<video>"),
        vision=("vision_tower", "multi_modal_projector"),
        vision_layers="num_hidden_layers",
        engines=("hf",),
    ),
)
"""The families; docs/models.md lists what each is tested for."""


def family_of(config: Any) -> Family:
    """Return the family of a model by its configuration, without its weights.

    Args:
        config: A configuration of `transformers`.

    Raises:
        ConfigError: The model is of no family that is tested, or its weights are quantised.
    """
    known = ", ".join(f"{family.name} ({family.model_type})" for family in FAMILIES)
    family = next((f for f in FAMILIES if f.model_type == config.model_type), None)
    if family is None:
        raise ConfigError(f"model_type {config.model_type!r} is of no tested family; use a model of one of {known}.")
    if quantised := getattr(config, "quantization_config", None):
        method = quantised.get("quant_method", "by an unknown method")
        raise ConfigError(f"its weights are quantised ({method}), which is not tested; use those that they come from.")
    text = config.get_text_config()
    if family.text and text.model_type not in family.text:
        allowed = " or ".join(family.text)
        raise ConfigError(f"{family.name} is tested with language models {allowed}, not {text.model_type!r}.")
    others = sorted(set(getattr(text, "layer_types", None) or ()) - set(family.layers))
    if others:
        allowed = " and ".join(family.layers)
        raise ConfigError(f"{family.name} is tested with layers of {allowed}, not of {', '.join(others)}.")
    return dataclasses.replace(family, tile_tokens=getattr(config, "image_seq_length", 0))


def positions_of(config: Any) -> int:
    """Return the longest sequence, in tokens, that a model was made for by its configuration; 0 if it has no bound."""
    return int(getattr(config.get_text_config(), "max_position_embeddings", None) or 0)
