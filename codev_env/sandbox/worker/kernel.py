"""Kernel restrictions of a worker, applied once, in the worker, before it receives any program.

A worker forked ahead of time at once applies the layers that need no limits (`lock_down`), and the others when a
session takes it (`close_up`). Every layer reports `"on"` or `"off: <why>"`; none is skipped silently.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable

from codev_env.sandbox.wire.limits import Limits
from codev_env.sandbox.worker import seccomp

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000
_CAPABILITIES_3 = 0x20080522
_NOBODY = 65534
_UID_BASE = 0x60000000
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_VERSION_FLAG = 1


_statm = -1
"""Descriptor of `/proc/self/statm`, which gives this process's size, between `lock_down` and `close_up`."""


class LayerOff(Exception):
    """A layer cannot be applied here; the message says why."""


def prepare() -> None:
    """In the zygote: compute once what all workers need. Applies nothing."""
    with contextlib.suppress(OSError):  # no filter for this machine: the layer reports it
        seccomp.program(platform.machine())
    seccomp.libc()


def leave_network() -> bool:
    """In the zygote, before it has threads: move it and all its workers into an empty network namespace.

    Landlock refuses TCP, but has no rule for datagrams. Without root it takes a user namespace, whose capabilities are
    given up at once.

    Returns:
        Whether the system allows it.
    """
    if sys.platform != "linux":
        return False
    libc, root = seccomp.libc(), os.geteuid() == 0
    if libc.unshare(_NEW_NETWORK if root else _NEW_NETWORK | _NEW_USER) != 0:
        return False
    if not root:
        header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)()
        if libc.capset(ctypes.byref(header), ctypes.byref(none)) != 0:
            raise OSError(ctypes.get_errno(), "capset")
    return True


def lock_down(parent_pid: int) -> dict[str, str]:
    """Apply to this process the layers that do not depend on the session.

    Args:
        parent_pid: Process id of the zygote.

    Returns:
        By layer `"on"` or `"off: <why>"`.
    """
    global _statm
    if sys.platform == "linux":
        _statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)  # Landlock would refuse it later
    return {name: _try(layer) for name, layer in _early(parent_pid).items()}


def close_up(limits: Limits) -> dict[str, str]:
    """Apply the other layers, after the session's memory has been mapped; returns a dict as `lock_down` does."""
    return {name: _try(layer) for name, layer in _late(limits).items()}


def layers(limits: Limits, parent_pid: int) -> dict[str, Callable[[], None]]:
    """The layers by name, in the order of application; each raises `LayerOff` or `OSError` if it cannot be applied."""
    return {**_early(parent_pid), **_late(limits)}


def _early(parent_pid: int) -> dict[str, Callable[[], None]]:
    return {
        "user": _drop_user,
        "process": lambda: _die_with(parent_pid),  # after the user: a change of user would undo it
        "landlock": _landlock,
    }


def _late(limits: Limits) -> dict[str, Callable[[], None]]:
    return {"rlimits": lambda: _limit_resources(limits), "seccomp": _seccomp}


def close_fds_from(first: int) -> None:
    """Close every descriptor from a number on."""
    os.closerange(first, 1 << 20)


def map_shared(fd: int, count: int) -> int:
    """Map the first bytes of a file for reading, under all layers; returns the address, or raises `OSError`."""
    mapping = seccomp.libc().mmap
    mapping.restype = ctypes.c_void_p
    mapping.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    address = mapping(None, count, mmap.PROT_READ, flags, fd, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f"mmap of {count} bytes")
    return int(address)


def allow_cpu(seconds: int) -> None:
    """Move the soft CPU limit so that this process may use `seconds` more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    want = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (want if hard < 0 else min(want, hard), hard))


def _try(layer: Callable[[], None]) -> str:
    try:
        layer()
    except LayerOff as why:
        return f"off: {why}"
    except (OSError, ValueError, AttributeError) as error:
        return f"off: {type(error).__name__}: {error}"
    return "on"


def _prctl(option: int, value: int) -> None:
    if seccomp.libc().prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _die_with(parent_pid: int) -> None:
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(0)


def _drop_user() -> None:
    if os.geteuid() != 0:
        raise LayerOff("the sandbox does not run as root, so workers share its user")
    for user in (_UID_BASE + os.getpid(), _NOBODY):
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError:
            continue
        _prctl(_PR_SET_DUMPABLE, 0)
        return
    raise LayerOff("the container maps no other user")


def _limit_resources(limits: Limits) -> None:
    # A worker serves many runs, each of which may use up the CPU limit; the wall clock ends each run.
    hard_cpu = 1000 * limits.cpu_s
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, hard_cpu))
    if hasattr(resource, "RLIMIT_NPROC"):
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if sys.platform == "linux":
        size = _virtual_pages() * resource.getpagesize() + (limits.memory_mb << 20)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _virtual_pages() -> int:
    global _statm
    fd = _statm if _statm >= 0 else os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    _statm = -1
    try:
        return int(os.read(fd, 256).split()[0])
    finally:
        os.close(fd)


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


_FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}


def _landlock() -> None:
    if sys.platform != "linux":
        raise LayerOff("only Linux has Landlock")
    libc = seccomp.libc()
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_LANDLOCK_VERSION_FLAG))
    if version < 1:
        raise LayerOff(f"this kernel has no Landlock ({os.strerror(ctypes.get_errno())})")
    rules = _Ruleset(
        fs=(1 << _FS_BITS.get(version, 16)) - 1,
        net=0b11 if version >= 4 else 0,
        scoped=0b11 if version >= 6 else 0,
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    fd = libc.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    try:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        if libc.syscall(_LANDLOCK_RESTRICT_SELF, ctypes.c_int(fd), ctypes.c_uint32(0)) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(fd)


def _seccomp() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install()
