"""Modules about the run itself: its clock, its streams, its log, notebooks' functions and coroutines."""

from __future__ import annotations

import contextlib
import datetime
import io
import posixpath
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from PIL import Image

from codev_env.sandbox.language import guards, imaging, state
from codev_env.sandbox.language.context import FORMATS, Context, plain
from codev_env.sandbox.language.facade import Facade, pick
from codev_env.sandbox.language.facades.pil import decode
from codev_env.sandbox.language.program_builtins import exit_program

_NO_SYS = "print what you want to know"


# Time


def _now() -> float:
    return state.current().clock.now()


def _elapsed() -> float:
    return state.current().clock.read()


def _nanoseconds(read: Callable[[], float]) -> Callable[[], int]:
    return lambda: round(read() * 1000) * 1_000_000


def _sleep(secs: float) -> None:
    """`time.sleep`: moves the clock of the run on, at once."""
    state.current().clock.sleep(secs)


def _at(function: Any) -> Any:
    """A function of `time` whose default is the present."""
    return lambda secs=None: function(_now() if secs is None else secs)


def _strftime(format: str, t: Any = None) -> str:
    """`time.strftime`."""
    return time.strftime(format, time.gmtime(_now()) if t is None else t)


def _datetime_now(cls: type[datetime.datetime]) -> Callable[..., datetime.datetime]:
    return lambda tz=None: cls.fromtimestamp(_now(), tz)


def _datetime_utcnow(cls: type[datetime.datetime]) -> Callable[[], datetime.datetime]:
    return lambda: cls.fromtimestamp(_now(), datetime.UTC).replace(tzinfo=None)


def _today(cls: type[datetime.date]) -> Callable[[], datetime.date]:
    return lambda: cls.fromtimestamp(_now())


# Streams


class System(Facade):
    """`sys`, whose streams are those of the run, and may be replaced for it."""

    @property
    def stdout(self) -> Any:
        """The stream that `print` writes to."""
        return state.current().stdout

    @property
    def stderr(self) -> Any:
        """A stream that nobody reads."""
        return state.current().stderr

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("stdout", "stderr"):
            setattr(state.current(), name, value)
        else:
            super().__setattr__(name, value)


_argv: list[str] = []
_path: list[str] = []


def _redirect(name: str) -> Any:
    @contextlib.contextmanager
    def redirect(new_target: Any) -> Iterator[Any]:
        run = state.current()
        old = getattr(run, name)
        setattr(run, name, new_target)
        try:
            yield new_target
        finally:
            setattr(run, name, old)

    return redirect


def _input(prompt: Any = "") -> str:
    """`input`: nobody answers, which is an empty line."""
    state.current().print(prompt, end="")
    return ""


# Notebooks


def display(*things: Any, **_other: Any) -> None:
    """`IPython.display.display`: hands images and figures over, and prints other objects."""
    run = state.current()
    for thing in things:
        image = None if hasattr(thing, "dtype") else imaging.to_image(thing)
        if image is None:
            run.print(thing if isinstance(thing, str | _Shown) else repr(thing))
        else:
            run.show(thing)


def show(*things: Any, title: Any = None) -> None:
    """`show`; titles are not seen: the argument, and texts that follow an image and name no file."""
    run = state.current()
    run.show(*things[:1], *(thing for thing in things[1:] if not _is_title(thing, run)))


def _is_title(thing: Any, run: Context) -> bool:
    if isinstance(thing, list | tuple):
        return all(_is_title(one, run) for one in thing)
    if not isinstance(thing, str):
        return False
    text = plain(thing)
    return text not in run.view.files and posixpath.splitext(text)[1].lower() not in FORMATS


class _Shown:
    """`HTML` and `Markdown`: text that `display` prints."""

    def __init__(self, data: Any = "", *_args: Any, **_other: Any) -> None:
        self.data = str(data)

    def __repr__(self) -> str:
        return self.data


def _notebook_image(data: Any = None, *_args: Any, filename: Any = None, **_other: Any) -> Image.Image:
    """`IPython.display.Image`: the image itself."""
    if isinstance(data, bytes):
        return decode(io.BytesIO(data))
    return state.current().open(filename or data)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Does nothing here."""


# Log

_LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}


class _Logger:
    """`logging.Logger`: writes to a stream that `basicConfig` names, else to `sys.stderr`, which nobody reads."""

    __module__ = "logging"

    def __init__(self, name: str) -> None:
        self.name = name
        self.level = 0

    def setLevel(self, level: Any) -> None:
        self.level = _LEVELS[level] if isinstance(level, str) else int(level)

    def getEffectiveLevel(self) -> int:
        return self.level or _log["level"]

    def isEnabledFor(self, level: int) -> bool:
        return level >= self.getEffectiveLevel()

    def log(self, level: int, msg: Any, *args: Any, **_other: Any) -> None:
        if not self.isEnabledFor(level):
            return
        name = next((name for name, value in _LEVELS.items() if value == level), f"Level {level}")
        message = str(msg) % args if args else str(msg)
        when = _strftime("%Y-%m-%d %H:%M:%S") + ",000"
        fields = {"levelname": name, "name": self.name, "message": message, "asctime": when, "levelno": level}
        stream = _log["stream"] or state.current().stderr
        guards.guarded_getattr(stream, "write")(_log["format"] % fields + "\n")

    def debug(self, msg: Any, *args: Any, **_other: Any) -> None:
        self.log(10, msg, *args)

    def info(self, msg: Any, *args: Any, **_other: Any) -> None:
        self.log(20, msg, *args)

    def warning(self, msg: Any, *args: Any, **_other: Any) -> None:
        self.log(30, msg, *args)

    def error(self, msg: Any, *args: Any, **_other: Any) -> None:
        self.log(40, msg, *args)

    exception = error

    def critical(self, msg: Any, *args: Any, **_other: Any) -> None:
        self.log(50, msg, *args)

    addHandler = removeHandler = addFilter = setFormatter = _nothing


_log: dict[str, Any] = {}
_loggers: dict[str, _Logger] = {}
_root = _Logger("root")


def _basic_config(*, level: Any = None, stream: Any = None, format: str | None = None, **_other: Any) -> None:
    """`logging.basicConfig`."""
    if level is not None:
        _log["level"] = _LEVELS[level] if isinstance(level, str) else int(level)
    if format is not None:
        _log["format"] = str(format)
    _log["stream"] = stream


def _get_logger(name: str | None = None) -> _Logger:
    """`logging.getLogger`."""
    return _loggers.setdefault(name, _Logger(name)) if name else _root


# Coroutines


class _Pause:
    """An awaitable that is ready at once."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Iterator[None]:
        return self.value
        yield


