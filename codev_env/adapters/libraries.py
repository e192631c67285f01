"""The libraries that the adapters are for: what to install, and the error of an import without it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from codev_env.errors import unstopped

REQUIREMENTS = {
    "trl": ("trl==1.16.0", "codev-env[train]"),
    "verifiers": ("verifiers==0.4.0",),
    "openenv": ("openenv==0.10.0",),
    "nemo_gym": ("nemo-gym==0.4.0",),
    "skyrl": ("skyrl-gym==0.4.0",),
    # verl's agent loop imports three packages that verl does not declare.
    "verl": ("verl==0.9.1", "cachetools", "fastapi", "uvicorn", "codev-env[train]"),
    "ms_swift": ("ms-swift==4.6.0",),
    "torchrl": ("torchrl==0.14.1",),
    "harness": ("lmms-eval==0.7.3",),
}
"""By adapter: the distributions to install, in the version that the tests install."""


def install_command(adapter: str) -> str:
    """Return the command that installs what an adapter needs."""
    return f"pip install {shlex.join(REQUIREMENTS[adapter])}"


@contextmanager
def library_of(adapter: str) -> Iterator[None]:
    """Let a failing import of an adapter's library say what to install.

    Args:
        adapter: The name of the module in `codev_env.adapters`.

    Raises:
        ModuleNotFoundError: A package is missing.
        ImportError: A package lacks a name: its version is another one.
    """
    try:
        yield
    except ImportError as error:
        kind = ModuleNotFoundError if isinstance(error, ModuleNotFoundError) else ImportError
        message = f"codev_env.adapters.{adapter}: {unstopped(error)}. Install what it needs: {install_command(adapter)}"
        raise kind(message, name=error.name, path=error.path) from error
