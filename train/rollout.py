"""Rollouts: the policy plays episodes in the environment, and every token is kept as it was sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from codev_agents import record_episode, record_turn
from codev_env.rewards import Reward
from codev_env.trajectory import Trajectory, TurnRecord
from codev_train.engines.base import Completion, Engine, Prompt, Sampling
from codev_train.probe import probe
from codev_train.tokens import Codec, PixelBlock, TokenSequence


@dataclass(eq=False)
class Rollout:
    """One episode of the policy.

    Attributes:
        trajectory: Its record.
        tokens: Its tokens, as sampled.
        group: Number of the task in the batch; rollouts of the same task share it.
        rewards: Reward of each turn.
        cut: The token budget ended it before the environment did.
    """

    trajectory: Trajectory
    tokens: TokenSequence
    group: int
    rewards: list[float]
    cut: bool = False

    @property
    def judge_failed(self) -> bool:
        """Some tool call could not be judged: not to be trained on."""
        return any(turn.judge_failed for turn in self.trajectory.turns)


@dataclass(eq=False)
class _Slot:
    """An episode under way."""

    env: gym.Env[Any, Any]
    group: int
    index: int
    first: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    prompt: Prompt | None = None
    tokens: TokenSequence = field(default_factory=TokenSequence)
    turns: list[TurnRecord] = field(default_factory=list)
    done: bool = False
    cut: bool = False
    right: bool = False  # the policy, if probed, knows the answer


class Roller:
    """Plays batches of episodes with an engine.

    Args:
        make_env: Makes one environment; called once per rollout slot.
        codec: The tokenizer side of the policy.
        workers: Threads that step environments and process images.
        concurrent: Most episodes under way at the same time; a group is never split.
        max_length: Longest trajectory in tokens; an episode that would outgrow it is cut off between turns.
        name: Name of the policy in the records.
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        codec: Codec,
        workers: int = 2,
        concurrent: int = 256,
        max_length: int = 32768,
        name: str = "policy",
    ) -> None:
        self.make_env, self.codec, self.name = make_env, codec, name
        self.concurrent, self.max_length = concurrent, max_length
        self._envs: list[gym.Env[Any, Any]] = []
        self._threads = ThreadPoolExecutor(workers)

    def size(self) -> int:
        """Return how many tasks the environment has."""
        return len(self._env(0).unwrapped.tasks)  # type: ignore[attr-defined]

    def reward(self) -> Reward:
        """Return what the environment pays by."""
        return self._env(0).unwrapped.reward  # type: ignore[attr-defined]

    def play(self, engine: Engine, indices: Sequence[int], group: int, sampling: Sampling) -> list[Rollout]:
        """Play `group` episodes of each task.

        Args:
            engine: What samples.
            indices: Tasks, by index.
            group: Episodes per task.
            sampling: How to sample; the dialect's stop strings are added.

        Returns:
            Rollouts, those of one task next to each other.
        """
        rollouts: list[Rollout] = []
        tasks = max(1, self.concurrent // group)
        for start in range(0, len(indices), tasks):
            wave = [(start + n, index) for n, index in enumerate(indices[start : start + tasks]) for _ in range(group)]
            rollouts += self._play_wave(engine, wave, group, sampling)
        return rollouts

    def _play_wave(self, engine: Engine, wave: list[tuple[int, int]], group: int, sampling: Sampling) -> list[Rollout]:
        """Play episodes, given as (number of the group, index of the task), side by side."""
        slots = [_Slot(self._env(i), number, index) for i, (number, index) in enumerate(wave)]
        dialect = slots[0].env.unwrapped.dialect  # type: ignore[attr-defined]
        sampling = Sampling(sampling.temperature, sampling.max_tokens, tuple(dialect.stop))

        # 1. Reset, and tokenise each task's prompt once: its group shares ids and pixels.
        list(self._threads.map(self._reset, slots))
        prompts = dict(self._threads.map(self._first_prompt, slots[::group]))
        for slot in slots:
            slot.prompt = prompts[slot.group]
            slot.tokens.add_observation(slot.prompt.ids, slot.prompt.images)
        probing = "probing" in self.reward().needs
        if probing:
            self._probe(engine, slots[::group], sampling.max_tokens)
            for number, slot in enumerate(slots):
                slot.right = slots[number - number % group].right

        # 2. All running episodes take a turn together: sample, then step the environments in threads.
        while running := [slot for slot in slots if not slot.done]:
            completions = engine.generate([slot.prompt for slot in running if slot.prompt], sampling)
            list(self._threads.map(self._turn, running, completions, [sampling.max_tokens] * len(running)))
            if probing:
                self._probe(engine, [slot for slot in running if not slot.done], sampling.max_tokens)

        # 3. A group is complete: pay what depends on all of it.
        for start in range(0, len(slots), group):
            self._pay_group(slots[start : start + group])
        return [self._finish(slot) for slot in slots]

    def close(self) -> None:
        """Close the environments and end the threads."""
        self._threads.shutdown()
        for env in self._envs:
            env.close()

    def _env(self, number: int) -> gym.Env[Any, Any]:
        while len(self._envs) <= number:
            self._envs.append(self.make_env())
        return self._envs[number]

    def _reset(self, slot: _Slot) -> None:
        slot.first, slot.info = slot.env.reset(options={"index": slot.index})

    def _first_prompt(self, slot: _Slot) -> tuple[int, Prompt]:
        images = [self.codec.image(image) for image in slot.first["images"]]
        system = slot.env.unwrapped.system_prompt  # type: ignore[attr-defined]
        return slot.group, Prompt(self.codec.prompt(system, slot.first["text"], images), images)

    def _turn(self, slot: _Slot, completion: Completion, max_tokens: int) -> None:
        if list(completion.prompt_ids) != slot.tokens.ids:
            raise RuntimeError(
                "the engine sampled after other prompt ids than the trainer's; refusing to train on them"
            )
        slot.tokens.add_action(completion.ids, completion.logprobs, len(slot.turns))
        action = self.codec.decode(completion.ids)
        observation, reward, terminated, truncated, slot.info = slot.env.step(action)
        step = slot.env.unwrapped.episode.steps[-1]  # type: ignore[attr-defined]
        slot.turns.append(record_turn(step, observation, float(reward), slot.info))
        slot.done = terminated or truncated
        if slot.done:
            return
        images: list[PixelBlock] = [self.codec.image(image) for image in observation["images"]]
        role = slot.env.unwrapped.dialect.observation_role  # type: ignore[attr-defined]
        ids = self.codec.observation(observation["text"], images, after=completion.ids, role=role)
        if len(slot.tokens) + len(ids) + max_tokens > self.max_length:
            slot.done = slot.cut = True
            terms = slot.env.unwrapped.cut_off("max_length")  # type: ignore[attr-defined]
            slot.turns[-1] = _paid(slot.turns[-1], terms)
            slot.info = {**slot.info, "stop_reason": "max_length"}
            return
        slot.tokens.add_observation(ids, images)
        slot.prompt = Prompt(list(slot.tokens.ids), list(slot.tokens.images))

    def _probe(self, engine: Engine, slots: Sequence[_Slot], room: int) -> None:
        """Ask for the answer after the last turn. What a call changed is noted, and paid with the next turn."""
        if not slots:
            return
        found = probe(engine, self.codec, [slot.env for slot in slots], [slot.tokens for slot in slots], room)
        for slot, right in zip(slots, found, strict=True):
            if slot.turns and slot.turns[-1].kind == "code":
                step = slot.env.unwrapped.episode.steps[-1]  # type: ignore[attr-defined]
                step.probed = (slot.right, right)
                slot.turns[-1] = dataclasses.replace(slot.turns[-1], probed=step.probed)
            slot.right = right

    def _pay_group(self, slots: Sequence[_Slot]) -> None:
        """Add the terms that compare a task's rollouts to the last turn of each."""
        reward = self.reward()
        if not reward.group_terms:
            return
        episodes = [slot.env.unwrapped.episode for slot in slots]  # type: ignore[attr-defined]
        for slot, terms in zip(slots, reward.group_value(episodes), strict=True):
            slot.turns[-1] = _paid(slot.turns[-1], terms)

    def _finish(self, slot: _Slot) -> Rollout:
        trajectory = record_episode(slot.env, slot.first, slot.turns, slot.info, agent=self.name)
        return Rollout(trajectory, slot.tokens, slot.group, [turn.reward for turn in slot.turns], slot.cut)


def _paid(turn: TurnRecord, terms: Mapping[str, float]) -> TurnRecord:
    """Return a turn with more reward, given by term."""
    total = {name: value + terms.get(name, 0.0) for name, value in turn.reward_terms.items()}
    return dataclasses.replace(turn, reward=sum(total.values()), reward_terms=total)
