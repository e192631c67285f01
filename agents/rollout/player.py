"""One episode of the policy as a coroutine: sample a turn, step the environment in a thread, tokenise, repeat."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from codev_agents.episode import EpisodeRecorder, judge_lost, shown_images
from codev_agents.rollout.engine import Completion, Prompt, Sampling
from codev_agents.rollout.probe import Probe
from codev_agents.rollout.requests import Requests
from codev_agents.rollout.tokens import ChatProcessor, PixelBlock, TokenSequence
from codev_agents.rollout.unplayable import PromptTooLong, UnreadableTask
from codev_agents.rollout.workers import LateCall, LiveValues, Memo, StepTimeout, Workers
from codev_env.envs.image_tool import ImageToolEnv, unwrap
from codev_env.errors import CodevError, JudgeError, TaskError
from codev_env.judges import AsyncJudge
from codev_env.rewards import Reward, change
from codev_env.trajectory import Trajectory
from codev_env.types import Code, Episode, Observation, Step, StepInfo, StepScore, StopReason
from codev_env.usage import EpisodeUsage, Usage, counts_of

STRAGGLER: StopReason = "straggler"
"""`stop_reason` of an episode whose environment or judge took too long."""
_TURN, _PROBE, _FIRST_PROBE = range(3)  # kinds of completions
_HARMLESS = (OrderEnforcing, PassiveEnvChecker)
_STAGES = ("step", "execute", "score", "finish")


@dataclass(frozen=True, eq=False)
class Rollout:
    """One finished episode of the policy.

    Attributes:
        trajectory: Its record.
        tokens: Its tokens, as sampled.
        group: Number of the task in the batch; rollouts of the same task share it.
        cut: The token budget ended it before the environment did.
        truncated_turns: Its turns that ended at `Sampling.max_tokens`.
    """

    trajectory: Trajectory
    tokens: TokenSequence
    group: int
    cut: bool = False
    truncated_turns: int = 0

    @property
    def rewards(self) -> list[float]:
        """The reward of each turn."""
        return [turn.reward for turn in self.trajectory.turns]

    @property
    def judge_failed(self) -> bool:
        """The judge failed on some tool call: the rollout must not be trained on."""
        return self.trajectory.judge_failed


@dataclass(eq=False)
class TokenUsage:
    """The tokens that an episode took.

    Attributes:
        requests: Number of completions.
        prompt_tokens: Tokens of their prompts.
        completion_tokens: Sampled tokens.
        truncated_turns: Completions that ended at `Sampling.max_tokens`.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    truncated_turns: int = 0

    def add(self, prompt: Prompt, completion: Completion) -> None:
        """Count one completion."""
        self.requests += 1
        self.prompt_tokens += len(prompt.ids)
        self.completion_tokens += len(completion.ids)
        self.truncated_turns += completion.finish == "length"


@dataclass(frozen=True, eq=False)
class PlayedEpisode:
    """An episode that has ended; its record can be made when the reward of its group is known.

    Attributes:
        recorder: Makes its record.
        episode: The episode at its end.
        tokens: Its tokens.
        usage: Its token usage.
        ending: The reward for being cut off, by term; empty where the episode was not.
        lost: What earlier starts took, whose node was lost; the tokens are part of `usage`.
    """

    recorder: EpisodeRecorder
    episode: Episode
    tokens: TokenSequence
    usage: TokenUsage
    ending: Mapping[str, float]
    lost: EpisodeUsage = field(default_factory=EpisodeUsage)

    @property
    def cut(self) -> bool:
        """The token budget ended the episode."""
        return self.episode.stop_reason == "max_length"

    def after(self, lost: EpisodeUsage) -> PlayedEpisode:
        """Return the same with what earlier starts of the episode took."""
        usage = TokenUsage(**{name: n + lost.agent[name] for name, n in vars(self.usage).items()})
        return replace(self, usage=usage, lost=lost)

    def record(self, agent: str, group_terms: Mapping[str, float], meta: Mapping[str, Any] | None = None) -> Trajectory:
        """Return the record of the episode, with the reward for its place in the group."""
        ending = [terms for terms in (self.ending, group_terms) if terms]
        return self.recorder.finish(self.episode, agent, {**judge_lost(self.lost), **(meta or {})}, ending)

    def rollout(self, agent: str, group_terms: Mapping[str, float], group: int) -> Rollout:
        """Return the rollout of the episode, as one of a group."""
        record = self.record(agent, group_terms, _versions(self.tokens))
        truncated = self.usage.truncated_turns - self.lost.agent["truncated_turns"]
        return Rollout(record, self.tokens, group, self.cut, truncated)


