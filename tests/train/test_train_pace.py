"""Episodes at their own pace: none waits for another, and what goes wrong in one of them leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
import unittest
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import pytest
import torch
from accelerate import Accelerator
from test_train_rollout import SAMPLING, ScriptedEngine, played, texts

from codev_agents import Oracle
from codev_agents.rollout import requests
from codev_agents.rollout.engine import Completion, Prompt
from codev_agents.rollout.runner import Rollout, RolloutRunner
from codev_agents.rollout.selection import Selection
from codev_agents.rollout.workers import Workers
from codev_env.errors import JudgeError
from codev_env.judges import GroundTruthJudge
from codev_env.trajectory import Trajectory
from codev_env.types import StepScore
from codev_train.run.environments import make_env
from codev_train.sft.examples import tokenize_trajectory
from codev_train.tapo import describe, reward_table

LONG_S = 60.0  # a wait that only a broken implementation sits through
TIMEOUT_S = 2.0  # more than a step takes on a busy machine
SERVER = ThreadPoolExecutor(thread_name_prefix="judge")


class Typist:
    """An asynchronous engine that writes a task's episode: the turn follows from the number of images so far.

    Args:
        processor: The tokenizer side of the policy.
        wanted: Episodes by index of the task; a prompt's first image tells which is asked for.
    """

    def __init__(self, processor, wanted: Sequence[Trajectory]) -> None:
        self.processor, self.plays = processor, texts(*wanted)
        self.prompts: list[Prompt] = []
        self.under_way, self.given_up = 0, 0
        self._scenes = [tokenize_trajectory(trajectory, processor).images[0].values for trajectory in wanted]

    async def before(self, index: int, turn: int) -> None:
        """Called before each completion; for tests to override."""

    def new_seed(self) -> int:
        return 0

    async def complete(self, prompt, sampling, seed, decoding) -> Completion:
        with decoding:
            return await self.write(prompt)

    async def write(self, prompt: Prompt) -> Completion:
        self.under_way += 1
        self.prompts.append(prompt)
        index = next(i for i, scene in enumerate(self._scenes) if torch.equal(prompt.images[0].values, scene))
        turn = len(prompt.images) - 1
        try:
            await self.before(index, turn)
            text = self.plays[index][turn]
            sampled = [*self.processor.encode(text), self.processor.eos_id]
            return Completion(sampled, [-0.5] * len(sampled), prompt.ids)
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        finally:
            self.under_way -= 1

    def generate(self, prompts, sampling) -> list[Completion]:
        raise AssertionError("an asynchronous engine is asked one by one")

    def sleep(self) -> None: ...

    def seed(self, seed: int) -> None: ...

    def sync(self, model: Any) -> dict[str, float]:
        return {}


class Waiting:
    """A judge that waits for something before it judges one of the tasks.

    Args:
        task_id: Which.
        until: What it waits for.
    """

    name = "waiting"

    def __init__(self, task_id: str, until: Callable[[], Any]) -> None:
        self.task_id, self.until = task_id, until

    def score(self, task, step, history) -> StepScore:
        if task.task_id == self.task_id:
            self.until()
        return GroundTruthJudge().score(task, step, history)


class AsyncWaiting(Waiting):
    """The same for an event loop."""

    async def ascore(self, task, step, history) -> StepScore:
        return await asyncio.get_running_loop().run_in_executor(SERVER, self.score, task, step, history)


JUDGES = pytest.mark.parametrize("kind", [Waiting, AsyncWaiting], ids=["a judge to call", "a judge to await"])


class Stage:
    """An engine, environments and a runner over tasks 0, 1 and 2, of which the oracle's episodes are known."""

    def __init__(self, policy, env_options) -> None:
        self.processor, self.env_options, self.reward = policy.processor, env_options, "tapo"
        env = make_env(env_options, "train")
        self.wanted = [played(env, Oracle(margin=0.0, snap=112), index) for index in range(3)]
        self.engine: Any = Typist(policy.processor, self.wanted)
        self.envs: list[Any] = []
        self.judge: Any = None
        self.prepare: Callable[[Any], None] = lambda env: None
        self.ended: list[int] = []
        self.runners: list[RolloutRunner] = []

    def make(self) -> Any:
        env = make_env(self.env_options, "train", self.reward)
        if self.judge:
            env.unwrapped.judge = self.judge
        self.prepare(env)
        self.envs.append(env)
        return env

    def play(self, indices: Sequence[int], group: int = 1, **options: Any) -> list[Rollout]:
        self.runners.append(RolloutRunner(self.make, self.processor, **options))
        return self.runners[-1].play(self.engine, indices, group, SAMPLING, self.note)

    def select(self, selection: Selection, group: int = 1) -> Selection:
        self.runners.append(RolloutRunner(self.make, self.processor))
        self.runners[-1].select(self.engine, selection, group, SAMPLING, self.note)
        return selection

    def note(self, rollouts: list[Rollout]) -> None:
        self.ended.append(rollouts[0].trajectory.index)

    def close(self) -> None:
        for runner in self.runners:
            runner.close()

    def assert_nothing_is_left(self) -> None:
        self.close()
        assert self.envs and all(env.unwrapped._programs is None for env in self.envs)
        assert not [t for t in threading.enumerate() if t.name.startswith("codev-rollout")]


