"""Measures training in turn and ahead, one core for a server and one for the trainer, beside a simulation.

Run `python benchmarks/staleness.py [--staleness 1 2 4] [--steps 12] [--server stand-in|vllm] [--out FOLDER]`. It needs
two cores: the server is pinned to one, the trainer to the other. `stand-in` speaks vLLM's protocol and samples with
`transformers`; `vllm` is a real server, run by a Python that has it ($CODEV_VLLM_PYTHON, or that of `make vllm`).

Two short runs in turn come first: from their times follows the number of epochs for which an update takes as long as
its rollouts. Then each staleness trains the same number of updates from the same policy. The first updates, in which
everything is compiled and filled, are left out. Seconds on a machine that does other work at the same time say little;
the processor time on both cores, which is printed beside them, says more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHORT = 10  # updates of the run that finds the number of epochs
FIRST = 3  # updates that are left out
QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
TASK = [
    *("--preset", "smoke", "--engine", "vllm-server", "--threads", "1", "--prompts", "4", "--group", "4"),
    *("--max-length", "4096", "--max-tokens", "24", "--eval.episodes", "2", "--save-every", "1000"),
    *("--show-every", "1000", "--health.mismatch", "0.01", "--optimizer.lr", "1e-5", "--entropy", "0.001"),
]
"""The entropy bonus gives every episode a gradient, so that no update is empty."""


@dataclass(frozen=True)
class Measured:
    """Means over updates, in seconds.

    Attributes:
        update: From the end of an update to the end of the next: its inverse is the throughput.
        rollouts: Part of it in which the trainer waits for rollouts.
        push: Of a push of weights: part of an update in turn, beside the next one ahead.
        trainer: Processor time of the trainer with its environments, on its core.
        server: Processor time of the server.
        kl: Mean over updates of the KL of the sampler from the policy that is trained, by tokens.
    """

    update: float
    rollouts: float
    push: float
    trainer: float
    server: float
    kl: float


def serve(model: Path, port: int) -> None:
    """Run the stand-in for a server until it is killed."""
    import torch

    sys.path.insert(0, str(ROOT / "tests"))
    from fake_vllm_server import FakeVllmServer

    from codev_agents.engines.policy import Policy

    torch.set_num_threads(1)
    policy = Policy.load(str(model))
    FakeVllmServer(policy.model, policy.processor, port)
    while True:
        time.sleep(3600)


@contextlib.contextmanager
def server(kind: str, model: Path, port: int, core: int, log: Path) -> Iterator[int]:
    """Run a server on one core; gives its process id."""
    if kind == "vllm":
        python = os.environ.get("CODEV_VLLM_PYTHON") or str(ROOT / ".venv-vllm" / "bin" / "python")
        command = [
            *(python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)),
            *("--host", "127.0.0.1", "--enable-scale-out", "--logprobs-mode", "processed_logprobs"),
            *("--generation-config", "vllm", "--dtype", "float32", "--max-model-len", "4096"),
            *("--max-num-seqs", "16", "--enforce-eager", "--mm-processor-kwargs", '{"do_resize": false}'),
        ]
    else:
        command = [sys.executable, __file__, "--serve", str(model), "--port", str(port)]
    more = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=os.environ | QUIET | more, start_new_session=True
        )
    os.sched_setaffinity(process.pid, {core})
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            if process.poll() is not None:
                raise RuntimeError(f"the server ended: {log.read_text()[-2000:]}")
            time.sleep(0.5)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # vLLM's engine is a process of its own
        process.wait()


def processor_time(first: int) -> float:
    """Return the processor time of a process and its descendants, in seconds."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid], used[pid] = int(fields[1]), sum(map(int, fields[11:15]))

    def belongs(pid: int) -> bool:
        while pid != first and pid in parents:
            pid = parents[pid]
        return pid == first

    return sum(used[pid] for pid in used if belongs(pid)) / os.sysconf("SC_CLK_TCK")


