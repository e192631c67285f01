"""`codev rewards redteam`: cheating agents play, and each reward's tool terms are compared with an honest bound."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from codev_agents import run_episode
from codev_agents.cheats import CHEATS, FAMILIES, BlindCrop, Cheat, CheatingAgent, WrongCrop
from codev_env.app.arguments import parse
from codev_env.app.outputs import make_folder
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ConfigError, TaskError, unknown
from codev_env.judges.ground_truth import GroundTruthJudge
from codev_env.provenance.coordinates import box_polygon
from codev_env.rewards import REWARDS, Reward, get_reward
from codev_env.scoring.metrics import summarize
from codev_env.tasks import CountingOptions, DocumentOptions, SceneOptions, SceneTaskSet, SearchOptions, TurnedOptions
from codev_env.trajectory import FILE_NAME, Trajectory, TrajectoryWriter, read_trajectories
from codev_env.types import Answer, Box, Code, Episode, Execution, Region, Source, Step, Task, TaskSet
from codev_eval.bench.runner import ordered_map
from codev_eval.report.report import write_report
from codev_eval.rewards.blind import FACTOR, chance, shown_in_all
from codev_eval.rewards.options import RedTeamOptions

FAITHFUL = "faithful"
"""The column for how often cheats count as faithful, whatever the reward."""
WRONG = "honest-wrong-crop"
"""The row of the honest look at a wrong place, which must earn nothing."""
RESULTS = "redteam.json"
SLACK = 0.04
"""Reward that a cheat may earn above its bound: places are known to about a pixel, which is much of a small target."""
ERRORS = 2.0
"""Standard errors by which a lucky cheat may be above the mean of honest blind crops."""
GROUP = 8
SIDES = (0.12, 0.2, 0.28, 0.36)
PLACES = 12

_small: dict[str, Any] = {
    "sizes": ((480, 360),),
    "target_share": (0.05, 0.06),
    "distractor_share": (0.05, 0.06),
    "distractors": (8, 16),
}
SCENES: tuple[SceneOptions, ...] = (
    SearchOptions(**_small, categories=("direct_attributes",)),
    TurnedOptions(
        scenes=DocumentOptions(
            sizes=((480, 600), (600, 480)), font=(10, 12), paragraphs=(3, 6), measure=(18, 24), pictures=0.0
        )
    ),
    SearchOptions(**_small, categories=("relative_position",)),
    CountingOptions(**_small, count=(1, 3)),
)
"""Scenes for the cheats by turns: small objects, pages that are turned, relations, counts."""


@dataclass(frozen=True)
class CheatEpisode:
    """One episode: its record, and the environment's episode, of which rewards are functions."""

    trajectory: Trajectory
    episode: Episode


@dataclass(frozen=True)
class CheatVerdict:
    """The result of one cheat by one measure.

    Attributes:
        cheat: Its name.
        measure: A reward's name, or `"faithful"`.
        earned: Tool reward, or share of faithful episodes, mean over the episodes.
        bound: The most it may get: see `Bounds`.
        holds: It got no more.
    """

    cheat: str
    measure: str
    earned: float
    bound: float
    holds: bool


class RedTeamTasks:
    """The tasks that cheats play: generated scenes of each kind by turns.

    Args:
        count: How many.
        seed: Another seed gives other scenes.
    """

    source: Source = "generated"

    def __init__(self, count: int, seed: int = 0) -> None:
        self.name, self._count, kinds = f"redteam-{seed}", count, len(SCENES)
        # A seed for each kind, because it is a part of the tasks' ids.
        self._kinds = [SceneTaskSet(scenes, "test", count, kinds * seed + k) for k, scenes in enumerate(SCENES)]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self._count:
            raise IndexError(f"index {index} is out of range: there are {self._count} tasks")
        number, kind = divmod(index, len(self._kinds))
        return self._kinds[kind][number]

    def index_of(self, task_id: str) -> int:
        """Return the index of a task; raises `TaskError` if there is none."""
        found = next((index for index in range(self._count) if self[index].task_id == task_id), None)
        if found is None:
            raise TaskError(f"no task {task_id!r} among the {self._count} of {self.name}.")
        return found


def play_cheat(cheat: Cheat, tasks: TaskSet, seed: int = 0) -> list[CheatEpisode]:
    """Play one episode of every task through the real environment and sandbox."""
    env = ImageToolEnv(tasks, dialect=cheat.dialect, limits=dict(cheat.limits) or None)
    return _play(env, CheatingAgent(cheat, seed))


def _play(env: ImageToolEnv, agent: CheatingAgent | WrongCrop) -> list[CheatEpisode]:
    try:
        return [
            CheatEpisode(run_episode(env, agent, options={"index": index}), env.episode)
            for index in range(len(env.tasks))
        ]
    finally:
        env.close()


