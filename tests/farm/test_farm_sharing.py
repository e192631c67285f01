"""Processes that share the nodes of a farm: each has its part of their cores and of their room for images."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from local_cluster import LocalCluster

from codev_env.errors import FarmError
from codev_env.farm.link import NodeSpec
from codev_env.farm.options import FarmOptions
from codev_env.farm.ray_nodes import RayCluster


def shared_by(share: int, cores: list[int]) -> list[dict[str, NodeSpec]]:
    """The nodes of each of the processes that share some of Ray's."""
    nodes = [
        {"Alive": True, "NodeID": f"{place:08d}", "NodeManagerAddress": "10.0.0.2", "Resources": {"CPU": float(n)}}
        for place, n in enumerate(cores)
    ]
    found = []
    for part in range(share):
        cluster = RayCluster.__new__(RayCluster)
        cluster._ray, cluster._options = SimpleNamespace(nodes=lambda: nodes), FarmOptions(share=share, part=part)
        found.append(dict(cluster.alive()))
    return found


@pytest.mark.parametrize(("share", "cores"), [(1, [4, 3]), (4, [16, 10]), (8, [3, 3, 3]), (128, [32, 64, 48, 0])])
def test_processes_that_share_nodes_run_no_more_programs_than_there_are_cores(share: int, cores: list[int]) -> None:
    found = shared_by(share, cores)
    for place, count in enumerate(cores):
        specs = [nodes[f"{place:08d}"] for nodes in found if f"{place:08d}" in nodes]
        assert sum(spec.slots for spec in specs) == count and len(specs) == min(share, count)
        assert all(spec.sharers == len(specs) for spec in specs)
    each = [sum(spec.slots for spec in nodes.values()) for nodes in found]
    assert min(each) >= 1 and max(each) - min(each) <= 1


def test_more_processes_than_cores_are_an_error() -> None:
    assert not shared_by(8, [3, 3])[7]
    cluster = LocalCluster(1)
    cluster.specs = {}
    with pytest.raises(FarmError, match="no cores for each of the 8 processes"):
        cluster.farm(share=8)


def test_the_room_for_images_is_shared_too() -> None:
    given: list[Any] = []
    actor = SimpleNamespace(remote=lambda *arguments: given.extend(arguments))
    cluster = RayCluster.__new__(RayCluster)
    cluster._ray = SimpleNamespace(remote=lambda kind: SimpleNamespace(options=lambda **_: actor))
    cluster._options = FarmOptions(images_mb=4096, share=8)
    with pytest.MonkeyPatch.context() as patch:
        strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *_, **__: None)
        for name in ("ray", "ray.util", "ray.util.scheduling_strategies"):
            patch.setitem(sys.modules, name, strategies)
        cluster.start("n1", NodeSpec("n1", 2, 8))
    assert given[:2] == [2, 512]
