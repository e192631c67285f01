"""Before the first episode: benchmarks that are not on the hub, missing folders, scorers that know no open answers."""

from __future__ import annotations

import pytest

from codev_env.app.options import OptionError, build
from codev_env.benches import BENCHES, suite_of
from codev_env.errors import ConfigError, TaskError
from codev_env.tasks import load_tasks
from codev_eval.bench import options as options_module
from codev_eval.bench.checks import check_scorer
from codev_eval.bench.evaluation import Evaluation
from codev_eval.bench.options import EvalOptions


def options_of(**given: object) -> EvalOptions:
    return build(EvalOptions, {"model": "scripted:none", **given})


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CODEV_DATA", raising=False)


@pytest.mark.parametrize(
    ("suite", "missing"),
    [("zoom", ("visualprobe",)), ("all", ("visualprobe", "blink", "charxiv", "charxiv-descriptive"))],
)
def test_a_suite_names_all_that_cannot_be_downloaded_before_anything_is(suite, missing):
    with pytest.raises(OptionError) as caught:
        options_of(data=["hub"], suite=suite)
    text = str(caught.value)
    assert f"--data hub does not download {', '.join(missing)} (" in text and "docs/data.md" in text
    assert all(f"data/{BENCHES[bench].folder}" in text for bench in missing)
    assert f"--bench {' '.join(bench for bench in suite_of(suite) if bench not in missing)}" in text


def test_what_is_not_on_the_hub_comes_from_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "data" / BENCHES["visualprobe"].folder
    folder.mkdir(parents=True)
    opened = []
    monkeypatch.setattr(options_module, "load_tasks", lambda place, split, **given: opened.append(place))
    chosen = options_of(data=["hub"], suite="zoom")
    for bench in ("vstar", "visualprobe"):
        chosen.load(bench)
    assert opened == ["hub", str(folder.relative_to(tmp_path))]


def test_a_missing_folder_of_several_is_named(tmp_path):
    (tmp_path / "sets").mkdir()
    chosen = options_of(data=["sets"], bench=["treebench", "visualprobe"])
    with pytest.raises(TaskError, match=r"visualprobe is looked for in sets/VisualProbe_Hard\.$"):
        chosen.load("visualprobe")
    with pytest.raises(TaskError) as caught:
        options_of(data=["sets"], bench=["visualprobe"]).load("visualprobe")
    assert "looked for" not in str(caught.value)


class Questions:
    """Tasks of a benchmark without data."""

    name = "questions"

    def __init__(self, tasks, source="real") -> None:
        self.tasks, self.source = tasks, source

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int):
        if self.tasks is None:
            raise TaskError("row 1: the image is broken")
        return self.tasks[index]

    def index_of(self, task_id: str) -> int:
        return self.tasks.index_of(task_id)


def test_a_scorer_that_knows_no_open_answer_is_refused_before_the_first_episode(tmp_path, monkeypatch):
    monkeypatch.setattr(
        EvalOptions, "load", lambda self, bench: Questions(load_tasks("synthetic", "test", bench=bench))
    )
    chosen = options_of(data=["synthetic"], as_="codev-7b", bench=["vstar", "charxiv"], n=1, out=str(tmp_path / "out"))
    with pytest.raises(
        ConfigError, match="--scorer vlmevalkit cannot score charxiv: .*open question.*such as official"
    ):
        Evaluation(chosen)
    assert not (tmp_path / "out").exists()


def test_all_benchmarks_of_a_scorer_are_named_and_a_bad_image_is_no_reason():
    toy, broken = load_tasks("synthetic", "test", scenes="toy", bench="zoombench"), Questions(None)
    check_scorer("official", {"zoombench": Questions(toy), "vstar": broken})
    with pytest.raises(ConfigError, match="cannot score visualprobe, zoombench: "):
        check_scorer("lmms", {"visualprobe": Questions(toy), "zoombench": Questions(toy), "vstar": broken})


def test_generated_scenes_of_another_kind_are_a_warning():
    toy = load_tasks("synthetic", "test", scenes="toy")
    with pytest.warns(RuntimeWarning, match="--scorer vlmevalkit cannot score vstar: "):
        check_scorer("vlmevalkit", {"vstar": toy})
