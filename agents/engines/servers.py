"""Several vLLM servers with a queue each: one that gives no answer is left out until it does, and has the weights."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from http.client import HTTPException
from typing import TypeVar
from urllib.error import HTTPError

from codev_agents.engines.http import LOOK_S, PAUSE_S, Client, LostAgain, LostWeights, OpenRequest, ServerLost
from codev_agents.rollout.engine import EngineError
from codev_env.errors import unstopped
from codev_env.threads import in_own_thread

T = TypeVar("T")
GIVEN_UP = "nobody waits for this completion any more"
_HOMES = 100_000  # remembered, beside those with requests under way
HOME_S = 60.0
"""Seconds after its last request in which a task stays with its server; later its caches are of others."""
LOAD_S = 60.0  # time to load weights after which a server is checked, in seconds
SILENT_S = 60.0  # time without an answer to any request after which an engine is checked, in seconds
NOTICE_S = 1.0  # longest wait for a server that nobody asks, in seconds
TRIES = 5  # per completion, and one for each further server; all may be gone between two, for `patience` seconds
LATE_S = 300.0
"""Longest wait for a server that gets weights when another one has got them, in seconds, or twice the time of that."""
PUSHES = 10  # of weights to a healthy server that is back and takes none, as one of another model, until it is named
CLOSE_S = 5.0  # longest wait for servers that are resumed at the end, in seconds
GIVEN_UP_S = 0.5  # longest wait for servers of a request that was given up, in seconds


@dataclass(eq=False)
class _Home:
    """The server of requests that belong together.

    Attributes:
        client: The server.
        under_way: Requests under way there.
        left_at: When the last one ended.
    """

    client: Client
    under_way: int = 0
    left_at: float = 0.0

    @property
    def is_left(self) -> bool:
        """Whether there was no request for long."""
        return not self.under_way and time.monotonic() - self.left_at > HOME_S


class Servers:
    """Sends each request to the server that has the fewest, those that belong together to the same one.

    A request that finds its server gone is made again by another one. A server that is lost is looked for by a thread
    of its own, which also gives it the newest weights before it is used again. Another thread checks engines that leave
    all their requests waiting: one may hang behind a server that calls itself healthy.

    Args:
        urls: Their addresses.
        patience: Seconds that all of them may be gone.
        timeout: Longest wait for one answer, in seconds.
        restore: Gives a server the newest weights unless it has them, and returns their name. Referred to weakly: it is
            a method of the engine, whose weights on disk disappear with it.
        check: Waits for a sign of the engine behind a server, and raises `ServerLost` after ending its requests if
            there is none. Like `restore`, a method of the engine; `None` checks nothing.
    """

    def __init__(
        self,
        urls: Sequence[str],
        patience: float,
        timeout: float,
        restore: Callable[[Client], str],
        check: Callable[[Client], object] | None = None,
    ) -> None:
        self.clients = [Client(url, patience, timeout) for url in urls]
        self._patience, self._method = patience, weakref.WeakMethod(restore)
        self._changed = threading.Condition()
        self._load = dict.fromkeys(self.clients, 0)
        self._heard = dict.fromkeys(self.clients, 0.0)  # when a request ended, or the first of several began
        self._lost: dict[Client, Exception] = {}
        self._gone = 0.0  # since when all of them are lost
        self._newest = ""
        self._closed = False
        self._homes: dict[Hashable, _Home] = {}
        self.losses = 0
        """How often a server was left out, or has lost its weights."""
        if check:
            for client in self.clients:
                watch = (client, weakref.WeakMethod(check))
                threading.Thread(target=self._watch, args=watch, name="vllm-watch", daemon=True).start()

    @property
    def queues(self) -> list[int]:
        """Requests under way at each server; -1 for one that is left out."""
        with self._changed:
            return [-1 if client in self._lost else self._load[client] for client in self.clients]

    def push(self, name: str) -> None:
        """Give all servers the newest weights; those that are lost get them when they are back.

        Raises:
            EngineError: One refused, none is there, or `close` was called.
        """
        self.announce(name)
        self.look(self._restore)
        with self._changed:
            self._wait()

    def look(self, action: Callable[[Client], object]) -> None:
        """Ask all servers that are there, side by side, and leave out those that are lost; raises as the action.

        After an interrupt, and after an error of one of them, the others are not waited for. One that takes far longer
        than the first, as if its engine hung, counts as lost. A long wait is said once.
        """
        started, took = time.monotonic(), list[float]()

        def timed(client: Client) -> None:
            action(client)
            took.append(time.monotonic() - started)

        with self._changed:
            there = [client for client in self.clients if client not in self._lost]
        asked = [(client, in_own_thread("vllm-push", timed, client)[0]) for client in there]
        for client, sent in asked:
            is_told = False
            while not wait([sent], LOAD_S).done:
                if not is_told:
                    is_told = True
                    print(
                        f"the vLLM server at {client.url} loads weights and has given no answer for {LOAD_S:g} s; it "
                        f"is waited for up to {client.timeout:g} s (--vllm.timeout).",
                        file=sys.stderr,
                    )
                self._cut_if_silent(client)
                if took and time.monotonic() - started > max(LATE_S, 2 * took[0]):
                    client.cut_off()
            try:
                sent.result()
            except ServerLost as error:
                self._lose(client, error)

    def _cut_if_silent(self, client: Client) -> None:
        """End what is under way at a server that does not even answer to a check."""
        try:
            client.get("/health", LOOK_S)
        except ServerLost:
            client.cut_off()
        except EngineError:
            return  # it says something

    def close(self) -> None:
        """Send nothing any more, but resume the servers that a push has left paused."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        resumed = [in_own_thread("vllm-close", client.close)[0] for client in self.clients]
        wait(resumed, CLOSE_S)

    def notice(self) -> None:
        """Leave out servers that are gone, also those that nobody asks at present."""
        self.look(_find)

    def announce(self, name: str) -> None:
        """Note the name of the newest weights: lost servers get them. For processes that do not push themselves."""
        with self._changed:
            self._newest = name

    def note_restart(self, client: Client) -> None:
        """Count a server that was started again between two requests, so that nobody has missed it."""
        with self._changed:
            self.losses += client not in self._lost

    def ask(self, action: Callable[[Client], T], home: Hashable = None, asked: OpenRequest | None = None) -> T:
        """Return the result of a request, made again at a server that is there if another one was lost meanwhile.

        Args:
            action: The request.
            home: Requests of the same home go to the same server as long as it is there.
            asked: Once it is given up, a request that failed is not made again.

        Raises:
            EngineError: A server refused, none is there, or too many tries failed.
        """
        tries = TRIES + len(self.clients) - 1  # all may be gone at once, and each is lost when it is asked
        for _ in range(tries):
            chosen = self._choose(home, asked)
            client = chosen.client
            try:
                return action(client)
            except ServerLost as error:
                if asked and asked.given_up:  # it was cut off here, which says nothing of the server
                    raise EngineError(GIVEN_UP) from error
                reason = error
                self._lose(client, error)
            finally:
                with self._changed:
                    self._load[client] -= 1
                    chosen.under_way -= 1
                    chosen.left_at = self._heard[client] = time.monotonic()
        raise EngineError(
            f"the vLLM server at {client.url} is there, but {tries} tries of one request failed; the last: "
            f"{unstopped(reason)}. It has to be vLLM 0.32 or newer; its log says more."
        )

    def _restore(self, client: Client) -> str:
        if (restore := self._method()) is None:
            raise RuntimeError("the engine is gone")
        return restore(client)

    def _choose(self, home: Hashable, asked: OpenRequest | None) -> _Home:
        """Choose a server and count a request there."""
        with self._changed:
            there = self._wait(asked)
            chosen = self._homes.get(home) if home is not None else None
            if chosen is None or chosen.client not in there or chosen.is_left:
                chosen = _Home(min(there, key=lambda one: self._load[one]))
                if len(self._homes) > _HOMES:
                    self._homes = {key: one for key, one in self._homes.items() if one.under_way}
                if home is not None:
                    self._homes[home] = chosen
            if not self._load[chosen.client]:
                self._heard[chosen.client] = time.monotonic()
            self._load[chosen.client] += 1
            chosen.under_way += 1
            return chosen

    def _watch(self, client: Client, method: weakref.WeakMethod[Callable[[Client], object]]) -> None:
        """Check the engine of a server each time that it was silent for long."""
        while check := method():
            with self._changed:
                left = self._heard[client] + SILENT_S - time.monotonic()
                waits = self._load[client] > 0 and client not in self._lost
            if waits and left <= 0:
                # Whoever waits for an answer loses the server; one that refuses says something; the disk of its lock
                # may fail for a moment.
                with contextlib.suppress(ServerLost, EngineError, OSError):
                    check(client)
            del check
            time.sleep(left if waits and left > 0 else SILENT_S)

    def _wait(self, asked: OpenRequest | None = None) -> list[Client]:
        """Return the servers that are there, once there are any; the lock is held."""
        while self._closed or not (there := [client for client in self.clients if client not in self._lost]):
            if self._closed:
                raise EngineError("this engine is closed; make another one.")
            if asked and asked.given_up:
                raise EngineError(GIVEN_UP)
            left = self._gone + self._patience - time.monotonic()
            if left <= 0:
                which = "servers" if len(self.clients) > 1 else "server"
                reason = self._lost[self.clients[0]]
                raise EngineError(
                    f"no answer from the vLLM {which} at {', '.join(c.url for c in self.clients)}, tried again for "
                    f"{self._patience:g} s ({reason}). Start it, or give its address: --vllm.url. Then continue with "
                    "--resume."
                ) from reason
            self._changed.wait(min(left, GIVEN_UP_S) if asked else left)
        return there

    def _lose(self, client: Client, reason: Exception) -> None:
        with self._changed:
            if client in self._lost:
                return
            self._lost[client] = reason
            self.losses += 1
            if len(self._lost) == len(self.clients):
                self._gone = time.monotonic()
        threading.Thread(target=self._look_for, args=(client, reason), name="vllm-lost", daemon=True).start()

    def _look_for(self, client: Client, reason: Exception) -> None:
        """Take a server back when it is healthy and has the newest weights; count it again if it dies before."""
        came_back = isinstance(reason, LostWeights)
        pause, told, left = 0.1, False, PUSHES
        while self._method() and not self._closed:
            try:
                try:
                    client.get("/health", LOOK_S)
                except ServerLost:
                    client.cut_off()  # its requests are made elsewhere; a machine without power never ends them
                    raise
                left -= 1
                name = self._restore(client)
                with self._changed:
                    if name == self._newest:
                        del self._lost[client]
                        self._changed.notify_all()
                        return
                came_back = True  # and newer weights came meanwhile
            except Exception as error:  # also a full disk, or other flags than before: they may be mended
                with self._changed:
                    self._lost[client] = error
                    if isinstance(error, LostAgain) or (came_back and _is_silent(error)):
                        self.losses += 1
                        came_back = False
                if (not isinstance(error, ServerLost) or not left) and not told and self._method():
                    told = True
                    print(f"the vLLM server at {client.url} is left out: {error}", file=sys.stderr)
                time.sleep(pause)
                pause = min(2 * pause, PAUSE_S)


def _is_silent(error: Exception) -> bool:
    """Whether a server gave no answer at all; one that says something is there."""
    silent = isinstance(error.__cause__, OSError | HTTPException) and not isinstance(error.__cause__, HTTPError)
    return isinstance(error, ServerLost) and silent


def _find(client: Client) -> None:
    """Raise `ServerLost` if a server is gone; one that is only slow is not."""
    try:
        client.get("/health", NOTICE_S)
    except ServerLost as error:
        if isinstance(getattr(error.__cause__, "reason", None), ConnectionRefusedError):
            raise
    except EngineError:
        return  # it says something
