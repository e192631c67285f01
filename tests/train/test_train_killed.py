"""A run that is killed at any moment and started again ends as if it had not been."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import micro_run
import pytest
from micro_run import history, same_weights, untimed

from codev_train.learn.checkpoint import checkpoints

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=[4, pytest.param(20, marks=pytest.mark.soak)], ids="{} kills".format)
def kills(request) -> int:
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory, kills) -> Path:
    """Runs that were killed, and one that was not; see `killed_process.py`."""
    made = tmp_path_factory.mktemp("killed")
    micro_run.write_config(made / "micro.yaml")
    seed = int(os.environ.get("CODEV_KILL_SEED", random.SystemRandom().randrange(10**6)))
    paths = [str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    quiet = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = os.environ | quiet | {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    command = [sys.executable, str(HERE / "killed_process.py"), str(made), str(seed), str(kills)]
    print(f"CODEV_KILL_SEED={seed}")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400 + 60 * kills)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-1000:]}\n{(made / 'log.txt').read_text()[-3000:]}"
    return made


@pytest.fixture(scope="module")
def killed(folder) -> list[Path]:
    found = sorted(path.parent for path in folder.glob("killed-*/micro/summary.json"))
    assert found and len(found) == len(list(folder.glob("killed-*")))
    return found


def test_a_kill_costs_the_update_under_way_and_the_checkpoint_that_is_being_written(folder, kills):
    found = json.loads((folder / "killed.json").read_text())
    print(json.dumps(found, indent=1))
    hit = [kill for kill in found["kills"] if not kill["finished"]]
    assert len(hit) == kills
    assert all(kill["rows"] - kill["done"] in (0, 1, 2) for kill in hit)


def test_weights_and_numbers_are_those_of_a_run_that_was_never_killed(folder, killed):
    whole = folder / "whole" / "micro"
    wanted = json.loads((whole / "summary.json").read_text())
    for run in killed:
        assert same_weights(run / "model", whole / "model"), run
        assert untimed(history(run)) == untimed(history(whole)), run
        found = json.loads((run / "summary.json").read_text())
        assert (found["before"], found["after"]) == (wanted["before"], wanted["after"]), run


def test_the_time_of_updates_before_a_kill_counts(killed):
    for run in killed:
        spent = sum(row["seconds/rollouts"] + row["seconds/update"] for row in history(run))
        seconds = json.loads((run / "summary.json").read_text())["seconds"]
        assert seconds["training"] >= spent - 0.1 and seconds["total"] >= seconds["training"], run


def test_nothing_torn_is_left(folder, killed):
    for run in killed:
        assert [path.name for path in checkpoints(run)] == ["step-000002", "step-000003"]
        assert not list(run.glob("checkpoints/.*")) and not list(run.glob(".*"))


def test_tensorboard_shows_each_update_once(folder, killed):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for run in [folder / "whole" / "micro", *killed]:
        events = EventAccumulator(str(run / "tensorboard"))
        events.Reload()
        rows = history(run)
        assert [event.step for event in events.Scalars("reward")] == [row["step"] for row in rows] == [1, 2, 3]
        assert [event.value for event in events.Scalars("reward")] == pytest.approx([row["reward"] for row in rows])
        assert [event.step for event in events.Images("episodes/0")] == [1, 2, 3]
