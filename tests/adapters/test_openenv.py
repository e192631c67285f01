"""The adapter for OpenEnv: a real server in this process, and the real client over WebSocket."""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("openenv.core", reason="OpenEnv is not installed: pip install openenv")
import uvicorn  # noqa: E402
from chat_server import LOOKED_RIGHT, SCENES, oracle  # noqa: E402
from openenv.core import GenericEnvClient  # noqa: E402

from codev_env.adapters.episodes import EpisodeRunner  # noqa: E402
from codev_env.adapters.openenv import CodeVClient, TurnAction, make_app  # noqa: E402
from codev_env.messages import from_data_url  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(scope="module")
def url():
    """A served environment."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(sessions=4, **SCENES), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def play(client, act, **task):
    """Play an episode; returns the results and what was said."""
    results = [client.reset(**task)]
    first = results[0].observation
    messages = [{"role": "system", "content": first.system_prompt}, {"role": "user", "content": first.content()}]
    while not results[-1].done:
        text = act(messages)
        results.append(client.step(TurnAction(text=text)))
        content = results[-1].observation.content()
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": content}]
    return results, messages


def test_a_client_plays_an_episode(url):
    with CodeVClient(base_url=url).sync() as client:
        results, messages = play(client, oracle([3], **SCENES), index=3, episode_id="e")
        state = client.state()
    assert sum(result.reward for result in results[1:]) == pytest.approx(1.8)
    assert [len(result.observation.images) for result in results] == [1, 1, 0]
    assert results[-1].observation.metadata["is_faithful"] is True and messages[0]["content"]
    assert state.reward_terms == pytest.approx(LOOKED_RIGHT)
    assert (state.episode_id, state.step_count, state.reward) == ("e", 2, pytest.approx(1.8))


def test_images_arrive_without_loss(url):
    player = EpisodeRunner(**SCENES)
    image = player.reset(index=5)["images"][0]
    with CodeVClient(base_url=url).sync() as client:
        sent = client.reset(index=5).observation.images[0]
    assert np.array_equal(np.asarray(from_data_url(sent)), image)


def test_two_clients_have_episodes_of_their_own(url):
    with CodeVClient(base_url=url).sync() as one, CodeVClient(base_url=url).sync() as two:
        ids = [client.reset(index=index).observation.metadata["task_id"] for client, index in ((one, 0), (two, 1))]
        one.step(TurnAction(text="<answer>nothing</answer>"))
        assert [client.state().task_id for client in (one, two)] == ids and ids[0] != ids[1]
        assert not two.step(TurnAction(text="well")).done


def test_a_client_without_this_package_plays_with_dictionaries(url):
    with GenericEnvClient(base_url=url).sync() as client:
        first = client.reset(seed=7)
        result = client.step({"text": "<answer>nothing</answer>"})
    assert "<image>" in first.observation["text"] and first.observation["images"][0].startswith("data:image/png")
    assert result.done and result.observation["metadata"]["stop_reason"] == "answer"


def test_the_same_seed_draws_the_same_task(url):
    with CodeVClient(base_url=url).sync() as client:
        drawn = [client.reset(seed=seed).observation.metadata["index"] for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2]


def test_the_example_runs(url, capsys):
    import openenv_client

    openenv_client.main(url)
    assert "reward" in capsys.readouterr().out
