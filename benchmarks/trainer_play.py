"""The episodes of both trainers of `trainer.py`, of fixed length in the real environment, and the measurement of a run.

The policy samples every token itself, from random weights, but its text is ignored: a script determines the program in
the sandbox (a crop of another place in each turn) and the end of the episode (the right answer in every second
rollout, so that every rollout has an advantage). End-of-turn tokens are banned from sampling, so each turn has exactly
the number of tokens of the case. Both trainers therefore sample, see and train on equal amounts.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from codev_agents.engines.options import ToyModelOptions
from codev_agents.engines.policy import Policy
from codev_agents.writing import answer_turn, crop_turn
from codev_env.envs.image_tool import ImageToolEnv, unwrap
from codev_env.types import Task
from codev_train.run.options import EnvOptions


@dataclass(frozen=True)
class Case:
    """A batch that both trainers run and train on.

    Attributes:
        about: In words.
        prompts: Tasks per step.
        group: Rollouts per task.
        turns: Turns of the shortest and of the longest rollout of a task; those between are spread evenly.
        tokens: Sampled tokens per turn.
        micro_batch: Trajectories per forward pass of the update, where they are padded.
        budget: Tokens per forward pass, where trajectories are packed: as many as `micro_batch` of the longest.
        toy: The model and its view of images.
    """

    about: str
    prompts: int
    group: int
    turns: tuple[int, int]
    tokens: int
    micro_batch: int
    budget: int
    toy: ToyModelOptions

    @property
    def rows(self) -> int:
        """Rollouts per step."""
        return self.prompts * self.group

    def turns_of(self, member: int) -> int:
        """Return how many turns a rollout takes, given its number in the group."""
        low, high = self.turns
        return low + member * (high - low) // (self.group - 1)


ENV = EnvOptions(scenes="toy", max_turns=8)
_TINY = ToyModelOptions(hidden=64, layers=2, heads=2, view=84, min_view=84)
_SHORT = ToyModelOptions(view=84, min_view=84, vision_hidden=32, vision_layers=1)
_LONG = ToyModelOptions(view=560, min_view=560, patch=14, vision_hidden=32, vision_layers=1)
CASES = {
    "micro": Case("for the tests", 2, 4, (1, 3), 6, 4, 1024, _TINY),
    "short": Case("2 turns", 8, 4, (2, 2), 32, 8, 1600, _SHORT),
    "long": Case("6 turns", 2, 4, (6, 6), 32, 2, 6200, _LONG),
    "mixed": Case("1 to 6 turns", 2, 6, (1, 6), 32, 2, 6200, _LONG),
}


class ScriptedPlay(gym.Wrapper):
    """Acts by the script instead of by the given text.

    Args:
        env: The environment.
        case: How long its episodes are.
        played: How often each task was played, by index; shared by the environments of a run.
    """

    _lock = threading.Lock()

    def __init__(self, env: gym.Env[Any, Any], case: Case, played: Counter[int]) -> None:
        super().__init__(env)
        self.case, self.played, self.member, self.left = case, played, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode, as the next member of its task's group."""
        index = (options or {})["index"]
        with self._lock:
            self.member = self.played[index] % self.case.group
            self.played[index] += 1
        self.left = self.case.turns_of(self.member)
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> Any:
        """Take the next scripted turn."""
        self.left -= 1
        base = unwrap(self.env)
        if self.left:
            return super().step(crop(base, self.member, self.left))
        return super().step(answer(base, right=self.member % 2 == 0))


def crop(env: ImageToolEnv, member: int, left: int) -> str:
    """Write a turn that looks at a square of half the image's side, another one each time."""
    width, height = env.task.image.size
    side = min(width, height) // 2
    x, y = np.random.default_rng((member, left)).integers((width - side, height - side)).tolist()
    return crop_turn(env.dialect, (x, y, x + side, y + side))


def answer(env: ImageToolEnv, right: bool) -> str:
    """Write the last turn."""
    task: Task = env.task
    return answer_turn(env.dialect, task.answer if right else "I do not know", looked=True)


def banned(policy: Policy, stop: tuple[str, ...]) -> list[int]:
    """Return the ids that must not be sampled: image tokens, and tokens that end a turn early."""
    processor = policy.processor
    ends = [policy.processor.tokenizer.convert_tokens_to_ids(text) for text in stop]
    return sorted({*processor.banned_ids, processor.eos_id, processor.pad_id, *(i for i in ends if i is not None)})


class Watch:
    """Measures one run: seconds by step and phase, peak memory by phase, and the computation of the model.

    The phases are `rollouts` and `update`; of the first, `sampling` counts the seconds inside the engine.
    """

    def __init__(self, model: Any) -> None:
        self.base = resident()
        self.phase = "rollouts"
        self.peaks = {"rollouts": 0.0, "update": 0.0}
        self.steps: list[dict[str, float]] = []
        self._now: dict[str, float] = {}
        self._marks = (time.perf_counter(), time.process_time())
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        model.model.language_model.register_forward_pre_hook(self._count_positions, with_kwargs=True)
        model.model.visual.register_forward_pre_hook(self._count_patches, with_kwargs=True)

    def add(self, name: str, value: float) -> None:
        """Add to a number of the present step."""
        self._now[name] = self._now.get(name, 0.0) + value

    def enter(self, phase: str) -> None:
        """Begin a phase; the time since the last call belongs to the one before."""
        now = (time.perf_counter(), time.process_time())
        self.add(f"{self.phase}_seconds", now[0] - self._marks[0])
        self.add(f"{self.phase}_cpu", now[1] - self._marks[1])
        self._marks, self.phase = now, phase

    def end_step(self) -> None:
        """Close the present step."""
        self.enter("rollouts")
        self.steps.append(self._now)
        self._now = {}

    def close(self) -> dict[str, Any]:
        """Stop, and return the measurements; memory in MiB above that of the loaded model."""
        self._done.set()
        self._thread.join()
        return {"steps": self.steps, "base": self.base} | {
            f"{phase}_mib": max(0.0, peak - self.base) for phase, peak in self.peaks.items()
        }

    def timed(self, function: Any) -> Any:
        """Wrap a function of the engine so that its seconds count as sampling."""

        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.add("sampling_seconds", time.perf_counter() - started)

        return call

    def _count_positions(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        rows, length = kwargs["inputs_embeds"].shape[:2]
        self.add("update_positions" if torch.is_grad_enabled() else "rollouts_positions", rows * length)

    def _count_patches(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Count the patches computed in the rollouts, and in the update those learned from, however often computed."""
        if torch.is_grad_enabled():
            grids = args[1] if len(args) > 1 else kwargs["grid_thw"]
            self.add("update_patches", int(grids.prod(-1).sum()))
        else:
            self.add("rollouts_patches", len(args[0] if args else kwargs["hidden_states"]))

    def _follow(self) -> None:
        while not self._done.wait(0.005):
            self.peaks[self.phase] = max(self.peaks[self.phase], resident())


def resident() -> float:
    """Return the memory this process holds itself, in MiB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024
