"""Experiment trackers beside TensorBoard: what they get, what they continue, and that none of them ends a run."""

from __future__ import annotations

import dataclasses
import json
import sys
from types import SimpleNamespace

import pytest
from accelerate import PartialState, tracking

from codev_agents import Oracle, run_episode
from codev_env.app.cli import main
from codev_env.errors import ConfigError
from codev_train.run.environments import make_env
from codev_train.run.monitor import Monitor
from codev_train.run.options import TrainOptions
from codev_train.run.trackers import RunTracker, tracker_checks


class Recorder(tracking.GeneralTracker):
    """A tracker that keeps what it gets; `refused` names the methods that fail."""

    name = "recorder"
    requires_logging_directory = False
    refused: tuple[str, ...] = ()
    made: list[Recorder]

    def __init__(self, project, **given):
        super().__init__()
        self.project, self.given, self.calls = project, given, []
        self.made.append(self)

    def _call(self, method, *values):
        self.calls.append((method, *values))
        if method in self.refused:
            raise OSError("no route to the tracker\nmore")

    @property
    def tracker(self):
        return SimpleNamespace(id=self.given.get("id", "abc123"), name="glasses-1", info=SimpleNamespace(run_id="r1"))

    def start(self):
        self._call("start")

    def store_init_configuration(self, values):
        self._call("configuration", values)

    def log(self, values, step=None):
        self._call("log", values, step)

    def finish(self):
        self._call("finish")

    def named(self, method):
        return [rest for name, *rest in self.calls if name == method]


class Showing(Recorder):
    """One that also takes images and tables."""

    def log_images(self, values, step=None):
        self._call("images", values, step)

    def log_table(self, table_name, columns=None, data=None, dataframe=None, step=None):
        self._call("table", table_name, columns, data, step)


@pytest.fixture
def known(monkeypatch):
    """Gives a class a name that Accelerate knows."""

    def make(kind=Recorder, name="recorder", refused=()):
        made = []
        monkeypatch.setitem(
            tracking.LOGGER_TYPE_TO_CLASS, name, type(name, (kind,), {"made": made, "refused": refused})
        )
        return made

    return make


def begin(folder, *names, start=0, **options) -> Monitor:
    folder.mkdir(exist_ok=True)
    options = TrainOptions(trackers=names, **options)
    return Monitor(folder, start=start, trackers=[RunTracker(name, folder, options) for name in names])


@pytest.fixture(scope="module")
def episode(env_options):
    return run_episode(make_env(env_options, "train"), Oracle(margin=0.0, snap=112), options={"index": 3})


def test_a_tracker_gets_numbers_images_and_transcripts(tmp_path, known, episode):
    made = known(Showing)
    monitor = begin(tmp_path / "run", "recorder", tracker_project="glasses", seed=7)
    monitor.update({"reward": 0.5, "bad": float("nan")}, 1)
    monitor.episodes([episode], 1)
    monitor.scalars({"eval/accuracy": 1.0}, 2)
    monitor.close()
    (tracker,) = made
    assert tracker.project == "glasses" and [call[0] for call in tracker.calls][-1] == "finish"
    assert tracker.named("log") == [[{"reward": 0.5}, 1], [{"eval/accuracy": 1.0}, 2]]
    ((configuration,),) = tracker.named("configuration")
    assert configuration["seed"] == 7 and configuration["env.id"] == "codev_env:CodeV-VStar-v0"
    assert {type(value) for value in configuration.values()} <= {bool, int, float, str}
    (((name, (image,)),), step) = [(tuple(v.items()), s) for v, s in tracker.named("images")][0]
    assert (name, step) == ("episodes", 1) and image.shape[0] == 336
    ((_, columns, ((number, text),), step),) = tracker.named("table")
    assert columns == ["episode", "transcript"] and (number, step) == (0, 1) and episode.question in text


def test_a_tracker_without_images_gets_numbers_alone(tmp_path, known, episode, capsys):
    (made,) = [known()]
    monitor = begin(tmp_path / "run", "recorder")
    monitor.episodes([episode], 1)
    monitor.close()
    assert [call[0] for call in made[0].calls] == ["start", "configuration", "finish"]
    assert not capsys.readouterr().err


def test_a_resumed_run_continues_the_run_of_its_tracker(tmp_path, known):
    made = known(name="wandb")
    for start in (0, 5):
        begin(tmp_path / "run", "wandb", start=start).close()
    begin(tmp_path / "other", "wandb").close()
    first, again, other = (tracker.given for tracker in made)
    assert "id" not in first and again == first | {"id": "abc123", "resume": "allow"} and "id" not in other
    assert [len(tracker.named("configuration")) for tracker in made] == [1, 0, 1]
    assert json.loads((tmp_path / "run" / "trackers.json").read_text()) == {"wandb": "abc123"}


@pytest.mark.parametrize("method", ["start", "configuration", "log", "images", "table", "finish"])
def test_a_tracker_that_fails_is_reported_once_and_the_others_go_on(method, tmp_path, known, episode, capsys):
    broken, whole = known(Showing, "broken", (method,)), known(Showing, "whole")
    monitor = begin(tmp_path / "run", "broken", "whole")
    for step in (1, 2):
        monitor.update({"reward": 0.5}, step)
        monitor.episodes([episode], step)
    monitor.close()
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("tracker broken: ") and "no route to the tracker" in err
    assert len(broken[0].named(method)) == 1
    assert len(whole[0].named("log")) == 2 and len(whole[0].named("images")) == 2 and len(monitor.history()) == 2


