"""Hugging Face data sets as tables, saved on disk or from the hub; needs `datasets`."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from codev_env.errors import TaskError
from codev_env.tasks.readers.cells import import_optional
from codev_env.tasks.readers.files import SPLIT_NAMES
from codev_env.tasks.readers.labels import Labels
from codev_env.tasks.readers.parquet import has_field
from codev_env.tasks.readers.table import RowTable, file_state


class ArrowTable(RowTable):
    """The rows of a `datasets.Dataset`, whose files are mapped into memory; images are not decoded by `datasets`."""

    def __init__(self, dataset: Any, source: str, folder: Path) -> None:
        """Take a data set.

        Args:
            dataset: A `datasets.Dataset`.
            source: Its name in errors.
            folder: Folder of relative image paths.
        """
        self.source = source
        self._folder = folder
        self._dataset = dataset.with_format("arrow")
        self._schema = dataset.features.arrow_schema
        self._labels = Labels(self._schema)
        self.columns = tuple(dataset.column_names)
        files = [Path(entry["filename"]) for entry in dataset.cache_files]
        states = tuple((str(file), *file_state(file)) for file in files)
        # Selections of one data set have the same files, and data in memory has none.
        self.signature = (source, dataset._fingerprint if states else uuid.uuid4().hex, states)

    @classmethod
    def saved(cls, path: Path, split: str) -> ArrowTable:
        """Open a folder that `save_to_disk` wrote: one data set, which serves any split, or several by split."""
        datasets = import_optional("datasets", "datasets", f"{path} was saved by the package datasets and")
        try:
            found = datasets.load_from_disk(str(path))
        except Exception as error:  # damaged files raise errors of any type
            raise TaskError(f"{path}: cannot be read by datasets ({_short(error)}).") from error
        if hasattr(found, "column_names") and not isinstance(found, dict):
            return cls(found, str(path), path)
        return cls(found[split_name(str(path), split, list(found))], f"{path}, split {split}", path)

    @classmethod
    def from_hub(cls, name: str, split: str, config: str | None) -> ArrowTable:
        """Load a data set of the hub, from its cache where there is no network."""
        datasets = import_optional("datasets", "datasets", f"There is no path {name}; reading it from the hub")
        try:
            found = datasets.load_dataset(name, config)
        except Exception as error:  # errors of the network, the hub and the files are of any type
            raise TaskError(
                f"{name}: there is no such path, and as a data set of the hub it could not be loaded "
                f"({_short(error)}). Check the name and the network, or give the path of a local copy."
            ) from error
        return cls(found[split_name(name, split, list(found))], f"{name}, split {split}", Path())

    def __len__(self) -> int:
        return len(self._dataset)

    def where(self, index: int) -> str:
        """Return data set and row; rows count from 0."""
        return f"{self.source}, row {index}"

    def folder(self, index: int) -> Path:
        """Return the folder of relative image paths."""
        return self._folder

    def has(self, column: str) -> bool:
        """Return whether there is a column, or a field of a struct column."""
        return has_field(self._schema, column)

    def values(self, column: str) -> list[Any]:
        """Read one column, or one field of a struct column, of all rows."""
        import pyarrow.compute as pc

        if not self.has(column):
            return [None] * len(self)
        name, *inner = column.split(".")
        read = self._dataset.select_columns([name])[:].column(name)
        for part in inner:
            read = pc.struct_field(read, part)
        return [self._labels.named(column, value) for value in read.to_pylist()]

    def row(self, index: int) -> dict[str, Any]:
        """Read one row."""
        return self._labels.row(self._dataset[index : index + 1].to_pylist()[0])


def split_name(source: str, split: str, known: list[str]) -> str:
    """Return the name that a data set gives to a split."""
    for name in (split, *SPLIT_NAMES.get(split, ())):
        if name in known:
            return name
    raise TaskError(f"{source}: has no split {split!r}; it has {', '.join(map(repr, known))}.")


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0]}"
