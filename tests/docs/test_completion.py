"""`codev completion`: the words that the scripts offer, in a real bash."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from codev_env.app import cli
from codev_env.app.completion import OPTIONS, SHELLS, bash, completions, fish, option_values, zsh


@pytest.fixture(scope="module")
def words() -> dict[str, list[str]]:
    return completions()


def test_every_command_and_subcommand_is_offered(words):
    assert set(cli.COMMANDS) <= set(words[""])
    assert set(OPTIONS) <= set(words)
    assert words["data"][:4] == ["show", "check", "replay", "filter"] and "compare" in words["eval"]


def test_options_are_offered_and_positional_arguments_are_not(words):
    assert {"--preset", "--env.max-turns", "--optimizer.lr"} <= set(words["train"])
    assert {"--bench", "--data", "--help"} <= set(words["eval"])
    assert "--json" in words["doctor"] and "--bench" in words["play"]
    assert "--folder" not in words["report"] and "--port" in words["view"]


def test_options_of_missing_packages_are_omitted(monkeypatch):
    def no_package(target):
        if target.startswith("codev_train."):
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return real(target)

    real = cli.load
    monkeypatch.setattr(cli, "load", no_package)
    found = completions()
    assert "--bench" in found["eval"] and found["sft"] == ["--preset", "--config", "--help"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["tra"], {"train"}),
        (["eval", "com"], {"compare"}),
        (["eval", "compare", "a", "b", "--comm"], {"--common"}),
        (["--debug", "vie"], {"view"}),
        (["train", "--env.max"], {"--env.max-turns"}),
        (["train", "--preset", "tiny", "--env.max"], {"--env.max-turns"}),
        (["completion", "z"], {"zsh"}),
        (["train", "--preset", "ti"], {"tiny"}),
        (["train", "--reward", "tapo-r"], {"tapo-released"}),
        (["play", "--scenes", "vstar-"], {"vstar-4k"}),
        (["eval", "--bench", "hrb"], {"hrbench4k", "hrbench8k"}),
        (["train", "--engine", "vllm-"], {"vllm-server"}),
        (["eval", "--data", "x"], set()),
        (["play", "no-such"], set()),
    ],
)
def test_bash_completes(words, typed, offered):
    line = " ".join(["codev", *typed])
    program = f'{bash(words)}\nCOMP_WORDS=({line}); COMP_CWORD={len(typed)}; _codev; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered and not done.stderr


def test_the_other_scripts_offer_the_same(words):
    assert bash(words) in zsh(words) and "bashcompinit" in zsh(words)
    lines = fish(words).splitlines()[1:]
    assert len(lines) == sum(map(len, words.values()))
    assert 'complete -c codev -n "__fish_use_subcommand" -f -a train' in lines
    seen = "__fish_seen_subcommand_from eval; and __fish_seen_subcommand_from compare"
    assert f'complete -c codev -n "{seen}" -l common' in lines


def test_the_command_prints_it_and_refuses_other_shells(capsys, monkeypatch, words):
    monkeypatch.setattr("codev_env.app.completion.completions", lambda: words)
    for shell in SHELLS:
        assert cli.main(["completion", shell]) == 0
        assert "codev" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["completion", "csh"])


NEW = '""'
"""A word that is begun but empty, as where Tab is pressed after a space."""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["train", "--loss", NEW], {"grpo", "dapo", "dr_grpo", "gspo", "cispo"}),
        (["train", "--loss", "gspo", "--see"], {"--seed"}),
        (["train", "--name", NEW], set()),
        (["train", "--resume", "ru"], {"runs"}),
        (["eval", "--data", NEW], {"synthetic", "hub", "auto", "runs", "rows.jsonl"}),
        (["eval", "--data", "ru"], {"runs"}),
        (["eval", "--perturb", NEW], {"mask", "noise", "other", "empty"}),
        (["eval", "--perturb", "mask", "no"], {"noise"}),
        (["eval", "--perturb", "mask", "--dua"], {"--dual"}),
        (["eval", "--bench", "vstar", "hrbench4"], {"hrbench4k"}),
        (["eval", "compare", NEW], set()),
        (["view", NEW], set()),
        (["view", "--po"], {"--port"}),
        (["play", "--index", NEW], set()),
        (["data", "replay", "--format", NEW], {"thyme", "codevision"}),
        (["study", "tapo", "--methods", "evi"], {"evidence", "evidence-turn"}),
        (["rewards", "redteam", "--cheats", "comment-o"], {"comment-only"}),
    ],
)
def test_bash_completes_values_and_files(words, typed, offered, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "rows.jsonl").touch()
    line = " ".join(["codev", *typed])
    program = f'{bash(words)}\nCOMP_WORDS=({line}); COMP_CWORD={len(typed)}; _codev; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    # An empty answer lets the shell complete files.
    assert set(done.stdout.split()) == offered and not done.stderr


def test_fish_offers_values(words):
    lines = fish(words).splitlines()
    seen = "__fish_seen_subcommand_from train"
    assert f'complete -c codev -n "{seen}" -l loss -x -a "grpo dapo dr_grpo gspo cispo"' in lines
    assert f'complete -c codev -n "{seen}" -l name -x' in lines
    evaluated = "__fish_seen_subcommand_from eval"
    assert f'complete -c codev -n "{evaluated}" -l data -r -a "synthetic hub auto"' in lines
    assert f'complete -c codev -n "{evaluated}" -l perturb -x -a "mask noise other empty"' in lines


def test_names_that_are_not_read_from_their_registries_are_the_same():
    pytest.importorskip("torch")
    from codev_train.learn.credit import CREDITS
    from codev_train.learn.curriculum import CURRICULA
    from codev_train.learn.loss import LOSSES

    known = option_values()
    for flag, registry in (("--loss", LOSSES), ("--credit", CREDITS), ("--curriculum", CURRICULA)):
        assert set(known[flag]) == set(registry)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "split", "offered"),
    [
        ("train --preset=ti", ["train", "--preset", "=", "ti"], {"tiny"}),
        ("train --loss=", ["train", "--loss", "="], {"grpo", "dapo", "dr_grpo", "gspo", "cispo"}),
        ("train --env.id codev_env:CodeV-VS", ["train", "--env.id", "codev_env", ":", "CodeV-VS"], {"CodeV-VStar-v0"}),
        ("eval --model scripted:o", ["eval", "--model", "scripted", ":", "o"], {"oracle"}),
        ("eval --model scripted:oracle --dua", ["eval", "--model", "scripted", ":", "oracle", "--dua"], {"--dual"}),
    ],
)
def test_bash_completes_words_that_it_splits(words, line, split, offered):
    """At `=` and `:`, which are in COMP_WORDBREAKS; what follows the sign replaces the last part."""
    program = f"{bash(words)}\nCOMP_LINE='codev {line}'; COMP_WORDS=(codev {' '.join(split)}); "
    program += f'COMP_CWORD={len(split)}; _codev; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered and not done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_shells_that_split_nothing_get_whole_words(words):
    program = f"{bash(words)}\nCOMP_WORDBREAKS=' '; COMP_WORDS=(codev train --preset=ti); COMP_CWORD=2; _codev; "
    done = subprocess.run(["bash", "-c", program + 'echo "${COMPREPLY[@]}"'], capture_output=True, text=True)
    assert done.stdout == "--preset=tiny\n"


def test_scripted_agents_are_offered_where_they_are_taken(words):
    lines = fish(words).splitlines()
    offered = [line for line in lines if "scripted:oracle scripted:random" in line]
    assert ["eval" in offered[0], " -l model " in offered[0]] == [True, True] and " -l agent " in offered[1]
    assert len(offered) == 2


def test_the_help_with_all_options_is_offered_where_there_is_one(words):
    for path, more in (("train", True), ("eval", True), ("play", False), ("doctor", False)):
        (case,) = (line for line in bash(words).splitlines() if line.startswith(f'        "{path}" | '))
        assert ("--help-all" in case) == more
        seen = f'complete -c codev -n "__fish_seen_subcommand_from {path}" -l help'
        assert (f"{seen} -l help-all" in fish(words).splitlines()) == more


def test_the_trackers_are_those_of_accelerate():
    tracking = pytest.importorskip("accelerate.tracking")
    assert set(option_values()["--trackers"]) == set(tracking.LOGGER_TYPE_TO_CLASS) - {"tensorboard"}
