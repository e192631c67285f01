"""A plain `codev train` starts a process per GPU: how many, by which command, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import micro_run
import pytest
import torch
import yaml
from micro_run import history

from codev_env.app.cli import main
from codev_env.errors import CodevError, ConfigError
from codev_train import cli
from codev_train.learn.checkpoint import checkpoints
from codev_train.run import processes
from codev_train.run.config import OPTIONS
from codev_train.run.interrupt import Interrupted
from codev_train.run.options import SFTOptions, TrainOptions
from codev_train.run.processes import Launch
from codev_train.sft.start import start_folder

LAUNCHERS = ("LOCAL_RANK", "RANK", "WORLD_SIZE", "ACCELERATE_MIXED_PRECISION", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
SEVEN = ["--preset", "qwen2.5-vl-7b-tapo"]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in (*LAUNCHERS, "MV2_COMM_WORLD_SIZE", "ACCELERATE_USE_CPU", *(n for n in os.environ if "SLURM" in n)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def gpus(monkeypatch):
    """Fakes a number of visible GPUs."""
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.fixture
def started(monkeypatch):
    """What would have been launched, or the number 1 for a run in this process."""
    seen: list = []
    monkeypatch.setattr(cli, "launch", lambda what: seen.append(what) or 0)
    monkeypatch.setattr("codev_train.experiment.run_experiment", lambda *_: seen.append(1))
    return seen


def test_eight_gpus_get_eight_processes_that_shard(gpus, started, capsys):
    gpus(8)
    assert main(["train", *SEVEN, "--seed", "1"]) == 0
    assert started == [Launch(8, "fsdp2", 2, ("train", *SEVEN, "--seed", "1"))]
    said = capsys.readouterr().out
    assert "Starting 8 processes (--processes 1 starts one)" in said
    assert "accelerate launch --config_file" in said and "fsdp2.yaml --num_processes 8" in said
    assert said.rstrip().endswith("-m codev_env.app.cli train --preset qwen2.5-vl-7b-tapo --seed 1")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, SEVEN), (1, SEVEN), (8, [*SEVEN, "--processes", "1"]), (8, ["--preset", "tiny"]), (8, ["--preset", "smoke"])],
)
def test_one_process_starts_no_other(count, words, gpus, started):
    gpus(count)
    assert main(["train", *words]) == 0
    assert started == [1]


@pytest.fixture
def start(monkeypatch, tmp_path):
    """A file of options of a cold start, and whether it was made in this process."""
    made: list = []
    monkeypatch.setattr("codev_train.sft.start.make_start", lambda *_: made.append(1))
    file = micro_run.write_config(tmp_path / "micro.yaml")
    return ["--config", str(file), "--out", str(tmp_path)], made


@pytest.mark.parametrize("count", [0, 1])
def test_a_cold_start_of_one_process_starts_no_other(count, gpus, started, start):
    gpus(count)
    words, made = start
    assert main(["sft", *words]) == 0
    assert made == [1] and not started


def test_a_cold_start_gets_a_process_per_gpu_too(gpus, started, start, monkeypatch, capsys):
    gpus(4)
    words, made = start
    assert main(["sft", *words, "--sharding", "hsdp"]) == 0
    assert started == [Launch(4, "hsdp", 2, ("sft", *words, "--sharding", "hsdp"))] and not made
    said = capsys.readouterr().out
    assert "Starting 4 processes" in said and "hsdp.yaml --num_processes 4" in said and "codev_env.app.cli sft" in said
    monkeypatch.setenv("RANK", "3")
    assert main(["sft", *words]) == 0
    assert made == [1] and not capsys.readouterr().out


def test_the_name_of_a_cold_start_does_not_depend_on_its_processes():
    plain = start_folder(SFTOptions())
    assert plain == start_folder(SFTOptions(processes=8, sharding="hsdp", replicas=4))


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_process_that_was_launched_launches_no_other(name, gpus, started, monkeypatch):
    gpus(8)
    monkeypatch.setenv(name, "0")
    assert main(["train", *SEVEN]) == 0
    assert started == [1]


@pytest.mark.parametrize(("rank", "waits"), [("0", []), ("1", [processes.SAID_S])])
@pytest.mark.parametrize("error", [CodevError("the numbers are broken"), Interrupted("stopped and saved")])
def test_an_error_of_all_processes_is_said_once(rank, waits, error, monkeypatch, capsys):
    """The others wait: a launcher ends them when the main one has ended, and an error of their own is said later."""

    def failing(*_):
        raise error

    waited: list[float] = []
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr("codev_train.experiment.run_experiment", failing)
    monkeypatch.setattr(cli.time, "sleep", waited.append)
    assert main(["train", *SEVEN]) == (130 if isinstance(error, Interrupted) else 1)
    assert waited == ([] if isinstance(error, Interrupted) else waits)
    assert str(error) in capsys.readouterr().err


def test_cpus_that_are_asked_for_are_used_instead_of_gpus(gpus, started, monkeypatch, capsys):
    gpus(8)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert main(["train", "--preset", "smoke", "--processes", "2"]) == 0
    assert started == [Launch(2, "none", 2, ("train", "--preset", "smoke", "--processes", "2"))]
    assert "ACCELERATE_USE_CPU=true torchrun --standalone --nproc-per-node 2 -m" in capsys.readouterr().out


def test_a_resumed_run_starts_the_processes_of_its_options(gpus, started, tmp_path):
    gpus(4)
    (tmp_path / OPTIONS).write_text(yaml.safe_dump({"train": {"model": "m", "sharding": "fsdp2"}}))
    assert main(["train", "--resume", str(tmp_path)]) == 0
    assert started == [Launch(4, "fsdp2", 2, ("train", "--resume", str(tmp_path)))]


def test_the_exit_code_is_that_of_the_processes(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setattr(cli, "launch", lambda *_: 3)
    with pytest.raises(SystemExit) as ended:
        main(["train", *SEVEN])
    assert ended.value.code == 3


def test_a_launcher_that_was_started_by_hand_is_told_to_wait_for_an_update(monkeypatch):
    """Torch's own kills its processes 30 s after Ctrl-C; that of a plain start waits, as its processes see."""
    for name in (processes._ELASTIC, processes._WAIT):
        monkeypatch.setenv(name, "")  # so that it is as before in the end
        monkeypatch.delenv(name)
    assert not processes.launcher_advice(), "there is no launcher"
    monkeypatch.setenv(processes._ELASTIC, "none")
    assert "export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=3600" in processes.launcher_advice()
    waits = []
    monkeypatch.setattr("torch.distributed.run.run", lambda given: waits.append(given.shutdown_timeout))
    processes._run("none", ["--nproc-per-node", "2", "x.py"])
    assert waits == [3600] and not processes.launcher_advice()
    monkeypatch.setenv(processes._WAIT, "60")
    processes._run("none", ["--nproc-per-node", "2", "x.py"])
    assert waits == [3600, 60]


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (4, "--processes 8", "--processes is 8; it must be at most the 4 visible GPUs"),
        (0, "--processes 2 --sharding fsdp2", "--sharding fsdp2 needs GPUs, and there are none"),
        (2, "--processes 2 --sharding fsdp2-offload --optimizer.name muon", "adamw with sharding fsdp2-offload"),
        (6, "--processes 0 --sharding hsdp --replicas 4", "--replicas is 4; with --sharding hsdp it must divide the 6"),
        (
            2,
            "--processes 0 --sharding hsdp",
            "--replicas is 2; with --sharding hsdp it must divide the 2 processes, with",
        ),
    ],
)
def test_processes_that_cannot_be_started_are_refused(count, words, said, gpus, started, capsys):
    gpus(count)
    assert main(["train", "--preset", "smoke", *words.split()]) == 1
    assert said in capsys.readouterr().err and not started


