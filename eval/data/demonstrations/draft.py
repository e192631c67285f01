"""A row taken apart, before its images are looked at: what the readers of the formats return."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codev_env.types import IMAGE_PLACEHOLDER
from codev_eval.data.demonstrations.demonstration import RecordedTurn, Unusable


@dataclass(frozen=True)
class Draft:
    """The texts of a demonstration.

    Attributes:
        question: As of a `Demonstration`.
        turns: Without the sizes of images.
        inputs: How many input images the prompt holds.
        outputs: How many images the tool's reply to each turn holds.
        gold: The gold answer, `None` where the data has none.
        paths: As of a `Demonstration`.
        meta: As of a `Demonstration`.
    """

    question: str
    turns: tuple[RecordedTurn, ...]
    inputs: int
    outputs: tuple[int, ...]
    gold: str | None = None
    paths: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


def text_field(row: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a text that is not empty."""
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Unusable("missing_field", f"{name!r} is {type(value).__name__}; a text that is not empty is needed")
    return value


def from_json(value: Any, name: str) -> Any:
    """Return a value that may be written as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise Unusable("missing_field", f"{name!r} is not JSON ({error})") from error


def without_images(text: str) -> str:
    """Return a text without image placeholders and the blanks around it."""
    return text.replace(IMAGE_PLACEHOLDER, "").strip()
