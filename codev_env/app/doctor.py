"""`codev doctor`: reports what works on this machine, and what to do about the rest."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import operator
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from codev_env import __version__
from codev_env.app.check import Check, as_text
from codev_env.app.sandbox_check import sandbox
from codev_env.errors import SandboxError, unexpected
from codev_env.memory import machine_memory

DISTRIBUTION = "codev-env"
# Read without the classes of `options`: the doctor has to work where pydantic is broken.
HELP = """\
usage: codev doctor [options]

Report what works on this machine, with advice on the rest.

options:
  -h, --help  show this help message and exit
  --json      print the same as JSON"""

PURPOSE = {
    "train": "`codev train` and `codev sft`",
    "eval": "`codev eval` and models behind an API",
    "vllm": "rollouts and evaluation with vLLM on a GPU",
    "flash": "flash attention on a CUDA GPU",
    "report": "`codev report` and `codev view`",
    "photos": "scenes made of photographs",
    "sandbox": "what programs may import",
    "data": "Parquet files and data sets of the hub",
    "corruptions": "`CodeV-Corruption-v0`",
    "math": "the scorer `math-verify`",
    "video": "videos as tasks",
    "ray": "environments on many machines (`farm`)",
    "lora": "training adapters only (`lora.rank`)",
    "lowbit": "optimizer moments in 8 bits (`adamw8bit`)",
}
"""Extra -> its purpose."""

_MODULES = {"opencv-python-headless": "cv2"}
"""Package -> its module, which other packages provide as well."""

SESSIONS_WANTED = 64
PROCESSES_WANTED = 256
MEMORY_WANTED_MB = 2048
_SHARED_TRIAL = 16 << 20
_KERNEL_SIGNALS = (6, 12)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {">=": operator.ge, "==": operator.eq, "<": operator.lt}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `codev doctor`.

    Returns:
        0 if everything required works, else 1.

    Raises:
        UsageError: There is no such option.
    """
    words = list(argv or ())
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    if rest := [word for word in words if word != "--json"]:
        raise unexpected(rest[0], ("--json", "--help"), "codev doctor")
    checks = examine()
    works = all(check.status != "fail" for check in checks)
    if words:
        report = {"version": __version__, "ok": works, "checks": [asdict(check) for check in checks]}
        print(json.dumps(report, indent=2))
    else:
        print(as_text(checks))
    return 0 if works else 1


def examine() -> list[Check]:
    """Make every check; one that raises becomes a failed line, and the others continue."""
    checks: list[Check] = []
    for look in (packages, machine, sandbox, training):
        try:
            checks.extend(look())
        except Exception as error:  # a report of what is broken must not break over it
            group, seen = look.__name__, f"could not be examined: {type(error).__name__}: {error}"
            checks.append(Check(group, group, "fail", seen, "fix this, or please report it with this output"))
    return checks


# Packages


def packages() -> Iterator[Check]:
    """Python and the packages, against the ranges that this package declares."""
    try:
        wanted_python = importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"]
        required, extras = requirements(importlib.metadata.requires(DISTRIBUTION) or [])
    except importlib.metadata.PackageNotFoundError:
        advice = "install it with pip rather than by setting PYTHONPATH: pip install ."
        yield Check("packages", DISTRIBUTION, "warn", "is not installed, so no versions can be checked", advice)
        return
    python = platform.python_version()
    right = satisfies(python, wanted_python)
    advice = "" if right else f"make an environment with Python {wanted_python}"
    yield Check("packages", "python", "ok" if right else "fail", _ranged(python, wanted_python), advice)
    for name, wanted in required.items():
        seen, problem = _installed(name, wanted)
        advice = f'pip install "{name}{wanted}"' if problem else ""
        yield Check("packages", name, "fail" if problem else "ok", problem or _ranged(seen, wanted), advice)
    for extra, purpose in PURPOSE.items():
        yield _extra(extra, purpose, extras.get(extra, {}))


