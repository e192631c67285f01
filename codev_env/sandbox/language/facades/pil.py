"""Pillow as programs see it: names that only compute, with `open`, `save` and `show` on the episode's files."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import io
import posixpath
from typing import Any

import numpy as np
import PIL
from PIL import (
    ExifTags,
    Image,
    ImageChops,
    ImageColor,
    ImageDraw,
    ImageEnhance,
    ImageFilter,
    ImageFont,
    ImageOps,
    ImagePalette,
    ImagePath,
    ImageSequence,
    ImageStat,
    ImageTransform,
)

from codev_env.sandbox.language import guards, imaging, state
from codev_env.sandbox.language.context import FORMATS
from codev_env.sandbox.language.facade import Facade, name_after, pick

_IMAGE_FUNCTIONS = (
    "new merge blend composite alpha_composite eval linear_gradient radial_gradient effect_mandelbrot effect_noise "
    "getmodebands getmodebandnames getmodebase getmodetype UnidentifiedImageError DecompressionBombError Exif"
)
_IMAGE_ENUMS = "Resampling Transpose Transform Dither Palette Quantize"
_PLUGINS = {"PNG": "Png", "JPEG": "Jpeg", "BMP": "Bmp", "GIF": "Gif", "WEBP": "WebP", "TIFF": "Tiff", "PPM": "Ppm"}
_FORMATS = tuple(_PLUGINS)
_HINTS = {
    "ANTIALIAS": "use Image.LANCZOS",
    "core": "use the methods of images",
}
_PACKAGE_HINTS = {
    "ImageMath": "compute with numpy",
    "ImageMorph": "use ImageFilter.MinFilter and MaxFilter, or cv2",
    "ImageFile": "leave it out, images are read whole",
    "ImageGrab": "there is no screen",
    "ImageShow": "use show(image)",
    "ImageTk": "use show(image)",
}
# Options that a program may give for encoding an image into memory: numbers and switches, no files.
_SAVE_OPTIONS = frozenset(
    "quality optimize progressive subsampling lossless compress_level compression method dpi exact".split()
)

_srand = getattr(ctypes.CDLL(None), "srand", None)
_real_open = Image.open
_real_save = Image.Image.save
_real_filter = Image.Image.filter
_real_transform = Image.Image.transform
_real_crop = Image.Image.crop
_real_merge = Image.merge


def _open(fp: Any, mode: str = "r", formats: Any = None) -> Image.Image:
    """`Image.open`: the episode's files by name, or encoded bytes in memory."""
    return decode(fp) if isinstance(fp, io.BytesIO) else state.current().open(fp)


def decode(fp: io.BytesIO) -> Image.Image:
    """Decode an image of one of the known formats; raises as `Image.open` does."""
    image = _real_open(fp, "r", formats=_FORMATS)
    imaging.check_image(image, state.current().limits, "opened")
    image.load()
    copy = image.copy()
    copy.format = image.format
    return copy


def _save(image: Image.Image, fp: Any, format: str | None = None, **params: Any) -> None:
    """`image.save`: into the episode's files, or encoded into bytes in memory."""
    if isinstance(fp, io.BytesIO):
        extension = posixpath.splitext(str(getattr(fp, "name", "")))[1].lower()
        format = FORMATS.get(extension) if format is None else format
        format = None if format is None else str.__str__(format).upper()
        if format is None or format not in (*_FORMATS, "JPG"):
            raise ValueError(f"format={format!r}: one of {', '.join(_FORMATS)} is needed to save to a BytesIO")
        options = {key: value for key, value in params.items() if key in _SAVE_OPTIONS and _is_plain(value)}
        encoded = io.BytesIO()  # it has no name, which older versions of Pillow look up on the disk
        _real_save(image, encoded, format, **options)
        fp.write(encoded.getvalue())
        return
    state.current().save(image, fp, format)


def _is_plain(value: Any) -> bool:
    parts = value if isinstance(value, tuple) else (value,)
    return all(part is None or isinstance(part, bool | int | float | str) for part in parts)


def _show(image: Image.Image, title: str | None = None) -> None:
    """`image.show()`."""
    state.current().show(image)


def _filter(image: Image.Image, filter: Any) -> Image.Image:
    """`image.filter` with Pillow's own filters; others would receive the buffer itself."""
    kind = filter if isinstance(filter, type) else type(filter)
    if not issubclass(kind, ImageFilter.Filter):
        raise TypeError("filter argument should be ImageFilter.Filter instance or class")
    return _real_filter(image, filter)


def _crop(image: Image.Image, box: Any = None) -> Image.Image:
    """`image.crop`, recorded."""
    part = _real_crop(image, box)
    with contextlib.suppress(TypeError, ValueError, OverflowError, RuntimeError):  # no box; or no program runs
        left, top, right, bottom = (int(round(side)) for side in box)
        width, height = (int(side) for side in image.size)
        state.current().cuts.note((width, height), (left, top, right, bottom))
    return part


