"""`codev completion SHELL`: a script that completes commands and options in bash, zsh or fish."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_type_hints

SHELLS = ("bash", "zsh", "fish")

OPTIONS = {
    "train": "codev_train.run.options:TrainOptions",
    "sft": "codev_train.run.options:SFTOptions",
    "eval": "codev_eval.bench.options:EvalOptions",
    "eval compare": "codev_eval.compare:CompareOptions",
    "report": "codev_eval.cli:ReportOptions",
    "view": "codev_eval.cli:ViewOptions",
    "data show": "codev_eval.data.cli:ShowCommand",
    "data check": "codev_eval.data.cli:CheckCommand",
    "data replay": "codev_eval.data.cli:ReplayCommand",
    "data filter": "codev_eval.data.cli:FilterCommand",
    "rewards list": "codev_eval.rewards.cli:ListCommand",
    "rewards explain": "codev_eval.rewards.cli:ExplainCommand",
    "rewards redteam": "codev_eval.rewards.redteam:RedTeamOptions",
    "judge agreement": "codev_eval.agreement.agreement:AgreementOptions",
    "judge ping": "codev_eval.agreement.agreement:PingOptions",
    "study tapo": "codev_eval.study.cli:StudyOptions",
}
"""By command: the dataclass of its options. Commands that are not here have a parser of argparse."""

_TRAINING = ("--preset", "--config", "--dry-run")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `codev completion SHELL` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="codev completion",
        description="Print a script that completes commands and options; docs/completion.md says where to put it.",
    )
    parser.add_argument("shell", choices=SHELLS)
    shell = parser.parse_args(argv).shell
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](completions()))
    return 0


def completions() -> dict[str, list[str]]:
    """Return by command, `""` for `codev` itself, what may follow: commands first, then options."""
    from codev_env.app.cli import COMMANDS

    found: dict[str, list[str]] = {"": [*COMMANDS, "--help", "--version"]}
    for name, command in COMMANDS.items():
        below = [path.partition(" ")[2] for path in OPTIONS if path.startswith(f"{name} ")]
        for path in (name, *(f"{name} {word}" for word in below)):
            options: list[str] = []
            if path in OPTIONS:
                # A command whose packages are not installed cannot run: there is nothing to complete.
                with contextlib.suppress(ImportError):
                    options = list(_options(_load(OPTIONS[path])))
            elif not below and name != "completion":
                options = _help_options(command.target)
            found[path] = [*(below if path == name else ()), *options, "--help"]
    found["completion"] = [*SHELLS, "--help"]
    found["train"][-1:] = [*_TRAINING, "--help"]
    found["sft"][-1:] = [*_TRAINING[:2], "--help"]
    return found


def bash(words: dict[str, list[str]]) -> str:
    """Return the script for bash."""
    paths = sorted(filter(None, words), key=len, reverse=True)
    cases = [f'        "{path}" | "{path} "*) words="{" ".join(words[path])}" ;;' for path in paths]
    return "\n".join(
        [
            "# Completes `codev`; made by `codev completion`. Make it again after an upgrade.",
            "_codev() {",
            '    local current=${COMP_WORDS[COMP_CWORD]} path="" words="" word',
            '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            '        case $word in --debug) ;; -*) break ;; *) path="$path $word" ;; esac',
            "    done",
            '    case "${path# }" in',
            f'        "") words="{" ".join(words[""])}" ;;',
            *cases,
            "    esac",
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o default -F _codev codev",
        ]
    )


def zsh(words: dict[str, list[str]]) -> str:
    """Return the script for zsh, which can use that for bash."""
    return f"autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n{bash(words)}"


def fish(words: dict[str, list[str]]) -> str:
    """Return the script for fish."""
    lines = ["# Completes `codev`; made by `codev completion`. Make it again after an upgrade."]
    for path, following in words.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path.split())
        for word in following:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-f -a {word}"
            lines.append(f'complete -c codev -n "{seen or "__fish_use_subcommand"}" {what}')
    return "\n".join(lines)


def _options(kind: Any, prefix: str = "") -> Iterator[str]:
    """Yield the options of a dataclass, those of nested dataclasses under dotted names, that take a name."""
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        name, hint = prefix + field.name.replace("_", "-"), hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _options(hint, f"{name}.")
        elif "Positional" not in str(hint) and "Suppress" not in str(hint):
            yield f"--{name}"


def _help_options(target: str) -> list[str]:
    """Return the options that a command of argparse names in its help."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        _load(target)(["--help"])
    return list(dict.fromkeys(re.findall(r"^  (--[a-z-]+)", out.getvalue(), re.MULTILINE)))


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
