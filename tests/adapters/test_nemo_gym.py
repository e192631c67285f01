"""The adapter for NeMo-Gym: its resources server, agent and vLLM server in this process, each behind a port."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

for needed in ("nemo_gym", "fastapi", "wandb"):  # NeMo-Gym needs Python 3.12
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install nemo-gym")
import aiohttp  # noqa: E402
import uvicorn  # noqa: E402
from chat_server import LOOKED_RIGHT, SCENES, ChatServer, images_of, oracle  # noqa: E402
from nemo_gym.openai_utils import NeMoGymResponse  # noqa: E402
from nemo_gym.server_utils import ServerClient  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from responses_api_models.vllm_model.app import VLLMModel  # noqa: E402

from codev_agents import answer_turn, crop_turn, expand_box  # noqa: E402
from codev_env.adapters.episodes import EpisodeRunner  # noqa: E402
from codev_env.adapters.nemo_gym import CodeVAgent, CodeVServer, rows, turn_text  # noqa: E402
from codev_env.errors import ConfigError, JudgeError, SandboxError  # noqa: E402
from codev_env.messages import from_data_url  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples/nemo_gym"
NAMES = {"codev": "resources_servers", "codev_agent": "responses_api_agents", "policy_model": "responses_api_models"}


def free_port() -> tuple[socket.socket, int]:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    return listening, listening.getsockname()[1]


def instance(kind: Any, name: str, client: ServerClient, **options: Any) -> Any:
    """A server of NeMo-Gym, configured as its launcher does."""
    config = kind.model_fields["config"].annotation
    given = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": name, **options}
    return kind(config=config.model_validate(given), server_client=client)


def ask_for_nothing() -> ServerClient:
    return ServerClient.model_construct(head_server_config=None, global_config_dict=OmegaConf.create({}))


@pytest.fixture(scope="module")
def servers():
    """Serves the environment, the agent and NeMo-Gym's vLLM server; the model behind it looks and then answers."""
    with ChatServer(oracle(range(4), **SCENES)) as chat, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEMO_GYM_CONFIG_DICT", "{}")
        config = OmegaConf.to_container(OmegaConf.load(EXAMPLE / "codev.yaml"))
        sockets = {name: free_port() for name in NAMES}
        places = {name: {kind: {name: {"host": "127.0.0.1", "port": sockets[name][1]}}} for name, kind in NAMES.items()}
        client = ServerClient.model_construct(head_server_config=None, global_config_dict=OmegaConf.create(places))
        given = {name: config[name][NAMES[name]][name] for name in ("codev", "codev_agent")}
        assert given["codev"]["options"] == SCENES
        behind = {"base_url": chat.url, "api_key": "-", "model": "m", "return_token_id_information": False}
        made = {
            "codev": instance(CodeVServer, "codev", client, **given["codev"]),
            "codev_agent": instance(CodeVAgent, "codev_agent", client, **given["codev_agent"]),
            "policy_model": instance(VLLMModel, "policy_model", client, uses_reasoning_parser=True, **behind),
        }
        running = {
            name: uvicorn.Server(uvicorn.Config(one.setup_webserver(), log_level="warning"))
            for name, one in made.items()
        }

        async def serve():  # in one loop: NeMo-Gym has one HTTP client per process
            await asyncio.gather(*(server.serve([sockets[name][0]]) for name, server in running.items()))

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        while not all(server.started for server in running.values()):
            assert thread.is_alive()
            time.sleep(0.01)
        urls = {name: f"http://127.0.0.1:{port}" for name, (_, port) in sockets.items()}
        yield {"env": made["codev"], "agent": made["codev_agent"], "chat": chat, "urls": urls}
        for server in running.values():
            server.should_exit = True
        thread.join()


class Caller:
    """A session with a served environment: the calls that an agent makes."""

    def __init__(self, servers: dict[str, Any], row: dict[str, Any]) -> None:
        self.url, self.row = servers["urls"]["codev"], row
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.http.close()

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        async with self.http.post(self.url + path, json=body) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def reset(self, **more: Any) -> tuple[int, Any]:
        return await self.post("/reset", self.row | more)

    async def step(self, text: str) -> tuple[int, Any]:
        return await self.post("/step", self.row | {"response": reply_of(text)})


def reply_of(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [part]}
    empty = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": [message], **empty}


