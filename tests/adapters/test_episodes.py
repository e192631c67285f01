"""What the adapters share: episodes of environments that are used again."""

from __future__ import annotations

import gymnasium as gym
import pytest
from chat_server import SCENES
from gymnasium.error import ResetNeeded
from PIL import Image

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.sandbox import Limits
from codev_env.tasks import load_tasks


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


def rows(word):
    question = {"question": f"Which {word}?", "answer": "a"}
    return [{"image": Image.new("RGB", (64, 64)), **question, "number": number} for number in range(100)]


def data_set(word):
    return pytest.importorskip("datasets").Dataset.from_list(rows(word))


def data_frame(word):
    """Data frames whose texts are equal, since the middle is left out of them."""
    pandas = pytest.importorskip("pandas")
    listed = [row | {"image": None, "question": f"{word if 20 < n < 60 else ''}{n}?"} for n, row in enumerate(rows(""))]
    return pandas.DataFrame(listed).assign(image=[Image.new("RGB", (64, 64))] * 100)


def task_set(word):
    return load_tasks(rows(word), "train", bench="dataset")


@pytest.mark.parametrize("make", [rows, data_set, data_frame, task_set])
def test_environments_over_data_that_looks_alike_are_not_mistaken(make):
    """Texts of data sets have the number of rows and the columns, not the rows."""
    for word in ("dog", "cat"):
        data = make(word)
        player = EpisodeRunner("CodeV-Dataset-v0", data=data)
        player.reset(index=40)
        assert word in player.base.task.question
        player.close()
        again = EpisodeRunner("CodeV-Dataset-v0", data=data)
        assert again.env is player.env
        again.close()


def test_options_of_equal_values_share_an_environment_and_others_do_not():
    first = EpisodeRunner(**SCENES, limits=Limits(wall_s=3))
    first.close()
    assert EpisodeRunner(**SCENES, limits=Limits(wall_s=4)).env is not first.env
    assert EpisodeRunner(**SCENES, limits=Limits(wall_s=3)).env is first.env