def _run_coroutine(main: Any, **_other: Any) -> Any:
    """`asyncio.run`: one coroutine after the other, each to its end."""
    if not isinstance(main, types.CoroutineType | _Pause):
        raise ValueError(f"a coroutine was expected, got {main!r}")
    steps = main.__await__()
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value


def _async_sleep(delay: float, result: Any = None) -> _Pause:
    """`asyncio.sleep`."""
    state.current().clock.sleep(delay)
    return _Pause(result)


def _gather(*coroutines: Any, return_exceptions: bool = False) -> _Pause:
    """`asyncio.gather`."""
    results = []
    for one in coroutines:
        try:
            results.append(_run_coroutine(one))
        except Exception as error:
            if not return_exceptions:
                raise
            results.append(error)
    return _Pause(results)


def _task(coroutine: Any, **_other: Any) -> _Pause:
    """`asyncio.create_task`: runs it now."""
    return _Pause(_run_coroutine(coroutine))


def _wait_for(coroutine: Any, timeout: Any = None) -> _Pause:
    """`asyncio.wait_for`."""
    return _Pause(_run_coroutine(coroutine))


def seed(_value: int, _used: bool) -> None:
    """Start the log of a run, and the lists of `sys`."""
    _argv[:], _path[:] = ["program.py"], [""]
    _log.update(level=30, format="%(levelname)s:%(name)s:%(message)s", stream=None)
    _loggers.clear()
    _root.level = 0


def warm() -> None:
    """Use once what is loaded lazily."""
    datetime.datetime.fromtimestamp(0, datetime.UTC).strftime("%c")
    datetime.datetime.strptime("2024-01-31 10:20", "%Y-%m-%d %H:%M").strftime("%A %d %B")


_DATES = "date time datetime timedelta timezone tzinfo UTC MINYEAR MAXYEAR"


def modules() -> dict[str, Facade]:
    """The façades by import name."""
    guards.allow_setting(System, "stdout", "stderr")
    guards.handle_class((datetime.datetime,), "now", _datetime_now)
    guards.handle_class((datetime.datetime,), "utcnow", _datetime_utcnow)
    guards.handle_class((datetime.date,), "today", _today)
    clock = {
        **{"time": _now, "perf_counter": _elapsed, "monotonic": _elapsed, "process_time": _elapsed, "sleep": _sleep},
        **{"time_ns": _nanoseconds(_now), "perf_counter_ns": _nanoseconds(_elapsed), "strftime": _strftime},
        **{name: _at(getattr(time, name)) for name in ("localtime", "gmtime", "ctime")},
        **pick(time, "strptime mktime struct_time asctime timezone tzname"),
    }
    system = {
        "exit": exit_program,
        **pick(sys, "maxsize float_info byteorder version version_info getrecursionlimit getsizeof"),
        **{"argv": _argv, "path": _path, "platform": "linux", "setrecursionlimit": _nothing},
    }
    notebook = {"display": display, "Image": _notebook_image, "HTML": _Shown, "Markdown": _Shown}
    notebook["clear_output"] = _nothing
    shown = Facade("IPython.display", notebook)
    log = {
        **_LEVELS,
        **{name: getattr(_root, name) for name in "debug info warning error exception critical log".split()},
        **{"basicConfig": _basic_config, "getLogger": _get_logger, "Logger": _Logger, "disable": _nothing},
        **dict.fromkeys(("StreamHandler", "Formatter", "NullHandler"), lambda *_args, **_kwargs: _Logger("handler")),
    }
    coroutines: dict[str, Any] = {
        **{"run": _run_coroutine, "sleep": _async_sleep, "gather": _gather, "wait_for": _wait_for},
        **{"create_task": _task, "ensure_future": _task},
    }
    hints = dict.fromkeys(("stdin", "modules"), _NO_SYS)
    return {
        "time": Facade("time", clock),
        "datetime": Facade("datetime", pick(datetime, _DATES)),
        "sys": System("sys", system, hints),
        "contextlib": Facade(
            "contextlib",
            {
                **pick(contextlib, "contextmanager suppress nullcontext closing ExitStack"),
                **{"redirect_stdout": _redirect("stdout"), "redirect_stderr": _redirect("stderr")},
            },
        ),
        "IPython": Facade("IPython", {"display": shown, "get_ipython": _nothing}),
        "IPython.display": shown,
        "IPython.core": Facade("IPython.core", {"display": shown}),
        "IPython.core.display": shown,
        "logging": Facade("logging", log),
        "asyncio": Facade("asyncio", coroutines, {"Queue": "use a list", "Lock": "one coroutine runs at a time"}),
    }


def builtins() -> dict[str, Any]:
    """The builtins of this room."""
    return {"input": _input, "display": display}
