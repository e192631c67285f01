"""Training on data of one's own: bad rows, broken images, chosen tasks, and another scorer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from micro_run import history

from codev_agents.engines.hf import HFEngine
from codev_agents.rollout.engine import Sampling
from codev_agents.rollout.runner import RolloutRunner
from codev_agents.rollout.selection import Selection
from codev_env.app.cli import main
from codev_env.envs.image_tool import unwrap
from codev_env.errors import TaskError
from codev_env.scoring import Score
from codev_env.types import Task
from codev_train.run.config import fingerprint
from codev_train.run.env_options import EnvOptions
from codev_train.run.environments import make_env, make_eval_env, make_train_env
from codev_train.run.options import HeldOutOptions, SFTOptions, TrainOptions

ID = "codev_env:CodeV-Dataset-v0"
COUNT = 8


def right_if_short(task: Task, answer: str) -> Score:
    return Score(correct=len(answer) < 3)


@pytest.fixture(scope="module")
def rows(tmp_path_factory, env_options) -> Path:
    """A folder with tasks as rows of files: `train.jsonl` and `test.jsonl`."""
    folder = tmp_path_factory.mktemp("own")
    for split in ("train", "test"):
        env = make_env(env_options, split)
        tasks = unwrap(env).tasks
        written: list[dict[str, Any]] = []
        for index in range(COUNT):
            task = tasks[index]
            name = f"{split}-{index}.png"
            task.image.save(folder / name)
            row = {"id": f"{split}{index}", "image": name, "question": task.question, "answer": task.answer}
            written.append(row | {"category": "odd" if index % 2 else "even", "targets": [list(task.targets[0])]})
        env.close()
        write(folder / f"{split}.jsonl", written)
    return folder


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def options(folder: Path, name: str = "train", **changes: Any) -> EnvOptions:
    data = str(folder / f"{name}.jsonl")
    return EnvOptions(id=ID, data=data, scenes="", max_turns=2, **changes)


def own(folder: Path, name: str = "train") -> list[str]:
    data = ["--env.data", str(folder / f"{name}.jsonl"), "--eval.data", str(folder / "test.jsonl")]
    return ["--env.id", ID, "--env.scenes=", *data]


@pytest.fixture
def broken(rows) -> Path:
    """The same rows, the image of the third cut short."""
    image = (rows / "train-2.png").read_bytes()
    (rows / "cut.png").write_bytes(image[: len(image) // 2])
    found = read(rows / "train.jsonl")
    found[2]["image"] = "cut.png"
    write(rows / "broken.jsonl", found)
    return rows


@pytest.mark.parametrize("concurrent", [1, 3])
def test_a_task_that_cannot_be_read_gives_way_to_the_next_one(broken, policy, concurrent):
    with RolloutRunner(
        lambda: make_env(options(broken, "broken"), "train"), policy.processor, concurrent=concurrent
    ) as runner:
        found = Selection(range(COUNT), 4, 4)
        runner.select(HFEngine(policy.model, policy.processor, seed=1), found, 2, Sampling(1.0, 12))
    assert [r.trajectory.index for r in found.rollouts] == [0, 0, 1, 1, 3, 3, 4, 4]
    (skipped,) = found.skipped
    assert skipped.index == 2
    assert re.search(r"index 2 is skipped: .*line 3: .*cut\.png: the image is broken", skipped.reason(12, 99))


def test_it_is_no_candidate(broken, policy):
    with RolloutRunner(lambda: make_env(options(broken, "broken"), "train"), policy.processor) as runner:
        assert runner.guesses(HFEngine(policy.model, policy.processor), range(COUNT), 12)[2]


@pytest.mark.parametrize("more", [(), ("--staleness", "1"), ("--candidates", "2")])
def test_a_run_skips_counts_and_names_it(broken, arguments, runs, capsys, more):
    name = "unread" + "".join(more)
    steps = ["--steps", "4", "--prompts", "4"]
    assert main(["train", *arguments(name, *own(broken, "broken"), *steps, *more)]) == 0
    said = re.findall(r"the task of index 2 is skipped: .*cut\.png: the image is broken", capsys.readouterr().err)
    counted = [row["tasks_skipped"] for row in history(runs / name)]
    assert len(counted) == 4 and (sum(counted) > 0 and len(said) == 1 or "--candidates" in more)


def test_a_run_in_which_nothing_can_be_read_stops_and_says_why(broken, arguments, capsys):
    found = [row | {"image": "cut.png"} for row in read(broken / "train.jsonl")]
    write(broken / "all.jsonl", found[1:])
    (broken / "whole.jsonl").write_text(json.dumps(read(broken / "train.jsonl")[0]) + "\n")
    with (broken / "all.jsonl").open("a") as file:
        file.write((broken / "whole.jsonl").read_text())
    assert main(["train", *arguments("none", *own(broken, "all"), "--steps", "40", "--prompts", "2")]) == 1
    assert "cut.png: the image is broken" in capsys.readouterr().err


def test_a_task_that_is_evaluated_on_must_be_read(broken, arguments, capsys):
    held_out = ["--eval.data", str(broken / "broken.jsonl")]
    assert main(["train", *arguments("held", *own(broken), *held_out, "--eval.episodes", "8")]) == 1
    assert "evaluated on cannot be read" in capsys.readouterr().err


def test_bad_rows_stop_a_run_before_it_begins_or_are_left_out(rows, arguments, capsys):
    found = read(rows / "train.jsonl")
    found[3]["answer"] = ""
    write(rows / "bad.jsonl", found)
    assert main(["train", *arguments("bad", *own(rows, "bad"), "--dry-run")]) == 1
    assert "line 4: the answer is empty" in capsys.readouterr().out
    room = ["--max-length", "2048", "--dry-run"]
    assert main(["train", *arguments("bad", *own(rows, "bad"), "--env.on-error", "skip", *room)]) == 0
    assert f"{COUNT - 1} of" in capsys.readouterr().out


def size(env: Any) -> int:
    count = len(unwrap(env).tasks)
    env.close()
    return count


def test_some_tasks_are_trained_on_and_others_evaluated_on(rows):
    chosen = write(rows / "only.jsonl", [{"task_id": "train1"}, {"task_id": "train4"}])
    held = write(rows / "held.jsonl", [{"task_id": "test0"}])
    env = options(rows, only=str(chosen))
    plan = TrainOptions(env=env, eval=HeldOutOptions(data=str(rows / "test.jsonl"), only=str(held)))
    assert size(make_train_env(plan)) == 2 and size(make_eval_env(plan)) == 1
    plan = TrainOptions(env=env, eval=HeldOutOptions(data=str(rows / "test.jsonl")))
    assert size(make_eval_env(plan)) == COUNT, "the choice is of training tasks"
    assert size(make_env(options(rows, subset="odd"), "train")) == COUNT // 2
    with pytest.raises(TaskError, match="no such file"):
        make_env(options(rows, only="missing.jsonl"), "train")


def test_another_scorer_decides_what_is_right(rows):
    env: Any = make_env(options(rows, scorer=f"{__name__}:right_if_short"), "train")
    env.reset(options={"index": 0})
    *_, info = env.step("<answer>no</answer>")
    assert info["is_correct"]
    env.close()


def test_a_start_is_another_one_only_where_it_learns_other_tasks():
    def name(**changes: Any) -> str:
        return fingerprint(SFTOptions(env=EnvOptions(**changes)))

    assert name() == name(scorer="answer") == name(judge="none")
    assert len({name(), name(only="a.jsonl"), name(subset="odd"), name(on_error="skip")}) == 4


def doubts(capsys, *words: str) -> str:
    main(["train", "--preset", "smoke", "--steps", "1", *words, "--dry-run"])
    return "".join(line for line in capsys.readouterr().out.splitlines(True) if "rewards tool calls" in line)


def test_a_reward_that_no_task_can_earn_is_noticed_before_a_run(rows, capsys):
    for split in ("train", "test"):
        found = read(rows / f"{split}.jsonl")
        write(rows / f"plain-{split}.jsonl", [{k: v for k, v in row.items() if k != "targets"} for row in found])
    data = ["--env.id", ID, "--env.scenes=", "--env.data", str(rows / "plain-train.jsonl")]
    data += ["--eval.data", str(rows / "plain-test.jsonl")]
    assert "none of 8 tasks that were looked at has target boxes, so --env.judge auto" in doubts(capsys, *data)
    assert doubts(capsys, *data, "--reward", "outcome") == ""
    assert "--env.judge is none" in doubts(capsys, "--env.judge", "none")
    assert "says which operation it needs" in doubts(capsys, "--reward", "codevision")
    assert doubts(capsys, "--reward", "codevision", "--env.wrap", "crop") == doubts(capsys) == ""


def test_a_run_says_so_at_once(rows, arguments, recwarn):
    found = [{k: v for k, v in row.items() if k != "targets"} for row in read(rows / "train.jsonl")]
    write(rows / "unboxed.jsonl", found)
    reward = ["--reward", "tapo", "--steps", "1"]
    assert main(["train", *arguments("unboxed", *own(rows, "unboxed"), *reward)]) == 0
    assert [str(one.message) for one in recwarn if "scores no tool call" in str(one.message)]
