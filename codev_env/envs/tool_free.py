"""A dialect without its tool, for the accuracy that a model has by itself."""

from __future__ import annotations

from codev_env.dialects import Dialect
from codev_env.types import Answer, Box, Code, Execution, Invalid, Task, Turn

_NO_TOOL = "there are no tools here, so no code runs"


class ToolFree(Dialect):
    """A dialect without its tool: the same questions and answers, but code is not a valid turn.

    Args:
        inner: The dialect whose markup it keeps.
    """

    name = "tool-free"
    stop = ()

    def __init__(self, inner: Dialect) -> None:
        self.inner = inner
        for attribute in ("name", "stop", "persist", "repairs", "observation_role", "least_side", "croppable"):
            setattr(self, attribute, getattr(inner, attribute))

    def system_prompt(self) -> str:
        """Say that there are no tools, and show what an answer looks like in the dialect's markup."""
        example = self.inner.write(Answer("your answer"), think="your reasoning")
        return (
            f"You answer questions about an image. There are no tools: look, think, then answer, like this:\n{example}"
        )

    def first_message(self, task: Task) -> str:
        """Return the dialect's own first message."""
        return self.inner.first_message(task)

    def image_name(self, index: int) -> str:
        """Return the dialect's own name."""
        return self.inner.image_name(index)

    def parse(self, text: str) -> Turn:
        """Read a turn; code is invalid."""
        turn = self.inner.parse(text)
        return Invalid(_NO_TOOL, turn.problems) if isinstance(turn, Code) else turn

    def write(self, turn: Code | Answer, think: str = "") -> str:
        """Write a turn in the dialect's markup."""
        return self.inner.write(turn, think)

    def render(self, execution: Execution, images: int) -> str:
        """Return the dialect's own text."""
        return self.inner.render(execution, images)

    def invalid(self, reason: str) -> str:
        """Return the dialect's own text."""
        return self.inner.invalid(reason)

    def crop(self, box: Box, image_index: int = 0) -> Code:
        """Return the dialect's own crop, which then is invalid."""
        return self.inner.crop(box, image_index)
