from __future__ import annotations

import base64
import io
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image
from small_tasks import SmallTasks

from codev_agents import AgentError, ChatAgent, run_episode
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ConfigError, EpisodeLost
from codev_env.messages import content_parts, restore_stop

pytest.importorskip("openai")

LOOK = '<think>x</think>\n<code>\n```python\nimage.crop((40, 30, 70, 60)).save("a.png")\nprint("a.png")\n```\n'


class Server:
    """A local server that speaks the chat-completions format and plays a list of replies."""

    def __init__(self, *replies) -> None:
        self.replies, self.requests = list(replies), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args) -> None:
                return

            def do_GET(self) -> None:
                self.answer(
                    200, {"object": "list", "data": [{"id": "toy", "object": "model", "created": 0, "owned_by": ""}]}
                )

            def do_POST(self) -> None:
                outer.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                reply = outer.replies.pop(0)
                if reply is None:
                    self.close_connection = True
                    return
                self.answer(*(reply if isinstance(reply, tuple) else (200, reply)))

            def answer(self, status: int, body: dict | bytes) -> None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "text/html" if data.startswith(b"<") else "application/json")
                self.send_header("content-length", str(len(data)))
                if status >= 429:
                    self.send_header("retry-after-ms", "1")
                self.end_headers()
                self.wfile.write(data)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc) -> None:
        self.http.shutdown()
        self.http.server_close()


def completion(text: str | None, finish: str = "stop", **choice) -> dict:
    message = {"role": "assistant", "content": text}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "toy",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, **choice}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def error(status: int, message: str) -> tuple[int, dict]:
    return status, {"error": {"message": message, "type": "x", "code": status}}


@pytest.fixture(scope="module")
def env():
    made = ImageToolEnv(SmallTasks(), max_turns=3)
    yield made
    made.close()


def play(env, server: Server, **options):
    agent = ChatAgent("toy", server.url, timeout_s=5, retries=2, **options)
    return run_episode(env, agent, options={"index": 1})


def test_episode_over_the_api(env):
    with Server(completion(LOOK), completion("<answer>blue", stop_reason="</answer>")) as server:
        found = play(env, server, temperature=0.7, max_tokens=99, seed=4, extra_body={"top_k": 20})
    assert (found.is_correct, found.is_faithful, found.agent) == (True, True, "chat:toy")
    assert found.turns[0].action == LOOK + "</code>"
    assert found.turns[1].action == "<answer>blue</answer>"
    assert found.meta["agent"] == {
        "model": "toy",
        "requests": 2,
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "truncated_turns": 0,
    }
    first, second = server.requests
    assert {name: first[name] for name in ("model", "temperature", "max_tokens", "seed", "top_k", "stop")} == {
        "model": "toy",
        "temperature": 0.7,
        "max_tokens": 99,
        "seed": 4,
        "top_k": 20,
        "stop": ["</code>", "</answer>"],
    }
    assert first["messages"][0] == {"role": "system", "content": env.system_prompt}
    image, text = first["messages"][1]["content"]
    header, data = image["image_url"]["url"].split(",")
    assert header == "data:image/png;base64"
    sent = Image.open(io.BytesIO(base64.b64decode(data)))
    assert sent.tobytes() == SmallTasks()[1].image.tobytes()
    assert "Which colour?" in text["text"] and "blue" in text["text"]
    roles = [message["role"] for message in second["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert second["messages"][2]["content"] == LOOK + "</code>"
    assert [part["type"] for part in second["messages"][3]["content"]] == ["text", "image_url", "text"]


def test_truncated_turn_gets_no_end_tag_and_is_counted(env):
    with Server(completion("<code>\nprint(1", "length"), completion(None), completion("<answer>A")) as server:
        found = play(env, server)
    assert found.turns[0].action == "<code>\nprint(1"
    assert (found.turns[1].action, found.turns[1].kind) == ("", "invalid")
    assert found.meta["agent"]["truncated_turns"] == 1


def test_a_second_episode_is_a_new_conversation(env):
    with Server(completion("<answer>A"), completion("<answer>A")) as server:
        agent = ChatAgent("toy", server.url)
        for _ in range(2):
            assert run_episode(env, agent, options={"index": 0}).meta["agent"]["requests"] == 1
    assert [len(request["messages"]) for request in server.requests] == [2, 2]


def test_passing_failures_are_retried(env):
    replies = (error(429, "busy"), error(500, "oops"), completion("<answer>blue"))
    with Server(*replies) as server:
        assert play(env, server).is_correct
    with Server(None, completion("<answer>blue")) as server:
        assert play(env, server).is_correct


def test_lasting_failures_say_what_to_do(env):
    with Server(*[error(500, "oops")] * 3) as server, pytest.raises(AgentError, match="oops"):
        play(env, server)
    with Server(error(404, "The model does not exist")) as server, pytest.raises(ConfigError, match="It serves: toy"):
        play(env, server)
    with Server(error(400, "context too long")) as server, pytest.raises(AgentError, match="context too long"):
        play(env, server)
    with Server({**completion(""), "choices": []}) as server, pytest.raises(AgentError, match="no choice"):
        play(env, server)
    with pytest.raises(AgentError, match="is it running"):
        play(env, server)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 100 tokens. However, you requested 120 tokens (110 in the messages, "
        "10 in the completion). Please reduce the length of the messages or completion.",
        "The decoder prompt (length 120) is longer than the maximum model length of 100.",
        "The input (120 tokens) is longer than the model's context length (100 tokens).",
        "the request exceeds the available context size",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 100]",
        "The input token count (120) exceeds the maximum number of tokens allowed (100).",
    ],
)
def test_an_episode_that_outgrows_the_context_ends_without_an_answer(env, message):
    with Server(completion(LOOK), error(400, message)) as server:
        found = play(env, server)
    assert (found.stop_reason, found.is_correct, len(found.turns)) == ("max_length", False, 1)
    assert found.total_reward == pytest.approx(sum(env.reward.value(env.episode).values()))
    with Server(error(400, message)) as server, pytest.raises(AgentError, match="failed"):
        play(env, server)
    with Server(completion(LOOK), error(400, "no such option")) as server, pytest.raises(AgentError, match="option"):
        play(env, server)


