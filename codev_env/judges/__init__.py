"""Judges by name: who scores a tool call by what it showed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from codev_env.chat_model import is_address, split_address
from codev_env.errors import ConfigError, unknown
from codev_env.judges.ground_truth import GroundTruthJudge
from codev_env.judges.judge import (
    AsyncJudge,
    AutoJudge,
    BatchJudge,
    CountingJudge,
    Judge,
    MaskingJudge,
    NoJudge,
    ServedJudge,
    ViewJudge,
    for_view,
)
from codev_env.judges.noisy import NoisyJudge
from codev_env.registry import Registry

if TYPE_CHECKING:
    from codev_env.judges.vlm import VLMJudge

__all__ = [
    "JUDGES",
    "AsyncJudge",
    "AutoJudge",
    "BatchJudge",
    "CountingJudge",
    "GroundTruthJudge",
    "Judge",
    "MaskingJudge",
    "NoJudge",
    "NoisyJudge",
    "ServedJudge",
    "VLMJudge",
    "ViewJudge",
    "for_view",
    "get_judge",
]

ON_ERROR = ("raise", "mask")
DETAIL_OPTIONS = ("view_pixels", "detail_power", "detail_margin")
"""Options of the judges by ground truth, see `GroundTruthJudge`."""


def _vlm(**options: Any) -> Judge:
    from codev_env.judges.options import make_options
    from codev_env.judges.vlm import shared_judge

    return shared_judge(make_options(**options))


JUDGES: Registry[Judge] = Registry(
    "judge",
    {**{judge.name: judge for judge in (AutoJudge, GroundTruthJudge, NoJudge)}, "vlm": _vlm},
    accepts=lambda found: isinstance(found, Judge),
    expected="a codev_env Judge (an attribute name and a method score)",
    makes=True,
    forms=("noisy:RATE", "URL#NAME"),
    needs=("name", "score"),
)
"""The classes and functions that make the package's judges, by name."""


def get_judge(judge: str | Mapping[str, Any] | Judge = "auto") -> Judge:
    """Return a judge.

    Args:
        judge: A name (`"auto"`, `"ground_truth"`, `"none"`); `"noisy:RATE"`, see `NoisyJudge`; `"URL#NAME"`, such as
            `"http://localhost:8000/v1#my-model"`, for a vision-language judge; `"module:attribute"` of a judge, or of
            what makes one without arguments; a mapping with the name and options,
            such as `{"name": "vlm", "model": "my-model", "cache": "verdicts"}` or
            `{"name": "ground_truth", "view_pixels": 4900}`, or its JSON; or a `Judge`. Every judge
            named in a mapping knows the option `on_error`: `"raise"`, or `"mask"` for scores without a value where it
            fails.
            Vision-language judges with equal options are one and the same within a process.

    Raises:
        ConfigError: If there is no such judge, or it has no such option.
    """
    if isinstance(judge, str):
        if judge.startswith("noisy:"):
            return NoisyJudge.parse(judge)
        if judge.startswith("{"):
            return get_judge(_parse(judge))
        if is_address(judge):
            url, model = split_address(judge, "judge")
            return get_judge({"name": "vlm", "model": model, "base_url": url})
        return JUDGES.find(judge)
    if isinstance(judge, Mapping):
        return _made(**{"name": "vlm", **judge})
    return JUDGES.checked(judge)


def _parse(text: str) -> Mapping[str, Any]:
    try:
        options = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"judge {text!r} is not JSON: {error}.") from error
    if not isinstance(options, dict):
        raise ConfigError(f"judge {text!r} is a {type(options).__name__}; it must be an object of options.")
    return options


def _made(name: object, **options: Any) -> Judge:
    if name == "vlm":
        return JUDGES.find(name, **options)
    if not (isinstance(name, str) and (name in JUDGES or ":" in name)):
        raise unknown("judge", name, JUDGES)
    on_error = options.pop("on_error", "raise")
    if on_error not in ON_ERROR:
        raise unknown(f"judge {name!r}: option on_error", on_error, ON_ERROR)
    known = DETAIL_OPTIONS if name in (AutoJudge.name, GroundTruthJudge.name) else ()
    for option in options:
        if option not in known:
            raise unknown(f"option of judge {name!r}", option, ["on_error", *known])
    judge = JUDGES.find(name, **options)
    return MaskingJudge(judge) if on_error == "mask" else judge


def __getattr__(name: str) -> Any:
    """Import `VLMJudge` when it is asked for."""
    if name == "VLMJudge":
        from codev_env.judges.vlm import VLMJudge

        return VLMJudge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
