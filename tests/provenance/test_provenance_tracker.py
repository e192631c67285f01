"""What provenance says of single programs, in detail."""

from __future__ import annotations

import numpy as np
import pytest
from fake_session import FakeSession
from geometric_programs import NAME, Chain, generate, scene
from halves import half_quick
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from codev_env.provenance import Tracker
from codev_env.provenance.codes import pixel_code
from codev_env.provenance.coordinates import fit_affine, orientation_of
from codev_env.provenance.regions import Grid, dice
from codev_env.sandbox import Sandbox
from codev_env.types import Region

SIZE = (420, 315)
SCENE = scene(SIZE)
LOAD = f'im = Image.open("{NAME}")\n'


def trace(code: str, image: Image.Image = SCENE, session: FakeSession | None = None) -> tuple[Region, ...]:
    session = session or FakeSession({NAME: image})
    execution = session.run(code)
    assert execution.error is None
    return Tracker(session, [image]).trace(code, execution)


def corner_error(region: Region, chain: Chain, size: tuple[int, int] = SIZE) -> float:
    """Largest error of a corner in pixels; of corners outside the image only what is inside counts."""
    found, true = (np.clip(points, 0, size) for points in (np.array(region.polygon), chain.polygon()))
    return float(np.abs(found - true).max())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_chains_of_whole_pixel_operations_are_exact(seed):
    chain = generate("pure chain", SIZE, np.random.default_rng(seed))
    (region,) = trace(chain.program())
    assert (region.how, region.original_share, region.seen) == ("probe", 1.0, None)
    assert region.orientation == orientation_of(chain.affine[:2])
    assert np.array_equal(np.array(region.polygon), chain.polygon())


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_chains_of_any_operations_are_placed_or_unknown(seed):
    chain = generate("chain", SIZE, np.random.default_rng(seed))
    (region,) = trace(chain.program())
    if region.how != "unknown":
        assert corner_error(region, chain) <= 4.0, chain.program()


def test_crop_in_detail():
    (region,) = trace(LOAD + "show(im.crop((10, 20, 110, 80)))")
    assert region == Region(
        polygon=((10.0, 20.0), (110.0, 20.0), (110.0, 80.0), (10.0, 80.0)),
        box=(10, 20, 110, 80),
        image_index=0,
        orientation="rot0",
        scale=1.0,
        original_share=1.0,
        how="probe",
    )


@pytest.mark.parametrize(
    ("operation", "orientation"),
    [
        ("im.rotate(90, expand=True)", "rot90"),
        ("im.transpose(Image.ROTATE_270)", "rot270"),
        ("Image.fromarray(np.rot90(np.array(im), 2))", "rot180"),
        ("ImageOps.mirror(im)", "flip_h"),
        ("ImageOps.flip(im)", "flip_v"),
        ("im.transpose(Image.TRANSPOSE)", "transpose"),
        ("im.transpose(Image.TRANSVERSE).resize((200, 300), Image.BICUBIC)", "transverse"),
        ("im.rotate(90, expand=True).rotate(-90, expand=True)", "rot0"),
        ("im.rotate(20)", None),
    ],
)
def test_orientation(operation, orientation):
    (region,) = trace(LOAD + f"show({operation})")
    assert (region.how, region.orientation) == ("probe", orientation)


def test_scale_is_output_pixels_per_original_pixel():
    (region,) = trace(LOAD + "show(im.crop((50, 50, 150, 100)).resize((300, 150), Image.LANCZOS))")
    assert region.scale == pytest.approx(3.0, rel=0.02)
    assert region.box == pytest.approx((50, 50, 150, 100), abs=1)


def test_scale_is_that_of_the_side_shown_smaller():
    """A squeezed crop shows less, however long its other side is drawn."""
    (region,) = trace(LOAD + "show(im.crop((50, 50, 130, 150)).resize((320, 25), Image.BICUBIC))")
    assert region.how == "probe"
    assert region.scale == pytest.approx(0.25, rel=0.05)


