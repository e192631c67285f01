"""Images of every kind, broken ones too: each becomes RGB with its boxes in place, or a clear error."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from real_data import encoded, encoded_image, open_codev_rl, own_cache, verl_row, write_parquet  # noqa: F401

from codev_env.errors import ConfigError, TaskError
from codev_env.tasks.readers.boxes import boxes_from, place_boxes
from codev_env.tasks.readers.images import EXIF_TRANSFORMS, DecodedImage, ImageRules, decode, image_size
from codev_env.transforms import transform_box


def marked(width: int = 60, height: int = 40) -> Image.Image:
    """A gray image with a white box at (10, 5, 20, 15)."""
    image = Image.new("RGB", (width, height), (90, 90, 90))
    image.paste("white", (10, 5, 20, 15))
    return image


def close(image: Image.Image, expected: Image.Image, tolerance: int = 12) -> bool:
    assert (image.mode, image.size) == ("RGB", expected.size)
    return bool(np.abs(np.asarray(image, np.int16) - np.asarray(expected, np.int16)).mean() < tolerance)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("PNG", "RGB"),
        ("PNG", "L"),
        ("PNG", "P"),
        ("PNG", "1"),
        ("GIF", "P"),
        ("JPEG", "CMYK"),
        ("JPEG", "L"),
        ("JPEG", "RGB"),
        ("TIFF", "CMYK"),
        ("WEBP", "RGB"),
        ("BMP", "RGB"),
        ("PPM", "RGB"),
    ],
)
def test_modes_and_formats(kind, mode):
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(marked().convert(mode), kind, **options)
    # Pillow dithers when it reduces colours.
    expected = marked().convert(mode).convert("RGB") if mode in ("1", "P") else marked()
    assert close(decode(data, "x").image, expected)


def test_16_bit_gray_is_scaled_over_its_full_range():
    values = np.linspace(0, 65535, 60 * 40).astype(np.uint16).reshape(40, 60)
    for kind in ("PNG", "TIFF"):
        found = np.asarray(decode(encoded(Image.fromarray(values), kind), "x").image)[..., 0]
        assert np.abs(found.astype(float) - values / 257).max() <= 0.51
        assert (found.min(), found.max()) == (0, 255)


def test_16_bit_colour():
    raw = b"".join(b"\0" + struct.pack(">3H", 65535, 32896, 0) * 40 for _ in range(30))

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">2I5B", 40, 30, 16, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    assert decode(data, "x").image.getpixel((20, 20)) == (255, 128, 0)


def test_32_bit_and_floating_point_pixels():
    good = encoded(Image.fromarray(np.full((40, 40), 65535, np.int32)), "TIFF")
    assert decode(good, "x").image.getpixel((0, 0)) == (255, 255, 255)
    with pytest.raises(TaskError, match="row 1: the image has values outside 0 to 65535"):
        decode(encoded(Image.fromarray(np.full((40, 40), 70_000, np.int32)), "TIFF"), "row 1")
    with pytest.raises(TaskError, match="row 1: the image has floating point pixels"):
        decode(encoded(Image.fromarray(np.zeros((40, 40), np.float32)), "TIFF"), "row 1")


def test_32_bits_that_hold_8_are_taken_as_they_are():
    values = np.linspace(0, 255, 60 * 40).astype(np.int32).reshape(40, 60)
    found = np.asarray(decode(encoded(Image.fromarray(values), "TIFF"), "x").image)[..., 0]
    assert np.array_equal(found, values)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_laid_over_white(mode):
    image = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 20, 40))
    options = {}
    if mode == "P":
        image = Image.new("P", (40, 40), 1)
        image.putpalette([0, 0, 0, 0, 0, 0])
        image.paste(0, (0, 0, 20, 40))
        options = {"transparency": 1}
    found = decode(encoded(image if mode == "P" else image.convert(mode), **options), "x").image
    assert (found.getpixel((5, 5)), found.getpixel((30, 5))) == ((0, 0, 0), (255, 255, 255))


def test_the_first_of_several_frames():
    stream = io.BytesIO()
    marked().save(stream, "GIF", save_all=True, append_images=[Image.new("RGB", (60, 40), "red")])
    assert close(decode(stream.getvalue(), "x").image, marked())


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_orientation_turns_image_and_box(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    data = encoded(marked(), kind, exif=exif, **options)
    shown = decode(data, "x")
    assert (shown.orientation, shown.stored, shown.upright) == (orientation, (60, 40), shown.image.size)
    assert shown.image.size == ((40, 60) if orientation >= 5 else (60, 40))
    (box,) = place_boxes([(10, 5, 20, 15)], shown, "x", "stored")
    assert np.asarray(shown.image.crop(box)).min() > 200
    assert (np.asarray(shown.image)[..., 0] > 200).sum() <= 130
    assert place_boxes([box], shown, "x", "shown") == (box,)
    stored = decode(data, "x", ImageRules(orient=False))
    assert (stored.orientation, stored.image.size) == (1, (60, 40))
    assert np.asarray(stored.image.crop((10, 5, 20, 15))).min() > 200


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_the_header_has_the_size_before_and_after_turning(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(marked(), kind, exif=exif)
    shown = decode(data, "x")
    assert (image_size(data, "x"), image_size(data, "x", upright=True)) == (shown.stored, shown.upright)


@given(
    st.integers(1, 8),
    st.tuples(st.integers(0, 29), st.integers(0, 19), st.integers(1, 30), st.integers(1, 20)),
)
def test_boxes_turn_as_pixels_do(orientation, corners):
    x1, y1 = corners[0], corners[1]
    x2, y2 = max(x1 + 1, corners[2]), max(y1 + 1, corners[3])
    stored = Image.new("L", (30, 20))
    stored.paste(255, (x1, y1, x2, y2))
    exif = Image.Exif()
    exif[0x0112] = orientation
    shown = decode(encoded(stored, "PNG", exif=exif), "x", ImageRules(small="keep")).image
    assert shown.convert("L").getbbox() == transform_box((x1, y1, x2, y2), (30, 20), EXIF_TRANSFORMS[orientation])


@pytest.mark.parametrize(("size", "expected"), [((10, 10), (28, 28)), ((27, 54), (28, 56)), ((1, 1), (28, 28))])
def test_small_images(size, expected):
    data = encoded(Image.new("RGB", size, "red"))
    found = decode(data, "x")
    assert (found.image.size, found.image.getpixel((1, 1))) == (expected, (255, 0, 0))
    assert found.resized == {"from": list(size), "to": list(expected)}
    assert place_boxes([(0, 0, *size)], found, "x") == ((0, 0, *expected),)
    assert decode(data, "x", ImageRules(small="keep")).image.size == size
    with pytest.raises(TaskError, match=rf"row 3: the image is {size[0]}x{size[1]} pixels; its shorter side must have"):
        decode(data, "row 3", ImageRules(small="raise"))


def test_small_and_turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    found = decode(encoded(Image.new("RGB", (20, 14)), "PNG", exif=exif), "x")
    assert (found.upright, found.image.size) == ((14, 20), (28, 40))
    assert place_boxes([(0, 0, 10, 7)], found, "x", "stored") == ((14, 0, 28, 20),)


@pytest.mark.parametrize("size", [(30, 3001), (3001, 30), (1, 101)])
def test_narrow_images(size):
    with pytest.raises(TaskError, match=rf"f, row 1: the image is {size[0]}x{size[1]} pixels, narrower than 1:100"):
        decode(encoded(Image.new("RGB", size)), "f, row 1")
    assert decode(encoded(Image.new("RGB", size)), "x", ImageRules(max_aspect=200)).image.size[0] >= 28


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises any number of pixels."""
    data = encoded(Image.new("1", (8, 8)))
    header = struct.pack(">2I5B", width, height, 1, 0, 0, 0, 0)
    return data[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + data[33:]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [(10_000, 9_000), (12_000, 12_000), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_decompression_bombs(size):
    with pytest.raises(TaskError, match="row 9: the image (has .* pixels, more than|would take too much memory)"):
        decode(bomb(*size), "row 9")


def test_max_pixels():
    with pytest.raises(TaskError, match="has 100x100 pixels, more than the 9,999 allowed"):
        decode(encoded(Image.new("RGB", (100, 100))), "x", ImageRules(max_pixels=9_999))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"])
def test_truncated_images(kind):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8))
    data = encoded(noise, kind)
    for length in (0, 10, len(data) // 3, len(data) * 2 // 3):
        with pytest.raises(TaskError, match=r"train\.parquet, row 4: the image is broken .*download"):
            decode(data[:length], "train.parquet, row 4")


@given(st.binary(max_size=200), st.integers(0, 2000), st.integers(0, 255))
def test_damaged_images_never_raise_anything_else(junk, position, value):
    data = bytearray(encoded_image(3, kind="JPEG"))
    data[position % len(data)] = value
    for damaged in (bytes(data), junk, encoded_image()[:40] + junk):
        try:
            assert decode(damaged, "x").image.mode == "RGB"
        except TaskError as error:
            assert str(error).startswith("x: ")


def test_formats_that_run_programs_are_not_opened():
    stream = io.BytesIO()
    marked().save(stream, "EPS")
    with pytest.raises(TaskError, match="the image is broken"):
        decode(stream.getvalue(), "x")


@pytest.mark.parametrize("read", [decode, image_size])
def test_what_is_no_image_is_said_the_same_each_time(read):
    for data in (b"", b"nothing"):
        with pytest.raises(TaskError, match="no image of a known format") as caught:
            read(data, "x")
        assert " object at 0x" not in str(caught.value)


def test_a_file_is_named(tmp_path):
    path = tmp_path / "a.png"
    with pytest.raises(TaskError, match=r"rows.jsonl, line 3: .*a\.png: the image is missing"):
        decode(path, "rows.jsonl, line 3")
    path.write_bytes(b"nothing")
    with pytest.raises(TaskError, match=r"rows.jsonl, line 3: .*a\.png: the image is broken"):
        decode(path, "rows.jsonl, line 3")
    path.write_bytes(encoded(marked()))
    assert decode(path, "x").image.size == (60, 40)


@pytest.mark.parametrize(
    "options",
    [{"small": "shrink"}, {"min_side": 0}, {"max_aspect": 0.5}, {"max_pixels": 0}, {"max_aspect": float("nan")}],
)
def test_rules_that_cannot_be(options):
    with pytest.raises(ConfigError, match=f"image rule '{next(iter(options))}' is"):
        ImageRules(**options)


def test_rules_as_a_mapping(tmp_path):
    rows = [verl_row(0, images=[{"bytes": encoded(Image.new("RGB", (20, 20))), "path": None}], extra_bbox=None)]
    path = write_parquet(tmp_path / "train.parquet", rows)
    assert open_codev_rl(path, images={"small": "keep"})[0].image.size == (20, 20)
    assert open_codev_rl(path)[0].image.size == (28, 28)
    with pytest.raises(ConfigError, match="unknown image rule 'smal'. Did you mean 'small'"):
        open_codev_rl(path, images={"smal": "keep"})


# ---- boxes


@pytest.mark.parametrize(
    ("value", "form", "expected"),
    [
        (None, "xyxy", ()),
        ([], "xyxy", ()),
        ([0, 0, 0, 0], "xyxy", ()),
        ([[]], "xyxy", ()),
        ([1, 2, 3, 4], "xyxy", ((1, 2, 3, 4),)),
        ([1, 2, 3, 4], "xywh", ((1, 2, 4, 6),)),
        ([[1, 2, 3, 4.5], [5, 6, 7, 8]], "xyxy", ((1, 2, 3, 4.5), (5, 6, 7, 8))),
    ],
)
def test_forms_of_boxes(value, form, expected):
    assert boxes_from(value, "x", form=form) == expected


@pytest.mark.parametrize(
    "value", [[1, 2, 3], [[1, 2, 3]], "1,2,3,4", [1, 2, "3", 4], [3, 2, 1, 4], [1, 2, float("nan"), 4], 7, [True] * 4]
)
def test_boxes_that_are_none(value):
    with pytest.raises(TaskError, match="f, row 1: .*box"):
        boxes_from(value, "f, row 1")


def test_boxes_are_rounded_outwards_and_clipped():
    shown = DecodedImage(Image.new("RGB", (60, 40)), (60, 40))
    assert place_boxes([(-0.4, 1.2, 60.9, 39.1)], shown, "x") == ((0, 1, 60, 40),)
    with pytest.raises(TaskError, match=r"row 1: the box \[0, 0, 62, 9\].*which is 60x40 pixels"):
        place_boxes([(0, 0, 62, 9)], shown, "row 1")


def test_a_bad_image_in_a_data_set(tmp_path):
    rows = [verl_row(i) for i in range(3)]
    rows[1]["images"] = [{"bytes": bomb(20_000, 20_000), "path": None}]
    tasks = open_codev_rl(write_parquet(tmp_path / "train.parquet", rows))
    with pytest.raises(TaskError, match=r"train\.parquet, row 1: the image"):
        tasks[1]
    assert [bad.row for bad in tasks.validate().bad] == [1]