@dataclass(frozen=True, eq=False)
class RolloutContext:
    """The things that all episodes of one call of `RolloutRunner` share.

    Attributes:
        requests: Passes requests for completions to the engine.
        workers: Threads.
        processor: The tokenizer side of the policy.
        sampling: How turns are sampled.
        max_length: Longest trajectory, in tokens.
        step_timeout: Longest time of one call of the environment or its judge, in seconds; 0 is no limit.
        mask_stragglers: Whether an episode that took longer counts as not judged.
        room: Tokens that a first prompt has to leave for an answer.
        probe: Asks for the answer after each turn; `None` unless the reward needs that.
        memo: Prompts, by their origin.
        blocks: Processed images, by their content.
    """

    requests: Requests
    workers: Workers
    processor: ChatProcessor
    sampling: Sampling
    max_length: int
    step_timeout: float
    mask_stragglers: bool
    room: int
    probe: Probe | None
    memo: Memo = field(default_factory=Memo)
    blocks: LiveValues = field(default_factory=LiveValues)

    def image(self, image: np.ndarray[Any, Any]) -> PixelBlock:
        """Process an image, equal ones once."""
        digest = hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=16).digest()
        return self.blocks.get((image.shape, digest), lambda: self.processor.image(image))


@dataclass(eq=False)
class Group:
    """The episodes of one task.

    Attributes:
        number: Of the task in the batch.
        index: Of the task in its set.
        played: The episodes that have ended, by place in the group.
        knows: The policy, if it was probed, answers right before its first turn.
        checked: Set when it is known whether its first prompt leaves enough room.
    """

    number: int
    index: int
    played: dict[int, PlayedEpisode] = field(default_factory=dict)
    knows: bool | None = None
    checked: asyncio.Event = field(default_factory=asyncio.Event)

    def rollouts(self, reward: Reward, agent: str) -> list[Rollout]:
        """Return the rollouts of a complete group, rewarded in comparison with each other."""
        played = [self.played[place] for place in sorted(self.played)]
        terms = reward.group_value([one.episode for one in played])
        return [one.rollout(agent, earned, self.number) for one, earned in zip(played, terms, strict=True)]


def _versions(tokens: TokenSequence) -> dict[str, Any]:
    """Return the least and the greatest version that sampled each turn, for the record; empty if they are unknown."""
    turns: dict[int, list[int]] = {}
    for turn, version in zip(tokens.turns, tokens.versions, strict=True):
        if version >= 0:
            turns.setdefault(turn, []).append(version)
    return {"versions": [[min(found), max(found)] for _, found in sorted(turns.items())]} if turns else {}


