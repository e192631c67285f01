"""Runs random steps on the sandbox while workers and zygotes are killed, and reports the resources used at the end.

    python tests/sandbox/soak.py STEPS SEED

Every answer is checked. Prints JSON: what is in use after warming up and at the end, and what is left before and after.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import os
import random
import re
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from PIL import Image

from codev_env.errors import SandboxError
from codev_env.sandbox import Limits, Sandbox, Session
from codev_env.sandbox.host import process
from codev_env.types import Execution

THREADS = 2
_SLOTS = 3
SESSIONS = THREADS * _SLOTS
_CRASH = "x = iter([1])\nfor _ in range(200_000):\n    x = filter(None, x)\nprint(next(x))"


def processes() -> dict[int, list[str]]:
    """By process id: the fields of `/proc/<pid>/stat` after the name: state, parent, group, session and more."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
    return found


def children(pid: int) -> dict[int, str]:
    """The children of a process, with the letter of their state."""
    return {child: fields[0] for child, fields in processes().items() if int(fields[1]) == pid}


def descriptors(pid: int | str = "self") -> list[str]:
    """What the open descriptors of a process are, by kind."""
    kinds = []
    for fd in list(Path(f"/proc/{pid}/fd").iterdir()):
        try:
            kinds.append(os.readlink(fd).partition(":[")[0].partition(" (")[0])
        except OSError:
            continue  # the one that lists them
    return sorted(re.sub(r"/#\d+$", "/unnamed", kind) for kind in kinds)


