"""The episode loop: one agent, one environment, one trajectory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
from PIL import Image

from codev_agents.agent import Agent, AgentError, ContextFull, MeteredAgent
from codev_env.envs.image_tool import unwrap
from codev_env.errors import CodevError, EpisodeLost
from codev_env.geometry import ImageBox
from codev_env.threads import is_given_up
from codev_env.trajectory import Trajectory
from codev_env.types import Box, Episode, Observation, Step
from codev_env.usage import EpisodeUsage, Usage, counts_of

MOST_STARTS = 4
"""So often an episode starts whose nodes are lost, before the error is raised."""


def run_episode(
    env: gym.Env[Any, Any],
    agent: Agent,
    *,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Trajectory:
    """Play one episode to its end. One whose node of a farm is lost starts again, with the same task.

    Where the conversation has outgrown the context of the agent's model, the episode ends without an answer
    (`stop_reason` is `"max_length"`), as that of a model of this machine does; if the first prompt does not fit, the
    agent's error is raised.

    Args:
        env: One of codev_env's environments, possibly wrapped.
        agent: The agent; the `meta` of a `MeteredAgent` becomes `Trajectory.meta["agent"]`.
        seed: Passed to `env.reset`.
        options: Passed to `env.reset`, for example `{"index": 3}`.
        meta: JSON-able extras of the record.

    Returns:
        The record of the episode. Requests of the judge in starts that were lost are in its `meta["judge_lost"]`.

    Raises:
        CodevError: The agent, the judge, the scorer or the sandbox failed; its `usage` is that of the episode.
    """
    options = None if options is None else dict(options)
    lost = EpisodeUsage()  # of starts whose node was lost
    for start in range(1, MOST_STARTS + 1):
        observation, info = env.reset(seed=seed if start == 1 else None, options=options)
        options = {"index": info["index"]}
        agent.reset(env)
        base, recorder, done = unwrap(env), EpisodeRecorder(env, observation, info["index"], seed), False
        ending: list[Mapping[str, float]] = []
        try:
            while not done:
                if is_given_up():
                    raise AgentError("nobody waits for this episode any more.")
                action = agent.act(observation)
                observation, reward, terminated, truncated, info = env.step(action)
                done = terminated or truncated
                recorder.add(
                    base.episode.steps[-1], observation, float(reward), info["reward_terms"], info["crop_boxes"]
                )
            if not base.episode.done:  # a wrapper ended it, as `TimeLimit` does
                ending.append(base.cut_off("max_turns"))
            break
        except CodevError as error:
            if isinstance(error, ContextFull) and base.episode.steps:
                ending.append(base.cut_off("max_length"))
                break
            lost += _taken(agent, base.episode) + (error.usage or EpisodeUsage())
            if not isinstance(error, EpisodeLost) or start == MOST_STARTS:
                error.usage = lost
                raise
    usage = dict(agent.meta) if isinstance(agent, MeteredAgent) else {}
    if lost:
        usage |= (lost + _taken(agent, base.episode)).agent
    taken = ({"agent": usage} if usage else {}) | judge_lost(lost)
    return recorder.finish(base.episode, agent.name, {**taken, **(meta or {})}, ending)


def judge_lost(lost: EpisodeUsage) -> dict[str, Any]:
    """Return for the `meta` of an episode what its judge took in starts that were lost; empty if nothing."""
    return {"judge_lost": vars(lost.judge)} if lost.judge else {}


def _taken(agent: Agent, episode: Episode) -> EpisodeUsage:
    """Return what an episode has taken so far."""
    counts = counts_of(agent.meta if isinstance(agent, MeteredAgent) else {})
    return EpisodeUsage(counts, sum((step.score.usage for step in episode.steps if step.score), Usage()))


@dataclass(frozen=True, eq=False)
class _Outcome:
    """The result of a turn: the fields that complete its `Step`."""

    observation: str
    images: tuple[Image.Image, ...]
    crop_boxes: tuple[Box | None, ...]
    reward: float
    reward_terms: dict[str, float]


class EpisodeRecorder:
    """Follows one episode and makes its trajectory, once, when everything about it is known.

    It copies what it needs from the environment, which may be reset before the trajectory is made.

    Args:
        env: The environment, just reset.
        observation: The first observation.
        index: The task's index in its set.
        seed: The seed `reset` was called with.
        images: The images of the observation, where another episode of the task has them already.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        observation: Observation,
        index: int,
        seed: int | None = None,
        images: tuple[Image.Image, ...] | None = None,
    ) -> None:
        base = unwrap(env)
        task = base.task
        self._outcomes: list[_Outcome] = []
        self._task_meta = {"task": found} if (found := _jsonable(task.meta)) else {}
        self._fields: dict[str, Any] = {
            "task_id": task.task_id,
            "index": int(index),
            "env_id": env.spec.id if env.spec else type(base).__name__,
            "split": base.split,
            "source": task.source,
            "category": task.category,
            "question": task.question,
            "choices": tuple(task.choices),
            "answer": task.answer,
            "targets": tuple(_box(box) for box in task.targets),
            "transform": tuple(task.transform),
            "times": tuple(task.times),
            "system_prompt": base.system_prompt,
            "prompt": observation["text"],
            "images": shown_images(observation) if images is None else images,
            "dialect": base.dialect.name,
            "observation_role": base.dialect.observation_role,
            "reward_name": base.reward.name,
            "seed": seed,
        }

    def __len__(self) -> int:
        """Return the number of turns added."""
        return len(self._outcomes)

    @property
    def reward_terms(self) -> dict[str, float]:
        """The sum of the turns' rewards so far, by term."""
        total: dict[str, float] = {}
        for outcome in self._outcomes:
            for name, value in outcome.reward_terms.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def add(
        self,
        step: Step,
        observation: Observation,
        reward: float,
        reward_terms: Mapping[str, float],
        crop_boxes: Sequence[Box | None],
    ) -> None:
        """Add the result of one turn, as `env.step` returned it.

        Args:
            step: The environment's own record of the turn.
            observation: The observation after it.
            reward: Its reward.
            reward_terms: The same by term.
            crop_boxes: For each shown image the box that it shows.
        """
        returned = step.execution.images if step.execution else ()
        images = [np.asarray(image) for image in observation["images"]]
        self._outcomes.append(
            _Outcome(
                observation["text"],
                tuple(_image(image, returned[n] if n < len(returned) else None) for n, image in enumerate(images)),
                tuple(None if box is None else _box(box) for box in crop_boxes),
                reward,
                {name: float(value) for name, value in reward_terms.items()},
            )
        )

    def finish(
        self,
        episode: Episode,
        agent: str,
        meta: Mapping[str, Any] | None = None,
        ending: Sequence[Mapping[str, float]] = (),
    ) -> Trajectory:
        """Return the record of the episode.

        Args:
            episode: The episode at its end, with a step for each turn that was added.
            agent: Name of the agent.
            meta: JSON-able extras; `"task"` is added, the JSON-able part of the task's metadata, and `"scorer"`, what
                the scorer asked a model for.
            ending: Rewards that were known after the last turn only, by term: for a cut-off, for a place in the group.
                They are part of the last turn's reward.
        """
        outcomes = list(self._outcomes)
        for terms in ending:
            outcomes[-1] = _with_more(outcomes[-1], terms)
        scoring = {"scorer": vars(episode.scoring)} if episode.scoring else {}
        turns = (replace(step, **vars(outcome)) for step, outcome in zip(episode.steps, outcomes, strict=True))
        return Trajectory(
            **self._fields,
            agent=agent,
            turns=tuple(turns),
            final_answer=episode.answer,
            is_correct=bool(episode.is_correct),
            is_faithful=episode.is_faithful,
            stop_reason=episode.stop_reason,
            share=episode.share,
            meta={**(meta or {}), **scoring, **self._task_meta},
        )


def shown_images(observation: Observation) -> tuple[Image.Image, ...]:
    """Return the images of an observation as a trajectory keeps them."""
    return tuple(Image.fromarray(np.asarray(image)) for image in observation["images"])


def _with_more(outcome: _Outcome, terms: Mapping[str, float]) -> _Outcome:
    total = {name: value + terms.get(name, 0.0) for name, value in outcome.reward_terms.items()}
    return replace(outcome, reward=sum(total.values()), reward_terms=total)


def _jsonable(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a task's metadata that JSON holds; a generated scene's list of objects is not repeated."""
    found = {}
    for name, value in meta.items():
        if name in ("objects", "targets"):
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            continue
        found[name] = value
    return found


def _image(shown: np.ndarray[Any, Any], returned: Image.Image | None) -> Image.Image:
    """Return a shown image, as the one that the program returned where it is the same."""
    if returned is not None and returned.mode == "RGB" and np.array_equal(np.asarray(returned), shown):
        return returned
    return Image.fromarray(shown)


def _box(box: Any) -> Box:
    x1, y1, x2, y2 = (int(value) for value in box)
    return ImageBox((x1, y1, x2, y2), box.image) if isinstance(box, ImageBox) else (x1, y1, x2, y2)
