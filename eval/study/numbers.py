"""`study.json`: the measurements of every run of a study, for use by other programs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codev_env.errors import ConfigError
from codev_env.scoring.metrics import UNVERSIONED
from codev_eval.study.claims import Claim
from codev_eval.study.jobs import Run
from codev_eval.study.methods import Method, Setting, check_options
from codev_eval.study.results import LEVEL, MEASURES, Found, Results

NUMBERS = "study.json"
SCHEMA = 2
_START = "start"
"""Key of the numbers of the starts, beside those of the methods."""
_DIGITS = 4


def setting_numbers(
    results: Results, setting: Setting, methods: Sequence[Method], claims: Sequence[Claim]
) -> dict[str, Any]:
    """Return the measurements in a setting, for `study.json`."""
    rows: dict[str, dict[str, Any]] = {}
    for method in (None, *methods):
        name = method.name if method else None
        if runs := results.runs(setting.name, name):
            rows[name or _START] = {
                "about": method.about if method else "before training",
                "options": dict(method.options) if method else {},
                "curve": method.curve if method else False,
                "runs": [_run_numbers(found) for found in runs],
                "means": {
                    measure.key: {"mean": e.mean, "ci95": [e.low, e.high] if e.n > 1 else None}
                    for measure in MEASURES
                    if (e := results.estimate(setting.name, name, measure.key))
                },
            }
    listed = [dataclasses.asdict(claim) for claim in claims]
    return {"about": setting.about, "methods": rows, "claims": listed, "level": {"faithful": LEVEL}}


def _run_numbers(found: Found) -> dict[str, Any]:
    return {
        "seed": found.run.seed,
        "start": found.start,
        "machine": found.machine,
        "definition": found.definition,
        "training_seconds": found.seconds,
        "episodes_per_update": found.episodes,
        "episodes_until_faithful": None if math.isinf(found.learned) else found.learned,
        "values": dict(found.values),
        "history": {name: [_known(value) for value in row] for name, row in found.history.items()},
    }


def _known(value: float) -> float | None:
    """Return a number of the history as JSON: null where nothing of an update was judged."""
    return None if math.isnan(value) else round(value, _DIGITS)


def read_numbers(
    path: Path, settings: Sequence[Setting], methods: Sequence[Method], facts: Mapping[str, Any]
) -> list[Found]:
    """Return the runs in a `study.json`.

    Args:
        path: The file.
        settings: Known settings; others become settings with nothing but a name.
        methods: Known methods, likewise.
        facts: The scale of the study that they are compared with; the file must have the same.

    Raises:
        ConfigError: The file is not a `study.json`, its study has another scale, or a method there other options.
    """
    try:
        record = json.loads(path.read_text("utf-8"))
        schema, theirs = record["schema"], dict(record.get("facts", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be read as the study.json of a study: {error!r}.") from error
    if schema != SCHEMA:
        raise ConfigError(f"{path} has schema {schema}, not {SCHEMA}: write it again with --report.")
    for name, value in facts.items():
        if theirs.get(name) != value:
            raise ConfigError(f"{path} is of a study with {name} {theirs.get(name)}, not {value}.")
    try:
        return [
            _found(Run(setting, one["seed"], method), one)
            for place, there in record["settings"].items()
            for setting in [_known_row(settings, place) or Setting(place, there["about"])]
            for name, row in there["methods"].items()
            for method in [_method(methods, name, row, path)]
            for one in row["runs"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} lacks something that a study.json has: {error!r}.") from error


def joined(found: Sequence[Found], path: Path, others: Sequence[Found]) -> list[Found]:
    """Add the runs of another study that `found` lacks.

    Args:
        found: The runs that are there.
        path: File of the others, for the message.
        others: Theirs, from `read_numbers`.

    Raises:
        ConfigError: Runs of one seed began with different weights, or with weights that were not recorded.
    """
    starts = {one.run.folder(Path()).parent: one.start for one in found}
    there = {one.run.folder(Path()) for one in found}
    added = []
    for one in others:
        folder = one.run.folder(Path())
        start = starts.get(folder.parent)
        if start is not None and (start != one.start or (not start and folder not in there)):
            raise ConfigError(
                f"--also {path}: its runs of seed {one.run.seed} began with other weights than those here (processors "
                "round otherwise), or it is not noted with which, so they cannot be compared. Do all methods of a seed "
                "on one machine, and other seeds on another."
            )
        if folder not in there:
            added.append(one)
    return [*found, *added]


def _found(run: Run, one: Mapping[str, Any]) -> Found:
    learned = one["episodes_until_faithful"]
    return Found(
        run,
        one["values"],
        {name: [math.nan if value is None else value for value in row] for name, row in one["history"].items()},
        one["episodes_per_update"],
        one["training_seconds"],
        math.inf if learned is None else learned,
        one["start"],
        one["machine"],
        one.get("definition", UNVERSIONED),  # older files do not say
    )


def _method(methods: Sequence[Method], name: str, row: Mapping[str, Any], path: Path) -> Method | None:
    if name == _START:
        return None
    options = row.get("options", {})  # older files do not say
    method = _known_row(methods, name) or Method(name, row["about"], options, row.get("curve", True))
    check_options(dataclasses.replace(method, options=json.loads(json.dumps(method.options))), options, str(path))
    return method


def _known_row(table: Sequence[Any], name: str) -> Any:
    return next((row for row in table if row.name == name), None)
