"""What is placed without a further run: exact copies and resizes of recorded cuts, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from geometric_programs import scene
from PIL import Image

from codev_env.provenance import Tracker
from codev_env.provenance.cuts import TURNS, Cuts, Piece
from codev_env.sandbox import Sandbox
from codev_env.transforms import orientation, transform_image
from codev_env.types import Execution, Region

SIZE = (420, 315)
SCENE = scene(SIZE)
BOX = (40, 30, 200, 150)


class NoRuns:
    """A session in which no program may run again."""

    persist = "images"

    def add_view(self, *_args: object, **_options: object) -> None:
        raise AssertionError("a view was made")

    def run(self, *_args: object, **_options: object) -> Execution:
        raise AssertionError("a program ran again")


class Blind(NoRuns):
    """A session whose programs show nothing when they run again: only the exact stage can place their images."""

    def add_view(self, *_args: object, **_options: object) -> None:
        pass

    def run(self, *_args: object, **_options: object) -> Execution:
        return Execution()


def placed(output: Image.Image, *cuts: tuple, image: Image.Image = SCENE) -> Region:
    (region,) = Tracker(NoRuns(), [image]).trace("", Execution(images=(output,), cuts=cuts))
    return region


def left_open(output: Image.Image, *cuts: tuple, image: Image.Image = SCENE) -> bool:
    (region,) = Tracker(Blind(), [image]).trace("", Execution(images=(output,), cuts=cuts))
    return region.how != "probe"


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("zoomed", [False, True])
def test_a_turned_cut(turn: str, zoomed: bool) -> None:
    output = transform_image(SCENE.crop(BOX), turn)
    output = output.resize((output.width * 2, output.height * 2), Image.Resampling.LANCZOS) if zoomed else output
    region = placed(output, (SIZE, BOX))
    assert (region.box, region.orientation, region.scale) == (BOX, orientation(turn), 2.0 if zoomed else 1.0)
    assert (region.how, region.original_share, region.seen) == ("probe", 1.0, None)


@pytest.mark.parametrize("turn", TURNS)
def test_a_cut_of_a_turned_input(turn: str) -> None:
    whole = transform_image(SCENE, turn)
    region = placed(whole.crop((20, 50, 160, 150)), (whole.size, (20, 50, 160, 150)))
    (found,) = [piece for piece in [Piece(0, region.box, turn)] if region.box]
    assert transform_image(SCENE.crop(found.box), turn).tobytes() == whole.crop((20, 50, 160, 150)).tobytes()
    assert region.orientation == orientation(turn)


def test_a_cut_of_a_cut_of_an_earlier_turn() -> None:
    tracker = Tracker(NoRuns(), [SCENE])
    assert tracker.trace("", Execution(cuts=((SIZE, (100, 50, 300, 250)),))) == ()
    output = SCENE.crop((130, 90, 190, 170))
    (region,) = tracker.trace("", Execution(images=(output,), cuts=(((200, 200), (30, 40, 90, 120)),)))
    assert region.box == (130, 90, 190, 170)


@pytest.mark.parametrize("size", [(320, 240), (480, 360), (240, 180), (90, 68), (300, 300)])
@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 5])
def test_resizes(size: tuple[int, int], kind: int) -> None:
    region = placed(SCENE.crop(BOX).resize(size, kind), (SIZE, BOX))  # type: ignore[arg-type]
    assert (region.box, region.orientation) == (BOX, "rot0")
    assert region.scale == pytest.approx(min(size[0] / 160, size[1] / 120))


@pytest.mark.parametrize("way", ["INTER_LINEAR", "INTER_CUBIC", "INTER_AREA", "INTER_LANCZOS4"])
@pytest.mark.parametrize("size", [(320, 240), (100, 75)])
def test_resizes_by_opencv(size: tuple[int, int], way: str) -> None:
    cv2 = pytest.importorskip("cv2")
    output = cv2.resize(np.asarray(SCENE)[30:150, 40:200], size, interpolation=getattr(cv2, way))
    assert placed(Image.fromarray(output), (SIZE, BOX)).box == BOX


def test_thumbnails_and_whole_images() -> None:
    small = SCENE.copy()
    small.thumbnail((100, 100))
    for output in (SCENE, SCENE.resize((840, 630)), small, SCENE.reduce(3), SCENE.rotate(90, expand=True)):
        assert placed(output).box == (0, 0, *SIZE)


def test_the_cut_that_is_shown_is_found_among_others() -> None:
    cuts = [(SIZE, (x, 20, x + 160, 140)) for x in range(0, 250, 5)]
    assert placed(SCENE.crop(BOX), *cuts, (SIZE, BOX), *cuts).box == BOX
    assert placed(SCENE.crop(BOX).resize((320, 240)), *cuts, (SIZE, BOX)).box == BOX


@pytest.mark.parametrize("zoom", [1, 2, 5])
def test_another_place_is_never_taken_for_a_cut(zoom: int) -> None:
    """A program that cuts the target out, and shows something else."""
    for shown in ((41, 30, 201, 150), (200, 150, 360, 270), (40, 31, 200, 151)):
        assert left_open(SCENE.crop(shown).resize((160 * zoom, 120 * zoom)), (SIZE, BOX))


@pytest.mark.parametrize("zoom", [1, 2, 6])
def test_a_cut_that_is_painted_over_is_not_shown(zoom: int) -> None:
    side = 12 if zoom < 6 else 40
    output = SCENE.crop(BOX).resize((160 * zoom, 120 * zoom))
    for x, y in ((3, 5), (70 * zoom, 50 * zoom), (160 * zoom - side, 120 * zoom - side)):
        painted = output.copy()
        painted.paste((128, 120, 110), (x, y, x + side, y + side))
        assert left_open(painted, (SIZE, BOX))


def test_plain_areas_and_stripes_may_lie_anywhere() -> None:
    plain = Image.new("RGB", SIZE, "white")
    plain.paste("navy", (250, 0, 300, 315))
    for box in ((10, 10, 110, 90), (220, 10, 320, 90)):
        assert left_open(plain.crop(box), (SIZE, box), image=plain)
        assert left_open(plain.crop(box).resize((200, 160)), (SIZE, box), image=plain)


def test_two_places_with_the_same_pixels_are_not_told_apart() -> None:
    twice = SCENE.copy()
    twice.paste(SCENE.crop((10, 10, 110, 90)), (250, 200))
    both = (SIZE, (10, 10, 110, 90)), (SIZE, (250, 200, 350, 280))
    assert left_open(twice.crop(both[0][1]), *both, image=twice)


def test_a_shrunken_cut_that_was_enlarged_again_is_not_exact() -> None:
    small = SCENE.crop(BOX).resize((40, 30))
    assert left_open(small.resize((320, 240)), (SIZE, BOX))


def test_cuts_of_unknown_sizes_are_no_hints() -> None:
    cuts = Cuts([SIZE])
    cuts.add([((77, 66), (1, 2, 30, 40)), (SIZE, BOX)])
    pieces = list(cuts.pieces())
    assert Piece(0, BOX) in pieces and Piece(0, (0, 0, *SIZE)) in pieces
    assert {piece.box[2] - piece.box[0] for piece in pieces} == {160, 420}


@pytest.mark.parametrize(
    ("code", "box", "turn"),
    [
        ("show(image.crop((40, 30, 200, 150)))", BOX, "rot0"),
        ("show(image.crop((40, 30, 200, 150)).resize((320, 240), Image.BICUBIC))", BOX, "rot0"),
        ("show(image.rotate(90, expand=True).crop((10, 20, 150, 220)))", (200, 10, 400, 150), "rot90"),
        ("show(np.array(image)[30:150, 40:200])", BOX, "rot0"),
        ("show(np.rot90(np.array(image)[30:150, 40:200]))", BOX, "rot90"),
        ("import cv2\na = cv2.imread('input.png')[30:150, 40:200]\nshow(a[..., ::-1])", BOX, "rot0"),
        (
            "w, h = image.size\nshow(image.crop((w // 2, h // 2, w, h)).crop((5, 5, 85, 95)))",
            (215, 162, 295, 252),
            "rot0",
        ),
    ],
)
def test_programs_that_only_cut_run_once(code: str, box: tuple, turn: str) -> None:
    with Sandbox() as made, made.session({"input.png": SCENE}) as session:
        execution = session.run(code)
        assert execution.error is None
        (region,) = Tracker(NoRuns(), {"input.png": SCENE}).trace(code, execution)
        (probed,) = Tracker(session, {"input.png": SCENE}).trace(code, Execution(images=execution.images))
    assert (region.box, region.orientation) == (box, turn)
    assert (probed.box, probed.orientation) == (region.box, region.orientation)
    assert probed.scale == pytest.approx(region.scale, rel=0.1)
