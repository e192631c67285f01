"""The images that callers give to a session: checked, and as they are described to workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from PIL import Image

from codev_env.errors import SandboxError
from codev_env.sandbox.wire.limits import is_bare_name
from codev_env.sandbox.wire.messages import FileEntry, Where

_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")


def check_images(images: Mapping[str, Image.Image]) -> Mapping[str, Image.Image]:
    """The images that a caller gives by file name, loaded; raises `SandboxError` for those that cannot be used."""
    if not isinstance(images, Mapping):
        kind = type(images).__name__
        raise SandboxError(f"images is a {kind}; images by file name are needed, as in {{'input.png': image}}.")
    for name, image in images.items():
        if not is_bare_name(name):
            raise SandboxError(f"image name {name!r}: a bare file name such as 'input.png' is needed.")
        if not isinstance(image, Image.Image):
            raise SandboxError(f"image {name!r} is a {type(image).__name__}; a PIL image is needed.")
        if not image.width or not image.height:
            raise SandboxError(f"image {name!r} has {image.width}x{image.height} pixels; it must not be empty.")
        if image.mode not in _MODES:
            raise SandboxError(
                f"image {name!r} has mode {image.mode}, whose values have no range that can be shown: "
                "scale them to 0..255 and convert it to 'L' or 'RGB' first."
            )
        try:
            image.load()
        except (OSError, ValueError, SyntaxError) as error:
            raise SandboxError(f"image {name!r} cannot be read: {error}.") from error
    return images


def check_times(times: Sequence[float], count: int) -> list[float]:
    """The seconds of so many frames; raises `SandboxError` unless there is none, or a rising one for each."""
    found = [float(time) for time in times]
    rising = all(a < b for a, b in pairwise(found))
    if found and (len(found) != count or not rising or not all(map(math.isfinite, found))):
        raise SandboxError(f"times are {found[:8]!r}; {count} rising seconds are needed, one for each image.")
    return found


def table(images: Mapping[str, Image.Image], offsets: Sequence[int], where: Where) -> dict[str, FileEntry]:
    """Images that lie in shared memory, by name, as described to workers."""
    return {
        name: {
            "where": where,
            "offset": offset,
            "width": image.width,
            "height": image.height,
            "mode": image.mode,
        }
        for (name, image), offset in zip(images.items(), offsets, strict=True)
    }
