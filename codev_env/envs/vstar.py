"""`CodeV-VStar-v0` as a class of its own: find a small thing in a large image and answer a question about it."""

from __future__ import annotations

from typing import Any

from codev_env.envs.codev_env import CodeVBenchEnv


class CodeVVStarEnv(CodeVBenchEnv):
    """`CodeVBenchEnv` over V*Bench (arXiv 2312.14135); takes the same arguments."""

    def __init__(self, *, bench: str = "vstar", **arguments: Any) -> None:
        super().__init__(bench=bench, **arguments)
