"""Rollouts: the policy plays episodes in the environment, and every token is kept as sampled."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

import gymnasium as gym

from codev_agents.agent import AgentError
from codev_agents.episode import MOST_STARTS
from codev_agents.rollout.engine import Engine, EngineError, Sampling
from codev_agents.rollout.player import (
    EpisodePlayer,
    Group,
    PlayedEpisode,
    Rollout,
    RolloutContext,
)
from codev_agents.rollout.probe import Probe
from codev_agents.rollout.requests import IdleClock, open_requests
from codev_agents.rollout.selection import GroupSource, Selection
from codev_agents.rollout.tokens import ChatProcessor, TokenSequence
from codev_agents.rollout.unplayable import UNPLAYABLE
from codev_agents.rollout.workers import Memo, Workers, all_or_none, run
from codev_env.dialects import Dialect
from codev_env.envs.image_tool import ImageToolEnv, unwrap
from codev_env.errors import CodevError, EpisodeLost, TaskError
from codev_env.rewards import Reward
from codev_env.trajectory import Trajectory
from codev_env.usage import EpisodeUsage

__all__ = ["RolloutRunner", "Rollout"]

Ended = Callable[[list[Rollout]], object]


class _Enough(Exception):
    """The groups that are wanted have ended; the others are given up."""


class RolloutRunner:
    """Plays batches of episodes with an engine, each episode at its own pace.

    Args:
        make_env: Makes one environment; called as often as episodes are under way at the same time.
        processor: The tokenizer side of the policy.
        workers: Most environments and images that are stepped and processed at the same time; judges are not counted.
        concurrent: Most episodes under way at the same time.
        max_length: Longest trajectory in tokens; an episode that would outgrow it is cut off between turns.
        name: Name of the policy in the records.
        step_timeout: Longest time of one call of an environment or its judge, in seconds, before the episode is cut
            off; 0 is no limit.
        mask_stragglers: Whether a turn that was cut off so counts as not judged, so that its episode is not trained on.
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
        self._idle_s = 0.0
        self._clock: IdleClock | None = None
        self._free: list[gym.Env[Any, Any]] = []
        self._taking = threading.Lock()
        self._base: ImageToolEnv | None = None
        self._workers = Workers(workers)

    @property
    def idle_s(self) -> float:
        """Total seconds that engines had nothing to sample while episodes were under way."""
        return self._idle_s + (self._clock.read() if self._clock else 0.0)

    def size(self) -> int:
        """Return the number of tasks of the environment."""
        return len(self._any_env().tasks)

    def reward(self) -> Reward:
        """Return the environment's reward."""
        return self._any_env().reward

    def dialect(self) -> Dialect:
        """Return the environment's dialect."""
        return self._any_env().dialect

    def __enter__(self) -> RolloutRunner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def play(
        self,
        engine: Engine,
        indices: Sequence[int],
        group: int,
        sampling: Sampling,
        ended: Ended = lambda rollouts: None,
    ) -> list[Rollout]:
        """Play `group` episodes of each task.

        Args:
            engine: Samples the completions.
            indices: Tasks, by index.
            group: Episodes per task.
            sampling: How to sample; the dialect's stop strings are added.
            ended: Called with each task's rollouts, as soon as all of them have ended.

        Returns:
            Rollouts, those of one task next to each other.

        Raises:
            Exception: The first error of an environment, a judge or the engine; nothing is under way any more then.
        """
        selection = Selection(indices, len(indices), len(indices))
        self.select(engine, selection, group, sampling, ended)
        if selection.skipped:
            raise AgentError(selection.skipped[0].reason(sampling.max_tokens, self.max_length))
        return selection.rollouts

    def select(
        self,
        engine: Engine,
        selection: Selection,
        group: int,
        sampling: Sampling,
        ended: Ended = lambda rollouts: None,
        memory: int = 0,
    ) -> None:
        """Play `group` episodes of each task that a selection draws, until it has enough groups; it has the results.

        A task that cannot be read, or whose first prompt leaves no room for a turn, is skipped. As long as the
        selection draws, free places are filled with further groups; those that are under way when it has enough are
        given up. The arguments are those of `play_groups`.

        Raises:
            Exception: As `play`.
        """
        run(self.play_groups(engine, selection, group, sampling, ended, memory))

    def attempt(
        self, engine: Engine, indices: Sequence[int], sampling: Sampling, meta: Sequence[Mapping[str, Any]]
    ) -> list[Trajectory | CodevError]:
        """Play one episode of each task; one that fails does not end the others.

        Args:
            engine: Samples the completions.
            indices: Tasks, by index.
            sampling: How to sample; the dialect's stop strings are added.
            meta: JSON-able extras of each record; `"agent"` is added, with the token usage.

        Returns:
            For each task the record of its episode, or the error of its environment or judge. A first prompt that
            leaves no room for an answer is a `PromptTooLong`.

        Raises:
            Exception: An error of the engine, or one that is not a `CodevError`.
        """
        return run(self._attempt(engine, indices, sampling, meta))

    def guesses(self, engine: Engine, indices: Sequence[int], max_tokens: int) -> list[bool]:
        """Return for each task whether the policy, made to answer before it has looked, begins with the right answer.

        For a task that cannot be read, or whose first prompt leaves no room for a turn, this is true.

        Args:
            engine: Samples the answers, greedily.
            indices: Tasks, by index.
            max_tokens: Longest turn, as in `play`.
        """
        env = self._take()
        base = unwrap(env)
        probe = Probe(self.processor, base.dialect, max_tokens)
        right = dict.fromkeys(range(len(indices)), True)
        tasks, prompts = {}, []
        try:
            for number, index in enumerate(indices):
                try:
                    first, _ = env.reset(options={"index": index})
                except TaskError:  # whoever plays it says so
                    continue
                images = [self.processor.image(image) for image in first["images"]]
                tokens = TokenSequence()
                tokens.add_observation(self.processor.prompt(base.system_prompt, first["text"], images), images)
                if len(tokens) + max_tokens <= self.max_length:
                    tasks[number] = base.task
                    prompts.append(probe.prompt(tokens))
        finally:
            self._free.append(env)
        # No more is sampled than is looked at.
        longest = max((len(self.processor.encode(task.answer)) for task in tasks.values()), default=1)
        sampling = dataclasses.replace(probe.sampling, max_tokens=max(1, min(probe.sampling.max_tokens, longest)))
        clock = self._clock
        with clock.work() if clock else contextlib.nullcontext():
            answers = engine.generate(prompts, sampling)
        for (number, task), answer in zip(tasks.items(), answers, strict=True):
            right[number] = probe.starts_right(answer, task, base.scorer)
        return list(right.values())

    def close(self) -> None:
        """End the threads and close the environments."""
        self._workers.close()
        for env in self._free:
            env.close()

    async def play_groups(
        self,
        engine: Engine,
        source: GroupSource,
        size: int,
        sampling: Sampling,
        ended: Ended = lambda rollouts: None,
        memory: int = 0,
    ) -> None:
        """Play `size` episodes of each group of a source, as `select`, until it wants no more.

        Args:
            engine: Samples the completions.
            source: Gives the groups, and gets the results.
            size: Episodes per group.
            sampling: How to sample; the dialect's stop strings are added.
            ended: Called with each group's rollouts.
            memory: Groups whose prompts are remembered for other episodes; 0 remembers all.
        """
        reward = self.reward()
        waiting: deque[tuple[Group, int]] = deque()

        async def next_episode() -> tuple[Group, int] | None:
            """Return an episode to begin; waits while there may be one later."""
            while True:
                if not waiting and (group := source.draw()):
                    waiting.extend((group, place) for place in range(size))
                if waiting and not source.held:
                    return waiting.popleft()
                if not await source.more(context.requests):
                    return None

        async def play(context: RolloutContext, group: Group, place: int) -> None:
            """Play an episode; the last one ends its group."""
            try:
                with source.playing(group):
                    group.played[place] = await self._episode(context, group, group.number * size + place)
            except UNPLAYABLE as error:
                source.skip(group, error)
                for left in [one for one in waiting if one[0] is group]:
                    waiting.remove(left)
            if len(group.played) == size:
                rollouts = group.rollouts(reward, self.name)
                ended(rollouts)
                await source.save(group, rollouts)
                source.end(group, rollouts)

        async def take_seat(context: RolloutContext) -> None:
            """Play one episode after the other, until none is left to begin."""
            while episode := await next_episode():
                await play(context, *episode)
                del episode  # a seat that waits for the next one must not keep a group that has ended
                if source.enough and source.under_way:
                    raise _Enough

        async with self._context(engine, sampling, memory=memory) as context:
            with contextlib.suppress(_Enough):
                await self._fill_seats(context, take_seat, size * source.most)

    async def _attempt(
        self, engine: Engine, indices: Sequence[int], sampling: Sampling, meta: Sequence[Mapping[str, Any]]
    ) -> list[Trajectory | CodevError]:
        found: dict[int, Trajectory | CodevError] = {}
        groups = iter([Group(number, index) for number, index in enumerate(indices)])

        async def take_seat(context: RolloutContext) -> None:
            for group in groups:
                try:
                    played = await self._episode(context, group, group.number)
                except EngineError:
                    raise
                except CodevError as error:
                    found[group.number] = error
                else:
                    usage = {"model": self.name, **vars(played.usage)}
                    found[group.number] = played.record(self.name, {}, {"agent": usage, **meta[group.number]})

        async with self._context(engine, sampling, evaluates=True) as context:
            await self._fill_seats(context, take_seat, len(indices))
        return [found[number] for number in range(len(indices))]

    @contextlib.asynccontextmanager
    async def _context(
        self, engine: Engine, sampling: Sampling, evaluates: bool = False, memory: int = 0
    ) -> AsyncIterator[RolloutContext]:
        """Share an engine and the threads inside; an evaluation accepts longer prompts and does not probe."""
        base = self._any_env()
        sampling = dataclasses.replace(sampling, stop=tuple(base.dialect.stop))
        probes = "probing" in base.reward.needs and not evaluates
        self._workers.open()
        requests = open_requests(engine)
        self._clock = requests.clock
        try:
            yield RolloutContext(
                requests=requests,
                workers=self._workers,
                processor=self.processor,
                sampling=sampling,
                max_length=self.max_length,
                step_timeout=self.step_timeout,
                mask_stragglers=self.mask_stragglers,
                room=1 if evaluates else sampling.max_tokens,
                probe=Probe(self.processor, base.dialect, sampling.max_tokens) if probes else None,
                memo=Memo(3 * memory),  # see `EpisodePlayer._reset`
            )
        finally:
            await requests.close()
            self._clock = None
            self._idle_s += requests.clock.idle_s

    async def _fill_seats(
        self, context: RolloutContext, take_seat: Callable[[RolloutContext], Coroutine[Any, Any, None]], episodes: int
    ) -> None:
        """Play up to `concurrent` episodes at once; each seat takes the next one when its episode has ended."""

        async def seat() -> None:
            with context.requests.player():
                await take_seat(context)

        await all_or_none(seat() for _ in range(min(self.concurrent, episodes)))

    async def _episode(self, context: RolloutContext, group: Group, number: int) -> PlayedEpisode:
        """Play one episode in an environment that is free; it starts again where a node of a farm is lost."""
        lost = EpisodeUsage()  # of starts whose node was lost
        for start in range(1, MOST_STARTS + 1):
            player = EpisodePlayer(context, self._take(), group, number)
            try:
                return (await player.play()).after(lost)
            except CodevError as error:
                error.usage = lost = lost + (error.usage or EpisodeUsage())
                if not isinstance(error, EpisodeLost) or start == MOST_STARTS:
                    raise
            finally:
                if not player.lost:
                    self._free.append(player.env)
        raise AssertionError("the last start returns or raises")

    def _take(self) -> gym.Env[Any, Any]:
        with self._taking:  # another thread may ask for guesses
            return self._free.pop() if self._free else self.make_env()

    def _any_env(self) -> ImageToolEnv:
        if self._base is None:  # The free ones may be in use by another thread.
            if not self._free:
                self._free.append(self.make_env())
            self._base = unwrap(self._free[0])
        return self._base