def turns_of(index: int) -> list[str]:
    """A look at the target, then the right answer."""
    player = EpisodeRunner(**SCENES)
    player.reset(index=index)
    task, dialect = player.base.task, player.base.dialect
    player.close()
    look = crop_turn(dialect, expand_box(task.targets[0], task.image.size, 0.25))
    return [look, answer_turn(dialect, task.answer, looked=True)]


def shown(observation: list[dict[str, Any]]) -> tuple[str, list[np.ndarray]]:
    """Text and images of an observation, as Gymnasium has them."""
    text = "".join("<image>" if part["type"] == "input_image" else part["text"] for part in observation)
    urls = [part["image_url"] for part in observation if part["type"] == "input_image"]
    return text, [np.asarray(from_data_url(url)) for url in urls]


def call(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 300))


def test_an_episode_equals_that_of_gymnasium(servers):
    env = gym.make("codev_env:CodeV-VStar-v0", **SCENES)
    [row] = rows([3], **SCENES)

    async def play():
        async with Caller(servers, row) as caller:
            return [await caller.reset(), *[await caller.step(text) for text in turns_of(3)]]

    results = call(play())
    expected = [(*env.reset(options={"index": 3}),)]
    expected = [(expected[0][0], 0.0, False, False, expected[0][1]), *[env.step(text) for text in turns_of(3)]]
    for (status, got), (observation, reward, terminated, truncated, info) in zip(results, expected, strict=True):
        text, images = shown(got["observation"])
        assert status == 200 and text == observation["text"]
        assert len(images) == len(observation["images"])
        assert all(np.array_equal(*pair) for pair in zip(images, observation["images"], strict=True))
        assert got.get("reward", 0.0) == reward
        assert (got.get("terminated", False), got.get("truncated", False)) == (terminated, truncated)
        assert json.loads(json.dumps({**info})).items() <= got["info"].items()
    assert results[-1][1]["info"]["summary"]["reward"] == pytest.approx(1.8)
    assert servers["env"].session_state == {}


def test_the_agent_plays_with_a_model_that_sees_the_images(servers):
    [row] = rows([2], **SCENES)
    servers["chat"].requests.clear()

    status, text = call(run_agent(servers, row))
    assert status == 200, text
    got = json.loads(text)
    assert got["reward"] == pytest.approx(1.8) and got["terminated"] is True
    assert {name: got[f"reward_{name}"] for name in LOOKED_RIGHT} == pytest.approx(LOOKED_RIGHT)
    assert (got["correct"], got["faithful"], got["turns"], got["tool_calls"]) == (1, 1, 2, 1)
    said = [item.get("role", item["type"]) for item in got["response"]["output"]]
    assert [role for role in said if role != "reasoning"] == ["assistant", "user", "assistant"]
    assert "reasoning" in said  # which the server takes out of the text, and the dialect's format asks for
    assert got["response"]["usage"]["total_tokens"] == 36
    assert [item["role"] for item in got["responses_create_params"]["input"]] == ["system", "user"]
    last = servers["chat"].requests[-1]
    assert [len(images_of(message)) for message in last["messages"]] == [0, 1, 0, 1]
    assert last["stop"] == ["</code>", "</answer>"] and last["messages"][0]["role"] == "system"
    assert servers["env"].session_state == {}


def test_sessions_have_episodes_of_their_own(servers):
    async def play(index: int) -> Any:
        async with Caller(servers, rows([index], **SCENES)[0]) as caller:
            first = (await caller.reset())[1]["info"]["task_id"]
            results = [await caller.step(text) for text in turns_of(index)]
            assert {result[1]["info"]["task_id"] for result in results} == {first}
            return first, sum(result[1]["reward"] for result in results)

    async def together():
        return await asyncio.gather(*(play(index) for index in range(4)))

    played = call(together())
    assert len({task for task, _ in played}) == 4
    assert [reward for _, reward in played] == pytest.approx([1.8] * 4)
    assert servers["env"].session_state == {}