def train(out: Path, name: str, words: Sequence[str], port: int, core: int, pid: int) -> Measured:
    """Train on one core with the server on another, and read the history."""
    command = [sys.executable, "-m", "codev_env.app.cli", "train", *TASK, "--out", str(out), "--name", name, *words]
    command += ["--vllm.url", f"http://127.0.0.1:{port}"]
    log, history = out / f"{name}.log", out / name / "history.jsonl"
    used: dict[int, tuple[float, float]] = {}  # by the number of updates made
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | QUIET)
        os.sched_setaffinity(process.pid, {core})
        while process.poll() is None:
            time.sleep(0.05)
            done = history.read_bytes().count(b"\n") if history.exists() else 0
            if done and done not in used:
                used[done] = processor_time(process.pid), processor_time(pid)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {log.read_text()[-2000:]}")
    rows = [json.loads(line) for line in history.read_text().splitlines()]
    first = min(FIRST, len(rows) - 1)
    rows = rows[first:]
    begun, ended = min(n for n in used if n >= first), max(used)
    trainer, served = ((b - a) / (ended - begun) for a, b in zip(used[begun], used[ended], strict=True))

    def whole(row: dict[str, Any]) -> float:
        return row["seconds/rollouts"] + row["seconds/waiting"] + row["seconds/update"]

    return Measured(
        statistics.mean(map(whole, rows)),
        statistics.mean(row["seconds/rollouts"] for row in rows),
        statistics.mean(row.get("async/push_seconds", row["seconds/push"]) for row in rows),
        trainer,
        served,
        statistics.mean(_kl(row) for row in rows),
    )


def _kl(row: dict[str, Any]) -> float:
    """Return the mean k3 of the sampler from the policy before the update, over all tokens."""
    shares = [name for name in row if name.startswith("lag/") and name.endswith("_share")]
    if not shares:  # in turn, with one minibatch, one epoch and the ratio against the sampler
        return row["update/kl"] if row["update/kl"] is not None else float("nan")
    return sum(row[name] * (row[name.replace("_share", "_kl")] or 0.0) for name in shares if row[name] is not None)


def predicted(turn: Measured, staleness: int) -> float:
    """Return the ratio of updates per hour, ahead to in turn, that the simulator expects from the times in turn.

    Environments, the pixels of crops and requests take time on the trainer's core: in turn while the server samples,
    ahead beside an update, which takes longer by as much.
    """
    from codev_train.run.schedule import SchedulePlan, simulate

    update = turn.update - turn.rollouts
    plan = SchedulePlan([turn.rollouts / 16], 4, 4, update - turn.push, turn.push, crowding=1.0)
    beside = max(0.0, turn.trainer - plan.update) if staleness else 0.0
    ahead = replace(plan, staleness=staleness, update=plan.update + beside)
    return simulate(plan).seconds / simulate(ahead).seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--staleness", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--server", choices=("stand-in", "vllm"), default="stand-in")
    parser.add_argument("--port", type=int, default=18431)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.port)
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("two cores are needed")
    out = given.out or Path(tempfile.mkdtemp(prefix="codev-staleness-"))
    out.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "codev_env.app.cli", "sft", "--preset", "smoke", "--toy.heads", "2", "--out", str(out)],
        check=True,
        env=os.environ | QUIET,
        stdout=subprocess.DEVNULL,
    )
    model = next(out.glob("start-*/config.json")).parent
    words = ["--model", str(model)]
    with server(given.server, model, given.port, cores[1], out / "server.log") as pid:
        place = (given.port, cores[0], pid)
        one, three = (
            train(out, f"short-{n}", [*words, "--steps", str(SHORT), "--epochs", str(n)], *place) for n in (1, 3)
        )
        epoch = max(1e-6, (three.update - three.rollouts - one.update + one.rollouts) / 2)
        epochs = 1 + max(0, round((2 * one.rollouts - one.update) / epoch))
        words += ["--steps", str(given.steps), "--epochs", str(epochs)]
        turn = train(out, "in-turn", words, *place)
        found = {n: train(out, f"ahead-{n}", [*words, "--staleness", str(n)], *place) for n in given.staleness}
    print(f"{given.server}, {given.steps} updates of 16 episodes, {epochs} epochs, load {os.getloadavg()[0]:.1f}\n")
    print(
        "| staleness | update s | waits for rollouts s | push s | trainer, processor s | server, processor s | KL |",
        end="",
    )
    print(" ratio | simulated |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for n, one in {0: turn, **found}.items():
        cells = [one.update, one.rollouts, one.push, one.trainer, one.server]
        ratio = f"{turn.update / one.update:.2f} | {predicted(turn, n):.2f}"
        print(f"| {n} | {' | '.join(f'{cell:.2f}' for cell in cells)} | {one.kl:.2g} | {ratio} |")


if __name__ == "__main__":
    main()
