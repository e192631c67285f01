"""Presets, YAML files and the command line, put over each other and checked together."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, get_origin

import yaml

from codev_env.app.arguments import Parser
from codev_env.app.options import Problem
from codev_env.errors import ConfigError, unknown
from codev_train.run.options import EnvOptions, SFTOptions, TrainOptions

OPTIONS = "options.yaml"
"""File in a run folder: the options it was started with."""
START_OPTIONS = "sft.json"
"""File in the folder of a cold start: the options it was made with."""
Options = TypeVar("Options")


def presets() -> list[str]:
    """Return the names of the shipped presets."""
    names = (path.name for path in resources.files("codev_train.run.presets").iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def read_preset(name: str) -> dict[str, Any]:
    """Return a preset; raises `ConfigError` that names the nearest one if there is none of that name."""
    if name not in presets():
        raise unknown("preset", name, presets())
    return _mapping(
        resources.files("codev_train.run.presets").joinpath(f"{name}.yaml").read_text("utf-8"), f"preset {name}"
    )


def read_file(path: str) -> dict[str, Any]:
    """Return a YAML file of the same form as a preset; raises `ConfigError` if it is none."""
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config {path} is not text in UTF-8.") from error
    return _mapping(text, path)


def _mapping(text: str, where: str) -> dict[str, Any]:
    """Read YAML: the line `about` it, and by section the options by dotted name, on top of those of its `base`."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{where} must be a mapping with the sections {', '.join(SECTIONS)}.")
    for section in content:
        if section not in SECTIONS and content[section] is not None and not isinstance(content[section], Mapping):
            raise ConfigError(
                f"{where}: {section} is outside the sections {', '.join(SECTIONS)}; options go below one, for "
                f"example train: {{{section}: {content[section]}}}."
            )
        if section not in SECTIONS:
            raise unknown(f"section in {where}:", section, SECTIONS)
        if section in _KINDS:
            prefix = "env." if section == "env" else ""
            content[section] = dict(_flatten(content[section], _KINDS[section], f"{where}, {section}:", prefix))
    below = read_preset(content.pop("base")) if "base" in content else {}
    return below | content | {kind: below.get(kind, {}) | content.get(kind, {}) for kind in _KINDS}