def test_other_processes_track_nothing(tmp_path, known):
    made = known()
    tracker = RunTracker("recorder", tmp_path, TrainOptions())
    monitor = Monitor(tmp_path / "run", active=False, trackers=[tracker])
    monitor.update({"reward": 1.0}, 1)
    monitor.close()
    assert not made[0].named("log")


def test_unknown_and_missing_trackers(known, monkeypatch):
    known()
    assert [check.status for check in tracker_checks(["recorder"])] == ["ok"]
    for name in ("wandbb", "tensorboard"):
        with pytest.raises(ConfigError, match=f"tracker .--trackers. '{name}'.*Known: aim, .*mlflow.*recorder.*wandb"):
            list(tracker_checks([name]))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (check,) = tracker_checks(["wandb"])
    assert (check.status, check.advice) == ("fail", "pip install wandb") and "not installed" in check.detail


def test_a_run_with_an_unknown_tracker_does_not_start(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--preset", "smoke", "--trackers", "wandbb"]) == 1
    assert "Did you mean 'wandb'?" in capsys.readouterr().err and not list(tmp_path.iterdir())


class Image:
    """What `trackio.Image` and `trackio.Markdown` are made of."""

    def __init__(self, value, caption=None):
        self.value, self.caption = value, caption


def test_wandb_gets_a_table_with_image_and_transcript_of_each_episode(tmp_path, known, episode, monkeypatch):
    table = lambda columns, data: SimpleNamespace(columns=columns, data=data)  # noqa: E731
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Image=Image, Table=table))
    (made,) = [known(Showing, name="wandb")]
    monitor = begin(tmp_path / "run", "wandb")
    monitor.episodes([episode, episode], 3)
    monitor.close()
    ((values, step),) = made[0].named("log")
    assert step == 3 and not made[0].named("images") and not made[0].named("table")
    assert [image.value.shape[0] for image in values["episodes"]] == [336, 336]
    assert values["transcripts"].columns == ["episode", "image", "transcript"]
    (number, image, text) = values["transcripts"].data[1]
    assert (number, image) == (1, values["episodes"][1]) and episode.question in text


def test_trackio_gets_images_with_their_transcripts(tmp_path, known, episode, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(Image=Image, Markdown=Image))
    (made,) = [known(name="trackio")]
    monitor = begin(tmp_path / "run", "trackio")
    monitor.episodes([episode, episode], 3)
    monitor.close()
    ((values, step),) = made[0].named("log")
    assert step == 3 and list(values) == ["episodes/0", "transcripts/0", "episodes/1", "transcripts/1"]
    assert values["episodes/1"].value.shape[0] == 336 and episode.question in values["transcripts/1"].value


def test_trackio_gets_each_line_of_a_transcript_as_a_paragraph(tmp_path, known, episode, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(Image=Image, Markdown=Image))
    (made,) = [known(name="trackio")]
    monitor = begin(tmp_path / "run", "trackio")
    program = dataclasses.replace(episode.turns[0], action="<code>\nfor x in (1, 2):\n    show(image)\n</code>")
    monitor.episodes([dataclasses.replace(episode, turns=(program,))], 3)
    monitor.close()
    ((values, _),) = made[0].named("log")
    text = values["transcripts/0"].value
    shown = "<code>\n\nfor x in (1, 2):\n\n" + 4 * "\N{NO-BREAK SPACE}" + "show(image)\n\n</code>"
    assert shown in text and "`" not in text and "\n\n\n" not in text


def test_mlflow_gets_images_and_transcripts(tmp_path, known, episode, monkeypatch):
    calls = []
    fake = SimpleNamespace(
        log_image=lambda image, key, step: calls.append((image.shape[0], key, step)),
        log_text=lambda text, artifact_file: calls.append((episode.question in text, artifact_file)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    known(name="mlflow")
    monitor = begin(tmp_path / "run", "mlflow")
    monitor.episodes([episode], 3)
    monitor.close()
    assert calls == [(336, "episodes/0", 3), (True, "transcripts/step-000003-0.md")]


FILES = {"wandb": ("run/wandb", "*.png"), "trackio": ("trackio", "*.png"), "mlflow": ("mlflow", "*/images/*.png")}
"""Where each tracker keeps images when it is offline."""


@pytest.mark.integration
@pytest.mark.parametrize("name", FILES)
def test_a_tracker_offline(name, tmp_path, monkeypatch, episode, capsys):
    for variable, value in (
        ("WANDB_MODE", "offline"),
        ("WANDB_SILENT", "true"),
        ("TRACKIO_DIR", str(tmp_path / "trackio")),
        ("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'mlflow'}"),
        ("MLFLOW_ALLOW_FILE_STORE", "true"),
    ):
        monkeypatch.setenv(variable, value)
    pytest.importorskip(name, exc_type=ImportError)
    PartialState()  # Accelerate's own trackers ask it whether this is the main process.
    for start in (0, 1):
        monitor = begin(tmp_path / "run", name, start=start)
        monitor.update({"reward": 0.5}, start + 1)
        monitor.episodes([episode], start + 1)
        monitor.close()
    (saved,) = json.loads((tmp_path / "run" / "trackers.json").read_text()).values()
    folder, pattern = FILES[name]
    assert len(list((tmp_path / folder).rglob(pattern))) >= 2 and "tracker" not in capsys.readouterr().err
    if name == "wandb":
        assert all(path.name.endswith(saved) for path in (tmp_path / folder).glob("offline-run-*"))
