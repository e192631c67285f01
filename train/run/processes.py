"""Processes of a run: how many a plain start makes, and the launcher of torch or Accelerate that starts them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from codev_env.app import cli
from codev_env.errors import CodevError, ConfigError
from codev_train.run.options import SFTOptions, TrainOptions


class ProcessLost(CodevError, RuntimeError):
    """Another process of the run ended or does not answer."""


PER_MACHINE = 8
"""GPUs of a machine, where a command for several machines is written."""
_LAUNCHED = ("LOCAL_RANK", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
_ELASTIC = "TORCHELASTIC_RUN_ID"  # set by torchrun, and by `accelerate launch` for several processes
_LOOK_S = 1.0
_ACCELERATE = "ACCELERATE_MIXED_PRECISION"  # `accelerate launch` always sets it, for a single process too
_CPU = "ACCELERATE_USE_CPU"
_STOP_S = 3600  # longest wait for an update to end and be saved after Ctrl-C
_WAIT = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
SAID_S = 10.0
"""Time in which the main process says why a run ends; a launcher ends all processes when one ends."""


def is_launched() -> bool:
    """Return whether a launcher (torchrun, Accelerate, MPI) has started this process, so that it starts no others."""
    return any(name in os.environ for name in (*_LAUNCHED, _ACCELERATE))


def follow_launcher() -> None:
    """End this process soon after its launcher, also one that was killed and could not end it.

    Otherwise the processes of a lost launcher keep their GPUs, and go on writing to the run while it is resumed.
    Nothing is lost that SIGKILL would not lose. Processes that were started by hand outlive their shell.
    """
    parent = os.getppid()
    if _ELASTIC not in os.environ and not (_ACCELERATE in os.environ and _is_accelerate(parent)):
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os.write(2, b"codev train: the launcher of this process has ended, and so does the process.\n")
        os._exit(1)

    threading.Thread(target=watch, name="launcher", daemon=True).start()


def launcher_advice() -> str:
    """Return what the launcher of this process lacks to wait for an update after Ctrl-C; empty if nothing."""
    if _ELASTIC not in os.environ or _WAIT in os.environ:
        return ""
    return (
        "The launcher kills these processes 30 s after Ctrl-C, even if an update takes longer. For an hour to finish "
        f"and save it: export {_WAIT}={_STOP_S}"
    )


def _is_accelerate(pid: int) -> bool:
    import psutil

    try:
        return any("accelerate" in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


def visible_gpus() -> int:
    """Return the number of GPUs that processes can use; 0 if `ACCELERATE_USE_CPU` asks for CPUs."""
    if os.environ.get(_CPU, "").lower() in ("1", "true", "yes", "on", "y", "t"):
        return 0
    import torch

    return torch.cuda.device_count()


def is_first() -> bool:
    """Return whether this is the process of a launcher that prints, or there is no launcher."""
    return os.environ.get("RANK", "0") == "0"


def planned_processes(options: TrainOptions | SFTOptions) -> int:
    """Return how many processes a start on this machine makes.

    Args:
        options: `processes` (0 is one per visible GPU, and one on a CPU), `sharding` and `replicas`.

    Raises:
        ConfigError: They cannot be started here.
    """
    processes, sharding, gpus = options.processes, options.sharding, visible_gpus()
    number = processes or max(1, gpus)
    if gpus and number > gpus:
        raise ConfigError(f"--processes is {processes}; it must be at most the {gpus} visible GPUs.")
    if number > 1 and not gpus and sharding != "none":
        raise ConfigError(
            f"--sharding {sharding} needs GPUs, and there are none; give --sharding none or --processes 1."
        )
    if not processes:
        _refuse_slurm(os.environ)
    if number > 1 and (problem := replicas_problem(options, number)):
        raise ConfigError(problem)
    return number


def replicas_problem(options: TrainOptions | SFTOptions, processes: int) -> str:
    """Return why so many processes cannot keep `replicas` copies of the weights; empty if they can."""
    replicas = options.replicas
    if options.sharding != "hsdp" or (processes % replicas == 0 and processes > replicas):
        return ""
    return (
        f"--replicas is {replicas}; with --sharding hsdp it must divide the {processes} processes, with two or more of "
        "them for each copy."
    )


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


@dataclass(frozen=True)
class Launch:
    """Processes of one command.

    Attributes:
        number: How many.
        sharding: The option.
        replicas: The option, for `hsdp`.
        command: `train` or `sft`, and its arguments.
    """

    number: int
    sharding: str
    replicas: int
    command: tuple[str, ...]

    @property
    def program(self) -> list[str]:
        """The module that each process runs, and its arguments, for a launcher."""
        return ["-m", cli.__spec__.name, *self.command]

    @property
    def launcher(self) -> list[str]:
        """The launcher: of torch, or of Accelerate with shards."""
        return ["torchrun"] if self.sharding == "none" else ["accelerate", "launch"]

    @property
    def shards(self) -> list[str]:
        """The options of `accelerate launch` about the processes and their shards."""
        found = ["--config_file", _config(self.sharding), "--num_processes", str(self.number)]
        if self.sharding == "hsdp":
            found += ["--parallelism_config_dp_replicate_size", str(self.replicas)]
            found += ["--parallelism_config_dp_shard_size", str(self.number // self.replicas)]
        return found

    @property
    def arguments(self) -> list[str]:
        """The arguments of the launcher for one machine."""
        if self.sharding == "none":
            return ["--standalone", "--nproc-per-node", str(self.number), *self.program]
        return [*self.shards, "--main_process_port", "0", *self.program]

    def line(self, on_cpus: bool = False) -> str:
        """Write the command that starts the processes, on several machines if there are more than eight."""
        machines, rest = divmod(self.number, PER_MACHINE)
        if machines < 2 or rest:
            command = shlex.join([*self.launcher, *self.arguments])
            return f"{_CPU}=true {command}" if on_cpus else command
        words = ["--nnodes", str(machines), "--nproc-per-node", str(PER_MACHINE)]
        rank, address, port = "--node-rank", "--master-addr", "--master-port"
        if self.sharding != "none":
            words = ["--num_machines", str(machines), *self.shards]
            rank, address, port = "--machine_rank", "--main_process_ip", "--main_process_port"
        where = f'{rank} "$MACHINE" {address} "$FIRST" {port} 29500'
        return f"{shlex.join([*self.launcher, *words])} {where} {shlex.join(self.program)}"


def launch(wanted: Launch) -> int:
    """Start processes, wait for them, and return the exit code of the one that failed first, or 0.

    The launcher runs in this process: it hands a signal on to each process once, and waits while they save.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if not visible_gpus():
        os.environ[_CPU] = "true"
    try:
        _run(wanted.sharding, wanted.arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            return failure.exitcode  # It has said why.
        name = wanted.command[0]
        again = "Continue with: codev train --resume RUN" if name == "train" else "Start again with the same command."
        print(
            f"codev {name}: process {rank} was killed by {signal.Signals(-failure.exitcode).name}, and the others were "
            f"stopped. (SIGKILL often means that memory ran out.) {again}",
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
    options.shutdown_timeout = int(os.environ.setdefault(_WAIT, str(_STOP_S)))
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
        options.signals_to_handle = "SIGTERM,SIGINT,SIGQUIT"
    if sharding == "none":
        run.run(options)
    else:
        launch_command(options)


def _kill_children() -> None:
    """End processes that a launcher has left behind: it was itself interrupted while it waited for them."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _config(sharding: str) -> str:
    return str(resources.files("codev_train.run.launch").joinpath(f"{sharding}.yaml"))
