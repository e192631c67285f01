"""The cold start on recorded episodes: what `codev data replay` made of published trajectories."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from accelerate import Accelerator
from demonstration_rows import CROP, mixed_rows, thyme_row, thyme_set
from micro_run import TOY_OPTIONS

from codev_agents import Oracle, run_episode
from codev_env.dialects.codev import CodeVDialect
from codev_env.errors import ConfigError, TrajectoryError
from codev_env.trajectory import ImageFiles, read_trajectories, write_trajectories
from codev_eval.data.demonstrations import ReplayOptions, ReplayRun
from codev_train.run.environments import make_env
from codev_train.run.monitor import Monitor
from codev_train.run.options import EnvOptions, OptimizerOptions, SFTOptions, StageOptions
from codev_train.sft import cold_start as sft
from codev_train.sft.examples import ExampleMaker, StageData, read_recorded

pytest.importorskip("cv2", reason="the recorded programs crop with cv2")

IMITATE = StageOptions(steps=3, experts=4, optimizer=OptimizerOptions(lr=1e-3))


@pytest.fixture(scope="module", params=["thyme", "codev"])
def options(request, tmp_path_factory) -> SFTOptions:
    """Episodes with one and with two images, without any, and with a failed program."""
    folder = tmp_path_factory.mktemp(request.param)
    no_image = thyme_row(("print(6 * 7)", "42"), images=[], question="What is 6 times 7?")
    two_turns = thyme_row((CROP, "<image>"), ("print(1 / 0)", "ZeroDivisionError: division by zero"))
    demos = thyme_set(folder, *mixed_rows(), no_image, two_turns)
    with ReplayRun(demos, folder / "replayed", ReplayOptions(dialect=request.param)) as run:
        assert run.run(workers=2)["kept"] == 9
    env = EnvOptions(scenes="toy", max_turns=2, dialect=request.param)
    return SFTOptions(
        env=env, toy=TOY_OPTIONS, pool=2, micro_batch=1, trajectories=str(folder / "replayed"), imitate=IMITATE
    )


@pytest.fixture
def maker(options, policy) -> ExampleMaker:
    env = make_env(options.env, "train")
    return ExampleMaker(options, policy.processor, (env, env), read_recorded(options))


def test_the_loss_is_on_what_the_model_wrote(maker):
    for trajectory in maker.recorded:
        example = maker.imitated(trajectory)
        learned = [i for i, weight in zip(example.ids, example.weights, strict=True) if weight > 0]
        assert maker.processor.decode(learned) == "".join(turn.action for turn in trajectory.turns)
        shown = len(trajectory.images) + sum(len(turn.images) for turn in trajectory.turns)
        assert len(example.images) == shown


def test_every_episode_is_learned_once_per_pass_whatever_the_pool(maker, options):
    stage = dataclasses.replace(options.imitate, steps=6, experts=3)
    batches = list(StageData(lambda: maker, stage, options.pool, (0, 1, 0)))
    seen = [tuple(example.ids) for batch in batches for example in batch]
    known = Counter(tuple(maker.imitated(trajectory).ids) for trajectory in maker.recorded)
    assert Counter(seen[:9]) == Counter(seen[9:]) == known
    again = [tuple(e.ids) for batch in StageData(lambda: maker, stage, 2, (0, 1, 0)) for e in batch]
    assert again == seen and seen[:9] != seen[9:]


def test_images_stay_in_their_files(maker):
    assert all(isinstance(t.images, ImageFiles) for t in maker.recorded)
    assert all(isinstance(turn.images, ImageFiles) for t in maker.recorded for turn in t.turns)
    example = maker.imitated(maker.recorded[0])
    assert example.images[0] is not maker.imitated(maker.recorded[0]).images[0], "nothing decoded is kept"


def test_a_cold_start_learns_from_them(options, tmp_path, monkeypatch):
    losses: list[float] = []
    monkeypatch.setattr(Monitor, "scalars", lambda self, row, step: losses.append(row["sft/imitate/loss"]))
    sft.cold_start(options, Monitor(tmp_path, False), Accelerator(mixed_precision="no"))
    assert len(losses) == 3 and np.isfinite(losses).all() and losses[-1] < losses[0]


@pytest.mark.parametrize(("until", "steps"), [(1e9, 3), (1e-9, 8)])
def test_a_stage_goes_on_at_the_last_rate_until_its_loss_is_low(options, tmp_path, monkeypatch, capsys, until, steps):
    seen: list[int] = []
    monkeypatch.setattr(Monitor, "scalars", lambda self, row, step: seen.append(step))
    rates = []
    monkeypatch.setattr(sft, "set_learning_rate", lambda optimizer, rate: rates.append(rate))
    schedule = OptimizerOptions(lr=1e-3, decay=0.5, final=0.5)
    stage = dataclasses.replace(options.imitate, until=until, more=5, optimizer=schedule)
    sft.cold_start(dataclasses.replace(options, imitate=stage), Monitor(tmp_path, False), Accelerator())
    assert seen == list(range(steps))
    assert rates[3:] == [5e-4] * (steps - 3)
    assert ("after 8 steps, above imitate.until" in capsys.readouterr().err) == (steps == 8)


@pytest.mark.parametrize(
    ("given", "told"),
    [({"until": 0.1}, "together"), ({"more": 9}, "together"), ({"until": 0.1, "more": 9}, "optimizer.final")],
)
def test_further_steps_that_could_not_be_made_are_refused(given, told):
    with pytest.raises(ValueError, match=told):
        StageOptions(steps=9, optimizer=OptimizerOptions(decay=0.5), **given)


def test_what_cannot_be_learned_from_is_told_before_anything_runs(options, tmp_path):
    def told(**changes) -> None:
        sft.cold_start(dataclasses.replace(options, **changes), Monitor(tmp_path, False), Accelerator())

    with pytest.raises(ConfigError, match="in the dialect .* but env.dialect is 'deepeyes'"):
        told(env=dataclasses.replace(options.env, dialect="deepeyes"))
    recorded = read_trajectories(options.trajectories)
    write_trajectories(tmp_path / "test", [dataclasses.replace(recorded[0], split="test")])
    with pytest.raises(ConfigError, match="holds episodes of the test split"):
        told(trajectories=str(tmp_path / "test"))
    write_trajectories(tmp_path / "none", [])
    with pytest.raises(ConfigError, match="holds no episodes"):
        told(trajectories=str(tmp_path / "none"))


def test_episodes_that_are_too_long_are_left_out_whole_and_counted(options, tmp_path, monkeypatch, capsys):
    lengths: list[set[int]] = []

    def note(module, processor, examples, *rest) -> float:
        lengths.append({len(example.ids) for example in examples})
        return 1.0

    monkeypatch.setattr(sft, "accumulate", note)
    monkeypatch.setattr(Accelerator, "clip_grad_norm_", lambda *given: 1.0)
    stage = dataclasses.replace(options.imitate, steps=9)

    def learn(longest: int) -> set[int]:
        lengths.clear()
        limited = dataclasses.replace(options, imitate=stage, max_length=longest)
        sft.cold_start(limited, Monitor(tmp_path, False), Accelerator())
        return set().union(*lengths)

    everything = sorted(learn(32768))
    assert "max-length" not in capsys.readouterr().err
    assert learn(everything[-1] - 1) == set(everything[:-1])
    assert f"1 example has more tokens than --max-length {everything[-1] - 1}" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"all 9 episodes .* more tokens than --max-length 5") as caught:
        learn(5)
    assert "Traceback" not in str(caught.value)


def test_examples_made_from_scenes_are_replaced_where_they_are_too_long(policy, options):
    experts = dataclasses.replace(options, trajectories="")
    env = make_env(options.env, "train")
    stage = StageOptions(steps=4, captions=2, reads=2, experts=4, decorative=2)

    def lengths(longest: int) -> list[list[int]]:
        maker = ExampleMaker(dataclasses.replace(experts, max_length=longest), policy.processor, (env, env))
        return [[len(e.ids) for e in batch] for batch in StageData(lambda: maker, stage, 16, (0, 1, 0))]

    all_of_them = lengths(32768)
    longest = max(max(batch) for batch in all_of_them) - 1
    shorter = lengths(longest)
    assert max(map(max, shorter)) <= longest
    assert [len(batch) for batch in shorter] == [len(batch) for batch in all_of_them]


def test_what_interrupts_a_cold_start_finds_its_bar_closed(options, tmp_path, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Monitor, "scalars", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        sft.cold_start(options, Monitor(tmp_path, False), Accelerator())
    assert caught.tb and capsys.readouterr().err.endswith("\n"), "messages begin on a line of their own"


def test_an_error_of_the_process_that_makes_the_data_is_told_without_its_traceback(options, tmp_path):
    recorded = read_trajectories(options.trajectories)
    write_trajectories(tmp_path / "torn", recorded)
    for image in (tmp_path / "torn").rglob("*.png"):
        image.unlink()
    torn = dataclasses.replace(options, trajectories=str(tmp_path / "torn"))
    with pytest.raises(TrajectoryError) as caught:
        sft.cold_start(torn, Monitor(tmp_path, False), Accelerator())
    assert "Traceback" not in str(caught.value) and "DataLoader" not in str(caught.value)


class Own(CodeVDialect):
    """A dialect of a user's own, which has a name and the path by which it is given."""

    name = "own"


