"""Errors for descriptors, memory and processes that the system refuses, and a count of the sessions in use."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from codev_env.errors import SandboxError

DESCRIPTORS_PER_SESSION = 4
"""Descriptors that an open session holds: two of its input images (shared where others have the same), its arena and
the socket of its worker."""

SHORT_OF_MEMORY = (
    "The machine, or the container, is short of memory or processes: see `dmesg`, `ulimit -u` and the limits of the "
    "container; run fewer environments at once, or lower limits.memory_mb"
)

MOST = 1 << 16
"""Descriptors that `raise_limit` asks for; some programs go through all that they may have."""

_holders: set[int] = set()


def raise_limit() -> None:
    """Let this process, and those that it starts, have as many descriptors as the system allows, up to `MOST`.

    For processes of our own: 1024, which shells give, are enough for 254 sessions.
    """
    try:
        import resource  # missing on some systems that import this module
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def hold(owner: int) -> None:
    """Count an open session, under a number of its own."""
    _holders.add(owner)


def release(owner: int) -> None:
    """Stop counting a session."""
    _holders.discard(owner)


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn a refusal of the system into a `SandboxError` that says what to do.

    Args:
        doing: The action that failed, to complete "the sandbox could not ...".
    """
    try:
        yield
    except OSError as error:
        raise refusal(doing, error) from error


def refusal(doing: str, error: OSError) -> SandboxError:
    """Make the error for a refusal of the system; see `explained`."""
    return SandboxError(f"the sandbox could not {doing}: {error}. {_advice(error)}.")


def _advice(error: OSError) -> str:
    held = f"{len(_holders)} sandbox sessions are open, with up to {DESCRIPTORS_PER_SESSION} descriptors each"
    if error.errno in (errno.EMFILE, errno.ETOOMANYREFS):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"This process may have {soft} descriptors open (`ulimit -n`; up to {hard} without root); {held}. "
            "Close sessions or environments that are done, or raise the limit"
        )
    if error.errno == errno.ENFILE:
        return f"The whole system has no descriptor left (fs.file-max); {held}. Close some, or raise fs.file-max"
    return SHORT_OF_MEMORY
