"""The folder of an evaluation: names of its files, folders of its conditions, and the episodes in them."""

from __future__ import annotations

from pathlib import Path

from codev_env.trajectory import FILE_NAME as TRAJECTORIES
from codev_env.trajectory import IMAGE_DIR, Trajectory, read_trajectories
from codev_eval.bench.measures import bench_of, key_of

METRICS, STATE, REPORT = "metrics.json", "eval.json", "report.html"
SCHEMA = 1
PLAIN, WITHOUT_TOOL, SUITE, PERTURBED = "", "without-tool", "suite-", "perturbed-"
"""Names of conditions, which are also the names of their folders; the last two are prefixes."""


def read_played(out: Path) -> dict[str, list[Trajectory]]:
    """Return the episodes of every condition that a folder holds, by its name."""
    found = {PLAIN: read_episodes(out)}
    for path in sorted(out.glob(f"*/{TRAJECTORIES}")):
        if is_condition(path.parent.name):
            found[path.parent.name] = read_episodes(path.parent)
    return found


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
    """Return the files and folders that an evaluation writes into its folder; none if there is no such folder."""
    if not out.is_dir():
        return []
    conditions = [out / WITHOUT_TOOL, *out.glob(f"{SUITE}*"), *out.glob(f"{PERTURBED}*")]
    return [*(out / name for name in (TRAJECTORIES, METRICS, REPORT, STATE, IMAGE_DIR)), *conditions]
