"""The standard library as programs see it, and the function behind `import`."""

from __future__ import annotations

import ast
import base64
import bisect
import calendar
import cmath
import collections
import collections.abc
import colorsys
import copy
import dataclasses
import decimal
import difflib
import fractions
import functools
import hashlib
import heapq
import html
import io
import itertools
import keyword
import math
import numbers
import operator
import os
import pprint
import random
import re
import secrets
import shlex
import statistics
import string
import struct
import sys
import textwrap
import time
import traceback
import types
import typing
import unicodedata
import urllib.parse
import uuid
import zlib
from collections.abc import Callable, Collection
from typing import Any

from codev_env.sandbox.language import guards, state
from codev_env.sandbox.language.classes import SandboxClass
from codev_env.sandbox.language.facade import Facade, pick, whole
from codev_env.sandbox.language.facades import program_types
from codev_env.sandbox.language.facades.instead import INSTEAD
from codev_env.sandbox.language.guards import guarded_getattr
from codev_env.sandbox.language.refusals import RefusedCall, RefusedImport

_stream = random.Random(0)


def seed(value: int, used: bool) -> None:
    """Start the random stream of a run; reset the decimal context."""
    _stream.seed(value)
    if used:
        decimal.setcontext(decimal.DefaultContext.copy())


def _reseed(a: Any = None) -> None:
    """`random.seed`; without a value, from the stream itself, so that runs can be repeated."""
    _stream.seed(_stream.getrandbits(64) if a is None else a)


def _deepcopy(x: Any) -> Any:
    """`copy.deepcopy` without a memo, which would contain addresses."""
    return copy.deepcopy(x)


def _make_random(seed: Any = None) -> random.Random:
    """`random.Random`: without a seed, seeded by the run's own stream."""
    return random.Random(_stream.getrandbits(64) if seed is None else seed)


def _wraps(wrapped: Any) -> Callable[[Any], Any]:
    """`functools.wraps`: gives a function of the program the name and the docstring of another."""
    named = functools.wraps(wrapped, updated=())
    return lambda wrapper: named(wrapper) if _is_own(wrapper) else wrapper


def _is_own(function: Any) -> bool:
    return isinstance(function, types.FunctionType) and function.__code__.co_filename == "<code>"


def _dataclass(cls: Any = None, **options: Any) -> Any:
    """`dataclasses.dataclass` of classes of the program; `slots`, which would make another class, is ignored."""
    if cls is None:
        return lambda cls: _dataclass(cls, **options)
    return _changed(dataclasses.dataclass(**{**options, "slots": False}), cls)


def _total_ordering(cls: Any) -> Any:
    """`functools.total_ordering`, of classes of the program."""
    return _changed(functools.total_ordering, cls)


def _changed(change: Callable[[Any], Any], cls: Any) -> Any:
    if not isinstance(cls, SandboxClass):
        raise RefusedCall(f"{cls!r} cannot be changed here: define a class of your own.")
    return change(cls)


def _pprint(object: Any, stream: Any = None, *args: Any, **kwargs: Any) -> None:
    """`pprint.pprint` into the run's text."""
    state.current().write(pprint.pformat(object, *args, **kwargs) + "\n")


def _format_exc(*_args: Any, **_kwargs: Any) -> str:
    """`traceback.format_exc` with only the lines of the program."""
    kind, error, trace = sys.exc_info()
    lines = [f"  {step.lineno} in {step.name}\n" for step in traceback.extract_tb(trace) if step.filename == "<code>"]
    return "".join(["Traceback (most recent call last):\n", *lines, *traceback.format_exception_only(kind, error)])


def _print_exc(*_args: Any, **_kwargs: Any) -> None:
    """`traceback.print_exc` into the run's text."""
    state.current().write(_format_exc())


def _attrgetter(*names: str) -> Callable[[Any], Any]:
    """`operator.attrgetter` through the guard."""

    def one(obj: Any, dotted: str) -> Any:
        for name in dotted.split("."):
            obj = guarded_getattr(obj, name)
        return obj

    return lambda obj: one(obj, names[0]) if len(names) == 1 else tuple(one(obj, name) for name in names)


