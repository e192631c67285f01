"""JSON over HTTP with a server that may disappear and come back."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from typing import Any

from codev_agents.rollout.engine import EngineError
from codev_env.judges.client import asked_pause

PAUSE_S = 10.0  # longest pause between two checks for a lost server, or two tries of one that is busy, in seconds
LOOK_S = 10.0  # longest wait for the answer to one check, in seconds
CONNECT_S = 30.0  # longest wait for a connection, which nobody can cut off, in seconds
_BUSY = 429  # of a gateway in front of a server: too many requests
_AGAIN = (408, 425, _BUSY)  # too slow, too early


class ServerLost(Exception):
    """The server gave no answer."""


class LostAgain(ServerLost):
    """The server had its weights already, and then gave no answer."""


class LostWeights(ServerLost):
    """The server answered, by other weights than those that it was given, as one that was started again."""


class OpenRequest:
    """A request that other threads may end while it waits for its answer; it may be sent several times."""

    def __init__(self) -> None:
        self._given_up = threading.Event()
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._given_up.is_set()

    def wait(self, seconds: float) -> None:
        """Wait, unless it is given up."""
        self._given_up.wait(seconds)

    def give_up(self) -> None:
        """End it for good: a server stops sampling when its connection is closed."""
        with self._lock:
            self._given_up.set()
        self.cut_off()

    def cut_off(self) -> None:
        """End its connection: who waits for the answer gets `ServerLost`."""
        with self._lock:
            there = self._connection.sock if self._connection else None
        if there is not None:
            with contextlib.suppress(OSError):  # it has ended by itself
                there.shutdown(socket.SHUT_RDWR)

    def follow(self, connection: http.client.HTTPConnection) -> http.client.HTTPConnection:
        """Note the connection that it is sent over, which raises `OSError` when the request was given up."""
        connect = connection.connect

        def check() -> None:
            with self._lock:
                if self.given_up:
                    raise ConnectionAbortedError("the request was given up")

        def checked() -> None:
            check()
            patience = connection.timeout
            connection.timeout = min(CONNECT_S, patience or CONNECT_S)
            connect()
            connection.sock.settimeout(patience)
            check()  # now there is something to cut off

        connection.connect = checked  # type: ignore[method-assign]
        with self._lock:
            self._connection = connection
        return connection


class Client:
    """Sends requests to one server.

    Args:
        url: Its address.
        patience: Seconds that it may be gone.
        timeout: Longest wait for one answer, in seconds.
    """

    def __init__(self, url: str, patience: float, timeout: float) -> None:
        self.url = url.rstrip("/")
        self.name = re.sub(r"\W", "-", self.url)
        """The address as part of a file name."""
        self.patience, self.timeout = patience, timeout
        self.restoring = threading.Lock()
        """Held while it gets weights."""
        self.paused = False
        """This process has paused it and not resumed it."""
        self._closed = False
        self._opener = urllib.request.build_opener(_Http(), _Https())
        self._lock = threading.Lock()
        self._under_way: set[OpenRequest] = set()

    def get(self, path: str, timeout: float | None = None) -> Any:
        """Send a GET request; returns the answer, or nothing if it is empty. Raises as `post`."""
        return self._ask(urllib.request.Request(self.url + path), timeout)

    def post(self, path: str, body: dict[str, Any] | None = None, asked: OpenRequest | None = None) -> Any:
        """Send a POST request; returns the answer, or nothing if it is empty.

        Args:
            path: Of the endpoint.
            body: Its content.
            asked: By which other threads may end it, as does `cut_off`.

        Raises:
            ServerLost: There was no answer, or that of a server which is going down or not yet up.
            EngineError: The server refused.
        """
        data = json.dumps(body or {}).encode()
        request = _HttpRequest(self.url + path, data, {"Content-Type": "application/json"})
        if asked is None:
            return self._ask(request, None)
        request.asked = asked
        with self._lock:
            if self._closed:
                raise ServerLost("nothing is sent to it any more")
            self._under_way.add(asked)
        try:
            return self._ask(request, None)
        finally:
            with self._lock:
                self._under_way.discard(asked)

    def cut_off(self) -> None:
        """End the requests under way that may be ended: a machine that was switched off says nothing."""
        with self._lock:
            under_way = list(self._under_way)
        for asked in under_way:
            asked.cut_off()

    def close(self) -> None:
        """End the requests that may be ended, for good, and resume the server if it is paused."""
        with self._lock:
            self._closed = True
            under_way = list(self._under_way)
        for asked in under_way:
            asked.give_up()
        if self.paused:
            with contextlib.suppress(ServerLost, EngineError):
                self.post("/resume")  # after the end of a load that is under way

    def wait(self) -> None:
        """Return when the server is healthy.

        Raises:
            EngineError: It has been gone for longer than `patience`.
        """
        lost, pause = time.monotonic(), 0.1
        while True:
            try:
                return self.get("/health", LOOK_S)
            except (ServerLost, EngineError) as error:
                reason: Exception = error
            left = lost + self.patience - time.monotonic()
            if left <= 0:
                raise EngineError(
                    f"no answer from the vLLM server at {self.url}, tried again for {self.patience:g} s ({reason}). "
                    "Start it, or give its address: --vllm.url. Then continue with --resume."
                ) from reason
            time.sleep(min(pause, left))
            pause = min(2 * pause, PAUSE_S)

    def _ask(self, request: urllib.request.Request, timeout: float | None) -> Any:
        """Send a request, again to a gateway that is busy: other requests that it took are under way meanwhile."""
        timeout, asked = timeout or self.timeout, _asked(request) or OpenRequest()
        until, pause = time.monotonic() + min(timeout, self.patience), 0.1
        while True:
            try:
                with self._opener.open(request, timeout=timeout) as answer:
                    content = answer.read()
                return json.loads(content) if content else None
            except urllib.error.HTTPError as error:
                said, left = _text(error), until - time.monotonic()
                if error.code == _BUSY and left > 0 and not asked.given_up:
                    told = asked_pause({name.lower(): value for name, value in error.headers.items()})
                    asked.wait(min(pause if told is None else max(told, pause), left))
                    pause = min(2 * pause, PAUSE_S)
                    continue
                if error.code >= 500 or error.code in _AGAIN:
                    raise ServerLost(f"status {error.code}: {said}") from error
                raise EngineError(f"{request.full_url} refused with status {error.code}: {said}") from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise ServerLost(f"{type(error).__name__}: {error}") from error


def server_length(client: Client) -> int:
    """Return the longest sequence, in tokens, that a vLLM server takes (its `max_model_len`); 0 if it does not say."""
    try:
        return int(client.get("/v1/models")["data"][0]["max_model_len"] or 0)
    except (ServerLost, EngineError, LookupError, TypeError, ValueError):
        return 0


def _text(answer: urllib.error.HTTPError) -> str:
    """Return the text of an error; a server that is going down may not finish it."""
    try:
        with answer:
            return answer.read().decode(errors="replace")[:500]
    except (OSError, http.client.HTTPException) as error:
        return f"its text was cut off ({type(error).__name__})"


class _HttpRequest(urllib.request.Request):
    """A request that may be ended."""

    asked: OpenRequest | None = None


def _asked(request: urllib.request.Request) -> OpenRequest | None:
    return request.asked if isinstance(request, _HttpRequest) else None


class _Followed(urllib.request.AbstractHTTPHandler):
    """Lets an `OpenRequest` follow the connection that is made for it."""

    def do_open(self, http_class: Any, req: urllib.request.Request, **given: Any) -> Any:
        asked = _asked(req)
        if asked is None:
            return super().do_open(http_class, req, **given)
        return super().do_open(lambda *host, **more: asked.follow(http_class(*host, **more)), req, **given)


class _Http(_Followed, urllib.request.HTTPHandler):
    pass


class _Https(_Followed, urllib.request.HTTPSHandler):
    pass
