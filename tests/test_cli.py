"""The `codev` command: its table, its exit codes and what it says when something is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from codev_env import __version__
from codev_env.app import cli
from codev_env.app.completion import OPTIONS
from codev_env.errors import CodevError, ConfigError


def fake(monkeypatch: pytest.MonkeyPatch, function, *, name: str = "eval", reports: bool = False, extra: str = "eval"):
    """Let the subcommand `name` run `function`."""
    module = types.ModuleType("codev_cli_fake")
    module.run = function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "codev_cli_fake", module)
    monkeypatch.setitem(cli.COMMANDS, name, cli.Command("codev_cli_fake:run", "a fake", extra, reports))


def raises(error: BaseException):
    def run(argv: list[str]) -> int:
        raise error

    return run


def test_help_lists_every_command(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.help)}$", out, re.M)


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"codev {__version__}\n"


def test_without_a_command_it_shows_the_usage_and_fails(capsys):
    assert cli.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("usage: codev")


@pytest.mark.parametrize(("typed", "nearest"), [("evla", "eval"), ("trian", "train"), ("reports", "report")])
def test_an_unknown_command_names_the_nearest(capsys, typed, nearest):
    assert cli.main([typed]) == 2
    assert f"Did you mean `codev {nearest}`?" in capsys.readouterr().err


def test_an_unknown_command_far_from_all_names_all(capsys):
    assert cli.main(["zzzz"]) == 2
    err = capsys.readouterr().err
    assert "Did you mean" not in err and all(name in err for name in cli.COMMANDS)


@pytest.mark.parametrize(
    ("command", "typed", "known"),
    [
        ("data", "shwo", "Did you mean 'show'?"),
        ("rewards", "explian", "Did you mean 'explain'?"),
        ("judge", "pong", "Did you mean 'ping'?"),
        ("study", "tapoo", "Did you mean 'tapo'?"),
    ],
)
def test_an_unknown_subcommand_is_a_wrong_command_line(capsys, command, typed, known):
    assert cli.main([command, typed]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"codev {command}: unknown ") and f"'{typed}'. {known}" in err and err.count("\n") == 1


def test_a_study_without_a_name_is_a_wrong_command_line(capsys):
    assert cli.main(["study"]) == 2
    assert "name of the study is missing" in capsys.readouterr().err


def test_help_imports_nothing_heavy():
    code = "import sys, codev_env.app.cli as c; c.main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert not [
        name for name in ("torch", "transformers", "pydantic", "codev_eval", "codev_train") if f"'{name}'" in loaded
    ]


LIGHT = """
import contextlib, sys
from codev_env.app.cli import main
for words in {commands!r}:
    with contextlib.suppress(SystemExit):
        main(words)
heavy = ("torch", "transformers", "accelerate", "openai", "datasets", "vllm", "pyarrow")
print("loaded:", *(name for name in heavy if name in sys.modules))
"""
HELPS = [[*words.split(), "--help"] for words in OPTIONS]


@pytest.mark.parametrize(
    "commands", [HELPS, [["train", "--stesp", "3"]], [["completion", "bash"]]], ids=lambda c: c[0][0]
)
def test_help_parsing_and_completion_import_nothing_heavy(commands):
    pytest.importorskip("pydantic")
    code = LIGHT.format(commands=commands)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stdout[-300:]
    assert done.stdout.count("usage:") == (len(HELPS) if commands is HELPS else 0)


def test_the_command_gets_the_remaining_arguments_and_its_code_is_returned(monkeypatch):
    seen = []
    fake(monkeypatch, lambda argv: seen.append(argv) or 3)
    assert cli.main(["eval", "--n", "4", "--debug"]) == 3
    assert seen == [["--n", "4", "--debug"]]


def test_an_error_is_one_line_without_a_traceback(monkeypatch, capsys):
    monkeypatch.delenv("CODEV_DEBUG", raising=False)
    fake(monkeypatch, raises(ConfigError("--n is 0;\n it must be at least 1.")))
    assert cli.main(["eval"]) == 1
    assert capsys.readouterr().err == "codev eval: --n is 0; it must be at least 1.\n"


@pytest.mark.parametrize("how", ["option", "variable"])
def test_debug_adds_the_traceback(monkeypatch, capsys, how):
    fake(monkeypatch, raises(ConfigError("bad option")))
    if how == "variable":
        monkeypatch.setenv("CODEV_DEBUG", "1")
    assert cli.main(["--debug", "eval"] if how == "option" else ["eval"]) == 1
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err and err.endswith("codev eval: bad option\n")


class SavedInterrupt(CodevError, KeyboardInterrupt):
    """An interrupt that says how to go on."""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyboardInterrupt(), "interrupted."),
        (SavedInterrupt("saved; continue with --resume x"), "saved; continue with --resume x"),
    ],
)
def test_an_interrupt_ends_with_130(monkeypatch, capsys, error, says):
    fake(monkeypatch, raises(error))
    assert cli.main(["eval"]) == 130
    assert capsys.readouterr().err == f"codev eval: {says}\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["train", "--preset", "smoke"], 141),
        (["sft"], 141),
        (["eval"], 141),
        (["rewards", "redteam"], 141),
        (["rewards", "list"], 0),
        (["train", "--help"], 0),
        (["train", "--dry-run"], 0),
    ],
)
def test_output_that_nobody_reads_ends_work_with_141_and_only_printing_with_0(words, code):
    program = f"""
