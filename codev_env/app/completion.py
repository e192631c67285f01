"""`codev completion SHELL`: a script that completes commands and options in bash, zsh or fish."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from codev_env.app.arguments import parse
from codev_env.app.options import POSITIONAL, option_class, options_of

SHELLS = ("bash", "zsh", "fish")

OPTIONS = {
    "train": "codev_train.run.options:TrainOptions",
    "sft": "codev_train.run.options:SFTOptions",
    "eval": "codev_eval.bench.options:EvalOptions",
    "eval compare": "codev_eval.bench.options:CompareOptions",
    "play": "codev_env.app.play:PlayOptions",
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
"""By command: the class of its options; `doctor` and `completion` have none here."""

_UNREAD = {
    "--loss": ("grpo", "dapo", "dr_grpo", "gspo", "cispo"),
    "--curriculum": ("uniform", "success-band"),
    "--credit": ("trajectory", "trajectory-mean", "turn", "turn-mean"),
    "--trackers": ("aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "trackio", "wandb"),
}
"""Names of registries in modules that need torch, whose import would take seconds."""
_OF_ONE = {("eval", "--model"): "scripted:", ("data filter", "--agent"): "scripted:"}
"""Options that take scripted agents, by command: elsewhere the same flag does not."""
_PATHS = ("--data", "--env.data", "--eval.data", "--model", "--resume", "--config", "--trajectories", "--vllm.folder")
"""Options that take paths although their type is text: names are accepted as well."""
_TRAINING = ("--preset", "--config", "--dry-run")


@option_class
class CompletionOptions:
    """Print a script that completes commands and options; docs/completion.md says where to put it."""

    shell: Annotated[Literal["bash", "zsh", "fish"], POSITIONAL]
    """The shell: bash, zsh or fish."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `codev completion SHELL` and return its exit code."""
    shell = parse(CompletionOptions, argv or (), "codev completion").shell
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
                    options = [option.flag for option in options_of(load(OPTIONS[path])) if not option.positional]
            elif not below and name != "completion":
                options = [*_help_options(load(command.target))]
            found[path] = [*(below if path == name else ()), *options, "--help"]
    found["completion"] = [*SHELLS, "--help"]
    found["train"][-1:] = [*_TRAINING, "--help"]
    found["sft"][-1:] = [*_TRAINING[:2], "--help"]
    return found


class Values(list[str]):
    """The known values of an option.

    Attributes:
        files: Whether files are values as well.
        many: Whether there may be several.
    """

    def __init__(self, words: Iterable[str] = (), files: bool = False, many: bool = False) -> None:
        super().__init__(words)
        self.files, self.many = files, many


def option_values() -> dict[str, Values]:
    """Return what may follow each option that takes a value, by its flag; commands that share a flag are joined."""
    from codev_env.app.cli import COMMANDS, load

    names = _names()
    found = {flag: Values(words) for flag, words in names.items()}
    for name, command in COMMANDS.items():
        if not any(path.split()[0] == name for path in OPTIONS) and name != "completion":
            for flag, takes_value in _help_options(load(command.target)).items():
                if takes_value:
                    found.setdefault(flag, Values())
    for kind in _option_classes():
        for option in options_of(kind):
            if option.positional or option.kind is bool:
                continue
            inner = get_args(option.kind) if option.many else (option.kind,)
            choices = [str(word) for one in inner if get_origin(one) is Literal for word in get_args(one)]
            known = found.get(option.flag, Values())
            words = dict.fromkeys((*known, *filter(None, choices), *option.words))
            found[option.flag] = Values(words, known.files or Path in inner, known.many or option.many)
    for flag in _PATHS:
        found[flag] = Values(found[flag], True, found[flag].many) if flag in found else Values(files=True)
    return found


def _names() -> dict[str, Sequence[str]]:
    """Return the names of the package that options take, by flag."""
    from codev_env.app.cli import load
    from codev_env.dialects import dialect_names
    from codev_env.judges import JUDGES
    from codev_env.registration import ENV_IDS
    from codev_env.rewards import REWARDS
    from codev_env.scoring import SCORERS
    from codev_env.tasks import BENCHES, SCENES
    from codev_env.tasks.wrappers import CROP, SUITES, TRANSFORMS

    found: dict[str, Sequence[str]] = {
        "--bench": sorted(BENCHES),
        "--data": ("synthetic", "hub", "auto"),
        "--scenes": sorted(SCENES),
        "--split": ("train", "val", "test"),
        "--wrap": (*SUITES, *TRANSFORMS, CROP),
        "--reward": sorted(REWARDS),
        "--dialect": dialect_names(),
        "--judge": sorted(JUDGES),
        "--scorer": sorted(SCORERS),
        "--env.id": [f"codev_env:{env_id}" for env_id in ENV_IDS],
        **_UNREAD,
    }
    found |= {f"--env.{name}": found[f"--{name}"] for name in ("data", "scenes", "wrap", "dialect", "judge")}
    found |= {f"--eval.{name}": found[f"--env.{name}"] for name in ("id", "data", "scenes")}
    found |= {"--against": found["--judge"], "--suites": SUITES}
    with contextlib.suppress(ImportError):  # packages of the trainer
        found["--preset"] = load("codev_train.run.config:presets")()
    with contextlib.suppress(ImportError):
        cheats: Any = load("codev_agents.cheats.suite:CHEATS")
        found["--cheats"] = sorted(cheats)
    with contextlib.suppress(ImportError):
        methods: Any = load("codev_eval.study.methods:METHODS")
        settings: Any = load("codev_eval.study.methods:SETTINGS")
        found |= {"--methods": [one.name for one in methods], "--settings": [one.name for one in settings]}
    return found


