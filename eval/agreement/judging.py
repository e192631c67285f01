"""Shows the crops of known kind of each scene in the real sandbox, and has two judges score every one of them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Literal

import numpy as np

from codev_agents.episode import EpisodeRecorder
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ConfigError, JudgeError
from codev_env.judges import Judge
from codev_env.threads import DaemonThreads
from codev_env.trajectory import Trajectory
from codev_env.types import Code, Step, StepScore, StopReason, Task, TaskSet
from codev_eval.agreement.crops import programs
from codev_eval.bench.runner import ordered_map

Part = Literal["program", "reference", "judge"]

STOP: StopReason = "crops shown"
"""`stop_reason` of the trajectories, which end when all crops are shown."""
_MOST_TURNS = 1000


@dataclass(frozen=True)
class JudgedCrop:
    """One crop and the scores of two judges.

    Attributes:
        kind: Which of `crops.KINDS`.
        reference: Score of the judge that counts as right; `None` where there is none.
        judge: Score of the judge that is examined; `None` where there is none.
        failed: The part that failed, `None` if none did. Such a crop is counted, and left out of all rates.
        reason: Why, in one line.
    """

    kind: str
    reference: StepScore | None = None
    judge: StepScore | None = None
    failed: Part | None = None
    reason: str = ""

    def row(self) -> dict[str, Any]:
        """Return it as a row of a file; JSON-able, without images."""
        scores = {"reference": self.reference, "judge": self.judge}
        row: dict[str, Any] = {"kind": self.kind}
        row |= {who: s and {"value": s.value, "faithful": s.faithful, "why": s.why} for who, s in scores.items()}
        return row | ({"failed": self.failed, "reason": self.reason} if self.failed else {})


@dataclass(frozen=True)
class JudgedScene:
    """The crops of one scene.

    Attributes:
        trajectory: A turn for each crop, with the scores of the judge that is examined; `meta["crops"]` holds both.
        crops: In the same order.
    """

    trajectory: Trajectory
    crops: tuple[JudgedCrop, ...]


Ask = Callable[[Task, str, Step], JudgedCrop]


def judge_scenes(
    tasks: TaskSet, judge: Judge, reference: Judge, *, seed: int = 0, workers: int = 2, calls: int = 16
) -> Iterator[JudgedScene]:
    """Show every scene's crops, have them judged, and yield the scenes in order.

    Args:
        tasks: Tasks with targets.
        judge: The judge that is examined; called from several threads.
        reference: The judge that counts as right.
        seed: Chooses the places of crops, together with the index of the task.
        workers: Scenes at the same time.
        calls: Crops judged at the same time, over all scenes.

    Raises:
        ConfigError: A task without targets.
    """
    # Any number of turns, without rewards: no agent plays these episodes.
    envs = [ImageToolEnv(tasks, judge="none", reward="outcome", max_turns=_MOST_TURNS) for _ in range(workers)]
    free: SimpleQueue[ImageToolEnv] = SimpleQueue()
    for env in envs:
        free.put(env)

    pool = DaemonThreads(calls, "codev-judge")

    def ask(task: Task, kind: str, step: Step) -> JudgedCrop:
        return _judge_crop(task, kind, step, judge, reference)

    def scene(index: int) -> JudgedScene:
        env = free.get()
        try:
            return _judge_scene(env, index, ask, seed, pool)
        finally:
            free.put(env)

    try:
        yield from ordered_map(scene, range(len(tasks)), workers)
    finally:
        pool.close()
        for env in envs:
            env.close()


def _judge_scene(env: ImageToolEnv, index: int, ask: Ask, seed: int, pool: DaemonThreads) -> JudgedScene:
    first, info = env.reset(options={"index": index})
    task, dialect = env.task, env.dialect
    if not task.targets:
        raise ConfigError(
            f"task {task.task_id!r} has no targets, so no crop of it is of known kind: take other scenes."
        )
    shown = programs(task, np.random.default_rng((seed, index)))
    steps = [env.execute(dialect.write(Code(code))) for code in shown.values()]
    # In the context of the scene, so that judges know when nobody waits for it any more.
    asked = [pool.submit(copy_context().run, ask, task, *one) for one in zip(shown, steps, strict=True)]
    crops = tuple(job.result() for job in asked)
    recorder = EpisodeRecorder(env, first, info["index"])
    for step, crop in zip(steps, crops, strict=True):
        observation, reward, _, _, info = env.finish(step, crop.judge or StepScore(None, crop.reason, failed=True))
        recorder.add(env.episode.steps[-1], observation, reward, info["reward_terms"], info["crop_boxes"])
    env.cut_off(STOP)
    meta = {"crops": [crop.row() for crop in crops]}
    return JudgedScene(recorder.finish(env.episode, "crops of known kind", meta), crops)


def _judge_crop(task: Task, kind: str, step: Step, judge: Judge, reference: Judge) -> JudgedCrop:
    """Judge one crop as if it were the first of its episode."""
    execution = step.execution
    if execution is None or execution.error is not None or len(execution.images) != 1:
        reason = (execution and execution.error) or "did not show one image"
        return JudgedCrop(kind, failed="program", reason=" ".join(reason.split()))
    right, problem = _ask(reference, task, step)
    if right is None:
        return JudgedCrop(kind, failed="reference", reason=problem)
    score, problem = _ask(judge, task, step)
    return JudgedCrop(kind, right, score, None if score else "judge", problem)


def _ask(judge: Judge, task: Task, step: Step) -> tuple[StepScore | None, str]:
    """Return a judge's score, or why there is none."""
    try:
        score = judge.score(task, step, ())
    except JudgeError as error:
        return None, " ".join(str(error).split())
    except Exception as error:  # Whatever fails, as in an environment: the crop has no score.
        return None, " ".join(f"{type(error).__name__}: {error}".split())
    return (None, f"no score ({score.why})") if score.failed or score.value is None else (score, "")
