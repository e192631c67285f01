"""The folder of an evaluation: names of its files, folders of its conditions, and the episodes in them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from codev_env.errors import ConfigError
from codev_env.files import lock_file
from codev_env.trajectory import FILE_NAME as TRAJECTORIES
from codev_env.trajectory import IMAGE_DIR, Trajectory, read_trajectories
from codev_eval.bench.measures import bench_of, key_of

METRICS, STATE, REPORT = "metrics.json", "eval.json", "report.html"
SCHEMA = 1
PLAIN, WITHOUT_TOOL, SUITE, PERTURBED = "", "without-tool", "suite-", "perturbed-"
"""Names of conditions, which are also the names of their folders; the last two are prefixes."""
_IMAGE_FILE = re.compile(rf'"({IMAGE_DIR}/[0-9a-f]+\.png)"'.encode())
"""An image file as the lines of a trajectory file name it."""


def refuse_data_folder(out: Path, data: str) -> None:
    """Raise `ConfigError` if results would be written among the data: the folder could not be read again."""
    if Path(data).is_dir() and out.resolve() == Path(data).resolve():
        raise ConfigError(
            f"--out {out} is the folder of the data; give another one, such as runs/{out.resolve().name}."
        )


def keep_alone(out: Path, held: ExitStack) -> None:
    """Keep other evaluations out of a folder until `held` ends, on systems and disks that lock folders.

    Raises:
        ConfigError: Another evaluation runs there.
    """
    try:
        folder = os.open(out, os.O_RDONLY)
        held.callback(os.close, folder)
        lock_file(folder, wait=False)
    except BlockingIOError as error:
        raise ConfigError(f"another evaluation runs in --out {out}: wait for it, or give another folder.") from error
    except OSError:  # such as Windows, and some network disks
        pass


def read_played(out: Path) -> dict[str, list[Trajectory]]:
    """Return the episodes of every condition that a folder holds, by its name."""
    found = {PLAIN: read_episodes(out)}
    return found | {folder.name: read_episodes(folder) for folder in condition_folders(out)}


def read_metrics(folder: Path) -> dict[str, Any]:
    """Return the content of metrics.json.

    Raises:
        ConfigError: It is not what `codev eval` writes, or of another version of it.
        OSError: The file is missing or cannot be read.
    """
    path = folder / METRICS
    try:
        metrics = dict(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} is not what `codev eval` writes ({error!r}); evaluate again.") from error
    check_schema(path, metrics)
    benches = metrics.get("benches")
    if not benches or not isinstance(benches, dict) or not all(isinstance(bench, dict) for bench in benches.values()):
        raise ConfigError(f"{path} is not what `codev eval` writes (it has no results); evaluate again.")
    return metrics


def check_schema(path: Path, record: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a file of another version; an early one names no schema."""
    if (schema := record.get("schema", SCHEMA)) != SCHEMA:
        raise ConfigError(
            f"{path}: schema {schema!r} is unknown; this version reads schema {SCHEMA}. Use the version of codev-env "
            "that wrote it, or evaluate again into another folder."
        )


def is_condition(folder: str) -> bool:
    """Whether a folder of that name holds the episodes of a condition other than the plain one."""
    return folder == WITHOUT_TOOL or folder.startswith((SUITE, PERTURBED))


def read_episodes(folder: Path) -> list[Trajectory]:
    """Return the episodes of one condition, each once; none if there is no trajectory file."""
    if not (folder / TRAJECTORIES).is_file():
        return []
    # The first of each: an evaluation that two processes continued at once may hold an episode twice.
    first: dict[tuple[str, str, int], Trajectory] = {}
    for t in read_trajectories(folder):
        first.setdefault((bench_of(t), *key_of(t)), t)
    return list(first.values())


def evaluation_files(out: Path) -> list[Path]:
    """Return the files that an evaluation writes into its folder, and the folder of their images, images last."""
    return [out / name for name in (TRAJECTORIES, METRICS, REPORT, STATE, IMAGE_DIR)]


