"""The Gymnasium ids of this package."""

from __future__ import annotations

from typing import Any

from codev_env.errors import unknown

_ENVS: dict[str, dict[str, Any]] = {
    "CodeV-VStar-v0": {"bench": "vstar"},
    "CodeV-HRBench4K-v0": {"bench": "hrbench4k"},
    "CodeV-HRBench8K-v0": {"bench": "hrbench8k"},
    "CodeV-MathVista-v0": {"bench": "mathvista"},
    "CodeV-MVTool-v0": {"bench": "mvtool"},
    "CodeV-Orientation-v0": {"bench": "vstar", "wrap": "orientation"},
    "CodeV-Corruption-v0": {"bench": "vstar", "wrap": "corruption"},
    "CodeV-RL-v0": {"bench": "codev-rl"},
    "CodeVision-RL-v0": {"bench": "codevision-rl"},
    "CodeV-DeepEyes-v0": {"bench": "deepeyes"},
    "CodeV-Dataset-v0": {"bench": "dataset"},
}
"""By id: the arguments that make it what it is."""

ENV_IDS = tuple(_ENVS)
"""The ids that `import codev_env` registers."""


def register_envs() -> None:
    """Register every environment of this package with Gymnasium, by import path, so that nothing heavy is imported."""
    import gymnasium

    for env_id, arguments in _ENVS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="codev_env.envs.bench:CodeVBenchEnv",
                vector_entry_point="codev_env.envs.vector:make_vec",
                kwargs=dict(arguments),
                # Its checker loses the first observation where the first reset fails, and then fails itself. Each id
                # passes `check_env` in the tests.
                disable_env_checker=True,
            )


def env_id_of(bench: str) -> str:
    """Return the id of the environment over a benchmark, as `gymnasium.make` takes it with its module.

    Raises:
        ConfigError: If no id stands for the benchmark.
    """
    for env_id, arguments in _ENVS.items():
        if arguments["bench"] == bench:
            return f"codev_env:{env_id}"
    raise unknown("benchmark with an environment of its own", bench, {row["bench"] for row in _ENVS.values()})
