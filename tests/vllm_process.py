"""A real vLLM server on this machine, for tests that run with a Python that has vLLM."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil

FLAGS = [
    *("--enable-scale-out", "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
    *("--mm-processor-kwargs", '{"do_resize": false}'),
    *("--enforce-eager", "--dtype", "float32", "--kv-cache-memory-bytes", str(1 << 28), "--max-model-len", "2048"),
]


class VllmProcess:
    """Serves a saved model; a context manager that returns when the server is up.

    Args:
        model: Folder of the model.
        log: File for what the server says.
        port: Where to listen; 0 picks a free port.
    """

    def __init__(self, model: Path, log: Path, port: int = 0) -> None:
        self.port = port or _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        environment = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, *FLAGS, "--host", "127.0.0.1", "--port", str(self.port)],
                env={**os.environ, **environment},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def __enter__(self) -> VllmProcess:
        while not self._healthy():
            if self._process.poll() is not None:
                raise RuntimeError(f"the vLLM server ended:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.5)
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End the server and its engine process at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Stop the engine behind the server while the block runs; the server itself goes on answering."""
        engines = psutil.Process(self._process.pid).children(recursive=True)
        for engine in engines:
            engine.suspend()
        try:
            yield
        finally:
            for engine in engines:
                engine.resume()

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return True
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
