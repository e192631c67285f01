"""The sandbox, which opens sessions."""

from __future__ import annotations

import operator
import threading
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from PIL import Image

from codev_env.errors import ConfigError, SandboxError, unknown
from codev_env.sandbox.host import memory, process
from codev_env.sandbox.host.session import Session
from codev_env.sandbox.wire.limits import REPAIRS, Limits

REQUIRED_LAYERS = ("process", "rlimits")
"""Layers without which a sandbox refuses to work unless `allow_weaker=True` is passed."""

_PRELOAD_AFTER_S = 60.0
"""Age in seconds of a sandbox in use from which the larger libraries are loaded ahead of time."""

_warned: set[str] = set()


class Sandbox:
    """Runs programs written by models, in processes that can only compute on their own images.

    Thread-safe; all sandboxes of a process share one zygote. A context manager.

        with Sandbox() as box, box.session({"input.png": image}) as session:
            execution = session.run("show(image.crop((0, 0, 64, 64)))")

    Args:
        limits: Resource limits of programs.
        isolation: `"episode"`: one worker for the runs of a session; `"step"`: a fresh one for each run.
        allow_weaker: Work even if the kernel lacks required layers (see `describe`).
    """

    def __init__(
        self,
        limits: Limits | None = None,
        isolation: Literal["episode", "step"] = "episode",
        allow_weaker: bool = False,
    ) -> None:
        if isolation not in ("episode", "step"):
            raise unknown("isolation", isolation, ("episode", "step"))
        if limits is not None and not isinstance(limits, Limits):
            raise ConfigError(f"limits is a {type(limits).__name__}; pass Limits(...), as in Limits(wall_s=5).")
        if not isinstance(allow_weaker, bool):
            raise ConfigError(f"allow_weaker={allow_weaker!r}: True or False is needed.")
        self.limits = limits or Limits()
        self.isolation = isolation
        self.allow_weaker = allow_weaker
        self.pool = memory.InputPool()
        self._layers: dict[str, str] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._made = time.monotonic()

    def describe(self) -> dict[str, str]:
        """The layers of defence in force here: by name `"on"`, or `"off: <why>"`."""
        with self.session({}) as session:
            session.run("pass")
        assert self._layers is not None
        return {"language": "on", **self._layers}

    def session(
        self,
        images: Mapping[str, Image.Image],
        *,
        seed: int = 0,
        persist: Literal["images", "variables"] = "images",
        repairs: Collection[str] = REPAIRS,
        times: Sequence[float] = (),
    ) -> Session:
        """Start an episode.

        Args:
            images: The input images by bare file name; the first is `image` to programs.
            seed: Seed of all random numbers that programs draw.
            persist: State that later runs find: `"images"`, the saved files; `"variables"`, also the variables.
            repairs: Repairs to make, out of `"indentation"`, `"paths"` and `"imports"`; each one made is named in
                `Execution.repairs`.
            times: The seconds of the images where they are frames of a video: programs then find `frames` and `video`.

        Raises:
            SandboxError: The sandbox is closed, an image cannot be used, or processes cannot be started here.
            ConfigError: `persist` or one of `repairs` is none of these, or `persist` cannot go with `isolation="step"`.
        """
        if self._closed:
            raise SandboxError("this sandbox is closed; make a new Sandbox.")
        if persist not in ("images", "variables"):
            raise unknown("persist", persist, ("images", "variables"))
        if persist == "variables" and self.isolation == "step":
            raise unknown("persist (with isolation='step')", persist, ("images",))
        for repair in repairs:
            if repair not in REPAIRS:
                raise unknown("repairs", repair, REPAIRS)
        try:
            seed = operator.index(seed)  # NumPy's whole numbers too
        except TypeError as error:
            raise ConfigError(f"seed={seed!r}: a whole number is needed.") from error
        if time.monotonic() - self._made > _PRELOAD_AFTER_S:
            process.preload()
        return Session(
            images,
            limits=self.limits,
            pool=self.pool,
            check_layers=self.check_layers,
            seed=seed,
            persist=persist,
            isolation=self.isolation,
            repairs=repairs,
            times=times,
        )

    def check_layers(self, layers: Any) -> None:
        """Record the layers that a worker reports; raises `SandboxError` if one that must be in force is missing."""
        if not isinstance(layers, dict) or not all(isinstance(value, str) for value in layers.values()):
            raise SandboxError("a sandbox worker did not report which layers are in force.")
        with self._lock:
            if self._layers is None:
                self._layers = dict(layers)
        missing = [name for name in REQUIRED_LAYERS if layers.get(name) != "on"]
        lost = [name for name, value in self._layers.items() if value == "on" and layers.get(name) != "on"]
        if (missing or lost) and not self.allow_weaker:
            reasons = "; ".join(f"{name} {layers.get(name, 'unknown')}" for name in missing or lost)
            raise SandboxError(f"the sandbox lacks required layers: {reasons}. Pass allow_weaker=True to accept that.")
        for name, value in layers.items():
            # An ordinary user cannot change users, which is no defect; `describe` reports that layer as well.
            if value != "on" and name != "user" and name not in _warned:
                _warned.add(name)
                warnings.warn(f"sandbox layer {name} is {value}.", RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        """Refuse new sessions and free the memory kept for them; open sessions work until they are closed."""
        self._closed = True
        self.pool.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Sandbox:
        return self  # Gymnasium copies the arguments of an environment

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
