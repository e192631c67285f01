"""The Gymnasium ids of this package."""

from __future__ import annotations

from codev_env.benches import BENCHES, environments
from codev_env.errors import unknown

ENV_IDS = tuple(environments())
"""The ids that `import codev_env` registers."""


def register_envs() -> None:
    """Register every environment of this package with Gymnasium, by import path, so that nothing heavy is imported."""
    import gymnasium

    for env_id, arguments in environments().items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="codev_env.envs.codev_env:CodeVBenchEnv",
                vector_entry_point="codev_env.envs.vector:make_vec",
                kwargs=arguments,
                # Its checker loses the first observation where the first reset fails, and then fails itself. Each id
                # passes `check_env` in the tests.
                disable_env_checker=True,
            )


def env_id_of(bench: str) -> str:
    """Return the id of the environment over a benchmark, as `gymnasium.make` takes it with its module.

    Raises:
        ConfigError: If no id belongs to the benchmark.
    """
    if bench not in BENCHES:
        raise unknown("benchmark with an environment of its own", bench, BENCHES)
    return f"codev_env:{BENCHES[bench].env_id}"
