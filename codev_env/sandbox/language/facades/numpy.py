"""NumPy as programs see it: names that only compute, none that reads files, foreign memory or module state."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from codev_env.sandbox.language import guards, state
from codev_env.sandbox.language.facade import Facade, pick, whole
from codev_env.sandbox.language.facades import buffers
from codev_env.sandbox.language.facades.tables import ARRAY_FILES
from codev_env.sandbox.language.program_builtins import ndarray
from codev_env.sandbox.language.refusals import RefusedCall

_HINTS = {
    # NumPy's own advice for names that it has removed.
    **{name: advice for name, advice in getattr(np, "__expired_attributes__", {}).items()},
    **{name: f"use {name}, Python's own type" for name in ("int", "float", "complex", "object", "str", "bool")},
    **dict.fromkeys(("genfromtxt", "fromfile"), "use np.load, np.loadtxt or Image.open"),
    **dict.fromkeys(("matrix", "asmatrix", "mat", "bmat"), "use np.array and the operator @"),
    "lib": "use np.lib.stride_tricks.sliding_window_view",
    "random": "use np.random.default_rng(seed)",
    "testing": "use np.allclose or np.array_equal",
}
_UNSEEDED = frozenset({"seed", "get_state", "set_state"})
_POLYNOMIALS = "polynomial chebyshev legendre hermite hermite_e laguerre"
_FUNCTION_TYPES: tuple[type, ...] = (types.FunctionType, types.BuiltinFunctionType, np.ufunc, type(np.concatenate))

# NumPy's global stream, from which other libraries draw as well.
_legacy: np.random.RandomState = np.random.mtrand._rand
_real_default_rng = np.random.default_rng
_seeds: list[np.random.SeedSequence] = []
_entropy = 0
_printing = np.get_printoptions()
_errors = np.geterr()


def seed(value: int, used: bool) -> None:
    """Start the random streams of a run; reset print options and error handling."""
    global _entropy
    _legacy.seed(value % (1 << 32))
    _entropy = value
    _seeds.clear()
    if used:
        np.set_printoptions(**_printing)
        np.seterr(**_errors)


def _next_seed() -> np.random.SeedSequence:
    """The seed of the next stream of the run's own; few programs need one."""
    if not _seeds:
        _seeds.append(np.random.SeedSequence(_entropy))
    return _seeds[0].spawn(1)[0]


def _reseed(seed: Any = None) -> None:
    """`np.random.seed`: without a seed, from the run's own stream."""
    _legacy.seed(_legacy.randint(1 << 31) if seed is None else seed)


def _default_rng(seed: Any = None) -> np.random.Generator:
    """`np.random.default_rng`: without a seed, the next stream of the run's own."""
    return _real_default_rng(_next_seed() if seed is None else seed)


def _random_state(seed: Any = None) -> np.random.RandomState:
    """`np.random.RandomState`: without a seed, seeded by the run's own stream."""
    return np.random.RandomState(_legacy.randint(1 << 31) if seed is None else seed)


def _pcg64(seed: Any = None) -> np.random.PCG64:
    """`np.random.PCG64`: without a seed, the next stream of the run's own."""
    return np.random.PCG64(_next_seed() if seed is None else seed)


def _frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> np.ndarray:
    """`np.frombuffer` of bytes, as numbers."""
    wanted = np.dtype(dtype)
    if wanted.hasobject:
        raise RefusedCall("np.frombuffer takes a dtype of numbers here.")
    return np.frombuffer(buffer, dtype=wanted, count=count, offset=offset)


def _fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> np.ndarray:
    """`np.fromstring` of text."""
    if not sep:
        raise RefusedCall("np.fromstring takes text and a separator here: use np.frombuffer for bytes.")
    return np.fromstring(string, dtype=dtype, count=count, sep=sep)


def _fromiter(iter: Any, dtype: Any, count: int = -1) -> np.ndarray:
    """`np.fromiter`, without the `like` argument."""
    return np.fromiter(iter, dtype, count)


class _DateMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, np.datetime64)

    def __call__(cls, value: Any = None, *unit: Any) -> Any:
        if isinstance(value, str) and value.strip().lower() in ("now", "today"):
            seconds = np.datetime64(int(state.current().clock.now()), "s")
            whole_days = value.strip().lower() == "today"
            return seconds.astype(f"M8[{unit[0]}]" if unit else "M8[D]" if whole_days else "M8[s]")
        return np.datetime64(*(() if value is None else (value,)), *unit)


