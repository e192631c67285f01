"""The methods and settings that a study compares, each one row of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codev_env.errors import ConfigError
from codev_env.registry import Registry


@dataclass(frozen=True)
class Method:
    """A training method.

    Attributes:
        name: Its name in tables, and its folder.
        about: Its description, in one line.
        options: The options of `codev train` that make it, by their dotted names.
        curve: Whether the figures over time show it.
    """

    name: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict)
    curve: bool = True


@dataclass(frozen=True)
class Start:
    """A cold start, made once for each seed.

    Attributes:
        name: Its name in folders.
        options: Options of `codev sft` that differ from the preset's, by their dotted names.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """The setting of a comparison, common to all methods.

    Attributes:
        name: Its name in tables, and its folder.
        about: Its description, in one line.
        start: The cold start that they continue.
        train: Options of `codev train` that differ from the preset's, by their dotted names.
        scenes: The scenes that are evaluated on, as `codev eval --scenes` takes them; the test split, which training
            never draws from.
        cue: The option of the scenes that gives answers away, and its value where nothing does.
    """

    name: str
    about: str
    start: Start = Start("taught")
    train: Mapping[str, Any] = field(default_factory=dict)
    scenes: Mapping[str, Any] = field(default_factory=dict)
    cue: tuple[str, Any] = ("cue_p", 0.0)


IMITATION = {
    "reward": "tapo",
    "env.judge": '{"name": "ground_truth", "view_pixels": 4900, "detail_power": 4, "detail_margin": 2.25}',
    "temperature": 1.2,
    "candidates": 4,
    "candidates_share": 0.5,
    "down_sample": 4,
    "imitation.answers": 12,
    "imitation.calls": 20,
    "imitation.weight": 4,
    "imitation.targets": 0,
    "imitation.snap": 56,
}
"""The options of the preset `tiny` that are not those of `tapo`."""

METHODS = (
    Method("outcome", "only the answer is rewarded", {"reward": "outcome"}),
    Method("tapo", "TAPO, its judge knows the truth", {"reward": "tapo"}),
    Method(
        "evidence",
        "TAPO, tasks first that the policy's guess before it looks gets wrong",
        {"reward": "tapo", "candidates": 8},
    ),
    Method("imitation", "TAPO and self-imitation of looks, as the preset tiny has it", IMITATION),
    Method(
        "imitation-noise10",
        "the same, the judge errs in 10 % of calls",
        {**IMITATION, "env.judge": "codev_eval.study.rewards:erring_judge"},
        curve=False,
    ),
    Method("tapo-turn", "TAPO with each turn's own return", {"reward": "tapo", "credit": "turn"}),
    Method("any-call", "the answer, and 0.3 for any tool call", {"reward": "codev_eval.study.rewards:any_call"}),
    Method(
        "codevision",
        "the reward of CodeVision's released code, tasks that say they need a crop, as its data do",
        {"reward": "codevision", "env.wrap": ["crop"]},
    ),
    Method("codevision-unasked", "the same reward where tasks do not say what they need", {"reward": "codevision"}),
    Method("taco", "outcome, and what a call changed in the policy's own answer", {"reward": "taco"}),
    *(
        Method(
            f"tapo-noise{percent:02}",
            f"TAPO, the judge errs in {percent} % of calls",
            {"reward": "tapo", "env.judge": f"noisy:{percent / 100}"},
            curve=False,
        )
        for percent in (5, 10, 20, 40)
    ),
    Method(
        "evidence-turn",
        "evidence with each turn's own return, not divided by the standard deviation",
        {"reward": "tapo", "credit": "turn-mean", "candidates": 8},
    ),
)

VERSIONS = ("imitation", "imitation-gain", "imitation-gain-memory")
"""Versions of self-imitation: today's, and earlier ones, of which only runs are left."""

REMOVED = {"imitation.memory": 0}
"""Options that runs had and training no longer has, with the value at which they were as those of today."""

