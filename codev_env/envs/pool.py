"""The sandboxes that the environments of one process share."""

from __future__ import annotations

import atexit
import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from codev_env.errors import ConfigError, unknown
from codev_env.locks import ForkLock

if TYPE_CHECKING:
    from codev_env.sandbox import Limits, Sandbox

_lock = ForkLock()
_shared: dict[tuple[int, Limits], Sandbox] = {}


def make_limits(limits: Limits | Mapping[str, Any] | None) -> Limits:
    """Make `Limits` from an argument of an environment.

    Raises:
        ConfigError: If a name is not a limit, or the type is wrong.
    """
    from codev_env.sandbox import Limits

    if limits is None:
        return Limits()
    if isinstance(limits, Limits):
        return limits
    if not isinstance(limits, Mapping):
        raise ConfigError(f"limits is a {type(limits).__name__}; give a mapping such as {{'wall_s': 5}}, or None.")
    known = [field.name for field in dataclasses.fields(Limits)]
    for name in limits:
        if name not in known:
            raise unknown("limit", name, known)
    return Limits(**limits)


def check_sandbox(sandbox: object, limits: object, farm: object) -> None:
    """Raise `ConfigError` unless a sandbox that an environment is given can be used, by itself."""
    if isinstance(sandbox, type):
        raise ConfigError(f"sandbox is the class {sandbox.__name__}; give an instance: {sandbox.__name__}().")
    if not callable(getattr(sandbox, "session", None)):  # One that passes calls on to another may be of any class.
        raise ConfigError(
            f"sandbox is a {type(sandbox).__name__}; give a live codev_env.sandbox.Sandbox, or None. "
            "limits={'wall_s': 5} changes the limits of the shared one."
        )
    if limits is not None:
        raise ConfigError("both sandbox and limits are given; a sandbox has its own limits, so leave limits out.")
    if farm is not None:
        raise ConfigError("both sandbox and farm are given; the nodes of a farm have their own, so leave one out.")


def shared_sandbox(limits: Limits) -> Sandbox:
    """Return the sandbox with these limits that all environments of this process share; start it if there is none.

    A forked child gets its own: the parent's workers answer to the parent only.
    """
    from codev_env.sandbox import Sandbox

    key = (os.getpid(), limits)
    with _lock:
        if key not in _shared:
            _shared[key] = Sandbox(limits)
        return _shared[key]


@atexit.register
def close_shared() -> None:
    """Close the shared sandboxes of this process; the next use starts new ones."""
    with _lock:
        for key in [key for key in _shared if key[0] == os.getpid()]:
            _shared.pop(key).close()
