"""The cluster that `farm="ray"` starts where none runs; no other may run beside this test."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from listening import LOOPBACK, places_of

pytest.importorskip("ray", reason='Ray is not installed: pip install "codev-env[ray]"')
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SCRIPT = """
import os, sys
import ray
import gymnasium as gym
from codev_env.farm.farm import close_farms
args = dict(data="synthetic", scenes="toy", max_turns=4)
envs = gym.make_vec("codev_env:CodeV-VStar-v0", 2, farm="ray", **args)
envs.reset(seed=0)
envs.step(("<code>show(image.crop((10, 20, 90, 120)))</code>",) * 2)
from ray._private.ray_constants import ENABLE_RAY_CLUSTER
print(os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"), ENABLE_RAY_CLUSTER, flush=True)
sys.stdin.read()
envs.close()
close_farms()
"""


def test_it_listens_on_this_machine_only(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    ours = ("RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_AUTH_MODE")
    given = {name: value for name, value in os.environ.items() if name not in ours}
    given |= {"CODEV_MARK": mark, "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(tmp_path)}
    script = tmp_path / "alone.py"
    script.write_text(SCRIPT)
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            env=given,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdin and process.stdout
    try:
        said = process.stdout.readline()
        assert said.split() == ["None", "True"], said + (tmp_path / "log").read_text()[-2000:]
        places = places_of(mark.encode(), "environ")
        assert places and places <= LOOPBACK
    finally:
        process.stdin.close()
        assert process.wait(60) == 0
