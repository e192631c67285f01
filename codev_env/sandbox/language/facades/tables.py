"""Modules that read and write the episode's files in a format of their own: `json`, `csv`, `imageio`."""

from __future__ import annotations

import csv
import io
import json
import posixpath
from typing import Any

import numpy as np
from PIL import Image

from codev_env.sandbox.language import guards, state
from codev_env.sandbox.language.facade import Facade, pick
from codev_env.sandbox.language.facades.files import open_file
from codev_env.sandbox.language.refusals import RefusedCall


def _dumps(obj: Any, *, indent: Any = None, sort_keys: bool = False, ensure_ascii: bool = True, **other: Any) -> str:
    """`json.dumps` without `cls`."""
    allowed = {key: other[key] for key in ("default", "separators", "skipkeys", "allow_nan") if key in other}
    if len(allowed) != len(other):
        raise RefusedCall(f"json.dumps() does not take {', '.join(other.keys() - allowed.keys())} here.")
    return json.dumps(obj, indent=indent, sort_keys=sort_keys, ensure_ascii=ensure_ascii, **allowed)


def _loads(s: str | bytes) -> Any:
    """`json.loads` of text."""
    return json.loads(s)


def _dump(obj: Any, fp: Any, **options: Any) -> None:
    """`json.dump`."""
    guards.guarded_getattr(fp, "write")(_dumps(obj, **options))


def _load(fp: Any) -> Any:
    """`json.load`."""
    return json.loads(guards.guarded_getattr(fp, "read")())


def _imread(uri: Any, **_other: Any) -> np.ndarray:
    """`imageio.imread`."""
    if isinstance(uri, bytes | io.BytesIO):
        return np.array(Image.open(io.BytesIO(uri) if isinstance(uri, bytes) else uri))
    return np.array(state.current().open(uri))


def _imwrite(uri: Any, image: Any, **_other: Any) -> None:
    """`imageio.imwrite`."""
    Image.fromarray(np.ascontiguousarray(image)).save(uri)


def _array_path(file: Any, extension: str) -> Any:
    """The file that NumPy saves to: it adds the extension."""
    if isinstance(file, io.BytesIO):
        return file
    path = str(file)
    return open_file(path if posixpath.splitext(path)[1] == extension else path + extension, "wb")


def _save(file: Any, arr: Any, *_args: Any, **_other: Any) -> None:
    """`np.save`, of numbers."""
    target = _array_path(file, ".npy")
    np.save(target, np.asanyarray(arr), allow_pickle=False)
    target.flush()


def _savez(file: Any, *arrays: Any, **named: Any) -> None:
    """`np.savez` and `np.savez_compressed`, of numbers."""
    named.update({f"arr_{number}": array for number, array in enumerate(arrays)})
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: np.asanyarray(array) for name, array in named.items()})
    target = _array_path(file, ".npz")
    target.write(buffer.getvalue())
    target.flush()


def _load_array(file: Any, *_args: Any, **_other: Any) -> Any:
    """`np.load`, of numbers: an array, or a dict of arrays."""
    data = file if isinstance(file, io.BytesIO) else open_file(file, "rb")
    loaded = np.load(io.BytesIO(data.read()), allow_pickle=False)  # type: ignore[arg-type]
    return dict(loaded.items()) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded


def _savetxt(fname: Any, X: Any, *args: Any, **options: Any) -> None:
    """`np.savetxt`."""
    buffer = io.StringIO()
    np.savetxt(buffer, X, *args, **options)
    if isinstance(fname, io.StringIO):
        fname.write(buffer.getvalue())
    else:
        with open_file(fname, "w") as file:
            file.write(buffer.getvalue())


def _loadtxt(fname: Any, *args: Any, **options: Any) -> Any:
    """`np.loadtxt`."""
    text = fname if isinstance(fname, io.StringIO | list) else io.StringIO(open_file(fname).read())  # type: ignore[arg-type]
    return np.loadtxt(text, *args, **options)


def seed(_value: int, _used: bool) -> None:
    """Nothing to start."""


def warm() -> None:
    """Use once what is loaded lazily."""
    buffer = io.BytesIO()
    np.savez(buffer, a=np.zeros(2))
    buffer.seek(0)
    dict(np.load(buffer).items())
    text = io.StringIO()
    np.savetxt(text, np.zeros((2, 2)))
    np.loadtxt(io.StringIO(text.getvalue()))


def modules() -> dict[str, Facade]:
    """The façades by import name."""
    images = {"imread": _imread, "imwrite": _imwrite, "imsave": _imwrite}
    hints = dict.fromkeys(("get_reader", "get_writer", "mimsave", "mimread"), "there are only images here: use imread")
    newer = Facade("imageio.v3", {"imread": _imread, "imwrite": _imwrite}, hints)
    older = Facade("imageio.v2", images, hints)
    return {
        "json": Facade(
            "json",
            {"dumps": _dumps, "loads": _loads, "dump": _dump, "load": _load, **pick(json, "JSONDecodeError")},
        ),
        "csv": Facade(
            "csv",
            pick(csv, "reader writer DictReader DictWriter QUOTE_ALL QUOTE_MINIMAL QUOTE_NONNUMERIC QUOTE_NONE Error"),
        ),
        "imageio": Facade("imageio", {**images, "v2": older, "v3": newer}, hints),
        "imageio.v2": older,
        "imageio.v3": newer,
    }


ARRAY_FILES = {
    "save": _save, "savez": _savez, "savez_compressed": _savez, "load": _load_array, "savetxt": _savetxt,
    "loadtxt": _loadtxt,
}  # fmt: skip
"""The functions of NumPy that use files."""