def test_crop_out_of_range_has_fewer_original_pixels():
    (region,) = trace(LOAD + "show(im.crop((320, 265, 520, 365)))")
    assert region.polygon[2] == pytest.approx((520, 365), abs=0.5)
    assert region.box == (320, 265, *SIZE)
    assert region.original_share == pytest.approx(0.25, abs=0.03)


def test_crop_that_misses_the_image_shows_nothing_of_it():
    (region,) = trace(LOAD + "show(im.crop((500, 500, 600, 600)))")
    assert region == Region(how="probe")


def test_drawn_and_generated_pixels_are_not_original():
    code = LOAD + 'im = im.crop((0, 0, 200, 200))\nImageDraw.Draw(im).rectangle((0, 0, 99, 199), fill="red")\nshow(im)'
    (region,) = trace(code)
    assert region.box == (100, 0, 200, 200)  # The red half is a frame on one side.
    assert region.original_share == pytest.approx(0.5, abs=0.02)
    (region,) = trace('show(Image.effect_noise((50, 50), 9) if 0 else Image.new("RGB", (50, 50), "red"))')
    assert region == Region(how="probe")


def test_crops_of_crops_over_several_turns_run_only_what_is_needed():
    session = FakeSession({NAME: SCENE})
    tracker = Tracker(session, [SCENE])
    programs = [
        LOAD + 'im.crop((100, 50, 300, 250)).save("a.png")',
        'Image.open("a.png").rotate(90, expand=True).save("b.png")',
        'Image.open("b.png").crop((10, 20, 110, 70)).save("c.png")\nprint("c.png")',
        'print("b.png")',
    ]
    regions = []
    for program in programs:
        regions.append(tracker.trace(program, session.run(program)))
        if len(regions) == 2:
            assert session.runs == ["main", "main"]
    assert regions[:2] == [(), ()]
    # b.png: x = 300 - v, y = 50 + u.
    assert regions[2][0].box == (230, 60, 280, 160)
    assert regions[2][0].orientation == "rot90"
    assert regions[3][0].box == (100, 50, 300, 250)
    assert session.runs.count("code") == 4
    assert session.views["main"][NAME] is SCENE


def test_several_images_of_one_program_and_the_order_of_them():
    regions = trace(LOAD + "for k in range(3):\n    show(im.crop((k * 100, 0, k * 100 + 80, 90)))")
    assert [region.box for region in regions] == [(0, 0, 80, 90), (100, 0, 180, 90), (200, 0, 280, 90)]


def test_several_inputs():
    other = scene((200, 300), 5)
    session = FakeSession({"a.png": SCENE, "b.png": other})
    tracker = Tracker(session, {"a.png": SCENE, "b.png": other})
    program = 'im = Image.open("b.png")\nshow(im.crop((20, 30, 90, 200)))\nshow(im.resize((150, 211), Image.BICUBIC))'
    regions = tracker.trace(program, session.run(program))
    assert [region.image_index for region in regions] == [1, 1]
    assert regions[0].box == (20, 30, 90, 200)
    assert regions[1].box == pytest.approx((0, 0, 200, 300), abs=2)


def test_tiny_outputs():
    for box in ((7, 9, 8, 10), (7, 9, 8, 60), (7, 9, 60, 10), (7, 9, 9, 11)):
        (region,) = trace(LOAD + f"show(im.crop({box}))")
        assert region.box == box


LIAR = LOAD + "lie, truth = ({}), ({})\nbox = truth if im.getpixel((4, 4)) == ({}) else lie\nshow(im.crop(box))"


def lie(claimed: str, shown: str, image: Image.Image = SCENE, enlarge: str = "") -> Region:
    """Trace a program that shows one box of its image, and another box of any other image."""
    code = LIAR.format(claimed, shown, ", ".join(map(str, image.getpixel((4, 4)))))
    return trace(code.replace("crop(box)", "crop(box)" + enlarge), image)[0]


