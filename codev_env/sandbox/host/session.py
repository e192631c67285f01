"""One episode in the sandbox: its images, its files and its worker."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Literal

from PIL import Image

from codev_env.errors import NoRoom, SandboxError, ViewLost
from codev_env.sandbox.host import descriptors, memory, process, replies
from codev_env.sandbox.host.given import check_images, check_times, table
from codev_env.sandbox.host.handle import WorkerHandle, WorkerLost, cause_of
from codev_env.sandbox.wire import frames
from codev_env.sandbox.wire.limits import Limits
from codev_env.sandbox.wire.messages import SHARED_VIEWS, RunRequest, Setup, Views
from codev_env.types import Execution

MAIN = "main"
_GRACE_S = 0.05
_PAUSE_S = 0.2
_VIEW_ROOM = 8
_numbers = itertools.count()


class Session:
    """Runs the programs of one episode, one after the other. Made by `Sandbox.session`; a context manager.

    A session may be used from any thread, by one at a time; several sessions of one sandbox run side by side.
    """

    def __init__(
        self,
        images: Mapping[str, Image.Image],
        *,
        limits: Limits,
        pool: memory.InputPool,
        check_layers: Callable[[Any], None],
        seed: int,
        persist: Literal["images", "variables"],
        isolation: str,
        repairs: Collection[str],
        times: Sequence[float] = (),
    ) -> None:
        self._limits = limits
        self._check_layers = check_layers
        self._seed = seed
        self._persist = persist
        self._isolation = isolation
        self._repairs = sorted(repairs)
        # Each library makes forking slower, so a session gets workers that have it when a program first names it.
        self._kind: process.Kind = "plain"
        self._lock = threading.Lock()
        self._closed = False
        self._owner = os.getpid()
        self._counts: dict[tuple[str, int], int] = {}
        # By view, where variables stay: the programs that ran, and `None` where a worker was lost with its variables.
        self._past: dict[str, list[tuple[str, int] | None]] = {}
        plain = {name: memory.plain(image) for name, image in check_images(images).items()}
        self._times = check_times(times, len(plain))
        room = _VIEW_ROOM * sum(memory.room_for(image) for image in plain.values())
        self._workers: dict[str, WorkerHandle] = {}
        self._pool = pool
        self._shared: dict[str, memory.Inputs] = {}
        self._free_maps = SHARED_VIEWS if plain else 0
        with ExitStack() as undo:
            self._inputs = pool.take(list(plain.values()))
            undo.callback(pool.give_back, self._inputs)
            self._files: Views = {
                MAIN: {"given": table(plain, self._inputs.offsets, "inputs"), "saved": {}, "data": {}}
            }
            self._arena = memory.Arena((self._limits.files_mb << 20) + room)
            undo.callback(self._arena.close)
            self._spawn(MAIN)
            number = next(_numbers)
            descriptors.hold(number)
            undo.callback(descriptors.release, number)
            self._held = undo.pop_all()

    # Public

    @property
    def persist(self) -> Literal["images", "variables"]:
        """State that later runs find, as in `Sandbox.session`."""
        return self._persist

    def run(self, code: str, *, view: str = MAIN) -> Execution:
        """Run a program.

        Args:
            code: The program.
            view: The view to run it in; others are not touched.

        Returns:
            The text and the images of the program, or why it stopped. Failures of the program are reported here, never
            raised. Failures of the machine are never reported here: if the worker dies through no fault of the program,
            or in another view is killed or gets little processor time, the program runs again.

        Raises:
            ViewLost: It could not run in another view than `"main"`, twice, through no fault of its own.
            SandboxError: The session is closed, the view does not exist, or the sandbox itself cannot work: no worker
                can be started, or a worker died through no fault of the program for a second time, or together with
                the variables of earlier runs.
            TypeError: `code` is not text.
        """
        if not isinstance(code, str):
            raise TypeError(f"code must be text, not {type(code).__name__}.")
        self._check_owner()
        with self._lock:
            self._check_open()
            if view not in self._files:
                raise SandboxError(f"there is no view {view!r}. Views: {', '.join(self._files)}; see add_view.")
            if len(code) > self._limits.code_chars:
                message = f"the code has {len(code)} characters; {self._limits.code_chars} are allowed."
                return Execution(error=message, stop="refused")
            execution = self._run(code, view)
            if self._kind != "plain":
                process.preload()  # the next program may need the other libraries too
            if self._isolation == "step":
                self._replace(view)
            return execution

    def add_view(
        self, name: str, images: Mapping[str, Image.Image], *, replace: bool = False, shared: bool = False
    ) -> None:
        """Add a namespace with its own images and files. Programs that run in it leave no trace in other views.

        The k-th run of a program in a view draws the same random numbers as its k-th run in `"main"`.

        Args:
            name: A new name.
            images: The view's input images by file name.
            replace: First delete the view of that name, if it exists, with its files and variables.
            shared: Other sessions use the same images, which must not change: where there is room, they are in memory
                once for all of them.

        Raises:
            NoRoom: There is no room left for the images.
            SandboxError: The name is in use, or it is that of the main view.
        """
        if not isinstance(name, str) or not name:
            raise SandboxError(f"view name {name!r}: text is needed.")
        self._check_owner()
        with self._lock:
            self._check_open()
            if name in self._files and (not replace or name == MAIN):
                raise SandboxError(f"the view {name!r} exists already; choose another name.")
            plain = {key: memory.plain(image) for key, image in check_images(images).items()}
            self._forget(name)
            if shared and self._share(name, list(plain.values())):
                given = table(plain, self._shared[name].offsets, "shared")
                self._files[name] = {"given": given, "saved": {}, "data": {}}
                return
            offsets = []
            for key, image in plain.items():
                need = memory.room_for(image)
                start = next((start for start, end in self._arena.gaps() if start + need <= end), None)
                if start is None:
                    self._arena.forget(name)
                    raise NoRoom(f"no room for the view {name!r}: raise limits.files_mb={self._limits.files_mb}.")
                memory.write(self._arena.fd, start, image)
                self._arena.keep(name, f"{key} as given", start, start + need)
                offsets.append(start)
            self._files[name] = {"given": table(plain, offsets, "arena"), "saved": {}, "data": {}}

    def _share(self, view: str, images: list[Image.Image]) -> bool:
        """Take the images of a view from the pool, unless a worker has no address space left for them."""
        size = sum(memory.room_for(image) for image in images)
        if self._free_maps == 0 or size > self._inputs.size:
            return False
        self._free_maps -= 1
        inputs = self._shared[view] = self._pool.take(images, frozen=True)
        self._held.callback(self._pool.give_back, inputs)  # not earlier: workers keep what they mapped
        return True

    def _forget(self, view: str) -> None:
        """Delete a view; its name may be used again."""
        self._arena.forget(view)
        self._shared.pop(view, None)
        self._files.pop(view, None)
        self._past.pop(view, None)
        if self._persist == "variables":
            self._drop(view)
        else:
            for worker in self._workers.values():
                worker.views.discard(view)
        self._counts = {key: count for key, count in self._counts.items() if key[0] != view}

    def close(self) -> None:
        """End the worker and free the memory; a second call, or one in a process forked since, does nothing."""
        if os.getpid() != self._owner:
            return  # the lock may be held by a thread that was not forked
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._drop_all()
            self._held.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __del__(self, _ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter exits, modules that `close` needs may be gone, and the worker ends with its zygote.
        if not _ending() and not getattr(self, "_closed", True) and hasattr(self, "_held"):
            self.close()

    # The worker

    def _check_owner(self) -> None:
        # Two processes on one socket would receive each other's replies.
        if os.getpid() != self._owner:
            raise SandboxError("this session was opened by another process; open one in the process that uses it.")

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxError("this session is closed; open a new one with Sandbox.session.")

    @property
    def _worker(self) -> WorkerHandle | None:
        """The worker of the main view."""
        return self._workers.get(self._place(MAIN))

    def _place(self, view: str) -> str:
        """The key of the worker that runs a view: variables stay in a process, so each view has one of its own."""
        return view if self._persist == "variables" else MAIN

    def _spawn(self, view: str) -> WorkerHandle:
        setup: Setup = {
            "limits": self._limits.to_json(),
            "persist": self._persist,
            "repairs": self._repairs,
            "inputs_bytes": self._inputs.size,
            "times": self._times,
        }
        worker = WorkerHandle(self._kind, setup, self._inputs.fd, self._arena.fd, self._check_layers)
        self._workers[self._place(view)] = worker
        return worker

    def _drop(self, view: str) -> None:
        worker = self._workers.pop(self._place(view), None)
        if worker is not None:
            worker.kill()

    def _drop_all(self) -> None:
        while self._workers:
            self._workers.popitem()[1].kill()

    def _replace(self, view: str) -> None:
        """Kill the worker of a view and have a new one forked, with the same files, while the trainer continues."""
        self._drop(view)
        with suppress(SandboxError):  # the finished run must not be lost: the next one tries again, and reports it
            self._spawn(view)

    def _run(self, code: str, view: str) -> Execution:
        """Run on the view's worker, or on a second one if the first is lost through no fault of the program."""
        kind = process.kind_for(code, self._kind)
        if kind != self._kind:
            self._kind = kind
            self._drop_all()
        seed = self._seed_of(code, view)
        for last in (False, True):
            worker = self._workers.get(self._place(view))
            try:
                return self._attempt(worker or self._successor(view), code, seed, view)
            except WorkerLost as lost:
                # In other views the programs that left variables run again.
                forgotten = view == MAIN and worker is not None and self._forget_variables(view)
                self._drop(view)
                if last or forgotten:
                    again = "The variables of earlier runs are gone with it" if forgotten else "It was tried twice"
                    raise (SandboxError if view == MAIN else ViewLost)(
                        f"{lost}; the program is not to blame. {again}. {descriptors.SHORT_OF_MEMORY}; "
                        "then start the episode again."
                    ) from lost
            except BaseException:  # Ctrl-C too: the program still runs, and would answer for the next one
                self._drop(view)
                raise
            time.sleep(_PAUSE_S)  # a shortage of processes may be over by then
        raise AssertionError("the second attempt returns or raises")

    def _forget_variables(self, view: str) -> bool:
        """Note that the worker of a view is lost; return whether it had variables."""
        past = self._past.get(view)
        if not past or past[-1] is None:
            return False
        past.append(None)
        return True

    def _successor(self, view: str) -> WorkerHandle:
        """A new worker with the variables of earlier runs in a view: their programs run in it again, and do the same.

        Raises:
            SandboxError: One that ended by itself then did not do so now.
        """
        worker = self._spawn(view)
        past = self._past.get(view)
        if not past or past[-1] is None:
            return worker
        self._past[view] = []
        self._arena.forget(view, self._files[view]["saved"])
        self._files[view] = {"given": self._files[view]["given"], "saved": {}, "data": {}}
        try:
            for program in past:
                if program is None:
                    self._forget_variables(view)
                    self._drop(view)
                    worker = self._spawn(view)
                    continue
                again = self._attempt(worker, *program, view, True)
                if self._past[view][-1] is None:
                    past = self._past[view]
                    why = "the session needed another process, where an earlier program failed"
                    raise SandboxError(f"{why}: {again.error} Start the episode again.")
        except BaseException:
            self._past[view] = past
            raise
        return worker

    def _attempt(self, worker: WorkerHandle, code: str, seed: int, view: str, patient: bool = False) -> Execution:
        worker.wait_ready()
        started = time.monotonic()
        try:
            gaps = self._arena.gaps()
            views = {} if view in worker.views else {view: self._files[view]}
            request: RunRequest = {"code": code, "view": view, "seed": seed, "gaps": gaps, "views": views}
            has_run = worker.has_run
            shared = self._shared[view].fd if views and view in self._shared else None
            message = worker.ask(request, self._limits.wall_s + _GRACE_S, shared, patient or view != MAIN)
            if has_run and self._persist == "images" and message.get("fresh") is True:
                self._drop(view)
                return self._attempt(self._spawn(view), code, seed, view, patient)
            worker.views.add(view)
            reply = replies.check(message, self._limits, gaps, len(self._files[view]["given"]))
            replies.check_files(reply, self._files[view], self._limits)
            images = tuple(self._read(stored) for stored in reply.images)
        except frames.FrameTimeout:
            if view != MAIN and worker.was_starved():
                raise WorkerLost("a program got too little processor time") from None
            why = f"the program took longer than {self._limits.wall_s:g} s and was ended"
            return self._lost(view, "timeout", why, started)
        except frames.FrameClosed:
            stop, why = cause_of(worker.death())
            if view != MAIN and stop == "memory":
                raise WorkerLost("a sandbox worker was killed") from None
            return self._lost(view, stop, why, started)
        except (frames.FrameError, replies.BadReply):
            return self._lost(view, "error", "the program damaged its own process, which was ended", started)
        if self._persist == "variables":
            self._past.setdefault(view, []).append((code, seed))
        for stored in reply.files:
            self._files[view]["saved"][stored.name] = stored.entry()
            self._arena.keep(view, stored.name, stored.offset, stored.offset + stored.bytes)
            self._files[view]["data"].pop(stored.name, None)
        self._files[view]["data"].update(reply.data)
        if reply.spent and self._persist == "images":
            self._replace(view)
        return Execution(
            stdout=reply.stdout,
            images=images,
            error=reply.error,
            stop=reply.stop,
            wall_s=time.monotonic() - started,
            names=tuple(stored.name for stored in reply.images),
            repairs=reply.repairs,
            reads=reply.reads,
            cuts=reply.cuts,
            saves=tuple(dict.fromkeys([*(file.name for file in reply.files), *(name for name, _ in reply.data)])),
        )

    def _lost(self, view: str, stop: Any, why: str, started: float) -> Execution:
        """Replace a worker that is gone: the new one takes over the files saved by earlier runs."""
        wall_s = time.monotonic() - started
        self._forget_variables(view)
        self._replace(view)
        gone = "; variables are gone" if self._persist == "variables" else ""
        kept = f"Files saved by earlier steps are still there{gone}"
        return Execution(error=f"{why}. {kept}.", stop=stop, wall_s=wall_s, reads=replies.saved(self._files[view]))

    def _seed_of(self, code: str, view: str) -> int:
        """The seed of a run, which depends on the program and on how often it ran in this view, and on nothing else."""
        digest = zlib.crc32(code.encode("utf-8", "surrogatepass"))
        count = self._counts[view, digest] = self._counts.get((view, digest), -1) + 1
        return (self._seed * 1_000_003 + digest * 31 + count) % (1 << 62)

    def _read(self, stored: replies.Stored) -> Image.Image:
        try:
            return self._arena.read(stored.offset, "RGB", (stored.width, stored.height))
        except EOFError as error:
            raise replies.BadReply("arena") from error