@pytest.fixture
def stage(policy, env_options):
    made = Stage(policy, env_options)
    yield made
    made.close()


@JUDGES
def test_a_slow_judge_stalls_its_own_episode_only(stage, kind):
    """The first task is judged when the two others have ended; with one worker, and room for two episodes."""
    over = threading.Event()

    def until() -> None:
        assert over.wait(LONG_S)

    def note(rollouts: list[Rollout]) -> None:
        Stage.note(stage, rollouts)
        if {1, 2} <= set(stage.ended):
            over.set()

    stage.note = note
    stage.judge = kind(stage.wanted[0].task_id, until)
    found = stage.play([0, 1, 2], workers=1, concurrent=2)
    assert stage.ended == [1, 2, 0]
    assert [r.trajectory.index for r in found] == [0, 1, 2] and all(r.trajectory.is_correct for r in found)
    assert len(stage.envs) == 2, "the third episode took the place of the second"


def test_groups_under_way_are_given_up_when_enough_are_kept(stage):
    async def before(index: int, turn: int) -> None:
        if index:
            await asyncio.sleep(LONG_S)

    stage.engine.before = before
    found = stage.select(Selection([0, 1, 2], 1, 3), group=2)
    assert [r.trajectory.index for r in found.rollouts] == [0, 0] and all(
        r.trajectory.is_correct for r in found.rollouts
    )
    assert [group.index for group in found.played] == [0]
    assert stage.engine.given_up == 4 and stage.ended == [0]
    stage.assert_nothing_is_left()


def test_a_group_that_ends_early_is_not_preferred(stage):
    """The first task ends when the two others have ended, and is kept all the same."""

    async def before(index: int, turn: int) -> None:
        while index == 0 and len(stage.ended) < 2:
            await asyncio.sleep(0.01)

    stage.engine.before = before
    found = stage.select(Selection([0, 1, 2], 2, 3))
    assert stage.ended[2] == 0 and [r.trajectory.index for r in found.rollouts] == [0, 1]
    assert [group.index for group in found.played] == [0, 1], "the third was played but is not needed"


