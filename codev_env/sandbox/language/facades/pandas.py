"""pandas as programs see it, if installed: tables in memory and in the episode's files, in a closed library."""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
import posixpath
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from codev_env.sandbox.language import closed, guards, reviewed, state
from codev_env.sandbox.language.facade import Facade, pick
from codev_env.sandbox.language.facades import buffers
from codev_env.sandbox.language.facades.files import open_file
from codev_env.sandbox.language.refusals import RefusedCall
from codev_env.sandbox.language.streams import BytesFile, TextFile

_arrow = sys.modules.get("pyarrow")
try:
    sys.modules["pyarrow"] = None  # type: ignore[assignment]  # pandas would use it, with its threads and memory
    import pandas

    from codev_env.sandbox.language.facades import pandas_methods, pandas_options, pandas_query
except ImportError:
    pandas = None
finally:
    del sys.modules["pyarrow"]
    if _arrow is not None:
        sys.modules["pyarrow"] = _arrow

_FUNCTIONS = (
    "bdate_range concat crosstab cut date_range factorize from_dummies get_dummies interval_range isna isnull "
    "json_normalize lreshape melt merge merge_asof merge_ordered notna notnull period_range pivot pivot_table qcut "
    "timedelta_range to_numeric to_timedelta unique wide_to_long"
)
_CLASSES = (
    "BooleanDtype Categorical CategoricalDtype CategoricalIndex DataFrame DateOffset DatetimeIndex Float32Dtype "
    "Float64Dtype Grouper Index Int16Dtype Int32Dtype Int64Dtype Int8Dtype Interval IntervalDtype IntervalIndex "
    "MultiIndex Period PeriodIndex RangeIndex Series StringDtype Timedelta TimedeltaIndex UInt16Dtype UInt32Dtype "
    "UInt64Dtype UInt8Dtype"
)
_INNER = (
    "api.typing.DataFrameGroupBy api.typing.SeriesGroupBy api.typing.Rolling api.typing.Expanding api.typing.NAType "
    "api.typing.ExponentialMovingWindow api.typing.FrozenList api.typing.NaTType core.strings.accessor.StringMethods "
    "core.indexes.accessors.DatetimeProperties core.indexes.accessors.TimedeltaProperties "
    "core.indexes.accessors.PeriodProperties core.arrays.categorical.CategoricalAccessor Timestamp "
    "core.resample.DatetimeIndexResampler core.arrays.string_.StringArray core.arrays.integer.IntegerArray "
    "core.arrays.floating.FloatingArray core.arrays.boolean.BooleanArray core.indexing._LocIndexer "
    "core.indexing._iLocIndexer core.indexing._AtIndexer core.indexing._iAtIndexer"
)
"""Classes that programs meet and do not name."""

_TEXT = "use print(df.to_string())"
_DRAW = "draw with matplotlib.pyplot, for example plt.bar(df['a'], df['b'])"
_SELECT = "select rows with a condition, for example df[df['a'] > 1]"
_HINTS = {
    **dict.fromkeys(("style", "to_latex", "to_markdown"), _TEXT),
    **dict.fromkeys(("plot", "hist", "boxplot", "plotting"), _DRAW),
    "eval": _SELECT,
    **dict.fromkeys(
        ("to_pickle", "read_pickle", "to_excel", "read_excel"), "use df.to_csv(name) and pd.read_csv(name)"
    ),
    **dict.fromkeys(("read_html", "read_sql", "read_xml", "read_clipboard"), "use pd.read_csv(name) or pd.read_json"),
    **dict.fromkeys(("api", "core", "io"), "use the names of pandas itself"),
    "arrays": "use pd.Series(values, dtype=...)",
    "array": "use values or to_numpy()",
    "col": "use a function, for example lambda df: df['a']",
    "indices": "use groups",
    "to_records": "use to_numpy() or itertuples()",
}
_READ = frozenset(
    "sep delimiter header names index_col usecols dtype converters true_values false_values skipinitialspace skiprows "
    "skipfooter nrows na_values keep_default_na na_filter skip_blank_lines parse_dates date_format dayfirst thousands "
    "decimal lineterminator quotechar quoting doublequote escapechar comment encoding on_bad_lines low_memory engine "
    "chunksize".split()
)
_READ_JSON = frozenset(
    "orient typ dtype convert_axes convert_dates keep_default_dates precise_float lines nrows".split()
)
_WRITE_CSV = frozenset(
    "sep na_rep float_format columns header index index_label encoding quoting quotechar lineterminator date_format "
    "doublequote escapechar decimal mode".split()
)
_WRITE_JSON = frozenset(
    "orient date_format double_precision force_ascii date_unit default_handler lines index indent".split()
)
_SHOWN = frozenset(
    "columns col_space header index na_rep formatters float_format sparsify index_names justify max_rows max_cols "
    "show_dimensions decimal line_width min_rows max_colwidth border bold_rows escape name dtype length".split()
)


