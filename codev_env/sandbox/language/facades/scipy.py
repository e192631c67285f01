"""SciPy as programs see it, if installed: public functions and classes that only compute."""

from __future__ import annotations

import contextlib
import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from codev_env.sandbox.language import guards
from codev_env.sandbox.language.facade import Facade, nested, public
from codev_env.sandbox.language.refusals import RefusedCall

try:
    import scipy
except ImportError:
    scipy = None

_PACKAGES = (
    "cluster.hierarchy cluster.vq constants fft integrate interpolate linalg ndimage optimize signal signal.windows "
    "sparse sparse.csgraph sparse.linalg spatial spatial.distance spatial.transform special stats stats.contingency "
    "stats.qmc"
)
_LAZY = "_lib.cobyqa _lib.pyprima _lib.pyprima.common linalg._matfuncs_inv_ssq optimize.elementwise sparse._spfuncs"
_HINTS = {
    "io": "files hold pictures only; use Image.open(name)",
    "datasets": "the pictures of the task are all there is",
    "misc": "the pictures of the task are all there is",
    "save_npz": "keep the matrix in a variable",
    "load_npz": "keep the matrix in a variable",
    "rv_continuous": "use rv_histogram or one of the distributions",
    "rv_discrete": "use np.random.choice(values, p=...)",
    "make_distribution": "use rv_histogram or one of the distributions",
    "LowLevelCallable": "give a Python function",
}


def modules() -> dict[str, Facade]:
    """The façades by import name; empty where SciPy is not installed."""
    if scipy is None:
        return {}
    _tighten()
    found: dict[str, Facade] = {}
    for name in _PACKAGES.split():
        try:
            module = importlib.import_module(f"scipy.{name}")
        except ImportError:
            continue
        found[f"scipy.{name}"] = public(module, f"scipy.{name}", _HINTS)
    found["scipy.cluster"] = Facade("scipy.cluster", {})
    measured = importlib.import_module("scipy.constants").physical_constants
    found["scipy.constants"].__dict__["physical_constants"] = types.MappingProxyType(measured)
    for name in ("ConvexHull", "Delaunay", "HalfspaceIntersection", "Voronoi"):
        found["scipy.spatial"].__dict__[name] = _without_files(getattr(scipy.spatial, name))
    for name, function in list(vars(found["scipy.fft"]).items()):
        if callable(function):
            found["scipy.fft"].__dict__[name] = _alone(function)
    for name in ("brute", "differential_evolution", "shgo"):
        found["scipy.optimize"].__dict__[name] = _alone(getattr(scipy.optimize, name))
    nested(found, Facade("scipy", {"__version__": scipy.__version__}, _HINTS), "scipy")
    return found


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose `workers` are ignored: a worker process cannot start threads or processes."""

    @functools.wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        if isinstance(kwargs.get("workers"), int):
            del kwargs["workers"]
        return function(*args, **kwargs)

    return alone


def _alone_method(name: str) -> Callable[[Any], Any]:
    return lambda obj: _alone(getattr(obj, name))


def _without_files(cls: Any) -> Any:
    """A Qhull class whose options, one of which names files, are refused."""

    class Geometry(cls):
        def __init__(self, *args: Any, qhull_options: Any = None, **kwargs: Any) -> None:
            if qhull_options is not None:
                raise RefusedCall(f"{cls.__name__} does not take qhull_options here: leave them out.")
            super().__init__(*args, **kwargs)

    Geometry.__name__ = Geometry.__qualname__ = cls.__name__
    Geometry.__module__ = cls.__module__  # as its arrays are to be guarded
    return Geometry


def _tighten() -> None:
    """Prevent SciPy, in this process, from running text, reading foreign memory and reaching files."""
    from scipy._lib import _util
    from scipy.stats import _distn_infrastructure as distributions

    # SciPy executes the text of the shape parameters: a class derived from `str` could change it after the check.
    construct = distributions.rv_generic._construct_argparser

    def construct_of_text(self: Any, *args: Any, **kwargs: Any) -> None:
        if self.shapes is not None and type(self.shapes) is not str:
            raise TypeError("shapes must be a string.")
        construct(self, *args, **kwargs)

    distributions.rv_generic._construct_argparser = construct_of_text

    # Results are dicts whose items are attributes; NumPy would believe an item named `__array_interface__`.
    def item(self: Any, name: str) -> Any:
        if name.startswith("__") or name not in self:
            raise AttributeError(name)
        return self[name]

    _util._RichResult.__getattr__ = item
    _check_indices()
    for name in ("query", "query_ball_point"):
        guards.handle((scipy.spatial.cKDTree,), name, _alone_method(name))


def _check_indices() -> None:
    """Let sparse matrices check the indices that a program gives: compiled code trusts them."""
    from scipy.sparse import _bsr, _compressed, _coo, _dia

    for cls in (_compressed._cs_matrix, _bsr._bsr_base, _coo._coo_base, _dia._dia_base):
        cls.__init__ = _with_arrays_of_its_own(cls.__init__)
        # The values, unlike the indices, may be anything; the shape of another view is that view's.
        guards.handle((cls,), "data", lambda matrix: matrix.data[...])
    for cls in (_compressed._cs_matrix, _bsr._bsr_base):
        guards.handle((cls,), "indices", lambda matrix: matrix.indices.copy())
        guards.handle((cls,), "indptr", lambda matrix: matrix.indptr.copy())
        cls.check_format = _checked_format(cls.check_format)
    for name in ("toarray", "tocsr", "tocsc", "todia", "todok", "_matmul_vector", "_matmul_multivector"):
        if hasattr(_coo._coo_base, name):
            setattr(_coo._coo_base, name, _after_check(getattr(_coo._coo_base, name)))


def _with_arrays_of_its_own(construct: Callable[..., None]) -> Callable[..., None]:
    """A constructor of a sparse matrix that copies: a program could change an array that it gave after the check."""

    @functools.wraps(construct)
    def construct_of_copies(matrix: Any, *args: Any, **kwargs: Any) -> None:
        construct(matrix, *args, **kwargs)
        for name in ("data", "indices", "indptr", "offsets"):
            if isinstance(matrix.__dict__.get(name), np.ndarray):
                matrix.__dict__[name] = matrix.__dict__[name].copy()
        if "coords" in matrix.__dict__:
            matrix.coords = tuple(part.copy() for part in matrix.coords)

    return construct_of_copies


def _checked_format(check: Callable[..., None]) -> Callable[..., None]:
    return lambda matrix, full_check=True: check(matrix, True)


def _after_check(method: Callable[..., Any]) -> Callable[..., Any]:
    def checked(matrix: Any, *args: Any, **kwargs: Any) -> Any:
        matrix._check()
        return method(matrix, *args, **kwargs)

    return checked


def seed(_value: int, _used: bool) -> None:
    """SciPy draws from NumPy's streams; nothing to start."""