def test_episodes_in_a_dialect_of_the_users_own_are_taken(tmp_path):
    env = EnvOptions(scenes="tiny", dialect=f"{__name__}:Own")
    write_trajectories(tmp_path, [run_episode(make_env(env, "train"), Oracle(), options={"index": 0})])
    (found,) = read_recorded(SFTOptions(env=env, trajectories=str(tmp_path)))
    assert found.dialect == "own"
    with pytest.raises(ConfigError, match="in the dialect 'own', but env.dialect is 'codev'"):
        read_recorded(SFTOptions(trajectories=str(tmp_path)))


@pytest.mark.parametrize("scenes", ["pair", "video"])
def test_episodes_need_a_place_for_each_image(tmp_path, scenes):
    env = EnvOptions(scenes=scenes)
    episode = run_episode(make_env(env, "train"), Oracle(), options={"index": 0})
    lost = dataclasses.replace(episode.turns[0], observation="Nothing to see.")
    options = SFTOptions(env=env, trajectories=str(tmp_path / "right"))
    write_trajectories(options.trajectories, [episode])
    assert len(read_recorded(options)) == 1
    for name, wrong in (("prompt", {"prompt": "Which?"}), ("turn", {"turns": (lost, *episode.turns[1:])})):
        write_trajectories(tmp_path / name, [dataclasses.replace(episode, **wrong)])
        with pytest.raises(ConfigError, match=f"{episode.task_id}.*<image> for each"):
            read_recorded(dataclasses.replace(options, trajectories=str(tmp_path / name)))
