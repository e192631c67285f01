"""What provenance does where time, runs or memory come to an end, or the sandbox breaks."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest
from fake_session import FakeSession
from geometric_programs import NAME, scene

from codev_env.errors import NoRoom, SandboxError, ViewLost
from codev_env.provenance import Tracker
from codev_env.provenance.codes import MOST_IMAGES, PixelCode
from codev_env.provenance.cuts import Cuts
from codev_env.provenance.kept import kept
from codev_env.provenance.outputs import Outputs
from codev_env.sandbox import Limits, Sandbox
from codev_env.sandbox.host.handle import WorkerHandle
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
        def add_view(self, name, images, *, replace=False, shared=False):
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
        def add_view(self, name, images, *, replace=False, shared=False):
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


def test_the_bound_counts_the_pixels_of_all_outputs(monkeypatch):
    monkeypatch.setattr("codev_env.provenance.tracker.MOST_PIXELS", 3 * (SCENE.width * SCENE.height + 2 * 600**2) - 1)
    session = FakeSession({NAME: SCENE})
    large = TILTED.replace("else 0)", "else 0).resize((600, 600))")
    program = large + large[len(LOAD) - 1 :]
    execution = session.run(program)
    assert [image.size for image in execution.images] == [(600, 600)] * 2
    assert Tracker(session, [SCENE]).trace(program, execution) == (Region(), Region()) and len(session.runs) <= 1 + 2


def test_outputs_of_very_many_pixels_together_are_read_shrunk(monkeypatch):
    most = SCENE.width * SCENE.height
    monkeypatch.setattr("codev_env.provenance.outputs.MOST", most)
    session = FakeSession({NAME: SCENE})
    boxes = (60, 40, 260, 240), (160, 80, 360, 280)
    show = "im.crop({}).convert('L').point(lambda p: 255 if p > 128 else 0).resize((800, 800))"
    program = LOAD + "\n".join(f"show({show.format(box)})" for box in boxes) + "\nshow(im.crop((10, 20, 110, 80)))"
    execution = session.run(program)
    outputs = Outputs(execution, [SCENE.size])
    assert sum(image.width * image.height for image in outputs.images[:2]) <= most
    assert outputs.images[2].size == (100, 60)  # An output that is no larger than the input is read as it is.
    probes = outputs.pair(replace(execution, images=(*execution.images[:2], execution.images[0])))
    assert [probe and probe.size for probe in probes] == [outputs.images[0].size, outputs.images[1].size, None]
    *enlarged, crop = Tracker(session, [SCENE]).trace(program, execution)
    assert crop.box == (10, 20, 110, 80)
    for region, box in zip(enlarged, boxes, strict=True):
        assert np.abs(np.array(region.box) - box).max() <= 3 and region.scale == pytest.approx(4, rel=0.02)


def test_the_programs_of_earlier_turns_count_before_a_stage_begins(monkeypatch):
    monkeypatch.setattr("codev_env.provenance.tracker.MOST_RUNS", 3)
    session = FakeSession({NAME: SCENE})
    tracker = Tracker(session, [SCENE])
    for number in range(3):
        saves = SAVES.replace("a.png", f"a{number}.png")
        tracker.trace(saves, session.run(saves))
    crop = LOAD + "[Image.open(f'a{k}.png') for k in range(3)]\nshow(im.crop((60, 40, 260, 240)).resize((300, 300)))"
    (region,) = tracker.trace(crop, session.run(crop))
    assert region == Region() and session.runs == ["main"] * 4


def test_programs_whose_files_are_not_read_take_no_runs(monkeypatch):
    monkeypatch.setattr("codev_env.provenance.tracker.MOST_RUNS", 3)
    session = FakeSession({NAME: SCENE})
    tracker = Tracker(session, [SCENE])
    for number in range(9):
        saves = SAVES.replace("a.png", f"{number}.png")
        tracker.trace(saves, session.run(saves))
    turns = [
        "Image.open('3.png').crop((10, 10, 40, 40)).save('b.png')",
        "Image.open('b.png').resize((90, 90)).convert('L').save('c.png')\nshow(Image.open('b.png'))",
    ]
    regions = [tracker.trace(code, session.run(code)) for code in turns]
    assert [region.box for region in regions[1]] == [(10, 10, 40, 40)]
    assert session.runs[11:] == ["code"] * 3


def test_a_view_in_which_later_programs_ran_is_made_anew_for_an_earlier_one():
    session = FakeSession({NAME: SCENE})
    tracker = Tracker(session, [SCENE])
    boxes = []
    for code in (
        LOAD + "im.crop((0, 0, 50, 50)).save('a.png')\nim.crop((0, 0, 90, 50)).save('b.png')",
        LOAD + "im = im.crop((100, 100, 150, 160))\nim.save('b.png')\nshow(im)",
        "show(Image.open('a.png').crop((5, 5, 25, 35)))\nshow(Image.open('b.png').crop((5, 5, 25, 35)))",
    ):
        boxes = [region.box for region in tracker.trace(code, session.run(code))]
    assert boxes == [(5, 5, 25, 35), (105, 105, 125, 135)]
    assert session.runs.count("code") == 1 + 3


def test_files_of_a_program_killed_for_memory_are_placed():
    killed = LOAD + "im.crop((60, 40, 260, 240)).save('a.png')\nx = [0] * 10**10"
    with Sandbox() as box, box.session({NAME: SCENE}) as session:
        tracker = Tracker(session, [SCENE])
        execution = session.run(killed)
        assert execution.stop == "memory" and tracker.trace(killed, execution) == ()
        look = "show(Image.open('a.png').crop((10, 10, 60, 50)))"
        (region,) = tracker.trace(look, session.run(look))
        assert region.box == (70, 50, 120, 90)


def test_a_file_that_only_the_real_run_left_before_it_was_killed_is_unknown():
    class Kills(FakeSession):
        def run(self, code, *, view="main"):
            done = super().run(code, view=view)
            if "a.png" in code and "open('a" not in code:
                saves = done.saves if view == "main" else ()
                return replace(done, stop="timeout", saves=saves)
            return done

    session = Kills({NAME: SCENE})
    tracker = Tracker(session, [SCENE])
    regions = ()
    for code in (SAVES, LOAD + "Image.open('a.png')\nshow(im.crop((0, 0, 50, 50)).rotate(9))"):
        regions = tracker.trace(code, session.run(code))
    assert regions == (Region(),)


def test_a_program_that_runs_again_draws_the_numbers_of_its_second_run():
    walk = LOAD + "k = int(np.random.randint(0, 200))\nshow(im.crop((k, k, k + 90, k + 80)).resize((180, 160)))"
    boxes = []
    with Sandbox() as box, box.session({NAME: SCENE}) as session:
        tracker = Tracker(session, [SCENE])
        for code in (walk, "pass", walk.replace("180", "181"), walk):
            boxes += [region.box for region in tracker.trace(code, session.run(code))]
    assert None not in boxes and boxes[0] != boxes[2]


def test_all_earlier_programs_run_where_variables_persist():
    session = FakeSession({NAME: SCENE})
    session.persist = "variables"
    tracker = Tracker(session, [SCENE])
    for code in ("k = 5", "pass", LOAD + "show(im.crop((5, 5, 60, 50)))"):
        tracker.trace(code, session.run(code))
    assert session.runs == ["main"] * 3 + ["code"] * 3


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


@pytest.mark.parametrize("persist", ["images", "variables"])
def test_an_image_saved_into_the_folder_of_an_earlier_program_is_placed(persist):
    with Sandbox() as box, box.session({NAME: SCENE}, persist=persist, repairs=("imports",)) as session:
        tracker = Tracker(session, [SCENE], [NAME])
        regions = ()
        for code in (
            "import os\nos.makedirs('out', exist_ok=True)",
            LOAD + "im.crop((60, 40, 260, 240)).convert('L').filter(ImageFilter.MedianFilter(3)).save('out/a.png')\n"
            "show(Image.open('out/a.png'))",
        ):
            execution = session.run(code)
            assert execution.error is None
            regions = tracker.trace(code, execution)
    assert [region.box for region in regions] == [pytest.approx((60, 40, 260, 240), abs=2)]


MANY = [scene((48, 40), seed) for seed in range(MOST_IMAGES + 4)]
NAMES = [f"input{number}.png" for number in range(len(MANY))]


def test_the_pixel_code_holds_so_many_images_and_refuses_more():
    assert len(PixelCode(((48, 40),) * MOST_IMAGES).images) == MOST_IMAGES
    with pytest.raises(ValueError, match=f"at most {MOST_IMAGES}"):
        PixelCode(((48, 40),) * (MOST_IMAGES + 1))


@pytest.mark.parametrize("number", [0, 64, len(MANY) - 1])
@pytest.mark.parametrize("turn", ["im", "im.rotate(90, expand=True)"])
def test_crops_of_more_images_than_the_pixel_code_holds_are_placed(number, turn):
    session = FakeSession(dict(zip(NAMES, MANY, strict=True)))
    program = f"im = Image.open('{NAMES[number]}').crop((5, 6, 37, 34))\nshow({turn})"
    (region,) = Tracker(session, MANY, NAMES).trace(program, session.run(program))
    assert (region.image_index, region.box) == (number, (5, 6, 37, 34)) and session.runs == ["main"]


def test_more_images_than_the_pixel_code_holds_leave_the_other_stages(monkeypatch):
    monkeypatch.setattr("codev_env.provenance.codes.MOST_IMAGES", 1)
    images = [SCENE, scene((420, 315), 1)]
    session = FakeSession(dict(zip(NAMES, images, strict=False)))
    program = THRESHOLD.replace(NAME, NAMES[1])
    (region,) = Tracker(session, images, NAMES[:2]).trace(program, session.run(program))
    assert region.image_index == 1 and region.box == pytest.approx((60, 40, 260, 240), abs=2)
    assert "code" not in session.runs


def test_a_cut_may_be_of_any_of_many_inputs():
    cuts = Cuts([(48, 40)] * 300)
    cuts.add([((48, 40), (5, 6, 37, 34))])
    cut = [piece.image_index for piece in cuts.pieces() if piece.box == (5, 6, 37, 34) and piece.turn == "identity"]
    assert sorted(cut) == list(range(300))


def test_what_is_kept_for_sizes_is_bounded_by_its_bytes(monkeypatch):
    monkeypatch.setattr("codev_env.provenance.kept.MOST_BYTES", 4 * 2500)
    made = []

    @kept(lambda size, index=0: size)
    def make(size, index=0):
        made.append((size, index))
        return object()

    assert make(1000) is make(1000) and make(1000) is not make(1000, index=1)
    make(1400)  # The first is out.
    make(1000, index=1)
    make(1000)
    make(9000)
    assert make(9000) is make(9000)
    assert made == [(1000, 0), (1000, 1), (1400, 0), (1000, 0), (9000, 0)]


@pytest.mark.parametrize("lost", [1, 99])
def test_a_run_that_the_machine_refused_is_late_and_not_unknown(lost):
    class Loses(FakeSession):
        lost = 0

        def run(self, code, *, view="main"):
            if view != "main" and self.lost:
                self.lost -= 1
                raise ViewLost("a sandbox worker was killed")
            return super().run(code, view=view)

    session = Loses({NAME: SCENE})
    tracker = Tracker(session, [SCENE])
    tracker.trace(SAVES, session.run(SAVES))
    look = "show(Image.open('a.png').filter(ImageFilter.MedianFilter(3)).rotate(90))"
    execution = session.run(look)
    session.lost = lost
    assert tracker.trace(look, execution) == (Region(how="late"),)
    session.lost = 0
    (region,) = tracker.trace(look, session.run(look))
    assert region.box == pytest.approx((0, 0, 50, 50), abs=2)


@pytest.mark.parametrize(("kills", "how"), [(1, "probe"), (99, "late")], ids=["once", "each time"])
def test_kills_of_the_machine_make_no_crop_unknown(monkeypatch, kills, how):
    program = (
        LOAD + "c = im.crop((60, 40, 260, 240))\nfor _ in range(3):\n    c = c.filter(ImageFilter.MedianFilter(3))\n"
    )
    program += "show(ImageEnhance.Contrast(c).enhance(1.7))"
    ask, left = WorkerHandle.ask, [kills]

    def killed(self, *request):
        if left[0]:
            left[0] -= 1
            os.kill(self.pid(), signal.SIGSTOP)
            threading.Timer(0.01, os.kill, (self.pid(), signal.SIGKILL)).start()
        return ask(self, *request)

    with Sandbox() as box, box.session({NAME: SCENE}) as session:
        tracker = Tracker(session, [SCENE])
        execution = session.run(program)
        monkeypatch.setattr(WorkerHandle, "ask", killed)
        (region,) = tracker.trace(program, execution)
    assert region.how == how
    if how == "probe":
        assert region.box == pytest.approx((60, 40, 260, 240), abs=2)


def test_a_program_that_hangs_only_where_it_is_probed_is_unknown():
    program = LOAD + "c = im.crop((60, 40, 260, 240)).filter(ImageFilter.MedianFilter(3)).rotate(20)\n"
    program += f"while np.asarray(im).sum() != {np.asarray(SCENE).sum(dtype=int)}: pass\nshow(c.convert('1'))"
    with Sandbox(Limits(wall_s=0.4)) as box, box.session({NAME: SCENE}) as session:
        tracker = Tracker(session, [SCENE])
        (region,) = tracker.trace(program, session.run(program))
    assert region == Region()
