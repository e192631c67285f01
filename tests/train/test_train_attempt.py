"""Episodes for an evaluation: one that fails does not end the others, and each says what it cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from test_train_rollout import SAMPLING, ScriptedEngine, assert_same_episode, played, texts

from codev_agents import AgentError, Oracle
from codev_agents.rollout.engine import EngineError
from codev_agents.rollout.runner import RolloutRunner
from codev_env.errors import EpisodeLost, JudgeError
from codev_env.judges import GroundTruthJudge
from codev_env.trajectory import Trajectory
from codev_env.types import Step, StepScore, Task
from codev_env.usage import EpisodeUsage, Usage
from codev_eval.bench.usage import judge_usage
from codev_train.run.environments import make_env

TASKS = [4, 5, 9]


@pytest.fixture(scope="module")
def env(env_options):
    return make_env(env_options, "train")


@pytest.fixture(scope="module")
def wanted(env) -> list[Trajectory]:
    return [played(env, Oracle(margin=0.0, snap=112), index) for index in TASKS]


class Failing:
    """Fails on one task; the truth for the others."""

    name = "failing"

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        if task.task_id == self.task_id:
            raise JudgeError("out of order")
        return GroundTruthJudge().score(task, step, history)


@pytest.fixture
def attempt(policy, env_options):
    """Runs `RolloutRunner.attempt` on `TASKS`, with a judge that fails on one of them."""
    runners: list[RolloutRunner] = []

    def run(engine: Any, failing: str = "", losses: Sequence[str] = (), **options: Any) -> list[Any]:
        left = list(losses)  # tasks whose node is lost at the next turn

        def make() -> Any:
            made = make_env(env_options, "train")
            made.unwrapped.judge = Failing(failing)
            execute = made.unwrapped.execute

            def lossy(action: str) -> Step:
                if made.unwrapped.task.task_id in left:
                    left.remove(made.unwrapped.task.task_id)
                    raise EpisodeLost("the node is gone")
                return execute(action)

            made.unwrapped.execute = lossy
            return made

        runners.append(RolloutRunner(make, policy.processor, name="mine", **options))
        return runners[-1].attempt(engine, TASKS, SAMPLING, [{"eval": {"sample": n}} for n in range(3)])

    yield run
    for runner in runners:
        runner.close()


def test_records_are_those_of_the_episodes_with_their_usage(policy, wanted, attempt):
    engine = ScriptedEngine(policy.processor, texts(*wanted))
    found = attempt(engine)
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        used = one.meta["agent"]
        asked = [call[number] for call in engine.calls]
        assert (used["model"], used["requests"], used["truncated_turns"]) == ("mine", 2, 0)
        assert used["prompt_tokens"] == sum(len(prompt.ids) for prompt in asked)
        assert one.meta["eval"] == {"sample": number} and one.agent == "mine"
        assert_same_episode(dataclasses.replace(one, meta=other.meta), other)


def test_a_judge_that_fails_on_one_episode_ends_that_one_only(policy, wanted, attempt):
    plays = texts(*wanted)
    plays[1] = plays[1][:1]  # its second turn is not asked for
    found = attempt(ScriptedEngine(policy.processor, plays), wanted[1].task_id)
    assert isinstance(found[1], JudgeError) and "out of order" in str(found[1])
    assert found[1].usage.agent["requests"] == 1, "the turn that it was sampled for counts"
    assert [t.is_correct and t.is_faithful for t in (found[0], found[2])] == [True, True]


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_taken_on_a_node_that_was_lost_counts(policy, wanted, attempt, fails):
    """As `run_episode` counts it, whether the next start ends well or not."""
    plays, lost = texts(*wanted), wanted[1].task_id
    plays[1] = [plays[1][0], *(plays[1][:1] if fails else plays[1])]
    engine = ScriptedEngine(policy.processor, plays)
    found = attempt(engine, lost if fails else "", [lost])
    asked = [engine.calls[0][1], engine.calls[1][1], *([] if fails else engine.calls[2])]
    used = found[1].usage.agent if fails else found[1].meta["agent"]
    assert used["requests"] == len(asked) == (2 if fails else 3)
    assert used["prompt_tokens"] == sum(len(prompt.ids) for prompt in asked)
    assert found[0].meta["agent"]["requests"] == 2


def test_what_a_judge_took_on_a_node_that_was_lost_counts(policy, wanted, attempt, monkeypatch):
    plays, lost = texts(*wanted), wanted[1].task_id
    plays[1] = [plays[1][0], *plays[1]]
    monkeypatch.setattr(EpisodeLost, "usage", EpisodeUsage(judge=Usage(2, 300, 40, 0.5)))
    found = attempt(ScriptedEngine(policy.processor, plays), "", [lost])
    assert [judge_usage([one]) for one in found] == [Usage(), Usage(2, 300, 40, 0.5), Usage()]


def test_a_prompt_without_room_for_an_answer_is_an_error(policy, wanted, attempt):
    found = attempt(ScriptedEngine(policy.processor, texts(*wanted)), max_length=40)
    assert all(isinstance(one, AgentError) and "the model takes 40 with the answer" in str(one) for one in found)


def test_an_error_of_the_engine_ends_all(policy, attempt):
    class Broken(ScriptedEngine):
        def generate(self, prompts, sampling):
            raise EngineError("no memory")

    with pytest.raises(EngineError, match="no memory"):
        attempt(Broken(policy.processor, []))


def test_other_prompt_ids_are_refused_in_evaluations_too(policy, wanted, attempt):
    class Liar(ScriptedEngine):
        def generate(self, prompts, sampling):
            return [dataclasses.replace(c, prompt_ids=[1]) for c in super().generate(prompts, sampling)]

    with pytest.raises(RuntimeError, match="other prompt ids"):
        attempt(Liar(policy.processor, texts(*wanted)))
