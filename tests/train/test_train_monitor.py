"""TensorBoard, history and table of a run, and how it is stopped."""

from __future__ import annotations

import gc
import json
import os
import signal
import time
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image

from codev_agents import NoTool, Oracle, run_episode
from codev_agents.engines.hf import HFEngine
from codev_env.scoring.metrics import summarize
from codev_env.trajectory import Trajectory, read_trajectories
from codev_train import evaluate as evaluation
from codev_train.evaluate import CONTRAST, TABLE, comparison
from codev_train.run.environments import make_env
from codev_train.run.interrupt import Interrupt
from codev_train.run.monitor import HISTORY, Monitor, draw, transcript
from codev_train.run.options import HeldOutOptions, TrainOptions
from codev_train.run.ranks import spread


@pytest.fixture(scope="module")
def episodes(env_options):
    env = make_env(env_options, "train")
    agents = [Oracle(margin=0.0, snap=112), NoTool()]
    return [run_episode(env, agent, options={"index": 3}) for agent in agents]


def steps(folder) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / HISTORY).read_text().splitlines()]


def test_a_resumed_history_drops_what_is_done_again(tmp_path):
    first = Monitor(tmp_path)
    for step in (1, 2, 3):
        first.update({"reward": step / 2}, step)
    first.close()
    with (tmp_path / HISTORY).open("a") as file:
        file.write('{"step": 4, "rew')  # killed while writing
    second = Monitor(tmp_path, start=2)
    assert steps(tmp_path) == [1, 2]
    second.update({"reward": 9.0}, 3)
    second.close()
    assert steps(tmp_path) == [1, 2, 3]


def test_tensorboard_of_a_run_that_was_killed_shows_each_update_once(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = Monitor(tmp_path)  # never closed: a process that is killed closes nothing
    for step in (1, 2, 3):
        first.update({"reward": float(step)}, step)
    begun = int(time.time())
    while int(time.time()) == begun:  # Event files are read in the order of the seconds in which they were begun.
        time.sleep(0.05)
    second = Monitor(tmp_path, start=2)
    for step in (3, 4):
        second.update({"reward": float(10 * step)}, step)
    second.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [(1, 1), (2, 2), (3, 30), (4, 40)]
    first.close()


def test_a_history_is_json_even_where_numbers_are_none(tmp_path):
    monitor = Monitor(tmp_path)
    monitor.update({"good": 1.5, "bad": float("nan"), "worse": float("inf")}, 1)
    monitor.close()
    (line,) = (tmp_path / HISTORY).read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail) == {"step": 1, "good": 1.5, "bad": None, "worse": None}


def test_times_of_processes_are_their_least_and_greatest():
    others = torch.tensor([[2.0, 7.0], [5.0, 3.0]])
    three = SimpleNamespace(num_processes=3, device="cpu", gather=lambda own: torch.cat([others, own]))
    wanted = {"ranks/a_min": 2.0, "ranks/a_max": 5.0, "ranks/b_min": 1.0, "ranks/b_max": 7.0}
    assert spread({"a": 4.0, "b": 1.0}, three) == wanted
    assert spread({"a": 4.0}, SimpleNamespace(num_processes=1)) == {}


def test_other_processes_write_nothing(tmp_path, episodes):
    monitor = Monitor(tmp_path / "run", active=False)
    monitor.update({"reward": 1.0}, 1)
    monitor.episodes(episodes, 1)
    monitor.close()
    assert not list(tmp_path.iterdir())


def test_a_picture_shows_target_and_crop_boxes_and_the_crop(episodes):
    looked, blind = (draw(trajectory) for trajectory in episodes)
    assert looked.dtype == np.uint8 and looked.shape[0] == blind.shape[0] == 336
    assert looked.shape[1] > blind.shape[1], "the crop stands beside the image"
    green, red = (np.abs(looked[:, :336].astype(int) - color).sum(-1).min() for color in ([0, 200, 0], [230, 0, 0]))
    assert green < 60 and red < 60


def test_a_picture_stays_small_where_a_tool_returns_long_strips(episodes):
    call, *others = episodes[0].turns
    strips = tuple(Image.new("RGB", size, (9, 9, 9)) for size in [(3000, 30), (30, 3000), (100, 1)])
    call = replace(call, images=strips, crop_boxes=(None,) * 3)
    picture = draw(replace(episodes[0], turns=(call, *others)))
    assert picture.shape[0] == 336 and picture.shape[1] < 12 * 336
    assert (picture == 9).all(-1).any()


