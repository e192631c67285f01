"""The adapter for verifiers, played with the real library against a local server."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed: pip install verifiers")

import chat_server  # noqa: E402
from chat_server import LOOKED_RIGHT, SCENES, ChatServer, images_of, oracle  # noqa: E402

from codev_env.adapters import episodes  # noqa: E402
from codev_env.adapters.verifiers import load_environment  # noqa: E402
from codev_env.errors import JudgeError  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "examples"))


def play(act, *indices, **options):
    """Play some tasks; returns the episodes and the requests."""
    env = load_environment(**(SCENES | options))

    async def run(url):
        context = vf.ModelContext(model="toy", client=vf.EvalClientConfig(base_url=url), sampling=vf.SamplingConfig())
        async with env.serving():
            tasks = list(env.taskset.include(idx=[str(index) for index in indices]))
            return await asyncio.gather(*(env.run_episode(task, context) for task in tasks))

    with ChatServer(act) as server:
        return asyncio.run(run(server.url)), server.requests


def test_an_episode_is_played_and_paid_by_term():
    [episode], requests = play(oracle([3], **SCENES), 3)
    assert episode.ok, episode.errors
    [trace] = episode.traces
    assert {name: reward.score for name, reward in trace.rewards.items()} == pytest.approx(LOOKED_RIGHT)
    assert trace.reward == pytest.approx(1.8)
    assert (trace.metrics["correct"], trace.metrics["faithful"], trace.metrics["tool_calls"]) == (1.0, 1.0, 1.0)
    assert trace.info["stop_reason"] == "answer" and trace.num_turns == 2
    assert [len(images_of(message)) for message in requests[-1]["messages"]] == [0, 1, 0, 1]
    assert all(request["stop"] == ["</code>", "</answer>"] for request in requests)


def test_an_episode_that_never_answers_ends_with_the_turns():
    [episode], requests = play(lambda messages: "I do not know", 0, max_turns=2)
    [trace] = episode.traces
    assert episode.ok and trace.info["stop_reason"] == "max_turns" and len(requests) == 2
    assert trace.rewards["outcome"].score == 0.0


def test_episodes_side_by_side_do_not_mix():
    episodes, _ = play(oracle(range(4), **SCENES), *range(4))
    assert [episode.traces[0].reward for episode in episodes] == pytest.approx([1.8] * 4)
    assert len({episode.traces[0].info["task_id"] for episode in episodes}) == 4


def test_a_judge_that_fails_is_no_score(monkeypatch):
    def fail(self, text):
        raise JudgeError("the judge is gone")

    monkeypatch.setattr(episodes.EpisodeRunner, "step", fail)
    [episode], _ = play(oracle([3], **SCENES), 3)
    assert not episode.ok and "the judge is gone" in episode.errors[0].message
    assert not any(trace.rewards for trace in episode.traces)


def test_the_task_goes_over_the_wire_without_image_or_answer():
    [episode], _ = play(oracle([3], **SCENES), 3)
    told = episode.task.data.model_dump(exclude_defaults=True)
    assert set(told) == {"idx", "name", "system_prompt", "env", "options", "index", "stop"}


def test_the_example_runs(capsys):
    from verifiers_eval import evaluate

    with ChatServer(oracle(range(2), **SCENES)) as server:
        episodes = asyncio.run(evaluate(server.url, "toy", 2))
    assert [episode.ok for episode in episodes] == [True, True]
    assert "reward 1.80" in capsys.readouterr().out


def test_the_example_prints_no_reward_of_an_episode_that_failed(monkeypatch, capsys):
    from verifiers_eval import evaluate

    def fail(self, text):
        raise JudgeError("the judge is gone")

    monkeypatch.setattr(episodes.EpisodeRunner, "step", fail)
    with ChatServer(oracle(range(1), **SCENES)) as server:
        asyncio.run(evaluate(server.url, "toy", 1))
    out = capsys.readouterr().out
    assert out.startswith("failed:") and "the judge is gone" in out and "reward" not in out


@pytest.mark.parametrize(("finish_reason", "said"), [("stop", "<answer>1</answer>"), ("length", "<answer>1")])
def test_a_turn_that_a_limit_of_tokens_ended_gets_no_end_tag(monkeypatch, finish_reason, said):
    turns = []

    def dumps(reply):
        reply["choices"][0]["finish_reason"] = finish_reason
        return json.dumps(reply)

    def step(self, text, played=episodes.EpisodeRunner.step):
        turns.append(text)
        return played(self, text)

    monkeypatch.setattr(chat_server, "json", SimpleNamespace(loads=json.loads, dumps=dumps))
    monkeypatch.setattr(episodes.EpisodeRunner, "step", step)
    play(lambda messages: "<answer>1", 0)
    assert turns == [said]