ABLATIONS = tuple(
    Method(f"imitation-{name}", about, {**IMITATION, **changes}, curve=False)
    for name, about, changes in (
        ("none", "without self-imitation", {"imitation.answers": 0, "imitation.calls": 0}),
        ("calls", "imitates calls alone", {"imitation.answers": 0}),
        ("answers", "imitates answers alone", {"imitation.calls": 0}),
        ("shown", "imitates a crop of the target where no rollout of a task looked", {"imitation.targets": 8}),
        ("light", "imitated tokens weigh as much as an advantage of 1", {"imitation.weight": 1}),
        ("drawn", "no task is chosen by a guess", {"candidates": 1, "candidates_share": 1.0}),
        ("all", "learns from all rollouts of a task", {"down_sample": 0}),
        ("pixels", "detail in pixels of the crop, not as the policy sees them", {"env.judge": "ground_truth"}),
        ("cold", "rollouts at temperature 1", {"temperature": 1.0}),
        ("hot", "rollouts at temperature 1.5", {"temperature": 1.5}),
    )
)
"""The method `imitation` with one of its parts left out or changed each; compared only if named."""

_GLANCE = {"grid": 5, "cue_p": 0.0}
_LARGE = {"cell": 112, "sprite": 80, "jitter": 16, "glyph": 6, "cue_p": 0.9}

SETTINGS = (
    Setting(
        "base",
        "5 x 5 cells, 280 px, the background reveals 9 answers in 10",
        scenes={"preset": "tiny", "cue_p": 0.9},
    ),
    Setting(
        "weak-start",
        "the same from a start of half the supervised steps",
        start=Start("half-taught", {"ground.steps": 240, "ground.more": 0, "ground.until": 0, "imitate.steps": 50}),
        scenes={"preset": "tiny", "cue_p": 0.9},
    ),
    Setting(
        "strong-start",
        "the same from a start of half again as many steps of captions",
        start=Start("well-taught", {"ground.steps": 720}),
        scenes={"preset": "tiny", "cue_p": 0.9},
    ),
    Setting(
        "weak-cue",
        "the background reveals 7 answers in 10",
        train={"env.scene": {"cue_p": 0.7}},
        scenes={"preset": "tiny", "cue_p": 0.7},
    ),
    Setting(
        "strong-cue",
        "the background reveals 97 answers in 100",
        train={"env.scene": {"cue_p": 0.97}},
        scenes={"preset": "tiny", "cue_p": 0.97},
    ),
    Setting(
        "large",
        "560 px, of which the model's first view shows every eighth pixel",
        start=Start("large", {"env.scene": _LARGE, "snap": 112}),
        train={"env.scene": _LARGE},
        scenes={"preset": "tiny", **_LARGE},
    ),
    *(
        Setting(
            name,
            about,
            start=Start(name, {"env.scenes": preset}),
            train={"env.scenes": preset},
            scenes={"preset": preset, "cue_p": 0.9},
        )
        for name, preset, about in (
            ("charts", "chart-page", "small bar charts: which bar is highest"),
            ("documents", "form-page", "form fields with a letter each"),
        )
    ),
    Setting(
        "glance",
        "panels of which the view shows no detail; nothing gives answers away",
        start=Start("glance", {"env.scenes": "glance", "env.scene": _GLANCE}),
        train={"env.scenes": "glance", "env.scene": _GLANCE},
        scenes={"preset": "glance", **_GLANCE},
    ),
)


def check_options(method: Method, there: Mapping[str, Any], where: str) -> None:
    """Raise `ConfigError` if runs under the name of a method had other options than it has.

    Args:
        method: The method.
        there: Options of the runs, by their dotted names; those that are missing count as equal.
        where: Where the runs are, for the message.
    """
    changed = [
        f"{name} {there[name]}, not {value}"
        for name, value in {**REMOVED, **method.options}.items()
        if there.get(name, value) != value
    ]
    if changed:
        raise ConfigError(
            f"{where} has runs of {method.name!r} with other options than that method has now: {', '.join(changed)}. "
            "Give them another name there, or leave them out."
        )


def find(kind: str, table: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Return rows of a table by name, all of them if none is named; `"module:attribute"` imports a row of one's own.

    Raises:
        ConfigError: There is no such row, or what was imported is none.
    """
    of = type(table[0])
    known: Registry[Any] = Registry(
        kind, {row.name: row for row in table}, lambda row: isinstance(row, of), f"a {of.__name__}"
    )
    found = [known.find(name) for name in names or known]
    names = [row.name for row in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"two of the {kind}s {', '.join(names)} have the same name: their folders would be one.")
    return found