def test_a_transcript_tells_turns_observations_and_rewards(episodes):
    looked, blind = map(transcript, episodes)
    for trajectory, text in zip(episodes, (looked, blind), strict=True):
        assert trajectory.question in text and all(turn.action in text for turn in trajectory.turns)
        for name in trajectory.reward_terms:
            assert f"{name} " in text
    assert "<sandbox_output>" in looked and "faithful: True" in looked and "faithful: False" in blind


def test_the_table_shows_every_metric_with_its_interval(episodes):
    before, after = summarize(episodes[1:] * 4, seed=0), summarize(episodes[:1] * 4, seed=0)
    table = comparison(before, after)
    labels = dict(TABLE)
    assert labels.pop(CONTRAST) not in table, "nothing was played on contrast scenes"
    rows = {label: next(line for line in table.splitlines() if line.startswith(label)) for label in labels.values()}
    # A mean over equal values has no interval.
    assert "100.0 % [" in rows["accuracy"] and rows["tool calls per episode"].split()[-1] == "1.00"
    assert rows["faithful-tool rate"].index("0.0 % [") < rows["faithful-tool rate"].index("100.0 % [")
    # An agent that is never right has no faithful rate among the right ones.
    assert before["accuracy"] == 0 and "–" in rows["faithful given correct"]


def test_the_table_of_one_episode_has_no_interval_where_there_is_none(episodes):
    one = summarize(episodes[:1], seed=0)
    assert one["ci95"]["tool_calls"] is None
    (row,) = (line for line in comparison(one, one).splitlines() if line.startswith("tool calls"))
    assert row.split()[-2:] == ["1.00", "1.00"]


def test_evaluations_resample_the_tasks_of_a_cluster_together(episodes, tmp_path, monkeypatch):
    def played(cluster) -> list[Trajectory]:
        rights = (number % 8 < 4 for number in range(40))
        made = [replace(episodes[0], task_id=f"task-{n}", is_correct=right) for n, right in enumerate(rights)]
        return [replace(t, meta={"task": {"cluster": cluster(n)}}) for n, t in enumerate(made)]

    options = TrainOptions(eval=HeldOutOptions(contrast={"cue_p": 0}, dual=True))
    widths = []
    for name, cluster in (("alone", str), ("together", lambda number: str(number // 4))):
        monkeypatch.setattr(evaluation, "_play", lambda *_, **__: played(cluster))  # noqa: B023
        metrics = evaluation.evaluate(None, None, options, tmp_path / name, "before", Accelerator())
        widths.append({key: np.ptp(metrics["ci95"][key]) for key in ("accuracy", CONTRAST, "accuracy_without")})
        assert summarize(read_trajectories(tmp_path / name))["accuracy"] == metrics["accuracy"] == 0.5
    assert all(widths[1][key] > 1.5 * width for key, width in widths[0].items())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_stops(number, capsys):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        assert not interrupt.asked
        os.kill(os.getpid(), number)
        assert interrupt.asked and "press Ctrl-C again" in capsys.readouterr().err
        os.kill(os.getpid(), number)
        pytest.fail("the second signal did not stop")
    assert signal.getsignal(number) is before


def test_an_evaluation_keeps_no_pixels_of_episodes_that_have_ended(policy, env_options, tmp_path, monkeypatch):
    """Those of all episodes may not fit: the records are all that is written."""
    blocks, most, process = weakref.WeakSet(), [], policy.processor.image

    def noting(image: Any) -> Any:
        gc.collect()
        most.append(len(blocks))
        blocks.add(block := process(image))
        return block

    monkeypatch.setattr(policy.processor, "image", noting)
    options = TrainOptions(
        env=env_options, eval=HeldOutOptions(episodes=6), engine_batch=1, max_tokens=8, max_length=4096, workers=1
    )
    engine = HFEngine(policy.model, policy.processor, seed=1)
    evaluation.evaluate(engine, policy.processor, options, tmp_path / "eval", "before", Accelerator())
    assert len(read_trajectories(tmp_path / "eval")) == 6 and len(most) >= 6
    assert max(most) <= 4, "those of the episode under way, and prompts of the newest tasks"
