"""The example loops against a local server, and what all adapters share."""

from __future__ import annotations

import asyncio
import runpy
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from chat_server import LOOKED_RIGHT, SCENES, ChatServer, images_of, oracle
from PIL import Image

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.errors import ConfigError
from codev_env.messages import content_parts, from_data_url, image_blocks, png_data_url

sys.path.append(str(Path(__file__).parents[2] / "examples"))


def test_the_openai_loop_plays(capsys):
    pytest.importorskip("openai")
    import openai_loop

    with ChatServer(oracle(range(2), **SCENES)) as server:
        assert openai_loop.main(server.url, "toy", 2) == pytest.approx([1.8, 1.8])
    assert [len(images_of(message)) for message in server.requests[1]["messages"]] == [0, 1, 0, 1]
    assert capsys.readouterr().out.count("faithful True") == 2


def test_the_asynchronous_loop_plays_many_at_once(capsys):
    pytest.importorskip("openai")
    import async_loop

    with ChatServer(oracle(range(6), **SCENES)) as server:
        found = asyncio.run(async_loop.main(server.url, "toy", 6, 3))
    assert [row["reward"] for row in found] == pytest.approx([1.8] * 6)
    assert "'reward': 1.8" in capsys.readouterr().out


def test_the_terms_add_up_to_the_reward_and_the_summary_names_them():
    act = oracle([3], **SCENES)
    player = EpisodeRunner(**SCENES)
    messages = [{"role": "user", "content": content_parts(**player.reset(index=3))}]
    while not player.done:
        text = act(messages)
        observation = player.step(text)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": content_parts(**observation)}]
    assert player.reward_terms == pytest.approx(LOOKED_RIGHT) and player.reward == pytest.approx(1.8)
    numbers = {"reward": 1.8, "correct": 1.0, "faithful": 1.0, "turns": 2.0, "tool_calls": 1.0}
    assert player.summary() == pytest.approx(numbers | {f"reward_{name}": v for name, v in LOOKED_RIGHT.items()})


def test_a_closed_players_environment_is_used_again_by_the_same_arguments_only():
    first = EpisodeRunner(**SCENES)
    env = first.env
    first.close()
    first.close()
    other = EpisodeRunner(**(SCENES | {"max_turns": 5}))
    again, new = EpisodeRunner(**SCENES), EpisodeRunner(**SCENES)
    assert again.env is env and other.env is not env and new.env is not env


def test_an_episode_that_is_cut_off_is_paid_for_its_looks():
    player = EpisodeRunner(**SCENES)
    player.reset(index=3)
    player.step(oracle([3], **SCENES)([{"role": "user", "content": content_parts(**player.reset(index=3))}]))
    player.cut_off("length")
    assert player.done and player.info["stop_reason"] == "length"
    assert player.reward == pytest.approx(LOOKED_RIGHT["tool"])
    player.cut_off("again")
    assert player.info["stop_reason"] == "length"


def test_a_message_without_an_answer_ends_the_episode_unanswered():
    player = EpisodeRunner(**SCENES)
    player.reset(seed=1)
    player.conclude("It is 3.")
    assert player.info["stop_reason"] == "no_answer" and not player.info["is_correct"]


def test_an_environment_of_your_own():
    player = EpisodeRunner(lambda **options: gym.make("codev_env:CodeV-VStar-v0", **options), **SCENES)
    assert player.reset(index=0)["images"]
    with pytest.raises(gym.error.NameNotFound):
        EpisodeRunner("CodeV-Nothing-v0")


def test_images_stand_where_their_placeholders_are():
    image = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    blocks = image_blocks("a<image>b<image><image>", [image, Image.fromarray(image), image])
    assert [block["type"] for block in blocks] == ["text", "image", "text", "image", "image"]
    assert all(np.array_equal(np.asarray(block["image"]), image) for block in blocks if block["type"] == "image")
    with pytest.raises(ConfigError, match="1 placeholders"):
        image_blocks("a<image>", [])


def test_a_data_url_loses_nothing():
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(from_data_url(png_data_url(image))), image)


@pytest.mark.parametrize("name", ["openai_loop", "async_loop"])
def test_an_example_without_its_arguments_says_how_it_is_called(name, monkeypatch):
    pytest.importorskip("openai")
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "http://localhost:8000/v1"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(Path(__file__).parents[2] / "examples" / f"{name}.py"), run_name="__main__")
    assert f"python examples/{name}.py URL MODEL" in str(stop.value)
