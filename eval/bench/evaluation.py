"""One evaluation: runs every condition's episodes, each once, and keeps them, so that it can be continued."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gymnasium as gym

from codev_agents import Agent
from codev_agents.engines.folders import CONFIG, model_advice
from codev_env.dialects import get_dialect
from codev_env.envs.tool_free import ToolFree
from codev_env.errors import CodevError, ConfigError
from codev_env.registration import env_id_of
from codev_env.scoring.clusters import source_of
from codev_env.tasks import wrap_tasks
from codev_env.trajectory import Trajectory
from codev_env.types import TaskSet
from codev_env.usage import EpisodeUsage
from codev_eval.bench.checks import check_scorer
from codev_eval.bench.conditions import Perturbation, Perturbed, all_variants, without_source
from codev_eval.bench.folder import PERTURBED, PLAIN, SUITE, WITHOUT_TOOL, read_metrics
from codev_eval.bench.measures import Guess, bench_of, dual, returned_image, sample_of
from codev_eval.bench.models import is_folder, parse_model
from codev_eval.bench.options import EvalOptions
from codev_eval.bench.progress import ProgressBar
from codev_eval.bench.released import is_saved
from codev_eval.bench.results_folder import ResultsFolder
from codev_eval.bench.runner import Failure, Key, keys, play
from codev_eval.bench.saved import SavedModel
from codev_eval.bench.servers import check_servers
from codev_eval.bench.unchanged import digest_of, first_changed, is_at

MOST_FAILURES = 20
"""A benchmark is left if this many of its episodes failed since the start and none succeeded."""


class EvaluationError(CodevError, RuntimeError):
    """Episodes that could not be evaluated."""


@dataclass(frozen=True)
class FailedEpisode:
    """An episode that could not be evaluated.

    Attributes:
        bench: The benchmark.
        condition: `""` for the plain one, else the name of its folder.
        failure: Which episode, and why.
    """

    bench: str
    condition: str
    failure: Failure

    def row(self) -> dict[str, Any]:
        """Return its entry in metrics.json."""
        row = {"bench": self.bench, "index": self.failure.index, "sample": self.failure.sample}
        return row | ({"condition": self.condition} if self.condition else {}) | {"reason": self.failure.reason}


@dataclass
class BenchEpisodes:
    """The episodes of an evaluation.

    Attributes:
        tasks: The task set of each benchmark.
        episodes: By condition and benchmark, in order of task and sample.
        failed: Episodes that could not be evaluated.
        not_tried: By condition and benchmark: how many were not tried, because the first ones all failed.
        failed_usage: By condition and benchmark: what failed episodes took, those of earlier starts included.
        at_once: By benchmark, of a saved model under `dual`: `measures.dual` with answers that it is made to give at
            once, in place of episodes without the tool.
    """

    tasks: dict[str, TaskSet]
    episodes: dict[str, dict[str, list[Trajectory]]] = field(default_factory=dict)
    failed: list[FailedEpisode] = field(default_factory=list)
    not_tried: dict[tuple[str, str], int] = field(default_factory=dict)
    failed_usage: dict[tuple[str, str], EpisodeUsage] = field(default_factory=dict)
    at_once: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class _BenchWork:
    """The episodes of one benchmark under one condition."""

    bench: str
    tasks: TaskSet
    indices: Sequence[int]
    samples: int = 1
    skip: frozenset[Key] = frozenset()
    dialect: Any = None
    perturb: Perturbation | None = None


class Evaluation:
    """Runs the evaluation that the options describe; see `play`.

    Args:
        options: Checked options.

    Raises:
        ConfigError: An option that cannot be used; nothing is written then.
        TaskError: Data that cannot be read.
    """

    def __init__(self, options: EvalOptions) -> None:
        self.options = options
        self.tasks = {bench: options.load(bench) for bench in options.benches}
        self.counts = {bench: self._count(tasks) for bench, tasks in self.tasks.items()}
        self.wrapped = {
            name: {bench: all_variants(name, wrap_tasks(tasks, spec)) for bench, tasks in self.tasks.items()}
            for name, spec in options.suite_specs().items()
        }
        # Made now, so that an option that cannot be used is reported before anything is written.
        for work in self._plain():
            self._env(work).close()
        check_scorer(options.scorer, self.tasks)
        self._make_agent: Callable[[], Agent] | None = None
        if is_saved(options.as_, options.model):
            folder = Path(options.model)
            if is_folder(options.model) and not (folder / CONFIG).is_file():
                raise ConfigError(f"--model {folder} holds no model: config.json is missing; {model_advice(folder)}.")
        else:
            self._make_agent = parse_model(
                options.model, seed=options.seed, temperature=options.temperature, max_tokens=options.max_tokens
            )
            self._agents = [self._make_agent()]
        self._earlier: list[Trajectory] = []
        self._are_checked = False
        self._has_played = False

    def play(self) -> BenchEpisodes:
        """Run every episode that the folder does not hold yet.

        Raises:
            EvaluationError: If not a single plain episode could be evaluated.
        """
        with ExitStack() as held:
            self._folder = ResultsFolder(self.options, held)
            return self._play_all()

    def _play_all(self) -> BenchEpisodes:
        played = BenchEpisodes(self.tasks, failed_usage=self._folder.failed_usage)
        try:
            self._play_condition(PLAIN, self._plain(), played)
            plain = played.episodes[PLAIN]
            if not any(plain.values()):
                count = len(played.failed)
                raise EvaluationError(
                    f"none of the {count} episodes could be evaluated; the first: {played.failed[0].failure.reason}"
                )
            for condition, works in self._further(plain):
                self._play_condition(condition, works, played)
            if self.options.dual and self._make_agent is None:
                played.at_once = self._kept_at_once() or self._at_once(plain)
        except KeyboardInterrupt as error:
            out, again = self.options.out, " without --overwrite" if self.options.overwrite else ""
            raise KeyboardInterrupt(
                f"stopped before an episode was finished; {out} still holds the earlier evaluation."
                if self._folder.replaces
                else f"stopped; the episodes so far are in {out}. Continue with the same command{again}."
            ) from error
        finally:
            self._folder.leave()
        return played

    def _count(self, tasks: TaskSet) -> int:
        n, split = self.options.n, self.options.split
        if n is not None and n > len(tasks) and len(self.options.benches) == 1:
            raise ConfigError(f"--n is {n}, but {tasks.name} has {len(tasks)} tasks in split {split!r}.")
        return len(tasks) if n is None else min(n, len(tasks))

    def _plain(self) -> list[_BenchWork]:
        return [
            _BenchWork(bench, tasks, range(self.counts[bench]), self.options.samples)
            for bench, tasks in self.tasks.items()
        ]

    def _further(self, plain: dict[str, list[Trajectory]]) -> Iterator[tuple[str, list[_BenchWork]]]:
        """Yield the other conditions; the episodes of a perturbation are known after the plain ones."""
        if self.options.dual:
            dialect = ToolFree(get_dialect(self.options.dialect))
            yield WITHOUT_TOOL, [replace(work, dialect=dialect) for work in self._plain()]
        for name, wrapped in self.wrapped.items():
            yield (
                SUITE + name,
                [
                    _BenchWork(bench, tasks, without_source(tasks, self.counts[bench]))
                    for bench, tasks in wrapped.items()
                ],
            )
        for kind in self.options.perturb:
            works = []
            for work in self._plain():
                looked = {(t.index, sample_of(t)) for t in plain[work.bench] if returned_image(t)}
                skip = frozenset(key for key in keys(work.indices, work.samples) if key not in looked)
                works.append(replace(work, skip=skip, perturb=kind))
            yield PERTURBED + kind, works

    def _env(self, work: _BenchWork) -> gym.Env[Any, Any]:
        env = gym.make(
            env_id_of(work.bench),
            disable_env_checker=True,
            data=work.tasks,
            split=self.options.split,
            dialect=work.dialect or self.options.dialect,
            scorer=self.options.scorer,
            judge=self.options.judge,
            reward=self.options.reward,
            max_turns=self.options.max_turns,
            farm=self.options.farm or None,
            wrap=None,
        )
        return Perturbed(env, work.perturb, self.options.seed) if work.perturb else env

    @cached_property
    def _model(self) -> SavedModel:
        o = self.options
        return SavedModel(
            o.model,
            engine=o.engine,
            seed=o.seed,
            temperature=o.temperature,
            max_tokens=o.max_tokens,
            max_pixels=o.max_pixels,
            batch=o.batch,
            workers=o.workers,
        )

    def _kept_at_once(self) -> dict[str, dict[str, Any]]:
        """Return what the results have, if this start had nothing to play: it need not load the model then."""
        try:
            found = {} if self._has_played else read_metrics(self.options.out)["benches"]
        except (OSError, ConfigError):
            return {}
        kept = {bench: one["at_once"] for bench, one in found.items() if "at_once" in one}
        return kept if kept.keys() == self.tasks.keys() else {}

    def _at_once(self, plain: dict[str, list[Trajectory]]) -> dict[str, dict[str, Any]]:
        found = {}
        try:
            for work in self._plain():
                names = {t.index: t.task_id for t in plain[work.bench]}
                right = self._model.guesses(partial(self._env, work), names)
                found[work.bench] = dual(plain[work.bench], list(map(Guess, names.values(), right)), self.options.seed)
        except CodevError as error:  # such as a scorer's server that is gone; the episodes are worth their results
            print(f"Answers at once are left out: {error}", file=sys.stderr)
            return {}
        return found

    def _outcomes(self, condition: str, work: _BenchWork) -> Generator[Trajectory | Failure]:
        def meta(key: Key) -> dict[str, Any]:
            return {"eval": {"bench": work.bench, "sample": key[1], **({"condition": condition} if condition else {})}}

        asked: dict[str, Any] = {"samples": work.samples, "skip": work.skip, "meta": meta}
        if self._make_agent is None:
            return self._model.play(partial(self._env, work), work.indices, **asked)
        count = min(self.options.workers, len(list(keys(work.indices, work.samples, work.skip))))
        while len(self._agents) < count:
            self._agents.append(self._make_agent())
        players = [(self._env(work), agent) for agent in self._agents[:count]]
        return play(players, work.indices, seed=self.options.seed, **asked)

    def _play_condition(self, condition: str, works: Sequence[_BenchWork], played: BenchEpisodes) -> None:
        found = self._folder.episodes(condition)
        if condition == PLAIN:
            self._earlier = found
        todo = []
        for work in works:
            self._check_tasks(work, found)
            done = {(t.index, sample_of(t)) for t in found if bench_of(t) == work.bench}
            todo.append(replace(work, skip=work.skip | done))
        counts = [sum(1 for _ in keys(work.indices, work.samples, work.skip)) for work in todo]
        before = [sum(1 for _ in keys(work.indices, work.samples, work.skip)) for work in works]
        if any(counts):
            self._has_played = True
            self._check_unchanged()
            self._check_ready()
        if condition == PLAIN:  # after the checks: an option that is refused changes no file
            self._folder.note()
        if any(counts):
            bar = ProgressBar(condition or "episodes", sum(before), sum(before) - sum(counts), self.options)
            with closing(bar), self._folder.writing(condition) as write:
                kept = [used for (failed_in, _), used in played.failed_usage.items() if failed_in == condition]
                bar.start(found, sum(kept, EpisodeUsage()))
                for work, count in zip(todo, counts, strict=True):
                    if count:
                        self._play_work(condition, work, count, write, bar, played)
            found = self._folder.episodes(condition)
        played.episodes[condition] = {
            work.bench: sorted((t for t in found if bench_of(t) == work.bench), key=lambda t: (t.index, sample_of(t)))
            for work in works
        }

    def _check_tasks(self, work: _BenchWork, found: Sequence[Trajectory]) -> None:
        """Refuse to continue if the data is no longer that of the episodes in the folder."""
        for t in found:
            if bench_of(t) == work.bench and not is_at(work.tasks, t.task_id, t.index):
                raise self._changed(
                    f"{t.task_id!r} of {work.bench}, which is not task {t.index} of {work.tasks.name} now"
                )

    def _check_unchanged(self) -> None:
        """Refuse to play on if questions, answers or boxes of plain episodes of an earlier start have changed."""
        earlier, self._earlier = self._earlier, []
        for bench, tasks in self.tasks.items():
            # One episode of each task is enough, under transforms too.
            of_source = {source_of(t): t for t in earlier if bench_of(t) == bench}
            recorded = {t.index: t for t in of_source.values()}
            digests = {index: digest_of(t) for index, t in recorded.items()}
            index = first_changed(tasks, digests, self.options.workers)
            if index is not None:
                task_id = recorded[index].task_id
                raise self._changed(f"{task_id!r} of {bench} with a question, choices, answer or boxes other than now")

    def _check_ready(self) -> None:
        """Ask the servers and load the model, once, before the first episode of this start."""
        if not self._are_checked:
            agent = self._agents[0] if self._make_agent else None
            check_servers(agent, self.options.judge, self.options.scorer)
            if agent is None:
                _ = self._model
            self._are_checked = True

    def _changed(self, what: str) -> ConfigError:
        return ConfigError(
            f"--out {self.options.out} holds task {what}: the data has changed. Give another folder, or add "
            "--overwrite."
        )

    def _play_work(
        self,
        condition: str,
        work: _BenchWork,
        count: int,
        write: Callable[[Trajectory], None],
        bar: ProgressBar,
        played: BenchEpisodes,
    ) -> None:
        failed, succeeded = 0, False
        with closing(self._outcomes(condition, work)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, Failure):
                    played.failed.append(FailedEpisode(work.bench, condition, outcome))
                    failed += 1
                    bar.failed(outcome.usage)
                    self._note_usage((condition, work.bench), outcome.usage, played)
                    if failed == MOST_FAILURES and not succeeded:
                        played.not_tried[condition, work.bench] = count - failed
                        break
                    continue
                succeeded = True
                write(outcome)
                bar.add(outcome)

    def _note_usage(self, place: tuple[str, str], usage: EpisodeUsage, played: BenchEpisodes) -> None:
        """Keep what a failed episode took, for the cost of later starts, too."""
        if usage:
            played.failed_usage[place] = played.failed_usage.get(place, EpisodeUsage()) + usage
            self._folder.note_failed(played.failed_usage)
