"""Changes pandas, in a worker, where data names attributes, and where it gives away arrays that it trusts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas

from codev_env.sandbox.language.refusals import RefusedCall

_BY_NAME = frozenset(
    "abs all any bfill ceil corr count cov cumcount cummax cummin cumprod cumsum describe diff exp ffill first floor "
    "idxmax idxmin kurt last log log10 log1p log2 max mean median min mode ngroup nunique ohlc pct_change prod product "
    "quantile rank round sem shift size skew sqrt std sum unique value_counts var nth head tail isna notna "
    "square sign first_valid_index last_valid_index".split()
)
"""Functions that may be named by text, as in `df.agg("mean")`: pandas reads any attribute, or NumPy's, of that name."""

_NAMING = ("agg", "aggregate", "apply", "transform")


def tighten() -> None:
    """Prevent pandas, in this process, from reading attributes that data names, and from giving its own arrays away."""
    from pandas.core.arrays import DatetimeArray, NumpyExtensionArray, PeriodArray, TimedeltaArray
    from pandas.core.generic import NDFrame
    from pandas.core.groupby import DataFrameGroupBy, SeriesGroupBy
    from pandas.core.resample import Resampler
    from pandas.core.reshape import pivot
    from pandas.core.window.rolling import BaseWindow

    families = (pandas.DataFrame, pandas.Series, DataFrameGroupBy, SeriesGroupBy, Resampler, BaseWindow)
    for family in families:
        for kind in (family, *_below(family)):
            for name in _NAMING:
                if name in vars(kind):
                    setattr(kind, name, _naming(vars(kind)[name]))
    for kind in (pandas.DataFrame, pandas.Series, NDFrame):
        for name in ("groupby", "resample", "rolling", "expanding", "ewm"):
            if name in vars(kind):
                setattr(kind, name, _on_copy(vars(kind)[name]))
    pandas.DataFrame.pivot_table = _pivoting(pandas.DataFrame.pivot_table)
    for name in ("pivot_table", "crosstab"):
        setattr(pandas, name, _pivoting(getattr(pandas, name)))
    pivot.pivot_table = pandas.pivot_table
    find = NDFrame.__getattr__

    def find_named(self: Any, name: str) -> Any:
        # NumPy believes `__array_interface__`, which may be a label here.
        if name.startswith("__"):
            raise AttributeError(name)
        return find(self, name)

    NDFrame.__getattr__ = find_named
    for array in (pandas.Index, DatetimeArray, TimedeltaArray, PeriodArray, NumpyExtensionArray):
        array.__array__ = _of_memory_of_its_own(array.__array__)


def _below(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        yield child
        yield from _below(child)


def _named(function: Any) -> Any:
    """A function given to `agg` and the like, or several: those that are texts must be known."""
    if type(function) in (list, tuple):
        return type(function)(map(_named, function))
    if type(function) is dict:
        return {key: _named(one) for key, one in function.items()}
    if isinstance(function, str):
        if type(function) is not str or function not in _BY_NAME:
            raise RefusedCall(
                f"pandas takes no function named {str.__str__(function)!r} here: give the function itself."
            )
        return function
    if function is None or callable(function):
        return function
    raise RefusedCall(f"pandas takes functions and their names here, not {type(function).__name__}.")


def _naming(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of pandas that takes functions, without the way from any text to an attribute of that name."""

    @functools.wraps(method)
    def checked(self: Any, func: Any = None, *args: Any, **kwargs: Any) -> Any:
        if func is None:
            return method(self, *args, **{key: _named_column(value) for key, value in kwargs.items()})
        return method(self, _named(func), *args, **kwargs)

    return checked


def _named_column(value: Any) -> Any:
    """The column and function of a column of `df.agg(new=(column, function))`, or the function alone."""
    if isinstance(value, pandas.NamedAgg):
        return pandas.NamedAgg(value.column, _named(value.aggfunc))
    if type(value) is tuple and len(value) == 2:
        return (value[0], _named(value[1]))
    return value if isinstance(value, int) else _named(value)


def _pivoting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if "aggfunc" in kwargs:
            kwargs["aggfunc"] = _named(kwargs["aggfunc"])
        if len(args) > 4:
            raise RefusedCall("the options are given by name here, for example aggfunc='mean'.")
        return function(*args, **kwargs)

    return checked


def _on_copy(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose result keeps the table: a shallow copy, since a program may change the length of its own."""

    @functools.wraps(method)
    def kept(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self.copy(deep=False), *args, **kwargs)

    return kept


def _of_memory_of_its_own(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def copied(self: Any, *args: Any, **kwargs: Any) -> Any:
        return np.array(method(self, *args, **kwargs))

    return copied
