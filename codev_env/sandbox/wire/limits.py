"""The limits of a sandboxed program, checked on construction, and the repairs that may be made to it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from codev_env.errors import ConfigError

REPAIRS = ("indentation", "paths", "imports")
"""Repairs that may be made to programs.

`indentation`: a block indented as a whole, or all but its first line, and commands of notebooks; `paths`: a path to a
file that exists by its bare name, or a path to save to; `imports`: a module of `repairs.IMPORTS` that is used without
an import.
"""

NAME_CHARS = 100
"""Characters of the longest file name."""

DATA_BYTES = 2 << 20
"""Bytes of the files of an episode that are no images, together: they travel in messages."""

FOLDERS = "\u200bfolders"
"""Name of the file of an episode that keeps the folders made; programs cannot write it, and it is not counted."""

_NOT_BARE = re.compile(r"[/\\\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]|\A\.{0,2}\Z")

MOST_REPAIRS = 20
"""Repairs that one run reports."""

MOST_CUTS = 64
"""Cuts that one run reports."""

REPAIR_CHARS = 300
"""Characters of one reported repair."""

_MOST = {"wall_s": 1e6, "output_chars": 100_000, "error_chars": 20_000, "code_chars": 300_000, "files": 500}
"""Upper bounds: of waiting times, and of parts of a message, which must fit into it in their longest encoding."""


def is_bare_name(name: object) -> bool:
    """Return whether this is a file name without a folder or a control character."""
    return isinstance(name, str) and len(name) <= NAME_CHARS and not _NOT_BARE.search(name)


@dataclass(frozen=True)
class Limits:
    """Resource limits of one program, and of one episode.

    Attributes:
        wall_s: Wall-clock seconds of one run; then the worker is killed. Three times as many if it has used less than
            half of them as processor time, and in other views than `"main"`.
        cpu_s: CPU seconds of one run, as the kernel counts them (whole seconds); a backstop behind `wall_s`.
        memory_mb: MiB that a worker may allocate on top of its size at the start of the episode.
        output_chars: Characters of printed text kept of one run.
        error_chars: Characters of an error message.
        images: Images one run may hand over.
        image_pixels: Pixels of one handed-over or saved image.
        aspect: Longer side over shorter side of a handed-over image.
        files: Files an episode may save.
        files_mb: MiB of pixels that the files of an episode and the images of one run may take together.
        code_chars: Characters of one program.
        code_depth: Nesting depth of one program's syntax tree.
        code_nodes: Nodes of one program's syntax tree.
    """

    wall_s: float = 5.0
    cpu_s: int = 10
    memory_mb: int = 1024
    output_chars: int = 10_000
    error_chars: int = 2_000
    images: int = 5
    image_pixels: int = 33_554_432
    aspect: float = 100.0
    files: int = 64
    files_mb: int = 512
    code_chars: int = 20_000
    code_depth: int = 150
    code_nodes: int = 20_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 < value < 1e12:
                raise ConfigError(f"limits.{field.name}={value!r}: a number above 0 is needed.")
            if field.type == "int" and not isinstance(value, int):
                raise ConfigError(f"limits.{field.name}={value!r}: a whole number is needed.")
        for name, most in _MOST.items():
            if getattr(self, name) > most:
                raise ConfigError(f"limits.{name}={getattr(self, name)}: at most {most:g} is possible.")
        if self.aspect < 1:
            raise ConfigError(f"limits.aspect={self.aspect}: at least 1 is needed, which allows squares.")
        if self.memory_mb < 64:
            raise ConfigError(f"limits.memory_mb={self.memory_mb}: at least 64 MiB are needed to crop a photograph.")

    def to_json(self) -> dict[str, Any]:
        """The limits as a JSON-able dict; `Limits(**d)` restores them."""
        return asdict(self)
