"""Options of engines, adapters and the toy model."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from codev_env.app.options import Field, ValueRefused, field_validator, model_validator, option_class

AtLeastOne = Annotated[int, Field(ge=1)]


@option_class
class VllmOptions:
    """How vLLM samples for the trainer; `hf` reads none of these."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of vLLM's weights; "auto" is float32 if the trainer runs on a CPU, else bfloat16."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a GPU's memory that `vllm` uses while it is awake."""
    url: tuple[str, ...] = ("http://localhost:8000",)
    """Addresses of the servers that `vllm-server` asks; each has a queue of its own."""
    folder: str = ""
    """Folder shared with the server, for the weights it is sent; empty is the system's temporary folder."""
    patience: Annotated[float, Field(ge=0)] = 300.0
    """Longest absence of all servers before the run ends with an error, in seconds."""
    timeout: Annotated[float, Field(gt=0)] = 1800.0
    """Longest wait for one completion of a server, in seconds."""
    exact_replay: bool = False
    """Give each completion a seed of its own, so that samples repeat at any order of requests; vLLM samples slower."""

    @field_validator("url", mode="before")
    @classmethod
    def _is_one_or_several(cls, url: object) -> object:
        return (url,) if isinstance(url, str) else url

    @field_validator("url")
    @classmethod
    def _are_addresses(cls, url: tuple[str, ...]) -> tuple[str, ...]:
        if not url or len(set(url)) < len(url) or not all(one.startswith(("http://", "https://")) for one in url):
            raise ValueError("one or several addresses such as http://node2:8000, each once")
        return url


@option_class
class LoraOptions:
    """Low-rank adapters (needs peft) instead of all weights."""

    rank: Annotated[int, Field(ge=0)] = 0
    """Rank, 0 to train all weights."""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """Scale of the adapters, divided by the rank."""


@option_class
class ToyModelOptions:
    """Size of the toy model."""

    hidden: AtLeastOne = 128
    """Width of the language model."""
    layers: AtLeastOne = 3
    """Layers of the language model."""
    heads: AtLeastOne = 4
    """Attention heads of the language model."""
    vision_hidden: AtLeastOne = 64
    """Width of the vision tower."""
    vision_layers: AtLeastOne = 2
    """Layers of the vision tower."""
    view: AtLeastOne = 84
    """Side of the model's view of a large image, in pixels; images are shrunk to at most its square."""
    min_view: AtLeastOne = 56
    """Side below which images are enlarged, in pixels."""
    patch: AtLeastOne = 7
    """Side of a vision patch, in pixels; 2 x 2 patches make one token."""

    @model_validator(mode="after")
    def _values_fit_together(self) -> Self:
        width = self.hidden // self.heads
        if width < 2 or width % 2:
            raise ValueRefused("hidden", self.hidden, f"a multiple of twice toy.heads, {2 * self.heads}")
        if self.vision_hidden % 16:
            raise ValueRefused("vision_hidden", self.vision_hidden, "a multiple of 16")
        if self.patch > self.view:
            raise ValueRefused("patch", self.patch, f"at most toy.view, {self.view}")
        return self
