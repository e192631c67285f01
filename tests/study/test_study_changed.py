"""Runs of a method that has changed since are not shown as its runs, nor continued."""

from __future__ import annotations

import dataclasses
import json

import pytest
import yaml

from codev_env.app.cli import main
from codev_env.errors import ConfigError
from codev_eval.study import page
from codev_eval.study.claims import claims
from codev_eval.study.jobs import Run, Runner
from codev_eval.study.methods import METHODS, SETTINGS, Method
from codev_eval.study.numbers import NUMBERS, joined, read_numbers
from codev_eval.study.results import Found, Results

BASE = SETTINGS[0]
IMITATION = next(row for row in METHODS if row.name == "imitation")
WRAPPED = Method(
    "wrapped", "of one's own", {"env.wrap": ("crop",), "weights": {"tool": 0.0}, "temperature": 1}, curve=False
)


def found(method: Method, seed: int = 0, **values: float) -> Found:
    return Found(Run(BASE, seed, method), values, {}, 100, 60.0, 0.0, "weights", "a laptop")


def numbers(folder, *methods: Method):
    folder.mkdir(exist_ok=True)
    page.write(folder, Results([found(method, no_cue=0.9) for method in methods]), [BASE], methods, {})
    return folder / NUMBERS


def test_a_study_json_with_other_options_under_the_name_is_refused(tmp_path):
    older = dataclasses.replace(IMITATION, options={**IMITATION.options, "imitation.memory": 60})
    with pytest.raises(ConfigError, match=r"imitation.*imitation\.memory 60, not 0.*another name"):
        read_numbers(numbers(tmp_path, older), SETTINGS, METHODS, {})


def test_a_study_json_is_read_whatever_kinds_of_options_its_methods_have(tmp_path):
    path = numbers(tmp_path, IMITATION, WRAPPED)
    assert len(read_numbers(path, SETTINGS, [*METHODS, WRAPPED], {})) == 2
    record = json.loads(path.read_text())
    del record["settings"]["base"]["methods"]["imitation"]["options"]  # as older files are
    path.write_text(json.dumps(record))
    assert len(read_numbers(path, SETTINGS, [*METHODS, WRAPPED], {})) == 2


def test_the_options_of_a_method_of_another_study_stay_with_its_runs(tmp_path):
    path = numbers(tmp_path, WRAPPED)
    again = joined([], path, read_numbers(path, SETTINGS, METHODS, {}))
    (method,) = [one.run.method for one in again]
    assert method is not None and not method.curve
    path = numbers(tmp_path / "again", method)
    with pytest.raises(ConfigError, match="temperature 1, not 2"):
        read_numbers(path, SETTINGS, [dataclasses.replace(WRAPPED, options={**WRAPPED.options, "temperature": 2})], {})


@pytest.mark.parametrize("report", [False, True])
def test_runs_in_the_folder_with_other_options_are_refused_before_the_first_job(report, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Runner, "run", lambda *_: pytest.fail("a job began"))
    run = tmp_path / "base" / "seed3" / "imitation"
    run.mkdir(parents=True)
    options = {"reward": "tapo", "temperature": 1.2, "imitation": {"answers": 12, "memory": 60}}
    (run / "options.yaml").write_text(yaml.safe_dump({"train": options}))
    words = ["study", "tapo", "--out", str(tmp_path), "--seeds", "4", "--methods", "imitation"]
    assert main([*words, *(["--report"] if report else [])]) == 1
    told = capsys.readouterr().err
    assert "base/seed3/imitation" in told and "imitation.memory 60, not 0" in told and "temperature" not in told


@pytest.mark.parametrize(
    "written",
    [
        yaml.safe_dump({"train": {"reward": "tapo", "temperature": 1.2, "imitation": {"answers": 12, "memory": 0}}}),
        "",
        "train: {reward: [",
    ],
    ids=["same", "empty", "torn"],
)
def test_runs_of_the_same_options_go_on_and_torn_ones_say_so_themselves(written, tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(Runner, "run", lambda self, jobs: begun.extend(jobs) or [])
    run = tmp_path / "base" / "seed3" / "imitation"
    run.mkdir(parents=True)
    (run / "options.yaml").write_text(written)
    main(["study", "tapo", "--out", str(tmp_path), "--seeds", "3", "--methods", "imitation"])
    assert "base seed 3: imitation" in [job.name for job in begun]


def test_the_claims_of_self_imitation_are_made_of_each_version_that_was_run():
    def texts(*methods: Method) -> list[str]:
        return [claim.measured for claim in claims(Results([found(m, no_cue=0.97) for m in methods]), "base")]

    def told(texts: list[str], name: str) -> bool:
        return any(f"cue-free accuracy of {name}: 97.0 %" in text for text in texts)

    for name in ("imitation-gain", "imitation-gain-memory"):
        gone = Method(name, "a version of which only runs are left", IMITATION.options)
        both, alone = texts(IMITATION, gone), texts(gone)
        assert told(both, "imitation") and told(both, name)
        assert told(alone, name) and not any("accuracy of imitation:" in text for text in alone)
