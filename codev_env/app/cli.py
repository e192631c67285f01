"""The `codev` command: a table of subcommands, each imported only when it is asked for."""

from __future__ import annotations

import atexit
import errno
import importlib
import io
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from codev_env import __version__
from codev_env.errors import BadRows, CodevError, UsageError, nearest_name

OK, FAILED, USAGE, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141
"""Exit codes: success, an explained error, a wrong command line, Ctrl-C (128 + SIGINT), and work left unfinished by
closed output (128 + SIGPIPE)."""


@dataclass(frozen=True)
class Command:
    """One row of the table.

    Attributes:
        target: `"module:function"`; the function takes the remaining arguments.
        help: One line for `codev --help`.
        extra: The extra of this package that the command needs; empty if the core is enough.
        reports: The function returns the folder of a finished training run, or `None`; the report is made from it.
        last: `"module:function"` that gets this folder after the report; empty for none.
    """

    target: str
    help: str
    extra: str
    reports: bool = False
    last: str = ""


COMMANDS = {
    "train": Command(
        "codev_train.cli:train",
        "train a policy with TAPO, then write the report",
        "train",
        reports=True,
        last="codev_train.publish:publish",
    ),
    "sft": Command("codev_train.cli:sft", "cold start: fine-tune on example trajectories", "train"),
    "eval": Command("codev_eval.cli:evaluate", "evaluate accuracy and faithful tool use on held-out tasks", "eval"),
    "report": Command("codev_eval.report.cli:report", "make the report of a run folder again", "report"),
    "play": Command("codev_env.app.play:main", "play a task yourself, in the terminal", ""),
    "view": Command("codev_eval.report.cli:view", "show a run in the browser while it is under way", "report"),
    "data": Command(
        "codev_eval.data.cli:main", "show, check, replay and filter tasks, and share them on the hub", "eval"
    ),
    "rewards": Command(
        "codev_eval.rewards.cli:main", "list rewards, explain those of an episode, and try to cheat them", "eval"
    ),
    "judge": Command("codev_eval.agreement.cli:main", "measure how well a judge agrees with ground truth", "eval"),
    "study": Command("codev_eval.study.cli:main", "compare training methods over seeds, and write it up", "train"),
    "doctor": Command("codev_env.app.doctor:main", "report what works on this machine, with advice on the rest", ""),
    "completion": Command("codev_env.app.completion:main", "print a script that completes commands and options", ""),
}

_PRINTING = {
    *(("data", name) for name in ("check", "show")),
    *(("rewards", name) for name in ("bound", "explain", "list")),
    ("judge", "ping"),
}
"""Commands that only print; `codev eval compare` is one without `--out`."""

