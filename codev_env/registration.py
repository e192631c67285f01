"""The Gymnasium ids of this package."""

from __future__ import annotations

import re

from codev_env.benches import BENCHES, environments
from codev_env.errors import nearest_name, unknown

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


def why_not_made(env_id: str, error: Exception) -> str:
    """Return the message about an id that `gymnasium.make` refuses.

    For an unknown id it names the nearest one, else those of this package. Gymnasium's own message leaves out the
    version, without which an id is not what a user copies.

    Args:
        env_id: As it was given to `gymnasium.make`, with or without its module.
        error: The error of `gymnasium.make`.
    """
    import gymnasium

    module, colon, name = env_id.rpartition(":")
    if name in gymnasium.registry:  # an environment inside of it
        return f"{env_id!r} cannot be made: {error}"
    if not isinstance(error, gymnasium.error.UnregisteredEnv):  # a malformed id, or a module that is missing
        return f"{env_id!r} is not a registered environment: {error}"
    ids = [spec.id for spec in gymnasium.registry.values() if not str(spec.entry_point).startswith("gymnasium.")]
    near = nearest_name(_stem(name), stems := {_stem(known): known for known in ids})
    hint = f"Did you mean {module + colon + stems[near]!r}?" if near else f"Known: {', '.join(sorted(ENV_IDS))}."
    return f"{env_id!r} is not a registered environment. {hint}"


def _stem(name: str) -> str:
    """Return an id without the prefix and version of most ids of this package, which make any two of them similar."""
    return re.sub(r"^CodeV-|-v\d+$", "", name, flags=re.IGNORECASE)
