"""The names that programs give to an episode's one folder.

They are kept in a file whose name no program can write: so they stay, are checked and are reported as read and saved as
any other file, and no other episode or view has them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Protocol

from codev_env.sandbox.wire.limits import FOLDERS, is_bare_name

WORKING_FOLDER = "/workspace"
TEMPORARY_FOLDER = "/tmp"
_BYTES = 16 << 10
"""Bytes that the names of all made folders may have together."""


class _Files(Protocol):
    @property
    def data(self) -> Mapping[str, bytes]: ...


class _RunWithFiles(Protocol):
    """The part of a `Context` that is needed here."""

    @property
    def view(self) -> _Files: ...
    def note_read(self, name: str) -> None: ...
    def keep(self, name: str, data: bytes) -> None: ...


def absolute(path: object) -> str:
    """The path from the root."""
    return posixpath.normpath(posixpath.join(WORKING_FOLDER, str(path)))


def is_folder(run: _RunWithFiles, path: object) -> bool:
    """Whether a path is a name of the folder; the run then depends on the one that made it."""
    folder = absolute(path)
    if folder in (WORKING_FOLDER, TEMPORARY_FOLDER):
        return True
    known = folder in _made(run)
    if known:
        run.note_read(FOLDERS)
    return known


def make_folder(run: _RunWithFiles, path: object) -> None:
    """Let a path, and those above it, be names of the folder until the episode ends.

    Raises:
        OSError: A name cannot be used, or the names are too long together.
    """
    made, folder = _made(run), absolute(path)
    new = set()
    while folder.strip("/"):
        folder, name = posixpath.split(folder)
        if not is_bare_name(name) or not name.isprintable():
            raise OSError(f"the folder name {name[:40]!r} is too long or holds control characters")
        new.add(posixpath.join(folder, name))
    if new <= made | {WORKING_FOLDER, TEMPORARY_FOLDER}:
        return
    contents = "\n".join(sorted(made | new)).encode()
    if len(contents) > _BYTES:
        raise OSError(f"the names of folders may have {_BYTES >> 10} KiB together: save with bare file names")
    run.note_read(FOLDERS)
    run.keep(FOLDERS, contents)


def _made(run: _RunWithFiles) -> set[str]:
    return set(run.view.data.get(FOLDERS, b"").decode("utf-8", "replace").split("\n")) - {""}