def condition_folders(out: Path) -> list[Path]:
    """Return the folders of further conditions that hold episodes."""
    return sorted(path.parent for path in out.glob(f"*/{TRAJECTORIES}") if is_condition(path.parent.name))


def is_evaluation(out: Path) -> bool:
    """Whether a folder holds an evaluation, finished or not."""
    return (out / TRAJECTORIES).is_file() or has_state(out)


def has_state(out: Path) -> bool:
    """Whether a folder holds the options of an evaluation; a file of that name may be another's."""
    try:
        return "options" in json.loads((out / STATE).read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def read_failed_usage(out: Path) -> list[dict[str, Any]]:
    """Return what failed episodes of earlier starts took, as `usage.rows_of` wrote it; none where that is not there."""
    if not has_state(out):
        return []
    state = json.loads((out / STATE).read_text("utf-8"))
    check_schema(out / STATE, state)
    return list(state.get("failed_usage", ()))


def check_same(out: Path, found: Path, mine: Mapping[str, Any], weights: str) -> None:
    """Refuse to continue an evaluation with other options, except for more tasks, or with other weights.

    Args:
        out: The folder.
        found: A file of the evaluation that it holds.
        mine: The options now.
        weights: `weights_of` the model; empty for a model without a folder.

    Raises:
        ConfigError: Something differs, or the file with the options is missing, broken or of another version.
    """
    try:
        state = json.loads((out / STATE).read_text("utf-8"))
        theirs = state["options"]
        changed = [name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)]
    except OSError:
        advice = "give another folder" + (", or add --overwrite" if is_evaluation(out) else "")
        raise ConfigError(f"--out {out} already holds {found.name}: {advice}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{out / STATE} is broken ({error!r}): give another folder, or add --overwrite.") from None
    check_schema(out / STATE, state)
    if "n" in changed and _is_more(mine["n"], theirs["n"]):
        changed.remove("n")  # The tasks so far are the first of the new ones.
    if changed:
        was = (f"--{n.replace('_', '-')} was {theirs.get(n)!r} and is {mine.get(n)!r}" for n in changed)
        raise ConfigError(
            f"--out {out} holds an evaluation with other options: {', '.join(was)}. Give another folder, or add "
            "--overwrite."
        )
    if state.get("weights", weights) != weights:
        raise ConfigError(
            f"--out {out} holds an evaluation of the weights that --model {mine['model']} had before; they have "
            "changed. Give another folder, or add --overwrite."
        )


def _is_more(n: int | None, than: int | None) -> bool:
    """Whether `--n` is larger than another; `None` is all tasks."""
    return than is not None and (n is None or n > than)


def remove_evaluation(out: Path) -> None:
    """Remove an evaluation with all its conditions; other files, and folders that hold any, stay."""
    for folder in condition_folders(out):
        remove_evaluation(folder)
        _remove_empty(folder)
    remove_trajectories(out)
    for file in evaluation_files(out):
        if not file.is_dir():
            file.unlink(missing_ok=True)


def remove_trajectories(out: Path) -> None:
    """Remove a trajectory file and the images that it names; other images stay."""
    path = out / TRAJECTORIES
    if not path.is_file():
        return
    for name in set(_IMAGE_FILE.findall(path.read_bytes())):
        (out / name.decode()).unlink(missing_ok=True)
    path.unlink()
    _remove_empty(out / IMAGE_DIR)


def remove_new(out: Path, before: Iterable[Path]) -> None:
    """Remove the files of an evaluation without a single episode, and its folder if that holds nothing else.

    Args:
        out: The folder.
        before: Those of `evaluation_files`, and the folder, that were there when the evaluation was started.
    """
    kept = set(before)
    for path in evaluation_files(out):
        if path in kept:
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if out not in kept:
        _remove_empty(out)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