def _source(place: Any) -> io.StringIO | io.BytesIO:
    """The text or bytes that a reader reads: of a file of the episode, or of a buffer."""
    data: str | bytes
    if type(place) in (io.StringIO, io.BytesIO) or isinstance(place, TextFile | BytesFile):
        data = place.read()
    elif isinstance(place, str | PurePath):
        data = open_file(place, "rb").read()
    else:
        raise RefusedCall(f"pandas reads file names and io.StringIO here, not {type(place).__name__}.")
    return io.StringIO(data) if isinstance(data, str) else io.BytesIO(data)


def _only(name: str, allowed: frozenset[str], options: dict[str, Any]) -> dict[str, Any]:
    for key in options.keys() - allowed:
        raise RefusedCall(f"{name}() does not take {key!r} here: leave it out.")
    return options


def _reader(name: str, allowed: frozenset[str]) -> Callable[..., Any]:
    def read(place: Any, *args: Any, **options: Any) -> Any:
        if len(args) == 1 and name != "read_json":
            options["sep"], args = args[0], ()
        if args:
            raise RefusedCall(f"{name}() takes its options by name here, for example sep=','.")
        if options.get("engine") not in (None, "c", "python"):
            raise RefusedCall(f"{name}() has the engines 'c' and 'python' here.")
        return getattr(pandas, name)(_source(place), **_only(name, allowed, options))

    read.__name__ = read.__qualname__ = name
    return read


def _writer(name: str, allowed: frozenset[str]) -> Callable[[Any], Callable[..., Any]]:
    """A method that writes text to a file of the episode or a buffer, or returns it."""

    def bind(frame: Any) -> Callable[..., Any]:
        def write(buf: Any = None, *args: Any, **options: Any) -> Any:
            buf = options.pop("path_or_buf", options.pop("buf", buf))
            if args and name == "to_csv":
                options["sep"], args = args[0], args[1:]
            if args:
                raise RefusedCall(f"{name}() takes its options by name here.")
            mode = options.pop("mode", "w")
            text = getattr(frame, name)(None, **{k: closed.plain(v) for k, v in _only(name, allowed, options).items()})
            if buf is None:
                return text
            if isinstance(buf, str | PurePath):
                with open_file(buf, mode if mode in ("w", "a", "x") else "w", newline="") as file:
                    file.write(text)
            else:
                guards.guarded_getattr(buf, "write")(text)
            return None

        write.__name__ = write.__qualname__ = name
        return write

    return bind


def _info(frame: Any) -> Callable[..., None]:
    """`df.info()`, into the run's text."""

    def info(
        verbose: Any = None, buf: Any = None, max_cols: Any = None, memory_usage: Any = None, **other: Any
    ) -> None:
        text = io.StringIO()
        frame.info(verbose, text, max_cols, memory_usage, **_only("info", frozenset({"show_counts"}), other))
        guards.guarded_getattr(state.current().stdout if buf is None else buf, "write")(text.getvalue())

    return info


def _labels(obj: Any) -> Any:
    """Columns of a frame and labels of a series, which are attributes too."""
    if isinstance(obj, pandas.Series):
        return obj.index if obj.index.is_unique else ()
    if isinstance(obj, pandas.DataFrame):
        return obj.columns
    selected = getattr(obj, "_selected_obj", None)
    return selected.columns if isinstance(selected, pandas.DataFrame) else ()


def _verified(*args: Any, **kwargs: Any) -> Any:
    """`pd.MultiIndex`, which checks its codes."""
    if len(args) > 3:
        raise RefusedCall("pd.MultiIndex() takes its options by name here.")
    return pandas.MultiIndex(*args, **{**kwargs, "verify_integrity": True})


def _moment(value: Any) -> Any:
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("now", "today"):
        return value
    return pandas.Timestamp.fromtimestamp(int(state.current().clock.now()))


def _timestamp(*args: Any, **kwargs: Any) -> Any:
    """`pd.Timestamp`, whose "now" is that of the run's clock."""
    return pandas.Timestamp(*map(_moment, args), **kwargs)


def _to_datetime(arg: Any, *args: Any, **kwargs: Any) -> Any:
    """`pd.to_datetime`, whose "now" is that of the run's clock."""
    return pandas.to_datetime(_moment(arg), *args, **kwargs)


def _now(_cls: Any) -> Callable[..., Any]:
    return lambda tz=None: pandas.Timestamp.fromtimestamp(state.current().clock.now(), tz)


def _now_as_period(_cls: Any) -> Callable[..., Any]:
    return lambda freq: _now(None)().to_period(freq)


def seed(_value: int, used: bool) -> None:
    """Undo what the last run set."""
    if pandas is not None and used:
        pandas_options.reset()


