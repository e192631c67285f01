"""The process that runs programs: one per episode, forked from the zygote, locked down before it receives any code."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import functools
import gc
import mmap
import os
import random
import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

from PIL import Image

from codev_env.sandbox.language import state
from codev_env.sandbox.language.context import Context, File, ShownImage, View
from codev_env.sandbox.language.facades import files, run
from codev_env.sandbox.language.facades.std import make_import
from codev_env.sandbox.language.facades.video import Video
from codev_env.sandbox.language.folders import WORKING_FOLDER
from codev_env.sandbox.language.imaging import ResultError
from codev_env.sandbox.language.messages import NO_MEMORY, explain, without_places
from codev_env.sandbox.language.policy import Program, compile_program, parse
from codev_env.sandbox.language.program_builtins import ProgramExit, make_builtins
from codev_env.sandbox.language.repairs import IMPORTS, READY, parse_repaired
from codev_env.sandbox.wire import frames, pixels
from codev_env.sandbox.wire.limits import Limits
from codev_env.sandbox.wire.messages import (
    SHARED_VIEWS,
    FileEntry,
    FreshRequest,
    RunReply,
    RunRequest,
    Setup,
    ViewFiles,
)
from codev_env.sandbox.worker import kernel, libraries, traces

_RESULT_NAMES = ("result", "output")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h

_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)
_REHEARSAL_SIDE = 64
_REHEARSAL_PIXELS = bytes(4 * _REHEARSAL_SIDE * _REHEARSAL_SIDE)
_REHEARSALS = 20

_REHEARSAL = """
w, h = image.size
box = (w // 8, h // 8, w // 2, h // 2)
areas = [w * h // scale for scale in (1, 2, 4)]
crop = image.crop(box).resize((w, h))
print(f"crop {box}, areas {areas}", np.array(crop).mean())
crop.save("crop.png")
print("crop.png")
"""


def prepare(kind: str) -> dict[str, str]:
    """In the zygote: load everything that programs may need, and use it once.

    Args:
        kind: The kind of zygote, see `host.process.Kind`.

    Returns:
        By name: why a library was left out, because the guards do not fit its version.
    """
    left_out = libraries.load(kind)
    _keep_memory()
    gc.collect()
    gc.freeze()  # each rehearsal collects garbage twice: its own, without a look at all libraries
    # Python specializes code that runs often; each worker would have to copy the pages and do so again.
    for _ in range(_REHEARSALS):
        rehearse()
    libraries.settle()
    state.set_current(None)
    kernel.prepare()
    return left_out


def _keep_memory() -> None:
    """Let this process and its workers keep freed memory: new pages cost more time than the crop that fills them."""
    with contextlib.suppress(AttributeError, OSError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)


def serve(sock: socket.socket, zygote_pid: int) -> None:
    """Lock this process down, wait for a session and run its programs until the socket closes.

    Args:
        sock: The socket to the host, which first sends a `Setup` and two descriptors of shared memory: of the input
            images (read-only) and of the images that programs save and show.
        zygote_pid: Process id of the zygote.
    """
    pid = os.getpid()
    gc.disable()  # but within runs: no finalizer of a program runs at another time
    layers = kernel.lock_down(zygote_pid)
    try:
        message, (inputs_fd, arena_fd) = frames.receive_with_fds(sock, 2)
    except frames.FrameClosed:
        return  # no session needed this worker
    setup = cast(Setup, message)
    limits = Limits(**setup["limits"])
    inputs = mmap.mmap(inputs_fd, setup["inputs_bytes"], flags=mmap.MAP_SHARED | _POPULATE, prot=mmap.PROT_READ)
    arena = mmap.mmap(arena_fd, 0)
    os.close(inputs_fd)
    os.close(arena_fd)
    # Address space that the limit on memory counts, so that the images of shared views do not.
    reserved = [mmap.mmap(-1, len(inputs), flags=_PRIVATE, prot=0) for _ in range(SHARED_VIEWS)]
    layers.update(kernel.close_up(limits))
    worker = Worker(limits, setup["persist"], setup["repairs"], {"inputs": inputs, "arena": arena}, setup["times"])
    frames.send(sock, {"layers": layers, "pid": pid})
    while True:
        try:
            message, fds = frames.receive_with_fds(sock, 1)
        except frames.FrameClosed:
            return
        request = cast(RunRequest, message)
        for name, known in request["views"].items():
            if fds:
                reserved.pop().close()
                worker.memory["shared"] = _mapped(fds.pop(), known)
            worker.add_view(name, known)
        frames.send(sock, {**worker.answer(request), "number": message["number"]})


def _mapped(fd: int, known: ViewFiles) -> memoryview:
    """Map the images given in a view, for reading and for good, and close their descriptor."""
    ends = [
        file["offset"] + pixels.stored_bytes(file["mode"], file["width"], file["height"])
        for file in known["given"].values()
    ]
    # Python's own `mmap` makes a second descriptor, which the filter of system calls refuses.
    address = kernel.map_shared(fd, max(ends))
    os.close(fd)
    return memoryview((ctypes.c_char * max(ends)).from_address(address)).cast("B").toreadonly()


def rehearse() -> None:
    """Run a typical program on an image of this process's own, so that Python specializes the code it needs."""
    worker = Worker(
        Limits(), "images", (), {"inputs": _REHEARSAL_PIXELS, "arena": bytearray(2 * len(_REHEARSAL_PIXELS))}
    )
    side = _REHEARSAL_SIDE
    file: FileEntry = {"where": "inputs", "offset": 0, "width": side, "height": side, "mode": "RGB"}
    worker.add_view("main", {"given": {"input.png": file}, "saved": {}, "data": {}})
    gaps = [(0, 2 * len(_REHEARSAL_PIXELS))]
    frames.encode(worker.run({"code": _REHEARSAL, "view": "main", "seed": 0, "gaps": gaps, "views": {}}))


class Worker:
    """Runs programs one after the other in views of their own."""

    def __init__(
        self,
        limits: Limits,
        persist: str,
        repairs: Sequence[str],
        mapped: dict[str, Any],
        times: Sequence[float] = (),
    ) -> None:
        self.limits = limits
        self.times = times
        self.persist = persist
        self.repairs = frozenset(repairs)
        self.memory = mapped
        self.views: dict[str, View] = {}
        self.builtins = _builtins()
        self._compiled: tuple[str, Program, list[str]] | None = None
        self._has_run = False

    def add_view(self, name: str, files: ViewFiles) -> None:
        """Make a view of files in shared memory."""
        given = {key: self._stored(file, pixels.image_over) for key, file in files["given"].items()}
        # The space of a saved file is used again.
        saved = {key: self._stored(file, pixels.image_from) for key, file in files["saved"].items()}
        data = {key: base64.b64decode(text) for key, text in files["data"].items()}
        kept = {key: file for key, file in {**given, **saved}.items() if key not in data}
        self.views[name] = View(files=kept, data=data, given=given)

    def _stored(self, file: FileEntry, read: Callable[..., Image.Image]) -> File:
        mode, start, size = file["mode"], file["offset"], (file["width"], file["height"])
        memory = memoryview(self.memory[file["where"]])[start : start + pixels.stored_bytes(mode, *size)]
        return File(lambda: read(memory, mode, size), mode, size)

    def answer(self, request: RunRequest) -> RunReply | FreshRequest:
        """Run one program, unless it could notice an earlier one, in memory that it has not written for example."""
        if self.persist == "images" and self._has_run and self._may_leave_trace(request["code"]):
            return {"fresh": True}
        self._has_run = True
        return self.run(request)

    def _may_leave_trace(self, source: str) -> bool:
        kernel.allow_cpu(self.limits.cpu_s)
        try:
            return traces.may_leave_one(self._compile(source)[0])
        except BaseException:  # it does not run: the reply says why
            return False

    def run(self, request: RunRequest) -> RunReply:
        """Run one program.

        Args:
            request: The program, its view and its seed, and the free parts of the arena.

        Returns:
            The outcome, which the host checks before it trusts it.
        """
        kernel.allow_cpu(self.limits.cpu_s)
        view = self.views[request["view"]]
        context = Context(view, self.limits, repair_paths="paths" in self.repairs)
        if self.persist == "variables":
            context.names()  # any variable may stem from any file
        state.set_current(context)
        stop, error, spent = self._perform(request, view, context)
        images: list[list[Any]] = []
        files: list[list[Any]] = []
        try:
            text, shown = context.finish()
            images, files = self._store(view, shown, [list(gap) for gap in request["gaps"]])
        except MemoryError:
            stop, error, text = "memory", NO_MEMORY, ""
        except ResultError as problem:
            stop, error, spent = "result", str(problem), True  # the host does not know the files
        if stop == "ok" and context.problems:
            stop, error = "result", "\n".join(dict.fromkeys(context.problems))
        elif stop == "ok" and context.cut:
            stop = "output"
            error = f"more than {self.limits.output_chars} characters were printed, and the rest is cut: print less."
        if error is not None:
            error = without_places(error, request["code"])[: self.limits.error_chars]
        state.set_current(None)
        reply: RunReply = {
            "stop": stop,
            "error": error,
            "stdout": text,
            "repairs": context.repairs,
            "images": images,
            "files": files,
            "data": [[name, base64.b64encode(view.data[name]).decode()] for name in sorted(view.written)],
            "reads": sorted(context.reads),
            "cuts": context.cuts.to_json(),
            "spent": spent or stop == "memory",
        }
        view.written.clear()
        return reply

    def _perform(self, request: RunRequest, view: View, context: Context) -> tuple[str, str | None, bool]:
        """Run a program, and free what it made: from then on, none of its code can run.

        Returns:
            `Execution.stop`, the error, and whether the process must not serve another run.
        """
        stop, error, spent = "ok", None, False
        source, stays = request["code"], self.persist == "variables"
        names = view.namespace if stays else {}
        survivors = None
        gc.enable()
        try:
            program, repairs = self._compile(source)
            for repair in repairs:
                context.repair(repair)
            self._seed(request["seed"])
            if not stays:
                survivors, spent = traces.Survivors(program.code), traces.may_leave_one(program)
            context.take(self._execute(program, names, view, context))
        except BaseException as problem:  # an exception of a program is a result, and never ends the worker
            stop, error = explain(problem, source)
        try:
            context.close_files()
        except OSError as problem:
            stop, error = explain(problem, source)
        try:
            spent = traces.clear_away(None if stays else names, survivors) or spent
        except BaseException as problem:  # `OutputFull`, in a finalizer
            stop, error = explain(problem, source)
        gc.disable()
        return stop, error, spent

    def _compile(self, source: str) -> tuple[Program, list[str]]:
        if self._compiled is None or self._compiled[0] != source:
            tree, repairs = parse_repaired(source) if "indentation" in self.repairs else (parse(source), [])
            self._compiled = (source, compile_program(tree, self.limits), repairs)
        return self._compiled[1:]

    def _seed(self, seed: int) -> None:
        random.seed(seed)
        libraries.seed(seed)

    def _execute(self, program: Program, names: dict[str, Any], view: View, context: Context) -> Any:
        names["__builtins__"] = self.builtins
        names["__name__"] = "__main__"
        names["__file__"] = f"{WORKING_FOLDER}/program.py"
        self._provide(names, program, view, context)
        try:
            exec(program.code, names)
        except ProgramExit:
            pass  # the program called `exit()`
        given = [names.get(name) for name in _RESULT_NAMES if name in program.binds]
        return next((value for value in given if value is not None), None)

    def _provide(self, names: dict[str, Any], program: Program, view: View, context: Context) -> None:
        """Define the ready names that a program reads; making images that it does not use would cost time."""
        fresh = (program.reads | program.binds) - names.keys()
        for name in sorted(fresh & IMPORTS.keys()):
            module = libraries.MODULES.get(IMPORTS[name])
            missing = name not in READY
            if module is None or (missing and (name in program.binds or "imports" not in self.repairs)):
                continue
            names[name] = module
            if missing and name in program.reads:
                context.repair(f"module {IMPORTS[name]} imported as {name}")
        if not view.given:
            return
        first = next(iter(view.given))
        if fresh & {"image", "img", "draw"}:
            image = names["image"] = names["img"] = view.given[first].opened(first)
            if "draw" in fresh:
                names["draw"] = libraries.MODULES["PIL.ImageDraw"].Draw(image)
        for name in fresh & ({"images", "frames"} if self.times else {"images"}):
            names[name] = [file.opened(key) for key, file in view.given.items()]
        if "video" in fresh and self.times:
            names["video"] = Video([file.opened(key) for key, file in view.given.items()], self.times)
        for name in fresh & {"image_path", "image_filename"}:
            names[name] = first

    def _store(
        self, view: View, shown: list[ShownImage], gaps: list[list[int]]
    ) -> tuple[list[list[Any]], list[list[Any]]]:
        """Write new files and shown images to shared memory; return the images and files of the reply."""
        arena = self.memory["arena"]
        placed: dict[int, int] = {}

        def place(image: Image.Image) -> int:
            if id(image) not in placed:
                count = pixels.stored_bytes(image.mode, *image.size)
                gap = next((gap for gap in gaps if gap[0] + count <= gap[1]), None)
                if gap is None:
                    raise ResultError(f"more than {self.limits.files_mb} MiB of images were saved or shown")
                placed[id(image)], gap[0] = gap[0], gap[0] + count
                pixels.write(image, arena, placed[id(image)])
            return placed[id(image)]

        files = []
        for name, file in view.files.items():
            if file.changed:
                at = place(file.pixels())
                files.append([name, at, *file.size, file.mode])
        images = [[place(one.image), *one.image.size, one.name] for one in shown]
        for file in view.files.values():
            file.changed, file.source = False, None
        return images, files


@functools.cache
def _builtins() -> dict[str, Any]:
    """The builtins of all programs, made in the zygote; a worker serves one session, so no two sessions share them."""
    import_ = make_import(libraries.MODULES, libraries.ELSEWHERE)
    return make_builtins(import_, _print, _show, open=files.open_file, **run.builtins())


def _print(*values: Any, **how: Any) -> None:
    state.current().print(*values, **how)


_show = run.show
