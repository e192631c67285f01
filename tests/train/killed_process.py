"""`codev train`, killed again and again and started again each time; `test_train_killed.py` starts it.

Arguments: a folder with `micro.yaml`, a seed, and how many times to kill. Runs are forked from one process that has
imported everything. Half of the kills come after a random time, half in the middle of a random change of a file. The
folder then holds one run that was never killed, `whole/micro`, and others that were; `killed.json` lists the kills.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from codev_env.app.cli import main
from codev_train.learn.checkpoint import checkpoints
from codev_train.run.config import OPTIONS
from codev_train.sft import cold_start as sft

CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def changes_of(folder: Path, then: Callable[[int], None]) -> None:
    """Call `then` with 1, 2, … before each change of a file in the folder, in this process."""
    count = 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal count
        if event not in CHANGES or str(folder) not in str(arguments[0]):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        count += 1
        then(count)

    sys.addaudithook(hook)


def start(folder: Path, out: Path, kill_at: int = 0, counted: Path | None = None) -> int:
    """Start or resume the run in `out` in a process of its own; returns its id."""
    run = out / "micro"
    process = os.fork()
    if process:
        return process
    torch.set_num_threads(1)
    sft.CORPUS_SCENES = 40
    if kill_at:
        changes_of(out, lambda count: os.kill(os.getpid(), signal.SIGKILL) if count == kill_at else None)
    if counted:
        changes_of(out, lambda count: counted.write_text(str(count)))
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if (run / OPTIONS).exists():
        words = ["--resume", str(run)]
    else:
        words = ["--config", str(folder / "micro.yaml"), "--out", str(out), "--name", "micro", "--threads", "1"]
    try:
        code = main(["train", *words])
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        code = 1
    os._exit(code)


def finish(process: int) -> bool:
    """Wait for a run; returns whether it came to its end (false: it was killed)."""
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"the run failed with code {code}")
    return code == 0


def progress(out: Path) -> tuple[int, int]:
    """Return the updates in the newest checkpoint, and the whole lines of the history."""
    done = [int(p.name.removeprefix("step-")) for p in checkpoints(out / "micro")]
    path = out / "micro" / "history.jsonl"
    return max(done, default=0), path.read_text().count("\n") if path.exists() else 0


def play(folder: Path, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    counted = folder / "counted"
    begun = time.monotonic()
    finish(start(folder, folder / "whole", counted=counted))
    seconds, changes = time.monotonic() - begun, int(counted.read_text())
    number, notes = 0, []
    while kills or not notes[-1]["finished"]:
        out = folder / f"killed-{number}"
        at = rng.randint(1, changes // 2) if kills % 2 else 0
        wait = rng.uniform(0.05, 0.5) * seconds
        killing = kills > 0
        process = start(folder, out, at if killing else 0)
        if killing and not at:
            time.sleep(wait)
            os.kill(process, signal.SIGKILL)  # also where it has ended: it is not waited for yet
        finished = finish(process)
        done, rows = progress(out)
        kind = {"change": at} if at else {"seconds": round(wait, 2)}
        notes.append({"run": out.name, **kind, "done": done, "rows": rows, "finished": finished})
        number += finished
        kills -= killing and not finished
    (folder / "killed.json").write_text(json.dumps({"seed": seed, "seconds": seconds, "kills": notes}))


if __name__ == "__main__":
    play(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
