"""The episode loop: one agent, one environment, one trajectory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from PIL import Image

from codev_agents.agent import Agent
from codev_env.trajectory import Trajectory, TurnRecord
from codev_env.types import Code, Step


def run_episode(
    env: gym.Env[Any, Any], agent: Agent, *, seed: int | None = None, options: Mapping[str, Any] | None = None
) -> Trajectory:
    """Play one episode to its end.

    Args:
        env: One of codev_env's environments, possibly wrapped.
        agent: Who plays. If it has a mapping `meta` after the episode (token counts, ...), that goes into
            `Trajectory.meta["agent"]`.
        seed: Passed to `env.reset`.
        options: Passed to `env.reset`, for example `{"index": 3}`.

    Returns:
        The record of the episode.
    """
    observation, info = env.reset(seed=seed, options=None if options is None else dict(options))
    agent.reset(env)
    first, turns, done = observation, [], False
    while not done:
        action = agent.act(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        done = terminated or truncated
        turns.append(record_turn(env.unwrapped.episode.steps[-1], observation, float(reward), info))  # type: ignore[attr-defined]
    meta = dict(getattr(agent, "meta", {}))
    return record_episode(env, first, turns, info, agent=agent.name, seed=seed, meta={"agent": meta} if meta else {})


def record_turn(step: Step, observation: Mapping[str, Any], reward: float, info: Mapping[str, Any]) -> TurnRecord:
    """Record one turn from what `env.step` returned and the environment's own `Step`."""
    execution, score = step.execution, step.score
    return TurnRecord(
        action=step.action,
        kind=info["action_kind"],
        code=step.turn.code if isinstance(step.turn, Code) else None,
        stdout=execution.stdout if execution else "",
        error=execution.error if execution else None,
        stop=execution.stop if execution else None,
        observation=observation["text"],
        images=_images(observation),
        crop_boxes=tuple(None if box is None else _box(box) for box in info["crop_boxes"]),
        reward=reward,
        reward_terms={name: float(value) for name, value in info["reward_terms"].items()},
        score=score.value if score else None,
        score_why=score.why if score else "",
        faithful=bool(score and score.faithful),
        judge_failed=bool(score and score.failed),
        wall_s=float(execution.wall_s) if execution else 0.0,
        regions=step.regions,
        problems=step.turn.problems,
        probed=step.probed,
    )


def record_episode(
    env: gym.Env[Any, Any],
    first: Mapping[str, Any],
    turns: list[TurnRecord],
    info: Mapping[str, Any],
    *,
    agent: str,
    seed: int | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Trajectory:
    """Put a finished episode's turns together with its task; for loops of their own, such as a trainer's.

    Args:
        env: The environment, before its next reset.
        first: The observation `reset` returned.
        turns: From `record_turn`.
        info: The last step's info.
        agent: Name of who played.
        seed: The seed `reset` was called with.
        meta: JSON-able extras; `"task"` is added, what the task's own metadata tells.
    """
    base: Any = env.unwrapped
    task, episode = base.task, base.episode
    return Trajectory(
        task_id=task.task_id,
        index=int(info["index"]),
        env_id=env.spec.id if env.spec else type(base).__name__,
        split=getattr(base, "split", ""),
        source=task.source,
        category=task.category,
        question=task.question,
        choices=tuple(task.choices),
        answer=task.answer,
        targets=tuple(_box(box) for box in task.targets),
        transform=tuple(task.transform),
        system_prompt=base.system_prompt,
        prompt=first["text"],
        images=_images(first),
        dialect=base.dialect.name,
        observation_role=base.dialect.observation_role,
        reward_name=base.reward.name,
        agent=agent,
        seed=seed,
        turns=tuple(turns),
        final_answer=episode.answer,
        is_correct=bool(episode.is_correct),
        is_faithful=bool(episode.is_faithful),
        stop_reason=str(info["stop_reason"]),
        meta={**(meta or {}), **({"task": told} if (told := _told(task.meta)) else {})},
    )


def _told(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What a task's metadata tells, as far as JSON holds it; a generated scene's list of objects is not repeated."""
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


def _images(observation: Mapping[str, Any]) -> tuple[Image.Image, ...]:
    return tuple(Image.fromarray(np.asarray(image)) for image in observation["images"])


def _box(box: Any) -> tuple[int, int, int, int]:
    x1, y1, x2, y2 = (int(value) for value in box)
    return x1, y1, x2, y2