def resident_mb() -> float:
    """MiB of this process's own memory that are in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Slot:
    """A session and its expected state."""

    def __init__(self, soak: Soak, rng: random.Random) -> None:
        self.soak, self.rng = soak, rng
        self.kind = rng.choices(["plain", "quick", "variables", "step"], [80, 10, 6, 1])[0]
        self.colour, self.other = (tuple(rng.randrange(256) for _ in range(3)) for _ in range(2))
        self.saved: int | None = None
        self.count: int | None = None
        self.view = "main"  # that was run in last
        # Variables stay in a process, so each view has a worker of its own: a kill may show up late.
        self.kills = dict.fromkeys(("main", "other"), soak.kills)
        box = soak.boxes[self.kind if self.kind in ("quick", "step") else "plain"]
        size = (rng.randrange(8, 90), rng.randrange(8, 90))
        persist = "variables" if self.kind == "variables" else "images"
        image = Image.new("RGB", size, self.colour)
        self.session: Session = box.session({"a.png": image}, seed=1, persist=persist)  # type: ignore[arg-type]
        self.views = 0

    def step(self) -> None:
        """One program; raises `AssertionError` for a wrong answer."""
        options = dict(count=60, pixel=12, save=6, saved=10, show=6, view=4, memory=0.5, flood=0.3, crash=0.3)
        if self.kind == "variables":
            options |= {"variable": 60, "move": 1}
        if self.kind == "quick":
            options |= {"hang": 2}
        what = self.rng.choices(list(options), list(options.values()))[0]
        begun = self.soak.kills
        try:
            getattr(self, f"_{what}")()
            self.soak.done[what] += 1
        except SandboxError:
            # Allowed if a process was killed since the last step of this session.
            assert self.may_be_hit(), "a SandboxError without a kill"
            self.soak.done["SandboxError"] += 1
            self.count = None
        # Not the present count: a kill between the reply and this line affects the next step only.
        self.kills[self.view] = begun

    def may_be_hit(self) -> bool:
        """Something was killed since the last step in this view, or is being killed: that takes two counts."""
        return self.soak.kills != self.kills[self.view] or self.soak.kills % 2 == 1

    def run(self, code: str, expected: str | None, stop: str = "ok", view: str = "main") -> Execution | None:
        """Run a program and check its result; `None` if it was ended for an allowed reason."""
        self.view = view
        execution = self.session.run(code, view=view)
        if execution.stop == stop and (expected is None or execution.stdout == expected):
            return execution
        self.count = None
        killed = execution.stop == "memory" and self.may_be_hit()
        slow = execution.stop == "timeout" and self.kind == "quick"
        assert killed or slow, f"{code!r}: {execution}; expected {stop} {expected!r}"
        self.soak.done["killed" if killed else "slow"] += 1
        return None

    def _count(self) -> None:
        number = self.rng.randrange(10**6)
        self.run(f"print({number} * 7)", f"{number * 7}\n")

    def _pixel(self) -> None:
        self.run("print(image.getpixel((3, 3)))", f"{self.colour}\n")

    def _save(self) -> None:
        number = self.rng.randrange(256)
        code = f"Image.new('L', (9, {number % 40 + 1}), {number}).save('kept.png')\nprint({number})"
        if self.run(code, f"{number}\n"):
            self.saved = number

    def _saved(self) -> None:
        if self.saved is None:
            self.run("Image.open('kept.png')", "", "error")
        else:
            self.run("print(Image.open('kept.png').getpixel((0, 0)))", f"{self.saved}\n")

    def _show(self) -> None:
        execution = self.run("show(image.crop((0, 0, 5, 4)).resize((50, 40)))", "")
        if execution:
            (shown,) = execution.images
            assert shown.size == (50, 40) and shown.getcolors() == [(2000, self.colour)]

    def _view(self) -> None:
        if not self.views:
            self.session.add_view("other", {"b.png": Image.new("RGB", (7, 5), self.other)})
            self.views = 1
        self.run("print(image.size, image.getpixel((1, 1)))", f"(7, 5) {self.other}\n", view="other")

    def _variable(self) -> None:
        if self.count is None:
            if self.run("n = 0\nprint(n)", "0\n"):
                self.count = 0
        elif self.run("n += 1\nprint(n)", f"{self.count + 1}\n"):
            self.count = (self.count or 0) + 1

    def _move(self) -> None:
        self.run("import cv2\nprint(cv2.imread('a.png').shape[2])", "3\n")

    def _memory(self) -> None:
        self.run("x = np.ones(1 << 28)", None, "memory")

    def _flood(self) -> None:
        self.run("for v in range(10 ** 6):\n    print(str(v) * 200)", None, "output")

    def _crash(self) -> None:
        self.run(_CRASH, "", "error")
        self.count = None

    def _hang(self) -> None:
        self.run("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "", "timeout")
        self.count = None


class Soak:
    """The steps of all threads."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kills = 0
        self.lock = threading.Lock()
        self.done: collections.Counter[str] = collections.Counter()
        self.boxes: dict[str, Sandbox] = {}

    def run_steps(self, steps: int, part: str) -> None:
        """Run steps in all threads; raises the error of a failing step."""
        limits = {"memory_mb": 128, "output_chars": 1000, "files_mb": 4}
        wrong: list[BaseException] = []

        def one(number: int) -> None:
            try:
                self._thread(steps // THREADS, random.Random(f"{self.seed} {part} {number}"))
            except BaseException as error:
                wrong.append(error)

        with ExitStack() as stack:
            for kind, wall_s in (("plain", 60.0), ("quick", 0.2), ("step", 60.0)):
                isolation = "step" if kind == "step" else "episode"
                box = Sandbox(Limits(wall_s=wall_s, **limits), isolation=isolation)  # type: ignore[arg-type]
                self.boxes[kind] = stack.enter_context(box)
            threads = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if wrong:
            raise wrong[0]

    def _thread(self, steps: int, rng: random.Random) -> None:
        slots: list[Slot] = []
        try:
            for _ in range(steps):
                chance = rng.random()
                if chance < 1 / 300:
                    self._kill(rng, "zygote" if chance < 1 / 6000 else "worker")
                while len(slots) < _SLOTS:
                    try:
                        slots.append(Slot(self, rng))
                    except SandboxError:
                        assert self.kills, "a SandboxError without a kill"
                        self.done["SandboxError"] += 1
                at = rng.randrange(_SLOTS)
                slots[at].step()
                if rng.random() < 1 / 80:
                    slots.pop(at).session.close()
        finally:
            for slot in slots:
                slot.session.close()

    def _kill(self, rng: random.Random, what: str) -> None:
        """Kill a zygote, or any worker: one that waits for its session, for a program, or is at work."""
        running = process._shared.get(rng.choice(["plain", "plain", "plain", "vision"]))  # type: ignore[call-overload]
        if running is None:
            return
        pid = running._process.pid
        if what == "worker":
            found = sorted(children(pid))
            if not found:
                return
            pid = rng.choice(found)
        with self.lock, contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # it forks no more
            victims = {pid, *children(pid)}
            self.done[f"kill {what}"] += 1
            # Counted before and after: the workers of a zygote take some time to die, and steps go on meanwhile.
            self.kills += 1
            try:
                os.kill(pid, signal.SIGKILL)  # unless its session was closed meanwhile, and it is gone
                deadline = time.monotonic() + 20
                while victims & {pid for pid, fields in processes().items() if fields[0] not in "ZX"}:
                    assert time.monotonic() < deadline, "a killed process lives on"
                    time.sleep(0.002)
            finally:
                self.kills += 1

    def measure(self) -> dict[str, Any]:
        """What is in use with every session closed, once the zygotes have nothing to do."""
        # A zygote that was killed last is started again, and so are those that wait for programs that name a library.
        for program in ("pass", "import cv2", "import scipy", "import pandas"):
            with Sandbox() as box, box.session({}) as session:
                session.run(program)
        found: dict[str, Any] = {"done": self.done, "steps": sum(self.done.values()), "zygotes": {}}
        for kind, zygote in process._shared.items():
            deadline, states = time.monotonic() + 20, ""
            while states != "S" * len(zygote._spares) and time.monotonic() < deadline:
                time.sleep(0.05)
                states = "".join(sorted(children(zygote._process.pid).values()))
            found["zygotes"][kind] = {"workers": states, "descriptors": descriptors(zygote._process.pid)}
        gc.collect()
        return found | {"resident_mb": resident_mb()}


def left() -> dict[str, Any]:
    """What this process holds while no zygote runs."""
    folder = os.environ.get("TMPDIR", "/tmp")
    return {"descriptors": descriptors(), "children": len(children(os.getpid())), "temporary": os.listdir(folder)}


def main(steps: int, seed: int) -> None:
    """Warm up with a tenth of the steps, then run them all."""
    soak = Soak(seed)
    report: dict[str, Any] = {"before": left()}
    for part, count in (("warm", max(200, steps // 10)), ("end", steps)):
        soak.run_steps(count, part)
        report[part] = json.loads(json.dumps(soak.measure()))
    process.shut_down()
    print(json.dumps(report | {"after": left()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
