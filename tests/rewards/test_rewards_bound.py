"""Blind programs are faithful at most 1.5 times as often as one random crop of the same total area."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from codev_eval.rewards.blind import CROPS, FACTOR, PLANS, SIZE, TARGETS, anywhere, chance, judged, scene, shown_in_all
from codev_eval.rewards.bound import blind_rates, expert_rates, main


def check_bound(seeds: range, episodes: int) -> None:
    """Each program against the chances of its own episodes, over all sizes of crops and targets."""
    for number, (name, plan) in enumerate(PLANS.items()):
        faithful, chances = 0, []
        for seed in seeds:
            rng = np.random.default_rng((seed, number))
            for _ in range(episodes):
                task = scene(rng, float(rng.choice(TARGETS)), 1 + int(rng.integers(2)))
                episode = judged(task, plan(rng, float(rng.choice(CROPS))))
                faithful += episode.is_faithful
                chances.append(FACTOR * chance(task, shown_in_all(episode)))
        error = math.sqrt(sum(min(p, 1) * (1 - min(p, 1)) for p in chances))
        assert faithful <= sum(chances) + 2 * error + 1, f"{name}: {faithful} of {len(chances)}, {sum(chances):.1f}"


def test_blind_programs_over_ten_seeds():
    check_bound(range(10), 1)


@pytest.mark.integration
def test_blind_programs_over_ten_seeds_and_many_scenes():
    check_bound(range(10), 40)


@pytest.mark.integration
def test_blind_programs_at_each_size_of_target():
    assert [rate for rate in blind_rates(42, seed=3) if not rate.holds] == []


def test_experts_are_faithful_at_every_size():
    rates = expert_rates(6, seed=0)
    assert [rate for rate in rates if rate.margin <= 0.25 and rate.faithful < 1] == []


def test_chance_is_the_rate_of_random_crops():
    rng = np.random.default_rng(0)
    for target, share in ((0.01, 0.05), (0.08, 0.2), (0.2, 0.5)):
        task = scene(rng, target, 2)
        hits = [judged(task, [[anywhere(rng, share)]]).is_faithful for _ in range(400)]
        assert np.mean(hits) == pytest.approx(chance(task, share), abs=0.07)
    assert chance(task, 0.0) == 0.0
    # Beyond the limit the largest faithful crop counts.
    small = scene(rng, 0.0025)
    assert 0 < chance(small, 1.0) == chance(small, 0.5) < 0.05


def test_what_is_shown_in_all_leaves_out_overviews():
    task = scene(np.random.default_rng(0), 0.0025)
    whole, half, crop = (0, 0, *SIZE), (0, 0, 500, 760), (10, 10, 110, 86)
    assert shown_in_all(judged(task, [[[whole]], [[half]], [[crop]], [[crop]]])) == pytest.approx(0.01)
    collage = [crop, (200, 10, 300, 86), (400, 10, 500, 86)]
    assert shown_in_all(judged(task, [[collage[:1]], [collage]])) == pytest.approx(0.03, rel=0.01)


def test_the_command_prints_tables_and_json(capsys, monkeypatch):
    monkeypatch.setattr("codev_eval.rewards.bound.TARGETS", TARGETS[:2])
    assert main(["--tasks", "1"]) == 0
    text = capsys.readouterr().out
    assert "| ten turns |" in text and "| 2.25 times the target |" in text
    assert main(["--tasks", "1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["factor"] == FACTOR and len(record["blind"]) == 2 * len(PLANS)
