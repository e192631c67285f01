"""`codev rewards list` and `codev rewards explain`, on real runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codev_agents import run_episode
from codev_agents.scripted import Oracle, RandomCrop
from codev_env.app import cli
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.judges import GroundTruthJudge
from codev_env.rewards import REWARDS
from codev_env.tasks.scenes import GridOptions, SceneTaskSet
from codev_env.trajectory import Trajectory, write_trajectories
from codev_env.types import Answer, Step


def rewards(*args: object) -> int:
    return cli.main(["rewards", *map(str, args)])


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Three episodes of the oracle under `tapo`."""
    folder = tmp_path_factory.mktemp("run")
    given = ["--model", "scripted:oracle", "--data", "synthetic", "--scenes", "toy", "--n", "3", "--out", str(folder)]
    assert cli.main(["eval", *given]) == 0
    return folder


def explained(capsys, *args: object) -> list[dict]:
    capsys.readouterr()
    assert rewards("explain", *args, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_the_list_has_every_reward_with_its_formula(capsys):
    assert rewards("list") == 0
    out = capsys.readouterr().out
    for name in REWARDS:
        assert f"\n{name}:" in f"\n{out}"
    assert "outcome + 0.3 format + 0.5 tool\n" in out
    assert "0.8 outcome - 0.2 format + 1.2 tool\n" in out
    assert "outcome - 0.05 overuse + 0.5 curiosity(g)\n" in out
    assert "outcome + 0.15 gain[gain]\n" in out
    assert "tapo: robust, needs judge" in out


def test_the_list_as_json(capsys):
    assert rewards("list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(REWARDS)
    tool = rows["tapo"]["terms"][2]
    assert (tool["name"], tool["weight"], tool["tool"], tool["group"], tool["channel"]) == (
        "tool",
        0.5,
        True,
        False,
        "outcome",
    )
    assert tool["formula"] and rows["taco"]["needs"] == ["probing"] and rows["tapo"]["robust"] is True
    assert all(term["formula"] for row in rows.values() for term in row["terms"])


def test_explaining_a_recorded_episode(run, capsys):
    assert rewards("explain", run) == 0
    out = capsys.readouterr().out
    assert "Turn 1, code: +" in out and "Turn 2, answer: +1.000" in out
    assert "tapo = outcome + 0.3 format + 0.5 tool" in out
    assert "last call" in out and "no flaw" in out and "wanted" in out
    assert "These are the recorded rewards, turn by turn." in out and "WARNING" not in out


def test_json_adds_up(run, capsys):
    (record,) = explained(capsys, run, "--index", 2)
    assert record["index"] == 2 and record["same_as_recorded"] is True
    assert record["total"] == pytest.approx(record["recorded_total"])
    assert sum(turn["reward"] for turn in record["turns"]) == pytest.approx(record["total"])
    for turn in record["turns"]:
        assert sum(turn["paid"].values()) == pytest.approx(turn["reward"])
        assert set(turn["why"]) == set(turn["values"]) == {"outcome", "format", "tool"}


def test_episodes_are_chosen_by_task(run, capsys):
    wanted = explained(capsys, run, "--index", 1)[0]["task_id"]
    assert [r["task_id"] for r in explained(capsys, run, "--task", wanted)] == [wanted]
    assert [r["index"] for r in explained(capsys, run / "trajectories.jsonl")] == [0]


def test_another_reward(run, capsys):
    (record,) = explained(capsys, run, "--reward", "deepeyes")
    assert record["total"] == pytest.approx(2.0) and record["same_as_recorded"] is False
    assert "These are the rewards of" in record["notes"][0] and "'tapo'" in record["notes"][0]


def test_what_cannot_be_computed_is_said(run, capsys):
    assert "probed" in " ".join(explained(capsys, run, "--reward", "taco")[0]["notes"])
    assert "curiosity: needs all rollouts" in " ".join(explained(capsys, run, "--reward", "pixelreasoner")[0]["notes"])


def test_other_weights_are_warned_about(run, capsys):
    (record,) = explained(capsys, run, "--weights", "tool", "2.0")
    assert record["same_as_recorded"] is False and record["notes"][0].startswith("WARNING")
    assert record["weights"] == {"outcome": 1.0, "format": 0.3, "tool": 2.0}


def test_what_the_trainer_paid_for_the_group_is_told(tmp_path, capsys):
    turns = (Step("red", Answer("red"), reward=1.1, reward_terms={"outcome": 1.0, "overuse": 0.0, "curiosity": 0.1}),)
    trajectory = Trajectory(
        "t", turns=turns, answer="red", final_answer="red", is_correct=True, stop_reason="answer",
        reward_name="pixelreasoner",
    )  # fmt: skip
    write_trajectories(tmp_path, [trajectory, trajectory])
    records = explained(capsys, tmp_path, "--task", "t")
    assert len(records) == 2, "all episodes of the task"
    assert records[0]["same_as_recorded"] is True
    assert "curiosity +0.100" in " ".join(records[0]["notes"])


def test_a_training_run_is_looked_into(tmp_path, capsys):
    for part, answer in (("before", "red"), ("after", "blue")):
        turn = Step(answer, Answer(answer), reward_terms={"outcome": 0.0})
        write_trajectories(
            tmp_path / part,
            [Trajectory("t", turns=(turn,), final_answer=answer, stop_reason="answer", reward_name="outcome")],
        )
    assert "'blue'" in explained(capsys, tmp_path)[0]["turns"][0]["why"]["outcome"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--index", "9"], "it holds 0 to 2"),
        (["--task", "nobody"], "unknown --task 'nobody'"),
        (["--reward", "tapoo"], "Did you mean 'tapo'"),
        (["--weights", "tol", "1.0"], "Did you mean 'tool'"),
    ],
)
def test_what_is_not_there_says_so(run, capsys, args, message):
    assert rewards("explain", run, *args) == 1
    assert message in capsys.readouterr().err


def test_episodes_that_name_no_known_reward(tmp_path, capsys):
    write_trajectories(tmp_path, [Trajectory("t", reward_name="mine")])
    assert rewards("explain", tmp_path) == 1
    assert "Name it with --reward, as module:attribute" in capsys.readouterr().err


def test_no_trajectories(tmp_path, capsys):
    assert rewards("explain", tmp_path) == 1
    assert "trajectories.jsonl" in capsys.readouterr().err


def test_commands(capsys):
    assert rewards() == 2 and rewards("--help") == 0
    assert rewards("lits") == 2
    assert "Did you mean 'list'" in capsys.readouterr().err


def test_explain_says_why_a_look_is_not_faithful(tmp_path, capsys):
    env = ImageToolEnv(SceneTaskSet(GridOptions(), "test", 2), view_pixels=10_000)
    played = run_episode(env, RandomCrop(side=0.5), options={"index": 0})
    env.close()
    write_trajectories(tmp_path, [played])
    assert rewards("explain", tmp_path) == 0
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if line.startswith("  image 1:")]
    for part in (
        "not faithful by",
        "coverage",
        "tightness",
        "detail 0.30",
        "share 1.00",
        "compact",
        "shown in all 25.00 %",
    ):
        assert part in line, line
    assert "not faithful, by the definition: boxes 2, view of 10000 pixels." in text
    assert "Images are explained" not in text
    (record,) = explained(capsys, tmp_path)
    (image,) = record["turns"][0]["images"]
    assert image["missing"] and image["shown"] == pytest.approx(0.25) and not image["faithful"]
    assert record["turns"][1]["images"] == []


@pytest.mark.parametrize("given", [(None, 1.0, None), (4900, 1.0, None), (4900, 4.0, 2.25), (10_000, 1.5, 3.0)])
def test_explain_applies_the_recorded_definition(tmp_path, capsys, given):
    judge = GroundTruthJudge(*given)
    env = ImageToolEnv(SceneTaskSet(GridOptions(), "test", 2), judge=judge)
    played = run_episode(env, Oracle(), options={"index": 0})
    env.close()
    write_trajectories(tmp_path, [played])
    (record,) = explained(capsys, tmp_path)
    assert record["turns"][0]["images"][0]["faithful"] == played.is_faithful
    assert rewards("explain", tmp_path) == 0
    text = capsys.readouterr().out
    assert f"by the definition: {judge.definition}." in text and "Images are explained" not in text
