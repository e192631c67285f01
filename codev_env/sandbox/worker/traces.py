"""Decides whether a process may serve a run after another: only if no program could leave a trace in it, or find one.

Two checks, both of which refuse what they do not know. A program may name only attributes, modules and builtins that
change nothing but the program's own objects; and afterwards none of its functions, generators and frames may be alive.
Any other program gets a process that has run none, and ends with it; the next run gets a fresh fork of the zygote.
"""

from __future__ import annotations

import collections
import functools
import gc
import io
import re
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from codev_env.sandbox.language.facade import Facade
from codev_env.sandbox.language.facades import files
from codev_env.sandbox.language.policy import Program
from codev_env.sandbox.language.repairs import IMPORTS

_STANDARD = (
    "math cmath random re json collections collections.abc itertools functools operator statistics string textwrap "
    "fractions heapq bisect base64 zlib hashlib struct os os.path io copy datetime time pprint unicodedata colorsys "
    "difflib numbers typing dataclasses enum abc contextlib traceback warnings types uuid __future__ csv pathlib glob "
    "tempfile sys logging asyncio "
    "IPython IPython.display imageio imageio.v2 imageio.v3"
)
"""Modules of which every name is harmless: they compute, or act on the run's own files, text and clock."""

_LIBRARIES = (
    "PIL PIL.Image PIL.ImageDraw PIL.ImageFont PIL.ImageOps PIL.ImageEnhance PIL.ImageFilter PIL.ImageChops "
    "PIL.ImageStat PIL.ImageColor PIL.ImageSequence numpy numpy.random numpy.linalg numpy.fft"
)
"""Modules of which every name is harmless but `_CHANGING`."""

_CHANGING = frozenset(
    # Settings of the process.
    "set_printoptions seterr printoptions errstate get_printoptions geterr typecodes "
    # Attributes by a name that is not in the program's text.
    "attrgetter methodcaller "
    # Memory with the contents of something else.
    "empty empty_like data base ctypes getfield setfield setflags flags nditer "
    # Other parts of the libraries.
    "lib ma polynomial char strings emath exceptions ufunc frompyfunc vectorize busdaycalendar "
    "im getim readonly draft tobitmap set_variation_by_axes set_variation_by_name".split()
)

_OPENCV = frozenset(
    "imread imwrite imencode imdecode cvtColor resize GaussianBlur Canny threshold adaptiveThreshold findContours "
    "drawContours rectangle circle line ellipse arrowedLine polylines fillPoly putText getTextSize boundingRect "
    "contourArea arcLength approxPolyDP convexHull minAreaRect boxPoints minEnclosingCircle fitEllipse moments inRange "
    "bitwise_and bitwise_or bitwise_not bitwise_xor equalizeHist createCLAHE apply dilate erode morphologyEx "
    "getStructuringElement medianBlur blur bilateralFilter flip rotate transpose add subtract addWeighted multiply "
    "absdiff convertScaleAbs normalize Laplacian Sobel Scharr filter2D split merge connectedComponents "
    "connectedComponentsWithStats HoughLines HoughLinesP HoughCircles matchTemplate minMaxLoc mean meanStdDev "
    "countNonZero calcHist fastNlMeansDenoising fastNlMeansDenoisingColored detailEnhance hconcat vconcat "
    "pyrUp pyrDown distanceTransform waitKey destroyAllWindows namedWindow".split()
)

_REACHING = frozenset("getattr setattr hasattr vars dir locals globals".split())
"""Builtins that read or write attributes by a name that is not in the program's text."""

_TYPES: tuple[type, ...] = (
    str, bytes, bytearray, int, float, complex, bool, list, tuple, dict, set, frozenset, range, slice, property,
    BaseException, OSError, SyntaxError, UnicodeError, KeyError, StopIteration, io.BytesIO, io.StringIO,
    collections.deque, collections.Counter, collections.OrderedDict, collections.defaultdict, re.Pattern, re.Match,
    types.GeneratorType, functools.partial, np.ndarray, np.generic, np.dtype, np.finfo, np.iinfo, np.flatiter,
    files.Path, files.TemporaryDirectory, np.random.Generator, Image.Image, Image.Exif, ImageDraw.ImageDraw,
    ImageFont.FreeTypeFont,
)  # fmt: skip
_OTHERS = (
    # Attributes that `dir` does not list; and the interface of numbers, of dates and of paths.
    "mean median stddev var rms sum sum2 count extrema enhance name value "
    "days seconds total_seconds year month day hour minute second microsecond weekday isoformat strftime strptime "
    "stdout stderr setLevel debug info warning error critical log write writelines flush isatty __file__ __cause__ "
    "min max eps tiny bits __name__ __doc__ __version__ __class__"
)

_words: frozenset[str] = frozenset()
_modules: frozenset[str] = frozenset()
_unknown: frozenset[str] = frozenset()


def learn(modules: Mapping[str, Facade]) -> None:
    """Collect the harmless names of the façades; called once, in the zygote."""
    global _words, _modules, _unknown
    words = set(_OTHERS.split())
    for name in f"{_STANDARD} {_LIBRARIES}".split():
        if name in modules:
            words.update(dir(modules[name]))
    for kind in _TYPES:
        words.update(name for name in dir(kind) if not name.startswith("_"))
    if "cv2" in modules:
        constants = {name for name, value in vars(modules["cv2"]).items() if name.isupper() and isinstance(value, int)}
        words |= (constants - {"BORDER_TRANSPARENT"}) | _OPENCV
    _words = frozenset(words - _CHANGING)
    _modules = frozenset(f"{_STANDARD} {_LIBRARIES} cv2".split())
    _unknown = frozenset(name for name, module in IMPORTS.items() if module not in _modules)


def may_leave_one(program: Program) -> bool:
    """Return whether a program names something that may outlast its run."""
    return not (
        program.words <= _words
        and program.imports <= _modules
        and not program.reads & _REACHING
        and not program.reads & (_unknown - program.binds)
    )


class Survivors:
    """Counts the references to the code of a program, one of which each function, generator and frame of it holds."""

    def __init__(self, code: types.CodeType) -> None:
        self._codes = list(_nested(code))
        self._before = self._count()

    def exist(self) -> bool:
        """Return whether a function, generator or frame is alive now that was not when this object was made."""
        return self._count() != self._before

    def _count(self) -> list[int]:
        return [sys.getrefcount(code) for code in self._codes]


def _nested(code: types.CodeType) -> Any:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _nested(constant)


def clear_away(names: dict[str, Any] | None, survivors: Survivors | None) -> bool:
    """Free the objects of a run and run their finalizers, as a part of the run: its limits apply, its output counts.

    Finalizers that make new garbage without end use up the time of the run.

    Args:
        names: The variables to delete; `None` if they stay for later runs.
        survivors: Made before the program ran; `None` if it did not run, or its variables stay.

    Returns:
        Whether code of the program is still alive.
    """
    while True:
        if names is not None:
            names.clear()
        found = gc.collect()
        alive = bool(names) or (survivors is not None and survivors.exist())
        if not found or (survivors is not None and not alive):
            return alive
