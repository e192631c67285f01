"""The machines of a Ray cluster as nodes of a farm: one actor on each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from codev_env.errors import ConfigError
from codev_env.farm.link import NodeGone, NodeSpec
from codev_env.farm.messages import Beat, NodeReport, Request
from codev_env.farm.options import FarmOptions
from codev_env.farm.work import NodeWork

RESOURCE = "codev"
"""Ray's resource that marks nodes for programs; where no node has it, all with cores are used."""
NAMESPACE = "codev-env"
_address = ""
"""Where this process has connected to; empty before, and where something else has."""
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's variable; at 0 its processes are for one machine and listen on 127.0.0.1 alone, on any system."""
_CALLS = 4  # of one actor at the same time: hello, submit and collect


def import_ray() -> Any:
    """Import Ray; raises `ConfigError` that names the extra where it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f'farm="ray" needs Ray ({error}): pip install "codev-env[ray]".') from error
    return ray


class RayCluster:
    """Ray's cluster; this process connects to it, unless it has already done so.

    Args:
        options: Address and limits.

    Raises:
        ConfigError: Ray is not installed, there is no cluster at the address, or this process has another one.
    """

    def __init__(self, options: FarmOptions) -> None:
        self._options, self._ray = options, import_ray()
        global _address
        if not self._ray.is_initialized():
            self._connect(options.address)
            _address = options.address
        elif options.address not in ("ray", _address):
            raise ConfigError(
                f"farm {options.address!r}: this process is already connected to Ray, "
                f"{f'at {_address!r}' if _address else 'by a connection of its own'}; give farm='ray', which uses that."
            )

    def alive(self) -> Mapping[str, NodeSpec]:
        """Return Ray's nodes that have cores for programs of this process."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        marked = [node for node in nodes if node["Resources"].get(RESOURCE)]
        name = RESOURCE if marked else "CPU"
        share, part = self._options.share, self._options.part
        found, given = {}, 0
        # All processes see the same nodes in this order. Cores that are left over go round: no node runs more programs
        # than it has cores, and no process has more than one core more than another.
        for node in sorted(marked or nodes, key=lambda node: node["NodeID"]):
            cores = int(node["Resources"].get(name, 0))
            slots, left = divmod(cores, share)
            slots += (part - given) % share < left
            given += left
            if slots:
                label = f"{node['NodeManagerAddress']}-{node['NodeID'][:8]}"
                found[node["NodeID"]] = NodeSpec(label, slots, min(share, cores))
        return found

    def start(self, key: str, spec: NodeSpec) -> RayNode:
        """Start an actor on a node of Ray."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = self._ray.remote(NodeWork).options(
            num_cpus=0,  # the cores are counted by `slots`; a trainer beside may have asked Ray for all of them
            max_concurrency=_CALLS,
            max_restarts=0,  # a restarted actor would not have the episodes
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False),
        )
        try:
            images_mb = max(1, self._options.images_mb // spec.sharers)
            made = actor.remote(spec.slots, images_mb, self._options.allow_weaker)
        except Exception as error:  # of whichever kind Ray's client raises
            raise NodeGone(f"Ray cannot start an actor there: {error}") from error
        return RayNode(self._ray, made)

    def dumps(self, value: object) -> bytes:
        """Pickle a value, also classes that are defined in the main script."""
        return self._ray.cloudpickle.dumps(value)

    def _connect(self, address: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        given: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": True}
        try:
            if address != "ray":
                self._ray.init(address, **given)
                return
            try:
                self._ray.init(address="auto", **given)
            except ConnectionError:
                if os.environ.get("RAY_ADDRESS"):
                    raise
                with _on_loopback():
                    self._ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", **given)
        except (ConnectionError, RuntimeError, ValueError, ImportError) as error:
            raise ConfigError(
                f"farm {address!r}: Ray cannot connect ({error}). Start the cluster with `ray start --head`, and for "
                'an address ray://HOST:PORT with its client server; pip install "codev-env[ray]" has what that needs.'
            ) from error


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let the processes of a cluster that starts now listen on 127.0.0.1 only.

    Ray has read its variable when it was imported; later only its own constant counts, beside the variable that its new
    processes read.
    """
    from ray._private import ray_constants

    variable, constant = os.environ.get(_CLUSTERS), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_CLUSTERS], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = constant
        if variable is None:
            del os.environ[_CLUSTERS]
        else:
            os.environ[_CLUSTERS] = variable


class RayNode:
    """An actor on one node."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def hello(self, timeout: float) -> NodeReport:
        """See `NodeWork.hello`."""
        return self._get(self._actor.hello, timeout=timeout)

    def submit(self, batch: Sequence[Request], timeout: float) -> None:
        """See `NodeWork.submit`."""
        self._get(self._actor.submit, batch, timeout=timeout)

    def collect(self, beat_s: float, timeout: float) -> Beat:
        """See `NodeWork.collect`."""
        return self._get(self._actor.collect, beat_s, timeout=timeout)

    def kill(self) -> None:
        """Kill the actor's process; its sandbox workers end with it."""
        try:
            self._ray.kill(self._actor, no_restart=True)
        except Exception:  # it is gone, or the connection to Ray is
            return

    def _get(self, method: Any, *arguments: Any, timeout: float) -> Any:
        try:
            return self._ray.get(method.remote(*arguments), timeout=timeout)
        except self._ray.exceptions.GetTimeoutError as error:
            raise NodeGone(f"no answer for {timeout:g} s") from error
        except Exception as error:  # Ray's own errors, those of its client, and those of the actor
            raise NodeGone(f"{type(error).__name__}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    missing = [line for line in lines if "No module named" in line]
    return (missing or lines or [repr(error)])[0][:300]
