"""A folder that several machines must share: the main process writes a file in it, the others look for it."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

_LOOK_S = 5.0  # a network file system may show a new file late


@contextlib.contextmanager
def marker(folder: Path, accelerator: Accelerator) -> Iterator[Path]:
    """Let the main process write a file in a folder, or in the nearest one above that exists, while the block runs."""
    while not folder.exists():
        folder = folder.parent  # A relative path stays relative: each machine has a working folder of its own.
    made = broadcast_object_list([folder / f".codev-{uuid.uuid4().hex}"])[0]
    if accelerator.is_main_process:
        made.touch()
    accelerator.wait_for_everyone()
    try:
        yield made
    finally:
        if accelerator.is_main_process:
            made.unlink()


def is_seen(path: Path) -> bool:
    """Return whether this machine sees a file that another one has just written."""
    end = time.monotonic() + _LOOK_S
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True