def _flatten(options: Any, kind: Any, where: str, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the options of a file by dotted name; raises `ConfigError` for a name that is no option."""
    if not isinstance(options, Mapping | None):
        raise ConfigError(f"{where} must be a mapping of options, not {options!r}.")
    fields = kind.__pydantic_fields__
    for key, value in (options or {}).items():
        name, _, rest = str(key).replace("-", "_").partition(".")
        if name not in fields:
            raise unknown(f"option in {where}", key, fields)
        inner = fields[name].annotation
        if dataclasses.is_dataclass(inner):
            yield from _flatten({rest: value} if rest else value, inner, f"{where} {name}:", f"{prefix}{name}.")
        elif rest:
            raise unknown(f"option in {where}", key, fields)
        elif get_origin(inner) is tuple and not isinstance(value, list):
            yield prefix + name, [value]
        elif value != {}:
            # True is not the number 1, and YAML reads a name such as 2024-01-01 as a date.
            yield prefix + name, str(value) if isinstance(value, bool | datetime.date) else value


SECTIONS = ("about", "base", "env", "sft", "train")
"""Parts of a preset: a line about it, the preset that it changes, the environment of both commands, and the options of
each command."""
_KINDS = {"env": EnvOptions, "sft": SFTOptions, "train": TrainOptions}


@dataclasses.dataclass(frozen=True)
class Request:
    """The user's request before options are parsed: presets and files first, then the command line.

    Attributes:
        layers: Presets and files, in order.
        arguments: The command line without them.
        dry_run: Only check and estimate.
        ignored: Presets and files that a resumed run does not read again.
    """

    layers: tuple[dict[str, Any], ...]
    arguments: tuple[str, ...]
    dry_run: bool = False
    ignored: int = 0

    @property
    def about(self) -> str:
        """The line about the preset."""
        return next((layer["about"].strip() for layer in reversed(self.layers) if layer.get("about")), "")

    def parse(self, section: str, kind: type[Options], command: str, *, own: bool = True) -> Options:
        """Make the options of one command.

        Args:
            section: `"train"` or `"sft"`.
            kind: The class of the options.
            command: For messages.
            own: Also take the command line; if false, only what `codev sft` shares with `codev train`.

        Raises:
            ConfigError: Values out of range.
            SystemExit: With code 2, after a message about an unknown option or a value of another type.
        """
        return _parser(section, kind, command).make(self._values(section, kind, command, own))

    def examine(self, section: str, kind: type[Options], command: str) -> tuple[Options, Sequence[Problem]]:
        """Make the options as `parse` does, with defaults in place of values out of range, and return these too."""
        return _parser(section, kind, command).examine(self._values(section, kind, command, own=True))

    def start_options(self) -> SFTOptions:
        """Return the options of the cold start that `codev train` makes; raises `ConfigError` if there is none."""
        options = self.parse("sft", SFTOptions, "codev sft", own=False)
        if not options.ground.steps and not options.imitate.steps:
            raise ConfigError("model is empty and the preset has no cold start; give --model FOLDER or --preset tiny.")
        return options

    def _values(self, section: str, kind: type[Any], command: str, own: bool) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for layer in self.layers:
            values |= {**layer.get("env", {}), **layer.get(section, {})}
        if own:
            return values | _parser(section, kind, command).read(self.arguments)
        given = Parser(TrainOptions, "codev train").read(self.arguments)
        return values | {n: value for n, value in given.items() if n.startswith("env.") or n in ("seed", "out")}


def _parser(section: str, kind: type[Any], command: str) -> Parser:
    dry = "\n--dry-run checks everything, estimates memory and time, and trains nothing." if section == "train" else ""
    about = (
        f"{kind.__doc__}\n\n--preset NAME ({', '.join(presets())}) and --config FILE.yaml set many options; "
        f"the command line overrides them.{dry}"
    )
    return Parser(kind, command, about, beside=("--preset", "--config", *["--dry-run"][: section == "train"]))


def read_request(argv: Sequence[str]) -> Request:
    """Take `--preset NAME`, `--config FILE` and `--dry-run` off a command line; later files override earlier ones."""
    dry_run = False
    layers: list[dict[str, Any]] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        name, _, value = word.partition("=")
        if name in ("--preset", "--config"):
            value = value or next(words, "")
            if not value:
                raise ConfigError(
                    f"{name} needs a value" + (f": one of {', '.join(presets())}." if name == "--preset" else ".")
                )
            layers.append(read_preset(value) if name == "--preset" else read_file(value))
        elif word == "--dry-run":
            dry_run = True
        else:
            rest.append(word)
    return Request(tuple(layers), tuple(rest), dry_run)


def fingerprint(options: SFTOptions) -> str:
    """Return eight characters that stand for the values of all options that say what a cold start learns."""
    # The result is for any of these.
    same = ("name", "out", "threads", "processes", "sharding", "replicas", "gradient_checkpointing")
    unasked = ("judge", "view_pixels", "scorer")  # an expert's episodes are learned whatever is said of them
    usual = dataclasses.asdict(SFTOptions())
    later = ("max_length", "train_vision", "lora", "precision")  # starts made before these options keep their names
    given = dataclasses.asdict(options).items()
    values = {k: v for k, v in given if k not in same and (v != usual[k] or k not in later)}
    of_env = ("columns", "reader", "subset", "only", "on_error")  # likewise
    env = {k: v for k, v in values["env"].items() if k not in unasked and (v != usual["env"][k] or k not in of_env)}
    values["env"] = env | {"farm": ""}  # the place where programs run is not learned
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
