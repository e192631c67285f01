"""`codev completion SHELL`: a script that completes commands and options in bash, zsh or fish."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin

SHELLS = ("bash", "zsh", "fish")

OPTIONS = {
    "train": "codev_train.run.options:TrainOptions",
    "sft": "codev_train.run.options:SFTOptions",
    "eval": "codev_eval.bench.options:EvalOptions",
    "eval compare": "codev_eval.bench.options:CompareOptions",
    "report": "codev_eval.report.cli:ReportOptions",
    "view": "codev_eval.report.cli:ViewOptions",
    "data show": "codev_eval.data.options:ShowCommand",
    "data check": "codev_eval.data.options:CheckCommand",
    "data replay": "codev_eval.data.options:ReplayCommand",
    "data filter": "codev_eval.data.options:FilterCommand",
    "data push": "codev_eval.data.options:PushCommand",
    "data pull": "codev_eval.data.options:PullCommand",
    "rewards list": "codev_eval.rewards.options:ListCommand",
    "rewards explain": "codev_eval.rewards.options:ExplainCommand",
    "rewards bound": "codev_eval.rewards.options:BoundOptions",
    "rewards redteam": "codev_eval.rewards.options:RedTeamOptions",
    "judge agreement": "codev_eval.agreement.options:AgreementOptions",
    "judge ping": "codev_eval.agreement.options:PingOptions",
    "study tapo": "codev_eval.study.options:StudyOptions",
}
"""By command: the class of its options. A command that is missing here parses its options with argparse."""

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
    """Return the words that may follow each command, `""` for `codev` itself: commands first, then options."""
    from codev_env.app.cli import COMMANDS, load

    found: dict[str, list[str]] = {"": [*COMMANDS, "--help", "--version"]}
    for name, command in COMMANDS.items():
        below = [path.partition(" ")[2] for path in OPTIONS if path.startswith(f"{name} ")]
        for path in (name, *(f"{name} {word}" for word in below)):
            options: list[str] = []
            if path in OPTIONS:
                # A command whose packages are not installed cannot run: there is nothing to complete.
                with contextlib.suppress(ImportError):
                    from codev_env.app.options import options_of

                    options = [option.flag for option in options_of(load(OPTIONS[path])) if not option.positional]
            elif not below and name != "completion":
                options = _help_options(load(command.target))
            found[path] = [*(below if path == name else ()), *options, "--help"]
    found["completion"] = [*SHELLS, "--help"]
    found["train"][-1:] = [*_TRAINING, "--help"]
    found["sft"][-1:] = [*_TRAINING[:2], "--help"]
    return found


def option_values() -> dict[str, list[str]]:
    """Return the values that may follow an option, by its flag: names of the package, and choices that are fixed."""
    from codev_env.app.cli import load
    from codev_env.dialects import dialect_names
    from codev_env.judges import JUDGES
    from codev_env.registration import ENV_IDS
    from codev_env.rewards import REWARDS
    from codev_env.scoring import SCORERS
    from codev_env.tasks import BENCHES, SCENES

    found: dict[str, list[str]] = {
        "--bench": sorted(BENCHES),
        "--scenes": sorted(SCENES),
        "--reward": sorted(REWARDS),
        "--dialect": dialect_names(),
        "--judge": sorted(JUDGES),
        "--scorer": sorted(SCORERS),
        "--env.id": [f"codev_env:{env_id}" for env_id in ENV_IDS],
    }
    found |= {f"--env.{name}": found[f"--{name}"] for name in ("scenes", "dialect", "judge")}
    with contextlib.suppress(ImportError):  # packages of the trainer
        from codev_env.app.options import options_of

        found["--preset"] = load("codev_train.run.config:presets")()
        for path in OPTIONS.values():
            for option in options_of(load(path)):
                choices = [str(value) for value in get_args(option.kind)] if get_origin(option.kind) is Literal else []
                if choices:  # commands may differ in the choices of an option
                    found[option.flag] = list(dict.fromkeys([*found.get(option.flag, ()), *choices]))
    return found


def bash(words: dict[str, list[str]]) -> str:
    """Return the script for bash; after an option with known values it completes these."""
    values = [f'        {flag}) words="{" ".join(known)}" ;;' for flag, known in sorted(option_values().items())]
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
            "    case ${COMP_WORDS[COMP_CWORD-1]} in",
            *values,
            "    esac",
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o default -F _codev codev",
        ]
    )


def zsh(words: dict[str, list[str]]) -> str:
    """Return the script for zsh, which runs the one for bash."""
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


def _help_options(command: Callable[..., Any]) -> list[str]:
    """Return the options in the help of a command that uses argparse."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        command(["--help"])
    return list(dict.fromkeys(re.findall(r"^  (--[a-z-]+)", out.getvalue(), re.MULTILINE)))
