"""Files as programs see them: `open`, `os`, `pathlib`, `glob` and `tempfile` on the files of the episode.

An episode has one folder, `WORKING_FOLDER`; a folder that a program makes is another name for it. Images are kept as
pixels and everything else as bytes (see `Context.keep`).
"""

from __future__ import annotations

import fnmatch
import io
import posixpath
import weakref
from collections.abc import Iterator, MutableMapping
from pathlib import PurePosixPath
from typing import Any

from PIL import Image

from codev_env.sandbox.language import state
from codev_env.sandbox.language.context import FORMATS
from codev_env.sandbox.language.facade import Facade, pick
from codev_env.sandbox.language.facades import pil
from codev_env.sandbox.language.folders import TEMPORARY_FOLDER, WORKING_FOLDER, absolute, is_folder, make_folder
from codev_env.sandbox.language.refusals import RefusedCall
from codev_env.sandbox.language.streams import BytesFile, TextFile

File = TextFile | BytesFile


def open_file(
    file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None, newline: Any = None
) -> File:
    """The builtin `open`, on the files of the episode.

    Raises:
        FileNotFoundError: There is no such file to read; the message lists the files.
        FileExistsError: The mode is `x`, and there is one.
        ValueError: The mode is none.
        OSError: The name cannot be used, or the files are too many or too large.
    """
    if not isinstance(mode, str) or len(set(mode) & set("rwax")) != 1 or set(mode) - set("rwaxbt+"):
        raise ValueError(f"invalid mode: {mode!r}")
    run = state.current()
    writes = set(mode) & set("wax+")
    if "r" in mode:
        name = run.find(file)
        data = _contents(name)
    else:
        name = run.name_for(file)
        known = name in run.view.data or name in run.view.files
        if known and "x" in mode:
            run.note_read(name)
            raise FileExistsError(f"[Errno 17] File exists: {name!r}")
        if known and "a" in mode:
            run.note_read(name)
        data = _contents(name) if known and "a" in mode else b""

    def keep(written: bytes) -> None:
        image = _decoded(name, written)
        if image is None:
            run.keep(name, written)
        else:
            run.save(image, name)

    opened: File = (BytesFile if "b" in mode else TextFile)(name, mode, data, keep if writes else None, run.lost.append)
    if writes:
        if "r" not in mode and not data:
            run.keep(name, b"")
        run.opened.append(weakref.ref(opened))
    return opened


def _contents(name: str) -> bytes:
    """The bytes of a file; an image is encoded."""
    run = state.current()
    if name in run.view.data:
        return run.view.data[name]
    buffer = io.BytesIO()
    image = run.view.files[name].pixels()
    kind = FORMATS.get(posixpath.splitext(name)[1].lower(), "PNG")
    image.convert("RGB" if kind in ("JPEG", "PDF") else image.mode).save(buffer, "PNG" if kind == "PDF" else kind)
    return buffer.getvalue()


def _decoded(name: str, data: bytes) -> Image.Image | None:
    """The image that a program wrote as encoded bytes; `None` for other data."""
    if posixpath.splitext(name)[1].lower() not in FORMATS or not data:
        return None
    try:
        return pil.decode(io.BytesIO(data))
    except (OSError, ValueError, SyntaxError):
        return None


def _exists(path: Any) -> bool:
    """`os.path.exists`: of the episode's files and folders."""
    return _isdir(path) or _isfile(path)


def _isfile(path: Any) -> bool:
    try:
        state.current().find(path)
    except FileNotFoundError:
        return False
    return True


def _isdir(path: Any) -> bool:
    return absolute(path) == "/" or is_folder(state.current(), path)


def _listdir(_path: Any = ".") -> list[str]:
    """`os.listdir`: the episode's files."""
    return sorted(set(state.current().names()))


