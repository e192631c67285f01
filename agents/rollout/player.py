"""One episode of the policy as a coroutine: ask for a turn, step the environment in a thread, tokenise, go on."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from codev_agents import record_episode, record_turn
from codev_agents.rollout.engine import Completion, Prompt, Sampling
from codev_agents.rollout.probe import Probe
from codev_agents.rollout.requests import Requests
from codev_agents.rollout.tokens import ChatProcessor, PixelBlock, TokenSequence
from codev_agents.rollout.workers import Memo, StepTimeout, Workers
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import JudgeError
from codev_env.rewards import Reward, change
from codev_env.trajectory import Trajectory, TurnRecord
from codev_env.types import Code, Episode, Step, StepScore

STRAGGLER = "straggler"
"""`stop_reason` of an episode whose environment or judge took too long."""
_TURN, _PROBE, _FIRST_PROBE = range(3)  # what a completion is for
_HARMLESS = (OrderEnforcing, PassiveEnvChecker)
_STAGES = ("step", "execute", "score", "finish")


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


@dataclass(frozen=True, eq=False)
class RolloutContext:
    """What all episodes of one call of `RolloutRunner.play` share.

    Attributes:
        requests: Where completions are asked for.
        workers: Threads.
        processor: The tokenizer side of the policy.
        reward: What the environment pays by.
        sampling: How turns are sampled.
        max_length: Longest trajectory, in tokens.
        step_timeout: Longest time of one call of the environment or its judge, in seconds; 0 is no limit.
        mask_stragglers: Whether nothing is learned from episodes that took longer.
        name: Name of the policy in the records.
        probe: Asks for the answer after each turn; nothing unless the reward needs that.
        once: Prompts and processed images, by what they are made from.
    """

    requests: Requests
    workers: Workers
    processor: ChatProcessor
    reward: Reward
    sampling: Sampling
    max_length: int
    step_timeout: float
    mask_stragglers: bool
    name: str
    probe: Probe | None
    once: Memo = field(default_factory=Memo)

    def image(self, image: np.ndarray[Any, Any]) -> PixelBlock:
        """Process an image, equal ones once."""
        digest = hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=16).digest()
        return self.once.get((image.shape, digest), lambda: self.processor.image(image))


@dataclass(eq=False)
class Group:
    """The episodes of one task.

    Attributes:
        number: Of the task in the batch.
        index: Of the task in its set.
        played: By place in the group: rollout and final episode, as far as they have ended.
        knows: The policy answers right before it has looked at anything, if it was asked.
    """

    number: int
    index: int
    played: dict[int, tuple[Rollout, Episode]] = field(default_factory=dict)
    knows: bool | None = None


class EpisodePlayer:
    """Plays one episode.

    Args:
        context: What it shares with others.
        env: The environment; nobody else uses it.
        group: The episodes of its task.
        number: Of the episode in the batch: it names its completions.
    """

    def __init__(self, context: RolloutContext, env: gym.Env[Any, Any], group: Group, number: int) -> None:
        self.context, self.env, self.group, self.number = context, env, group, number
        self.base: Any = env.unwrapped
        self.lost = False
        """A call that took too long still runs in the environment, which closes when that ends."""
        self._first: dict[str, Any] = {}
        self._info: dict[str, Any] = {}
        self._turns: list[TurnRecord] = []
        self._tokens = TokenSequence()
        self._right = False  # the policy, if probed, knows the answer
        self._cut = False
        self._straggler: Episode | None = None

    async def play(self) -> tuple[Rollout, Episode]:
        """Play it to its end, or to where it is cut off."""
        context = self.context
        try:
            # 1. Reset. The group shares one prompt, so that an engine can prefill it once.
            prompt: Prompt | None = await context.workers.compute(self._reset)
            if context.probe:
                if self.group.knows is None:
                    self.group.knows = await self._probe((_FIRST_PROBE, self.group.number))
                self._right = self.group.knows

            # 2. Turn by turn: sample, step, tokenise what the environment answers.
            while prompt:
                key = (_TURN, self.number, len(self._turns))
                prompt = await self._turn(await context.requests.complete(prompt, context.sampling, key))
                if prompt and context.probe:
                    await self._note_probe(await self._probe((_PROBE, self.number, len(self._turns))))
            return await context.workers.compute(self._record)
        except BaseException:
            self.base.break_off()
            raise

    def _reset(self) -> Prompt:
        context = self.context
        self._first, self._info = self.env.reset(options={"index": self.group.index})
        ids, images = context.once.get(("task", self.group.index), self._tokenize_first)
        prompt = context.once.get(("group", self.group.number), lambda: Prompt(ids, images))
        self._tokens.add_observation(ids, images)
        return prompt

    def _tokenize_first(self) -> tuple[list[int], list[PixelBlock]]:
        images = [self.context.image(image) for image in self._first["images"]]
        return self.context.processor.prompt(self.base.system_prompt, self._first["text"], images), images

    async def _turn(self, completion: Completion) -> Prompt | None:
        """Take a turn; returns what the next one continues, or nothing at the end."""
        if list(completion.prompt_ids) != self._tokens.ids:
            raise RuntimeError(
                "the engine sampled after other prompt ids than the trainer's; refusing to train on them"
            )
        self._tokens.add_action(completion.ids, completion.logprobs, len(self._turns))
        action, history = self.context.processor.decode(completion.ids), tuple(self.base.episode.steps)
        step: Step | None = None
        try:
            if _in_stages(self.env):
                step = await self._limited(self.base.execute, action)
                score = await self._score(step, history)
                result = await self._limited(self.base.finish, step, score)
            else:
                result = await self._limited(self.env.step, action)
        except StepTimeout as timeout:
            self._cut_straggler(step or Step(action, self.base.dialect.parse(action)), history, timeout)
            return None
        return await self.context.workers.compute(self._observe, completion, *result)

    async def _limited(self, function: Any, *arguments: Any) -> Any:
        return await self.context.workers.compute(function, *arguments, limit=self.context.step_timeout)

    async def _score(self, step: Step, history: tuple[Step, ...]) -> StepScore | None:
        """Ask the judge about a code turn. It may wait for a server, so it takes no worker's place."""
        if not isinstance(step.turn, Code):
            return None
        judge, limit, arguments = self.base.judge, self.context.step_timeout, (self.base.task, step, history)
        try:
            if not hasattr(judge, "ascore"):
                return await self.context.workers.wait(judge.score, *arguments, limit=limit)
            async with asyncio.timeout(limit or None) as deadline:
                return await judge.ascore(*arguments)
        except StepTimeout:
            raise StepTimeout from None  # the environment itself is free
        except JudgeError:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and limit and deadline.expired():
                raise StepTimeout from error
            raise JudgeError(f"judge {judge.name!r} failed on {self.base.task.task_id!r}: {error!r}") from error

    def _observe(
        self, completion: Completion, observation: dict[str, Any], reward: float, ended: bool, cut: bool, info: Any
    ) -> Prompt | None:
        """Record a turn and tokenise what the environment answered."""
        context, self._info = self.context, info
        self._turns.append(record_turn(self.base.episode.steps[-1], observation, float(reward), info))
        if ended or cut:
            return None
        images = [context.image(image) for image in observation["images"]]
        role = self.base.dialect.observation_role
        ids = context.processor.observation(observation["text"], images, after=completion.ids, role=role)
        if len(self._tokens) + len(ids) + context.sampling.max_tokens > context.max_length:
            self._cut = True
            self._turns[-1] = self._turns[-1].paid_more(self.base.cut_off("max_length"))
            self._info = {**info, "stop_reason": "max_length"}
            return None
        self._tokens.add_observation(ids, images)
        return Prompt(list(self._tokens.ids), list(self._tokens.images))

    def _cut_straggler(self, step: Step, history: Sequence[Step], timeout: StepTimeout) -> None:
        """End the episode with a turn whose result is not waited for. What of it is known is recorded and paid."""
        if timeout.job:
            self.lost = True
            timeout.job.add_done_callback(lambda _: self.env.close())
        else:
            self.base.break_off()
        why = f"cut off: the environment or its judge took longer than {self.context.step_timeout:g} s"
        step.score = StepScore(None, why, failed=self.context.mask_stragglers)
        self._straggler = Episode(self.base.task, [*history, step], stop_reason=STRAGGLER)
        earned: dict[str, float] = {}
        for turn in self._turns:
            earned = {name: earned.get(name, 0.0) + value for name, value in turn.reward_terms.items()}
        terms = change(earned, self.context.reward.value(self._straggler))
        self._info = {
            **self._info,
            "action_kind": type(step.turn).__name__.lower(),
            "crop_boxes": tuple(region.box for region in step.regions),
            "reward_terms": terms,
            "stop_reason": STRAGGLER,
        }
        self._turns.append(record_turn(step, {"text": "", "images": ()}, sum(terms.values()), self._info))

    async def _probe(self, key: tuple[int, ...]) -> bool:
        context = self.context
        assert context.probe is not None
        completion = await context.requests.complete(context.probe.prompt(self._tokens), context.probe.sampling, key)
        return await context.workers.compute(context.probe.is_right, completion, self.base.task, self.base.scorer)

    async def _note_probe(self, right: bool) -> None:
        """Note what a call changed; it is paid with the next turn."""
        if self._turns[-1].kind == "code":
            step = self.base.episode.steps[-1]
            step.probed = (self._right, right)
            self._turns[-1] = dataclasses.replace(self._turns[-1], probed=step.probed)
        self._right = right

    def _record(self) -> tuple[Rollout, Episode]:
        episode = self._straggler or self.base.episode
        trajectory = record_episode(self.env, self._first, self._turns, self._info, agent=self.context.name)
        if self._straggler:  # what still runs in the environment may have gone on
            trajectory = dataclasses.replace(
                trajectory,
                final_answer=episode.answer,
                is_correct=episode.is_correct,
                is_faithful=episode.is_faithful,
            )
        rewards = [turn.reward for turn in self._turns]
        return Rollout(trajectory, self._tokens, self.group.number, rewards, self._cut), episode


def _in_stages(env: gym.Env[Any, Any]) -> bool:
    """Whether `step` is the environment's three phases in a row, so that the judge can be awaited between them."""
    while isinstance(env, _HARMLESS):
        env = env.env
    kind = type(env)
    return isinstance(env, ImageToolEnv) and all(getattr(kind, name) is getattr(ImageToolEnv, name) for name in _STAGES)