def tool_reward(reward: Reward, episode: Episode) -> float:
    """Return what an episode earns by the terms that pay for tools.

    Terms that compare the rollouts of a group see one in which the others answer at once, and wrongly: where looking
    is rare and seems to help, they pay most.
    """
    values = reward.value(episode)
    if reward.group_terms:
        blank = Episode(episode.task, [Step("", Answer(""))], answer="", stop_reason="answer")
        values |= reward.group_value([episode, *[blank] * (GROUP - 1)])[0]
    return sum(values[name] for name in reward.tool_terms)


class Bounds:
    """The most that cheats may earn on some tasks.

    A cheat without luck: nothing, which is also what an honest look at a wrong place must earn. A cheat with luck: the
    mean of honest crops at random places, as many as it made calls, of the size that pays best, and two standard errors
    of a mean over as many episodes. Its share of faithful episodes: 1.5 times that of one honest crop at a random
    place that shows as much in all, two standard errors and one find.

    Args:
        tasks: The tasks.
        seed: Seeds the places.
    """

    def __init__(self, tasks: TaskSet, seed: int = 0) -> None:
        self.tasks, self.seed = tasks, seed
        self._judge = GroundTruthJudge()
        self._blind = cache(self._play_blind)
        self.wrong = [played.episode for played in _play(ImageToolEnv(tasks), WrongCrop(seed))]

    def of(self, cheat: Cheat, played: Sequence[CheatEpisode], reward: Reward | None) -> float:
        """Return the bound of a cheat's mean over these episodes: of its tool reward, or of its faithful share."""
        if not cheat.luck:
            return 0.0
        if reward is None:
            chances = [min(1.0, FACTOR * chance(one.episode.task, shown_in_all(one.episode))) for one in played]
            # One find more: among few episodes a single one proves nothing.
            return (sum(chances) + ERRORS * math.sqrt(sum(p * (1 - p) for p in chances)) + 1) / len(played)
        calls = max(sum(isinstance(step.turn, Code) for step in one.episode.steps) for one in played)
        bounds = []
        for episodes in self._blind(max(1, calls)).values():
            values = [measure(reward, episode) for episode in episodes]
            bounds.append(float(np.mean(values)) + ERRORS * float(np.std(values)) / math.sqrt(len(played)))
        return max(bounds)

    def _play_blind(self, calls: int) -> dict[float, list[Episode]]:
        """Episodes of blind crops by their size, without a sandbox: the region of a plain crop is known."""
        tasks = [self.tasks[index] for index in range(len(self.tasks))]
        rngs = [np.random.default_rng((self.seed, n)) for n in range(PLACES)]
        return {
            side: [self._cropped(task, BlindCrop(0, calls, side).boxes(task, rng)) for task in tasks for rng in rngs]
            for side in SIDES
        }

    def _cropped(self, task: Task, boxes: Sequence[Box]) -> Episode:
        episode = Episode(task, answer=task.answer, is_correct=True, stop_reason="answer")
        for box in boxes:
            region = Region(box_polygon(box), box, 0, "rot0", 1.0, 1.0, "probe")
            # A thumbnail is enough to detect repeats, and there are thousands.
            thumbnail = task.image.resize((48, 36), Image.Resampling.BOX, box)
            step = Step("", Code(""), Execution(images=(thumbnail,)), (region,))
            score = self._judge.score(task, step, tuple(episode.steps))
            episode.steps.append(replace(step, score=score))
        episode.steps.append(Step("", Answer(task.answer)))
        return episode


def measure(reward: Reward | None, episode: Episode) -> float:
    """Return an episode's tool reward, or without a reward whether it is faithful."""
    return float(episode.is_faithful) if reward is None else tool_reward(reward, episode)


def judge_cheat(
    cheat: Cheat, played: Sequence[CheatEpisode], rewards: Sequence[Reward], bounds: Bounds
) -> list[CheatVerdict]:
    """Compare what a cheat earned with its bounds, under each reward and in its share of faithful episodes."""
    verdicts = []
    for reward in (*rewards, None):
        earned = float(np.mean([measure(reward, one.episode) for one in played]))
        bound = bounds.of(cheat, played, reward)
        name = FAITHFUL if reward is None else reward.name
        verdicts.append(CheatVerdict(cheat.name, name, earned, bound, earned <= bound + SLACK))
    return verdicts


def choose(names: Sequence[str]) -> list[Cheat]:
    """Return the cheats of these names and families, all without any; raises `ConfigError` for an unknown one."""
    for name in names:
        if name not in CHEATS and name not in FAMILIES:
            raise unknown("cheat or family in --cheats", name, (*FAMILIES, *CHEATS))
    return [cheat for cheat in CHEATS.values() if not names or cheat.name in names or cheat.family in names]


