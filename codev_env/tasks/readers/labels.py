"""Columns of class labels: numbers in an Arrow schema whose names `datasets` keeps in the schema's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class Labels:
    """Puts the names of labels in the place of their numbers, at any depth of a column."""

    def __init__(self, schema: Any) -> None:
        """Take an Arrow schema."""
        stored = (schema.metadata or {}).get(b"huggingface", b"{}")
        try:
            features = json.loads(stored)["info"]["features"]
        except (ValueError, KeyError, TypeError):
            features = {}
        self._features = {name: feature for name, feature in features.items() if '"ClassLabel"' in json.dumps(feature)}

    def named(self, column: str, value: Any) -> Any:
        """Return a value of a column; `"a.b"` is field `b` of column `a`."""
        name, *inner = [column] if column in self._features else column.split(".")
        feature = self._features.get(name)
        for part in inner:
            feature = feature.get(part) if isinstance(feature, Mapping) else None
        return value if feature is None else _named(value, feature)

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row."""
        return {name: self.named(name, value) if self._features else value for name, value in row.items()}


def _named(value: Any, feature: Any) -> Any:
    if isinstance(feature, list):  # how older versions write lists
        feature = {"feature": feature[0], "_type": "List"}
    if not isinstance(feature, Mapping):
        return value
    kind = feature.get("_type")
    if kind == "ClassLabel" and isinstance(value, int):
        names = feature.get("names") or ()
        # -1 stands for a label that is not known.
        return names[value] if 0 <= value < len(names) else None if value == -1 else value
    if kind in ("Sequence", "List", "LargeList") and isinstance(value, list):
        return [_named(entry, feature.get("feature")) for entry in value]
    if kind == "Sequence" and isinstance(value, Mapping):  # of mappings, stored as a mapping of lists
        inner = feature.get("feature")
        listed = {name: [one] for name, one in inner.items()} if isinstance(inner, Mapping) else {}
        return {name: _named(entry, listed.get(name)) for name, entry in value.items()}
    if isinstance(value, Mapping):
        return {name: _named(entry, feature.get(name)) for name, entry in value.items()}
    return value
