"""The check of a node of a farm when it starts: the same source as here, and a sandbox with the required layers."""

from __future__ import annotations

import codev_env
from codev_env.errors import ConfigError, SandboxError
from codev_env.farm.link import NodeSpec
from codev_env.farm.messages import NodeReport
from codev_env.farm.work import source_digest
from codev_env.sandbox import REQUIRED_LAYERS


def check_node(spec: NodeSpec, report: NodeReport, allow_weaker: bool) -> None:
    """Raise unless a node runs this version and its sandbox has the required layers.

    Args:
        spec: The node.
        report: Its report of itself.
        allow_weaker: Accept a sandbox without them.

    Raises:
        ConfigError: It has another version.
        SandboxError: Its sandbox lacks required layers.
    """
    here, there = (codev_env.__version__, source_digest()), (report.version, report.source)
    if here != there:
        raise ConfigError(
            f"node {spec.name} has codev_env {there[0]} (source {there[1]}), this process {here[0]} (source "
            f"{here[1]}): install the same version on both."
        )
    missing = [
        f"{name} {report.layers.get(name, 'off')}" for name in REQUIRED_LAYERS if report.layers.get(name) != "on"
    ]
    if (report.refused or missing) and not allow_weaker:
        raise SandboxError(
            f"node {spec.name}: {report.refused or 'its sandbox lacks required layers: ' + '; '.join(missing)} "
            "Other nodes can be chosen with Ray's resource 'codev'; the farm option allow_weaker accepts this one."
        )