def test_an_episode_that_ends_early_is_freed_and_keeps_the_reward_of_its_look(servers):
    player = EpisodeRunner(**SCENES)
    player.reset(index=1)
    player.step(turns_of(1)[0])
    looked = player.reward
    player.cut_off("no_answer")

    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as caller:
            await caller.reset()
            step = (await caller.step(turns_of(1)[0]))[1]
            assert len(servers["env"].session_state) == 1
            return step, await caller.post("/close", {}), await caller.post("/close", {}), await caller.step("more")

    step, (status, closed), again, late = call(play())
    assert servers["env"].session_state == {}
    assert step["reward"] == pytest.approx(looked)
    assert status == 200 and closed["truncated"] is True
    assert step["reward"] + closed["reward"] == pytest.approx(player.reward)
    assert closed["info"]["stop_reason"] == "no_answer" and "summary" in closed["info"]
    assert again[0] == 200 and again[1]["reward"] == 0.0
    assert late[0] == 409 and "/reset" in late[1]["detail"]


def test_a_session_that_starts_again_frees_its_last_episode(servers):
    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as caller:
            ids = [(await caller.reset(index=index))[1]["info"]["task_id"] for index in (0, 1)]
            held = len(servers["env"].session_state)
            await caller.post("/close", {})
            return ids, held

    ids, held = call(play())
    assert ids[0] != ids[1] and held == 1


def test_an_abandoned_session_is_dropped_when_the_next_one_starts(servers, monkeypatch):
    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as gone, Caller(servers, rows([2], **SCENES)[0]) as next_one:
            await gone.reset()
            monkeypatch.setattr(servers["env"].config, "idle_s", 0.0)
            await next_one.reset()
            held = len(servers["env"].session_state)
            await next_one.post("/close", {})
            return held, await gone.step("well")

    held, (status, message) = call(play())
    assert held == 1 and status == 409 and "/reset" in message["detail"]


def test_calls_that_make_no_sense_say_why(servers):
    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as caller:
            return (
                await caller.step("<answer>1</answer>"),
                await caller.reset(index=10**9),
                await caller.reset(task_id="nothing like it"),
                await caller.reset(index="three"),
                await caller.post("/step", caller.row),
            )

    stepped, *wrong, bodiless = call(play())
    assert stepped[0] == 409 and "/reset" in stepped[1]["detail"]
    assert [status for status, _ in wrong] == [422] * 3
    assert "1000000000" in wrong[0][1]["detail"] and "nothing like it" in wrong[1][1]["detail"]
    assert bodiless[0] == 422 and servers["env"].session_state == {}


def test_a_turn_that_cannot_be_parsed_costs_a_turn_and_says_what_is_wrong(servers):
    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as caller:
            await caller.reset()
            return [await caller.step("I shall think about it.") for _ in range(SCENES["max_turns"])]

    results = [result for _, result in call(play())]
    assert [result["info"]["action_kind"] for result in results] == ["invalid"] * 3
    assert [result["truncated"] for result in results] == [False, False, True]
    assert "no code block and no answer block" in shown(results[0]["observation"])[0]


def test_a_call_that_is_sent_again_waits_for_the_first(servers):
    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as caller:
            await caller.reset()
            answer = turns_of(1)[1]
            return await asyncio.gather(caller.step(answer), caller.step(answer))

    results = call(play())
    assert sorted(status for status, _ in results) == [200, 409]
    assert servers["env"].session_state == {}


def test_a_reset_beside_a_turn_leaves_the_new_episode_alone(servers):
    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as caller:
            await caller.reset()
            ended, again = await asyncio.gather(caller.step(turns_of(1)[1]), caller.reset(index=2))
            return ended, again, [await caller.step(text) for text in turns_of(2)]

    ended, again, steps = call(play())
    assert ended[0] in (200, 409) and again[0] == 200
    assert sum(step["reward"] for _, step in steps) == pytest.approx(1.8)
    assert servers["env"].session_state == {}


def test_a_close_beside_a_turn_that_fails_cuts_off_no_other_episode(servers, monkeypatch):
    held = threading.Event()

    def fail(self, text):
        held.wait(60)
        raise JudgeError("the judge is ill")

    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as caller, Caller(servers, rows([2], **SCENES)[0]) as other:
            await caller.reset()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(EpisodeRunner, "step", fail)
                stepping = asyncio.create_task(caller.step("well"))
                await asyncio.sleep(0.2)
                closing = asyncio.create_task(caller.post("/close", {}))
                await asyncio.sleep(0.2)
                held.set()
                results = [await stepping, await closing]
            await other.reset()  # which takes the environment that was given back
            return results, [await other.step(text) for text in turns_of(2)]

    [failed, closed], steps = call(play())
    assert (failed[0], closed[0]) == (500, 200) and closed[1]["reward"] == 0.0 and closed[1]["truncated"]
    assert sum(step["reward"] for _, step in steps) == pytest.approx(1.8)


