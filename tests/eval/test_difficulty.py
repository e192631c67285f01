"""`codev data filter` and what reads its file: success rates over rollouts, resumed, and a filtered task set."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from codev_env.errors import ConfigError, TaskError
from codev_env.tasks import load_tasks
from codev_env.tasks.filtered import FilteredTaskSet
from codev_eval.bench.runner import Failure
from codev_eval.data import cli as data
from codev_eval.data.difficulty import Difficulty, RolloutJournal, RolloutOptions, measure, select

TOY = {"preset": "toy", "size": 20}


class Solver:
    """Answers right in as many of the first rollouts as a task's index says."""

    name = "solver"

    def __init__(self, rollout: int) -> None:
        self.rollout = rollout

    def reset(self, env) -> None:
        base = env.unwrapped
        index = base.tasks.index_of(base.task.task_id)
        right = base.task.answer if self.rollout < index else "wrong"
        self.text = f"<answer>{right}</answer>"

    def act(self, observation) -> str:
        return self.text


def make_agent(rollout):
    return lambda: Solver(rollout)


def filter_options(out: Path, *more: str) -> list[str]:
    return ["filter", "--data", "synthetic", "--scenes", "toy", "--out", str(out), "--n", "4", *more]


@pytest.fixture
def tasks():
    return load_tasks("synthetic", "train", scenes=TOY)


def test_success_rates_are_counted(tasks, tmp_path):
    journal = RolloutJournal(tmp_path / "j", {})
    assert list(measure(tasks, 5, make_agent, journal, RolloutOptions(rollouts=4))) == [None] * 20
    found = [journal.difficulty(index, 4) for index in range(5)]
    assert [task.successes for task in found if task] == [0, 1, 2, 3, 4]
    kept, left_out, missing = select(journal, 6, 4, (0.25, 0.75))
    assert [task.index for task in kept] == [1, 2, 3] and [task.index for task in left_out] == [0, 4]
    assert missing == 1
    low, high = kept[1].row()["ci95"]
    assert 0 < low < kept[1].rate == 0.5 < high < 1


def test_rollouts_are_played_once(tasks, tmp_path):
    path = tmp_path / "j"
    options = RolloutOptions(rollouts=3)
    journal = RolloutJournal(path, {"a": 1})
    rollouts = measure(tasks, 3, make_agent, journal, options)
    for _ in range(4):
        next(rollouts)
    rollouts.close()
    journal.close()
    path.write_bytes(path.read_bytes() + b'{"index": 2, "ta')
    played = path.read_bytes().count(b"\n") - 1
    journal = RolloutJournal(path, {"a": 1})
    journal.check(tasks)
    assert len(list(measure(tasks, 3, make_agent, journal, options))) == 9 - played
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert len({(row["index"], row["rollout"]) for row in rows}) == len(rows) == 9
    journal.close()
    with pytest.raises(ConfigError, match="a 1, not 2"):
        RolloutJournal(path, {"a": 2})


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no advisory locks")
def test_a_journal_has_one_writer(tmp_path):
    first = RolloutJournal(tmp_path / "j", {})
    with pytest.raises(ConfigError, match="another process writes to .*j: wait for it, or give another --out"):
        RolloutJournal(tmp_path / "j", {})
    first.close()
    RolloutJournal(tmp_path / "j", {}).close()


def test_a_full_disk_costs_a_journal_one_rollout(tmp_path):
    """A part of a line, before others once there is room again, would make the whole file unreadable."""
    journal = RolloutJournal(tmp_path / "j", {})
    journal.add(0, "a", 0, True)
    file = journal._file

    class Full:
        def write(self, line: bytes) -> int:
            return file.write(line[:9])

        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

    journal._file = Full()
    with pytest.raises(OSError, match="disk full"):
        journal.add(1, "b", 0, True)
    journal._file = file
    journal.add(2, "c", 0, True)
    journal.close()
    again = RolloutJournal(tmp_path / "j", {})
    assert [again.has(index, 0) for index in range(3)] == [True, False, True]
    again.close()


def test_data_that_changed_is_told(tasks, tmp_path):
    journal = RolloutJournal(tmp_path / "j", {})
    journal.add(0, tasks[1].task_id, 0, True)
    with pytest.raises(TaskError, match="has changed"):
        journal.check(tasks)


def test_a_rollout_that_cannot_be_played_is_missing(tasks, tmp_path):
    class Broken(Solver):
        def act(self, observation):
            raise TaskError("no")

    journal = RolloutJournal(tmp_path / "j", {})
    outcomes = list(measure(tasks, 1, lambda rollout: lambda: Broken(rollout), journal, RolloutOptions(rollouts=2)))
    assert [type(outcome) for outcome in outcomes] == [Failure, Failure]
    assert journal.difficulty(0, 2) is None


@pytest.mark.parametrize("keep", [(0.5, 0.2), (-0.1, 1.0), (0.0, 1.1)])
def test_keep_must_be_two_rates(tmp_path, keep):
    with pytest.raises(ConfigError, match="success rates"):
        select(RolloutJournal(tmp_path / "j", {}), 1, 1, keep)


