"""Seeds of random numbers by the names of tasks: the same in any order of episodes, process and machine."""

from __future__ import annotations

import zlib


def seed_of(name: str) -> int:
    """Return a number of 32 bits for a name, which may hold half a character (a lone surrogate)."""
    return zlib.crc32(name.encode(errors="surrogatepass"))
