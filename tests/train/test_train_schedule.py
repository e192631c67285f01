"""The simulator of the schedule against cases that can be computed by hand."""

from __future__ import annotations

import dataclasses

import pytest

from codev_agents.engines.options import VllmOptions
from codev_train.run.options import EstimateOptions, TrainOptions
from codev_train.run.schedule import SchedulePlan, lengths, plan_of, simulate, splits, table
from codev_train.run.sizes import KNOWN_MODELS

EQUAL = SchedulePlan([1.0], count=2, group=2, update=4.0, crowding=1.0)  # four episodes share one core: four seconds
RUN = TrainOptions(
    engine="vllm",
    vllm=VllmOptions(memory=0.5),
    precision="bf16",
    gradient_checkpointing=True,
    token_budget=32768,
    max_length=28672,
    estimate=EstimateOptions(gpus=8, shards=8, trajectory=6000, response=1000),
)


def plan(**changes) -> SchedulePlan:
    return dataclasses.replace(EQUAL, **changes)


def test_in_turn_the_times_add_up():
    found = simulate(EQUAL)
    assert (found.seconds, found.lag, found.dropped) == (pytest.approx(8), 0, 0)
    assert (found.idle_trainer, found.idle_engines) == (pytest.approx(0.5), pytest.approx(0.5))
    assert simulate(plan(push=1.0)).seconds == pytest.approx(9)


@pytest.mark.parametrize("in_flight", [True, False])
def test_ahead_the_longer_one_counts(in_flight):
    found = simulate(plan(staleness=1, in_flight=in_flight))
    assert (found.seconds, found.lag, found.dropped) == (pytest.approx(4), 1, 0)
    assert found.idle_trainer == found.idle_engines == pytest.approx(0)
    assert simulate(plan(staleness=1, update=2.0)).idle_trainer == pytest.approx(0.5, abs=0.05)
    assert simulate(plan(staleness=1, update=8.0)).idle_engines == pytest.approx(0.5, abs=0.05)


def test_engines_divide_the_episodes_and_places_bound_them():
    assert simulate(plan(engines=2)).seconds == pytest.approx(2 + 4)
    assert simulate(plan(crowding=0.0)).seconds == pytest.approx(1 + 4)
    assert simulate(plan(crowding=0.0, slots=1)).seconds == pytest.approx(4 + 4)


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_push_stops_the_engines_and_not_the_trainer(in_flight):
    """Two seconds of sampling, then a push of one."""
    pushing = plan(crowding=0.0, slots=2, push=1.0, staleness=1, in_flight=in_flight)
    assert simulate(dataclasses.replace(pushing, update=2.0), 17).seconds == pytest.approx(3)
    assert simulate(dataclasses.replace(pushing, update=3.0), 17).seconds == pytest.approx(3)
    assert simulate(dataclasses.replace(pushing, update=4.0), 17).seconds == pytest.approx(4)


def test_one_push_ends_before_the_next():
    """Two seconds of a push and 0.4 of sampling are the least, three those of one after the other."""
    assert 2.4 <= simulate(plan(lengths=[0.1], update=1.0, push=2.0, staleness=2), 17).seconds < 3


def test_a_straggler_holds_up_a_run_in_turn_and_not_one_ahead():
    slow = plan(lengths=[10.0, *[1.0] * 15], crowding=0.0, update=10.0)
    assert simulate(slow, 34).seconds > 12
    assert simulate(dataclasses.replace(slow, staleness=2), 34).seconds == pytest.approx(10, rel=0.02)


def test_groups_that_took_too_long_are_dropped():
    found = simulate(plan(lengths=[100.0, *[1.0] * 15], crowding=0.0, update=4.0, staleness=1), 40)
    assert found.dropped > 0 and found.lag <= 1


def test_a_drawn_mean_is_the_one_asked_for():
    assert sum(lengths(3.0, 0.7)) / 4096 == pytest.approx(3.0)
    assert set(lengths(2.0, 0.0, 5)) == {2.0}


def test_the_plan_is_that_of_the_estimate():
    size = KNOWN_MODELS["Qwen2.5-VL-7B"]
    made = plan_of(size, RUN)
    assert made is not None and made.engines == 8 and made.staleness == 0 and made.update > 100
    full = 1 + made.crowding * (made.slots - 1)
    assert 0 < made.crowding < 1 and full * sum(made.lengths) / len(made.lengths) > 20


def test_ahead_pays_on_many_gpus():
    size = KNOWN_MODELS["Qwen2.5-VL-7B"]
    found = splits(size, RUN, 64)
    assert found is not None
    turn, ahead = found
    assert turn.servers == 0 < ahead.servers < 64 and ahead.schedule.seconds < turn.schedule.seconds
    text = table(size, RUN, (8, 64))
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["8", "64"]
    assert table(size, dataclasses.replace(RUN, estimate=EstimateOptions())) == ""
