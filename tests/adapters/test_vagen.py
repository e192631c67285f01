"""The adapter for VAGEN, held against the contract that its `GymImageEnv` documents.

VAGEN is no package of the registry (the one of that name there is another's): where it is installed from source, the
environment is also one of its class.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path

import pytest
from chat_server import LOOKED_RIGHT, SCENES, oracle
from PIL import Image

from codev_env.adapters.vagen import CodeVImageEnv
from codev_env.errors import ConfigError
from codev_env.messages import png_data_url

sys.path.append(str(Path(__file__).parents[2] / "examples"))


def messages_of(observations):
    """Observations as the messages that a model would be sent."""
    found = []
    for observation in observations:
        images = observation.get("multi_modal_input", {}).get("<image>", [])
        assert observation["obs_str"].count("<image>") == len(images)
        assert all(isinstance(image, Image.Image) for image in images)
        parts = [{"type": "image_url", "image_url": {"url": png_data_url(image)}} for image in images]
        found += [{"role": "user", "content": parts}, {"role": "assistant", "content": ""}]
    return found[:-1]


def play(act, seed=0, **options):
    """Play as VAGEN's agent loop does in its concatenated mode; returns the steps."""

    async def run():
        env = CodeVImageEnv({**SCENES, **options})
        system = await env.system_prompt()
        observation, _ = await env.reset(seed)
        observations, steps = [observation], []
        while not steps or not steps[-1][2]:
            steps.append(await env.step(act(messages_of(observations))))
            observations.append(steps[-1][0])
        await env.close()
        return system, steps

    return asyncio.run(run())


def test_every_method_is_a_coroutine():
    for name in ("system_prompt", "reset", "step", "close"):
        assert inspect.iscoroutinefunction(getattr(CodeVImageEnv, name))


def test_an_episode_is_played_and_paid():
    system, steps = play(oracle(range(64), scenes={"preset": "toy", "size": 64}, data="synthetic"),
                         scenes={"preset": "toy", "size": 64})  # fmt: skip
    assert "<code>" in system["obs_str"] and len(steps) == 2
    assert sum(reward for _, reward, _, _ in steps) == pytest.approx(sum(LOOKED_RIGHT.values()))
    *_, info = steps[-1]
    assert info["success"] is True and info["metrics"]["traj_metrics"]["faithful"] == 1.0
    assert steps[0][3]["success"] is False


def test_the_seed_names_the_task():
    async def drawn(seed):
        env = CodeVImageEnv(SCENES)
        _, info = await env.reset(seed)
        await env.close()
        return info["task_id"]

    first, second, again = (asyncio.run(drawn(seed)) for seed in (1, 2, 1))
    assert first == again != second


def test_an_unknown_argument_is_refused():
    with pytest.raises((ConfigError, TypeError), match="colour"):
        CodeVImageEnv({**SCENES, "colour": "red"})


def test_it_is_of_vagens_class():
    base = pytest.importorskip("vagen.envs.gym_image_env", reason="VAGEN is not installed (only from source)")
    assert issubclass(CodeVImageEnv, base.GymImageEnv)


def test_the_example_runs(capsys):
    import vagen_env

    vagen_env.main()
    assert "success" in capsys.readouterr().out
