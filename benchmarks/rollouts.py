"""Measures the cost of waiting: rollouts in rounds or independently, with the same engine and environments.

Run `python benchmarks/rollouts.py [--episodes 64] [--concurrent 32] [--judge 1.0] [--sandbox 0.1] [--hf]`. The engine
is a stand-in whose decoding takes as long as a large model's: `--decode` seconds per step for all sequences together,
and completions of 20 to `--tokens` tokens. Environments, sandbox, image processing and tokens are real; each judge
call and each program takes a random additional time (exponential, with the given mean in seconds). The policy looks
twice and then answers. Both ways run the same episodes with the same lengths and delays, alternating, `--repeats`
times. `--hf` adds the `hf` engine with a toy, which samples in rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from codev_agents import Oracle, run_episode
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.options import ToyModelOptions
from codev_agents.engines.policy import Policy
from codev_agents.rollout.engine import Completion, Engine, Prompt, Sampling
from codev_agents.rollout.runner import RolloutRunner
from codev_env.envs.image_tool import unwrap
from codev_env.judges import GroundTruthJudge
from codev_env.types import StepScore
from codev_train.run.environments import make_env
from codev_train.run.options import EnvOptions, SFTOptions
from codev_train.sft.cold_start import toy_policy

ENV = EnvOptions(scenes="tiny", max_turns=6)
LOOKS = 2


def drawn(*what: Any) -> np.random.Generator:
    """Random numbers seeded by their purpose, so that both ways draw the same."""
    return np.random.default_rng(zlib.crc32(repr(what).encode()))


class InRounds:
    """A stand-in that samples batches; a batch takes as long as its longest completion."""

    def __init__(self, policy: Policy, plays: dict[int, Sequence[str]], decode_s: float, tokens: int) -> None:
        self.processor, self.plays, self.decode_s, self.tokens = policy.processor, plays, decode_s, tokens
        self.decoded_s = 0.0

    def length_s(self, prompt: Prompt) -> float:
        """Return how long a completion takes to decode."""
        length = drawn("length", scene_of(prompt), len(prompt.images)).integers(20, self.tokens + 1)
        self.decoded_s += self.decode_s * int(length)
        return self.decode_s * int(length)

    def answer(self, prompt: Prompt) -> Completion:
        """Return the policy's text."""
        text = self.plays[scene_of(prompt)][len(prompt.images) - 1]
        ids = [*self.processor.encode(text), self.processor.eos_id]
        return Completion(ids, [-0.5] * len(ids), prompt.ids)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion]:
        """Sample a batch."""
        time.sleep(max(self.length_s(prompt) for prompt in prompts))
        return [self.answer(prompt) for prompt in prompts]

    def seed(self, seed: int) -> None:
        """Nothing is drawn here."""

    def sleep(self) -> None:
        """Nothing is held."""

    def sync(self, model: Any) -> dict[str, float]:
        """There are no weights."""
        return {}


class AtOnce(InRounds):
    """The same, for requests that arrive one by one."""

    def new_seed(self) -> int:
        """Nothing is drawn here."""
        return 0

    async def complete(
        self, prompt: Prompt, sampling: Sampling, seed: int, decoding: AbstractContextManager[None]
    ) -> Completion:
        """Sample one completion."""
        with decoding:
            await asyncio.sleep(self.length_s(prompt))
            return self.answer(prompt)


class SlowJudge:
    """Ground truth behind a slow server."""

    name = "slow"

    def __init__(self, mean_s: float) -> None:
        self.mean_s = mean_s

    def score(self, task: Any, step: Any, history: Any) -> StepScore:
        """Score after a delay."""
        time.sleep(self.delay_s(task, history))
        return GroundTruthJudge().score(task, step, history)

    async def ascore(self, task: Any, step: Any, history: Any) -> StepScore:
        """Score after a delay."""
        await asyncio.sleep(self.delay_s(task, history))
        return GroundTruthJudge().score(task, step, history)

    def delay_s(self, task: Any, history: Any) -> float:
        """Return how long it takes."""
        return float(drawn("judge", task.task_id, len(history)).exponential(self.mean_s))


def scene_of(prompt: Prompt) -> int:
    """Return the key of a prompt's task."""
    return zlib.crc32(prompt.images[0].values.numpy().tobytes())


def make_plays(policy: Policy, count: int) -> dict[int, Sequence[str]]:
    """Return the policy's text in each turn, by task."""
    env, plays = make_env(ENV, "train"), {}
    for index in range(count):
        played = run_episode(env, Oracle(snap=56), options={"index": index})
        look, answer = played.turns[0].action, played.turns[-1].action
        image = policy.processor.image(np.asarray(played.images[0]))
        plays[scene_of(Prompt([], [image]))] = [*[look] * LOOKS, answer]
    env.close()
    return plays


def measure(engine: Engine, policy: Policy, options: argparse.Namespace) -> tuple[float, float]:
    """Return seconds of one call of `play`, and the share of it in which the engine was idle."""

    def make() -> Any:
        env = make_env(ENV, "train")
        base = unwrap(env)
        base.judge, execute = SlowJudge(options.judge), base.execute

        def slow(action: str) -> Any:
            turn = len(base.episode.steps)
            time.sleep(float(drawn("sandbox", base.task.task_id, turn).exponential(options.sandbox)))
            return execute(action)

        base.execute = slow
        return env

    runner = RolloutRunner(make, policy.processor, options.workers, options.concurrent)
    try:
        started = time.perf_counter()
        runner.play(engine, range(options.episodes), 1, Sampling(1.0, options.tokens))
        seconds = time.perf_counter() - started
    finally:
        runner.close()
    return seconds, runner.idle_s / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--concurrent", type=int, default=32)
    parser.add_argument("--workers", type=int, default=8, help="slow programs here sleep, so more than cores")
    parser.add_argument("--judge", type=float, default=1.0)
    parser.add_argument("--sandbox", type=float, default=0.1)
    parser.add_argument("--decode", type=float, default=0.02)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--hf", action="store_true")
    options = parser.parse_args()
    policy = toy_policy(SFTOptions(env=ENV, snap=56, toy=ToyModelOptions(view=70, min_view=56, hidden=64)))
    plays = make_plays(policy, options.episodes)
    kinds = {"in rounds": InRounds, "independently": AtOnce}
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in kinds}
    for _ in range(options.repeats):
        for name, kind in kinds.items():
            engine = kind(policy, plays, options.decode, options.tokens)
            seconds, idle = measure(engine, policy, options)
            rows[name].append((seconds, idle, engine.decoded_s / seconds))
    if options.hf:
        seconds, idle = measure(HFEngine(policy.model, policy.processor, seed=0), policy, options)
        rows["`hf`, a toy, in rounds"] = [(seconds, idle, float("nan"))]
    print("| episodes | seconds | engine idle | sequences decoded at a time |")
    print("| --- | --- | --- | --- |")
    for name, found in rows.items():
        seconds, idle, busy = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"| {name} | {seconds:.1f} | {idle:.0%} | {'–' if busy != busy else f'{busy:.1f}'} |")


if __name__ == "__main__":
    main()
