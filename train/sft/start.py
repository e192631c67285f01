"""The result of a cold start: a folder named after all its options, made once and found again.

That of the default run comes with a checkout, in `starts/`; wheels do without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, set_seed

from codev_env.errors import ConfigError
from codev_env.files import owned
from codev_train.learn import checkpoint
from codev_train.learn.sharding import computing_in_fp32, make_accelerator
from codev_train.run.config import START_OPTIONS, Request, fingerprint
from codev_train.run.interrupt import Interrupted
from codev_train.run.machine import cpu_threads, make_folder
from codev_train.run.monitor import Monitor
from codev_train.run.options import SFTOptions
from codev_train.sft.cold_start import cold_start

_AGAIN = "start again with the same command"
_SHIPPED = Path(__file__).parent / "starts"


def start_folder(options: SFTOptions) -> Path:
    """Return the folder of a cold start; its name depends on all options."""
    return Path(options.out) / f"{options.name}-seed{options.seed}-{fingerprint(options)}"


def _places(options: SFTOptions) -> tuple[Path, Path]:
    """Where a cold start is that was made before, and where one that comes with this checkout."""
    folder = start_folder(options)
    return folder, _SHIPPED / folder.name


def is_start(folder: Path) -> bool:
    """Whether a folder holds a cold start."""
    return (folder / "config.json").exists()


def are_starts(*folders: Path) -> list[bool]:
    """Whether each folder holds a cold start, by what the main process sees: another run may just be finishing one."""
    return broadcast_object_list([is_start(folder) for folder in folders])


def kept_start(options: SFTOptions) -> Path | None:
    """Return the folder of a cold start that was made before or comes with this checkout, if there is one."""
    return next((place for place in _places(options) if is_start(place)), None)


def find_start(request: Request, say: Callable[[str], Any], fresh: bool = False) -> str:
    """Return the folder of the cold start of the same preset, made first if it is missing.

    Args:
        request: Options of the run.
        say: Says what is taken or made, such as `print`.
        fresh: Make it again, in place of the one that is there.
    """
    options = request.start_options()
    folder, shipped = places = _places(options)
    is_made, is_shipped = are_starts(*places)
    if is_made and not fresh:
        say(f"Cold start: taking {folder}, made before.")
    elif is_shipped and not fresh:
        say(f"Cold start: copying the one that comes with codev-env to {folder} (--fresh makes it instead).")
        _copy_start(shipped, folder)
    else:
        say(f"Cold start: {folder} {'is made again' if fresh else 'is not there yet, making it first'} (codev sft).")
        make_start(options, folder)
    return str(folder)


def _copy_start(shipped: Path, folder: Path) -> None:
    """Copy a start to where runs look for it: a run may be resumed when the checkout has another one."""
    state = PartialState()
    if state.is_main_process:
        make_folder(folder.parent)
        with _written(folder) as partial:
            shutil.copytree(shipped, partial, dirs_exist_ok=True)
    state.wait_for_everyone()


def make_start(options: SFTOptions, folder: Path) -> None:
    """Run the cold start and write the policy to `folder`."""
    make_folder(folder.parent)
    set_seed(options.seed)
    accelerator = make_accelerator()
    if options.sharding != "none" and accelerator.num_processes > 1 and not accelerator.is_fsdp2:
        raise ConfigError(
            f"--sharding is {options.sharding}, but this launcher shards nothing; without a launcher, codev sft starts "
            "the right one."
        )
    monitor = Monitor(folder.with_name(folder.name + "-log"), accelerator.is_main_process)
    try:
        # As by `codev sft`: the name of the folder says nothing of the precision of a run that makes it.
        with cpu_threads(options.threads), computing_in_fp32(accelerator):
            policy = cold_start(options, monitor, accelerator)
    except KeyboardInterrupt as error:
        message = f"stopped in the cold start, of which nothing is saved. {_AGAIN.capitalize()}."
        raise Interrupted(message) from error
    finally:
        monitor.close()
    if not accelerator.is_main_process:
        policy.save(None)
    else:
        with _written(folder) as partial:
            policy.save(partial)
            (partial / START_OPTIONS).write_text(json.dumps(dataclasses.asdict(options), indent=1))
    accelerator.wait_for_everyone()


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[Path]:
    """Give a folder that becomes `folder` at the end: another run may be writing it, or was killed while it did."""
    with (
        checkpoint.replace_folder(folder, uuid.uuid4().hex, _AGAIN) as partial,
        owned(partial, f".{folder.name}."),
    ):
        yield partial