@pytest.mark.parametrize(
    "job", [{"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "1"}, {"SLURM_NNODES": "2"}], ids=["tasks", "nodes"]
)
def test_slurm_does_not_get_a_run_per_task_nor_one_machine_of_several(job, gpus, monkeypatch):
    gpus(8)
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="one launcher per machine"):
        processes.planned_processes(TrainOptions())
    assert processes.planned_processes(TrainOptions(processes=8)) == 8


def test_a_job_of_one_machine_and_one_task_is_a_plain_start(gpus, monkeypatch):
    gpus(8)
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_NNODES"):
        monkeypatch.setenv(name, "1")
    assert processes.planned_processes(TrainOptions()) == 8


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (SEVEN, "--num_processes 8 --main_process_port 0 -m codev_env.app.cli train --preset qwen2.5-vl-7b-tapo"),
        ([*SEVEN, "--estimate.gpus", "32"], 'fsdp2.yaml --num_processes 32 --machine_rank "$MACHINE"'),
        ([*SEVEN, "--sharding", "none", "--estimate.gpus", "32"], "torchrun --nnodes 4 --nproc-per-node 8 --node-rank"),
        (
            [*SEVEN, "--sharding", "hsdp", "--replicas", "4", "--estimate.gpus", "32"],
            "32 --parallelism_config_dp_replicate_size 4 --parallelism_config_dp_shard_size 8 --machine_rank",
        ),
        (["--preset", "smoke", "--processes", "2"], "ACCELERATE_USE_CPU=true torchrun --standalone --nproc-per-node 2"),
    ],
)
def test_a_dry_run_prints_the_command(words, command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["train", *words, "--dry-run"])
    (by_hand,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("By hand:"))
    assert command in by_hand and "--dry-run" not in by_hand