def _uuid4() -> uuid.UUID:
    """`uuid.uuid4`, from the run's own stream: programs name their files with it."""
    return uuid.UUID(int=_stream.getrandbits(128), version=4)


def _methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """`operator.methodcaller` through the guard."""
    return lambda obj: guarded_getattr(obj, name)(*args, **kwargs)


def _literal_eval(text: str) -> Any:
    """`ast.literal_eval` of text."""
    if not isinstance(text, str):
        raise RefusedCall(f"ast.literal_eval reads text here, not {type(text).__name__}.")
    return ast.literal_eval(str.__str__(text))


def _format_exception(error: Any, *_others: Any, **_options: Any) -> list[str]:
    """`traceback.format_exception` of an error, with its last line only."""
    return ["Traceback (most recent call last):\n", *traceback.format_exception_only(_error_of(error, *_others))]


def _format_exception_only(error: Any, *others: Any) -> list[str]:
    """`traceback.format_exception_only` of an error, or of its class and it."""
    return traceback.format_exception_only(_error_of(error, *others))


def _error_of(error: Any, *others: Any) -> BaseException:
    found = next((one for one in (error, *others) if isinstance(one, BaseException)), None)
    if found is None:
        raise TypeError("an exception is needed")
    return found


def _print_exception(error: Any, *others: Any, **_options: Any) -> None:
    """`traceback.print_exception`: like the real one, it writes where nobody reads."""
    _error_of(error, *others)


class _CatchWarnings:
    """`warnings.catch_warnings`: there are none."""

    def __init__(self, *_args: Any, record: bool = False, **_kwargs: Any) -> None:
        self._record = record

    def __enter__(self) -> list[Any] | None:
        return [] if self._record else None

    def __exit__(self, *_error: Any) -> None:
        pass


def _same(thing: Any) -> Any:
    """A decorator that changes nothing, such as `typing.overload`."""
    return thing