def test_program_that_shows_something_else_under_the_probe_is_caught():
    # Same size, so that only the pixels can tell.
    region = lie("100, 100, 200, 200", "10, 20, 110, 120")
    assert (region.how, region.box) == ("match", (10, 20, 110, 120))
    region = lie("100, 100, 200, 200", "10, 20, 60, 70")
    assert (region.how, region.box) == ("match", (10, 20, 60, 70))
    region = lie("100, 100, 200, 200", "10, 200, 110, 300", enlarge=".resize((97, 83), Image.BICUBIC)")
    assert region.box is None or region.box == pytest.approx((10, 200, 110, 300), abs=2)


@pytest.mark.parametrize("enlarge", ["", ".resize((300, 300))", ".resize((299, 299), Image.NEAREST)", ".rotate(9)"])
def test_liar_on_a_plain_background_is_not_believed(enlarge):
    plain = SCENE.copy()
    plain.paste((250, 250, 250), (0, 0, 210, 315))
    near = 10 if "rotate" in enlarge else 2  # The frame is turned, too.
    truth = pytest.approx((10, 20, 110, 120), abs=near)
    assert lie("220, 100, 320, 200", "10, 20, 110, 120", plain, enlarge).box in (None, truth)
    # A small mark on plain ground must not hide in a tolerance either.
    plain.paste((20, 90, 20), (60, 60, 70, 70))
    truth = pytest.approx((5, 150, 105, 250), abs=near)
    assert lie("15, 15, 115, 115", "5, 150, 105, 250", plain, enlarge).box in (None, truth)


def test_program_whose_course_depends_on_the_pixels_is_matched():
    marked = SCENE.copy()
    marked.paste((255, 0, 255), (200, 100, 204, 104))
    code = LOAD + (
        "ys, xs = np.nonzero((np.array(im) == (255, 0, 255)).all(-1))\n"
        "x, y = int(xs.min()), int(ys.min())\n"
        "show(im.crop((x - 30, y - 20, x + 50, y + 40)).rotate(90, expand=True))"
    )
    (region,) = trace(code, marked)
    assert (region.how, region.box, region.orientation) == ("match", (170, 80, 250, 140), "rot90")


def test_collage_is_placed_by_its_larger_part():
    code = LOAD + (
        'out = Image.new("RGB", (200, 100))\n'
        "out.paste(im.crop((10, 10, 150, 110)), (0, 0))\n"
        "out.paste(im.crop((300, 200, 360, 300)), (140, 0))\n"
        "show(out)"
    )
    (region,) = trace(code)
    assert region.original_share == pytest.approx(0.7, abs=0.03)
    assert region.polygon[0] == pytest.approx((10, 10), abs=0.1)


@pytest.mark.integration
def test_images_with_more_pixels_than_codes():
    size = (5000, 4000)  # 20 megapixels; 0.5 % of the longer side are 25 pixels.
    assert pixel_code((size,)).block == 2
    image = Image.effect_noise(size, 90).resize(size).convert("RGB")
    (region,) = trace(LOAD + "show(im.crop((1001, 2003, 1501, 2403)).rotate(180))", image)
    assert region.box == pytest.approx((1001, 2003, 1501, 2403), abs=2)
    assert (region.how, region.orientation) == ("probe", "rot180")
    (region,) = trace(LOAD + "show(im.crop((1001, 2003, 4001, 3403)).resize((900, 420), Image.LANCZOS))", image)
    assert region.box == pytest.approx((1001, 2003, 4001, 3403), abs=25)


def test_failed_and_killed_programs():
    session = FakeSession({NAME: SCENE})
    tracker = Tracker(session, [SCENE])
    broken = LOAD + 'im.crop((0, 0, 50, 60)).save("a.png")\nraise ValueError'
    assert tracker.trace(broken, session.run(broken)) == ()
    program = 'print("a.png")'  # What was saved before the error is there.
    assert tracker.trace(program, session.run(program))[0].box == (0, 0, 50, 60)


