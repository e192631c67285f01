"""The work of a study: what is done is not done again, what failed is told, and the whole of it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codev_env.app.cli import main
from codev_eval.study.jobs import Job, JobFailed, Run, Runner, StudySize, jobs_of
from codev_eval.study.methods import METHODS, SETTINGS, Setting, Start

BASE, TAPO, TURN = SETTINGS[0], METHODS[1], next(row for row in METHODS if row.name == "tapo-turn")
SCALE = StudySize("smoke", 0, 2, 4, 2, 24)
SMALL = [
    "--preset",
    "smoke",
    "--episodes",
    "4",
    "--seeds",
    "0",
    "--jobs",
    "1",
    "--steps",
    "0",
    "--minibatches",
    "2",
    "--max-tokens",
    "24",
]


def jobs(out: Path, *runs: Run) -> list[Job]:
    starts: dict[str, Job] = {}
    return [job for run in runs for job in jobs_of(out, run, SCALE, starts)]


def test_methods_of_a_seed_share_its_start(tmp_path):
    made = jobs(tmp_path, Run(BASE, 1, None), Run(BASE, 1, TAPO), Run(BASE, 1, TURN), Run(BASE, 2, TAPO))
    assert [job.name for job in made] == [
        "start taught seed 1",
        "base seed 1: before, evaluated",
        "base seed 1: before, no-cue",
        "base seed 1: tapo",
        "base seed 1: tapo, evaluated",
        "base seed 1: tapo, no-cue",
        "base seed 1: tapo-turn",
        "base seed 1: tapo-turn, evaluated",
        "base seed 1: tapo-turn, no-cue",
        "start taught seed 2",
        "base seed 2: tapo",
        "base seed 2: tapo, evaluated",
        "base seed 2: tapo, no-cue",
    ]
    assert made[3].after == [made[0]] == made[6].after and made[5].after == [made[3]]


def test_options_of_the_setting_and_the_method_reach_the_commands(tmp_path):
    setting = Setting("far", "", Start("few", {"pool": 8}), {"env.scene": {"cue_p": 0.5}}, {"preset": "tiny"})
    start, train, _, no_cue = jobs(tmp_path, Run(setting, 3, TURN))
    assert start.command()[-2:] == ["--pool", "8"] and "3" in start.command()
    begun = " ".join(train.command())
    assert "--env.scene cue_p 0.5 --reward tapo --credit turn" in begun and "--seed 3" in begun
    assert json.loads(no_cue.command()[no_cue.command().index("--scenes") + 1]) == {"preset": "tiny", "cue_p": 0.0}
    (tmp_path / "far" / "seed3" / "tapo-turn").mkdir(parents=True)
    (tmp_path / "far" / "seed3" / "tapo-turn" / "options.yaml").write_text("")
    assert train.command() == ["train", "--resume", str(tmp_path / "far" / "seed3" / "tapo-turn")]


def test_jobs_wait_for_what_they_need_and_are_left_out_where_it_failed(tmp_path):
    made: list[str] = []

    def job(name: str, words: list[str], *after: Job) -> Job:
        def command() -> list[str]:
            made.append(name)
            return words

        return Job(name, command, lambda: name == "old", tmp_path / f"{name}.log", after)

    old = job("old", ["--version"])
    first = job("first", ["--version"], old)
    bad = job("bad", ["rewards", "nonsense"])
    told: list[str] = []
    failed = Runner(2, told.append).run([bad, job("after", ["--version"], first), job("never", [], bad), first, old])
    assert made.index("first") < made.index("after") and not {"old", "never"} & set(made)
    assert [failure.job.name for failure in failed] == ["bad", "never"]
    assert "nonsense" in failed[0].said and "not begun" in failed[1].said
    assert sorted(told) == ["[1/4] bad: FAILED", *told[1:]] or any("bad: FAILED" in line for line in told)
    assert (tmp_path / "first.log").read_text().startswith("codev")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name of the study is missing"),
        (["tapir"], "study 'tapir'"),
        (["tapo", "--seeds", "1", "1"], "each once"),
        (["tapo", "--jobs", "0"], "--jobs is 0; it must be at least 1"),
        (["tapo", "--methods", "tapas"], "method 'tapas'"),
        (["tapo", "--preset", "tapas"], "preset 'tapas'"),
        (["tapo", "--report", "--out", "nowhere"], "holds no finished run"),
    ],
)
def test_what_cannot_be_used_is_told(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["study", *words]) in (1, 2)
    assert said in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_first_jobs_that_failed_by_themselves_are_named(tmp_path, monkeypatch, capsys):
    def run(self: Runner, jobs: list[Job]) -> list[JobFailed]:
        return [JobFailed(job, "no room" if job.name.startswith("start") else "", not job.after) for job in jobs]

    monkeypatch.setattr(Runner, "run", run)
    assert main(["study", "tapo", *SMALL, "--out", str(tmp_path), "--methods", "tapo"]) == 1
    err = capsys.readouterr().err
    assert "start taught seed 0 failed" in err and "no room" in err and "base seed 0: tapo" not in err
    assert "5 more failed or could not begin" in err


@pytest.mark.integration
def test_a_study_from_nothing_with_a_method_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parents[2])
    words = ["study", "tapo", *SMALL, "--out", str(tmp_path), "--methods", "outcome", "examples.my_method:METHOD"]
    assert main(words) == 0
    assert "[9/9]" in capsys.readouterr().out
    numbers = json.loads((tmp_path / "study.json").read_text())["settings"]["base"]["methods"]
    assert set(numbers) == {"start", "outcome", "seen"}
    assert all({"accuracy", "no_cue", "turned"} <= set(row["runs"][0]["values"]) for row in numbers.values())
    text = (tmp_path / "study.md").read_text()
    assert main(words) == 0
    assert "[" not in capsys.readouterr().out and (tmp_path / "study.md").read_text() == text
    assert main([*words, "--steps", "3"]) == 1
    assert "holds a study with --steps 0, not 3" in capsys.readouterr().err
    # Runs from elsewhere appear beside, but never under a start that was not theirs.
    other = json.loads((tmp_path / "study.json").read_text())
    moved = json.dumps(other).replace('"seed": 0', '"seed": 7')
    foreign = json.dumps(other).replace('"start": "', '"start": "0')
    for name, content in (("moved.json", moved), ("foreign.json", foreign)):
        (tmp_path / name).write_text(content)
    assert main([*words, "--report", "--also", str(tmp_path / "moved.json"), str(tmp_path / "study.json")]) == 0
    assert "| outcome | 0, 7 |" in (tmp_path / "study.md").read_text()
    assert main([*words, "--report", "--also", str(tmp_path / "foreign.json")]) == 1
    assert "runs of seed 0 began with other weights" in capsys.readouterr().err
    # What is not done is done, and nothing else.
    (tmp_path / "base" / "seed0" / "seen" / "summary.json").unlink()
    assert main(words) == 0
    assert "[1/1] base seed 0: seen" in capsys.readouterr().out
