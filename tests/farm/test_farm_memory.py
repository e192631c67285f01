"""What a farm holds in memory: images while they travel."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import gymnasium as gym
import pytest
from local_cluster import LocalCluster, LocalNode

from codev_env.farm import link, remote
from codev_env.farm.messages import PackedImage, pack


def until(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_images_are_packed_as_they_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all episodes that wait would be in memory twice."""
    monkeypatch.setattr(link, "_BATCH_BYTES", 1)
    farm, goes_on, packed, held = LocalCluster(1).farm(), threading.Event(), weakref.WeakSet[PackedImage](), []
    monkeypatch.setattr(remote, "pack", lambda image: (one := pack(image), packed.add(one))[0])
    submit = LocalNode.submit

    def slow(node: LocalNode, batch: Any, timeout: float) -> None:
        assert goes_on.wait(20)
        held.append(len(packed))
        submit(node, batch, timeout)
        node.batches.clear()

    monkeypatch.setattr(LocalNode, "submit", slow)
    envs = gym.make_vec("codev_env:CodeV-VStar-v0", 6, farm=farm, data="synthetic", scenes="toy")
    envs.reset(seed=0)
    goes_on.set()
    until(lambda: len(held) == 6)
    assert max(held) == 1
    until(lambda: not packed)
    assert all(
        len(images) == 1 for images in envs.step(("<code>show(image.crop((10, 20, 90, 120)))</code>",) * 6)[0]["images"]
    )
    envs.close()
    farm.close()
