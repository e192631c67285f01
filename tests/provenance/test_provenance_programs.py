"""Generated programs of every kind, with known truth: what is claimed is right, and what can be placed is placed."""

from __future__ import annotations

import numpy as np
import pytest
from fake_session import FakeSession
from geometric_programs import scene
from halves import half_quick
from traced_programs import ALWAYS, EVERY, OTHER, Case, make

from codev_env.provenance import Tracker
from codev_env.sandbox import Limits, Sandbox
from codev_env.types import Region

SCENE = scene((420, 315))


def play(case: Case, session) -> Region:  # type: ignore[no-untyped-def]
    tracker = Tracker(session, case.images)
    for program in case.programs:
        execution = session.run(program)
        assert execution.error is None, f"{execution.error}\n{program}"
        regions = tracker.trace(program, execution)
    return regions[-1]


def check(kind: str, case: Case, region: Region) -> None:
    said = f"{kind}: {region}\n{case.programs[-1]}"
    if kind in ALWAYS and not (kind == "blur" and region.how == "unknown"):  # A few plain pixels show nothing.
        assert region.how == "probe", said
    if case.polygon is None:
        assert region.polygon is None, said
    elif region.polygon is not None:
        # Stripes, which place what changes colours beyond recognition, are read less exactly.
        assert case.error(region.polygon) <= case.tolerance * (1 if kind in ALWAYS else 2), said
        assert region.image_index == case.index, said
    if case.share is not None:
        assert region.original_share == pytest.approx(case.share, abs=0.05), said
    for box in case.hidden:
        assert seen_share(region, box) <= 0.35, said


def seen_share(region: Region, box: tuple[int, int, int, int]) -> float:
    """The share of the points in a box of the original that an unturned region shows."""
    if region.seen is None:
        return 1.0
    (x1, y1), _, (x2, y2), _ = region.polygon
    rows, columns = region.seen.shape
    x = x1 + (np.arange(columns) + 0.5) * (x2 - x1) / columns
    y = y1 + (np.arange(rows) + 0.5) * (y2 - y1) / rows
    inside = ((x > box[0]) & (x < box[2]))[None] & ((y > box[1]) & (y < box[3]))[:, None]
    return float(region.seen[inside].mean())


@pytest.mark.parametrize("kind", half_quick(EVERY))
def test_programs_of_a_kind_are_placed_or_unknown_but_never_wrongly(kind):
    for seed in range(4 if kind in ALWAYS and kind != "plot" else 1):
        case = make(kind, SCENE, seed)
        check(kind, case, play(case, FakeSession(case.images)))


@pytest.mark.parametrize(
    "count", [pytest.param(8, marks=pytest.mark.integration), pytest.param(40, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("kind", EVERY)
def test_programs_of_a_kind_in_the_real_sandbox(kind, count, box):
    """A soak runs 40 of each kind, 2 000 in all."""
    unknown = 0
    for seed in range(1000, 1000 + count):
        case = make(kind, SCENE, seed)
        with box.session(case.images) as session:
            region = play(case, session)
        check(kind, case, region)
        unknown += region.how == "unknown"
    if kind not in ("liar", "otsu"):
        assert unknown <= count // 2, f"{unknown} of {count} are unknown"


@pytest.fixture(scope="module")
def box():
    with Sandbox(Limits(wall_s=20)) as made:
        yield made


def test_the_kinds_cover_several_inputs_and_turns():
    assert OTHER in make("several inputs", SCENE, 0).images
    assert len(make("over turns", SCENE, 0).programs) == 3