import sys, types
from codev_env.app import cli
from codev_env.app.completion import OPTIONS
fake = types.ModuleType("fake")
fake.run = lambda argv: print("much\\n" * 100_000, flush=True)
sys.modules["fake"] = fake
cli.COMMANDS[{words[0]!r}] = cli.Command("fake:run", "a fake", "")
sys.exit(cli.main({words!r}))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        err = process.stderr.read().decode()
    assert process.returncode == code
    assert err.count("\n") == (code != 0) and ("output was closed" in err) == (code != 0)


@pytest.mark.parametrize(
    ("command", "error", "extra"),
    [
        ("train", ModuleNotFoundError("No module named 'torch'", name="torch"), "train"),
        ("train", ModuleNotFoundError("No module named 'pydantic'", name="pydantic"), "train"),
        ("eval", ModuleNotFoundError("No module named 'pydantic'", name="pydantic"), "eval"),
        ("train", ModuleNotFoundError("No module named 'vllm.engine'", name="vllm.engine"), "vllm"),
        ("train", ImportError("cannot import name 'X' from 'transformers'", name="transformers"), "train"),
    ],
)
def test_a_missing_package_names_the_extra_to_install(monkeypatch, capsys, command, error, extra):
    fake(monkeypatch, raises(error), name=command, extra=cli.COMMANDS[command].extra)
    assert cli.main([command]) == 1
    err = capsys.readouterr().err
    assert f'pip install "codev-env[{extra}]"' in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["codev_eval.cli", "json.nothing", None])
def test_a_defect_of_ours_is_not_dressed_up_as_a_missing_package(monkeypatch, name):
    fake(monkeypatch, raises(ImportError("broken", name=name)))
    with pytest.raises(ImportError):
        cli.main(["eval"])


def test_train_makes_the_report_of_the_run_folder(monkeypatch, capsys, tmp_path):
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "events.out.tfevents.1").write_bytes(b"")
    reported: list[Path] = []
    module = types.ModuleType("codev_eval.report.report")
    module.write_run_report = lambda run: reported.append(run) or run / "report.html"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "codev_eval.report.report", module)
    fake(monkeypatch, lambda argv: tmp_path, name="train", reports=True)
    assert cli.main(["train"]) == 0
    out = capsys.readouterr().out
    assert reported == [tmp_path]
    assert str(tmp_path / "report.html") in out and f"--logdir {tmp_path / 'tensorboard'}" in out


def test_train_without_a_run_folder_makes_no_report(monkeypatch, capsys):
    fake(monkeypatch, lambda argv: None, name="train", reports=True)
    assert cli.main(["train", "--help"]) == 0
    assert capsys.readouterr().out == ""


ONE_OF_SEVERAL = """
import atexit, sys
import torch.distributed as dist
from codev_env.app.cli import run

class Teardown:
    def __del__(self):
        print("torn down")

kept = Teardown()
atexit.register(print, "left")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
run()
"""


@pytest.mark.integration
@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["tain"], 2)])
def test_one_of_several_processes_ends_without_the_teardown_of_torch(arguments, code):
    """There gloo may wait for ever for a thread that waits for the interpreter."""
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", ONE_OF_SEVERAL, *arguments], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stdout.endswith("left\n")


@pytest.mark.parametrize("values", ["0.5", "0.1 0.2 0.3", ""])
def test_an_option_of_two_values_asks_for_two(capsys, tmp_path, values):
    words = ["filter", "--data", "synthetic", "--agent", "scripted:oracle", "--out", str(tmp_path / "kept")]
    with pytest.raises(SystemExit) as stop:
        cli.main(["data", *words, "--keep", *values.split()])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said == f"codev data filter: --keep is {values or 'empty'}; it must be two values: FLOAT FLOAT.\n"
