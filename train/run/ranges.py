"""Ranges of options, and names that they allow."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # as far as NumPy's oldest generator takes one
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]


def _is_folder_name(name: str) -> str:
    if name in ("", ".", "..") or set(name) & {"/", "\\", "\0"}:
        raise ValueError("the name of one folder inside --out: no separators, no '..'")
    return name


FolderName = Annotated[str, AfterValidator(_is_folder_name)]


def _is_certain_data(data: str) -> str:
    if data == "auto":
        raise ValueError("synthetic, hub or a path: 'auto' leaves the evaluation data ambiguous")
    return data


Data = Annotated[str, AfterValidator(_is_certain_data)]
