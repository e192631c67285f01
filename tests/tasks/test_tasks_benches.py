"""The table of benchmarks is the one place that names them: a new row is known everywhere."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import gymnasium as gym
import pytest
from real_data import lettered_row, own_cache, write_tsv  # noqa: F401

import codev_env
from codev_env.app import cli
from codev_env.benches import BENCHES, Bench, HubFiles, environments
from codev_env.errors import ConfigError, TaskError
from codev_env.registration import env_id_of, register_envs
from codev_env.scoring import aggregate, get_scorer
from codev_env.tasks import READERS, load_tasks, open_bench
from codev_env.tasks.readers import hub

ROOT = Path(__file__).parents[2]


@pytest.fixture
def menus(tmp_path, monkeypatch) -> Path:
    """The data of a benchmark that is one row of the table, and nothing else."""
    row = Bench(
        name="menus",
        title="Menu Bench",
        env_id="CodeV-Menus-v0",
        variants={"CodeV-TurnedMenus-v0": "orientation"},
        splits=("dev", "test"),
        reader="lettered",
        reader_options={"needs_cycle": True},
        categories=("single", "cross"),
        folder="menus",
        files="*menu*",
        hub=HubFiles("someone/menus", ("menus.parquet",)),
        scenes="toy",
        scoring="hrbench",
    )
    monkeypatch.setitem(BENCHES, row.name, row)
    monkeypatch.setenv("CODEV_DATA", str(tmp_path))
    before = dict(gym.registry)
    register_envs()
    yield write_tsv(tmp_path / "menus.tsv", [lettered_row(i) for i in range(8)])
    gym.registry.clear()
    gym.registry.update(before)


def test_a_new_row_is_registered(menus):
    assert env_id_of("menus") == "codev_env:CodeV-Menus-v0"
    assert gym.spec("CodeV-Menus-v0").kwargs == {"bench": "menus"}
    assert gym.spec("CodeV-TurnedMenus-v0").kwargs == {"bench": "menus", "wrap": "orientation"}
    env = gym.make("CodeV-Menus-v0", data=str(menus))
    _, info = env.reset(options={"index": 3})
    assert (info["task_id"], info["source"]) == ("menus-3", "real")
    env.close()
    assert gym.make("CodeV-Menus-v0", data="synthetic").reset(seed=0)[1]["task_id"].startswith("grid-")


def test_a_new_row_is_loaded_and_scored(menus):
    tasks = load_tasks(menus, "test", bench="menus", subset="cross")
    assert (tasks.name, len(tasks), tasks[0].meta["bench"]) == ("menus", 4, "menus")
    with pytest.raises(TaskError, match="Menu Bench has no split 'train', only 'dev', 'test'"):
        load_tasks(menus, "train", bench="menus")
    assert aggregate("menus", [(task, True) for task in tasks])["cycle/cycle_1"] == 1.0
    assert get_scorer("lmms")(tasks[0], "A").correct
    assert "HR-Bench asks an LLM" in get_scorer("official")(tasks[0], "A").why


def test_a_new_row_is_looked_for_in_its_folder_and_on_the_hub(menus, monkeypatch):
    (menus.parent / "menus").mkdir()
    menus.rename(menus.parent / "menus" / "menus.tsv")
    assert len(load_tasks("auto", "dev", bench="menus")) == 8
    asked = []
    monkeypatch.setattr(hub, "download", lambda *args, **options: asked.append(args) or menus.parent / "menus")
    assert len(open_bench("menus", "hub")) == 8
    assert asked == [("someone/menus", ("menus.parquet",))]


def test_a_new_row_is_evaluated(menus, tmp_path, capsys):
    given = [
        "eval",
        "--model",
        "scripted:none",
        "--data",
        str(menus),
        "--bench",
        "menus",
        "--out",
        str(tmp_path / "out"),
    ]
    assert cli.main([*given, "--n", "4"]) == 0
    measured = json.loads((tmp_path / "out" / "metrics.json").read_text())["benches"]
    assert measured["menus"]["n"] == 4 and "cycle/cycle_0" in measured["menus"]["score"]


def test_unknown_names_are_answered_with_the_table(menus):
    with pytest.raises(ConfigError, match="unknown bench 'menu'. Did you mean 'menus'"):
        load_tasks(menus, "test", bench="menu")
    with pytest.raises(ConfigError, match="option of the reader of 'menus' 'needs_cycle'"):
        open_bench("menus", menus, needs_cycle=False)
    for option in ("name", "bench"):
        with pytest.raises(ConfigError, match=f"option of the reader of 'dataset' '{option}'"):
            load_tasks(menus, "test", bench="dataset", reader={option: "x"})


def test_ids_and_their_arguments():
    assert tuple(environments()) == codev_env.ENV_IDS
    assert environments()["CodeV-Corruption-v0"] == {"bench": "vstar", "wrap": "corruption"}
    assert len(set(codev_env.ENV_IDS)) == len(BENCHES) + 2
    assert {bench.reader for bench in BENCHES.values()} == set(READERS)


def test_no_other_file_of_the_packages_lists_benchmarks():
    """One is named as a default or where its own format is read; three are a second table."""
    ids = {env_id for env_id in environments()} | {row.hub.repo_id for row in BENCHES.values() if row.hub}
    names = set(BENCHES) - {"dataset", "mathvista"}  # two words that mean other things too
    for path in (file for room in ("codev_env", "agents", "train", "eval") for file in ROOT.glob(f"{room}/**/*.py")):
        texts = {n.value for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Constant)}
        if path.name not in ("benches.py", "scenes.py"):  # presets of scenes are named after what they stand in for
            assert len(texts & ids) < 2 and len(texts & names) < 3, path


@pytest.mark.parametrize("command", [["eval"], ["data", "show"]])
def test_help_names_the_benchmarks(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for bench in BENCHES.values():
        assert f"`{bench.name}`" in text or bench.splits == ("train",), bench.name


def test_the_page_names_every_row():
    page = (ROOT / "docs" / "data.md").read_text("utf-8")
    for bench in BENCHES.values():
        about = [bench.name, bench.folder, bench.hub.repo_id] if bench.hub else [bench.name]
        assert all(f"`{text}`" in page for text in about), about
