"""What the adapters share: episodes of environments that are used again."""

from __future__ import annotations

import threading

import gymnasium as gym
import pytest
from chat_server import SCENES
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from PIL import Image

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.sandbox import Limits
from codev_env.tasks import load_tasks
from codev_env.types import StepScore


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


def test_an_episode_that_a_wrapper_ends_is_out_of_turns():
    code = "image.save('kept.png')\nprint('kept.png')"
    ended = []
    for options in (SCENES | {"max_turns": 2}, SCENES | {"max_episode_steps": 2}):
        player = EpisodeRunner(**options)
        player.reset(index=3)
        player.step(player.code_turn(code))
        player.step(player.code_turn(code))
        ended.append((player.done, player.info, player.reward_terms))
        player.close()
    assert ended[0] == ended[1] and ended[0][1]["stop_reason"] == "max_turns"


def test_the_reward_of_a_turn_is_exactly_that_of_the_environment():
    env = gym.make("codev_env:CodeV-VStar-v0", **SCENES)
    player = EpisodeRunner(**SCENES)
    env.reset(options={"index": 3})
    player.reset(index=3)
    assert player.turn_reward == 0.0
    for code in ("show(image.crop((0, 0, 60, 60)))", "show(image.crop((60, 60, 120, 120)))", "1 / 0"):
        turn = player.code_turn(code)
        player.step(turn)
        assert player.turn_reward == env.step(turn)[1]


class WaitingJudge:
    """A judge, as one behind a server, whose score comes when it is told to."""

    name, needs_boxes = "waiting", False

    def __init__(self):
        self.asked, self.told = threading.Event(), threading.Event()

    def score(self, task, step, before):
        self.asked.set()
        assert self.told.wait(20)
        return StepScore(1.0, "it waited", True)


def test_a_turn_that_still_runs_when_its_episode_is_closed_does_not_land_in_another_one():
    """As where a library cancels an episode: its coroutine ends at once, the thread of its turn does not."""
    judge = WaitingJudge()
    cancelled = EpisodeRunner(**SCENES, judge=judge)
    cancelled.reset(index=0)
    turn = threading.Thread(target=cancelled.step, args=[cancelled.code_turn("show(image)")])
    turn.start()
    assert judge.asked.wait(20)
    cancelled.close()
    cancelled.close()
    other = EpisodeRunner(**SCENES, judge=judge)
    other.reset(index=1)
    judge.told.set()
    turn.join(20)
    other.step("<answer>1</answer>")
    assert other.info["turn"] == 1 and not other.info["is_faithful"]
    assert other.env is not cancelled.env
    assert EpisodeRunner(**SCENES, judge=judge).env is cancelled.env  # given back when its turn had ended, once
    assert EpisodeRunner(**SCENES, judge=judge).env is not cancelled.env


def test_a_closed_episode_refuses_to_go_on():
    player = EpisodeRunner(**SCENES)
    player.reset(index=0)
    player.close()
    for call in (player.reset, lambda: player.step("<answer>1</answer>"), lambda: player.cut_off("no_answer")):
        with pytest.raises(ClosedEnvironmentError, match="closed"):
            call()
    assert player.summary()["turns"] == 0


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