def test_a_sentence_of_the_server_ends_once(env):
    with (
        Server(error(404, "There is no such model.")) as server,
        pytest.raises(ConfigError, match="model. It serves: toy"),
    ):
        play(env, server)


def test_missing_package_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match="pip install"):
        ChatAgent("toy")


@pytest.mark.parametrize(
    ("text", "reported", "restored"),
    [
        ("<code>\nx\n", None, "<code>\nx\n</code>"),
        ("<think>a</think><answer>b", None, "<think>a</think><answer>b</answer>"),
        ("I write <code> like this</code> <answer>b", None, "I write <code> like this</code> <answer>b</answer>"),
        ("<think><code> or not</think><answer>b", None, "<think><code> or not</think><answer>b</answer>"),
        ("<think>a</think><code>\nprint('<answer>'\n", None, "<think>a</think><code>\nprint('<answer>'\n</code>"),
        ("no tag", None, "no tag"),
        ("no tag", "</code>", "no tag</code>"),
        ("<code>x</code>", "</code>", "<code>x</code>"),
        ("<answer>b", 151645, "<answer>b</answer>"),
        ("", None, ""),
    ],
)
def test_restore_stop(text, reported, restored):
    assert restore_stop(text, ("</code>", "</answer>"), reported) == restored


def test_images_stand_where_their_placeholders_are():
    image = np.zeros((2, 3, 3), np.uint8)
    kinds = [part["type"] for part in content_parts("a<image>b<image><image>", [image] * 3)]
    assert kinds == ["text", "image_url", "text", "image_url", "image_url"]
    with pytest.raises(ConfigError, match="1 placeholders"):
        content_parts("a<image>", [])


def test_observations_in_the_models_own_message():
    env = ImageToolEnv(SmallTasks(), max_turns=4, dialect="thyme")
    failing = "<code>\n```python\nnowhere\n```\n</code>"
    with Server(completion(LOOK), completion(failing), completion("</think><answer>blue</answer>")) as server:
        found = play(env, server, extra_body={"top_k": 20})
    env.close()
    assert (found.is_correct, found.is_faithful, found.observation_role) == (True, True, "assistant")
    first, _, third = server.requests
    assert "continue_final_message" not in first and first["top_k"] == third["top_k"] == 20
    assert third["continue_final_message"] is True and third["add_generation_prompt"] is False
    assert [message["role"] for message in third["messages"]] == ["system", "user", "assistant"]
    parts = third["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "text", "image_url", "text", "text", "text"]
    said = "".join(part.get("text", "(image)") for part in parts)
    observation = found.turns[0].observation.replace("<image>", "(image)")
    assert said == found.turns[0].action + observation + failing + found.turns[1].observation


def without_usage(usage) -> dict:
    return {**completion("<answer>blue"), "usage": usage}


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 7, "completion_tokens": None}, {"prompt_tokens": "7"}])
def test_tokens_that_a_server_does_not_count_are_zero(env, usage):
    with Server(without_usage(usage)) as server:
        found = play(env, server)
    assert found.is_correct
    counted = 7 if usage and usage["prompt_tokens"] == 7 else 0
    assert (found.meta["agent"]["prompt_tokens"], found.meta["agent"]["completion_tokens"]) == (counted, 0)