def _transform(image: Image.Image, size: Any, method: Any, *args: Any, **kwargs: Any) -> Image.Image:
    """`image.transform` with Pillow's own methods."""
    if not isinstance(method, int) and type(method).__module__ != "PIL.ImageTransform":
        raise TypeError("unknown transformation method")
    return _real_transform(image, size, method, *args, **kwargs)


def _fromarray(obj: Any, mode: str | None = None) -> Image.Image:
    """`Image.fromarray` of arrays only; other objects could point at foreign memory."""
    if not isinstance(obj, np.ndarray):
        raise TypeError(f"Image.fromarray takes a numpy array, not {type(obj).__name__}")
    return Image.fromarray(obj) if mode is None else Image.fromarray(obj, mode)


def _frombytes(mode: str, size: Any, data: Any, decoder_name: str = "raw", *args: Any) -> Image.Image:
    """`Image.frombytes`, of raw pixels."""
    if decoder_name != "raw":
        raise ValueError("Image.frombytes reads raw pixels here: give mode, size and data")
    return Image.frombytes(mode, size, bytes(data), "raw", *args)


def _frombuffer(mode: str, size: Any, data: Any, decoder_name: str = "raw", *args: Any) -> Image.Image:
    """`Image.frombuffer`, of raw pixels, which are copied."""
    return _frombytes(mode, size, data, decoder_name, *args)


def _merge(mode: str, bands: Any) -> Image.Image:
    """`Image.merge` of images only: the method `_new` of anything else would receive the buffer itself."""
    bands = list(bands)  # a copy, which no band can change while it is read
    for band in bands:
        if not isinstance(band, Image.Image):
            raise TypeError(f"Image.merge takes images, not {type(band).__name__}")
    return _real_merge(mode, bands)


def _floodfill(image: Image.Image, *args: Any, **kwargs: Any) -> None:
    """`ImageDraw.floodfill`, which by itself would not change an image that shares its pixels."""
    if image.readonly:
        image._copy()
    ImageDraw.floodfill(image, *args, **kwargs)


def _pixels(image: Image.Image) -> Any:
    # Pillow's method returns the buffer itself.
    def getdata(band: int | None = None) -> list[Any]:
        return list(image.getdata(band))

    return getdata


def _image_frombytes(image: Image.Image) -> Any:
    def frombytes(data: bytes, decoder_name: str = "raw", *args: Any) -> None:
        if decoder_name != "raw":
            raise ValueError("image.frombytes reads raw pixels here")
        if image.readonly:
            image._copy()
        image.frombytes(data, "raw", *args)

    return frombytes


def _image_tobytes(image: Image.Image) -> Any:
    def tobytes(encoder_name: str = "raw", *args: Any) -> bytes:
        if encoder_name != "raw":
            raise ValueError("image.tobytes writes raw pixels here: save to a BytesIO for others")
        return image.tobytes("raw", *args)

    return tobytes


def _of_images(function: Any) -> Any:
    # Pillow passes the buffer of the second argument to methods of the first one's: both must be images.
    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if not isinstance(value, Image.Image | int | float):
                raise TypeError(f"{function.__name__}() takes images, not {type(value).__name__}")
        return function(*args, **kwargs)

    return checked


_real_font = ImageFont.FreeTypeFont.__init__


def _font(self: ImageFont.FreeTypeFont, font: Any, *args: Any, **kwargs: Any) -> None:
    if not isinstance(font, io.BytesIO):
        raise OSError("cannot open resource")
    _real_font(self, font, *args, **kwargs)


def _truetype(font: Any = None, size: float = 10, *_args: Any, **_kwargs: Any) -> Any:
    """`ImageFont.truetype`: Pillow's own font in that size, for any font file."""
    if not isinstance(font, str) or not font.lower().endswith((".ttf", ".otf", ".ttc")):
        raise OSError("cannot open resource")
    state.current().repair(f"font {posixpath.basename(font)!r} read as Pillow's own")
    return ImageFont.load_default(size)


def patch() -> None:
    """Replace, in this process, the methods of Pillow that touch files, windows or raw buffers."""
    Image.open = _open  # type: ignore[assignment]
    Image.merge = _merge
    methods = {"save": _save, "show": _show, "filter": _filter, "transform": _transform, "crop": _crop}
    name_after(methods)
    for name, method in methods.items():
        setattr(Image.Image, name, method)
    ImageFont.FreeTypeFont.__init__ = _font  # type: ignore[method-assign]
    guards.handle((Image.Image,), "getdata", _pixels)
    guards.handle((Image.Image,), "frombytes", _image_frombytes)
    guards.handle((Image.Image,), "tobytes", _image_tobytes)
    guards.hide((ImageFont.FreeTypeFont, ImageFont.ImageFont, ImageFont.TransposedFont), "getmask", "getmask2")
    guards.hide((Image.Image,), "_getexif", instead="use image.getexif()")
    guards.hide((ImagePalette.ImagePalette,), "save")
    guards.hide((ImageDraw.ImageDraw,), "im", "draw")
    fonts = (ImageFont.FreeTypeFont, ImageFont.ImageFont, ImageFont.TransposedFont)
    guards.hide(fonts, "font", "font_bytes", "path", "file")
    guards.hide(fonts, "getmask", "getmask2", instead="use ImageDraw.Draw(image).text, getbbox or getlength")
    guards.allow_setting(ImageDraw.ImageDraw, "font", "fill", "fontmode", "ink")
    Image.MAX_IMAGE_PIXELS = 64_000_000