def test_a_dry_run_of_one_process_prints_no_launcher(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--preset", "smoke", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Start:       codev train --preset smoke\n" in said and "By hand" not in said


# --- two processes on CPUs ---


class Run:
    """A plain start in a process of its own, as from a terminal."""

    def __init__(self, *words: str) -> None:
        paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        command = [sys.executable, "-m", "codev_env.app.cli", "train", *words]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def until(self, found) -> None:
        for _ in range(3000):
            if found() or self.process.poll() is not None:
                break
            time.sleep(0.1)
        if not found():
            for pid in (*self.ranks().values(), self.process.pid) if self.process.poll() is None else ():
                os.kill(pid, signal.SIGKILL)
            pytest.fail("\n".join(self.process.communicate()))

    def end(self) -> tuple[int, str]:
        try:
            out, err = self.process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            pytest.fail(f"the processes do not end: {self.process.communicate()}")
        return self.process.returncode, out + err

    def ranks(self) -> dict[str, int]:
        import psutil

        found = psutil.Process(self.process.pid).children()
        return {p.environ()["RANK"]: p.pid for p in found if "RANK" in p.environ()}


@pytest.mark.integration
def test_a_plain_start_survives_a_killed_process_and_ctrl_c(tmp_path):
    """A killed process ends the others with a message, and the run resumes; Ctrl-C ends the update and saves it."""
    config = str(micro_run.write_config(tmp_path / "micro.yaml"))
    run = tmp_path / "two"
    words = ["--config", config, "--out", str(tmp_path), "--threads", "1", "--name", "two", "--processes", "2"]

    def updates() -> int:
        return len(history(run)) if (run / "history.jsonl").exists() else 0

    killed = Run(*words, "--steps", "1000")
    killed.until(lambda: updates() >= 1)
    os.kill(killed.ranks()["1"], signal.SIGKILL)
    code, said = killed.end()
    assert code == 128 + signal.SIGKILL, said
    assert "process 1 was killed by SIGKILL, and the others were stopped" in said

    done = updates()
    stopped = Run("--resume", str(run))
    stopped.until(lambda: updates() > done)
    stopped.process.send_signal(signal.SIGINT)
    code, said = stopped.end()
    assert code == 128 + signal.SIGINT, said
    assert said.count("stopped and saved. Continue with: codev train --resume") == 1
    assert said.count("Stopping after this update and saving") == 1
    assert checkpoints(run)[-1].name == f"step-{updates():06d}"


WAITING = """
import os, sys, time, types

def run(*_):
    open(f"{sys.argv[1]}/{os.getpid()}", "w").close()
    time.sleep(600)

sys.modules["codev_train.experiment"] = types.SimpleNamespace(run_experiment=run)
from codev_env.app.cli import main
main(["train", "--preset", "smoke"])
"""
"""`codev train` whose run only waits."""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("launcher", "count"),
    [
        ("torch.distributed.run --standalone --nproc-per-node 2", 2),
        ("accelerate.commands.launch --config_file {config} --num_processes 2 --main_process_port 0", 2),
        ("accelerate.commands.launch --cpu --num_processes 1", 1),
    ],
    ids=["torchrun", "accelerate", "accelerate-1"],
)
def test_processes_end_with_a_launcher_that_is_killed(launcher, count, tmp_path):
    import psutil

    script, pids = tmp_path / "waiting.py", tmp_path / "pids"
    script.write_text(WAITING)
    pids.mkdir()
    command = [
        sys.executable,
        "-m",
        *launcher.format(config=processes._config("fsdp2")).split(),
        str(script),
        str(pids),
    ]
    with (tmp_path / "log.txt").open("wb") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(lambda: len(list(pids.iterdir())) == count or started.poll() is not None, 200)
        found = [psutil.Process(int(path.name)) for path in pids.iterdir()]
        assert len(found) == count, (tmp_path / "log.txt").read_text()
        started.kill()
        started.wait()
        _, alive = psutil.wait_procs(found, timeout=30)
        assert not alive, "processes outlive their launcher"
        assert (tmp_path / "log.txt").read_text().count("the launcher of this process has ended") == count
    finally:
        for path in pids.iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.name), signal.SIGKILL)
        started.kill()


@pytest.mark.integration
def test_a_process_that_was_started_by_hand_outlives_its_shell(tmp_path):
    import psutil

    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    command = f"RANK=0 WORLD_SIZE=1 {sys.executable} {script} {tmp_path} & exec sleep 600"
    shell = subprocess.Popen(["sh", "-c", command], start_new_session=True)
    wait_for(lambda: any(path.name.isdigit() for path in tmp_path.iterdir()), 100)
    (process,) = (psutil.Process(int(path.name)) for path in tmp_path.iterdir() if path.name.isdigit())
    try:
        shell.kill()
        shell.wait()
        assert psutil.wait_procs([process], timeout=3 * processes._LOOK_S) == ([], [process])
    finally:
        process.kill()


def wait_for(found, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not found() and time.monotonic() < end:
        time.sleep(0.1)
