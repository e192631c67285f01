"""Values of a row in the forms that data sets use: nested fields, JSON text, encoded images."""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import ExifTags, Image

from codev_env.errors import TaskError
from codev_env.python_text import literal
from codev_env.tasks.readers.fields import brief
from codev_env.tasks.readers.images import BROKEN, exif_orientation

_PATH = 1024  # characters that a path has at most
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_CONVERTED = {"HSV": "RGB", "RGBa": "RGBA", "La": "LA"}  # modes that no file without loss has
_LINE_END = re.compile(r"\s*[\r\n]\s*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DATA_URI = re.compile(r"^data:[^,]{0,100};base64,")


def nested_value(row: Mapping[str, Any], column: str) -> Any:
    """Return field `b` of field `a` for `"a.b"`, where `a` may be written as JSON text; `None` where there is none."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def parsed(value: Any, where: str, *, plain_text: bool = False) -> Any:
    """Parse a list or mapping that is written as JSON text; an empty text is `None`.

    Args:
        value: Any value; all but texts are returned as they are.
        where: Names row and file in errors.
        plain_text: Return a text that starts neither a list nor a mapping as it is.

    Raises:
        TaskError: A text that is not JSON.
    """
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    if plain_text and not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{where}: {brief(value)} is not JSON ({error}).") from error


def image_sources(value: Any, where: str, folder: Path) -> tuple[bytes | Path, ...]:
    """Return the images of a value, still encoded.

    Args:
        value: Bytes; base64 text, with or without `data:` prefix; a path; `{"bytes": …, "path": …}` as Hugging Face
            writes it; a `PIL.Image.Image`; or a list of these, the texts also as JSON.
        where: Names row and file in errors.
        folder: Folder of relative paths, which may also be in its `images/`.

    Raises:
        TaskError: No image, or a value of another kind.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _json_list(value, where)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        found = tuple(_image_source(entry, where, folder) for entry in value)
    else:
        found = () if value is None else (_image_source(value, where, folder),)
    if not found:
        raise TaskError(f"{where}: has no image. Download the data again, or remove the row.")
    return found


def _json_list(value: str, where: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        try:
            return literal(value.strip())  # as Python writes lists, with apostrophes as quotes
        except ValueError:
            raise TaskError(f"{where}: the list of images is not JSON ({error}).") from error


def _image_source(value: Any, where: str, folder: Path) -> bytes | Path:
    value = _content(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Image.Image):
        return _encoded(value, where)
    if isinstance(value, str) and value:
        return _from_text(value, where, folder)
    raise TaskError(f"{where}: the image is {brief(value)}; expected a path, bytes, base64 text, or a PIL image.")


def _content(value: Any) -> Any:
    """Return the bytes or the text of an image; any other value as it is."""
    if isinstance(value, Mapping):
        data = value.get("bytes")
        value = data if data is not None else value.get("path") or value.get("image")
    return str(value).strip() if isinstance(value, str | Path) else value


def _encoded(image: Image.Image, where: str) -> bytes:
    """Encode an image without loss, with the orientation that its EXIF data still asks for."""
    file, exif = io.BytesIO(), Image.Exif()
    try:
        image.load()  # Pillow turns TIFF files while loading them, and finds the tag of some PNG files only then
        exif[ExifTags.Base.Orientation] = exif_orientation(image)
        pixels = image.convert(_CONVERTED[image.mode]) if image.mode in _CONVERTED else image
        pixels.save(file, "PNG" if pixels.mode in _PNG_MODES else "TIFF", exif=exif)
    except (*BROKEN, TypeError, KeyError, AttributeError) as error:
        raise TaskError(
            f"{where}: the image {brief(image)} cannot be encoded ({error}). Convert it to RGB, or remove the row."
        ) from error
    return file.getvalue()


def _from_text(value: str, where: str, folder: Path) -> bytes | Path:
    prefix = _DATA_URI.match(value)
    if _URL.match(value):
        raise TaskError(
            f"{where}: the image is {brief(value)}. URLs are not fetched: download it first, give its path."
        )
    if prefix is None and (found := image_path(value, folder)) is not None:
        return found
    if prefix is None and len(value) <= _PATH and re.search(r"\.\w{2,5}$", value):
        raise TaskError(f"{where}: the image {folder / value} is missing. Download it, or remove the row.")
    try:
        data = base64.b64decode(_LINE_END.sub("", value[prefix.end() :] if prefix else value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise TaskError(
            f"{where}: the image {brief(value)} is neither a file in {folder} nor base64 text ({error})."
        ) from error
    return data


def image_path(value: Any, folder: Path) -> Path | None:
    """Return the file that a text names, in `folder` or its `images/`, or `None` if there is none."""
    return next((place for place in _places(value, folder) if _file_state(place)), None)


def image_files(value: Any, folder: Path) -> dict[str, list[int] | None]:
    """Return change time (ns) and size of the image files that a value names; `None` for places that have no file.

    Args:
        value: As for `image_sources`.
        folder: As there.
    """
    try:
        value = _json_list(value, "") if isinstance(value, str) and value.lstrip().startswith("[") else value
    except TaskError:  # reported when the images are read
        return {}
    found: dict[str, list[int] | None] = {}
    for entry in value if isinstance(value, list | tuple) else [value]:
        for place in _places(_content(entry), folder):
            found[str(place)] = state = _file_state(place)
            if state:
                break
    return found


def changed(files: Mapping[str, list[int] | None]) -> bool:
    """Return whether files differ from what `image_files` returned."""
    return any(_file_state(place) != state for place, state in files.items())


def _places(value: Any, folder: Path) -> tuple[Path, ...]:
    if not isinstance(value, str) or not value or len(value) > _PATH:
        return ()
    return folder / value, folder / "images" / value


def _file_state(path: str | Path) -> list[int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # base64 text may be longer than names can be, and hold any character
        return None
    return [found.st_mtime_ns, found.st_size] if stat.S_ISREG(found.st_mode) else None


def import_optional(module: str, package: str, what: str) -> Any:
    """Import an optional module; raises `TaskError` that says what to install."""
    try:
        __import__(module)
    except ImportError as error:
        raise TaskError(f"{what} needs {package} ({error}). Install it: pip install 'codev-env[data]'.") from error
    return sys.modules[module]