def test_groups_are_paid_when_they_are_complete(stage):
    over = threading.Event()
    paid: list[float] = []

    def note(rollouts: list[Rollout]) -> None:
        paid.append(sum(rollouts[0].rewards))
        over.set()

    stage.note, stage.reward = note, "pixelreasoner"
    stage.engine.plays[1] = ["<answer>?</answer>"]
    stage.judge = Waiting(stage.wanted[0].task_id, lambda: over.wait(LONG_S))
    found = stage.play([0, 1], group=2)
    # All of the first group looked, so there is nothing to encourage; none of the second did.
    assert paid == [sum(r.rewards) for r in (found[2], found[0])] == pytest.approx([0.0, 1.0])


@JUDGES
def test_an_error_of_one_episode_ends_all_and_leaves_nothing_behind(stage, kind):
    asked = threading.Event()

    def until() -> None:
        asked.set()
        raise ValueError("told to fail")

    stage.judge = kind(stage.wanted[1].task_id, until)
    with pytest.raises(JudgeError, match="'waiting' failed on .*told to fail"):
        stage.play([0, 1, 2], group=4)
    assert asked.is_set() and not stage.engine.under_way and not stage.ended == [0, 1, 2]
    stage.assert_nothing_is_left()


def test_an_error_of_the_engine_gives_up_what_it_samples(stage):
    async def before(index: int, turn: int) -> None:
        if (index, turn) == (0, 1):
            while stage.engine.under_way < 3:
                await asyncio.sleep(0.01)
            raise RuntimeError("out of memory")
        if index:
            await asyncio.sleep(LONG_S)

    stage.engine.before = before
    with pytest.raises(RuntimeError, match="out of memory"):
        stage.play([0, 1, 2])
    assert stage.engine.given_up == 2 and not stage.engine.under_way
    stage.assert_nothing_is_left()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_of_an_engine_that_samples_batches_ends_all(policy, stage, error):
    class Breaking(ScriptedEngine):
        def generate(self, prompts, sampling):
            if self.calls:
                raise error("enough")
            return super().generate(prompts, sampling)

    stage.engine = Breaking(policy.processor, texts(*stage.wanted[:2]))
    with pytest.raises(error):
        stage.play([0, 1])
    assert [env.unwrapped._programs for env in stage.envs] == [None, None]
    # It can be used again.
    again = stage.runners[0].play(ScriptedEngine(policy.processor, texts(*stage.wanted[:2])), [0, 1], 1, SAMPLING)
    assert all(r.trajectory.is_correct for r in again) and len(stage.envs) == 2
    stage.assert_nothing_is_left()


def test_what_runs_in_a_thread_has_ended_when_its_coroutine_has_however_often_that_is_cancelled():
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(LONG_S)
        ended.set()
        raise RuntimeError("closed under it")

    async def play() -> None:
        workers = Workers(1)
        task = asyncio.create_task(workers.compute(work))
        await asyncio.to_thread(begun.wait, LONG_S)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()
        workers.close()

    with unittest.TestCase().assertNoLogs(level="WARNING"):
        asyncio.run(play())
        gc.collect()


@pytest.mark.parametrize("where", ["environment", "ended", "engine"])
def test_an_interrupt_ends_all_and_leaves_no_exception_behind(stage, where):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    async def before(index: int, turn: int) -> None:
        if index == 0:
            raise KeyboardInterrupt
        await asyncio.sleep(LONG_S)

    def prepare(env: Any) -> None:
        if stage.envs:
            raise KeyboardInterrupt

    if where == "engine":
        stage.engine.before = before
    elif where == "ended":
        stage.note = interrupt
    else:
        stage.prepare = prepare
    with unittest.TestCase().assertNoLogs("asyncio", "WARNING"):
        with pytest.raises(KeyboardInterrupt):
            stage.play([0, 1, 2])
        assert [env.unwrapped._programs for env in stage.envs] == [None] * len(stage.envs)
        assert not stage.engine.under_way
        stage.assert_nothing_is_left()
        gc.collect()


