"""An id that is not registered: the nearest id as it is typed, else all ids of the package."""

from __future__ import annotations

import re
from dataclasses import replace

import gymnasium as gym
import pytest

from codev_env import ENV_IDS
from codev_env.adapters.episodes import EpisodeRunner
from codev_env.errors import ConfigError

NEAREST = {
    "CodeV-VSta-v0": "CodeV-VStar-v0",
    "CodeV-VStar-v1": "CodeV-VStar-v0",
    "codev-vstar-v0": "CodeV-VStar-v0",
    "vstar": "CodeV-VStar-v0",
    "Zoom": "CodeV-ZoomBench-v0",
    "codev_env:CodeV-TreeBenc-v0": "codev_env:CodeV-TreeBench-v0",
}
NOTHING_NEAR = ("CodeV-Foo-v0", "CodeV-Nothing-v0", "codev_env:CodeV-Foo-v0", "Labyrinth-v0", "my/CodeV-Foo-v0")


@pytest.fixture(params=["adapter", "train"])
def message_for(request):
    """Return the message about an id, of an adapter or of the option `env.id`."""
    if request.param == "train":
        pytest.importorskip("pydantic")
        from codev_train.run.environments import make_env
        from codev_train.run.options import EnvOptions

    def message(env_id: str) -> str:
        if request.param == "train":
            with pytest.raises(ConfigError, match="^env.id ") as wrong:
                make_env(EnvOptions(id=env_id, data="synthetic"), "train")
        else:
            with pytest.raises((gym.error.UnregisteredEnv, ModuleNotFoundError)) as wrong:
                EpisodeRunner(env_id, data="synthetic")
        return str(wrong.value)

    return message


@pytest.mark.parametrize(("env_id", "nearest"), NEAREST.items())
def test_a_misspelt_id_names_the_nearest_with_its_version(env_id, nearest, message_for):
    assert message_for(env_id).endswith(f"{env_id!r} is not a registered environment. Did you mean {nearest!r}?")


@pytest.mark.parametrize("env_id", NOTHING_NEAR)
def test_an_id_without_a_near_one_lists_those_of_the_package(env_id, message_for):
    known = ", ".join(sorted(ENV_IDS))
    assert message_for(env_id).endswith(f"{env_id!r} is not a registered environment. Known: {known}.")


def test_an_id_of_the_users_own_is_suggested_as_well(monkeypatch, message_for):
    spec = gym.envs.registration.EnvSpec("Labyrinth-v3", entry_point="my_package:Labyrinth")
    monkeypatch.setitem(gym.registry, spec.id, spec)
    assert message_for("Labyrint-v3").endswith("Did you mean 'Labyrinth-v3'?")


def test_an_unknown_id_inside_of_an_environment_is_not_put_on_its_own(monkeypatch, message_for):
    spec = gym.envs.registration.EnvSpec("Outer-v0", entry_point=lambda **options: gym.make("Inner-v0"))
    monkeypatch.setitem(gym.registry, spec.id, spec)
    assert re.search("'Outer-v0' cannot be made: .*`Inner` doesn't exist", message_for("Outer-v0"))


def test_a_module_that_is_missing_is_named(message_for):
    assert "No module named 'no_such_module'" in message_for("no_such_module:CodeV-VStar-v0")


@pytest.mark.parametrize("part", ["env", "eval"])
def test_the_option_that_gives_the_id_is_named(part):
    pytest.importorskip("pydantic")
    from codev_train.run.environments import make_eval_env
    from codev_train.run.options import TrainOptions

    options = TrainOptions()
    options = replace(options, **{part: replace(getattr(options, part), id="vstar")})
    with pytest.raises(ConfigError, match=f"^{part}.id 'vstar' is not a registered"):
        make_eval_env(options)