def _new_type(name: str, tp: Any) -> Callable[[Any], Any]:
    """`typing.NewType`."""
    return _same


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Does nothing: there are no folders."""


def warm() -> None:
    """Use once what the standard library loads lazily."""
    statistics.mean([1, 2])
    statistics.median([1.5, 2])
    "a".encode("ascii").decode("latin-1")
    decimal.Decimal("1.5").quantize(decimal.Decimal(1))
    re.compile("a+")
    os.environ["TZ"] = "UTC"  # the same on every machine
    time.tzset()
    unicodedata.normalize("NFKD", "é")
    pprint.pformat({"a": [1]})
    for name in ("md5", "sha1", "sha256"):
        hashlib.new(name, b"a").hexdigest()


def modules() -> dict[str, Facade]:
    """The façades by import name."""
    streams = (
        "random randint randrange choice choices sample shuffle uniform gauss normalvariate triangular betavariate "
        "expovariate gammavariate lognormvariate getrandbits paretovariate randbytes vonmisesvariate weibullvariate"
    )
    guards.allow_setting(decimal.Context, "prec", "rounding", "Emin", "Emax")
    changing = {"wraps": _wraps, "total_ordering": _total_ordering}
    texts = {name: value for name, value in vars(string).items() if isinstance(value, str) and name[0] != "_"}
    typed = {
        "NamedTuple": program_types.NamedTuple,
        "NewType": _new_type,
        **dict.fromkeys(("overload", "final", "runtime_checkable", "no_type_check"), _same),
    }
    tracebacks = {
        "format_exc": _format_exc,
        "print_exc": _print_exc,
        "format_exception": _format_exception,
        "format_exception_only": _format_exception_only,
        "print_exception": _print_exception,
    }
    warned = dict.fromkeys(("filterwarnings", "simplefilter", "resetwarnings", "warn"), _nothing)
    urls = Facade("urllib.parse", pick(urllib.parse, _URLS))
    chosen = {
        "choice": _stream.choice,
        "randbelow": _stream.randrange,
        "randbits": _stream.getrandbits,
        "token_hex": lambda nbytes=32: _stream.randbytes(nbytes).hex(),
        "compare_digest": secrets.compare_digest,
    }
    operators = {name: value for name, value in vars(operator).items() if name in _OPERATORS}
    found = {
        "math": whole(math, "math"),
        "cmath": whole(cmath, "cmath"),
        "random": Facade("random", {**pick(_stream, streams), "seed": _reseed, "Random": _make_random}),
        "re": whole(re, "re"),
        "collections": Facade(
            "collections",
            {
                **pick(collections, "Counter defaultdict OrderedDict deque ChainMap"),
                "namedtuple": program_types.namedtuple,
            },
        ),
        "collections.abc": Facade("collections.abc", pick(collections.abc, " ".join(collections.abc.__all__))),
        "itertools": whole(itertools, "itertools"),
        "functools": Facade("functools", {**pick(functools, _FUNCTOOLS), **changing}),
        "operator": Facade("operator", {**operators, "attrgetter": _attrgetter, "methodcaller": _methodcaller}),
        "statistics": whole(statistics, "statistics"),
        "string": Facade("string", {**texts, **pick(string, "capwords Template")}),
        "ast": Facade("ast", {"literal_eval": _literal_eval}),
        "calendar": Facade("calendar", pick(calendar, _CALENDAR)),
        "html": Facade("html", pick(html, "escape unescape")),
        "keyword": Facade("keyword", {"kwlist": list(keyword.kwlist), **pick(keyword, "iskeyword issoftkeyword")}),
        "secrets": Facade("secrets", chosen, {"SystemRandom": "use random.Random"}),
        "shlex": Facade("shlex", pick(shlex, "split quote join")),
        "urllib": Facade("urllib", {"parse": urls}, {"request": "there is no network"}),
        "urllib.parse": urls,
        "dataclasses": Facade("dataclasses", {**pick(dataclasses, _DATACLASSES), "dataclass": _dataclass}),
        "typing": Facade("typing", {**pick(typing, _TYPING), **typed}),
        "enum": Facade("enum", program_types.ENUM),
        "abc": Facade("abc", program_types.ABC_NAMES),
        "types": Facade("types", {"SimpleNamespace": program_types.SimpleNamespace, **pick(types, "NoneType")}),
        "numbers": Facade("numbers", pick(numbers, "Number Complex Real Rational Integral")),
        "pprint": Facade("pprint", {"pprint": _pprint, "pp": _pprint, **pick(pprint, "pformat")}),
        "traceback": Facade("traceback", tracebacks),
        "colorsys": whole(colorsys, "colorsys"),
        "difflib": Facade(
            "difflib", pick(difflib, "SequenceMatcher get_close_matches ndiff unified_diff context_diff Differ")
        ),
        "hashlib": Facade(
            "hashlib", pick(hashlib, "md5 sha1 sha224 sha256 sha384 sha512 sha3_256 sha3_512 blake2b blake2s")
        ),
        "struct": Facade("struct", pick(struct, "pack unpack calcsize iter_unpack error")),
        "unicodedata": Facade("unicodedata", pick(unicodedata, _UNICODE)),
        "uuid": Facade("uuid", {"uuid1": _uuid4, "uuid4": _uuid4, **pick(uuid, "UUID uuid5 NAMESPACE_URL")}),
        "zlib": Facade("zlib", pick(zlib, "crc32 adler32 compress decompress error")),
        "copy": Facade("copy", {"copy": copy.copy, "deepcopy": _deepcopy}),
        "io": Facade("io", pick(io, "BytesIO StringIO UnsupportedOperation SEEK_SET SEEK_CUR SEEK_END")),
        "base64": Facade(
            "base64", pick(base64, "b64encode b64decode urlsafe_b64encode urlsafe_b64decode b32encode b32decode")
        ),
        "textwrap": whole(textwrap, "textwrap"),
        "fractions": Facade("fractions", pick(fractions, "Fraction")),
        "decimal": Facade("decimal", pick(decimal, _DECIMAL)),
        "heapq": whole(heapq, "heapq"),
        "bisect": Facade("bisect", pick(bisect, "bisect bisect_left bisect_right insort insort_left insort_right")),
        "warnings": Facade("warnings", {**warned, "catch_warnings": _CatchWarnings}),
        "__future__": Facade("__future__", {"annotations": None, "division": None, "print_function": None}),
    }
    found["collections"].__dict__["abc"] = found["collections.abc"]
    return found


_OPERATORS = frozenset(
    "itemgetter add sub mul truediv floordiv mod pow neg abs eq ne lt le gt ge and_ or_ xor not_ contains getitem "
    "concat index inv invert lshift rshift matmul is_ is_not truth pos countOf indexOf length_hint".split()
)
_TYPING = (
    "Any List Dict Tuple Set FrozenSet Optional Union Callable Iterable Iterator Sequence Mapping Literal Final "
    "Generator ClassVar Type TypeVar Generic DefaultDict Deque Counter OrderedDict Hashable Annotated NoReturn Self "
    "AbstractSet MutableSet ItemsView KeysView ValuesView Awaitable AsyncIterator AsyncIterable Coroutine "
    "ContextManager Match Pattern IO TextIO BinaryIO AnyStr LiteralString Never SupportsAbs SupportsIndex "
    "SupportsRound TYPE_CHECKING Collection Container Reversible Sized SupportsFloat SupportsInt Text TypeAlias "
    "MutableMapping MutableSequence cast"
)
_UNICODE = "name normalize category lookup numeric digit decimal combining bidirectional decomposition is_normalized"
_URLS = "quote unquote quote_plus unquote_plus urlencode urlparse urlsplit urljoin parse_qs parse_qsl"
_CALENDAR = (
    "isleap leapdays weekday monthrange monthcalendar month calendar day_name day_abbr month_name month_abbr "
    "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY"
)
_DATACLASSES = "FrozenInstanceError field asdict astuple replace fields is_dataclass InitVar KW_ONLY MISSING"
_FUNCTOOLS = "partial reduce lru_cache cache cmp_to_key cached_property partialmethod"
_DECIMAL = (
    "Decimal getcontext localcontext InvalidOperation DivisionByZero ROUND_HALF_UP ROUND_HALF_EVEN ROUND_HALF_DOWN "
    "ROUND_DOWN ROUND_UP ROUND_CEILING ROUND_FLOOR"
)


def make_import(found: dict[str, Facade], elsewhere: Collection[str] = ()) -> Callable[..., Any]:
    """Make the function that the statement `import` calls.

    Args:
        found: The façades by import name.
        elsewhere: Names of modules that another kind of worker offers; a program that names one is sent there.
    """

    def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if type(fromlist) is list:
            # Only C code passes a list, to load a module for itself; programs never see the module.
            return sys.modules[name]
        if level or name not in found:
            root = name.partition(".")[0]
            names = sorted({*(n for n in found if "." not in n), *elsewhere})
            if root in found and any(n.startswith(f"{root}.") for n in found):
                names = sorted(n for n in found if n.partition(".")[0] == root)
            known = root in found or root in elsewhere
            instead = INSTEAD.get(root, "") if not known else ""
            instead = instead or f"available are {', '.join(names)}"
            raise RefusedImport(f"the module {name!r} is not available here: {instead}.")
        module = found[name]
        for wanted in fromlist or ():
            if not hasattr(module, wanted):
                raise RefusedImport(_missing(module, wanted))
        return module if fromlist else found[name.partition(".")[0]]

    return import_


def _missing(module: Facade, wanted: str) -> str:
    try:
        getattr(module, wanted)
    except AttributeError as error:
        return str(error)
    return f"{wanted!r} is not available here"
