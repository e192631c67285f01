"""JSON over HTTP with a server that may disappear and come back."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from typing import Any

from codev_agents.rollout.engine import EngineError

PAUSE_S = 10.0  # longest pause between two checks for a lost server, in seconds
LOOK_S = 10.0  # longest wait for the answer to one check, in seconds


class ServerLost(Exception):
    """The server gave no answer."""


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

    def get(self, path: str, timeout: float | None = None) -> Any:
        """Send a GET request; returns the answer, or nothing if it is empty. Raises as `post`."""
        return self._ask(urllib.request.Request(self.url + path), timeout)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a POST request; returns the answer, or nothing if it is empty.

        Raises:
            ServerLost: There was no answer, or that of a server which is going down or not yet up.
            EngineError: The server refused.
        """
        data = json.dumps(body or {}).encode()
        return self._ask(urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}), None)

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
        try:
            with urllib.request.urlopen(request, timeout=timeout or self.timeout) as answer:
                content = answer.read()
            return json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:500]
            if error.code >= 500:
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
