"""`codev`, but the first prompts of some tasks are too long; `test_train_long_prompts.py` starts it in two processes.

The first argument names the tasks: `half` of them, or all of `rank1`. The others are those of `codev`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from codev_agents.rollout.tokens import ChatProcessor, PixelBlock
from codev_env.app.cli import main

FILLER = 4000
"""Tokens that are added."""


def half(images: Sequence[PixelBlock]) -> bool:
    """Whether a task, known by its image, is among those whose prompts are made long. A prompt without one is not."""
    return bool(images) and int(images[0].values.abs().sum()) % 2 == 1


def lengthened(is_long: Callable[[Sequence[PixelBlock]], bool]) -> Callable[..., list[int]]:
    """Return a replacement of `ChatProcessor.prompt`."""
    plain = ChatProcessor.prompt

    def prompt(self: Any, system: str, text: str, images: Sequence[PixelBlock]) -> list[int]:
        return plain(self, system, text, images) + self.encode("a")[:1] * FILLER * is_long(images)

    return prompt


if __name__ == "__main__":
    which = {"half": half, "rank1": lambda images: os.environ["RANK"] == "1"}[sys.argv[1]]
    ChatProcessor.prompt = lengthened(which)  # type: ignore[method-assign]
    sys.exit(main(sys.argv[2:]))
