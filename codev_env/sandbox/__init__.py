"""Runs what models write: safely, in a process of its own, at nearly the price of in-process `exec`."""

from __future__ import annotations

from codev_env.sandbox.host.sandbox import Sandbox
from codev_env.sandbox.host.session import Session
from codev_env.sandbox.wire.limits import Limits
from codev_env.types import Execution

__all__ = ["Execution", "Limits", "Sandbox", "Session"]
