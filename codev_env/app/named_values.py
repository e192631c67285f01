"""Options written as NAME=VALUE, and as JSON or a name: `--columns`, `--reader`, `--scenes`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from codev_env.errors import ConfigError


def columns_of(given: Sequence[str]) -> dict[str, str | list[str]]:
    """Return the column of each field; several of `choices` are separated by commas."""
    pairs = _pairs("columns", given)
    return {name: value.split(",") if name == "choices" and "," in value else value for name, value in pairs}


def reader_of(given: Sequence[str]) -> dict[str, Any]:
    """Return the options of a reader; a value such as `true` or `3` is read as JSON, any other is a text."""
    return {name: _value(value) for name, value in _pairs("reader", given)}


def scenes_of(text: str | None) -> Any:
    """Return the name of a preset of scenes, or what a JSON object says; `None` without any."""
    if not text or not text.lstrip().startswith("{"):
        return text or None
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--scenes {text}: is not JSON ({error}). Put it in quotes for the shell.") from error


def _pairs(option: str, given: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in given:
        name, _, value = text.partition("=")
        if not (name and value):
            raise ConfigError(f"--{option} {text}: write NAME=VALUE.")
        pairs.append((name, value))
    return pairs


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
