"""A server that speaks as much of vLLM's protocol as the trainer uses, over a real model, and fails when told to."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.torch import load_file

from codev_agents.engines.hf import HFEngine
from codev_agents.engines.vllm_request import NEVER
from codev_agents.rollout.engine import Prompt, Sampling
from codev_agents.rollout.tokens import ChatProcessor

GENERATE = "/inference/v1/generate"


class FakeVllmServer:
    """Samples with `HFEngine` from a model of its own.

    Attributes:
        asked: Paths of the requests so far.
        failures: What to answer the next requests for a completion with: a status, "drop" (no answer) or "abort".
        stuck: How many times emptying the prefix cache fails.
        seeds: The seeds of the completions so far; None where a request has none.
        paused: A push has paused it.
        pauses: The queries of the pauses so far.
        report: What to add to the log-probabilities, as a server does that was started with other flags.
    """

    def __init__(self, model: Any, processor: ChatProcessor, port: int = 0) -> None:
        self.model, self.processor = model, processor
        self.asked: list[str] = []
        self.failures: list[int | str] = []
        self.seeds: list[int | None] = []
        self.report = 0.0
        self.stuck = 0
        self.paused = False
        self.pauses: list[str] = []
        self.version = "default"
        self._weights = {name: weight.clone() for name, weight in model.state_dict().items()}
        self._lock = threading.Lock()
        self.port = port
        self.start()

    def start(self) -> None:
        """Listen, with the weights the server was started with."""
        self.version, self.paused = "default", False
        self.model.load_state_dict(self._weights)
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be gone."""
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        """Where the server listens."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return status and content for one request."""
        path, _, query = path.partition("?")
        with self._lock:
            self.asked.append(path)
            if path in ("/pause", "/resume"):
                self.paused = path == "/pause"
                self.pauses += [query] * self.paused
            if path == "/is_paused":
                return 200, {"is_paused": self.paused}
            if path == GENERATE:
                failure = self.failures.pop(0) if self.failures else 0
                return (
                    (failure, {"error": "told to fail"})
                    if isinstance(failure, int) and failure
                    else ((0, None) if failure == "drop" else (200, self.complete(body, "abort" if failure else "")))
                )
            if path == "/reset_prefix_cache" and self.stuck:
                self.stuck -= 1
                return 200, {"success": False}
            if path == "/weight_info":
                return 200, {"weight_version": self.version}
            if path == "/collective_rpc":
                weights = load_file(Path(body["kwargs"]["weights_path"]) / "model.safetensors")
                self.model.load_state_dict(weights, strict=False)
            elif path == "/update_weight_version":
                self.version = body["new_version"]
            return 200, None

    def complete(self, body: dict[str, Any], finish: str) -> dict[str, Any]:
        """Sample one completion."""
        params = body["sampling_params"]
        pictures = [_decode(part["url"]) for part in body.get("content_parts", ())]
        images = [self.processor.image(np.array(picture)) for picture in pictures]
        ids = list(_expand(body["token_ids"], self.processor.image_id, [image.tokens for image in images]))
        if "allowed_token_ids" in params:
            sampled, logprobs, reason = params["allowed_token_ids"], [0.0], "stop"
        else:
            assert set(params["logit_bias"].values()) == {NEVER} and params["include_stop_str_in_output"]
            assert sorted(map(int, params["logit_bias"])) == sorted(self.processor.banned_ids)
            sampling = Sampling(params["temperature"], params["max_tokens"], tuple(params["stop"]))
            self.seeds.append(params.get("seed"))
            engine = HFEngine(self.model, self.processor, seed=params.get("seed", len(self.seeds)))
            (found,) = engine.generate([Prompt(ids, images)], sampling)
            sampled, logprobs, reason = found.ids, found.logprobs, found.finish
        content = [{"token_id": i, "logprob": value + self.report} for i, value in zip(sampled, logprobs, strict=True)]
        choice = {"token_ids": sampled, "logprobs": {"content": content}, "finish_reason": finish or reason}
        choice["weight_versions"] = [{"version": self.version, "start": 0, "end": len(sampled)}]
        return {"choices": [choice], "prompt_token_ids": ids}


class _Handler(BaseHTTPRequestHandler):
    owner: FakeVllmServer

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any]) -> None:
        status, content = self.owner.answer(self.path, body)
        if status:
            data = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _decode(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))


def _expand(ids: Sequence[int], image_id: int, counts: Sequence[int]) -> list[int]:
    left = iter(counts)
    return [token for i in ids for token in ([i] * next(left) if i == image_id else [i])]