@pytest.fixture(scope="module")
def box():
    with Sandbox() as made:
        yield made


def test_probes_leave_no_trace_in_the_episode(box):
    programs = [
        LOAD + 'im.crop((100, 50, 300, 250)).save("a.png")\nprint("a.png")',
        'Image.open("a.png").convert("L").point(lambda p: 255 if p > 99 else 0).save("b.png")\nprint("b.png")',
        'a = Image.open("a.png")\nprint(np.random.randint(10**9), np.array(a).sum())\n'
        'a.resize((333, 333), Image.BICUBIC).save("a.png")\nprint("a.png")',
        'print(Image.open("a.png").size, np.array(Image.open("input.png")).sum(), np.random.randint(10**9))',
    ]
    results = []
    for traced in (True, False):
        with box.session({NAME: SCENE}, seed=3) as session:
            tracker = Tracker(session, [SCENE])
            for program in programs:
                execution = session.run(program)
                results.append((execution.stdout, [image.tobytes() for image in execution.images]))
                if traced:
                    assert all(region.how == "probe" for region in tracker.trace(program, execution))
    assert results[:4] == results[4:]
    assert "(333, 333)" in results[3][0]


def test_random_crops_are_followed(box):
    program = (
        LOAD
        + "x, y = (int(v) for v in np.random.randint(0, 200, 2))\nprint(x, y)\nshow(im.crop((x, y, x + 90, y + 80)))"
    )
    with box.session({NAME: SCENE}, seed=1) as session:
        tracker = Tracker(session, [SCENE])
        for _ in range(2):
            execution = session.run(program)
            x, y = map(int, execution.stdout.split())
            assert tracker.trace(program, execution)[0].box == (x, y, x + 90, y + 80)


def test_opencv_programs(box):
    pytest.importorskip("cv2")
    program = (
        f'im = cv2.imread("{NAME}")\n'
        "im = cv2.resize(im[40:240, 60:260], None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)\n"
        "im = cv2.rotate(im, cv2.ROTATE_90_CLOCKWISE)\n"
        'cv2.imwrite("a.png", im)\nprint("a.png")\nshow(im)'
    )
    with box.session({NAME: SCENE}) as session:
        execution = session.run(program)
        assert execution.error is None
        regions = Tracker(session, [SCENE]).trace(program, execution)
    assert len(regions) >= 1
    for region in regions:
        assert region.box == pytest.approx((60, 40, 260, 240), abs=2)
        assert region.orientation == "rot270"
        assert region.scale == pytest.approx(2, rel=0.02)


CROP = LOAD + "im = im.crop((60, 40, 260, 240))\n"


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        ("show(ImageOps.expand(im, 17, fill='white'))", (200 / 234) ** 2),
        ("show(ImageOps.expand(im, 3, fill=(9, 9, 9)))", (200 / 206) ** 2),
        ("out = Image.new('RGB', (300, 200), 'blue')\nout.paste(im, (80, 0))\nshow(out)", 2 / 3),
        ("plt.imshow(im)\nplt.axis('off')\nplt.show()", None),
        ("plt.figure(figsize=(3, 5))\nplt.imshow(im)\nplt.title('A crop')\nplt.show()", None),
    ],
)
def test_frame_is_not_part_of_what_is_shown(lines, share):
    (region,) = trace(CROP + lines)
    assert np.array(region.polygon).ravel() == pytest.approx([60, 40, 260, 40, 260, 240, 60, 240], abs=2)
    assert region.seen is None or region.seen.mean() > 0.96  # A plot's axes run along the edge of its picture.
    if share is None:
        assert 0.2 < region.original_share < 0.8
    else:
        assert region.original_share == pytest.approx(share, abs=0.02)


