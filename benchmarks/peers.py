"""The ways to run a model's program that `sandbox.py` compares: each sets itself up and yields a step function.

A step includes different work: `exec`, RestrictedPython and smolagents run in this process on a loaded image, without
any isolation, and return the variable `crop`. `fork` copies this small process for each step and returns the pixels in
shared memory; a real trainer is larger. Jupyter has one kernel that keeps the image and displays the crop as PNG. A
fresh process starts Python, reads the image and saves the crop, both as BMP, which is fastest.
"""

from __future__ import annotations

import base64
import io
import math
import mmap
import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance

from codev_env.sandbox import Sandbox, Session

LOOK = """
# Look closer at one part of the image.
look = {number}
w, h = image.size
cx, cy = int(w * 0.3) + look % 50, int(h * 0.6)
bw, bh = min(800, w), min(600, h)
x1 = max(0, min(w - bw, cx - bw // 2))
y1 = max(0, min(h - bh, cy - bh // 2))
box = (x1, y1, x1 + bw, y1 + bh)
areas = []
for scale in (1, 2, 4):
    areas.append((bw // scale) * (bh // scale))
crop = image.crop(box)
print(f"crop {{box}}, areas {{areas}}")
"""
SAVE = 'crop.save("crop.png")\nprint("crop.png")\n'
Step = Callable[[int], Image.Image]
kernel_memory: dict[str, Callable[[], dict[str, float]]] = {}
"""Reports the memory of the running Jupyter kernels."""


def run_here(code: Any, image: Image.Image, **more: Any) -> Image.Image:
    """Execute compiled code in this process, with the names that programs expect."""
    text = io.StringIO()
    names = {
        "image": image, "np": np, "math": math, "Image": Image, "ImageDraw": ImageDraw, "ImageEnhance": ImageEnhance,
        "print": lambda *values: print(*values, file=text), **more,
    }  # fmt: skip
    exec(code, names)
    return names["crop"]


@contextmanager
def plain_exec(image: Image.Image) -> Iterator[Step]:
    yield lambda number: run_here(compile(LOOK.format(number=number), "<code>", "exec"), image)


@contextmanager
def sandbox(image: Image.Image, view: str = "main") -> Iterator[Step]:
    with Sandbox() as box, box.session({"input.png": image}) as session:
        if view != "main":
            session.add_view(view, {"input.png": image})
        yield lambda number: crop_of(session, number, view)


def crop_of(session: Session, number: int, view: str = "main") -> Image.Image:
    execution = session.run(LOOK.format(number=number) + SAVE, view=view)
    if execution.stop != "ok":
        raise RuntimeError(f"the sandbox answered {execution.stop}: {execution.error}")
    return execution.images[0]


@contextmanager
def restricted_python(image: Image.Image) -> Iterator[Step]:
    from RestrictedPython import Guards, PrintCollector, compile_restricted

    guards = {
        "__builtins__": {**Guards.safe_builtins, "min": min, "max": max},
        "_getattr_": Guards.safer_getattr,
        "_getiter_": iter,
        "_iter_unpack_sequence_": Guards.guarded_iter_unpack_sequence,
        "_unpack_sequence_": Guards.guarded_unpack_sequence,
        "_print_": PrintCollector,
    }
    # `printed` is read as an agent would; RestrictedPython warns if nothing reads it.
    yield lambda number: run_here(
        compile_restricted(LOOK.format(number=number) + "text = printed\n", "<code>", "exec"), image, **guards
    )


@contextmanager
def smolagents(image: Image.Image) -> Iterator[Step]:
    from smolagents.local_python_executor import LocalPythonExecutor

    executor = LocalPythonExecutor(additional_authorized_imports=["PIL.*", "numpy.*"])
    executor.send_tools({})
    executor.send_variables({"image": image})

    def step(number: int) -> Image.Image:
        executor(LOOK.format(number=number))
        return executor.state["crop"]

    yield step


@contextmanager
def fork_per_step(image: Image.Image) -> Iterator[Step]:
    context = multiprocessing.get_context("fork")
    shared = mmap.mmap(-1, 800 * 600 * 3)
    width, height = min(800, image.width), min(600, image.height)

    def child(number: int) -> None:
        crop = run_here(compile(LOOK.format(number=number), "<code>", "exec"), image)
        shared[: width * height * 3] = crop.tobytes()

    def step(number: int) -> Image.Image:
        process = context.Process(target=child, args=(number,))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"the forked process ended with {process.exitcode}")
        return Image.frombytes("RGB", (width, height), shared[: width * height * 3])

    yield step
    shared.close()


@contextmanager
def jupyter(image: Image.Image, picture: bool = True) -> Iterator[Step]:
    import ipykernel  # noqa: F401  (the kernel's own process needs it)
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(stderr=subprocess.DEVNULL)
    kernel_memory["Jupyter kernel"] = lambda: memory_of(manager.provisioner.pid)
    shown: list[str] = []

    def output(message: dict[str, Any]) -> None:
        if message["msg_type"] == "display_data":
            shown.append(message["content"]["data"]["image/png"])
        elif message["msg_type"] == "error":
            raise RuntimeError(message["content"]["evalue"])

    def ask(code: str) -> None:
        client.execute_interactive(code, store_history=False, output_hook=output, timeout=60)

    def step(number: int) -> Image.Image:
        ask(LOOK.format(number=number) + ("display(crop)" if picture else ""))
        if not picture:
            return Image.new("RGB", (1, 1))
        crop = Image.open(io.BytesIO(base64.b64decode(shown.pop())))
        crop.load()
        return crop

    try:
        with tempfile.NamedTemporaryFile(suffix=".bmp") as file:
            image.save(file.name)
            ask(f"from PIL import Image\nimport numpy as np\nimage = Image.open({file.name!r})\nimage.load()")
        yield step
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@contextmanager
def fresh_process(image: Image.Image) -> Iterator[Step]:
    with tempfile.TemporaryDirectory() as folder:
        image.save(f"{folder}/input.bmp")
        head = "import numpy as np\nfrom PIL import Image\nimage = Image.open('input.bmp')\n"

        def step(number: int) -> Image.Image:
            code = head + LOOK.format(number=number) + "crop.save('crop.bmp')"
            subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
            with Image.open(f"{folder}/crop.bmp") as crop:
                crop.load()
            return crop

        yield step


def memory_of(pid: int) -> dict[str, float]:
    """MiB by kind: `Pss` (shared pages count in part), of it `Pss_Shmem` (images), and `Private_Dirty`."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {key: round(sizes[key], 1) for key in ("Pss", "Pss_Shmem", "Private_Dirty") if key in sizes}


EXEC = "in-process exec"
TEXT_ONLY = "Jupyter kernel, text only"
# By name: how to set it up, what it needs, and how many rounds it sits out for each it takes part in.
CONTENDERS: dict[str, tuple[Callable[[Image.Image], Any], str, int]] = {
    EXEC: (plain_exec, "", 0),
    "sandbox, a step": (sandbox, "", 0),
    "sandbox, a step in a view": (lambda image: sandbox(image, "probe"), "", 0),
    "RestrictedPython in process": (restricted_python, "RestrictedPython", 0),
    "smolagents LocalPythonExecutor": (smolagents, "smolagents", 0),
    "fork per step": (fork_per_step, "", 1),
    TEXT_ONLY: (lambda image: jupyter(image, picture=False), "jupyter_client ipykernel", 1),
    "Jupyter kernel, crop as PNG": (jupyter, "jupyter_client ipykernel", 3),
    "fresh python process": (fresh_process, "", 5),
}