def _walk(top: Any = ".", *_args: Any, **_other: Any) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk`: the one folder, with the episode's files."""
    return iter([(str(top), [], _listdir())] if _isdir(top) else [])


def _makedirs(name: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
    """`os.makedirs` and `os.mkdir`: from now on, files of that folder are those of the episode."""
    make_folder(state.current(), name)


def _getsize(path: Any) -> int:
    """`os.path.getsize`."""
    return len(_contents(state.current().find(path)))


def _abspath(path: Any) -> str:
    """`os.path.abspath`."""
    return absolute(path)


def _relpath(path: Any, start: Any = None) -> str:
    """`os.path.relpath`."""
    here = _abspath(start or ".")
    return posixpath.relpath(_abspath(path), here) if here != "/" else _abspath(path).lstrip("/")


def _normpath(path: Any) -> str:
    """`os.path.normpath`; some versions of Python take theirs from the module of system calls."""
    return posixpath.normpath(path)


def _expanduser(path: Any) -> str:
    """`os.path.expanduser`: the home folder is the working folder."""
    return str(path).replace("~", WORKING_FOLDER, 1) if str(path).startswith("~") else str(path)


def _glob(pathname: Any, **_other: Any) -> list[str]:
    """`glob.glob`: of the episode's files."""
    folder, pattern = posixpath.split(str(pathname))
    if folder and "*" not in folder and not _isdir(folder):
        return []
    found = fnmatch.filter(_listdir(), pattern or "*")
    return [posixpath.join("" if "*" in folder else folder, name) for name in found]


def _iglob(pathname: Any, **_other: Any) -> Iterator[str]:
    """`glob.iglob`."""
    return iter(_glob(pathname))


class Path(PurePosixPath):
    """`pathlib.Path`, of the episode's files."""

    __module__ = "pathlib"

    __slots__ = ()

    @classmethod
    def cwd(cls) -> Path:
        """The working folder."""
        return cls(WORKING_FOLDER)

    home = cwd

    def open(self, mode: str = "r", *args: Any, **kwargs: Any) -> File:
        """Open the file; see `open_file`."""
        return open_file(str(self), mode, *args, **kwargs)

    def read_text(self, *_args: Any, **_kwargs: Any) -> str:
        """The text of the file."""
        return _contents(state.current().find(str(self))).decode("utf-8")

    def read_bytes(self) -> bytes:
        """The bytes of the file."""
        return _contents(state.current().find(str(self)))

    def write_text(self, data: str, *_args: Any, **_kwargs: Any) -> int:
        """Replace the text of the file."""
        with self.open("w") as file:
            return file.write(data)

    def write_bytes(self, data: bytes) -> int:
        """Replace the bytes of the file."""
        with self.open("wb") as file:
            return file.write(data)  # type: ignore[arg-type]

    def exists(self, **_other: Any) -> bool:
        """Return whether there is such a file or folder."""
        return _exists(str(self))

    def is_file(self, **_other: Any) -> bool:
        """Return whether there is such a file."""
        return _isfile(str(self))

    def is_dir(self, **_other: Any) -> bool:
        """Return whether there is such a folder."""
        return _isdir(str(self))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the folder; see `_makedirs`."""
        _makedirs(str(self))

    def glob(self, pattern: str, **_other: Any) -> Iterator[Path]:
        """The files of the folder that match."""
        names = _listdir() if self.is_dir() else []
        return (self / name for name in fnmatch.filter(names, str(pattern).split("/")[-1]))

    rglob = glob

    def iterdir(self) -> Iterator[Path]:
        """The files of the folder."""
        return self.glob("*")

    def absolute(self) -> Path:
        """The path from the root."""
        return type(self)(_abspath(self))

    def resolve(self, strict: bool = False) -> Path:
        """The path from the root; there are no links."""
        return self.absolute()

    def expanduser(self) -> Path:
        """The path without `~`."""
        return type(self)(_expanduser(self))


Path.__name__ = Path.__qualname__ = "PosixPath"  # as it is printed


class Environment(MutableMapping[str, str]):
    """`os.environ`: empty at the start of a run."""

    def __getitem__(self, key: str) -> str:
        return state.current().environ[key]

    def __setitem__(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError("str expected")
        state.current().environ[key] = value

    def __delitem__(self, key: str) -> None:
        del state.current().environ[key]

    def __iter__(self) -> Iterator[str]:
        return iter(state.current().environ)

    def __len__(self) -> int:
        return len(state.current().environ)

    def __repr__(self) -> str:
        return f"environ({state.current().environ!r})"


def _getenv(key: str, default: Any = None) -> Any:
    """`os.getenv`."""
    return state.current().environ.get(key, default)


def _getcwd() -> str:
    """`os.getcwd`."""
    return WORKING_FOLDER


def _temporary_name(suffix: str | None = None, prefix: str | None = None) -> str:
    run = state.current()
    run.temporary += 1
    return f"{TEMPORARY_FOLDER}/{prefix or 'tmp'}{run.temporary:08d}{suffix or ''}"


def _named_file(mode: str = "w+b", *_args: Any, suffix: Any = None, prefix: Any = None, **_other: Any) -> File:
    """`tempfile.NamedTemporaryFile`: a file of the episode, which stays until it ends."""
    path = _temporary_name(suffix, prefix)
    file = open_file(path, mode)
    file.name = path
    return file


class TemporaryDirectory:
    """`tempfile.TemporaryDirectory`: another name of the working folder."""

    def __init__(self, suffix: Any = None, prefix: Any = None, *_args: Any, **_other: Any) -> None:
        self.name = _temporary_name(suffix, prefix)
        _makedirs(self.name)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_exc: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Keep everything: the files end with the episode."""


def _mkdtemp(suffix: Any = None, prefix: Any = None, *_args: Any, **_other: Any) -> str:
    """`tempfile.mkdtemp`."""
    return TemporaryDirectory(suffix, prefix).name


def _gettempdir() -> str:
    """`tempfile.gettempdir`."""
    return TEMPORARY_FOLDER


def _remove(*_args: Any) -> None:
    raise RefusedCall("files cannot be deleted here: they end with the episode; save over one to replace it.")


_OS_HINTS = {
    "system": "no other programs can be started; use Python's own functions",
    "popen": "no other programs can be started; use Python's own functions",
    "scandir": "there is one folder: use os.listdir()",
    "chdir": "there is one folder: use bare file names",
    "rename": "open the file and save it under the other name",
    "replace": "open the file and save it under the other name",
}


def seed(_value: int, _used: bool) -> None:
    """Nothing to start: a run has its own environment."""


def warm() -> None:
    """Use once what is loaded lazily."""
    fnmatch.filter(["a"], "*")
    str(Path("a") / "b")


def modules() -> dict[str, Facade]:
    """The façades by import name."""
    paths = {
        **pick(posixpath, "join basename dirname splitext split isabs sep commonprefix"),
        **{"normpath": _normpath, "exists": _exists, "isfile": _isfile, "isdir": _isdir, "getsize": _getsize},
        **{"abspath": _abspath, "realpath": _abspath, "relpath": _relpath, "expanduser": _expanduser},
    }
    os_path = Facade("os.path", paths)
    os_names = {
        **{"path": os_path, "listdir": _listdir, "walk": _walk, "makedirs": _makedirs, "mkdir": _makedirs},
        **{"sep": "/", "linesep": "\n"},
        **{"getcwd": _getcwd, "environ": Environment(), "getenv": _getenv, "name": "posix", "curdir": "."},
        **{"remove": _remove, "unlink": _remove, "rmdir": _remove},
    }
    temporary = {
        **{"NamedTemporaryFile": _named_file, "TemporaryFile": _named_file, "TemporaryDirectory": TemporaryDirectory},
        **{"mkdtemp": _mkdtemp, "gettempdir": _gettempdir},
    }
    return {
        "os": Facade("os", os_names, _OS_HINTS),
        "os.path": os_path,
        "pathlib": Facade("pathlib", {"Path": Path, "PosixPath": Path, "PurePath": PurePosixPath}),
        "glob": Facade("glob", {"glob": _glob, "iglob": _iglob}),
        "tempfile": Facade("tempfile", temporary, {"mkstemp": "use tempfile.NamedTemporaryFile(suffix='.png')"}),
    }