def warm() -> None:
    """Use once what pandas loads lazily."""
    if pandas is None:
        return
    buffers.trust(f"{posixpath.dirname(pandas.__file__)}/")
    for package in map(
        importlib.import_module, ("pandas.core", "pandas.io.formats", "pandas.io.json", "pandas.io.parsers")
    ):
        for _finder, name, _is_package in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ImportError):  # some need packages that are not installed
                importlib.import_module(name)
    frame = pandas.DataFrame({"a": [1, 2, 3, 4], "b": ["x", "y", "x", "y"], "c": [0.5, 1.5, 2.5, None]})
    frame["d"] = pandas.to_datetime(["2024-01-01", "2024-01-02", "2024-02-01", "2024-02-03"])
    for text in (frame.to_string(), frame.describe(), frame.to_csv(), frame.to_json(), frame.to_html(), frame.dtypes):
        str(text)
    frame.info(buf=io.StringIO())
    pandas.read_csv(io.StringIO(frame.to_csv(index=False)), parse_dates=["d"])
    pandas.read_csv(io.StringIO("a b\n1 2"), sep=r"\s+", engine="python")
    pandas.read_json(io.StringIO(frame.to_json()))
    frame.groupby("b").agg({"a": ["sum", "mean"], "c": "max"})
    frame.pivot_table(index="b", values="a", aggfunc="mean")
    frame.merge(frame, on="b").sort_values("a_x").drop_duplicates().melt()
    frame.set_index("d").resample("ME").mean(numeric_only=True).interpolate()
    frame["a"].rolling(2).mean().corr(frame["c"])
    pandas.cut(frame["a"], 2).astype("category").cat.codes.value_counts()
    frame["b"].str.upper().str.extract("(X)")
    frame["d"].dt.strftime("%Y-%m").astype("string")
    frame["a"].astype("Int64").sum()
    pandas.get_dummies(frame["b"]).corr().round(1)


def modules() -> dict[str, Facade]:
    """The façades by import name; empty where pandas is not installed."""
    if pandas is None:
        return {}
    pandas_methods.tighten()
    table = reviewed.read("pandas")
    library = closed.ClosedLibrary(table.classes, table.hidden, _HINTS, labels=_labels)
    closed.close("pandas", library)
    frames: tuple[type, ...] = (pandas.DataFrame, pandas.Series)
    for name, allowed in (("to_csv", _WRITE_CSV), ("to_json", _WRITE_JSON), ("to_string", _SHOWN), ("to_html", _SHOWN)):
        guards.handle(frames if name != "to_html" else frames[:1], name, _writer(name, allowed))
    guards.handle(frames, "info", _info)
    guards.handle(frames[:1], "query", pandas_query.query)
    guards.handle(frames[:1], "eval", pandas_query.evaluate)
    for name in ("now", "today", "utcnow"):
        guards.handle_class((pandas.Timestamp,), name, _now)
    guards.handle_class((pandas.Period,), "now", _now_as_period)
    guards.handle(frames, "attrs", lambda frame: frame.attrs)  # the program's own dict
    guards.allow_setting(pandas.DataFrame, "columns", "index")
    guards.allow_setting(pandas.Series, "index", "name")
    guards.allow_setting(pandas.Index, "name", "names")
    guards.allow_items(*frames, *(type(getattr(pandas.Series([1]), name)) for name in ("loc", "iloc", "at", "iat")))
    guards.allow_items(pandas.Categorical)
    pandas_options.allow_setting()
    names: dict[str, Any] = {name: library.guarded(value) for name, value in pick(pandas, _FUNCTIONS).items()}
    names.update({name: closed.offer(value) for name, value in pick(pandas, _CLASSES).items()})
    names.update(
        MultiIndex=closed.offer(pandas.MultiIndex, _verified),
        Timestamp=closed.offer(pandas.Timestamp, _timestamp),
        to_datetime=library.guarded(_to_datetime),
        read_csv=library.guarded(_reader("read_csv", _READ)),
        read_table=library.guarded(_reader("read_table", _READ)),
        read_json=library.guarded(_reader("read_json", _READ_JSON)),
        **pandas_options.NAMES,
        **pick(pandas, "NA NaT NamedAgg IndexSlice __version__"),
    )
    errors = {name: value for name, value in vars(pandas.errors).items() if _is_error(value)}
    types = importlib.import_module("pandas.api.types")
    kinds = {name: library.guarded(getattr(types, name)) for name in dir(types) if name.startswith("is_")}
    kinds.update(infer_dtype=library.guarded(types.infer_dtype), CategoricalDtype=names["CategoricalDtype"])
    found = {
        "pandas": Facade("pandas", names, _HINTS),
        "pandas.errors": Facade("pandas.errors", errors),
        "pandas.api": Facade("pandas.api", {}, {"extensions": "use functions on tables"}),
        "pandas.api.types": Facade("pandas.api.types", kinds),
    }
    found["pandas"].__dict__.update(errors=found["pandas.errors"], api=found["pandas.api"])
    found["pandas.api"].__dict__["types"] = found["pandas.api.types"]
    return found


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def classes() -> list[type]:
    """The classes that the table lists: those that programs name, and those that they meet."""
    met = []
    for path in _INNER.split():
        module, _dot, name = f"pandas.{path}".rpartition(".")
        with contextlib.suppress(ImportError, AttributeError):
            met.append(getattr(importlib.import_module(module), name))
    return [value for value in pick(pandas, _CLASSES).values()] + met
