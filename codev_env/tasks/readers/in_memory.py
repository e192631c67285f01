"""Rows that are in memory already: a list of mappings, a data frame of pandas or polars, a `datasets.Dataset`."""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codev_env.errors import ConfigError, TaskError
from codev_env.tasks.readers.arrow import ArrowTable, split_name
from codev_env.tasks.readers.fields import brief
from codev_env.tasks.readers.table import ListTable, RowTable

KINDS = "a list of dicts, a DataFrame of pandas or polars, or a datasets.Dataset"


def table_in_memory(rows: object, split: str) -> RowTable:
    """Return rows in memory as a table; NumPy's arrays and numbers in them become lists and numbers of Python.

    Args:
        rows: A sequence of mappings, a `DataFrame` of pandas or polars, a `datasets.Dataset`, or a
            `datasets.DatasetDict`.
        split: The split to take of a `DatasetDict`; the others serve any split.

    Raises:
        ConfigError: An object of another kind.
        TaskError: No rows, an entry that is no mapping, or a split that is not there.
    """
    # These packages are optional. An object of theirs exists only where they are imported.
    datasets, pandas, polars = map(sys.modules.get, ("datasets", "pandas", "polars"))
    if datasets is not None and isinstance(rows, datasets.DatasetDict):
        rows = rows[split_name("the DatasetDict", split, list(rows))]
    if datasets is not None and isinstance(rows, datasets.Dataset):
        return ArrowTable(rows, "the Dataset", Path())
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        filled = rows.astype(object)
        rows = filled.where(filled.notna(), None).to_dict("records")
    if polars is not None and isinstance(rows, polars.DataFrame):
        rows = rows.to_dicts()
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise ConfigError(f"data is a {type(rows).__name__}; give a path, {KINDS}, or a TaskSet.")
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TaskError(f"row {number} of the data is {brief(row)}; expected a mapping of columns to values.")
    if not rows:
        raise TaskError("the data has no rows; give at least one.")
    entries: list[Mapping[str, Any]] = [{str(name): _cell(value) for name, value in row.items()} for row in rows]
    table = ListTable("the data", entries, [f"row {number} of the data" for number in range(len(entries))], Path())
    table.signature = ("in memory", uuid.uuid4().hex)  # Another list may later lie at the same address.
    return table


def _cell(value: Any) -> Any:
    """Return a cell as files would have it: `None` where it is missing, which data frames write as NaN."""
    value = _without_numpy(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def _without_numpy(value: Any) -> Any:
    """Return a value with lists and numbers of Python for NumPy's, at any depth; pixels stay an array."""
    if isinstance(value, np.ndarray) and value.ndim < 3:  # pandas nests arrays of objects, one dimension each
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list):
        return [_without_numpy(entry) for entry in value]
    if isinstance(value, tuple):
        return tuple(map(_without_numpy, value))
    if isinstance(value, Mapping):
        return {key: _without_numpy(entry) for key, entry in value.items()}
    pandas = sys.modules.get("pandas")
    return None if pandas is not None and (value is pandas.NA or value is pandas.NaT) else value
