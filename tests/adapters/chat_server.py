"""A server of the OpenAI chat API whose model is a function, and one that looks at the target and then answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from codev_agents import answer_turn, crop_turn, expand_box
from codev_env.adapters.episodes import EpisodeRunner
from codev_env.messages import png_data_url

Messages = list[dict[str, Any]]
SCENES = {"data": "synthetic", "scenes": "toy", "max_turns": 3}
"""The environment that the adapters' tests play."""
LOOKED_RIGHT = {"outcome": 1.0, "format": 0.3, "tool": 0.5}
"""What an episode of it pays for a look at the target and the right answer."""


class ChatServer:
    """Answers each conversation with what `act` writes, cut off before the first stop string.

    Attributes:
        requests: The bodies of all requests.
        url: For `base_url`.
    """

    def __init__(self, act: Callable[[Messages], str]) -> None:
        self.requests: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                return

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(body)
                text = act(body["messages"])
                for stop in body.get("stop") or ():
                    text = text.split(stop)[0]
                message = {"role": "assistant", "content": text}
                reply = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"]}
                reply["choices"] = [{"index": 0, "finish_reason": "stop", "message": message}]
                reply["usage"] = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
                data = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> ChatServer:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def images_of(message: dict[str, Any]) -> list[str]:
    """The data URLs in a message."""
    parts = message["content"] if isinstance(message["content"], list) else []
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def oracle(indices: Sequence[int], **options: Any) -> Callable[[Messages], str]:
    """Return a model that knows some tasks by their image: it crops the target, then answers.

    It answers right only if it is shown a crop.
    """
    player = EpisodeRunner(**options)
    tasks = {}
    for index in indices:
        image = player.reset(index=index)["images"][0]
        tasks[png_data_url(image)] = player.base.task
    dialect = player.base.dialect
    player.close()

    def act(messages: Messages) -> str:
        shown = [url for message in messages for url in images_of(message)]
        task = tasks[shown[0]]
        if not any(message["role"] == "assistant" for message in messages):
            return crop_turn(dialect, expand_box(task.targets[0], task.image.size, 0.25))
        return answer_turn(dialect, task.answer if len(shown) == 2 else "nothing", looked=True)

    return act
