"""Memory of this machine, or of the container in which this process runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_INFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # of a container; a machine has no limit there


@dataclass(frozen=True)
class MachineMemory:
    """Memory in bytes.

    Attributes:
        free: What programs may still take, caches of files included.
        total: What there is.
    """

    free: int
    total: int

    @property
    def free_share(self) -> float:
        """The part that is free, 0 to 1."""
        return self.free / self.total


def machine_memory() -> MachineMemory | None:
    """Return the memory of the machine, or of the container where its limit can be read; `None` if nothing says it."""
    if not _INFO.exists():
        return None
    text = _INFO.read_text()
    found = [re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE) for name in ("MemAvailable", "MemTotal")]
    if not all(found):
        return None
    free, total = (int(match[1]) << 10 for match in found if match)
    most, used, stat = (_GROUP / f"memory.{name}" for name in ("max", "current", "stat"))
    if most.exists() and used.exists() and (limit := most.read_text().strip()).isdigit() and int(limit) < total:
        caches = re.search(r"^inactive_file (\d+)", stat.read_text() if stat.exists() else "", re.MULTILINE)
        total = int(limit)
        free = min(free, total - int(used.read_text()) + (int(caches[1]) if caches else 0))
    return MachineMemory(max(0, free), total)
