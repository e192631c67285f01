"""Plays with a saved model: episodes side by side, their turns sampled together by one of the trainer's engines.

The evaluation does not import the trainer; what it needs of it is looked up by name where the commands are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import gymnasium as gym

from codev_agents import AgentError, record_episode, record_turn
from codev_env.app.cli import load
from codev_env.errors import CodevError
from codev_env.trajectory import Trajectory, TurnRecord
from codev_eval.bench.runner import Failure, Key, keys, reason_of

MAX_LENGTH = 32768
"""Longest episode, in tokens, where the model takes so many; one that would outgrow it ends as if it had no turns left.
"""


@dataclass(eq=False)
class _Slot:
    """An episode under way."""

    env: gym.Env[Any, Any]
    key: Key
    first: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    images: list[Any] = field(default_factory=list)
    prompted: int = 0
    sampled: int = 0
    truncated: int = 0
    turns: list[TurnRecord] = field(default_factory=list)
    failure: Failure | None = None
    done: bool = False


class LocalModel:
    """A saved vision-language model that plays episodes.

    Args:
        path: Folder of the model.
        engine: `"hf"` or `"vllm"`.
        seed: Seeds sampling.
        temperature: Sampling temperature; 0 is greedy.
        max_tokens: Tokens per turn.
        batch: Episodes side by side.
        workers: Threads that step environments.

    Raises:
        ConfigError: There is no model that sees images in `path`.
    """

    def __init__(
        self,
        path: str,
        *,
        engine: str = "hf",
        seed: int = 0,
        temperature: float = 0.0,
        max_tokens: int = 2048,
        batch: int = 32,
        workers: int = 2,
    ) -> None:
        self.name = path
        self.batch, self.workers, self.seed = batch, workers, seed
        policy_type: Any = load("codev_agents.engines.policy:Policy")
        policy = policy_type.load(path)
        if load("torch.cuda:is_available")():
            policy.model.to("cuda")
        self._processor = policy.processor
        known = policy.model.config.get_text_config()
        self._longest = min(MAX_LENGTH, getattr(known, "max_position_embeddings", MAX_LENGTH))
        self._engine = load("codev_agents.engines:make_engine")(
            engine, policy.model, policy.processor, batch, seed, max_length=self._longest
        )
        self._engine.sync(policy.model)
        self._prompt = load("codev_agents.rollout.engine:Prompt")
        self._sampling = load("codev_agents.rollout.engine:Sampling")(temperature, max_tokens)

    def play(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        indices: Iterable[int],
        *,
        samples: int = 1,
        skip: Container[Key] = (),
    ) -> Generator[Trajectory | Failure]:
        """Play episodes of each task and yield the outcomes in order; arguments are those of `runner.play`."""
        envs: list[gym.Env[Any, Any]] = []
        left = keys(indices, samples, skip)
        with ThreadPoolExecutor(self.workers, thread_name_prefix="codev-eval") as threads:
            try:
                while wave := list(islice(left, self.batch)):
                    envs += [make_env() for _ in range(len(wave) - len(envs))]
                    yield from self._wave([_Slot(env, key) for env, key in zip(envs, wave, strict=False)], threads)
            finally:
                for env in envs:
                    env.close()

    def _wave(self, slots: Sequence[_Slot], threads: ThreadPoolExecutor) -> Iterator[Trajectory | Failure]:
        """Play episodes side by side; their samples are a function of the seed and of which episodes they are."""
        index, sample = slots[0].key
        self._engine.seed(self.seed + 1_000_003 * sample + index)
        dialect: Any = slots[0].env.unwrapped.dialect  # type: ignore[attr-defined]
        sampling = type(self._sampling)(self._sampling.temperature, self._sampling.max_tokens, tuple(dialect.stop))
        list(threads.map(self._guarded(self._start), slots))
        while running := [slot for slot in slots if not slot.done]:
            prompts = [self._prompt(list(slot.ids), list(slot.images)) for slot in running]
            for slot in running:
                slot.prompted += len(slot.ids)
            completions = self._engine.generate(prompts, sampling)
            list(threads.map(self._guarded(self._turn), running, completions))
        for slot in slots:
            yield slot.failure or self._finish(slot)

    @staticmethod
    def _guarded(function: Callable[..., None]) -> Callable[..., None]:
        """Let a failure of one episode end that one only."""

        def guarded(slot: _Slot, *arguments: Any) -> None:
            try:
                function(slot, *arguments)
            except CodevError as error:
                slot.failure, slot.done = Failure(slot.key[0], reason_of(error), slot.key[1]), True

        return guarded

    def _start(self, slot: _Slot) -> None:
        slot.first, slot.info = slot.env.reset(options={"index": slot.key[0]})
        slot.images = [self._processor.image(image) for image in slot.first["images"]]
        base: Any = slot.env.unwrapped
        slot.ids = list(self._processor.prompt(base.system_prompt, slot.first["text"], slot.images))
        if len(slot.ids) >= self._longest:
            raise AgentError(
                f"the first prompt has {len(slot.ids)} tokens, and the model takes {self._longest} with the answer:"
                " save the model with a smaller limit on the pixels of an image, or evaluate another one."
            )

    def _turn(self, slot: _Slot, completion: Any) -> None:
        slot.ids += completion.ids
        slot.sampled += len(completion.ids)
        slot.truncated += completion.finish == "length"
        observation, reward, terminated, truncated, slot.info = slot.env.step(self._processor.decode(completion.ids))
        base: Any = slot.env.unwrapped
        slot.turns.append(record_turn(base.episode.steps[-1], observation, float(reward), slot.info))
        slot.done = terminated or truncated
        if slot.done:
            return
        images = [self._processor.image(image) for image in observation["images"]]
        role = base.dialect.observation_role
        ids = list(self._processor.observation(observation["text"], images, after=completion.ids, role=role))
        if len(slot.ids) + len(ids) + self._sampling.max_tokens > self._longest:
            slot.done = True
            slot.turns[-1] = slot.turns[-1].paid_more(base.cut_off("max_length"))
            slot.info = {**slot.info, "stop_reason": "max_length"}
            return
        slot.ids += ids
        slot.images += images

    def _finish(self, slot: _Slot) -> Trajectory:
        used = {
            "model": self.name,
            "requests": len(slot.turns),
            "prompt_tokens": slot.prompted,
            "completion_tokens": slot.sampled,
            "truncated_turns": slot.truncated,
        }
        return record_episode(slot.env, slot.first, slot.turns, slot.info, agent=self.name, meta={"agent": used})