def requirements(lines: Sequence[str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Read the requirements of a package's metadata.

    Args:
        lines: As `importlib.metadata.requires` gives them, such as `'torch>=2.9; extra == "train"'`.

    Returns:
        The range of each required package by name, and those of each extra by its name.
    """
    required: dict[str, str] = {}
    extras: dict[str, dict[str, str]] = {}
    for line in lines:
        spec, _, marker = line.partition(";")
        named = re.match(r"([\w.-]+)\s*(?:\[[^]]*\])?(.*)", spec)  # without the extras of the package itself
        if named is None:
            continue
        extra = re.search(r"extra\s*==\s*[\"']([\w-]+)[\"']", marker)
        of = extras.setdefault(extra[1], {}) if extra else required
        of[named[1]] = named[2].strip(" ()")
    return required, extras


def satisfies(version: str, wanted: str) -> bool:
    """Return whether a version is in a range such as `">=1.1,<2"`, by the numbers of its release."""
    seen = _release(version)
    for part in filter(None, (part.strip() for part in wanted.split(","))):
        match = re.fullmatch(r"(>=|==|<)\s*(\d.*)", part)
        if match is None:
            raise ValueError(f"the range {part!r} is none of >=, == and < with a version")
        if not _COMPARE[match[1]](seen, _release(match[2])):
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else [0]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _ranged(version: str, wanted: str) -> str:
    return f"{version} (needs {wanted})" if wanted else version


def _installed(name: str, wanted: str) -> tuple[str, str]:
    """The version of a package, and what is wrong with it (empty: nothing)."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        other_build = name in _MODULES and importlib.util.find_spec(_MODULES[name])
        return ("of another build", "") if other_build else ("", "not installed")
    return version, "" if satisfies(version, wanted) else f"{version} is installed; {wanted} is needed"


def _extra(extra: str, purpose: str, members: dict[str, str]) -> Check:
    found = {member: _installed(member, wanted) for member, wanted in members.items()}
    missing = [member for member, (version, _problem) in found.items() if not version]
    seen = [f"not installed: {', '.join(missing)}"] if missing else []
    seen += [f"{member} {problem}" for member, (version, problem) in found.items() if version and problem]
    if seen:
        advice = f'for {purpose}: pip install "{DISTRIBUTION}[{extra}]"'
        return Check("packages", f"[{extra}]", "warn", "; ".join(seen), advice)
    versions = ", ".join(f"{member} {version}" for member, (version, _problem) in found.items())
    return Check("packages", f"[{extra}]", "ok", versions)


# The machine


def machine() -> Iterator[Check]:
    """The kernel, the user, and how much of everything may be used."""
    yield _kernel()
    if hasattr(os, "geteuid"):
        root = os.geteuid() == 0
        means = "each sandbox worker gets a user id of its own" if root else "sandbox workers share this user"
        yield Check("machine", "runs as", "ok", f"{'root' if root else f'uid {os.geteuid()}'}: {means}")
        yield from _ulimits()
    yield _memory()
    yield _shared_memory()


def _kernel() -> Check:
    system, release = platform.system(), platform.release()
    seen = f"{system} {release} {platform.machine()}"
    if system != "Linux":
        advice = "run on Linux, or in a Linux container or WSL: Landlock and seccomp exist only there"
        return Check("machine", "kernel", "warn", seen, advice)
    if _release(release) < _KERNEL_SIGNALS:
        advice = "Landlock keeps off files from 5.13, TCP from 6.7, signals from 6.12; until then seccomp does"
        return Check("machine", "kernel", "warn", seen, advice)
    return Check("machine", "kernel", "ok", seen)


def _ulimits() -> Iterator[Check]:
    import resource

    from codev_env.sandbox import DESCRIPTORS_PER_SESSION

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        yield Check("machine", "ulimit -n", "ok", "unlimited")
    else:
        room = soft // DESCRIPTORS_PER_SESSION
        few = room < SESSIONS_WANTED
        top = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        advice = f"raise it, as with `ulimit -n 4096` (without root: up to {top})" if few else ""
        detail = f"{soft} descriptors: room for at most {room} episodes at once"
        yield Check("machine", "ulimit -n", "warn" if few else "ok", detail, advice)
    soft, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft == resource.RLIM_INFINITY:
        yield Check("machine", "ulimit -u", "ok", "unlimited")
        return
    few = soft < PROCESSES_WANTED and os.geteuid() != 0
    advice = f"raise it, as with `ulimit -u {PROCESSES_WANTED}`, or run fewer environments at once" if few else ""
    detail = f"{soft} processes and threads of this user; each episode needs one"
    yield Check("machine", "ulimit -u", "warn" if few else "ok", detail, advice)


def _memory() -> Check:
    memory = machine_memory()
    if memory is None:
        return Check("machine", "memory", "ok", "unknown: there is no /proc/meminfo here")
    free = memory.free / 2**20
    short = free < MEMORY_WANTED_MB
    advice = "run fewer environments at once, and lower limits.memory_mb of the sandbox" if short else ""
    return Check("machine", "memory", "warn" if short else "ok", f"{free / 1024:.1f} GiB free", advice)


def _shared_memory() -> Check:
    from codev_env.sandbox import create_shared_file

    try:
        fd = create_shared_file("codev-doctor", _SHARED_TRIAL)
        try:
            # Written with the cursor, as pixels are: a limit on the size of files applies to it, too.
            written = os.write(fd, bytes(_SHARED_TRIAL))
        finally:
            os.close(fd)
    except (SandboxError, OSError) as error:
        return Check(
            "machine", "shared memory", "fail", str(error), "free memory, or raise `ulimit -f` or the container's limit"
        )
    mib = f"{written >> 20} MiB written"
    if hasattr(os, "memfd_create"):
        return Check("machine", "shared memory", "ok", f"memfd: {mib}")
    advice = "use Linux for pixels that stay in memory; elsewhere point TMPDIR to a fast folder"
    return Check("machine", "shared memory", "warn", f"no memfd, temporary files instead: {mib}", advice)


# Training


def training() -> Iterator[Check]:
    """The GPU, where PyTorch is there to use it."""
    if importlib.util.find_spec("torch") is None:
        yield Check("training", "gpu", "ok", "not examined: PyTorch is not installed, and environments need no GPU")
        return
    try:
        torch = importlib.import_module("torch")
        available = torch.cuda.is_available()
    except Exception as error:  # a broken build raises anything from OSError to RuntimeError
        advice = f'install PyTorch again: pip install --force-reinstall "{DISTRIBUTION}[train]"'
        yield Check("training", "gpu", "warn", f"PyTorch does not load: {type(error).__name__}: {error}", advice)
        return
    if available:
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            detail = f"{torch.cuda.get_device_name(index)}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
            yield Check("training", f"gpu {index}", "ok", f"{detail}, CUDA {torch.version.cuda}")
        return
    if not os.path.exists("/dev/nvidiactl"):
        yield Check("training", "gpu", "ok", "none: the CPU trains toy models only")
    elif torch.version.cuda is None:
        advice = "install a CUDA build of PyTorch"
        yield Check("training", "gpu", "warn", f"there is an NVIDIA GPU, but torch {torch.__version__} cannot", advice)
    else:
        advice = f"check `nvidia-smi`, CUDA_VISIBLE_DEVICES, and that the driver supports CUDA {torch.version.cuda}"
        yield Check("training", "gpu", "warn", "there is an NVIDIA GPU, but CUDA does not start on it", advice)
