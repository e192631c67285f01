"""Several vLLM servers with a queue each: one that gives no answer is left out until it does, and has the weights."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from codev_agents.engines.http import LOOK_S, PAUSE_S, Client, ServerLost
from codev_agents.rollout.engine import EngineError

T = TypeVar("T")
_HOMES = 100_000  # remembered; homes of tasks that are no longer played are never asked for again
TRIES = 5  # per completion; between two of them all servers may be gone for up to `patience` seconds


class Servers:
    """Sends each request to the server that has the fewest, those that belong together to the same one.

    A request that finds its server gone is made again by another one. A server that is lost is looked for by a thread
    of its own, which also gives it the newest weights before it is used again.

    Args:
        urls: Their addresses.
        patience: Seconds that all of them may be gone.
        timeout: Longest wait for one answer, in seconds.
        restore: Gives a server the newest weights unless it has them, and returns their name. Referred to weakly: it is
            a method of the engine, whose weights on disk disappear with it.
    """

    def __init__(self, urls: Sequence[str], patience: float, timeout: float, restore: Callable[[Client], str]) -> None:
        self.clients = [Client(url, patience, timeout) for url in urls]
        self._patience, self._method = patience, weakref.WeakMethod(restore)
        self._changed = threading.Condition()
        self._load = dict.fromkeys(self.clients, 0)
        self._lost: dict[Client, Exception] = {}
        self._gone = 0.0  # since when all of them are lost
        self._newest = ""
        self._homes: dict[Hashable, Client] = {}
        self.losses = 0
        """How often a server was left out."""

    @property
    def queues(self) -> list[int]:
        """Requests under way at each server; -1 for one that is left out."""
        with self._changed:
            return [-1 if client in self._lost else self._load[client] for client in self.clients]

    def push(self, name: str) -> None:
        """Give all servers the newest weights; those that are lost get them when they are back.

        Raises:
            EngineError: One refused, or none is there.
        """
        self.announce(name)
        with self._changed:
            there = [client for client in self.clients if client not in self._lost]
        with ThreadPoolExecutor(len(self.clients), "vllm-push") as threads:
            for client, sent in [(client, threads.submit(self._restore, client)) for client in there]:
                try:
                    sent.result()
                except ServerLost as error:
                    self._lose(client, error)
        with self._changed:
            self._wait()

    def announce(self, name: str) -> None:
        """Note the name of the newest weights: lost servers get them. For processes that do not push themselves."""
        with self._changed:
            self._newest = name

    def ask(self, action: Callable[[Client], T], home: Hashable = None, given_up: threading.Event | None = None) -> T:
        """Return the result of a request, made again at a server that is there if another one was lost meanwhile.

        Args:
            action: The request.
            home: Requests of the same home go to the same server as long as it is there.
            given_up: Once set, a request that failed is not made again.

        Raises:
            EngineError: A server refused, none is there, or too many tries failed.
        """
        for _ in range(TRIES):
            client = self._choose(home)
            try:
                return action(client)
            except ServerLost as error:
                reason = error
                self._lose(client, error)
                if given_up and given_up.is_set():
                    raise EngineError("nobody waits for this completion any more") from error
            finally:
                with self._changed:
                    self._load[client] -= 1
        raise EngineError(
            f"the vLLM server at {client.url} is there, but {TRIES} tries of one request failed; the last: "
            f"{reason}. It has to be vLLM 0.32 or newer; its log says more."
        )

    def _restore(self, client: Client) -> str:
        if (restore := self._method()) is None:
            raise RuntimeError("the engine is gone")
        return restore(client)

    def _choose(self, home: Hashable) -> Client:
        with self._changed:
            there = self._wait()
            client = self._homes.get(home) if home is not None else None
            if client not in there:
                client = min(there, key=lambda one: self._load[one])
                if len(self._homes) > _HOMES:
                    self._homes.clear()
                if home is not None:
                    self._homes[home] = client
            assert client is not None
            self._load[client] += 1
            return client

    def _wait(self) -> list[Client]:
        """Return the servers that are there, once there are any; the lock is held."""
        while not (there := [client for client in self.clients if client not in self._lost]):
            left = self._gone + self._patience - time.monotonic()
            if left <= 0:
                which = "servers" if len(self.clients) > 1 else "server"
                reason = self._lost[self.clients[0]]
                raise EngineError(
                    f"no answer from the vLLM {which} at {', '.join(c.url for c in self.clients)}, tried again for "
                    f"{self._patience:g} s ({reason}). Start it, or give its address: --vllm.url. Then continue with "
                    "--resume."
                ) from reason
            self._changed.wait(left)
        return there

    def _lose(self, client: Client, reason: Exception) -> None:
        with self._changed:
            if client in self._lost:
                return
            self._lost[client] = reason
            self.losses += 1
            if len(self._lost) == len(self.clients):
                self._gone = time.monotonic()
        threading.Thread(target=self._look_for, args=(client,), name="vllm-lost", daemon=True).start()

    def _look_for(self, client: Client) -> None:
        """Take a server back when it is healthy and has the newest weights."""
        pause = 0.1
        while self._method():
            try:
                client.get("/health", LOOK_S)
                name = self._restore(client)
                with self._changed:
                    if name == self._newest:
                        del self._lost[client]
                        self._changed.notify_all()
                        return
            except (ServerLost, EngineError) as error:
                with self._changed:
                    self._lost[client] = error
                time.sleep(pause)
                pause = min(2 * pause, PAUSE_S)
            except Exception as error:  # such as a full disk: who waits for the server reports it
                with self._changed:
                    self._lost[client] = error
                return
