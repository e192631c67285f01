"""The messages between a session and its worker. The host checks every reply (see `host.replies`), typed or not."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Where = Literal["inputs", "arena", "shared"]
"""The shared memory: that of the input images, that of saved and shown images, or that of a view's own input images."""

SHARED_VIEWS = 2
"""Views with shared images of their own that a worker maps; it reserves address space for them."""


class FileEntry(TypedDict):
    """A virtual file: the place and the layout of its pixels in shared memory."""

    where: Where
    offset: int
    width: int
    height: int
    mode: str


class ViewFiles(TypedDict):
    """The files of a view by name.

    Attributes:
        given: The input images, whose memory never changes.
        saved: The images that programs saved.
        data: The contents of other files, in base 64; one of the name of an image replaces it.
    """

    given: dict[str, FileEntry]
    saved: dict[str, FileEntry]
    data: dict[str, str]


Views = dict[str, ViewFiles]
"""The files by view."""


class Setup(TypedDict):
    """The first message to a worker; the descriptors of the inputs and the arena travel with it.

    `times` are the seconds of the input images where they are frames of a video.
    """

    limits: dict[str, Any]
    persist: Literal["images", "variables"]
    repairs: list[str]
    inputs_bytes: int
    times: list[float]


class RunRequest(TypedDict):
    """One program to run; `gaps` are the free parts of the arena, `views` those that are new to the worker.

    A descriptor travels with it if the files given in a new view are in shared memory of their own.
    """

    code: str
    view: str
    seed: int
    gaps: list[tuple[int, int]]
    views: Views


class RunReply(TypedDict):
    """The outcome of a run.

    An image is `[offset, width, height, name]` in the arena, a file `[name, offset, width, height, mode]`, an
    entry of `data` `[name, contents in base 64]`; `reads` are names of files that earlier runs saved; a cut is `[width,
    height, left, top, right, bottom]`. A `spent` worker must not serve another run: the program may have left something
    in it.
    """

    stop: str
    error: str | None
    stdout: str
    repairs: list[str]
    images: list[list[Any]]
    files: list[list[Any]]
    data: list[list[str]]
    reads: list[str]
    cuts: list[list[int]]
    spent: bool


class FreshRequest(TypedDict):
    """The reply of a worker that has served a run, to a program that must run in a new one."""

    fresh: Literal[True]