def _scripted() -> list[str]:
    from codev_env.app.cli import load

    with contextlib.suppress(ImportError):
        agents: Any = load("codev_agents.scripted:SCRIPTED")
        return [f"scripted:{name}" for name in agents]
    return []


def _option_classes() -> Iterator[Any]:
    from codev_env.app.cli import load

    for path in OPTIONS.values():
        with contextlib.suppress(ImportError):  # a command whose packages are not installed
            yield load(path)


def _paths_where(fits: Callable[[Any], bool]) -> set[str]:
    """Return the commands whose class of options fits."""
    from codev_env.app.cli import load

    found = set()
    for path, target in OPTIONS.items():
        with contextlib.suppress(ImportError):
            if fits(load(target)):
                found.add(path)
    return found


def _has_places(kind: Any) -> bool:
    """Whether a command takes arguments by place, such as a folder."""
    return any(option.positional for option in options_of(kind))


def _has_more(kind: Any) -> bool:
    """Whether the help of a command leaves options to `--help-all`."""
    return "COMMON" in vars(kind)


def bash(words: dict[str, list[str]]) -> str:
    """Return the script for bash; after an option with known values it completes these.

    Where the script offers nothing, the shell completes files. Bash splits words at `=` and `:`; the script joins them
    again, and offers of a word that has such a sign what follows it.
    """
    all_values = option_values()
    values = [f'        "{path}: 0 {flag}") words="{" ".join(_scripted())}" files=1 ;;' for path, flag in _OF_ONE]
    for flag, known in sorted(all_values.items()):
        # A second value may be the next option instead, which begins with a hyphen.
        place = f'*" {flag}"' if known.many else f'*": 0 {flag}"'
        values.append(f'        {place}) words="{" ".join(known)}"{" files=1" if known.files else ""} ;;')
    places, more = _paths_where(_has_places), _paths_where(_has_more)
    paths = sorted(filter(None, words), key=len, reverse=True)
    cases = [
        f'        "{path}" | "{path} "*) words="{" ".join([*words[path], *["--help-all"] * (path in more)])}"'
        f"{' place=1' if path in places else ''} ;;"
        for path in paths
    ]
    return "\n".join(
        [
            "# Completes `codev`; made by `codev completion`. Make it again after an upgrade.",
            "_codev() {",
            '    local line=${COMP_LINE-} path="" words="" files="" place="" before="" word index count=0',
            "    local -a typed",
            '    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do',
            "        if [[ $count -gt 0 && -n $line && $line != [[:space:]]* ]]; then",
            '            typed[count-1]="${typed[count-1]}$word"',
            "        else",
            '            line=${line#"${line%%[![:space:]]*}"}',
            "            typed[count]=$word",
            "            count=$((count + 1))",
            "        fi",
            '        line=${line#"$word"}',
            "    done",
            "    local current=${typed[count-1]}",
            "    if [[ $current == --*=* ]]; then",
            "        before=${current%%=*}=",
            "        typed[count-1]=${current%%=*}",
            "        current=${current#*=}",
            "        count=$((count + 1))",
            "    fi",
            '    for word in "${typed[@]:1:count-2}"; do',
            '        case $word in --debug) ;; -*) break ;; *) path="$path $word" ;; esac',
            "    done",
            '    case "${path# }" in',
            f'        "") words="{" ".join(words[""])}" ;;',
            *cases,
            "    esac",
            "    if [[ $current != -* ]]; then",
            '        if [[ -n $place ]]; then words=""; fi',
            "        for ((index = count - 2; index > 0; index--)); do",
            "            if [[ ${typed[index]} == --?* ]]; then break; fi",
            "        done",
            '        case "${path# }: $((count - 2 - index)) ${typed[index]}" in',
            *(f"    {line}" for line in values),
            "        esac",
            "    fi",
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "    if [[ -n $files ]]; then",
            "        local IFS=$'\\n'",
            '        COMPREPLY+=($(compgen -f -- "$current"))',
            "        compopt -o filenames 2>/dev/null",
            "    fi",
            "    if [[ ${COMP_WORDBREAKS-} != *=* ]]; then",
            '        COMPREPLY=("${COMPREPLY[@]/#/$before}")',
            "    elif [[ $COMP_WORDBREAKS == *:* && $current == *:* ]]; then",
            '        COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*:}"}"}")',
            "    fi",
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
    known = option_values()
    scripted, more = Values(_scripted(), files=True), _paths_where(_has_more)
    for path, following in words.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path.split())
        for word in following:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-f -a {word}"
            what += " -l help-all" if word == "--help" and path in more else ""
            values = scripted if (path, word) in _OF_ONE else known.get(word)
            if values is not None:
                what += " -r" if values.files else " -x"  # -x: no files
                what += f' -a "{" ".join(values)}"' if values else ""
            lines.append(f'complete -c codev -n "{seen or "__fish_use_subcommand"}" {what}')
    return "\n".join(lines)


def _help_options(command: Callable[..., Any]) -> dict[str, bool]:
    """Return the options in the help of a command without a class of options, and whether each takes a value."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        command(["--help"])
    found = re.findall(r"^  (--[a-z-]+)( [A-Z\[])?", out.getvalue(), re.MULTILINE)
    return {flag: bool(value) for flag, value in found}
