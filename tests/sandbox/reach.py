"""Looks for objects that programs must not reach: reads, through the guard, every attribute of everything they get.

Run as a script of its own, since it changes Pillow as a worker does. Prints one line for each finding, then a count.
"""

from __future__ import annotations

import collections
import ctypes
import io
import sys
import types
import warnings
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from photos import photo

from codev_env.sandbox.language import guards, program_builtins, state
from codev_env.sandbox.language.context import Context, File, View
from codev_env.sandbox.language.facades import files, std
from codev_env.sandbox.language.policy import compile_program, parse
from codev_env.sandbox.wire.limits import Limits
from codev_env.sandbox.worker import libraries, worker

DEPTH = 3
FOREIGN = frozenset(
    "_ctypes _frozen_importlib _frozen_importlib_external _io _pickle _thread builtins code codecs codeop ctypes gc "
    "glob importlib inspect io marshal multiprocessing nt os pathlib pickle posix runpy shutil socket subprocess sys "
    "tempfile threading urllib zipfile".split()
)
HARMLESS = frozenset({"BytesIO", "StringIO", "SuperLU"})
TEXT_ONLY = "urllib.parse"
REFUSED_BUILTINS = frozenset(
    "open eval exec compile __import__ globals locals vars input breakpoint getattr setattr delattr dir type "
    "memoryview id hash".split()
)
ALLOWED = (files.open_file, files.Path, PurePosixPath, io.UnsupportedOperation, sys.getsizeof, sys.getrecursionlimit)
"""Of these modules: the façade's own path, which acts on the episode's files, and what only computes."""
LEAVES = (int, float, complex, str, bytes, np.ndarray, np.generic)


def danger(value: Any) -> str | None:
    """Why a program must not get this object; `None` if it may."""
    if isinstance(value, types.ModuleType):
        return "a module"
    if isinstance(value, types.FrameType | types.CodeType | types.TracebackType):
        return "a part of the interpreter"
    if any(value is one for one in ALLOWED):
        return None
    if value is np.ndarray:
        return "the class of arrays, which takes foreign memory"
    if isinstance(value, type) and issubclass(value, type) and value is not program_builtins._Type:
        return "a metaclass"
    if isinstance(value, ctypes._SimpleCData | ctypes.Structure | ctypes.CDLL):
        return "foreign memory"
    home = getattr(value, "__module__", None)
    if not callable(value) or not isinstance(home, str) or home.partition(".")[0] not in FOREIGN:
        return None
    name = getattr(value, "__name__", "")
    if getattr(value, "__qualname__", "").startswith("PurePath."):
        return None  # text alone
    if name in HARMLESS or home == TEXT_ONLY or (home == "builtins" and name not in REFUSED_BUILTINS):
        return None
    return f"a function of {home}"


def crawl(roots: dict[str, Any]) -> tuple[list[str], int]:
    """Read attributes of attributes.

    Returns:
        The paths of forbidden objects, and the number of objects seen.
    """
    seen: dict[int, Any] = {}  # the objects too, so that no id is reused
    found: list[str] = []
    queue = collections.deque((path, value, 0) for path, value in roots.items())
    while queue:
        path, value, depth = queue.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        what = danger(value)
        if what is not None:
            found.append(f"{path} is {what}")
        if what is not None or depth == DEPTH or isinstance(value, LEAVES):
            continue
        if isinstance(value, dict) and len(value) < 300:
            queue.extend((f"{path}[{key!r}]", item, depth + 1) for key, item in list(value.items()))
        elif isinstance(value, list | tuple | set | frozenset) and len(value) < 100:
            queue.extend((f"{path}[{number}]", item, depth + 1) for number, item in enumerate(value))
        for name in _names(value):
            try:
                queue.append((f"{path}.{name}", guards.guarded_getattr(value, name), depth + 1))
            except Exception:
                continue  # refused, or missing on this object
    return found, len(seen)


def _names(value: Any) -> list[str]:
    try:
        return [name for name in dir(value) if not name.startswith("_")]
    except Exception:
        return []


def given() -> dict[str, Any]:
    """The names in the façades, and the variables that the everyday programs leave."""
    roots = {
        f"{label}.{name}": value
        for label, facade in libraries.MODULES.items()
        for name, value in vars(facade).items()
        if not name.startswith(" ")
    }
    builtins = program_builtins.make_builtins(
        std.make_import(libraries.MODULES), _nothing, _nothing, open=files.open_file
    )
    roots.update({name: value for name, value in builtins.items() if not name.startswith("_")})
    del roots["type"]  # the stand-in
    here = Path(__file__)
    programs = here.with_name("everyday.txt").read_text() + here.with_name("everyday_tables.txt").read_text()
    for number, code in enumerate(programs.split("#### ")[1:]):
        image = photo()
        images = {"input.png": File(lambda image=image: image, "RGB", image.size, image=image)}  # type: ignore[misc]
        state.set_current(Context(View(files=images, given=images), Limits()))
        names = {"__builtins__": builtins, "__name__": "__main__", "image": image.copy()}
        for name in ("np", "math", "Image", "ImageDraw", "ImageEnhance", "ImageFilter", "ImageFont", "ImageOps"):
            names[name] = next(libraries.MODULES[key] for key in _homes(name) if key in libraries.MODULES)
        try:
            exec(compile_program(parse(code.partition("\n")[2]), Limits()).code, names)
        except (ImportError, program_builtins.ProgramExit):
            pass  # a library is not installed, or the program called exit()
        roots.update({f"program {number}: {name}": value for name, value in names.items() if name[:2] != "__"})
    return roots


def _homes(name: str) -> tuple[str, str]:
    return f"PIL.{name}", {"np": "numpy"}.get(name, name)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Prints and shows nothing."""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    worker.prepare("tables")
    problems, count = crawl(given())
    print(*problems, count, sep="\n")
    sys.exit(bool(problems))
