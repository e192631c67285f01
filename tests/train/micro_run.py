"""The smallest training run that does everything: its configuration, its reward, and what reads its results."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file

from codev_agents.engines.options import ToyModelOptions
from codev_env.rewards import REWARDS, Reward, Term
from codev_env.types import Episode

TOY = {"hidden": 32, "layers": 2, "heads": 2, "vision_hidden": 16, "vision_layers": 1}
TOY |= {"view": 112, "min_view": 56, "patch": 14}
TOY_OPTIONS = ToyModelOptions(**TOY)

CONFIG: dict[str, Any] = {
    "about": "A micro run.",
    "env": {"scenes": "toy", "scene": {"cue_p": 0.5}, "max_turns": 2},
    "sft": {
        "snap": 112,
        "pool": 8,
        "micro_batch": 4,
        "toy": TOY,
        "ground": {"steps": 2, "captions": 1, "reads": 1, "experts": 1, "optimizer": {"lr": 1e-3}},
        "imitate": {"steps": 2, "captions": 0, "reads": 0, "experts": 1, "decorative": 1, "optimizer": {"lr": 1e-3}},
    },
    "train": {
        "reward": "micro_run:REWARD",
        "steps": 3,
        "prompts": 2,
        "group": 2,
        "max_tokens": 24,
        "micro_batch": 3,
        "save_every": 1,
        "keep": 2,
        "show_every": 1,
        "optimizer": {"lr": 1e-3},
        "eval": {"episodes": 4},
    },
}
TIMINGS = ("seconds/", "tokens_per_second/", "ranks/", "memory/")


def letters(episode: Episode) -> float:
    """Lower-case letters the policy wrote: what a policy of random weights can already be rewarded for."""
    return sum(c.islower() for step in episode.steps for c in step.action) / 100


REWARD = Reward("micro", (*REWARDS["tapo"].terms, Term("letters", letters, 1.0)))


def write_config(path: Path) -> Path:
    """Write the configuration as YAML."""
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def history(run: Path) -> list[dict[str, Any]]:
    """The numbers of each update."""
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The numbers that a repetition has to repeat."""
    return [{k: v for k, v in row.items() if not k.startswith(TIMINGS)} for row in rows]


def weights(model: Path) -> dict[str, torch.Tensor]:
    """The tensors of a saved model."""
    return load_file(model / "model.safetensors")


def same_weights(a: Path, b: Path) -> bool:
    """Whether two saved models are equal bit by bit."""
    x, y = weights(a), weights(b)
    return x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)


def visible(folder: Path) -> set[str]:
    """The names in a folder."""
    return {path.name for path in folder.iterdir()}


def leave(accelerator: Any) -> None:
    """End one of several processes when all are done; what is tested lies on disk.

    torch frees a gloo group with the GIL held and joins its threads, which may be waiting for the GIL: now and then a
    process hangs for ever at its end.
    """
    accelerator.wait_for_everyone()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
