"""Processes of a run: how many a plain start makes, and the launcher of torch or Accelerate that starts them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import resources

from codev_env.app import cli
from codev_env.errors import CodevError, ConfigError


class ProcessLost(CodevError, RuntimeError):
    """Another process of the run ended or does not answer."""


PER_MACHINE = 8
"""GPUs of a machine, where a command for several machines is written."""
_LAUNCHED = ("LOCAL_RANK", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
_ACCELERATE = "ACCELERATE_MIXED_PRECISION"  # `accelerate launch` always sets it, for a single process too
_CPU = "ACCELERATE_USE_CPU"
_STOP_S = 3600  # longest wait for an update to end and be saved after Ctrl-C
_WAIT = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


def is_launched() -> bool:
    """Return whether a launcher (torchrun, Accelerate, MPI) has started this process, so that it starts no others."""
    return any(name in os.environ for name in (*_LAUNCHED, _ACCELERATE))


def visible_gpus() -> int:
    """Return the number of GPUs that processes can use; 0 if `ACCELERATE_USE_CPU` asks for CPUs."""
    if os.environ.get(_CPU, "").lower() in ("1", "true", "yes", "on", "y", "t"):
        return 0
    import torch

    return torch.cuda.device_count()


def planned_processes(processes: int, sharding: str) -> int:
    """Return how many processes a start on this machine makes.

    Args:
        processes: The option; 0 is one per visible GPU, and one on a CPU.
        sharding: The option.

    Raises:
        ConfigError: They cannot be started here.
    """
    gpus = visible_gpus()
    number = processes or max(1, gpus)
    if gpus and number > gpus:
        raise ConfigError(f"--processes is {processes}; it must be at most the {gpus} visible GPUs.")
    if number > 1 and not gpus and sharding != "none":
        raise ConfigError(
            f"--sharding {sharding} needs GPUs, and there are none; give --sharding none or --processes 1."
        )
    if not processes:
        _refuse_slurm(os.environ)
    return number


def _refuse_slurm(environment: Mapping[str, str]) -> None:
    """Refuse to start one run per task of SLURM, or on one of its machines alone."""
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", 1))
    machines = int(environment.get("SLURM_STEP_NUM_NODES", environment.get("SLURM_NNODES", 1)))
    if tasks > 1 or machines > 1:
        raise ConfigError(
            f"SLURM gives this job {machines} machines and starts this command {tasks} times, but it does not join "
            "processes to one run. Start one launcher per machine (docs/training.md has the command), or say "
            "--processes N for a run on this machine alone."
        )


def is_lost(error: RuntimeError) -> bool:
    """Return whether an error is one of NCCL or gloo: another process of the run ended or does not answer."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo/" in str(error)


def launch_arguments(number: int, sharding: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of the launcher for one machine: of `torchrun`, or of `accelerate launch` with shards."""
    command = ["-m", cli.__spec__.name, "train", *arguments]
    if sharding == "none":
        return ["--standalone", "--nproc-per-node", str(number), *command]
    return ["--config_file", _config(sharding), "--num_processes", str(number), "--main_process_port", "0", *command]


def command_line(number: int, sharding: str, arguments: Sequence[str], on_cpus: bool = False) -> str:
    """Write the command that starts the processes of a run, on several machines if there are more than eight."""
    machines, rest = divmod(number, PER_MACHINE)
    if machines < 2 or rest:
        command = shlex.join([*_launcher(sharding), *launch_arguments(number, sharding, arguments)])
        return f"{_CPU}=true {command}" if on_cpus else command
    words = ["--nnodes", str(machines), "--nproc-per-node", str(PER_MACHINE)]
    rank, address, port = "--node-rank", "--master-addr", "--master-port"
    if sharding != "none":
        words = ["--config_file", _config(sharding), "--num_machines", str(machines), "--num_processes", str(number)]
        rank, address, port = "--machine_rank", "--main_process_ip", "--main_process_port"
    where = f'{rank} "$MACHINE" {address} "$FIRST" {port} 29500'
    program = shlex.join(["-m", cli.__spec__.name, "train", *arguments])
    return f"{shlex.join([*_launcher(sharding), *words])} {where} {program}"


def launch(number: int, sharding: str, arguments: Sequence[str]) -> int:
    """Start the processes of a run, wait for them, and return the exit code of the one that failed first, or 0.

    The launcher runs in this process: it hands a signal on to each process once, and waits while they save.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if not visible_gpus():
        os.environ[_CPU] = "true"
    words = launch_arguments(number, sharding, arguments)
    try:
        _run(sharding, words)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            return failure.exitcode  # It has said why.
        print(
            f"codev train: process {rank} was killed by {signal.Signals(-failure.exitcode).name}, and the others were "
            "stopped. (SIGKILL often means that memory ran out.) Continue with: codev train --resume RUN",
            file=sys.stderr,
        )
        return 128 - failure.exitcode
    except SignalException as stopped:
        _kill_children()
        return 128 + int(stopped.sigval)
    return 0


def _run(sharding: str, words: Sequence[str]) -> None:
    from torch.distributed import run

    if sharding == "none":
        options = run.parse_args(list(words))
    else:
        from accelerate.commands.launch import launch_command, launch_command_parser

        options = launch_command_parser().parse_args(list(words))
    # Accelerate passes on whatever this version of torch knows of these.
    options.shutdown_timeout = int(os.environ.get(_WAIT, _STOP_S))
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
        options.signals_to_handle = "SIGTERM,SIGINT,SIGQUIT"
    if sharding == "none":
        run.run(options)
    else:
        launch_command(options)


def _kill_children() -> None:
    """End processes that a launcher has left behind: it was itself interrupted while it waited for them."""
    import psutil  # type: ignore[import-untyped]

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _launcher(sharding: str) -> list[str]:
    return ["torchrun"] if sharding == "none" else ["accelerate", "launch"]


def _config(sharding: str) -> str:
    return str(resources.files("codev_train.run.launch").joinpath(f"{sharding}.yaml"))
