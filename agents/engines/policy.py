"""The policy: a vision-language model, its tokenizer and its image processor, in the formats of `transformers`."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer, GenerationConfig
from transformers.utils import logging as transformers_logging

from codev_agents.engines import lora
from codev_agents.engines.folders import CONFIG, model_advice
from codev_agents.engines.model_files import check_available
from codev_agents.engines.options import LoraOptions
from codev_agents.engines.vision import speed_up
from codev_agents.engines.weights import copied, is_sharded, named_weights
from codev_agents.rollout.families import family_of
from codev_agents.rollout.tokens import ChatProcessor
from codev_env.errors import ConfigError

# A checkpoint every few minutes: one progress bar of ours is enough.
transformers_logging.disable_progress_bar()


@dataclass(frozen=True)
class PolicyWeights:
    """The weights of a policy: whole, with adapters merged; and the adapters by themselves."""

    merged: dict[str, torch.Tensor]
    adapters: dict[str, torch.Tensor]


@dataclass
class Policy:
    """A model, and the processor that turns text and images into its inputs."""

    model: Any
    processor: ChatProcessor

    @classmethod
    def load(cls, path: str, dtype: torch.dtype = torch.float32, whole: bool = True) -> Policy:
        """Load a policy.

        Args:
            path: A folder written by `save` or by `save_pretrained`, or a name on the model hub.
            dtype: Type of the weights.
            whole: Read the weights; if not, the model is on the meta device, for weights that another process sends.

        Raises:
            ConfigError: There is no model there, or not one of a tested family.
        """
        folder = Path(path)
        if folder.exists() and not (folder / CONFIG).is_file():
            raise ConfigError(f"{path} holds no model: config.json is missing; {model_advice(folder)}.")
        try:
            config = AutoConfig.from_pretrained(path)
        except (OSError, ValueError) as error:
            if folder.exists():
                text = " ".join(str(error).split())[:200]
                raise ConfigError(f"the config.json of the model in {path} cannot be read: {text}") from error
            check_available(path, f"cannot load a model from {path!r}")
            text = " ".join(str(error).split())[:200]
            raise ConfigError(f"cannot load the config.json of the model {path!r}: {text}") from error
        try:
            family = family_of(config)
        except ConfigError as error:
            raise ConfigError(f"the model in {path} cannot be used: {error}") from error
        model = _read_model(path, dtype) if whole else _empty_model(config, dtype)
        try:
            image_processor = AutoImageProcessor.from_pretrained(path, backend="pil")
            tokenizer = AutoTokenizer.from_pretrained(path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot load the tokenizer and image processor in {path}: {error}") from error
        speed_up(model)
        return cls(model, ChatProcessor(tokenizer, image_processor, family, _ends(path, config)))

    def restrict(self, vision: bool, adapters: LoraOptions, resume: Path | None = None, seed: int = 0) -> None:
        """Choose which weights are trained; all are unless this is called.

        Args:
            vision: Train the vision tower.
            adapters: Train adapters of the language model instead of all weights, if their rank is not 0.
            resume: Folder written by `save` to take trained adapters from.
            seed: Seed of fresh adapters.

        Raises:
            ConfigError: peft is missing, or the adapters to resume from are missing or others.
        """
        if not vision:
            for name in self.processor.family.vision:
                self.model.model.get_submodule(name).requires_grad_(False)
        if adapters.rank:
            lora.add_adapters(self.model, adapters, seed)
            if resume:
                lora.load_adapters(self.model, adapters, resume)

    def checkpoint_gradients(self, kept: int = 0) -> None:
        """Keep no activations for the backward pass but compute them again in it.

        Args:
            kept: The last decoder layers that keep theirs all the same.
        """
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        layers = self.model.model.language_model.layers
        for layer in layers[max(0, len(layers) - kept) :]:
            layer.gradient_checkpointing = False
        # transformers lets the inputs of every tower require a gradient, as reentrant checkpoints need: the backward
        # pass would go through a frozen vision tower, too, and run it twice more.
        self.model.disable_input_require_grads()

    def save(self, folder: Path | None) -> None:
        """Write model, tokenizer and image processor, loadable with `from_pretrained`; adapters are merged into it.

        Args:
            folder: The folder. If processes share the weights, all of them have to call this, those that do not write
                with None.
        """
        weights = self.weights(folder is not None)
        if folder is not None:
            self.write(weights, folder)

    def weights(self, keep: bool = True, copy: bool = False) -> PolicyWeights:
        """Return whole weights in fp32, adapters merged; those that are gathered or merged are on the CPU.

        Args:
            keep: Whether this process needs them; if processes share the weights, all of them have to call this.
            copy: Copy all of them to the CPU, so that training can go on before they are written.
        """
        found: dict[str, torch.Tensor] = {}
        if is_sharded(self.model) or (keep and lora.has_adapters(self.model)):
            for name, weight in named_weights(self.model, torch.float32):
                if keep:
                    found[name] = weight.to("cpu", copy=copy)
        elif keep:
            found = self.model.state_dict()
            found = copied(found) if copy else found  # Tied weights stay tied.
        return PolicyWeights(found, lora.adapters(self.model, keep))

    def write(self, weights: PolicyWeights, folder: Path) -> None:
        """Write what `weights` returned, the tokenizer and the image processor."""
        self.model.save_pretrained(folder, state_dict=weights.merged)
        if weights.adapters:
            # `save_pretrained` names the type of the frozen weights in config.json; the merged ones are in fp32.
            config = deepcopy(self.model.config)
            for part in (config, *(getattr(config, name) for name in config.sub_configs)):
                part.dtype = torch.float32
            config.save_pretrained(folder)
            lora.save_adapters(weights.adapters, folder, lora.alpha_of(self.model))
        self.processor.tokenizer.save_pretrained(folder)
        self.processor.image_processor.save_pretrained(folder)


def _read_model(path: str, dtype: torch.dtype) -> Any:
    try:
        model, report = AutoModelForImageTextToText.from_pretrained(path, dtype=dtype, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"cannot load the weights in {path}: {error}") from error
    wrong = sorted(report["missing_keys"]) + [str(m) for m in report["mismatched_keys"]]
    if wrong:
        raise ConfigError(f"the weights in {path} are of another model than its config.json: {', '.join(wrong[:3])} …")
    return model


def _ends(path: str, config: Any) -> list[int]:
    """Return the tokens that end a reply by a model's generation_config.json, or without one by its config.json."""
    try:
        found = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:
        found = GenerationConfig.from_model_config(config).eos_token_id
    return found if isinstance(found, list) else [] if found is None else [found]


def _empty_model(config: Any, dtype: torch.dtype) -> Any:
    with torch.device("meta"):
        return AutoModelForImageTextToText.from_config(config, dtype=dtype).eval()
