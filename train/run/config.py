"""Presets and YAML files become command-line arguments, so that one parser checks every name and value."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import tyro
import yaml

from codev_env.errors import ConfigError, unknown
from codev_train.run.options import EnvOptions, SFTOptions, TrainOptions

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
    return _mapping(text, path)


def _mapping(text: str, where: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{where} must be a mapping with the sections {', '.join(SECTIONS)}.")
    for section in content:
        if section not in SECTIONS:
            raise unknown(f"section in {where}:", section, SECTIONS)
        if section in _KINDS:
            _check_names(content[section], _KINDS[section], f"{where}, {section}:")
    return content


def _check_names(options: Any, kind: type, where: str) -> None:
    """Raise `ConfigError` for a name that is no option, which the parser would take for one of the command line."""
    if not isinstance(options, Mapping):
        return
    kinds = get_type_hints(kind)
    for key, value in options.items():
        name, _, rest = str(key).replace("-", "_").partition(".")
        if name not in kinds:
            raise unknown(f"option in {where}", key, kinds)
        if dataclasses.is_dataclass(kinds[name]):
            _check_names({rest: value} if rest else value, kinds[name], f"{where} {name}:")


SECTIONS = ("about", "env", "sft", "train")
"""Parts of a preset: a line about it, the environment of both commands, and the options of each command."""
_KINDS = {"env": EnvOptions, "sft": SFTOptions, "train": TrainOptions}


@dataclasses.dataclass(frozen=True)
class Request:
    """What the user asked for, before options are parsed: presets and files first, then the command line.

    Attributes:
        layers: Presets and files, in order.
        arguments: The command line without them.
        dry_run: Only look and tell.
    """

    layers: tuple[dict[str, Any], ...]
    arguments: tuple[str, ...]
    dry_run: bool = False

    @property
    def about(self) -> str:
        """The line about the preset."""
        return next((layer["about"].strip() for layer in reversed(self.layers) if layer.get("about")), "")

    def parse(self, section: str, kind: type[Options], command: str, *, own: bool = True) -> Options:
        """Make the options of one command.

        Args:
            section: `"train"` or `"sft"`.
            kind: The dataclass of the options.
            command: For the usage message.
            own: Also take the command line (false for the options of the other command).

        Raises:
            SystemExit: With code 2 after a message that names the nearest option, if one is unknown or has a bad value.
        """
        arguments: list[str] = []
        for layer in self.layers:
            arguments += to_arguments(layer.get("env") or {}, "env.") + to_arguments(layer.get(section) or {})
        given = self.arguments if own else tuple(_environment_only(self.arguments))
        summary = (kind.__doc__ or "").strip()
        description = (
            f"{summary}\n\nGo first: --preset NAME ({', '.join(presets())}) and --config FILE.yaml set many options at "
            "once; options on the command line go over them."
            + (" --dry-run checks everything, tells memory and time, and trains nothing." if section == "train" else "")
        )
        return tyro.cli(
            kind,
            args=[*arguments, *given],
            prog=command,
            description=description,
            config=(tyro.conf.FlagConversionOff,),
        )


def read_request(argv: Sequence[str]) -> Request:
    """Take `--preset NAME`, `--config FILE` and `--dry-run` off a command line; later files go over earlier ones."""
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


def to_arguments(options: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Flatten nested options to `--a.b value`; a mapping of plain values that is an option itself stays one option."""
    arguments: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping) and name in _MAPPING_OPTIONS:
            if not value:
                continue
            arguments += [f"--{prefix}{name}", *(str(x) for pair in value.items() for x in pair)]
        elif isinstance(value, Mapping):
            arguments += to_arguments(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            arguments += [f"--{prefix}{name}", *map(str, value)]
        else:
            arguments += [f"--{prefix}{name}", str(value)]
    return arguments


_MAPPING_OPTIONS = ("scene", "weights")


def _environment_only(arguments: Sequence[str]) -> list[str]:
    """Keep the options that both commands share: the environment, seed and folder."""
    kept: list[str] = []
    keep = False
    for word in arguments:
        if word.startswith("--"):
            name = word[2:].partition("=")[0]
            keep = name.startswith("env.") or name in ("seed", "out")
        if keep:
            kept.append(word)
    return kept


def fingerprint(options: Any) -> str:
    """Return eight characters that stand for the values of all options that change the result."""
    values = {k: v for k, v in dataclasses.asdict(options).items() if k not in ("name", "out", "threads")}
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