def test_a_reset_that_fails_gives_its_environment_back_and_says_why(servers, monkeypatch):
    closed = []

    def fail(self, **named):
        raise SandboxError("no node is left")

    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as caller:
            monkeypatch.setattr(EpisodeRunner, "reset", fail)
            monkeypatch.setattr(EpisodeRunner, "close", lambda self: closed.append(self))
            return await caller.reset()

    status, got = call(play())
    assert status == 500 and got["detail"] == "SandboxError: no node is left"
    assert len(closed) == 1 and servers["env"].session_state == {}


def test_a_failing_judge_is_an_error_and_never_a_score(servers, monkeypatch):
    def fail(self, text):
        raise JudgeError("the judge is ill")

    async def play():
        async with Caller(servers, rows([1], **SCENES)[0]) as caller:
            await caller.reset()
            monkeypatch.setattr(EpisodeRunner, "step", fail)
            return await caller.step(turns_of(1)[0])

    status, got = call(play())
    assert status == 500 and got["detail"] == "JudgeError: the judge is ill"
    assert servers["env"].session_state == {}


def run_with_model(servers, monkeypatch, model, index: int = 1) -> tuple[int, str]:
    """Let the agent play against a model server that is a function."""
    ask = CodeVAgent._ask

    async def asked(self: Any, server: str, path: str, body: Any, cookies: Any) -> Any:
        return (model(), cookies) if server == "policy_model" else await ask(self, server, path, body, cookies)

    monkeypatch.setattr(CodeVAgent, "_ask", asked)
    return call(run_agent(servers, rows([index], **SCENES)[0]))


async def run_agent(servers, row: dict[str, Any]) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.post(servers["urls"]["codev_agent"] + "/run", json=row) as reply:
        return reply.status, await reply.text()


def test_the_agent_frees_the_episode_when_the_model_fails(servers, monkeypatch):
    def fail():
        raise RuntimeError("the model server is gone")

    status, _ = run_with_model(servers, monkeypatch, fail)
    assert status == 500 and servers["env"].session_state == {}


@pytest.mark.parametrize("text", ["", "well"])
def test_the_agent_cuts_off_an_episode_without_an_answer(servers, monkeypatch, text):
    monkeypatch.setattr(servers["agent"].config, "max_steps", 2)
    status, got = run_with_model(servers, monkeypatch, lambda: reply_of(text))
    got = json.loads(got)
    assert status == 200 and got["truncated"] is True and got["terminated"] is False
    assert got["info"]["stop_reason"] == "no_answer" and got["turns"] == (2 if text else 0)
    assert got["reward"] == pytest.approx(sum(value for name, value in got.items() if name.startswith("reward_")))
    assert got["correct"] == 0 and servers["env"].session_state == {}


def test_the_example_writes_the_rows_of_the_environment_that_it_serves(monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLE)
    import rows as example

    example.main(2)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows(range(2), **SCENES)
    apps = {path.parent.relative_to(EXAMPLE).as_posix(): path for path in EXAMPLE.glob("*/*/app.py")}
    assert {f"{kind}/{name}" for name, kind in NAMES.items()} - {"responses_api_models/policy_model"} == set(apps)
    for path in apps.values():
        compile(path.read_text(), path, "exec")
        assert path.with_name("requirements.txt").is_file()


def test_reasoning_that_was_taken_out_goes_back():
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Look left."}]}
    reply = reply_of("<answer>1</answer>")
    reply["output"].insert(0, thought)
    assert turn_text(NeMoGymResponse.model_validate(reply)) == "<think>Look left.</think><answer>1</answer>"


def test_an_environment_that_cannot_be_made_fails_before_it_is_served():
    for options, match in (
        ({"options": {"data": "synthetic", "max_turn": 3}}, "max_turn"),
        ({"num_workers": 2}, "num_workers"),
    ):
        with pytest.raises((ConfigError, TypeError), match=match):
            instance(CodeVServer, "codev", ask_for_nothing(), **options).setup_webserver()
    with pytest.raises(gym.error.Error, match="Nothing"):
        instance(CodeVServer, "codev", ask_for_nothing(), env="CodeV-Nothing-v0").setup_webserver()