@pytest.mark.parametrize(("kind", "mask"), [(Waiting, True), (AsyncWaiting, False)], ids=["masked", "kept"])
def test_a_late_judge_cuts_its_episode_off(stage, kind, mask):
    over = threading.Event()
    stage.judge = kind(stage.wanted[1].task_id, lambda: over.wait(LONG_S))
    try:
        found = stage.play([0, 1, 2], step_timeout=TIMEOUT_S, mask_stragglers=mask)
    finally:
        over.set()
    straggler = found[1]
    assert [r.trajectory.stop_reason for r in found] == ["answer", "straggler", "answer"]
    assert [r.judge_failed for r in found] == [False, mask, False] and not straggler.cut
    (turn,) = straggler.trajectory.turns
    assert turn.kind == "code" and turn.score_value is None and "took longer than 2 s" in turn.score_why
    assert turn.crop_boxes == stage.wanted[1].turns[0].crop_boxes, "what its program did is known"
    assert straggler.rewards == [turn.reward] == [pytest.approx(sum(turn.reward_terms.values()))]
    assert turn.reward_terms["format"] == 0.0, "an episode without an answer does not earn it"
    assert describe(found, *reward_table(found), Accelerator(cpu=True))["share/stragglers"] == pytest.approx(1 / 3)
    # The tokens end with the last one sampled.
    assert straggler.tokens.turns[-1] == 0 and len(found[0].tokens) > len(straggler.tokens)
    stage.assert_nothing_is_left()


def test_a_late_environment_is_replaced_and_closed_when_it_returns(stage):
    over = threading.Event()

    def prepare(env: Any) -> None:
        execute = env.unwrapped.execute

        def slow(action: str) -> Any:
            step = execute(action)
            if env.unwrapped.task.task_id == stage.wanted[0].task_id:
                assert over.wait(LONG_S)
            return step

        env.unwrapped.execute = slow

    stage.prepare = prepare
    try:
        found = stage.play([0, 1, 2], workers=1, concurrent=1, step_timeout=TIMEOUT_S)
        assert len(stage.envs) == 2
    finally:
        over.set()
    assert [r.trajectory.stop_reason for r in found] == ["straggler", "answer", "answer"]
    (turn,) = found[0].trajectory.turns
    assert turn.kind == "code" and turn.judge_failed and not turn.images and not turn.crop_boxes
    stage.assert_nothing_is_left()


def test_stragglers_keep_what_was_earned_before(stage):
    """The second call is late: its turn takes nothing back and earns nothing but what the ending changes."""
    over = threading.Event()
    stage.engine.plays[0] = [stage.wanted[0].turns[0].action] * 2
    judged = []

    def until() -> None:
        judged.append(1)
        if len(judged) == 2:
            over.wait(LONG_S)

    stage.judge = Waiting(stage.wanted[0].task_id, until)
    try:
        (found,) = stage.play([0], step_timeout=TIMEOUT_S)
    finally:
        over.set()
    first, second = found.trajectory.turns
    assert first.score == stage.wanted[0].turns[0].score and not first.judge_failed and second.judge_failed
    assert found.trajectory.is_faithful and not found.trajectory.is_correct
    assert first.reward_terms["tool"] > 0 == second.reward_terms["tool"]
    assert first.reward_terms["format"] + second.reward_terms["format"] == 0.0


def test_wrappers_around_step_are_kept(policy, env_options):
    """An environment that does more than its three phases is stepped as a whole."""

    class Doubled(gym.Wrapper):
        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, 2 * reward, terminated, truncated, info

    env = make_env(env_options, "train")
    wanted = played(env, Oracle(margin=0.0, snap=112), 4)
    runner = RolloutRunner(lambda: Doubled(make_env(env_options, "train")), policy.processor)
    try:
        (found,) = runner.play(ScriptedEngine(policy.processor, texts(wanted)), [4], 1, SAMPLING)
    finally:
        runner.close()
    assert found.rewards == pytest.approx([2 * t.reward for t in wanted.turns])