class datetime64(metaclass=_DateMeta):
    """Stands for `numpy.datetime64`, whose "now" and "today" are those of the run's clock."""

    __module__ = "numpy"
    dtype = np.dtype("M8")


def modules() -> dict[str, Facade]:
    """The façades by import name."""
    names: dict[str, Any] = {}
    for name, value in list(vars(np).items()):  # `dir` also names modules that would be loaded on access
        if name.startswith("_"):
            continue
        number_type = isinstance(value, type) and issubclass(value, np.generic)
        constant = value is None or isinstance(value, (int, float))
        if number_type or constant or isinstance(value, _FUNCTION_TYPES):
            names[name] = value
    names.update(pick(np, "True_ False_ typename nditer busdaycalendar ufunc"))
    names.update(pick(np, "dtype finfo iinfo errstate printoptions vectorize broadcast ndindex ndenumerate flatiter"))
    names.update(pick(np, "poly1d mgrid ogrid r_ c_ s_ index_exp newaxis"))
    names.update(ndarray=ndarray, frombuffer=_frombuffer, fromiter=_fromiter, fromstring=_fromstring)
    names.update(ARRAY_FILES, datetime64=datetime64)
    names.update(typecodes=dict(np.typecodes), __version__=np.__version__)
    random: dict[str, Callable[..., Any] | type] = {
        name: getattr(_legacy, name) for name in dir(_legacy) if not name.startswith("_") and name not in _UNSEEDED
    }
    random.update(seed=_reseed, sample=_legacy.random_sample, ranf=_legacy.random_sample)
    random.update(default_rng=_default_rng, RandomState=_random_state, PCG64=_pcg64, Generator=np.random.Generator)
    guards.hide((np.random.BitGenerator,), "capsule", "cffi", "ctypes", "lock", "state")
    windows = Facade("numpy.lib.stride_tricks", pick(np.lib.stride_tricks, "sliding_window_view"))
    found = {
        "numpy.random": Facade("numpy.random", random),
        "numpy.linalg": whole(np.linalg, "numpy.linalg"),
        "numpy.fft": whole(np.fft, "numpy.fft"),
        "numpy.char": whole(np.char, "numpy.char"),
        "numpy.ma": _masked(),
        "numpy.polynomial": _polynomials(),
        "numpy.lib": Facade("numpy.lib", {"stride_tricks": windows}),
    }
    for name in ("strings", "emath", "exceptions"):
        if hasattr(np, name):
            found[f"numpy.{name}"] = whole(getattr(np, name), f"numpy.{name}")
    names.update({name.partition(".")[2]: facade for name, facade in found.items()})
    found["numpy.lib.stride_tricks"] = windows
    found.update({f"numpy.polynomial.{name}": vars(found["numpy.polynomial"])[name] for name in _POLYNOMIALS.split()})
    found["numpy"] = Facade("numpy", names, _HINTS)
    return found


def _masked() -> Facade:
    """Masked arrays: `data` is an array of its own kind, and the class behind it stays hidden."""
    guards.handle((np.ma.MaskedArray,), "data", lambda array: array.data)
    guards.hide((np.ma.MaskedArray,), "baseclass", "ids", "toflex", "torecords")
    return whole(np.ma, "numpy.ma")


def _polynomials() -> Facade:
    names: dict[str, Any] = pick(np.polynomial, "Polynomial Chebyshev Legendre Hermite HermiteE Laguerre")
    for name in _POLYNOMIALS.split():
        names[name] = whole(getattr(np.polynomial, name), f"numpy.polynomial.{name}")
    return Facade("numpy.polynomial", names)


def warm() -> None:
    """Use once what NumPy loads lazily; let libraries that request a new stream draw from that of the run."""
    buffers.tighten()
    np.random.default_rng = _default_rng
    numbers = np.arange(12.0).reshape(3, 4)
    for value in (numbers.sum(), numbers.mean(), numbers.std(), np.median(numbers), np.percentile(numbers, 50)):
        str(value)
    np.linalg.svd(numbers)
    np.fft.fft2(numbers)
    np.unique(numbers)
    np.histogram(numbers)
    np.einsum("ij,ij->i", numbers, numbers)
    str(numbers)
    with np.errstate(all="ignore"):
        numbers / 0