def test_the_command_filters_and_goes_on(tmp_path, capsys):
    out = tmp_path / "hard.jsonl"
    oracle = filter_options(out, "--agent", "scripted:oracle", "--rollouts", "2")
    assert data.main([*oracle, "--keep", "0.0", "0.9"]) == 0
    assert out.read_text() == "" and "4 are too easy" in capsys.readouterr().out
    journal = out.with_name("hard.jsonl.rollouts")
    played = journal.read_bytes()
    assert data.main([*oracle, "--keep", "1.0", "1.0"]) == 0
    assert journal.read_bytes() == played
    assert data.main([*oracle, "--rollouts", "3", "--keep", "1.0", "1.0"]) == 0
    assert journal.read_bytes().startswith(played) and journal.read_bytes().count(b"\n") == 1 + 3 * 4
    assert data.main([*oracle, "--keep", "1.0", "1.0"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert all(row["rate"] == 1.0 and row["rollouts"] == 2 for row in rows)
    with pytest.raises(ConfigError, match="agent"):
        data.main(filter_options(out, "--agent", "scripted:none", "--rollouts", "2"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "auto"], "--data auto is not for filtering"),
        (["--n", "0"], "--n is 0"),
        (["--out", "."], "a folder"),
    ],
)
def test_what_cannot_be_filtered_is_told(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        data.main([*filter_options(tmp_path / "x.jsonl", "--agent", "scripted:none"), *options])


def test_a_server_that_is_not_there_is_told(tmp_path, monkeypatch):
    pytest.importorskip("openai")
    monkeypatch.setattr(data, "MOST_FAILURES", 1)
    arguments = filter_options(
        tmp_path / "x.jsonl", "--agent", "http://localhost:9/v1#m", "--rollouts", "1", "--n", "1"
    )
    with pytest.raises(data.FilterError, match="could be played"):
        data.main(arguments)


def test_a_filtered_set_has_the_order_of_the_file(tasks, tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(Difficulty(tasks[i].task_id, i, 1, 2).row()) + "\n" for i in (7, 2, 11)))
    some = FilteredTaskSet(tasks, path)
    assert [task.task_id for task in (some[0], some[1], some[2])] == [tasks[i].task_id for i in (7, 2, 11)]
    assert len(some) == 3 and some.source == tasks.source and "some.jsonl" in some.name
    assert some.index_of(tasks[2].task_id) == 1 and some.rows[0]["rate"] == 0.5
    with pytest.raises(TaskError, match="no task"):
        some.index_of(tasks[3].task_id)
    with pytest.raises(IndexError):
        some[3]


def test_separators_of_lines_inside_a_text_end_no_row(tasks, tmp_path):
    path = tmp_path / "some.jsonl"
    rows = [{"task_id": tasks[number].task_id, "note": "a\u2028b\x85c"} for number in (1, 2)]
    path.write_bytes("\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode())
    assert FilteredTaskSet(tasks, path).rows == tuple(rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"task_id": "none"}', "there is no task 'none'"),
        ('{"id": "x"}', "'task_id' is None"),
        ("{", "not JSON"),
        ("\n", "names no task"),
    ],
)
def test_a_bad_filter_file_is_told(tasks, tmp_path, text, message):
    path = tmp_path / "f.jsonl"
    path.write_text(text)
    with pytest.raises(TaskError, match=message):
        FilteredTaskSet(tasks, path)


def test_a_missing_filter_file_is_no_broken_one(tasks, tmp_path):
    with pytest.raises(TaskError, match=r"f\.jsonl: cannot be read \(No such file or directory\)\. Check the path\."):
        FilteredTaskSet(tasks, tmp_path / "f.jsonl")


def test_a_task_named_twice_is_told(tasks, tmp_path):
    path = tmp_path / "f.jsonl"
    path.write_text(f'{{"task_id": "{tasks[0].task_id}"}}\n' * 2)
    with pytest.raises(TaskError, match="line 2.*twice"):
        FilteredTaskSet(tasks, path)


def test_the_data_command_tells_its_commands(capsys):
    assert data.main(["--help"]) == 0
    assert {"show", "check", "replay", "filter"} <= set(capsys.readouterr().out.split())
    assert data.main([]) == 2
    with pytest.raises(ConfigError, match="replay"):
        data.main(["repaly"])


def test_the_replay_command(tmp_path, capsys):
    rows = [
        {
            "image": [],
            "question": f"What is 2 + {number}?",
            "response": f"<think>Count.\n<code>\n```python\nprint(2 + {number})\n```\n</code>\n<sandbox_output>"
            f"{2 + number}</sandbox_output>\nSo.</think>\n<answer>{2 + number}</answer>",
        }
        for number in range(3)
    ]
    rows[1]["response"] = "<think>unfinished"
    path = tmp_path / "computation.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["replay", "--format", "thyme", "--data", str(path), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert data.main([*arguments, "--dialect", "codev"]) == 0
    printed = capsys.readouterr().out
    assert "2  kept" in printed and "unbalanced_tags" in printed
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["kept"] == 2 and summary["dropped"] == {"unbalanced_tags": 1}
    with pytest.raises(ConfigError, match="dialect"):
        data.main(arguments)
    with pytest.raises(ConfigError, match="--n"):
        data.main([*arguments, "--n", "0"])


def test_a_journal_without_rollouts_takes_other_settings(tmp_path):
    path = tmp_path / "tasks.jsonl.rollouts"
    RolloutJournal(path, {"agent": "a wrong one"}).close()
    journal = RolloutJournal(path, {"agent": "the right one"})
    journal.add(0, "t-0", 0, True)
    journal.close()
    assert path.read_text().count("settings") == 1
    again = RolloutJournal(path, {"agent": "the right one"})
    assert again.has(0, 0)
    again.close()
    with pytest.raises(ConfigError, match="holds rollouts with other settings"):
        RolloutJournal(path, {"agent": "another"})


@pytest.mark.parametrize("agent", ["scripted:rando", ".", "http://localhost:8000/v1"])
def test_a_wrong_agent_is_named_by_its_option(tmp_path, agent):
    with pytest.raises(ConfigError) as caught:
        data.main([*filter_options(tmp_path / "kept.jsonl"), "--agent", agent])
    assert "--agent" in str(caught.value) and "--model" not in str(caught.value) and "folder" not in str(caught.value)
