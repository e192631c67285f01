"""Command lines made from option classes: argparse splits the words, pydantic converts and checks the values."""

from __future__ import annotations

import argparse
import contextlib
import copy
import inspect
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, get_origin

from codev_env.app.options import Option, OptionError, Problem, build, options_of
from codev_env.errors import UsageError, unexpected, unknown

Kind = TypeVar("Kind")
_NEGATIVE = re.compile(r"-\.?\d")
_CLAUSE = re.compile(r"(?:\([^)]*\)|`[^`]*`|.)*?(?:[;.](?= )|$)")
"""The first clause of a text: what is in brackets or quoted does not end it."""


def parse(kind: type[Kind], argv: Sequence[str], prog: str) -> Kind:
    """Return the options that a command line asks for.

    Raises:
        ConfigError: Values out of range.
        SystemExit: After `--help` (code 0), or for a command line that is not one of this command (code 2).
    """
    parser = Parser(kind, prog)
    return parser.make(parser.read(argv))


def run_subcommand(
    prog: str, commands: Mapping[str, str], argv: Sequence[str], run: Callable[[str, list[str]], int]
) -> int:
    """Run one of the commands below `prog`, or print what there is; returns the exit code.

    Args:
        prog: As users type it, such as `codev data`.
        commands: Names and one line of help each.
        argv: The words after `prog`.
        run: Takes the name of the command and the words after it.

    Raises:
        UsageError: There is no such command.
    """
    if not argv or argv[0] in ("-h", "--help"):
        width = max(map(len, commands))
        rows = "\n".join(f"  {name:<{width}}  {line}" for name, line in commands.items())
        text = f"usage: {prog} COMMAND [options]\n\ncommands:\n{rows}\n\n`{prog} COMMAND --help` shows the options."
        print(text, file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    if argv[0] not in commands:
        raise unknown("command", argv[0], commands, UsageError)
    return run(argv[0], list(argv[1:]))


class Parser(argparse.ArgumentParser):
    """The command line of an option class.

    Args:
        kind: The option class.
        prog: The command, for example `"codev eval"`.
        about: Text of the help; the docstring of the class without.
        beside: Options that are read before this parser is asked, for suggestions.

    `--help` shows the options that the class names in `COMMON`, `--help-all` all of them; a class without it has few.
    """

    def __init__(self, kind: type[Any], prog: str, about: str = "", beside: Sequence[str] = ()) -> None:
        self.kind, self.options = kind, {option.name: option for option in options_of(kind)}
        self._common = frozenset(vars(kind).get("COMMON", self.options))
        self._hidden = [option.name for option in self.options.values() if not self._is_common(option)]
        self._shows_all, self._beside = False, tuple(beside)
        self._many = {option.flag for option in self.options.values() if option.many}
        places = [option.flag for option in self.options.values() if option.positional]
        self._width = width = min(shutil.get_terminal_size((120, 24)).columns, 140) - 2
        super().__init__(
            prog=prog,
            usage=" ".join([prog, *places, "[options]"]),
            description=_wrapped(inspect.cleandoc(about or kind.__doc__ or ""), width),
            formatter_class=lambda prog: _HelpFormatter(prog, 2, 34, width),
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        self._negative_number_matcher = _NEGATIVE  # that of argparse lacks exponents before Python 3.14
        if self._hidden:
            self.add_argument("--help-all", action=_HelpAll, help=f"show all {len(self.options)} options and exit")
        groups: dict[str, Any] = {"": self}
        for option in self.options.values():
            place = option.name.rpartition(".")[0]
            if place not in groups:
                groups[place] = self.add_argument_group(f"{place} options")
            self._add(groups[place], option, flags_alone=bool(places))

    def read(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the words given for each option by its name: one, a list, or a mapping; exits as `parse` does."""
        words = [word for given in argv for word in self._split(given)]
        found, rest = self.parse_known_args(words)
        if rest:
            self._refuse(rest[0])
        values = vars(found)
        for name in values:
            if get_origin(self.options[name].kind) is dict:
                values[name] = self._pairs(self.options[name], values[name])
        return values

    def make(self, values: Mapping[str, Any]) -> Any:
        """Return the options with these values by name, converted and checked; raises as `parse` does."""
        try:
            return build(self.kind, values)
        except OptionError as error:
            self._leave_if_usage(error)
            raise

    def examine(self, values: Mapping[str, Any]) -> tuple[Any, Sequence[Problem]]:
        """Return the options, defaults in place of values out of range, and what is wrong with these values."""
        try:
            return build(self.kind, values), ()
        except OptionError as error:
            self._leave_if_usage(error)
            bad = {problem.name for problem in error.problems}
            if not bad & values.keys():
                raise
            options, _ = self.examine({name: value for name, value in values.items() if name not in bad})
            return options, error.problems

    def error(self, message: str) -> NoReturn:
        """Print one line and leave with the exit code of a wrong command line."""
        self.exit(2, f"{self.prog}: {message}\n")

    def format_help(self) -> str:
        """Return the text of `--help`, which has no groups; that of `--help-all` where it was asked for.

        Where there is more to show, `--help` has the first clause of each option and its default.
        """
        if self._shows_all or not self._hidden:
            return super().format_help()
        formatter = _HelpFormatter(self.prog, 2, 25, self._width)
        formatter.add_usage(self.usage, [], [])
        formatter.add_text(self.description)
        formatter.start_section("options")
        place = {name: number for number, name in enumerate(vars(self.kind)["COMMON"])}
        shown = [action for action in self._actions if action.dest not in self._hidden]
        for action in sorted(shown, key=lambda action: place.get(action.dest, -1)):
            formatter.add_argument(self._in_short(action))
        formatter.end_section()
        return f"{formatter.format_help()}\n`--help-all` shows {len(self._hidden)} more options.\n"

    def show_all(self) -> None:
        """Let the help show all options."""
        self._shows_all = True

    def _is_common(self, option: Option) -> bool:
        return option.name in self._common or option.positional or option.field.is_required()

    def _in_short(self, action: argparse.Action) -> argparse.Action:
        """Return an argument with its first clause as its help; its range and the default of a switch are left out."""
        option = self.options.get(action.dest)
        if option is None or action.help == argparse.SUPPRESS:
            return action
        default = f" (default: {option.default})" if option.default and option.kind is not bool else ""
        details = " (required)" if option.field.is_required() else default
        short = copy.copy(action)
        short.nargs = 0 if option.kind is bool else action.nargs
        short.help = f"{_CLAUSE.findall(option.about)[0].rstrip('.;')}.{details}".replace("%", "%%")
        return short

    def _leave_if_usage(self, error: OptionError) -> None:
        if any(problem.is_usage for problem in error.problems):
            self.error(str(error))

    def _add(self, group: Any, option: Option, flags_alone: bool) -> None:
        details = [f"default: {option.default}"] if option.default else []
        details += ["required"] if option.field.is_required() else []
        details += [option.range] if option.range else []
        about = option.about + (f" ({'; '.join(details)})" if details else "")
        given: dict[str, Any] = {"help": about.replace("%", "%%"), "metavar": option.metavar}
        if option.positional:
            group.add_argument(option.name, help=given["help"], metavar=option.flag)
        elif option.kind is bool:
            # Where arguments go by place, a word after a flag is one of them, never its value.
            value = {"action": "store_const"} if flags_alone else {"nargs": "?", "metavar": option.metavar}
            group.add_argument(option.flag, dest=option.name, const="True", help=given["help"], **value)
            no = f"--no-{option.flag[2:]}"
            group.add_argument(no, dest=option.name, action="store_const", const="False", help=argparse.SUPPRESS)
        else:
            group.add_argument(option.flag, dest=option.name, nargs="*" if option.many else None, **given)

    def _split(self, word: str) -> list[str]:
        """Return a word of a command line with hyphens in its name, and apart from its value where more may follow."""
        if not word.startswith("--"):
            return [word]
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        apart = equals and name in self._many and not value.startswith("-")
        return [name, value] if apart else [name + equals + value]

    def _pairs(self, option: Option, words: list[str]) -> dict[str, Any]:
        """Read names with values: as words in turn, as `name=value`, or as one JSON object."""
        if len(words) == 1 and words[0].startswith("{"):
            with contextlib.suppress(ValueError):
                return dict(json.loads(words[0]))
        if all("=" in word for word in words):
            words = [part for word in words for part in word.split("=", 1)]
        if len(words) % 2:
            self.error(f"{option.flag} is {' '.join(words)}; it must be names with values.")
        return {name: _number(value) for name, value in zip(words[::2], words[1::2], strict=True)}

    def _refuse(self, word: str) -> NoReturn:
        flags = [*self._beside, *(option.flag for option in self.options.values())]
        self.error(str(unexpected(word, flags, self.prog)))


def _wrapped(text: str, width: int) -> str:
    """Break each line of a text between words."""
    return "\n".join(textwrap.fill(line, width) for line in text.splitlines())


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Breaks lines between words, never inside a name with hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _HelpAll(argparse.Action):
    """Prints the help with all options and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, **given: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **given)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print and exit."""
        if isinstance(parser, Parser):
            parser.show_all()
        parser.print_help()
        parser.exit()


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
