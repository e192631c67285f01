"""A seccomp filter that allows the few system calls needed to compute and to use one socket; others fail with EPERM."""

from __future__ import annotations

import ctypes
import functools
import platform
import struct
import sys

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_ERRNO_EPERM = 0x00050001
_KILL = 0x80000000

_LOAD, _JUMP_EQ, _JUMP_GE, _RETURN = 0x20, 0x15, 0x35, 0x06
_OFFSET_NR, _OFFSET_ARCH, _OFFSET_ARG0 = 0, 4, 16

# Names and numbers: linux/arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
_X86_64 = {
    "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11,
    "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24, "mremap": 25,
    "madvise": 28, "getpid": 39, "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "exit": 60,
    "gettimeofday": 96, "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "sigaltstack": 131, "gettid": 186,
    "futex": 202, "sched_getaffinity": 204, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
    "clock_nanosleep": 230, "exit_group": 231, "getcpu": 309, "getrandom": 318, "membarrier": 324, "rseq": 334,
}  # fmt: skip
_AARCH64 = {
    "read": 63, "write": 64, "close": 57, "fstat": 80, "ppoll": 73, "lseek": 62, "mmap": 222, "mprotect": 226,
    "munmap": 215, "brk": 214, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "sched_yield": 124,
    "mremap": 216, "madvise": 233, "getpid": 172, "sendto": 206, "recvfrom": 207, "sendmsg": 211, "recvmsg": 212,
    "exit": 93, "gettimeofday": 169, "getrlimit": 163, "getrusage": 165, "sysinfo": 179, "sigaltstack": 132,
    "gettid": 178, "futex": 98, "sched_getaffinity": 123, "restart_syscall": 128, "clock_gettime": 113,
    "clock_getres": 114, "clock_nanosleep": 115, "exit_group": 94, "getcpu": 168, "getrandom": 278,
    "membarrier": 283, "rseq": 293,
}  # fmt: skip

# By machine: the kernel's number of the architecture, the allowed calls, prlimit64 (allowed on oneself only).
_MACHINES = {"x86_64": (0xC000003E, _X86_64, 302), "aarch64": (0xC00000B7, _AARCH64, 261)}
_X32_BIT = 0x40000000


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


@functools.cache
def program(machine: str) -> bytes:
    """Assemble the filter for a machine, named as by `platform.machine()`; raises `OSError` for an unknown one."""
    if machine not in _MACHINES:
        raise OSError(f"no filter is written for {machine}")
    arch, calls, prlimit64 = _MACHINES[machine]
    code = [
        _op(_LOAD, 0, 0, _OFFSET_ARCH),
        _op(_JUMP_EQ, 1, 0, arch),
        _op(_RETURN, 0, 0, _KILL),
        _op(_LOAD, 0, 0, _OFFSET_NR),
        _op(_JUMP_GE, 0, 1, _X32_BIT),
        _op(_RETURN, 0, 0, _KILL),
    ]
    for number in sorted(calls.values()):
        code += [_op(_JUMP_EQ, 0, 1, number), _op(_RETURN, 0, 0, _ALLOW)]
    code += [
        _op(_JUMP_EQ, 0, 3, prlimit64),
        _op(_LOAD, 0, 0, _OFFSET_ARG0),
        _op(_JUMP_EQ, 0, 1, 0),
        _op(_RETURN, 0, 0, _ALLOW),
        _op(_RETURN, 0, 0, _ERRNO_EPERM),
    ]
    return b"".join(code)


def install() -> None:
    """Filter the system calls of this process from now on; raises `OSError` if the kernel refuses."""
    if sys.platform != "linux":
        raise OSError("only Linux has seccomp")
    code = program(platform.machine())
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    if libc().prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filter_), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


@functools.cache
def libc() -> ctypes.CDLL:
    """The C library, whose calls set `ctypes.get_errno`."""
    return ctypes.CDLL(None, use_errno=True)


def _op(code: int, jump_true: int, jump_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)
