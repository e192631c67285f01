"""What provenance does where time, runs or memory come to an end, or the sandbox breaks."""

from __future__ import annotations

import itertools

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
"""A program that keeps next to nothing of the colours."""
TILTED = THRESHOLD.replace("convert('L')", "rotate(20).filter(ImageFilter.GaussianBlur(2)).convert('L')")
"""A program that no early stage can place."""
SAVES = LOAD + "im.crop((0, 0, 50, 50)).save('a.png')"


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


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_trace_runs_only_so_many_programs_and_what_it_cannot_place_is_unknown(monkeypatch, most):
    monkeypatch.setattr("codev_env.provenance.tracker.MOST_RUNS", most)
    session = FakeSession({NAME: SCENE})
    (region,) = Tracker(session, [SCENE]).trace(TILTED, session.run(TILTED))
    assert region == Region() and len(session.runs) <= 1 + most


def test_the_bound_counts_pixels_too(monkeypatch):
    monkeypatch.setattr("codev_env.provenance.tracker.MOST_PIXELS", 3 * 420 * 315 - 1)
    session = FakeSession({NAME: SCENE})
    (region,) = Tracker(session, [SCENE]).trace(TILTED, session.run(TILTED))
    assert region == Region() and len(session.runs) <= 1 + 2


def test_the_programs_of_earlier_turns_count_before_a_stage_begins(monkeypatch):
    monkeypatch.setattr("codev_env.provenance.tracker.MOST_RUNS", 3)
    session = FakeSession({NAME: SCENE})
    tracker = Tracker(session, [SCENE])
    for _ in range(3):
        tracker.trace(SAVES, session.run(SAVES))
    crop = LOAD + "Image.open('a.png')\nshow(im.crop((60, 40, 260, 240)).resize((300, 300)))"
    (region,) = tracker.trace(crop, session.run(crop))
    assert region == Region() and session.runs == ["main"] * 4


def test_no_clock_decides_a_result(monkeypatch):
    """However long each run takes, the result is the same: there is no time budget."""
    import time

    session = FakeSession({NAME: SCENE})
    execution = session.run(THRESHOLD)
    monkeypatch.setattr(time, "monotonic", itertools.count(step=1e6).__next__)
    monkeypatch.setattr(time, "perf_counter", itertools.count(step=1e6).__next__)
    (region,) = Tracker(session, [SCENE]).trace(THRESHOLD, execution)
    assert region.box == pytest.approx((60, 40, 260, 240), abs=2)


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
