"""Downloads from the hub, and the table of benchmarks that says what is where."""

from __future__ import annotations

import dataclasses
import shutil
import sys

import pytest
from real_data import lettered_row, own_cache, verl_row, write_parquet, write_tsv  # noqa: F401

from codev_env.benches import BENCHES
from codev_env.errors import ConfigError, TaskError
from codev_env.tasks import READERS, SCENES, open_bench
from codev_env.tasks.readers import hub
from codev_env.tasks.readers.vstar import VStarTaskSet
from codev_env.tasks.scenes import SceneTaskSet


@pytest.fixture
def huggingface_hub():
    return pytest.importorskip("huggingface_hub")


def serve(monkeypatch, huggingface_hub, folder):
    """Answer downloads from a local folder."""
    asked = []

    def snapshot_download(repo_id, *, repo_type, revision, allow_patterns, local_dir):
        asked.append((repo_id, repo_type, revision, tuple(allow_patterns), local_dir))
        if local_dir:
            shutil.copytree(folder, local_dir, dirs_exist_ok=True)
        return local_dir or str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_fetch(tmp_path, monkeypatch, huggingface_hub):
    write_parquet(tmp_path / "hub" / "hr_bench_4k.parquet", [lettered_row(i) for i in range(4)])
    asked = serve(monkeypatch, huggingface_hub, tmp_path / "hub")
    assert len(open_bench("hrbench4k", "hub", "test")) == 4
    repo = BENCHES["hrbench4k"].hub
    assert asked == [("DreamMr/HR-Bench", "dataset", repo.revision, repo.patterns, None)]
    assert hub.fetch("hrbench4k", tmp_path / "copy") == tmp_path / "copy"
    assert len(open_bench("hrbench4k", tmp_path / "copy", "test")) == 4


def test_nothing_that_matches(tmp_path, monkeypatch, huggingface_hub):
    (tmp_path / "README.md").write_text("moved")
    serve(monkeypatch, huggingface_hub, tmp_path)
    with pytest.raises(TaskError, match=r"kkwok/MVToolBench at main has no files that match \*\.parquet.*Or put"):
        hub.fetch("mvtool")


def test_no_network(monkeypatch, huggingface_hub):
    def snapshot_download(*args, **options):
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setenv("CODEV_DATA", "/big/disk")
    with pytest.raises(TaskError) as caught:
        hub.fetch("mathvista")
    message = str(caught.value)
    assert "AI4Math/MathVista could not be downloaded (ConnectionError: Name or service not known)" in message
    assert "Or put data/testmini-*.parquet of https://huggingface.co/datasets/AI4Math/MathVista" in message
    assert "/big/disk/MathVista or data/MathVista" in message


def test_offline_mode_of_the_hub(tmp_path, monkeypatch, huggingface_hub):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TaskError, match="DreamMr/HR-Bench could not be downloaded .*Or put hr_bench_8k.parquet"):
        hub.fetch("hrbench8k")


def test_the_package_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"needs huggingface_hub .*pip install 'codev-env\[data\]'.* Or put"):
        hub.fetch("vstar")


def test_unknown_name():
    with pytest.raises(ConfigError, match="unknown data set on the hub 'mathvist'. Did you mean 'mathvista'"):
        hub.fetch("mathvist")


def test_a_benchmark_that_is_not_downloaded_is_told_what_to_give():
    with pytest.raises(ConfigError, match="no data for bench 'dataset', .* Give 'owner/name', for any data set of the"):
        hub.fetch("dataset")
    with pytest.raises(ConfigError, match="no data for bench 'blink', .* Give the path of a copy"):
        hub.fetch("blink")


def test_every_benchmark_but_ones_own_data_is_on_the_hub():
    assert [bench.name for bench in BENCHES.values() if bench.hub is None] == [
        # What they have on the hub could not be read in a public source, or is not all; docs/data.md says so.
        *("visualprobe", "blink", "charxiv", "charxiv-descriptive"),
        "video",
        "dataset",
    ]
    for repo in (bench.hub for bench in BENCHES.values() if bench.hub):
        assert repo.url.endswith(repo.repo_id) and repo.patterns


@pytest.mark.parametrize("name", BENCHES)
def test_every_row_names_a_reader_and_scenes(name):
    bench = BENCHES[name]
    assert bench.reader in READERS and bench.scenes in SCENES
    assert bench.name == name and bench.splits and bench.title
    with pytest.raises(dataclasses.FrozenInstanceError):
        bench.folder = "x"


def test_places(tmp_path, monkeypatch):
    bench = BENCHES["deepeyes"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CODEV_DATA", raising=False)
    assert bench.find() is None
    write_parquet(tmp_path / "data" / bench.folder / "data_0.1.2_visual_toolbox_v2.parquet", [verl_row(0)])
    assert len(open_bench(bench.name, bench.find(), "train")) == 1
    monkeypatch.setenv("CODEV_DATA", str(tmp_path / "big"))
    assert [str(place) for place in bench.places()] == [str(tmp_path / "big" / bench.folder), f"data/{bench.folder}"]
    (tmp_path / "big" / bench.folder).mkdir(parents=True)
    assert bench.find() == tmp_path / "big" / bench.folder
    assert BENCHES["dataset"].places() == ()


def test_two_benchmarks_share_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEV_DATA", str(tmp_path))
    write_tsv(tmp_path / "hr_bench_4k.tsv", [lettered_row(0)])
    (tmp_path / "HR-Bench").mkdir()
    (tmp_path / "hr_bench_4k.tsv").rename(tmp_path / "HR-Bench" / "hr_bench_4k.tsv")
    assert BENCHES["hrbench4k"].find() == tmp_path / "HR-Bench"
    assert BENCHES["hrbench8k"].find() is None


def test_vstar_through_the_table(vstar):
    tasks = open_bench("vstar", vstar, "test", subset="relative_position")
    assert isinstance(tasks, VStarTaskSet) and not isinstance(tasks, SceneTaskSet)
    assert len(tasks) == 1