class EpisodePlayer:
    """Plays one episode.

    Args:
        context: Shared with the other episodes.
        env: The environment, used by this episode alone.
        group: The episodes of its task.
        number: Of the episode in the batch; part of the keys of its completions.
    """

    def __init__(self, context: RolloutContext, env: gym.Env[Any, Any], group: Group, number: int) -> None:
        self.context, self.env, self.group, self.number = context, env, group, number
        self.base = unwrap(env)
        self.lost = False
        """A call that took too long is still running in the environment, which closes when it ends."""
        self._first: Observation
        self._recorder: EpisodeRecorder
        self._tokens = TokenSequence()
        self._usage, self._judged = TokenUsage(), Usage()
        self._right = False  # the policy, if probed, knows the answer
        self._ending: dict[str, float] = {}
        self._straggler: Episode | None = None

    async def play(self) -> PlayedEpisode:
        """Play it to its end, or to where it is cut off.

        Raises:
            PromptTooLong: The first prompt leaves too little room.
            UnreadableTask: The environment cannot read the task.
            CodevError: The environment or its judge failed, or the engine; its `usage` is that of the episode.
        """
        context = self.context
        try:
            # 1. Reset. The group shares one prompt, so that an engine can prefill it once.
            try:
                prompt: Prompt | None = await context.workers.compute(self._reset)
            finally:
                self.group.checked.set()
            if context.probe:
                if self.group.knows is None:
                    self.group.knows = await self._probe((_FIRST_PROBE, self.group.number))
                self._right = self.group.knows

            # 2. Turn by turn: sample, step, tokenise the observation.
            while prompt:
                key = (_TURN, self.number, len(self._recorder))
                completion = await context.requests.complete(prompt, context.sampling, key)
                self._usage.add(prompt, completion)
                prompt = await self._turn(completion)
                if prompt and context.probe:
                    self._note_probe(await self._probe((_PROBE, self.number, len(self._recorder))))
        except BaseException as error:
            if not self.lost:  # else the late call still uses what this would close
                self.base.break_off()
            if isinstance(error, CodevError):
                taken = EpisodeUsage(counts_of(vars(self._usage)), self._judged)
                error.usage = (error.usage or EpisodeUsage()) + taken
            raise
        episode = self._straggler or self.base.episode
        return PlayedEpisode(self._recorder, episode, self._tokens, self._usage, self._ending)

    def _reset(self) -> Prompt:
        context = self.context
        try:
            self._first, info = self.env.reset(options={"index": self.group.index})
        except TaskError as error:
            raise UnreadableTask(str(error)) from error
        shown = context.memo.get(("shown", self.group.index), lambda: shown_images(self._first))
        self._recorder = EpisodeRecorder(self.env, self._first, info["index"], images=shown)
        ids, images = context.memo.get(("task", self.group.index), self._tokenize_first)
        if len(ids) + context.room > context.max_length:
            raise PromptTooLong(self.base.task.task_id, len(ids), context.max_length)
        prompt = context.memo.get(("group", self.group.number), lambda: Prompt(ids, images))
        self._tokens.add_observation(ids, images)
        return prompt

    def _tokenize_first(self) -> tuple[list[int], list[PixelBlock]]:
        images = [self.context.image(image) for image in self._first["images"]]
        return self.context.processor.prompt(self.base.system_prompt, self._first["text"], images), images

    async def _turn(self, completion: Completion) -> Prompt | None:
        """Take a turn; returns the prompt of the next one, or `None` at the end."""
        if list(completion.prompt_ids) != self._tokens.ids:
            raise RuntimeError(
                f"the engine sampled after other prompt ids than it was given ({len(completion.prompt_ids)} for "
                f"{len(self._tokens.ids)}); its completions cannot be used. If it is a vLLM server, start it with "
                """--mm-processor-kwargs '{"do_resize": false}', so that it takes images as they are sent."""
            )
        self._tokens.add_action(completion.ids, completion.logprobs, len(self._recorder), completion.versions)
        action = self.context.processor.reply(completion.ids, completion.prompt_ids)
        history = tuple(self.base.episode.steps)
        step: Step | None = None
        try:
            if _in_stages(self.env):
                step = await self._limited(self.base.execute, action)
                score = await self._score(step, history)
                result = await self._limited(self.base.finish, step, score)
            else:
                result = await self._limited(self.env.step, action)
        except StepTimeout:
            self._cut_straggler(step or Step(action, self.base.dialect.parse(action)), history)
            return None
        return await self.context.workers.compute(self._observe, completion, *result)

    async def _limited(self, function: Any, *arguments: Any) -> Any:
        # The nodes of a farm compute, and bound what is under way: waiting for them takes no worker's slot.
        run = self.context.workers.compute if self.base.farm is None else self.context.workers.wait
        try:
            return await run(function, *arguments, limit=self.context.step_timeout)
        except (StepTimeout, LateCall) as late:
            if late.job:
                self.lost = True
                late.job.add_done_callback(lambda _: self.env.close())
            raise

    async def _score(self, step: Step, history: tuple[Step, ...]) -> StepScore | None:
        """Ask the judge about a code turn. It may wait for a server, so it takes no worker's slot."""
        if not isinstance(step.turn, Code):
            return None
        judge, limit, arguments = self.base.judge, self.context.step_timeout, (self.base.task, step, history)
        deadline: asyncio.Timeout | None = None  # of a judge that is awaited; any other may raise `TimeoutError` itself
        try:
            if not isinstance(judge, AsyncJudge):
                return await self.context.workers.wait(judge.score, *arguments, limit=limit)
            async with asyncio.timeout(limit or None) as deadline:
                return await judge.ascore(*arguments)
        except (StepTimeout, JudgeError):
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and deadline and deadline.expired():
                raise StepTimeout from error
            raise JudgeError(f"judge {judge.name!r} failed on {self.base.task.task_id!r}: {error!r}") from error

    def _observe(
        self, completion: Completion, observation: Observation, reward: float, ended: bool, cut: bool, info: StepInfo
    ) -> Prompt | None:
        """Record a turn and tokenise its observation; returns the next prompt, or `None` at the end."""
        context, step = self.context, self.base.episode.steps[-1]
        self._recorder.add(step, observation, float(reward), info["reward_terms"], info["crop_boxes"])
        if step.score:
            self._judged += step.score.usage
        if cut and not self.base.episode.done:  # a wrapper ended it, as `TimeLimit` does
            self._ending = self.base.cut_off("max_turns")
        if ended or cut:
            return None
        images = [context.image(image) for image in observation["images"]]
        role = self.base.dialect.observation_role
        ids = context.processor.observation(observation["text"], images, after=completion.ids, role=role)
        if len(self._tokens) + len(ids) + context.sampling.max_tokens > context.max_length:
            self._ending = self.base.cut_off("max_length")
            return None
        self._tokens.add_observation(ids, images)
        return Prompt(list(self._tokens.ids), list(self._tokens.images))

    def _cut_straggler(self, step: Step, history: Sequence[Step]) -> None:
        """End the episode with a turn whose result is not waited for; what is known of it is recorded and rewarded."""
        if not self.lost:
            self.base.break_off()
        why = f"cut off: the environment or its judge took longer than {self.context.step_timeout:g} s"
        step = replace(step, score=StepScore(None, why, failed=self.context.mask_stragglers))
        # An episode of its own: the call that is still running may change the environment's.
        self._straggler = Episode(self.base.task, [*history, step], stop_reason=STRAGGLER)
        terms = change(self._recorder.reward_terms, self.base.reward.value(self._straggler))
        boxes = tuple(region.box for region in step.regions)
        self._recorder.add(step, {"text": "", "images": ()}, sum(terms.values()), terms, boxes)

    async def _probe(self, key: tuple[int, ...]) -> bool:
        context = self.context
        assert context.probe is not None
        completion = await context.requests.complete(context.probe.prompt(self._tokens), context.probe.sampling, key)
        return await context.workers.compute(context.probe.is_right, completion, self.base.task, self.base.scorer)

    def _note_probe(self, right: bool) -> None:
        """Note what a tool call changed in the policy's answer; it is rewarded with the next turn."""
        if self.base.episode.steps[-1].kind == "code":
            self.base.note_probe(self._right, right)
        self._right = right


def _in_stages(env: gym.Env[Any, Any]) -> bool:
    """Whether `step` is the environment's own three phases, so that the judge can be awaited between them."""
    while isinstance(env, _HARMLESS):
        env = env.env
    kind = type(env)
    return isinstance(env, ImageToolEnv) and all(getattr(kind, name) is getattr(ImageToolEnv, name) for name in _STAGES)
