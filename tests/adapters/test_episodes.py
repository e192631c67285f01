"""What the adapters share: episodes of environments that are used again."""

from __future__ import annotations

import gymnasium as gym
import pytest
from chat_server import SCENES
from gymnasium.error import ResetNeeded

from codev_env.adapters.episodes import EpisodeRunner


def test_an_environment_is_used_again_by_a_player_of_the_same_arguments():
    first = EpisodeRunner(**SCENES)
    first.close()
    other = EpisodeRunner(**(SCENES | {"max_turns": 2}))
    assert other.env is not first.env
    assert EpisodeRunner(**SCENES).env is first.env


def test_what_makes_an_environment_is_not_mistaken_for_another():
    """A function that is gone leaves its address to the next one."""
    for turns in range(1, 8):
        options = SCENES | {"max_turns": turns}
        player = EpisodeRunner(lambda options=options: gym.make("codev_env:CodeV-VStar-v0", **options))
        assert player.base.max_turns == turns
        player.close()


def test_an_episode_that_nobody_plays_on_is_over():
    player = EpisodeRunner(**SCENES)
    player.reset(index=3)
    player.step(player.code_turn("image.save('kept.png')\nprint('kept.png')"))
    player.close()
    again = EpisodeRunner(**SCENES)
    assert again.env is player.env
    with pytest.raises(ResetNeeded):
        again.env.step("<answer>1</answer>")