def test_parts_of_a_reply_are_joined(env):
    parts = [
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "<answer>"},
        {"type": "text", "text": "blue"},
    ]
    with Server(completion(parts)) as server:
        assert play(env, server).turns[0].action == "<answer>blue</answer>"


BROKEN = {**completion(""), "choices": [{"index": 0, "finish_reason": "stop", "message": None}]}


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"<html>busy</html>", "no chat completion, but '<html>busy"),
        (b"{oops", "no JSON"),
        (b'"text"', "no chat completion"),
        (b"[]", "no chat completion"),
        ({"error": {"message": "rate limit", "code": 429}}, "no chat completion, but .*rate limit"),
        ({**completion(""), "choices": None}, "no chat completion"),
        ({**completion(""), "choices": ["x"]}, "no chat completion"),
        (BROKEN, "no chat completion"),
        (completion({"a": 1}), "no chat completion"),
        (completion(None, "content_filter"), "finish_reason 'content_filter'"),
        (completion(" ", "error"), "finish_reason 'error'"),
    ],
)
def test_a_reply_without_a_turn_is_a_failure(env, reply, says):
    with Server(reply) as server, pytest.raises(AgentError, match=says):
        play(env, server)


def refused(name: str) -> tuple[int, dict]:
    said = {"message": f"Unsupported parameter: {name!r}", "param": name, "code": "unsupported_parameter"}
    return 400, {"error": said}


def test_a_model_that_refuses_max_tokens_and_stop_strings_plays_all_the_same(env):
    """As reasoning models of OpenAI do; it is asked once, and what it writes after a stop string is not its turn."""
    goes_on = completion(LOOK + "</code>\nOutput: a dog\n<answer>red</answer>")
    with Server(refused("max_tokens"), refused("stop"), goes_on, completion("<answer>blue</answer>")) as server:
        found = play(env, server, max_tokens=99)
    assert (found.is_correct, found.turns[0].action) == (True, LOOK + "</code>")
    assert [("max_tokens" in sent, sent.get("max_completion_tokens")) for sent in server.requests] == [
        (True, None),
        (False, 99),
        (False, 99),
        (False, 99),
    ]
    assert ["stop" in sent for sent in server.requests] == [True, True, False, False]
    assert server.requests[-1]["messages"][2]["content"] == LOOK + "</code>"
    assert found.meta["agent"]["requests"] == 2
    for name in ("temperature", "stop"):
        replies = [refused(name)] * 2
        with Server(*replies) as server, pytest.raises(AgentError, match=f"Unsupported parameter: '{name}'"):
            play(env, server)
        assert len(server.requests) == 1 + (name == "stop")


def test_a_reply_that_ends_an_episode_is_in_its_usage_and_those_of_lost_starts_are_too(env, monkeypatch):
    look = completion("<think>x</think><code>show(image)</code>")
    with Server(look, completion("", "content_filter")) as server, pytest.raises(AgentError) as caught:
        run_episode(env, ChatAgent("toy", server.url), options={"index": 0})
    assert (caught.value.usage.agent["requests"], caught.value.usage.agent["completion_tokens"]) == (2, 10)
    step, starts = ImageToolEnv.step, iter((True, False))

    def lose_the_first(self, action):
        if next(starts):
            raise EpisodeLost("the node is gone")
        return step(self, action)

    monkeypatch.setattr(ImageToolEnv, "step", lose_the_first)
    with Server(*[completion("<answer>blue</answer>")] * 2) as server:
        played = run_episode(env, ChatAgent("toy", server.url), options={"index": 0})
    assert (played.meta["agent"]["requests"], played.meta["agent"]["completion_tokens"]) == (2, 10)


def test_a_turn_that_a_filter_cut_off_counts(env):
    with Server(completion("<answer>blue</answer> and", "content_filter")) as server:
        assert play(env, server).is_correct