def warm() -> None:
    """Use once what SciPy loads lazily."""
    if scipy is None:
        return
    importlib.import_module("multiprocessing.pool")  # imported even when no process is to be started
    for name in f"{_PACKAGES} {_LAZY}".split():
        with contextlib.suppress(ImportError):  # another version
            importlib.import_module(f"scipy.{name}")
    with contextlib.suppress(ImportError):
        importlib.import_module("matplotlib.pylab")  # draws dendrograms
    from scipy import fft, integrate, interpolate, linalg, ndimage, optimize, signal, sparse, spatial, stats
    from scipy.sparse import csgraph
    from scipy.sparse import linalg as sparse_linalg

    numbers = np.arange(64.0).reshape(8, 8)
    ndimage.gaussian_filter(numbers, 1)
    ndimage.label(numbers > 3)
    ndimage.rotate(numbers, 30)
    signal.convolve2d(numbers, numbers)
    signal.find_peaks(signal.medfilt(numbers[0], 3))
    signal.filtfilt(*signal.butter(2, 0.3), np.arange(40.0))
    fft.ifft2(fft.fft2(numbers))
    linalg.svd(numbers)
    linalg.expm(numbers / 100)
    optimize.minimize(lambda x: float(x @ x), [1.0, 2.0])
    optimize.minimize(lambda x: float(x @ x), [1.0, 2.0], bounds=[(0, 1)] * 2)
    optimize.differential_evolution(lambda x: float(x @ x), [(0, 1)], maxiter=1)
    optimize.curve_fit(lambda x, a, b: a * x + b, numbers[0], numbers[1])
    optimize.linear_sum_assignment(numbers)
    optimize.linprog([1, 2], A_ub=[[-1, -1]], b_ub=[-1])
    interpolate.CubicSpline(numbers[0], numbers[1])(2.5)
    interpolate.RegularGridInterpolator((np.arange(8), np.arange(8)), numbers)((1.5, 2.5))
    interpolate.griddata(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.arange(4), [[0.5, 0.5]])
    integrate.quad(np.sin, 0, 1)
    integrate.solve_ivp(lambda _t, y: -y, (0, 1), [1.0])
    spatial.cKDTree(numbers).query(numbers[0])
    spatial.ConvexHull([[0, 0], [0, 1], [1, 0]])
    spatial.distance.cdist(numbers, numbers)
    stats.linregress(numbers[0], numbers[1] ** 2)
    stats.ttest_ind(numbers[0], numbers[1])
    stats.norm(loc=1).rvs(2, random_state=1)
    stats.gaussian_kde([1.0, 2, 4])([2.0])
    stats.mode(numbers, axis=None)
    matrix = sparse.csr_matrix(np.eye(8))
    sparse_linalg.spsolve(matrix.tocsc(), np.ones(8))
    csgraph.connected_components(matrix)