def test_equal_images_are_processed_once(policy, stage, monkeypatch):
    """Of a task that stands twice in a batch, the scene and the crop; engine and trainer share what came of it."""
    processed = []
    processor = policy.processor.image_processor

    class Counting:
        def __call__(self, images, **options):
            processed.append(images[0].shape)
            return processor(images=images, **options)

        def __getattr__(self, name):
            return getattr(processor, name)

    monkeypatch.setattr(policy.processor, "image_processor", Counting())
    found = stage.play([1, 1], group=3)
    assert len(processed) == 2
    assert {len(r.tokens.images) for r in found} == {2}
    blocks = {id(block) for r in found for block in r.tokens.images}
    assert len(blocks) == 2 and blocks == {id(block) for prompt in stage.engine.prompts for block in prompt.images}


def test_idle_time_is_when_nothing_is_sampled(monkeypatch):
    now = iter([0.0, 2.0, 5.0, 7.0, 9.0, 10.0, 13.0])
    monkeypatch.setattr(requests.time, "perf_counter", lambda: next(now))
    clock = requests.IdleClock()  # at 0
    with clock.work(), clock.work():  # from 2 to 7; one of the two ends at 5
        pass
    with clock.work():  # from 9 to 10
        pass
    clock.stop()  # at 13
    assert clock.idle_s == 2.0 + 2.0 + 3.0


def test_within_an_event_loop_as_notebooks_have(stage):
    async def cell() -> list[Rollout]:
        return stage.play([0])

    [rollout] = asyncio.run(cell())
    assert rollout.trajectory.is_correct


def test_an_interrupt_within_an_event_loop_gives_up_what_is_under_way(stage):
    async def before(index: int, turn: int) -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        await asyncio.sleep(LONG_S)

    async def cell() -> None:
        stage.play([0])

    stage.engine.before = before
    loop = asyncio.new_event_loop()  # not `asyncio.run`, which takes a first interrupt for itself
    with contextlib.closing(loop), pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(cell())
    assert stage.engine.given_up == 1 and not stage.engine.under_way
    stage.assert_nothing_is_left()


@pytest.mark.parametrize("limit", [0.0, TIMEOUT_S])
def test_a_judge_that_reports_a_timeout_of_its_own_has_failed(stage, limit):
    def fail() -> None:
        raise TimeoutError("no reply from its server")

    stage.judge = Waiting(stage.wanted[0].task_id, fail)
    with pytest.raises(JudgeError, match="no reply from its server"):
        stage.play([0], step_timeout=limit)


def test_an_environment_that_is_late_when_another_episode_fails_is_closed_when_it_returns(stage):
    """The error is raised; the environment that is still busy is used by nothing else."""
    over, busy, closed = threading.Event(), threading.Event(), threading.Event()

    def prepare(env: Any) -> None:
        execute = env.unwrapped.execute

        def slow(action: str) -> Any:
            step = execute(action)
            if env.unwrapped.task.task_id == stage.wanted[0].task_id:
                env.unwrapped.close = lambda: (closed.set(), type(env.unwrapped).close(env.unwrapped))
                busy.set()
                assert over.wait(LONG_S)
            return step

        env.unwrapped.execute = slow

    def fail() -> None:
        assert busy.wait(LONG_S)
        raise JudgeError("told to fail")

    stage.prepare = prepare
    stage.judge = Waiting(stage.wanted[1].task_id, fail)
    runners: list[RolloutRunner] = []
    close = RolloutRunner.close
    try:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(JudgeError, match="told to fail"):
            patch.setattr(RolloutRunner, "close", lambda self: (runners.append(self), over.set(), close(self)))
            stage.play([0, 1], workers=2, step_timeout=2.0)
    finally:
        over.set()
    assert closed.wait(LONG_S)
    (late,) = [env for env in stage.envs if env.unwrapped.task.task_id == stage.wanted[0].task_id]
    assert all(env is not late for runner in runners for env in runner._free)
