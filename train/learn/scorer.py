"""Scores tokens under the policy: the module that is trained."""

from __future__ import annotations

from typing import Any

import torch

from codev_agents.engines.batch import smallest_image, to_device
from codev_agents.engines.vision import looking_once
from codev_agents.engines.weights import is_sharded
from codev_train.learn.logprobs import token_logprobs
from codev_train.learn.packing import pack
from codev_train.learn.sequence import SequenceGroup


def compile_layers(model: Any, backend: str = "inductor") -> None:
    """Compile each decoder layer in place, for rows of any length; attention itself runs as it is.

    Args:
        model: The model.
        backend: Of `torch.compile`; `"eager"` only traces the layers, as a trial.
    """
    for layer in model.model.language_model.layers:
        layer.compile(dynamic=True, backend=backend)


class TokenScorer(torch.nn.Module):
    """Log-probabilities and entropies of chosen tokens; the module that is trained and that Accelerate wraps."""

    def __init__(self, model: Any, sequence: SequenceGroup | None = None) -> None:
        """Wrap a model.

        Args:
            model: The model.
            sequence: The processes that share each packed row out, if they do.
        """
        super().__init__()
        self.model, self.sequence = model, sequence
        if sequence:
            sequence.attach(model)
        # FSDP2 reads from the module that it wraps which layers to gather one at a time.
        self._no_split_modules = getattr(model, "_no_split_modules", None)

    def tie_weights(self) -> None:
        """Tie the model's weights again after they were replaced."""
        self.model.tie_weights()

    def forward(
        self,
        batch: dict[str, torch.Tensor],
        chosen: torch.Tensor,
        temperature: float = 1.0,
        banned: tuple[int, ...] = (),
        packed: bool = False,
        entropy_gradient: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Score tokens.

        Args:
            batch: Model inputs, right-padded; see `batch.collate`, also for images that are given once.
            chosen: Which tokens of `input_ids` to score, boolean `[batch, length]`; never the first of a row.
            temperature: As in `token_logprobs`.
            banned: As in `token_logprobs`.
            packed: Take the padding out before the model runs.
            entropy_gradient: As in `token_logprobs`.

        Returns:
            Log-probabilities and entropies of the chosen tokens in row-major order, each `[tokens]`.
        """
        inputs: dict[str, Any] = {name: value for name, value in batch.items() if name != "image_places"}
        if packed:
            inputs, chosen = pack(self.model, batch, chosen)
            if self.sequence:
                inputs, chosen = self.sequence.fill(inputs, chosen)
        blank = "pixel_values" not in inputs and self._meets_others()
        # Before the language model, as images are.
        nothing = 0.0 * self._run_vision(chosen.device) if blank else 0.0
        with looking_once(self.model, batch.get("image_places")):
            hidden = self.model.model(**inputs, use_cache=False).last_hidden_state
        if blank:
            hidden = hidden + nothing
        # The state at a token predicts the next one.
        before, targets = chosen.roll(-1, dims=1), inputs["input_ids"].roll(-1, dims=1)
        if self.sequence and packed:
            own = self.sequence.own(chosen.shape[1])
            counts = before.unflatten(1, (self.sequence.size, -1)).sum((0, 2)).tolist()
            before, targets = before[:, own], targets[:, own]
        head = self.model.get_output_embeddings()
        values = token_logprobs(hidden[before], head, targets[before], temperature, banned, entropy_gradient)
        if self.sequence and packed:
            return self.sequence.gather(values[0], counts), self.sequence.gather(values[1], counts)
        return values

    def _meets_others(self) -> bool:
        """Return whether other processes wait for the vision tower of this one.

        Processes that share the weights meet in every layer, forward and backward: all of them run the same layers.
        Processes with whole copies wait for the gradient of every weight that is trained.
        """
        copied = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
        return is_sharded(self.model) or (copied and self.training)

    def _run_vision(self, device: torch.device) -> torch.Tensor:
        """Run the vision tower on the smallest image and add its outputs up."""
        image = to_device(smallest_image(self.model.config), device)
        found = self.model.model.get_image_features(**image)
        return _total([found.pooler_output, getattr(found, "deepstack_features", ())])


def _total(values: Any) -> Any:
    return values.sum() if isinstance(values, torch.Tensor) else sum(_total(value) for value in values)
