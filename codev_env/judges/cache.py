"""Verdicts of a vision-language judge on disk."""

from __future__ import annotations

from dataclasses import asdict

from codev_env.chat_model import JsonCache
from codev_env.judges.rubrics import Verdict, verdict_of


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
