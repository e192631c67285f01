"""Folders and files that an option such as `--out` names: made, or refused with the reason."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codev_env.errors import ConfigError


def make_folder(folder: Path, option: str = "--out") -> None:
    """Make a folder, and those above it, unless it exists.

    Args:
        folder: The folder.
        option: The option that names it.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(folder, f"{option} {folder}", error) from error


@contextmanager
def creating(file: Path, option: str = "--out") -> Iterator[None]:
    """Make the folder of a file; the block creates the file.

    Args:
        file: The file.
        option: The option that names it.

    Raises:
        ConfigError: The folder cannot be made, or holds no new files, as `/proc`.
    """
    named = f"{option} {file}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(file.parent, named, error) from error
    try:
        yield
    except FileNotFoundError as error:
        raise _refused(file, named, error) from error


def check_new(folder: Path, option: str = "--out") -> None:
    """Make the folder above one that is made later; raises `ConfigError` if nothing can be made there."""
    if folder.is_symlink() and not folder.exists():
        raise _refused(folder, f"{option} {folder}", FileNotFoundError())
    with creating(folder, option):
        tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent).cleanup()


def _refused(path: Path, named: str, error: OSError) -> ConfigError:
    """Return the error of a file or folder that cannot be made; `named` is the option with its value."""
    for place in (path, *path.parents):
        if place.is_file():
            return ConfigError(f"{named}: {place} is a file; give another folder.")
        if place.is_symlink() and not place.exists():
            target = place.parent / os.readlink(place)
            return ConfigError(
                f"{named}: {place} is a link to {target}, which is missing. Make it, or give another folder."
            )
        if place.exists():
            break
    reason = f"{place} takes no new files" if isinstance(error, FileNotFoundError) else error.strerror
    return ConfigError(f"{named} cannot be made: {reason}. Give another folder.")
