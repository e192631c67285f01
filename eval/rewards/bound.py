"""`codev rewards bound`: how often blind programs are faithful, beside one random crop of the same total area."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from codev_agents.scripted import expand_box
from codev_env.app.arguments import parse
from codev_eval.rewards.blind import CROPS, FACTOR, PLANS, SIZE, TARGETS, chance, judged, scene, shown_in_all
from codev_eval.rewards.options import BoundOptions

ERRORS = 2.0
"""Standard errors by which a rate may be above its bound."""
EXPERT_MARGINS = (0.0, 0.25, 0.5)
"""Margins of the expert's crop, as shares of the target's sides; 0.25 makes a crop of 2.25 times the target's area."""


@dataclass(frozen=True)
class BlindRate:
    """How often a blind program is faithful.

    Attributes:
        program: Its name.
        target: Share of the image that the targets fill.
        n: Episodes.
        faithful: Share of faithful episodes.
        any_crop: Share with a crop that shows a target, judged alone: the papers' criterion.
        chance: The same of one random crop of the same total area, or of the largest faithful size.
        holds: `faithful` is at most `FACTOR` times `chance`, up to two standard errors.
    """

    program: str
    target: float
    n: int
    faithful: float
    any_crop: float
    chance: float
    holds: bool


@dataclass(frozen=True)
class ExpertRate:
    """The share of faithful episodes of an expert that crops a target with a margin."""

    margin: float
    target: float
    faithful: float


def blind_rates(tasks: int, seed: int) -> list[BlindRate]:
    """Judge every blind program, at crops of every size in turn, on as many scenes for each size of target."""
    return [_blind_rate(name, target, tasks, seed) for name in PLANS for target in TARGETS]


def _blind_rate(name: str, target: float, tasks: int, seed: int) -> BlindRate:
    rng = np.random.default_rng((seed, list(PLANS).index(name), TARGETS.index(target)))
    faithful, found, chances = 0, 0, []
    for number in range(tasks):
        task = scene(rng, target, 1 + int(rng.integers(2)))
        episode = judged(task, PLANS[name](rng, CROPS[number % len(CROPS)]))
        faithful += episode.is_faithful
        found += any(step.any_crop for step in episode.steps)
        chances.append(chance(task, shown_in_all(episode)))
    expected = FACTOR * sum(chances)
    error = math.sqrt(sum(min(1.0, FACTOR * p) * (1 - min(1.0, FACTOR * p)) for p in chances))
    holds = faithful <= expected + ERRORS * error + 1  # One find in a sample proves nothing.
    return BlindRate(name, target, tasks, faithful / tasks, found / tasks, sum(chances) / tasks, holds)


def expert_rates(tasks: int, seed: int) -> list[ExpertRate]:
    """Judge crops around the target, with each margin, for each size of target that leaves them room."""
    rates = []
    for margin in EXPERT_MARGINS:
        for target in TARGETS:
            rng = np.random.default_rng((seed, round(100 * margin), TARGETS.index(target)))
            scenes = [scene(rng, target) for _ in range(tasks)]
            hits = sum(judged(s, [[[expand_box(s.targets[0], SIZE, margin)]]]).is_faithful for s in scenes)
            rates.append(ExpertRate(margin, target, hits / tasks))
    return rates


def main(argv: Sequence[str]) -> int:
    """Run `codev rewards bound`; returns 1 if a blind program is faithful too often."""
    options = parse(BoundOptions, argv, "codev rewards bound")
    blind, expert = blind_rates(options.tasks, options.seed), expert_rates(options.tasks, options.seed)
    if options.json:
        record: dict[str, Any] = {"factor": FACTOR, "tasks": options.tasks, "seed": options.seed}
        print(json.dumps(record | {"blind": list(map(asdict, blind)), "expert": list(map(asdict, expert))}, indent=2))
    else:
        print(tables(blind, expert))
    return int(not all(rate.holds for rate in blind))


def tables(blind: Sequence[BlindRate], expert: Sequence[ExpertRate]) -> str:
    """Return the rates as two Markdown tables, one row for each program or margin, one column for each target."""
    head = ["", *(f"{100 * target:g} %" for target in TARGETS)]
    programs: dict[str, list[str]] = {}
    for rate in blind:
        cell = f"{100 * rate.faithful:.0f} / {100 * rate.chance:.0f}{'' if rate.holds else ' !'}"
        programs.setdefault(rate.program, []).append(cell)
    margins: dict[str, list[str]] = {}
    for one in expert:
        area = f"{(1 + 2 * one.margin) ** 2:.2f} times the target"
        margins.setdefault(area, []).append(f"{100 * one.faithful:.0f}")
    notes = (
        "Blind programs: % faithful / % of one random crop of the same total area, by share of the image that the\n"
        f"target fills; `!` where it is more than {FACTOR:g} times as often and not by chance."
    )
    return "\n\n".join(
        [notes, _table(head, programs), "Crops around the target, by their area: % faithful.", _table(head, margins)]
    )


def _table(head: Sequence[str], rows: dict[str, list[str]]) -> str:
    lines = [head, ["---"] * len(head), *([name, *cells] for name, cells in rows.items())]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
