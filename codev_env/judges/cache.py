"""Verdicts on disk, by what was asked: one small file each, which several processes may share."""

from __future__ import annotations

import json
import os
import threading
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from codev_env.judges.rubrics import Verdict, verdict_of


class JsonCache:
    """Keeps JSON values in a folder.

    A file appears complete or not at all, so a killed process leaves nothing that could be misread. A disk that is full
    or cannot be written costs requests and one warning, never a score.

    Args:
        folder: Is made with the first value.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser()
        self._warned = False

    def read(self, key: str) -> Any:
        """Return the value kept for a key, a hexadecimal digest, or `None` where there is none or it cannot be read."""
        try:
            return json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, key: str, value: Any) -> None:
        """Keep a value."""
        path = self._path(key)
        draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_text(json.dumps(value), encoding="utf-8")
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"verdicts cannot be kept in {self.folder} ({error}); it goes on without.",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"


class VerdictCache(JsonCache):
    """Keeps the verdicts of a vision-language judge; a file that holds anything else counts as missing."""

    def get(self, key: str) -> Verdict | None:
        """Return the verdict kept for a key, or `None`."""
        try:
            return verdict_of(self.read(key))
        except ValueError:
            return None

    def put(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict."""
        self.write(key, asdict(verdict))
