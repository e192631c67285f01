"""The `codev` command in odd surroundings: closed output, a terminal without Unicode, files that cannot be used."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest

from codev_env.app import cli


def run(words, **given):
    """Run `codev` as a process of its own."""
    return subprocess.run([sys.executable, "-m", "codev_env.app.cli", *words], capture_output=True, text=True, **given)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["data", "--help"], ["play", "--help"]], ids=" ".join)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_usage_texts_that_nobody_reads_end_quietly(words, unbuffered):
    command = [sys.executable, "-m", "codev_env.app.cli", *words]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_closed_are_empty(tmp_path, closed):
    seen = tmp_path / "seen"
    program = f"""if True:
        import subprocess, sys
        from codev_env.app import cli

        def usage():
            with open({str(seen)!r}, "w") as file:
                file.write(f"{{sys.stdin.read()!r}} {{subprocess.call(['echo', 'hi'])}}")
            return "help"

        cli.usage = usage
        cli.run()
    """
    words = ["sh", "-c", f"exec {shlex.join([sys.executable, '-c', program, '--help'])} {closed}"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr, seen.read_text()) == (0, "", "'' 0")


def test_a_terminal_without_a_character_shows_another_one():
    program = "import sys; from codev_env.app import cli; cli.usage = lambda: '12 – 34'; cli.run()"
    env = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"12 ? 34\n", b"")


def test_half_a_character_is_shown_as_another_one_in_the_locale_of_containers():
    program = "import sys; from codev_env.app import cli; cli.usage = lambda: '12 ' + chr(0xD800); cli.run()"
    env = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": ""}
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"12 ?\n", b"")


def test_a_working_folder_that_was_removed_is_named(tmp_path):
    program = f"import os; os.chdir({str(tmp_path)!r}); os.rmdir(os.getcwd()); from codev_env.app import cli; cli.run()"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "codev: the working folder was removed. Change to a folder that exists.\n"


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EACCES, "cannot use rows.jsonl: Permission denied. Change its permissions"),
        (errno.ENOSPC, "cannot write rows.jsonl: No space left on device. Make room"),
        (errno.EEXIST, "cannot use rows.jsonl: File exists. Choose another place."),
    ],
)
def test_files_that_cannot_be_used_are_named(monkeypatch, capsys, number, says):
    def fails(argv):
        raise OSError(number, os.strerror(number), "rows.jsonl")

    module = types.ModuleType("codev_cli_fake")
    module.run = fails
    monkeypatch.setitem(sys.modules, "codev_cli_fake", module)
    monkeypatch.setitem(cli.COMMANDS, "eval", cli.Command("codev_cli_fake:run", "a fake", ""))
    assert cli.main(["eval"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"codev eval: {says}") and said.count("\n") == 1


def test_a_missing_file_may_be_a_defect_and_keeps_its_traceback():
    assert cli.problem_of_files(FileNotFoundError(errno.ENOENT, "No such file", "x")) is None


def test_printed_commands_can_be_pasted(tmp_path, monkeypatch, capsys):
    run = tmp_path / "my run"
    run.mkdir()
    (run / "events.out.tfevents.1").touch()
    module = types.ModuleType("codev_eval.report.report")
    module.write_run_report = lambda folder: folder / "report.html"
    monkeypatch.setitem(sys.modules, "codev_eval.report.report", module)
    cli.report_run(run)
    assert f"tensorboard --logdir '{run}'\n" in capsys.readouterr().out


def test_commands_of_the_trainer_quote_folders():
    root = Path(__file__).parents[1]
    for name in ("train/cli.py", "train/experiment.py", "train/tapo.py"):
        printed = re.findall(r"codev train --(?:resume|model) \{(.*?)\}", (root / name).read_text("utf-8"))
        assert printed and all(value.startswith("shlex.quote(") for value in printed), name


@pytest.mark.parametrize(
    "words", [["--help"], ["data", "--help"], ["rewards", "--help"], ["judge", "--help"]], ids=" ".join
)
def test_lists_of_commands_fit_into_80_columns(capsys, words):
    assert cli.main(words) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["rewards", "bound"], 0),
        (["eval", "compare", "a", "b"], 0),
        (["eval", "compare", "a", "b", "--out", "c"], 141),
        (["eval", "compare", "a", "b", "--out=c"], 141),
        (["eval", "--bench", "vstar"], 141),
    ],
)
def test_closed_output_is_no_failure_of_what_only_prints(monkeypatch, capsys, words, code):
    def closed(argv):
        raise BrokenPipeError

    module = types.ModuleType("codev_cli_fake")
    module.run = closed
    monkeypatch.setitem(sys.modules, "codev_cli_fake", module)
    monkeypatch.setitem(cli.COMMANDS, words[0], cli.Command("codev_cli_fake:run", "a fake", ""))
    monkeypatch.setattr(cli, "_discard_output", lambda: None)
    assert cli.main(words) == code
    assert ("not finished" in capsys.readouterr().err) == (code != 0)
