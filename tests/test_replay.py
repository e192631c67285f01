"""Published SFT trajectories, replayed in the sandbox: single rows and whole runs that are stopped and go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from demonstration_rows import CROP, codevision_row, codevision_set, mixed_rows, only, thyme_row, thyme_set

from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ConfigError, TaskError
from codev_env.sandbox import Limits, Sandbox
from codev_env.trajectory import read_trajectories
from codev_eval.data.demonstrations import ReplayOptions, ReplayRun, plan, replay, summary_table

LOOP = "while True:\n    pass"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(limits=Limits(wall_s=10)) as found:
        yield found


# ---- replaying


def test_a_replay_shows_what_the_program_gives_here(tmp_path, box):
    demo = only(thyme_set(tmp_path, thyme_row((CROP, "<image>"), ("print(x2 - x1)", "100"))))
    outcome = replay(demo, box, ReplayOptions())
    trajectory = outcome.trajectory
    assert trajectory is not None, outcome
    # cv2.imwrite keeps the pixels of the crop.
    assert trajectory.turns[0].images[0].tobytes() == demo.images[0].crop((10, 20, 110, 70)).tobytes()
    assert trajectory.turns[1].stdout.strip() == "100"
    assert trajectory.observation_role == "assistant" and trajectory.dialect == "thyme"
    assert trajectory.split == "train" and trajectory.final_answer == "B" and not trajectory.is_correct
    facts = trajectory.meta["replay"]
    assert facts["same_text"] is True and facts["same_sizes"] is True and not facts["has_gold_answer"]
    assert any("dvqa_00110792_view1.jpg" in repair for repair in facts["repairs"][0]) and not facts["repairs"][1]


def test_another_text_is_kept_and_told(tmp_path, box):
    demo = only(thyme_set(tmp_path, thyme_row(("print(5)", "7"))))
    trajectory = replay(demo, box, ReplayOptions()).trajectory
    assert trajectory is not None and trajectory.meta["replay"]["same_text"] is False
    assert "5" in trajectory.turns[0].observation and "7" not in trajectory.turns[0].observation


def test_an_error_that_the_program_itself_printed_is_no_failure(tmp_path, box):
    code = "try:\n    1 / 0\nexcept Exception as e:\n    print(f'Error: {e}')"
    trajectory = replay(
        only(thyme_set(tmp_path, thyme_row((code, "Error: division by zero")))), box, ReplayOptions()
    ).trajectory
    assert trajectory is not None and trajectory.meta["replay"]["same_text"] is True


FAILING = {
    "error": (("print(1 / 0)", "1"), ReplayOptions()),
    "refused": (("import socket", "1"), ReplayOptions()),
    "timeout": ((LOOP, "1"), ReplayOptions(wall_s=0.5)),
    "limits": (("print('x' * 100000)", "1"), ReplayOptions()),
    "images_differ": (("print(1)", "<image>"), ReplayOptions()),
    "error_is_gone": (("print(1)", "NameError: name 'x' is not defined"), ReplayOptions()),
    "recorded_error": (("print(1 / 0)", "ZeroDivisionError: division by zero"), ReplayOptions(recorded_errors="drop")),
}


@pytest.mark.parametrize("reason", FAILING)
def test_what_does_not_run_is_left_out(tmp_path, reason):
    step, options = FAILING[reason]
    demo = only(thyme_set(tmp_path, thyme_row(step)))
    with Sandbox(limits=Limits(wall_s=options.wall_s)) as own:
        outcome = replay(demo, own, options)
    assert outcome.reason == reason and outcome.trajectory is None and outcome.detail


def test_error_recovery_is_kept(tmp_path, box):
    row = thyme_row(("print(1 / 0)", "ZeroDivisionError: division by zero"), ("print(4)", "4"))
    trajectory = replay(only(thyme_set(tmp_path, row)), box, ReplayOptions()).trajectory
    assert trajectory is not None and trajectory.turns[0].error and not trajectory.turns[1].error
    assert trajectory.meta["replay"]["failed_turns"] == 1


TURN = {"code": "result = image.rotate(90, expand=True)", "description": "Turn it upright.", "image_index": 0}
AGAIN = {"code": "result = image.crop((0, 0, 200, 320))", "description": "Crop it.", "image_index": 1}


@pytest.mark.parametrize("dialect", ["codevision", "codev", "thyme"])
def test_codevision_in_every_dialect(tmp_path, box, dialect):
    row = codevision_row(tmp_path, (TURN, "<image>Look."), (AGAIN, "<image>Look."), shown=2)
    demo = only(codevision_set(tmp_path, row))
    outcome = replay(demo, box, ReplayOptions(dialect=dialect))
    trajectory = outcome.trajectory
    assert trajectory is not None, outcome
    turned = demo.images[0].rotate(90, expand=True)
    assert [turn.images[0].tobytes() for turn in trajectory.turns[:2]] == [turned.tobytes()] * 2
    assert trajectory.is_correct and trajectory.dialect == dialect
    assert trajectory.meta["replay"]["same_text"] is None


@pytest.mark.parametrize("dialect", ["thyme", "codev"])
def test_a_kept_trajectory_is_what_the_environment_would_have_shown(tmp_path, box, dialect):
    demo = only(thyme_set(tmp_path, thyme_row((CROP, "<image>"), ("print(x2, cropped.shape)", "110 (50, 100, 3)"))))
    trajectory = replay(demo, box, ReplayOptions(dialect=dialect)).trajectory
    assert trajectory is not None and trajectory.meta["replay"]["same_text"]

    class OneTask:
        name, source = "one", "real"

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return plan(demo, dialect).task

        def index_of(self, task_id):
            return 0

    env = ImageToolEnv(OneTask(), dialect=dialect, judge="none", reward="outcome", max_turns=9)
    observation, _info = env.reset(options={"index": 0})
    assert observation["text"] == trajectory.prompt
    for turn in trajectory.turns:
        observation, _reward, done, _truncated, _info = env.step(turn.action)
        assert observation["text"] == turn.observation
        assert [image.tobytes() for image in observation["images"]] == [image.tobytes() for image in turn.images]
    assert done and env.episode.answer == trajectory.final_answer
    env.close()


# ---- whole runs


def ids_of(folder: Path) -> list[str]:
    return [json.loads(line)["task_id"] for line in (folder / "trajectories.jsonl").read_text().splitlines()]


def test_a_run_keeps_what_runs_and_counts_the_rest(tmp_path):
    demos = thyme_set(tmp_path, *mixed_rows())
    with ReplayRun(demos, tmp_path / "out", ReplayOptions(dialect="codev")) as run:
        summary = run.run(workers=3)
    assert summary["kept"] == 7 and summary["dropped"] == {"missing_field": 1, "error": 1}
    assert summary["done"] == summary["rows"] == 9
    assert json.loads((tmp_path / "out/summary.json").read_text()) == summary
    assert sorted(ids_of(tmp_path / "out")) == sorted(f"train-{i}" for i in range(9) if i not in (3, 4))
    trajectories = read_trajectories(tmp_path / "out")
    assert all(t.dialect == "codev" and t.turns[-1].kind == "answer" for t in trajectories)
    dropped = [json.loads(line) for line in (tmp_path / "out/dropped.jsonl").read_text().splitlines()]
    assert {(row["id"], row["reason"]) for row in dropped} == {("train-3", "error"), ("train-4", "missing_field")}
    table = summary_table(summary)
    assert "7  kept" in table and "1  error: a program raised an exception" in table


def test_a_run_goes_on_where_it_was(tmp_path):
    demos = thyme_set(tmp_path, *mixed_rows())
    done: list[bool] = []
    for n in (4, None, None):
        with ReplayRun(demos, tmp_path / "out", ReplayOptions()) as run:
            done.clear()
            summary = run.run(workers=2, n=n, on_done=lambda _result, before: done.append(before))
    assert all(done) and summary["done"] == 9
    assert len(ids_of(tmp_path / "out")) == len(set(ids_of(tmp_path / "out"))) == 7


def test_torn_lines_are_replayed_again(tmp_path):
    demos = thyme_set(tmp_path, *mixed_rows())
    out = tmp_path / "out"
    with ReplayRun(demos, out, ReplayOptions()) as run:
        first = run.run(workers=1)
    for name in ("trajectories.jsonl", "dropped.jsonl"):
        path = out / name
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(RuntimeWarning, match="torn"), ReplayRun(demos, out, ReplayOptions()) as run:
        assert run.summary()["done"] == 7
        assert run.run(workers=1) == first
    assert len(set(ids_of(out))) == len(ids_of(out)) == 7


def test_a_changed_row_is_told_or_replayed(tmp_path):
    rows = mixed_rows()
    out = tmp_path / "out"
    with ReplayRun(thyme_set(tmp_path, *rows), out, ReplayOptions()) as run:
        run.run(workers=1)
    rows[3] = thyme_row(("print(1)", "1"))
    with ReplayRun(thyme_set(tmp_path, *rows), out, ReplayOptions()) as run:
        assert run.run(workers=1)["kept"] == 8
    rows[0] = thyme_row(("print(99)", "99"))
    with (
        ReplayRun(thyme_set(tmp_path, *rows), out, ReplayOptions()) as run,
        pytest.raises(TaskError, match="has changed"),
    ):
        run.run(workers=1)


def test_a_folder_belongs_to_one_set_of_options_and_one_process(tmp_path):
    demos = thyme_set(tmp_path, thyme_row())
    with ReplayRun(demos, tmp_path / "out", ReplayOptions()) as run:
        run.run(workers=1)
        if sys.platform != "win32":
            with pytest.raises(ConfigError, match="another process"):
                ReplayRun(demos, tmp_path / "out", ReplayOptions())
    with pytest.raises(ConfigError, match="dialect='thyme'"):
        ReplayRun(demos, tmp_path / "out", ReplayOptions(dialect="codev"))


KILLED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
from codev_eval.data.demonstrations import DemonstrationSet, ReplayOptions, ReplayRun
with ReplayRun(DemonstrationSet("thyme", sys.argv[1]), sys.argv[2], ReplayOptions("codev")) as run:
    run.run(workers=2)
"""


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "win32", reason="these signals are of POSIX systems")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_a_stopped_run_goes_on_without_loss_or_duplicates(tmp_path, stop):
    count = 40
    rows = [thyme_row((f"x = {number}\nprint({number})", str(number))) for number in range(count)]
    rows[7] = thyme_row(response="")
    demos = thyme_set(tmp_path, *rows)
    out = tmp_path / "out"
    path = out / "trajectories.jsonl"
    for least in (2, 14):
        arguments = [sys.executable, "-c", KILLED, str(tmp_path / "train.jsonl"), str(out)]
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < least):
            time.sleep(0.002)
        process.send_signal(stop)
        assert process.wait() == -stop
    before = path.read_bytes()
    assert 14 <= before.count(b"\n") < count - 1
    if stop == signal.SIGINT:
        summary = json.loads((out / "summary.json").read_text())
        assert summary["kept"] == before.count(b"\n") < summary["rows"]
    with ReplayRun(demos, out, ReplayOptions("codev")) as run:
        summary = run.run(workers=2)
    assert summary["kept"] == count - 1 and summary["dropped"] == {"missing_field": 1}
    assert sorted(ids_of(out)) == sorted(f"train-{i}" for i in range(count) if i != 7)
    assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert len(read_trajectories(out)) == count - 1
