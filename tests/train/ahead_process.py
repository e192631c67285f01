"""The processes of a run with `staleness` that are killed; `test_train_ahead_killed.py` starts them.

train FOLDER KILL_AT DELAY ARGUMENTS...   `codev train ARGUMENTS`: kills itself DELAY seconds after change number
                                          KILL_AT of a file in FOLDER; 0 for never. `ended.txt` there gets the number
                                          of each group when it is saved, or when the next process finds it saved,
                                          `begun.txt` when it is drawn.
serve POLICY PORT KILL_AT DELAY           A server on this port that kills itself DELAY seconds after request number
                                          KILL_AT for a completion has come.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch


def die(delay: float) -> None:
    """Kill this process, the whole of it at once."""
    time.sleep(delay)
    os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, kill_at: int, delay: float, arguments: list[str]) -> int:
    from killed_process import changes_of

    from codev_agents.rollout.stream import RolloutStream
    from codev_env.app.cli import main
    from codev_train.learn.saved import SavedGroups
    from codev_train.sft import cold_start as sft

    open_, save, draw = SavedGroups.open, SavedGroups.save, RolloutStream.draw
    logs = {
        name: os.open(folder / f"{name}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("ended", "begun")
    }

    def opening(self, plan, is_free):
        logged = {int(line) for line in (folder / "ended.txt").read_text().splitlines()}
        for path in sorted(self._folder.glob("*.zip")):  # the process before may have been killed between the two
            if int(path.stem) not in logged:
                os.write(logs["ended"], f"{int(path.stem)}\n".encode())
        return open_(self, plan, is_free)

    def saving(self, group) -> None:
        save(self, group)
        os.write(logs["ended"], f"{group.number}\n".encode())

    def drawing(self):
        group = draw(self)
        if group:
            os.write(logs["begun"], f"{group.number}\n".encode())
        return group

    SavedGroups.open, SavedGroups.save, RolloutStream.draw = opening, saving, drawing  # type: ignore[method-assign]
    sft.CORPUS_SCENES = 40
    torch.set_num_threads(1)
    if kill_at:
        later = threading.Thread(target=die, args=(delay,), daemon=True)
        changes_of(folder / "runs", lambda count: later.start() if count == kill_at else None)
    return main(["train", *arguments])


def serve(policy: Path, port: int, kill_at: int, delay: float) -> None:
    from fake_vllm_server import GENERATE, FakeVllmServer

    from codev_agents.engines.policy import Policy

    torch.set_num_threads(1)
    loaded = Policy.load(str(policy))
    asked = 0

    class Mortal(FakeVllmServer):
        def answer(self, path, body):
            nonlocal asked
            if path == GENERATE:
                asked += 1
                if asked == kill_at:
                    threading.Thread(target=die, args=(delay,), daemon=True).start()
            return super().answer(path, body)

    Mortal(loaded.model, loaded.processor, port)
    threading.Event().wait()


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "train":
        sys.exit(train(Path(place), int(rest[0]), float(rest[1]), rest[2:]))
    serve(Path(place), int(rest[0]), int(rest[1]), float(rest[2]))
