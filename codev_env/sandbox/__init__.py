"""Runs programs written by models: safely, in separate processes, almost as fast as in-process `exec`."""

from __future__ import annotations

from codev_env.sandbox.host.descriptors import DESCRIPTORS_PER_SESSION, raise_limit
from codev_env.sandbox.host.handle import give_up_where
from codev_env.sandbox.host.memory import create_shared_file
from codev_env.sandbox.host.sandbox import REQUIRED_LAYERS, Sandbox
from codev_env.sandbox.host.session import Session
from codev_env.sandbox.wire.limits import REPAIRS, Limits
from codev_env.threads import is_given_up
from codev_env.types import Execution

give_up_where(is_given_up)

__all__ = [
    "DESCRIPTORS_PER_SESSION",
    "REPAIRS",
    "REQUIRED_LAYERS",
    "Execution",
    "Limits",
    "Sandbox",
    "Session",
    "create_shared_file",
    "raise_limit",
]
