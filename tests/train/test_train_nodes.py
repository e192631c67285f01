"""Two launchers on 127.0.0.1 with one process each, as on two machines: they train, resume, and end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import micro_run
import pytest
from micro_run import history, same_weights

from codev_train.learn.checkpoint import checkpoints

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
FSDP2 = resources.files("codev_train.run.launch") / "fsdp2.yaml"


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def sharding(machine: int, port: str) -> list[str]:
    """The command of docs/training.md for several machines, on CPUs."""
    words = ["--config_file", str(FSDP2), "--num_machines", "2", "--num_processes", "2"]
    words += ["--machine_rank", str(machine), "--main_process_ip", "127.0.0.1", "--main_process_port", port]
    return ["-m", "accelerate.commands.launch", *words, str(HERE / "sharded_process.py"), "codev_env.app.cli"]


def copying(machine: int, port: str) -> list[str]:
    """The same for whole copies."""
    words = ["--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(machine)]
    words += ["--master-addr", "127.0.0.1", "--master-port", port]
    return ["-m", "torch.distributed.run", *words, "-m", "codev_env.app.cli"]


class Machines:
    """Two launchers that run the same command; each may have a working folder of its own."""

    def __init__(self, launcher, folders: list[Path], *words: str) -> None:
        paths = [str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(str(Path(p).absolute()) for p in paths if p)
        if launcher is copying:
            environment["ACCELERATE_USE_CPU"] = "true"
        port, self.outputs = free_port(), [folder / f"machine-{n}.txt" for n, folder in enumerate(folders)]
        self.machines = []
        for number, (folder, output) in enumerate(zip(folders, self.outputs, strict=True)):
            command = [sys.executable, *launcher(number, port), "train", *words]
            with output.open("w") as file:
                self.machines.append(
                    subprocess.Popen(
                        command, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
                    )
                )

    def until(self, found) -> None:
        for _ in range(3000):
            if found() or any(machine.poll() is not None for machine in self.machines):
                break
            time.sleep(0.1)
        if not found():
            self.kill()
        assert found(), self.said()

    def end(self) -> list[int]:
        """Wait for both, at most 300 s each; returns their exit codes."""
        try:
            return [machine.wait(timeout=300) for machine in self.machines]
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"they do not end: {self.said()}")

    def kill(self, *numbers: int) -> None:
        """Kill launchers and their processes, as when the power of a machine fails."""
        import psutil

        for number in numbers or range(2):
            if self.machines[number].poll() is None:
                launcher = psutil.Process(self.machines[number].pid)
                for process in [launcher, *launcher.children(recursive=True)]:
                    process.send_signal(signal.SIGKILL)

    def said(self) -> str:
        return "\n".join(output.read_text() for output in self.outputs)


@pytest.fixture
def words(tmp_path) -> list[str]:
    config = micro_run.write_config(tmp_path / "micro.yaml")
    return ["--config", str(config), "--threads", "1", "--name", "nodes"]


def test_two_machines_train_and_resume(tmp_path, words):
    run = tmp_path / "nodes"
    first = Machines(sharding, [tmp_path] * 2, *words, "--sharding", "fsdp2", "--out", str(tmp_path), "--steps", "2")
    assert first.end() == [0, 0], first.said()
    assert [row["step"] for row in history(run)] == [1, 2]
    saved = checkpoints(run)[-1]

    again = Machines(sharding, [tmp_path] * 2, "--resume", str(run), "--steps", "3")
    assert again.end() == [0, 0], again.said()
    assert [row["step"] for row in history(run)] == [1, 2, 3]
    assert again.said().count("Report:") == 1
    assert not same_weights(run / "model", saved / "model")


def test_a_dead_machine_ends_the_other_with_a_message(tmp_path, words):
    run = tmp_path / "nodes"
    both = Machines(copying, [tmp_path] * 2, *words, "--out", str(tmp_path), "--steps", "1000")
    both.until(lambda: (run / "history.jsonl").exists() and history(run))
    both.kill(1)
    codes = both.end()
    assert codes[0] == 1 and codes[1] == -signal.SIGKILL
    said = both.outputs[0].read_text()
    assert "another process of this run has ended or does not answer" in said
    assert f"codev train --resume {run}" in said


def test_machines_without_a_shared_folder_are_refused(tmp_path, words):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        (folder / "runs").mkdir(parents=True)
    both = Machines(copying, folders, *words, "--out", "runs")
    assert all(both.end())
    assert both.said().count("codev train: ") == 1
    assert "is not seen by" in both.said() and str(folders[1] / "runs") in both.said()
    assert not [path for folder in folders for path in (folder / "runs").iterdir()]
