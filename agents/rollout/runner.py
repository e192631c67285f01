"""Rollouts: the policy plays episodes in the environment, and every token is kept as it was sampled."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym

from codev_agents.rollout.engine import Engine, Sampling
from codev_agents.rollout.player import EpisodePlayer, Group, Rollout, RolloutContext
from codev_agents.rollout.probe import Probe
from codev_agents.rollout.requests import open_requests
from codev_agents.rollout.tokens import ChatProcessor, TokenSequence
from codev_agents.rollout.workers import Workers, all_or_none
from codev_env.rewards import Reward

__all__ = ["RolloutRunner", "Rollout"]


class RolloutRunner:
    """Plays batches of episodes with an engine, each episode at its own pace.

    Args:
        make_env: Makes one environment; called as often as episodes are under way at the same time.
        processor: The tokenizer side of the policy.
        workers: Environments that are stepped, and images that are processed, at the same time; judges not counted.
        concurrent: Most episodes under way at the same time.
        max_length: Longest trajectory in tokens; an episode that would outgrow it is cut off between turns.
        name: Name of the policy in the records.
        step_timeout: Longest time of one call of an environment or its judge, in seconds, before the episode is cut
            off; 0 waits.
        mask_stragglers: Whether the turn that was cut off so counts as not judged, so that nothing is learned from it.
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        processor: ChatProcessor,
        workers: int = 2,
        concurrent: int = 256,
        max_length: int = 32768,
        name: str = "policy",
        step_timeout: float = 0.0,
        mask_stragglers: bool = True,
    ) -> None:
        self.make_env, self.processor, self.name = make_env, processor, name
        self.concurrent, self.max_length = concurrent, max_length
        self.step_timeout, self.mask_stragglers = step_timeout, mask_stragglers
        self.idle_s = 0.0
        """Seconds that engines had nothing to sample while episodes were played, in all."""
        self._free: list[gym.Env[Any, Any]] = []
        self._workers = Workers(workers)

    def size(self) -> int:
        """Return how many tasks the environment has."""
        return len(self._any_env().tasks)

    def reward(self) -> Reward:
        """Return what the environment pays by."""
        return self._any_env().reward

    def play(
        self,
        engine: Engine,
        indices: Sequence[int],
        group: int,
        sampling: Sampling,
        ended: Callable[[list[Rollout]], object] = lambda rollouts: None,
    ) -> list[Rollout]:
        """Play `group` episodes of each task.

        Args:
            engine: What samples.
            indices: Tasks, by index.
            group: Episodes per task.
            sampling: How to sample; the dialect's stop strings are added.
            ended: Called with each task's rollouts, as soon as all of them have ended.

        Returns:
            Rollouts, those of one task next to each other.

        Raises:
            Exception: The first error of an environment, a judge or the engine; then nothing is under way any more.
        """
        if _in_event_loop():  # a notebook's
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(self.play, engine, indices, group, sampling, ended).result()
        # Not `Runner.run`: it would put off a first Ctrl-C until a batch is sampled.
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            playing = loop.create_task(self._play(engine, indices, group, sampling, ended))
            try:
                return loop.run_until_complete(playing)
            except KeyboardInterrupt:
                _give_up(loop, playing)
                raise

    def guesses(self, engine: Engine, indices: Sequence[int], max_tokens: int) -> list[bool]:
        """Tell for each task whether the policy, made to answer before it has looked, begins with the right answer.

        Args:
            engine: What samples; greedily.
            indices: Tasks, by index.
            max_tokens: Longest turn, as in `play`.
        """
        env = self._take()
        base: Any = env.unwrapped
        probe = Probe(self.processor, base.dialect, max_tokens)
        tasks, prompts = [], []
        try:
            for index in indices:
                first, _ = env.reset(options={"index": index})
                images = [self.processor.image(image) for image in first["images"]]
                tokens = TokenSequence()
                tokens.add_observation(self.processor.prompt(base.system_prompt, first["text"], images), images)
                tasks.append(base.task)
                prompts.append(probe.prompt(tokens))
        finally:
            self._free.append(env)
        answers = engine.generate(prompts, probe.sampling)
        return [probe.starts_right(answer, task, base.scorer) for answer, task in zip(answers, tasks, strict=True)]

    def close(self) -> None:
        """End the threads and close the environments."""
        self._workers.close()
        for env in self._free:
            env.close()

    async def _play(
        self,
        engine: Engine,
        indices: Sequence[int],
        size: int,
        sampling: Sampling,
        ended: Callable[[list[Rollout]], object],
    ) -> list[Rollout]:
        base = self._any_env()
        sampling = Sampling(sampling.temperature, sampling.max_tokens, tuple(base.dialect.stop))
        probing = "probing" in base.reward.needs
        groups = [Group(number, index) for number, index in enumerate(indices)]
        episodes = iter([(group, place) for group in groups for place in range(size)])
        self._workers.open()
        requests = open_requests(engine)
        context = RolloutContext(
            requests,
            self._workers,
            self.processor,
            base.reward,
            sampling,
            self.max_length,
            self.step_timeout,
            self.mask_stragglers,
            self.name,
            Probe(self.processor, base.dialect, sampling.max_tokens) if probing else None,
        )
        try:
            seats = min(self.concurrent, size * len(groups))
            await all_or_none(self._seat(context, episodes, size, ended) for _ in range(seats))
        finally:
            await requests.close()
            self.idle_s += requests.clock.idle_s
        return [group.played[place][0] for group in groups for place in range(size)]

    async def _seat(
        self,
        context: RolloutContext,
        episodes: Iterator[tuple[Group, int]],
        size: int,
        ended: Callable[[list[Rollout]], object],
    ) -> None:
        """Play one episode after the other, until none is left to begin."""
        with context.requests.player():
            for group, place in episodes:
                player = EpisodePlayer(context, self._take(), group, group.number * size + place)
                try:
                    group.played[place] = await player.play()
                finally:
                    if not player.lost:
                        self._free.append(player.env)
                if len(group.played) == size:
                    _pay_group(context.reward, group)
                    ended([group.played[i][0] for i in range(size)])

    def _take(self) -> gym.Env[Any, Any]:
        return self._free.pop() if self._free else self.make_env()

    def _any_env(self) -> Any:
        if not self._free:
            self._free.append(self.make_env())
        return self._free[0].unwrapped


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _give_up(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """End a task after an interrupt, and take whatever it ends with, so that asyncio does not print it later."""
    if not task.done():
        task.cancel()
        with contextlib.suppress(BaseException):  # mostly the same interrupt, which the caller raises
            loop.run_until_complete(task)
    if task.done() and not task.cancelled():
        task.exception()


def _pay_group(reward: Reward, group: Group) -> None:
    """Add the terms that compare a task's rollouts to the last turn of each."""
    if not reward.group_terms:
        return
    places = sorted(group.played)
    terms = reward.group_value([group.played[place][1] for place in places])
    for place, paid_now in zip(places, terms, strict=True):
        rollout, episode = group.played[place]
        turns = (*rollout.trajectory.turns[:-1], rollout.trajectory.turns[-1].paid_more(paid_now))
        trajectory = dataclasses.replace(rollout.trajectory, turns=turns)
        rewards = [turn.reward for turn in turns]
        group.played[place] = dataclasses.replace(rollout, trajectory=trajectory, rewards=rewards), episode
