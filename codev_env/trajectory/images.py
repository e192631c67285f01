"""The images of trajectories: one PNG file for each, named by its content and decoded when it is looked at."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, overload

from PIL import Image

from codev_env.errors import TrajectoryError
from codev_env.images import encode_image

IMAGE_DIR = "images"
_MODES = ("RGB", "L", "RGBA")


class ImageFiles(Sequence[Image.Image]):
    """Images of a trajectory that was read back: each access decodes the file, nothing is kept in memory.

    Attributes:
        files: Paths of the PNG files.
        sizes: (width, height) of each, known without decoding.
    """

    def __init__(self, files: Sequence[Path], sizes: Sequence[tuple[int, int]]) -> None:
        self.files = tuple(files)
        self.sizes = tuple(sizes)

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...
    @overload
    def __getitem__(self, index: slice) -> ImageFiles: ...
    def __getitem__(self, index: int | slice) -> Image.Image | ImageFiles:
        if isinstance(index, slice):
            return ImageFiles(self.files[index], self.sizes[index])
        path = self.files[index]
        try:
            with Image.open(path) as opened:
                opened.load()
                return opened.copy()
        except (OSError, SyntaxError) as error:
            raise TrajectoryError(
                f"cannot read image {path}: {error}. It belongs to the trajectories in {path.parent.parent}; "
                "restore it or write the trajectories again."
            ) from error

    def __eq__(self, other: object) -> bool:
        return same_images(self, other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return f"ImageFiles({[path.name for path in self.files]})"


def same_images(a: Sequence[Image.Image], b: Sequence[Image.Image]) -> bool:
    """Whether two sequences hold the same pixels; metadata of the files is not compared."""
    if len(a) != len(b):
        return False
    if isinstance(a, ImageFiles) and isinstance(b, ImageFiles) and a.files == b.files:
        return True
    return all(
        x is y or (x.mode == y.mode and x.size == y.size and x.tobytes() == y.tobytes())
        for x, y in zip(a, b, strict=True)
    )


def image_name(image: Image.Image) -> str:
    """Return the path of an image's file from the folder of its trajectory, named by the content.

    Raises:
        TrajectoryError: The image has a mode other than RGB, L and RGBA.
    """
    if image.mode not in _MODES:
        raise TrajectoryError(f"cannot store an image of mode {image.mode}: convert it to RGB first.")
    digest = hashlib.blake2b(f"{image.mode}{image.size}".encode(), digest_size=12)
    digest.update(image.tobytes())
    return f"{IMAGE_DIR}/{digest.hexdigest()}.png"


def write_png(image: Image.Image, file: IO[bytes]) -> None:
    """Write an image as the files of trajectories are written."""
    file.write(encode_image(image, "PNG", compress_level=1))


class ImageSaver:
    """Saves images to `images/` of a folder, equal ones once. Safe to use from several threads.

    Args:
        folder: Where `images/` is; made if missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / IMAGE_DIR).mkdir(parents=True, exist_ok=True)
        self._saved: set[str] = set()

    def save(self, image: Image.Image) -> str:
        """Save an image, whole on disk when this returns, and return the path of its file from the folder.

        Raises:
            TrajectoryError: The image has a mode other than RGB, L and RGBA.
        """
        name = image_name(image)
        path = self.folder / name
        if name not in self._saved and not (path.exists() and path.stat().st_size):  # empty after a power failure
            # Written aside and renamed: a file under its final name is always complete.
            temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
            try:
                with open(temporary, "wb") as file:
                    write_png(image, file)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
        self._saved.add(name)
        return name
