"""`codev view`: a run's report over HTTP on this machine, rendered again when its files have changed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from codev_env.errors import CodevError, ConfigError
from codev_env.scoring.clusters import summarize_clusters
from codev_env.scoring.metrics import judges_boxless
from codev_env.trajectory import FILE_NAME as TRAJECTORIES
from codev_env.trajectory import Trajectory, read_trajectories
from codev_eval.bench.folder import is_condition
from codev_eval.bench.measures import key_of
from codev_eval.report.condition_pages import beside_plain, condition_of
from codev_eval.report.report import live_page

HOST = "127.0.0.1"
SHOWN = 60
"""Newest episodes on the live page."""
WATCHED = ("summary.json", "metrics.json", "history.jsonl", "options.yaml", TRAJECTORIES)


def serve(folder: Path, port: int, ready: Callable[[ThreadingHTTPServer], None] | None = None) -> None:
    """Serve the live page of a run until interrupted.

    Args:
        folder: The run's folder.
        port: Port on 127.0.0.1, which only this machine reaches; 0 for any that is free.
        ready: Called with the server before it starts.

    Raises:
        ConfigError: If the port is not available.
    """
    try:
        server = _Server((HOST, port), _handler(Live(folder)))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"--port {port}: {why}. Give another port, or 0 for one that is free.") from error
    with server:
        print(f"Live view of {folder}: http://{HOST}:{server.server_address[1]}/  (Ctrl-C ends it)", flush=True)
        if ready is not None:
            ready(server)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print()


class Live:
    """The page of a run, rendered again when one of its files has changed.

    Args:
        folder: The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._version, self._page = "", ""

    def version(self) -> str:
        """Return a text that changes whenever the run wrote something."""
        files = [path for name in WATCHED for path in (self.folder / name, *self.folder.glob(f"*/{name}"))]
        stats = [(str(path.relative_to(self.folder)), *_stat(path)) for path in files]
        return f"{hash(tuple(sorted(stats))) & 0xFFFFFFFFFFFF:x}"

    def page(self) -> str:
        """Return the page of the run so far."""
        with self._lock:
            version = self.version()
            if version != self._version:
                self._page = self._make(version)
                self._version = version
            return self._page

    def _make(self, version: str) -> str:
        parts = {part: self._episodes(part) for part in ("before", "after", "")}
        played: dict[str, Sequence[Trajectory]] = {part: found for part, found in parts.items() if found}
        newest = _newest(played)
        label = ""
        if last := self._last_condition():
            condition, found = condition_of(last.name), read_trajectories(last)
            label = condition.label
            played = beside_plain(condition, found, parts[""])
            newest = beside_plain(condition, found[-SHOWN:][::-1], parts[""][::-1])
        boxless = judges_boxless([t for found in played.values() for t in found])
        results = [(part, summarize_clusters(found, boxless=boxless)) for part, found in played.items()]
        return live_page(self.folder, newest, results, version, label)

    def _last_condition(self) -> Path | None:
        """Return the folder of the condition that an evaluation is running, or ran last."""
        files = [path for path in self.folder.glob(f"*/{TRAJECTORIES}") if is_condition(path.parent.name)]
        return max(files, key=lambda path: path.stat().st_mtime_ns).parent if files else None

    def _episodes(self, part: str) -> list[Trajectory]:
        if not (self.folder / part / TRAJECTORIES).is_file():
            return []
        return read_trajectories(self.folder / part)


def _newest(played: Mapping[str, Sequence[Trajectory]]) -> dict[str, Sequence[Trajectory]]:
    """Return the newest episodes of the last part, the newest first, and those of the same tasks of the part before."""
    if not played:
        return {}
    *earlier, last = played
    newest = played[last][-SHOWN:][::-1]
    places = {key_of(t): place for place, t in enumerate(newest)}
    same = {part: [t for t in played[part] if key_of(t) in places] for part in earlier}
    return {part: sorted(found, key=lambda t: places[key_of(t)]) for part, found in same.items()} | {last: newest}


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that left before it had the page; any other failure is printed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _handler(live: Live) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802 - the library's name
            # A page elsewhere must not read the run through a name of its own that leads to this machine.
            host = (self.headers.get("Host") or "").partition(":")[0]  # browsers leave out port 80
            if host not in (HOST, "localhost"):
                return self._reply(HTTPStatus.FORBIDDEN, "text/plain", "only for this machine")
            if self.path == "/version":
                return self._reply(HTTPStatus.OK, "application/json", json.dumps(live.version()))
            if self.path.partition("?")[0] != "/":
                return self._reply(HTTPStatus.NOT_FOUND, "text/plain", "no such page")
            try:
                page = live.page()
            except (CodevError, OSError) as error:
                return self._reply(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", str(error))
            self._reply(HTTPStatus.OK, "text/html", page)

        def _reply(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode("utf-8", "replace")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    return Handler