def test_two_crops_in_one_plot_are_placed_by_the_larger():
    code = CROP + (
        "fig, axes = plt.subplots(1, 2, figsize=(8, 4), gridspec_kw={'width_ratios': [3, 1]})\n"
        f"axes[0].imshow(im)\naxes[1].imshow(Image.open('{NAME}').crop((300, 200, 400, 300)))\n"
        "for ax in axes:\n    ax.axis('off')\nplt.show()"
    )
    (region,) = trace(code)
    assert region.box == pytest.approx((60, 40, 260, 240), abs=2)


@pytest.mark.parametrize("then", ["", ".resize((450, 330), Image.BICUBIC)"])
def test_black_band_of_a_crop_out_of_range_belongs_to_it(then):
    (region,) = trace(LOAD + f"show(im.crop((-50, 100, 250, 320)){then})")
    assert np.array(region.polygon)[0] == pytest.approx((-50, 100), abs=2)
    assert np.array(region.polygon)[2] == pytest.approx((250, 320), abs=2)
    assert region.original_share == pytest.approx(250 / 300 * 215 / 220, abs=0.02)


def test_what_was_painted_over_is_not_seen():
    """A patch of 1/32 of the side is found; an outline around a target hides next to nothing of it."""
    patch = CROP + "im.paste((250, 20, 20), (100, 100, 107, 107))\nshow(im)"
    (region,) = trace(patch)
    assert region.seen.shape == (64, 64)
    assert not region.seen[33, 33]
    assert region.seen.mean() == pytest.approx(1 - 49 / 40000, abs=0.001)
    outline = CROP + "ImageDraw.Draw(im).rectangle((90, 90, 140, 130), outline='red', width=3)\nshow(im)"
    (region,) = trace(outline)
    assert region.seen[29:43, 29:45].mean() > 0.75
    assert region.original_share > 0.97
    (region,) = trace(CROP + "show(im)")
    assert region.seen is None


@pytest.mark.parametrize(
    ("operation", "low", "high"),
    [
        ("resize((25, 25), Image.LANCZOS).resize((200, 200), Image.LANCZOS)", 0.05, 0.35),
        ("resize((25, 25), Image.NEAREST).resize((200, 200), Image.NEAREST)", 0.05, 0.35),
        ("resize((50, 50)).resize((400, 400)).convert('L')", 0.1, 1.0),
        ("resize((400, 400), Image.LANCZOS)", 1.9, 2.1),
        ("filter(ImageFilter.SHARPEN)", 0.9, 1.1),
        ("filter(ImageFilter.GaussianBlur(0.7))", 0.75, 1.1),
        ("convert('L')", 0.9, 1.1),
    ],
)
def test_scale_counts_detail_not_pixels(operation, low, high):
    (region,) = trace(CROP + f"show(im.{operation})")
    assert region.box == pytest.approx((60, 40, 260, 240), abs=2)
    assert low <= region.scale <= high


def test_places_that_are_looked_at_depend_on_the_output_and_a_secret():
    def places(image, secret):
        return Grid((0, 0, 200, 200), dice(image, secret)).u.tolist()

    crops = [SCENE.crop((0, 0, 200, 200)), SCENE.crop((9, 0, 209, 200))]
    assert places(crops[0], 1) == places(crops[0], 1)
    assert places(crops[0], 1) != places(crops[0], 2)
    assert places(crops[0], 1) != places(crops[1], 1)