EXTRA_OF = {
    "torch": "train",
    "transformers": "train",
    "accelerate": "train",
    "tokenizers": "train",
    "safetensors": "train",
    "tensorboard": "train",
    "yaml": "train",
    "pydantic": "eval",
    "tqdm": "eval",
    "jinja2": "report",
    "pygments": "report",
    "openai": "eval",
    "vllm": "vllm",
    "flash_attn": "flash",
    "peft": "lora",
    "torchao": "lowbit",
    "skimage": "photos",
    "sklearn": "photos",
}
"""Import name of an optional package -> the extra that installs it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `codev` with the given arguments (default: those of the process).

    Returns:
        The exit code: 0 success, 1 an error with one line on stderr, 2 a wrong command line, 130 interrupted, 141 not
        finished because its output was closed.
        With `--debug` before the subcommand, or `CODEV_DEBUG=1`, errors also show their traceback.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        here = os.getcwd()
    except FileNotFoundError:
        print("codev: the working folder was removed. Change to a folder that exists.", file=sys.stderr)
        return FAILED
    if here not in sys.path:  # "module:attribute" of an option may be beside the user's data
        sys.path.append(here)
    debug = os.environ.get("CODEV_DEBUG", "") not in ("", "0")
    while args and args[0] == "--debug":
        debug = True
        args.pop(0)
    if not args:
        print(usage(), file=sys.stderr)
        return USAGE
    name, rest = args[0], args[1:]
    if name == "help" and rest:
        name, rest = rest[0], [*rest[1:], "--help"]
    if name in ("-h", "--help", "help"):
        print(usage())
        return OK
    if name in ("-V", "--version"):
        print(f"codev {__version__}")
        return OK
    if name not in COMMANDS:
        hint = f" Did you mean `{near}`?" if (near := _nearest(name)) else ""
        print(f"codev: unknown command {name!r}.{hint} Known: {', '.join(COMMANDS)}.", file=sys.stderr)
        return USAGE
    try:
        return run_command(COMMANDS[name], rest)
    except KeyboardInterrupt as error:
        # The message of a command says what it saved and how to continue.
        print(f"codev {_whole(name, rest)}: {str(error) or 'interrupted.'}", file=sys.stderr)
        return INTERRUPTED
    except CodevError as error:
        whole = _whole(name, rest)
        code = _fail(whole, _without_rows(whole, error) if isinstance(error, BadRows) else str(error), debug)
        return USAGE if isinstance(error, UsageError) else code
    except BrokenPipeError:  # `codev ... | head`
        _discard_output()
        if _only_prints(name, rest):
            return OK
        print(f"codev {name}: not finished, because its output was closed (`| head`?).", file=sys.stderr)
        return UNREAD
    except OSError as error:
        message = problem_of_files(error)
        if message is None:
            raise
        return _fail(_whole(name, rest), message, debug)
    except ImportError as error:
        message = missing_package(error, COMMANDS[name].extra)
        if message is None:
            raise
        return _fail(name, message, debug)


def _whole(name: str, rest: Sequence[str]) -> str:
    """Return the command with the one below it, such as `data show`, for messages."""
    paths: Any = load("codev_env.app.completion:OPTIONS")
    below = " ".join([name, *rest[:1]])
    return below if below in paths else name


def _without_rows(whole: str, error: BadRows) -> str:
    """Return the message about bad rows with the option of the command that leaves them out, if it has one."""
    paths: Any = load("codev_env.app.completion:OPTIONS")
    options_of = load("codev_env.app.options:options_of")
    flags = [option.flag for option in options_of(load(paths[whole]))] if whole in paths else []
    own = next((flag for flag in flags if re.fullmatch(r"--(env\.)?on-error", flag)), None)
    return error.advised(f"{own} skip") if own else str(error)


def _nearest(name: str) -> str:
    """Return the command line that a word of no command may stand for; empty if none is near."""
    paths: Any = load("codev_env.app.completion:OPTIONS")
    below = [f"codev {path}" for path in paths if path.endswith(f" {name}")]  # `codev compare`
    near = nearest_name(name, [*COMMANDS, "--debug", "--help", "--version"])
    return next(iter([*below, *([f"codev {near}"] if near else [])]), "")


def run() -> NoReturn:
    """Run `codev` as a process of its own, and end it with its exit code."""
    _open_closed_streams()
    from codev_env.sandbox import raise_limit

    raise_limit()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")  # a terminal without some character must not end hours of work
    if os.environ.get("CODEV_DEBUG", "") in ("", "0"):
        warnings.formatwarning = _one_line
    try:
        code = main()
    except SystemExit as ended:  # a usage text, or one of several processes, whose main one says why
        code = ended.code if isinstance(ended.code, int) else OK
    except BrokenPipeError:  # a usage text
        code = OK
    except Exception:
        traceback.print_exc()
        code = FAILED
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # of a command that has ended: nothing is lost but its last lines
        _discard_output()
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        sys.exit(code)
    # At the end of the interpreter torch frees a gloo group with the GIL held and joins its threads, which may be
    # waiting for the GIL: sometimes that hangs for ever. So the process exits without this teardown.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _open_closed_streams() -> None:
    """Open the null device in place of each stream that the caller closed (`>&-`), else files get its descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode))


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Write a warning for users without the line of code that gives it; one for programmers as Python does."""
    if category in (UserWarning, RuntimeWarning):
        return f"warning: {' '.join(str(message).split())}\n"
    return _format_warning(message, category, filename, lineno, line)


_format_warning = warnings.formatwarning


def run_command(command: Command, argv: list[str]) -> int:
    """Import the command's function and call it; write the report of the run folder where it returns one.

    The trainer and the evaluation do not import each other: this table of names joins them.
    """
    result = load(command.target)(argv)
    if not command.reports:
        return int(result or OK)
    if result is not None:
        report_run(Path(result))
        if command.last:
            load(command.last)(Path(result))
    return OK


def report_run(run: Path) -> None:
    """Write the report of a training run and print where it and the TensorBoard log are."""
    page = load("codev_eval.report.report:write_run_report")(run)
    print(f"Report:      {page}  (open it in a browser)")
    logs = sorted({path.parent for path in run.rglob("events.out.tfevents.*")})
    if logs:
        print(f"TensorBoard: tensorboard --logdir {shlex.quote(os.path.commonpath(logs))}")


def load(target: str) -> Callable[..., Any]:
    """Import `"module:function"`."""
    module, _, function = target.partition(":")
    return getattr(importlib.import_module(module), function)


def usage() -> str:
    """The text of `codev --help`."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: codev [--debug] COMMAND [options]",
            "",
            "Vision-language models that think with images, honestly.",
            "",
            "commands:",
            *rows,
            "",
            "`codev COMMAND --help` shows the options of a command.",
            "--debug (or CODEV_DEBUG=1) adds the traceback to an error.",
            "--version prints the version.",
        ]
    )


def missing_package(error: ImportError, extra: str) -> str | None:
    """Explain an import that failed because an optional package is missing or too old.

    Args:
        error: What the import raised.
        extra: The extra of the command that was run.

    Returns:
        One line naming the extra to install; `None` if the error is a defect of ours or names an unknown package.
    """
    root = (error.name or "").partition(".")[0]
    if root not in EXTRA_OF:
        return None
    # Several extras hold these packages; that of the command installs its other packages as well.
    wanted = extra if root in ("pydantic", "tqdm", "jinja2", "pygments") else EXTRA_OF[root]
    problem = f"the package {root!r} is not installed" if isinstance(error, ModuleNotFoundError) else str(error)
    return f'{problem}. Install what this needs with: pip install "codev-env[{wanted}]"'


def problem_of_files(error: OSError) -> str | None:
    """Explain a file or folder that cannot be used; `None` if the error may be a defect of ours.

    Args:
        error: What reading or writing raised.
    """
    where = f" {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return f"cannot write{where}: {error.strerror}. Make room or choose another folder."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"cannot use{where}: {error.strerror}. Change its permissions or choose another place."
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG):
        return f"cannot use{where}: {error.strerror}. Choose another place."
    return None


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _only_prints(name: str, arguments: Sequence[str]) -> bool:
    """Return whether a command only prints, so that closed output is no failure."""
    if {"-h", "--help", "--help-all", "--dry-run"} & set(arguments):
        return True
    command = arguments[0] if arguments else ""
    if (name, command) == ("eval", "compare"):
        return not any(word.partition("=")[0] == "--out" for word in arguments)
    return name in ("doctor", "completion") or (name, command) in _PRINTING


def _fail(name: str, message: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"codev {name}: {' '.join(message.split())}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    run()