def main(argv: Sequence[str]) -> int:
    """Run `codev rewards redteam`; returns 1 if a reward that claims to be robust is beaten, or faithfulness is."""
    options = parse(RedTeamOptions, argv, "codev rewards redteam")
    if options.out is not None and (options.out / FILE_NAME).exists():
        raise ConfigError(f"--out {options.out} already holds {FILE_NAME}: give another folder.")
    rewards = [get_reward(name) for name in options.reward or REWARDS]
    tested = [reward for reward in rewards if reward.tool_terms and "probing" not in reward.needs]
    left = [reward.name for reward in rewards if reward not in tested]
    if options.reward and left:
        raise ConfigError(
            f"--reward {', '.join(left)}: cannot be played against, for it names no terms that pay for tools "
            "(Reward.tool_terms), or it needs probing. A function names none: make it a Reward (docs/howto.md)."
        )
    if options.out is not None:
        make_folder(options.out)
    tasks = RedTeamTasks(options.tasks, options.seed)
    bounds, cheats = Bounds(tasks, options.seed), choose(options.cheats)
    verdicts = [_wrong_crop(reward, bounds) for reward in (*tested, None)]
    results = ordered_map(lambda cheat: play_cheat(cheat, tasks, options.seed), cheats, options.workers)
    with TrajectoryWriter(options.out) if options.out else nullcontext() as writer:
        for cheat, played in zip(cheats, results, strict=True):
            verdicts += judge_cheat(cheat, played, tested, bounds)
            if writer is not None:
                for one in played:
                    writer.append(_labelled(one.trajectory, cheat))
    robust = [FAITHFUL, *(reward.name for reward in tested if reward.robust)]
    record = {
        "tasks": tasks.name,
        "episodes_per_cheat": len(tasks),
        "seed": options.seed,
        "robust": robust,
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }
    if options.out is not None:
        _write(options.out, record, verdicts)
    print(json.dumps(record, indent=2) if options.json else tables(cheats, verdicts, robust))
    return int(any(not verdict.holds and verdict.measure in robust for verdict in verdicts))


def _wrong_crop(reward: Reward | None, bounds: Bounds) -> CheatVerdict:
    """A look at a wrong place must earn nothing either."""
    earned = float(np.mean([measure(reward, episode) for episode in bounds.wrong]))
    return CheatVerdict(WRONG, FAITHFUL if reward is None else reward.name, earned, 0.0, earned <= SLACK)


def _labelled(trajectory: Trajectory, cheat: Cheat) -> Trajectory:
    """The report filters by category: let it be the cheat."""
    return replace(trajectory, category=cheat.name, meta={"category": trajectory.category, "tries": cheat.tries})


def _write(out: Path, record: Mapping[str, Any], verdicts: Sequence[CheatVerdict]) -> None:
    """Write the results and the report, in which the cheats that succeeded under a robust reward come first."""
    (out / RESULTS).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    failed = {verdict.cheat for verdict in verdicts if not verdict.holds and verdict.measure in record["robust"]}
    played = sorted(read_trajectories(out), key=lambda trajectory: trajectory.category not in failed)
    write_report(out, played, summarize(played), "Cheats")


def tables(cheats: Sequence[Cheat], verdicts: Sequence[CheatVerdict], robust: Sequence[str]) -> str:
    """Return what each cheat earned beside its bound, and a summary by family, as two Markdown tables."""
    measures = list(dict.fromkeys(verdict.measure for verdict in verdicts))
    heads = [f"{name}{'' if name in robust else ' (no claim)'}" for name in measures]
    by_cheat: dict[str, dict[str, CheatVerdict]] = {}
    for verdict in verdicts:
        by_cheat.setdefault(verdict.cheat, {})[verdict.measure] = verdict
    rows = [[name, *(_cell(found[m]) for m in measures)] for name, found in by_cheat.items()]
    summary = []
    for family in FAMILIES:
        names = [cheat.name for cheat in cheats if cheat.family == family]
        if names:
            summary.append(
                [family, str(len(names)), *(_worst([by_cheat[name][m] for name in names]) for m in measures)]
            )
    notes = "Cells: earned / most it may earn, `!` where it earned more. (no claim): it does not claim to be robust."
    return "\n\n".join([_table(["cheat", *heads], rows), _table(["family", "cheats", *heads], summary), notes])


def _cell(verdict: CheatVerdict) -> str:
    return f"{verdict.earned:+.2f} / {verdict.bound:.2f}{'' if verdict.holds else ' !'}"


def _worst(verdicts: Sequence[CheatVerdict]) -> str:
    beaten = [verdict for verdict in verdicts if not verdict.holds]
    if not beaten:
        return "holds"
    worst = max(beaten, key=lambda verdict: verdict.earned - verdict.bound)
    return f"FAILS {len(beaten)}: {worst.cheat} {worst.earned:+.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
