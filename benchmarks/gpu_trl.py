"""Gradient steps of TRL's `GRPOTrainer` on given trajectories: its own rollouts are replaced, all else is TRL's."""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import torch


def run(model: Any, size: Any, samples: list[Any], lora: bool, cuda: bool, steps: int = 3) -> float:
    """Take steps; returns the median seconds of one, without the first."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        tempfile.mkdtemp(), max_steps=steps, learning_rate=1e-6, lr_scheduler_type="constant", optim="adamw_torch",
        per_device_train_batch_size=1, gradient_accumulation_steps=len(samples), num_generations=len(samples),
        max_completion_length=max(map(len, samples)), bf16=True, use_cpu=not cuda, gradient_checkpointing=True,
        loss_type="dapo", save_strategy="no", report_to="none", logging_steps=1000, disable_tqdm=True,
    )  # fmt: skip
    times: list[float] = []

    class Fixed(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            return batch(samples, size.ids.pad_id, size.ids.image_id, self.accelerator.device)

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            synchronize(cuda)
            times.append(-time.perf_counter())

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            synchronize(cuda)
            times[-1] += time.perf_counter()

    from codev_agents.engines import lora as adapters

    for parameter in model.model.visual.parameters():
        parameter.requires_grad_(False)
    peft = LoraConfig(r=16, lora_alpha=32, target_modules=adapters._TARGETS) if lora else None
    trainer = Fixed(
        model,
        reward_funcs=[lambda completions, **rest: [0.0] * len(completions)],
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": "text"}] * len(samples)),
        processing_class=tokenizer(),
        peft_config=peft,
        callbacks=[Clock()],
    )
    trainer.train()
    return statistics.median(times[1:])


def synchronize(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


def batch(samples: list[Any], pad: int, image: int, device: Any) -> dict[str, Any]:
    """Return what TRL's rollouts return: prompts padded on the left, the rest on the right."""
    prompts = [sample.turns.index(0) for sample in samples]
    before, after = max(prompts), max(len(s) - p for s, p in zip(samples, prompts, strict=True))
    ids = torch.full((len(samples), before + after), pad)
    mask, sampled = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (sample, prompt) in enumerate(zip(samples, prompts, strict=True)):
        part = slice(before - prompt, before - prompt + len(sample))
        ids[row, part] = torch.tensor(sample.ids)
        mask[row, part] = 1
        sampled[row, part] = torch.tensor(sample.mask).long()
    tool_mask = sampled[:, before:]
    blocks = [block for sample in samples for block in sample.images]
    made = {
        "prompt_ids": ids[:, :before],
        "prompt_mask": mask[:, :before],
        "completion_ids": ids[:, before:],
        "completion_mask": mask[:, before:],
        "tool_mask": tool_mask,
        "advantages": torch.stack([sample.advantages.mean() for sample in samples]).float(),
        "num_items_in_batch": tool_mask.sum(),
        "pixel_values": torch.cat([block.values for block in blocks]),
        "image_grid_thw": torch.tensor([block.grid for block in blocks]),
        "mm_token_type_ids": (ids == image).int() * mask.int(),
    }
    moved = {name: value.to(device) for name, value in made.items()}
    return moved | {"num_images": [len(sample.images) for sample in samples]}


def tokenizer() -> Any:
    """A tokenizer for TRL to read special tokens from: it sees no text."""
    from codev_agents.engines.toy import build_tokenizer

    return build_tokenizer(["a line of text"], [], [])
