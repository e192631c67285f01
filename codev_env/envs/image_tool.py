"""The environment that all tasks share: it runs the program in a model's text, scores its effect and rewards it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils import EzPickle

from codev_env.dialects import Dialect, get_dialect
from codev_env.envs import render
from codev_env.envs.pool import check_sandbox, make_limits, shared_sandbox
from codev_env.envs.trial import check_dialect, check_judge, check_score, check_scorer, parsed_turn, verdict_on
from codev_env.errors import ConfigError, JudgeError, TaskError, unknown
from codev_env.farm.programs import LocalPrograms, Programs
from codev_env.geometry import shown_box
from codev_env.images import to_array, to_shown_array
from codev_env.rewards import Reward, RewardFunction, change, get_reward
from codev_env.spaces import Images, Unicode
from codev_env.types import (
    Answer,
    Code,
    Episode,
    Invalid,
    Observation,
    Step,
    StepInfo,
    StepScore,
    StopReason,
    Task,
    TaskSet,
)

if TYPE_CHECKING:
    from codev_env.farm.farm import Farm
    from codev_env.farm.options import FarmOptions
    from codev_env.judges import Judge
    from codev_env.sandbox import Limits, Sandbox
    from codev_env.scoring import Scorer

RESET_OPTIONS = ("index", "task_id")


class ImageToolEnv(gym.Env[Observation, str], EzPickle):
    """An environment over any `TaskSet`; `CodeVBenchEnv` documents spaces, rewards, information and arguments.

    A step has three phases, which a vector environment calls one by one: `execute` parses the text and runs the code,
    `score` asks the judge, `finish` computes reward and observation. `step` is the three in a row.

    A pickled environment is made again from its arguments: without the running episode, and with the sandbox of the
    process it arrives in instead of a live one that was passed.
    """

    metadata = {"render_modes": ["human", "ansi", "rgb_array"], "render_fps": 1}

    def __init__(
        self,
        tasks: TaskSet,
        *,
        split: str = "",
        dialect: str | Dialect = "codev",
        reward: str | Reward | RewardFunction = "tapo",
        reward_weights: Mapping[str, float] | None = None,
        judge: str | Mapping[str, Any] | Judge = "auto",
        view_pixels: int | None = None,
        max_turns: int = 6,
        limits: Limits | Mapping[str, Any] | None = None,
        sandbox: Sandbox | None = None,
        farm: str | Mapping[str, Any] | FarmOptions | Farm | None = None,
        scorer: str | Scorer = "rules",
        render_mode: str | None = None,
    ) -> None:
        from codev_env.judges import for_view, get_judge
        from codev_env.scoring import get_scorer

        EzPickle.__init__(
            self,
            tasks,
            split=split,
            dialect=dialect,
            reward=reward,
            reward_weights=reward_weights,
            judge=judge,
            view_pixels=view_pixels,
            max_turns=max_turns,
            limits=limits,
            farm=farm,
            scorer=scorer,
            render_mode=render_mode,
        )
        if isinstance(max_turns, bool) or not isinstance(max_turns, (int, np.integer)) or max_turns < 1:
            raise ConfigError(f"max_turns is {max_turns!r}; it must be a whole number of at least 1.")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown("render_mode", render_mode, self.metadata["render_modes"])
        if sandbox is not None:
            check_sandbox(sandbox, limits, farm)
        if len(tasks) == 0:
            raise TaskError(f"task set {tasks.name!r} is empty; an environment needs at least one task.")
        self.tasks, self.split, self.max_turns, self.render_mode = tasks, split, int(max_turns), render_mode
        self.dialect = get_dialect(dialect)
        self.reward = get_reward(reward, reward_weights)
        self.judge = get_judge(judge)
        self.scorer = get_scorer(scorer)
        check_dialect(self.dialect)
        check_judge(self.judge)
        check_scorer(self.scorer)
        self.judge = for_view(self.judge, view_pixels)
        self._limits, self._given_sandbox = make_limits(limits), sandbox
        self.farm: Farm | None = None
        if farm is not None:
            self._join(farm)
        self.system_prompt = self.dialect.system_prompt()
        self.observation_space: spaces.Space[Any] = spaces.Dict({"text": Unicode(), "images": Images()})
        self.action_space = Unicode()
        self._episode: Episode | None = None
        self._copied = False
        self._index = 0
        self._paid: dict[str, float] = {}
        self._broken = False
        self._programs: Programs | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the environment again from its arguments, without the episode."""
        super().__setstate__(state)
        self._copied = True

    @property
    def task(self) -> Task:
        """The current task, with its answer and `targets`."""
        return self.episode.task

    @property
    def episode(self) -> Episode:
        """The episode so far; raises `ResetNeeded` before the first reset."""
        if self._episode is None:
            copied = " A copied or unpickled environment starts without the running episode." if self._copied else ""
            raise ResetNeeded(f"there is no episode yet; call reset() first.{copied}")
        return self._episode

    @property
    def sandbox(self) -> Sandbox:
        """Where code runs: the sandbox that was passed, else the one that the environments of this process share."""
        return self._given_sandbox or shared_sandbox(self._limits)

    def reset(  # type: ignore[override]  # A TypedDict is a dict with known keys.
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, StepInfo]:
        """Start an episode.

        Args:
            seed: Seeds the choice of tasks.
            options: `{"index": i}` or `{"task_id": s}` picks the task; without, it is drawn.

        Returns:
            The first observation and its info.

        Raises:
            ConfigError: If an option is unknown or cannot be used.
            TaskError: If there is no such task, or it cannot be read.
        """
        from codev_env.tasks.readers.images import in_rgb
        from codev_env.tasks.task_fields import checked

        self.break_off()  # Whatever fails below, the last episode is over.
        super().reset(seed=seed)
        self._index = self._choose(options or {})
        task = in_rgb(checked(self.tasks[self._index]))
        self._episode, self._paid = Episode(task), {}
        observation: Observation = {
            "text": self.dialect.first_message(task),
            "images": tuple(to_array(image) for image in task.shown_images),
        }
        if self.farm is not None:
            self._programs = self.farm.open(self._setup, task)
        self._broken = False  # not before: without a node its programs would run here
        self._render_human()
        return observation, self._info(None, dict.fromkeys(self.reward.names, 0.0))

    def step(self, action: str) -> tuple[Observation, float, bool, bool, StepInfo]:  # type: ignore[override]
        """Take one turn of the model, its raw text.

        Raises:
            ResetNeeded: If the episode is over.
            InvalidAction: If the action is not a string.
            JudgeError: If the judge failed to give a score; the episode cannot continue.
            SandboxError: If the sandbox does not work; the episode cannot continue.
        """
        step = self.execute(action)
        return self.finish(step, self.score(step))

    def execute(self, action: str) -> Step:
        """Parse one turn; run its code and trace where the pixels of its images come from."""
        return self.begin(action)()

    def begin(self, action: str) -> Callable[[], Step]:
        """Begin `execute`; returns a function that ends it. On a farm the program runs on a node in between."""
        if self._broken or self.episode.done:
            raise ResetNeeded("the episode is over; call reset() before the next step().")
        if not isinstance(action, str):
            raise InvalidAction(f"the action is a {type(action).__name__}; it must be the model's text, a str.")
        turn = parsed_turn(self.dialect, action)
        if not isinstance(turn, Code):
            step = Step(action, turn)
            return lambda: step
        with self._or_break():
            if self._programs is None:
                self._programs = LocalPrograms(self.sandbox, self.dialect, self.task)
            wait = self._programs.start(action, turn, self.episode.steps)

        def end() -> Step:
            with self._or_break():
                return wait()

        return end

    def score(self, step: Step) -> StepScore | None:
        """Ask the judge about a code turn; other turns have nothing to judge."""
        if not isinstance(step.turn, Code):
            return None
        with self._or_break():
            try:
                return self.judge.score(self.task, step, tuple(self.episode.steps))
            except JudgeError:
                raise
            except Exception as error:
                raise JudgeError(f"judge {self.judge.name!r} failed on {self.task.task_id!r}: {error!r}") from error

    def finish(self, step: Step, score: StepScore | None) -> tuple[Observation, float, bool, bool, StepInfo]:
        """Add a turn with its score to the episode, and compute its reward and the next observation."""
        episode = self.episode
        with self._or_break():
            check_score(self.judge, score)
            step = replace(step, score=score)
            episode.steps.append(step)
            self._conclude(episode, step)
            value = self.reward.value(episode)
            terms, self._paid = change(self._paid, value), value
            observation = self._observation(step)
            info = self._info(step, terms)
        if episode.done:
            self._close_programs()
        self._render_human()
        terminated, truncated = episode.stop_reason == "answer", episode.stop_reason == "max_turns"
        return observation, sum(terms.values()), terminated, truncated, info

    def note_probe(self, before: bool, after: bool) -> None:
        """Note whether the policy's own answer was right before and after the last turn, for the next turn's reward."""
        steps = self.episode.steps
        steps[-1] = replace(steps[-1], probed=(before, after))

    def cut_off(self, reason: StopReason) -> dict[str, float]:
        """End the running episode for a reason outside it, such as a token budget; it counts as truncated.

        Args:
            reason: Becomes the episode's `stop_reason`; not `"answer"`.

        Returns:
            The reward for the ending, by term: the last step's reward and this add up to the value of the episode.
        """
        if self._broken or self.episode.done:
            raise ResetNeeded("the episode is over; there is nothing to cut off.")
        self.episode.stop_reason = reason
        value = self.reward.value(self.episode)
        terms, self._paid = change(self._paid, value), value
        self._close_programs()
        return terms

    def restart(self) -> tuple[Observation, float, bool, bool, StepInfo]:
        """Begin the same task again after `EpisodeLost`.

        Returns:
            What `step` returns: the first observation, and the reward so far with its sign changed, so that the
            episode's step rewards still add up to its value.
        """
        before = self._paid
        observation, info = self.reset(options={"index": self._index})
        terms = {name: 0.0 - before.get(name, 0.0) for name in info["reward_terms"]}
        return observation, sum(terms.values()), False, False, {**info, "reward_terms": terms}

    def break_off(self) -> None:
        """End the episode without a result, after a failure outside it: it needs a reset."""
        self._broken = True
        self._close_programs()

    def render(self) -> Any:
        """Draw the episode: an array of shape (640, 960, 3), a string, or printed text, by `render_mode`."""
        if self.render_mode is None:
            gym.logger.warn(
                "render() was called without a render_mode; make the environment with one, for example 'ansi'."
            )
            return None
        if self.render_mode == "rgb_array":
            return render.frame(self.episode)
        if self.render_mode == "ansi":
            return render.text(self.episode)
        render.print_text(self.episode)
        return None

    def close(self) -> None:
        """End the episode and close its session; the shared sandbox stays for the other environments."""
        self.break_off()  # a step after this would run without the files and variables of the episode

    def _choose(self, options: Mapping[str, Any]) -> int:
        if not isinstance(options, Mapping):
            raise ConfigError(f"options of reset is {options!r}; it must be a dict such as {{'index': 0}}, or None.")
        for name in options:
            if name not in RESET_OPTIONS:
                raise unknown("reset option", name, RESET_OPTIONS)
        if len(options) > 1:
            raise ConfigError(f"reset options {dict(options)!r}: give either index or task_id.")
        if "task_id" in options:
            if not isinstance(options["task_id"], str):
                raise ConfigError(f"reset option task_id is {options['task_id']!r}; it must be a str, or give index.")
            return int(self.tasks.index_of(options["task_id"]))
        if "index" not in options:
            return int(self.np_random.integers(len(self.tasks)))
        index = options["index"]
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)) or not 0 <= index < len(self.tasks):
            raise ConfigError(f"reset option index is {index!r}; it must be a number from 0 to {len(self.tasks) - 1}.")
        return int(index)

    def _conclude(self, episode: Episode, step: Step) -> None:
        if isinstance(step.turn, Answer):
            episode.answer = step.turn.text
            verdict = verdict_on(self.scorer, episode.task, step.turn.text)
            episode.is_correct, episode.share, episode.scoring = verdict.correct, verdict.share, verdict.usage
            episode.stop_reason = "answer"
        elif len(episode.steps) >= self.max_turns:
            episode.stop_reason = "max_turns"

    def _observation(self, step: Step) -> Observation:
        if step.execution is not None:
            images = tuple(to_shown_array(image) for image in step.execution.images)
            return {"text": self.dialect.render(step.execution, len(images)), "images": images}
        text = self.dialect.invalid(step.turn.reason) if isinstance(step.turn, Invalid) else ""
        return {"text": text, "images": ()}

    def _info(self, step: Step | None, terms: dict[str, float]) -> StepInfo:
        episode = self.episode
        return {
            "task_id": episode.task.task_id,
            "index": self._index,
            "turn": len(episode.steps),
            "action_kind": "" if step is None else step.kind,
            "stop_reason": episode.stop_reason,
            "is_correct": episode.is_correct,
            "is_faithful": episode.is_faithful,
            "reward_terms": terms,
            "crop_boxes": () if step is None else tuple(map(shown_box, step.regions)),
            "source": episode.task.source,
        }

    def _join(self, farm: str | Mapping[str, Any] | FarmOptions | Farm) -> None:
        """Run programs on the nodes of a farm from now on, and have them judged there."""
        from codev_env.farm.farm import get_farm
        from codev_env.farm.messages import EpisodeSetup
        from codev_env.farm.remote import FarmJudge

        self.farm = get_farm(farm)
        self.judge = self.judge if isinstance(self.judge, FarmJudge) else FarmJudge(self.judge)
        self._setup = self.farm.setup(EpisodeSetup(self.dialect, self.judge.inner, self._limits))

    def _close_programs(self) -> None:
        programs, self._programs = self._programs, None
        if programs is not None:
            programs.close()

    def _render_human(self) -> None:
        if self.render_mode == "human":
            self.render()

    @contextmanager
    def _or_break(self) -> Iterator[None]:
        """Let an error through, and end the episode, so that no later call continues from a partial step."""
        try:
            yield
        except BaseException:
            self.break_off()
            raise


def unwrap(env: gym.Env[Any, Any]) -> ImageToolEnv:
    """Return the environment of this package inside its wrappers.

    Raises:
        ConfigError: There is another one inside.
    """
    inner = env.unwrapped
    if not isinstance(inner, ImageToolEnv):
        raise ConfigError(f"the environment is a {type(inner).__name__}; give one of this package's, wrapped or not.")
    return inner