def _image() -> Facade:
    names = pick(Image, f"Image {_IMAGE_FUNCTIONS} {_IMAGE_ENUMS}")
    # NEAREST, BICUBIC, FLIP_LEFT_RIGHT, …: the old names of the enums' members.
    for name in dir(Image):
        if name.isupper() and isinstance(getattr(Image, name), int) and not name.startswith(("MAX", "WARN")):
            names[name] = getattr(Image, name)
    names.update(open=_open, fromarray=_fromarray, frombytes=_frombytes, frombuffer=_frombuffer)
    names.update(MAX_IMAGE_PIXELS=Image.MAX_IMAGE_PIXELS)
    return Facade("PIL.Image", names, _HINTS)


def _public(module: Any, label: str) -> Facade:
    names = {}
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        if own and not name.startswith("_") and callable(value):
            names[name] = value
    return Facade(label, names)


def modules() -> dict[str, Facade]:
    """The façades by import name."""
    draw = Facade("PIL.ImageDraw", {**pick(ImageDraw, "Draw ImageDraw"), "floodfill": _floodfill})
    font = Facade(
        "PIL.ImageFont",
        {**pick(ImageFont, "load_default FreeTypeFont ImageFont TransposedFont Layout"), "truetype": _truetype},
    )
    found = {
        "PIL.Image": _image(),
        "PIL.ImageDraw": draw,
        "PIL.ImageFont": font,
        "PIL.ImageSequence": Facade("PIL.ImageSequence", pick(ImageSequence, "Iterator all_frames")),
    }
    for module in (ImageChops, ImageColor, ImageEnhance, ImageFilter, ImageOps, ImageStat):
        found[module.__name__] = _public(module, module.__name__)
    chops = {name: _of_images(value) for name, value in vars(found["PIL.ImageChops"]).items() if name[0] != " "}
    found["PIL.ImageChops"] = Facade("PIL.ImageChops", chops)
    # Copies: a program may change them.
    tags = {"TAGS": dict(ExifTags.TAGS), "GPSTAGS": dict(ExifTags.GPSTAGS)}
    found["PIL.ExifTags"] = Facade("PIL.ExifTags", tags, dict.fromkeys(("Base", "GPS"), "use TAGS or GPSTAGS"))
    found["PIL.ImagePath"] = Facade("PIL.ImagePath", {"Path": ImagePath.Path})
    found["PIL.ImageTransform"] = _public(ImageTransform, "PIL.ImageTransform")
    found["PIL"] = Facade(
        "PIL",
        {name.partition(".")[2]: facade for name, facade in found.items()}
        | {"__version__": PIL.__version__, "UnidentifiedImageError": PIL.UnidentifiedImageError},
        _PACKAGE_HINTS,
    )
    return found


def seed(value: int, _used: bool) -> None:
    """Start the C library's random stream, from which Pillow's noise and spread come."""
    if _srand is not None:
        _srand(value % (1 << 31))


def warm() -> None:
    """Use once what Pillow loads lazily: codecs, fonts, colour names."""
    for name in _PLUGINS.values():
        importlib.import_module(f"PIL.{name}ImagePlugin")
    Image._initialized = 2  # Pillow loads no more codecs: each makes forking slower, and could be attacked
    image = Image.new("RGB", (32, 32), "red")
    for kind in _FORMATS:
        buffer = io.BytesIO()
        _real_save(image, buffer, kind)
        buffer.seek(0)
        _real_open(buffer, formats=_FORMATS).load()
    draw = ImageDraw.Draw(image)
    draw.text((2, 2), "a", fill=(0, 0, 0), font=ImageFont.load_default())
    draw.text((2, 2), "a", font=ImageFont.load_default(size=12))
    for ready in (
        image.rotate(30, expand=True),
        image.resize((8, 8), Image.Resampling.LANCZOS),
        image.filter(ImageFilter.GaussianBlur(1)),
        image.filter(ImageFilter.SHARPEN),
        image.convert("L").convert("1"),
        image.quantize(4),
        image.convert("LAB"),
        ImageOps.autocontrast(image),
        ImageOps.exif_transpose(image),
        ImageEnhance.Contrast(image).enhance(1.5),
    ):
        ready.getbbox()
    _ = ImageStat.Stat(image).mean
