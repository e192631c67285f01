"""A judge's server that can fail in every way: speaks the chat-completions format on a port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Request = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What the server sends: `cut` hangs up before the end of the body, which counts at least one byte."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: bool = False


def data_of(request: Request) -> dict[str, Any]:
    """What the judge was asked: the JSON object in the text of the message."""
    [text] = [part["text"] for part in request["messages"][1]["content"] if part["type"] == "text"]
    return json.loads(text)


def pictures_of(request: Request) -> list[str]:
    return [part["image_url"]["url"] for part in request["messages"][1]["content"] if part["type"] == "image_url"]


def completion(content: str | None, usage: tuple[int, int] | None = (100, 10)) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "toy", "choices": [choice]}
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return body


def verdict(request: Request, **changes: Any) -> str:
    return json.dumps({"why": "a mug", "clear": True, "score": 1, "check": data_of(request)["check"]} | changes)


def good(request: Request, delay_s: float = 0.0, **changes: Any) -> Reply:
    return Reply(completion(verdict(request, **changes)), delay_s=delay_s)


def says(content: str | None) -> Callable[[Request], Reply]:
    return lambda request: Reply(completion(content))


def fails(status: int, **headers: str) -> Callable[[Request], Reply]:
    return lambda request: Reply({"error": {"message": f"status {status}"}}, status, headers)


class FakeJudgeServer:
    """Plays a list of answers, the last one for ever; each is a function of the request.

    Attributes:
        requests: The bodies of all requests, in order of arrival.
        most: The largest number of requests that it worked on at the same time.
    """

    def __init__(self, *answers: Callable[[Request], Reply], models: tuple[str, ...] | None = ("toy",)) -> None:
        self.requests: list[Request] = []
        self.keys: set[str] = set()
        self.most = self._now = 0
        self._answers = list(answers or [good])
        self._models = models
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> FakeJudgeServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=2048)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                self.keys.add(fields.get("authorization", ""))
                reply = self._models_reply() if head.startswith("get ") else await self._answer(json.loads(body))
                data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                length = max(len(data), 1) if reply.cut else len(data)  # Else an empty reply would be whole.
                fields = {"content-type": "application/json", "content-length": str(length)} | reply.headers
                lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
                writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode())
                writer.write(data[: len(data) // 2] if reply.cut else data)
                await writer.drain()
                if reply.cut:
                    break
        writer.close()

    async def _answer(self, request: Request) -> Reply:
        self.requests.append(request)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            reply = (self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])(request)
            await asyncio.sleep(reply.delay_s)
            return reply
        finally:
            self._now -= 1

    def _models_reply(self) -> Reply:
        if self._models is None:
            return Reply({"error": {"message": "no such page"}}, 404)
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "x"} for name in self._models]
        return Reply({"object": "list", "data": models})
