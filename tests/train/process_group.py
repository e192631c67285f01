"""Several processes of one group, forked from a process that has imported torch, Transformers and the trainer.

A launcher imports torch, and each process that it starts imports it again: 20 of the 25 seconds of a test at toy size.
What a launcher sets is taken from the launcher.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import MappingProxyType

import pytest

HERE = Path(__file__).parent
LAUNCHED = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")
"""How the variables begin by which `accelerate launch` tells processes what to do."""

PRELOADED = ["scaled_process", "uneven_processes", "toy_families", "codev_train.experiment", "codev_train.cli"]


@functools.cache
def launcher_variables(config: Path, *words: str) -> Mapping[str, str]:
    """The variables that `accelerate launch` sets in the processes that it starts as a configuration says."""
    show = "import json, os; os.environ['RANK'] == '0' and print(json.dumps(dict(os.environ)))"
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(show)
        script.flush()
        launch = ["-m", "accelerate.commands.launch", "--config_file", str(config), *words, "--main_process_port", "0"]
        done = subprocess.run([sys.executable, *launch, script.name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: text for name, text in json.loads(done.stdout).items() if name.startswith(LAUNCHED)}


@functools.cache
def fork_server() -> ForkServerContext:
    """What forks processes; one for all tests of a process, which is started by the first call."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # torch reads it when it is imported
        forkserver.ensure_running()
    return context


def _serve(variables: Mapping[str, str], output: Path, module: str, arguments: tuple[str, ...]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        with output.with_suffix(f".{name}").open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def start(module: str, *arguments: str, output: Path, variables: Mapping[str, str]) -> ForkServerProcess:
    """Start a module in a process of its own; what it prints goes to `output` with the endings `.out` and `.err`."""
    paths = [str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    common = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    common |= {"ACCELERATE_USE_CPU": "true", **variables}
    process = fork_server().Process(target=_serve, args=(common, output, module, arguments))
    process.start()
    return process


def _wait(processes: Iterable[ForkServerProcess], timeout: float) -> bool:
    """Wait until all have ended, a few seconds where one of them failed; returns whether they did."""
    deadline = time.monotonic() + timeout
    running = {process.sentinel: process for process in processes}
    while running and time.monotonic() < deadline:
        for sentinel in connection.wait(list(running), deadline - time.monotonic()):
            process = running.pop(sentinel)
            process.join()
            if process.exitcode:  # the others may wait for it
                deadline = min(deadline, time.monotonic() + 10)
    for process in running.values():
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    return not running


def run_group(
    processes: int,
    module: str,
    *arguments: str,
    variables: Mapping[str, str] = MappingProxyType({}),
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a module in some processes of one group, as a launcher starts them, or in one process without a group.

    Args:
        processes: How many.
        module: What each runs, as `python -m` does; modules of this folder are found.
        arguments: Its arguments.
        variables: Changes of the environment.
        timeout: Seconds after which the test fails.

    Returns:
        The first exit status that is not 0, and the output of all.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(processes):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
            place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            own = {name: str(value) for name, value in place.items()} if processes > 1 else {}
            output = Path(folder) / str(rank)
            started.append(start(module, *arguments, output=output, variables={**own, **variables}))
        ended = _wait(started, timeout)
        out, err = ("".join(p.read_text() for p in sorted(Path(folder).glob(f"*.{kind}"))) for kind in ("out", "err"))
    codes = [process.exitcode or 0 for process in started]
    if not ended and not any(code > 0 for code in codes):
        pytest.fail(f"processes wait for each other: {err[-3000:]}")
    return subprocess.CompletedProcess([module, *arguments], next((c for c in codes if c > 0), max(codes)), out, err)
