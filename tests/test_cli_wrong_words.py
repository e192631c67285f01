"""Words that `codev` does not know: one line each, with what may be meant."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Literal

import pytest
from PIL import Image

from codev_env.app import cli, plain

pytest.importorskip("pydantic")


def refused(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """Run a command line that is not one; return its message."""
    try:
        code = cli.main(line.split())
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    assert code == 2 and not out and err.count("\n") == 1, err
    return err.rstrip("\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("doctor --jsn", "codev doctor: unknown option --jsn. Did you mean --json? `codev doctor --help` shows all."),
        ("doctor all", "codev doctor: unexpected argument 'all'; `codev doctor --help` shows the options."),
        ("completion", "codev completion: the following arguments are required: SHELL"),
        ("completion csh", "codev completion: SHELL is csh; it must be 'bash', 'zsh' or 'fish'."),
        ("completion bash --fst", "codev completion: unknown option --fst. `codev completion --help` shows all."),
        ("compare a b", "codev: unknown command 'compare'. Did you mean `codev eval compare`?"),
        ("ping", "codev: unknown command 'ping'. Did you mean `codev judge ping`?"),
        ("--debg eval", "codev: unknown command '--debg'. Did you mean `codev --debug`?"),
        ("evl", "codev: unknown command 'evl'. Did you mean `codev eval`?"),
        ("PLAY --help", "codev: unknown command 'PLAY'. Did you mean `codev play`?"),
        ("help evl", "codev: unknown command 'evl'. Did you mean `codev eval`?"),
    ],
)
def test_a_wrong_word_names_the_near_one(capsys, line, said):
    assert refused(capsys, line).startswith(said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train --prest tiny", "unknown option --prest. Did you mean --preset?"),
        ("train --dry-rn", "unknown option --dry-rn. Did you mean --dry-run?"),
        ("sft --confg x", "unknown option --confg. Did you mean --config?"),
        ("train --lr 1", "unknown option --lr. Did you mean --optimizer.lr?"),
        ("train --resume", "argument --resume: expected one argument"),
        ("train --resume --steps 5", "argument --resume: expected one argument"),
    ],
)
def test_options_of_the_trainer_that_are_read_first_or_grouped_are_suggested_too(capsys, line, said):
    pytest.importorskip("yaml")
    assert refused(capsys, line).startswith(f"codev {line.split()[0]}: {said}")


def test_the_help_of_training_fits_on_a_screen(capsys, monkeypatch):
    pytest.importorskip("yaml")
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 40
    assert all(flag in text for flag in ("--preset", "--model", "--steps", "--reward", "--env.data", "--dry-run"))


@pytest.mark.parametrize("command", ["train", "sft", "eval", "data filter"])
def test_the_help_of_long_commands_fits_on_a_narrow_screen(command, capsys, monkeypatch):
    pytest.importorskip("yaml")
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 42 and max(map(len, lines)) <= 80


def test_an_empty_choice_is_not_offered(capsys):
    said = refused(capsys, "eval --model scripted:oracle --data synthetic --suite zom")
    assert said == "codev eval: --suite is zom; it must be 'zoom' or 'all'."


def test_help_takes_the_name_of_a_command(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["help", "data", "show"])
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("usage: codev data show [options]")
    assert cli.main(["help", "doctor"]) == 0 and "--json" in capsys.readouterr().out
    assert cli.main(["help"]) == 0 and "commands:" in capsys.readouterr().out


def test_an_error_names_the_command_below(capsys, tmp_path):
    assert cli.main(["eval", "compare", str(tmp_path), str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("codev eval compare: ")
    assert cli.main(["data", "show", "--scenes", "toi"]) == 1
    assert capsys.readouterr().err.startswith("codev data show: unknown scene preset 'toi'")


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_warning_is_one_line_without_the_code_that_gives_it(tmp_path, debug):
    good = tmp_path / "rows.jsonl"
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    row = '{"image": "a.png", "question": "q", "answer": "1"}'
    good.write_text(f"{row}\n{{\n")
    words = ["data", "show", "--bench", "dataset", "--data", str(good), "--on-error", "skip", "--out", "s.png"]
    program = f"import sys; from codev_env.app.cli import run; sys.argv = ['codev', *{words!r}]; run()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "CODEV_DEBUG": debug},
    )
    assert done.returncode == 0 and "left out 1 of 2 rows" in done.stderr
    assert done.stderr.startswith("warning: ") is not bool(debug) and ("UserWarning" in done.stderr) is bool(debug)


def test_a_warning_of_a_torn_file_is_one_line_too(tmp_path):
    torn = tmp_path / "trajectories.jsonl"
    torn.write_text("{")
    words = ["codev", "rewards", "explain", str(torn)]
    program = f"import sys; from codev_env.app.cli import run; sys.argv = {words!r}; run()"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr
    assert said.splitlines() == [
        f"warning: {torn}, line 1: torn (the writer died); ignored.",
        f"codev rewards explain: {torn} holds no episodes.",
    ]


def test_allowed_words_read_alike_without_pydantic():
    @plain.dataclass
    class One:
        shell: Literal["bash", "zsh", "fish"]
        only: Literal["a"] = "a"

    with pytest.raises(plain.ValidationError) as caught:
        One(shell="csh", only="b")
    said = [one["msg"] for one in caught.value.errors()]
    assert said == ["Input should be 'bash', 'zsh' or 'fish'", "Input should be 'a'"]
