"""What provenance does where time, runs or memory come to an end, or the sandbox breaks."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from fake_session import FakeSession
from geometric_programs import NAME, scene

from codev_env.errors import NoRoom, SandboxError
from codev_env.provenance import Tracker
from codev_env.sandbox import Sandbox
from codev_env.types import Region

SCENE = scene((420, 315))
LOAD = f'im = Image.open("{NAME}")\n'
THRESHOLD = LOAD + "show(im.crop((60, 40, 260, 240)).convert('L').point(lambda p: 255 if p > 128 else 0))"
"""A program that only the last stage can place."""


def test_no_room_for_a_probe_is_said_and_the_episode_goes_on():
    class Full(FakeSession):
        def add_view(self, name, images, *, replace=False):
            if name != "main":
                raise NoRoom("no room")
            super().add_view(name, images)

    session = Full({NAME: SCENE})
    program = LOAD + "show(im.crop((10, 20, 110, 80)).rotate(90, expand=True))"
    with pytest.warns(RuntimeWarning, match="no room"):
        (region,) = Tracker(session, [SCENE]).trace(program, session.run(program))
    assert (region.how, region.box, region.orientation) == ("match", (10, 20, 110, 80), "rot90")


def test_other_failures_of_the_sandbox_are_not_taken_for_no_room():
    class Broken(FakeSession):
        def add_view(self, name, images, *, replace=False):
            if name != "main":
                raise SandboxError("this session is closed")
            super().add_view(name, images)

    session = Broken({NAME: SCENE})
    program = LOAD + "show(im.crop((10, 20, 110, 80)))"
    with pytest.raises(SandboxError, match="closed"):
        Tracker(session, [SCENE]).trace(program, session.run(program))


def test_no_further_run_is_started_when_the_time_budget_is_spent(caplog):
    session = FakeSession({NAME: SCENE})
    execution = session.run(THRESHOLD)
    with caplog.at_level("INFO"):
        regions = Tracker(session, [SCENE], budget_s=0).trace(THRESHOLD, execution)
    assert regions == (Region(how="late"),)
    assert session.runs == ["main", "code"]
    assert "time budget" in caplog.text and "overloaded" in caplog.text


def test_how_long_runs_take_decides_nothing_within_a_minute(monkeypatch):
    session = FakeSession({NAME: SCENE})
    clock = itertools.count(step=1.5)
    monkeypatch.setattr("codev_env.provenance.tracker.time", SimpleNamespace(monotonic=lambda: next(clock)))
    execution = session.run(THRESHOLD)
    (region,) = Tracker(session, [SCENE]).trace(THRESHOLD, execution)
    assert next(clock) > 20 and region.box == pytest.approx((60, 40, 260, 240), abs=2)


def test_a_trace_runs_only_so_many_programs(monkeypatch):
    monkeypatch.setattr("codev_env.provenance.tracker.MOST_RUNS", 3)
    session = FakeSession({NAME: SCENE})
    regions = Tracker(session, [SCENE]).trace(THRESHOLD, session.run(THRESHOLD))
    assert regions == (Region(),) and len(session.runs) == 1 + 3


def test_unknown_outputs_do_not_fill_the_memory_of_a_session():
    """Each run of the last stage takes the place of the one before."""
    with Sandbox() as box, box.session({NAME: SCENE}) as session:
        tracker = Tracker(session, [SCENE])
        sizes = []
        for _ in range(3):
            execution = session.run(THRESHOLD)
            (region,) = tracker.trace(THRESHOLD, execution)
            assert region.box == pytest.approx((60, 40, 260, 240), abs=2)
            sizes.append(session._arena.gaps()[-1][0])
        assert sizes[0] == sizes[1] == sizes[2]
