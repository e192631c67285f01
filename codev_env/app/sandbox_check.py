"""Checks of the sandbox: the layers in force, and the time that sessions and programs take."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from codev_env.app.check import Check, Status
from codev_env.errors import SandboxError

if TYPE_CHECKING:
    from codev_env.sandbox import Sandbox

CONSEQUENCE = {
    "process": "a program could outlive the trainer, or act on other processes",
    "rlimits": "a program can take all memory, processors and processes of this machine",
    "landlock": "a program that gets past the language layer can read public files, and on kernels without seccomp too "
    "use the network",
    "seccomp": "a program that gets past the language layer can make every system call that its user may make",
    "user": "workers run as your user: Landlock (kernel 6.12 or newer) or seccomp keeps them from your other processes",
}
"""Layer of the sandbox -> the consequence if it is off."""

RUNS = 20
_WEAKER = (
    "run where those layers are allowed. Sandbox(allow_weaker=True) works here, at the price named above: only for "
    "models you trust, on a machine with nothing to lose"
)


def sandbox() -> Iterator[Check]:
    """The layers in force, and the time that sessions and programs take."""
    from codev_env.sandbox import Limits, Sandbox

    limits = Limits(wall_s=10.0, memory_mb=256, files_mb=32)
    with (
        warnings.catch_warnings(),
        Sandbox(limits) as box,
        Sandbox(limits, allow_weaker=True) as weaker,
    ):
        warnings.simplefilter("ignore", RuntimeWarning)  # a layer that is off gets its line here
        refused = ""
        started = time.perf_counter()
        try:
            layers = box.describe()
        except SandboxError as error:
            refused = str(error)
        first_s = time.perf_counter() - started
        if refused:
            try:
                layers = weaker.describe()
            except SandboxError:
                advice = "fix this first; no program of a model can run without it"
                yield Check("sandbox", "trial run", "fail", refused, advice)
                return
        yield from _layers(layers)
        yield Check("sandbox", "trial run", "fail", refused, _WEAKER) if refused else _trial(box, first_s)


def _layers(layers: dict[str, str]) -> Iterator[Check]:
    from codev_env.sandbox import REQUIRED_LAYERS

    kernel_layers_on = all(layers.get(name) == "on" for name in ("landlock", "seccomp"))
    for name, state in layers.items():
        status: Status = "ok"
        if state != "on" and name in REQUIRED_LAYERS:
            status = "fail"
        elif state != "on" and not (name == "user" and kernel_layers_on):
            status = "warn"
        advice = ""
        if status != "ok":
            advice = f"{CONSEQUENCE.get(name, 'one layer of defence less')}; see docs/sandbox.md"
        yield Check("sandbox", name, status, state, advice)


def _trial(box: Sandbox, first_s: float) -> Check:
    """Start sessions and run small programs, each a new one."""
    from PIL import Image

    image = Image.new("RGB", (640, 480), "red")
    starts, steps = [], []
    for _ in range(5):
        started = time.perf_counter()
        with box.session({"input.png": image}) as session:
            session.run("print(image.size)")
            starts.append(time.perf_counter() - started)
    with box.session({"input.png": image}) as session:
        for number in range(RUNS):
            started = time.perf_counter()
            execution = session.run(f"show(image.crop(({number}, 0, {number} + 64, 64)))\nprint({number})")
            steps.append(time.perf_counter() - started)
            right = len(execution.images) == 1 and execution.images[0].getpixel((0, 0)) == (255, 0, 0)
            if execution.stop != "ok" or execution.stdout != f"{number}\n" or not right:
                seen = f"a crop went wrong ({execution.stop}): {execution.error or execution.stdout!r}"
                advice = "please report this with the versions above"
                return Check("sandbox", "trial run", "fail", seen, advice)
    detail = (
        f"median step {1000 * statistics.median(steps):.1f} ms, "
        f"episode start with a first step {1000 * statistics.median(starts):.1f} ms, "
        f"very first start {1000 * first_s:.0f} ms"
    )
    return Check("sandbox", "trial run", "ok", detail)
