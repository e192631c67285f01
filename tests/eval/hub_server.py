"""A stand-in for the hub on 127.0.0.1: the real client pushes files to it and gets them back."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
from urllib.parse import unquote

SHA = "1" * 40


class Handler(http.server.BaseHTTPRequestHandler):
    """The answers that `create_repo`, `upload_folder` and `snapshot_download` need."""

    server: Hub

    def do_POST(self) -> None:
        path, body = self.path.partition("?")[0], self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((path, body))
        if self.server.refuses:
            return self._reply(403, {"error": "you may not"})
        if path == "/api/repos/create":
            name = json.loads(body)
            owner = name.get("organization") or "me"
            where = f"{owner}/{name['name']}"
            self.server.kind, self.server.private = name.get("type", "model"), b'"private"' in body
            return self._reply(200, {"url": f"{self.server.url}/datasets/{where}", "id": where})
        if "/preupload/" in path:
            wanted = json.loads(body)["files"]
            files = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in wanted]
            return self._reply(200, {"files": files})
        if "/commit/" in path:
            for line in body.splitlines():
                value = json.loads(line)["value"]
                if "path" in value:
                    self.server.files[value["path"]] = base64.b64decode(value["content"])
            return self._reply(
                200, {"commitUrl": f"{self.server.url}/datasets/me/scenes/commit/{SHA}", "commitOid": SHA}
            )
        self._reply(200, {})

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if "/resolve/" in path:
            name = path.partition("/resolve/")[2].partition("/")[2]
            content = self.server.files.get(name)
            return self._reply(404, {}) if content is None else self._file(content)
        if "/tree/" in path:
            files = self.server.files.items()
            rows = [{"type": "file", "path": n, "size": len(c), "oid": hashlib.sha1(c).hexdigest()} for n, c in files]
            return self._reply(200 if rows else 404, rows)
        if "/revision/" in path or path.startswith("/api/datasets/"):
            rows = [{"rfilename": name} for name in self.server.files]
            return self._reply(200 if rows else 404, {"id": "me/scenes", "sha": SHA, "siblings": rows, "tags": []})
        self._reply(200, {"name": "me", "orgs": []})

    do_HEAD = do_GET  # noqa: N815

    def _file(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", SHA)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def _reply(self, status: int, answer: object) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class Hub(http.server.ThreadingHTTPServer):
    """Use as a context manager; `files` are those of its one repository."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.kind, self.private, self.refuses = "", False, False

    def __enter__(self) -> Hub:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()