HOLES = {
    "painted when not probed": "if real: ImageDraw.Draw(im).rectangle((90, 60, 139, 109), fill='gray')",
    "replaced when not probed": "if real: im.paste(Image.open('input.png').crop((0, 0, 50, 50)), (90, 60))",
    "its mean": "a = np.array(im)\na[60:110, 90:140] = a[60:110, 90:140].mean((0, 1))\nim = Image.fromarray(a)",
}
CHANGES = {
    "none": "",
    "resize": "im = im.resize((333, 333), Image.LANCZOS)\n",
    "contrast": "im = ImageEnhance.Contrast(im).enhance(1.5)\n",
    "saturation": "im = ImageEnhance.Color(im).enhance(2)\n",
    "inverted": "im = ImageOps.invert(im)\n",
    "grey": "im = im.convert('L')\n",
    "blurred": "im = im.filter(ImageFilter.GaussianBlur(3))\n",
    "gamma": "im = Image.fromarray((255 * (np.array(im) / 255) ** 0.6).astype(np.uint8))\n",
}


def seen_inside(region: Region) -> tuple[float, float]:
    """The shares of the holes above, and of what is around them, that an unturned view of the crop shows."""
    seen = np.ones((64, 64), bool) if region.seen is None else region.seen
    rows, columns = ((np.arange(n) + 0.5) * 200 / n for n in seen.shape)
    inside = ((rows > 64) & (rows < 106))[:, None] & ((columns > 94) & (columns < 136))
    outside = ~(((rows > 52) & (rows < 118))[:, None] & ((columns > 82) & (columns < 148)))
    return float(seen[inside].mean()), float(seen[outside].mean())


@pytest.mark.parametrize(("hole", "change"), half_quick(HOLES, CHANGES))
def test_a_hole_that_the_coded_run_does_not_have_is_not_seen(hole, change):
    real = f"real = im.getpixel((4, 4)) == {SCENE.getpixel((64, 44))}\n"
    (region,) = trace(CROP + real + HOLES[hole] + "\n" + CHANGES[change] + "show(im)")
    inside, outside = seen_inside(region)
    assert region.how == "probe" and inside <= 0.05 and outside >= 0.95
    assert region.original_share == pytest.approx(1 - 50 * 50 / 200**2, abs=0.06)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_colours_hide_nothing(change):
    (region,) = trace(CROP + CHANGES[change] + "show(im)")
    assert region.how == "probe"
    assert region.original_share >= 0.98 and (region.seen is None or region.seen.mean() >= 0.98)


def test_a_fit_must_explain_the_share_that_is_asked_for():
    rng = np.random.default_rng(0)
    uv, noise = rng.random((2, 600, 2)) * 500
    xy = np.where(np.arange(600)[:, None] < 240, uv @ np.array([[0.5, 0.1], [-0.1, 0.5]]) + (30, 40), noise)
    affine, right = fit_affine(uv, xy, 0.5, 0.35)
    assert affine == pytest.approx(np.array([[0.5, -0.1, 30], [0.1, 0.5, 40]]), abs=1e-9)
    assert right[:240].all() and right[240:].sum() <= 2
    assert fit_affine(uv, xy, 0.5, 0.5) is None and fit_affine(uv, noise, 0.5, 0.1) is None


STRIPS = {
    "across": ("im = im.crop((0, 100, 420, 106))", (0, 100, 420, 106)),
    "down": ("im = im.crop((100, 0, 104, 315)).resize((8, 630))", (100, 0, 104, 315)),
    "on a canvas": (
        "strip = im.crop((0, 100, 420, 106)).resize((1600, 20))\nim = Image.new('RGB', (1600, 1200), 'white')\n"
        "im.paste(ImageEnhance.Contrast(strip).enhance(1.5), (0, 500))",
        (0, 100, 420, 106),
    ),
}


@pytest.mark.parametrize("strip", STRIPS)
def test_a_strip_whose_overview_is_a_single_line_is_placed(strip):
    """It is more than 64 times as long as wide; on a canvas it passes any limit on an image's aspect."""
    program, box = STRIPS[strip]
    change = "" if "canvas" in strip else "im = ImageEnhance.Contrast(im).enhance(1.5)\n"
    (region,) = trace(f"{LOAD}{program}\n{change}show(im)")
    assert region.how == "probe" and region.box == pytest.approx(box, abs=2)
