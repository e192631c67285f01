"""Many environments stepped as one: code runs in threads over one sandbox, tool calls are judged in one batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from numpy.typing import NDArray

from codev_env.envs.codev_env import CodeVBenchEnv
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ConfigError, EpisodeLost, FarmError, JudgeError, unknown
from codev_env.threads import until_given_up
from codev_env.types import Code, Observation, Step, StepInfo, StepScore

if TYPE_CHECKING:
    from codev_env.farm.farm import Farm

MAX_WORKERS = 32
StepResult = tuple[Observation, float, bool, bool, StepInfo]


class ImageToolVectorEnv(VectorEnv[Observation, Sequence[str], NDArray[Any]]):
    """Steps many `ImageToolEnv` at once, equal step by step to Gymnasium's `SyncVectorEnv`.

    Args:
        env_fns: Make the environments. Their spaces must be equal; the first one's judge judges for all.
        autoreset_mode: When an episode that has ended starts again: `"NextStep"` (wastes one action), `"SameStep"`, or
            `"Disabled"`, where `reset(options={"reset_mask": array of bool})` restarts some of them.
        workers: Threads; by default one per environment, at most 32.
    """

    def __init__(
        self,
        env_fns: Iterable[Callable[[], ImageToolEnv]],
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        workers: int | None = None,
    ) -> None:
        self.envs = [env_fn() for env_fn in env_fns]
        if not self.envs:
            raise ConfigError("env_fns is empty; a vector environment needs at least one environment.")
        self.num_envs = len(self.envs)
        self.autoreset_mode = _mode_of(autoreset_mode)
        first = self.envs[0]
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._observations: list[Observation | None] = [None] * self.num_envs
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)
        if workers is None:
            workers = min(self.num_envs, MAX_WORKERS)
        elif isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise ConfigError(f"workers is {workers!r}; it must be a number of threads, at least 1, or None.")
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="codev-env")

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seed of each environment's random generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Each environment's random generator."""
        return self.get_attr("np_random")

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every environment, or in those of `options["reset_mask"]`.

        Args:
            seed: One seed, counted up over the environments, or one per environment.
            options: Passed to every environment, without `reset_mask`.

        Returns:
            The batch of observations, those of unmasked environments as they were, and the infos of the masked ones.
        """
        seeds = self._seeds(seed)
        mask, options = self._mask(options)
        chosen: list[int] = np.flatnonzero(mask).tolist()
        results = self._map(lambda i: self.envs[i].reset(seed=seeds[i], options=options), chosen)
        for i in np.flatnonzero(~mask).tolist():
            self._observations[i] = deepcopy(self._observations[i])
        infos: dict[str, Any] = {}
        for i, (observation, info) in zip(chosen, results, strict=True):
            self._observations[i] = observation
            infos = self._add_info(infos, dict(info), i)
        self._ended[mask] = False
        return self._batch(), infos

    def step(
        self, actions: Sequence[str]
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Take one turn in every environment; one whose episode has ended is treated as `autoreset_mode` says.

        Raises:
            ResetNeeded: In `"Disabled"` mode, if an episode has ended and was not reset.
            JudgeError: If the judge failed; after any error all episodes of the batch end, so `reset` comes next.
        """
        if isinstance(actions, str) or not isinstance(actions, Sized):  # the letters of a text would be actions
            kind = "one text" if isinstance(actions, str) else f"a {type(actions).__name__}"
            raise ConfigError(f"actions is {kind}; give a list of texts, one per environment.")
        if len(actions) != self.num_envs:
            raise ConfigError(f"{len(actions)} actions for {self.num_envs} environments; give one per environment.")
        if self.autoreset_mode == AutoresetMode.DISABLED and self._ended.any():
            ended = np.flatnonzero(self._ended).tolist()
            raise ResetNeeded(f"the episodes of environments {ended} are over; reset them with options reset_mask.")
        again = np.flatnonzero(self._ended).tolist()
        played = np.flatnonzero(~self._ended).tolist()
        try:
            # Restarts come last: after an error of the others they would be forgotten, and their tasks skipped.
            results: dict[int, StepResult] = dict(zip(played, self._play(played, actions), strict=True))
            results |= zip(again, self._map(self._restart, again), strict=True)
            return self._collect(results)
        except BaseException:
            # The others have taken their turn, or run its code; a second try would do it twice.
            for i in played:
                self.envs[i].break_off()
            raise

    def render(self) -> tuple[Any, ...]:
        """Draw every environment."""
        return tuple(env.render() for env in self.envs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or read an attribute, in order."""
        found = [getattr(env, name) for env in self.envs]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every environment."""
        return tuple(getattr(env, name) for env in self.envs)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment, to one value each from a list or tuple, else to the same value."""
        each = values if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ConfigError(f"{len(each)} values of {name!r} for {self.num_envs} environments; give one each.")
        for env, value in zip(self.envs, each, strict=True):
            setattr(env, name, value)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments and the threads."""
        self._pool.shutdown()
        for env in self.envs:
            env.close()

    def _restart(self, i: int) -> StepResult:
        observation, info = self.envs[i].reset()
        return observation, 0.0, False, False, info

    def _play(self, played: list[int], actions: Sequence[str]) -> list[StepResult]:
        """Run the three phases of a step in these environments: all code, then one batch of judging, then the rest."""
        steps = self._map(lambda i: self.envs[i].execute(actions[i]), played)
        scores = self._judge(played, steps)
        finish = [
            lambda i=i, s=s, v=v: self.envs[i].finish(s, v) for i, s, v in zip(played, steps, scores, strict=True)
        ]
        return self._map(lambda job: job(), finish)

    def _judge(self, played: list[int], steps: list[Step]) -> list[StepScore | None]:
        from codev_env.judges import BatchJudge

        judge = self.envs[0].judge
        if not isinstance(judge, BatchJudge):
            return self._map(lambda job: self.envs[job[0]].score(job[1]), list(zip(played, steps, strict=True)))
        asked = [(self.envs[i], step) for i, step in zip(played, steps, strict=True) if isinstance(step.turn, Code)]
        items = [(env.task, step, tuple(env.episode.steps)) for env, step in asked]
        try:
            scored = judge.score_batch(items) if items else []
        except JudgeError:
            raise
        except Exception as error:
            raise JudgeError(f"judge {judge.name!r} failed on a batch of {len(items)}: {error!r}") from error
        if len(scored) != len(items):
            raise JudgeError(f"judge {judge.name!r} returned {len(scored)} scores for a batch of {len(items)}.")
        scores = iter(scored)
        return [next(scores) if isinstance(step.turn, Code) else None for step in steps]

    def _collect(self, results: dict[int, StepResult]) -> Any:
        """Put single results together in the order of the environments, as `SyncVectorEnv` does."""
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminations = np.zeros(self.num_envs, dtype=np.bool_)
        truncations = np.zeros(self.num_envs, dtype=np.bool_)
        infos: dict[str, Any] = {}
        for i in range(self.num_envs):
            observation, rewards[i], terminations[i], truncations[i], info = results[i]
            if self.autoreset_mode == AutoresetMode.SAME_STEP and (terminations[i] or truncations[i]):
                infos = self._add_info(infos, {"final_obs": observation, "final_info": info}, i)
                observation, info = self.envs[i].reset()
            self._observations[i] = observation
            infos = self._add_info(infos, dict(info), i)
        if self.autoreset_mode != AutoresetMode.SAME_STEP:
            self._ended = terminations | truncations
        return self._batch(), rewards, terminations, truncations, infos

    def _batch(self) -> Observation:
        out: Any = create_empty_array(self.single_observation_space, n=self.num_envs)
        batch = concatenate(self.single_observation_space, cast("Any", self._observations), out)
        return cast("Observation", batch)

    def _map(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """Run jobs in the threads; wait for all of them before the first error is raised."""
        if self.closed:
            raise ClosedEnvironmentError("these environments are closed; make others.")
        given_up = threading.Event()
        futures = [self._pool.submit(until_given_up, given_up, function, job) for job in jobs]
        try:
            errors = []
            for future in futures:
                errors.append(future.exception())
                if isinstance(errors[-1], FarmError):
                    given_up.set()  # the others would wait for a node as long as this one
        except BaseException:
            given_up.set()
            raise
        first = next((error for error in errors if error is not None), None)
        if first is not None:
            raise first
        return [future.result() for future in futures]

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ConfigError(f"{len(seed)} seeds for {self.num_envs} environments; give one number or one each.")
        return seed

    def _mask(self, options: dict[str, Any] | None) -> tuple[NDArray[np.bool_], dict[str, Any] | None]:
        """Split `reset_mask` off the options; the mask and the options stay the caller's."""
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, dtype=np.bool_), options
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ConfigError(f"reset_mask is {mask!r}; it must be a bool array of shape ({self.num_envs},).")
        if not mask.any():
            raise ConfigError("reset_mask is all False; mark at least one environment to reset.")
        if any(self._observations[i] is None for i in np.flatnonzero(~mask)):
            raise ResetNeeded("the first reset must be of all environments; leave reset_mask out.")
        return mask.copy(), {name: value for name, value in options.items() if name != "reset_mask"}


def _mode_of(name: str | AutoresetMode) -> AutoresetMode:
    try:
        return AutoresetMode(name)
    except ValueError:
        raise unknown("autoreset_mode", name, [mode.value for mode in AutoresetMode]) from None


class FarmVectorEnv(ImageToolVectorEnv):
    """The same over a farm: the programs of a step leave as one batch per node, which also judges them.

    An episode whose node is lost after it has run a program starts again at once, with the same task. Its step returns
    the first observation, `info["turn"]` 0 and the reward so far with its sign changed, and does not end the episode.

    Attributes:
        restarts: How often that happened, by environment.
    """

    def __init__(self, env_fns: Iterable[Callable[[], ImageToolEnv]], **options: Any) -> None:
        super().__init__(env_fns, **options)
        self.restarts = np.zeros(self.num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start episodes; see `ImageToolVectorEnv.reset`. Images leave as one batch per node."""
        with self._farm.together():
            return super().reset(seed=seed, options=options)

    @property
    def _farm(self) -> Farm:
        farm = self.envs[0].farm
        assert farm is not None
        return farm

    def _play(self, played: list[int], actions: Sequence[str]) -> list[StepResult]:
        with self._farm.together():
            under_way = [self.envs[i].begin(actions[i]) for i in played]
        found: list[Step | BaseException] = []
        for end in under_way:
            try:
                found.append(end())
            except EpisodeLost as lost:
                found.append(lost)  # any other error ends the batch: each of the rest might wait for a node as long
        return self._map(lambda job: self._finish(*job), list(zip(played, found, strict=True)))

    def _finish(self, i: int, found: Step | BaseException) -> StepResult:
        if not isinstance(found, BaseException):
            return self.envs[i].finish(found, found.score)
        self.restarts[i] += 1
        return self.envs[i].restart()


def make_vec(
    num_envs: int = 1,
    *,
    bench: str = "vstar",
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    workers: int | None = None,
    **kwargs: Any,
) -> ImageToolVectorEnv:
    """Make `num_envs` environments of one id as one; the entry point of `gymnasium.make_vec`.

    Args:
        num_envs: How many.
        bench: Which data, set by the id.
        autoreset_mode: See `ImageToolVectorEnv`.
        workers: See `ImageToolVectorEnv`.
        **kwargs: Arguments of `CodeVBenchEnv`. Data, judge and scorer are made once and shared.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
        raise ConfigError(f"num_envs is {num_envs!r}; a vector environment needs at least one environment.")
    first = CodeVBenchEnv(bench=bench, **kwargs)
    described = dict.fromkeys(("scenes", "subset", "columns", "reader", "wrap", "only"))
    shared = {**kwargs, **described, "data": first.tasks, "judge": first.judge, "scorer": first.scorer}
    kind = ImageToolVectorEnv if first.farm is None else FarmVectorEnv
    return kind(
        [lambda: first, *[lambda: CodeVBenchEnv(bench=bench, **shared)] * (num_envs - 1)],
        autoreset_mode=autoreset_mode,
        workers=workers,
    )
