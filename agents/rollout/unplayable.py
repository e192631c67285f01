"""Tasks of which no episode can begin: what is wrong with them, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass

from codev_env.errors import AgentError, TaskError


class PromptTooLong(AgentError):
    """The first prompt of a task leaves no room for an answer.

    Attributes:
        task_id: Name of the task.
        tokens: Length of the prompt.
    """

    def __init__(self, task_id: str, tokens: int, max_length: int) -> None:
        super().__init__(
            f"the first prompt has {tokens} tokens, and the model takes {max_length} with the answer:"
            " save the model with a smaller limit on the pixels of an image, or evaluate another one."
        )
        self.task_id, self.tokens = task_id, tokens


class UnreadableTask(TaskError):
    """A task cannot be read, for example because its image is broken."""


UNPLAYABLE = (PromptTooLong, UnreadableTask)
"""Errors of one task alone: a batch goes on with another one."""


@dataclass(frozen=True)
class SkippedTask:
    """A task of which no episode was played.

    Attributes:
        index: Of the task in its set.
        task_id: Its name; empty if it cannot be read.
        tokens: Length of its first prompt, which leaves no room for a turn; 0 if it cannot be read.
        error: Why it cannot be read.
    """

    index: int
    task_id: str
    tokens: int
    error: str = ""

    @classmethod
    def of(cls, index: int, error: PromptTooLong | UnreadableTask) -> SkippedTask:
        """Note a task that cannot be played."""
        if isinstance(error, PromptTooLong):
            return cls(index, error.task_id, error.tokens)
        return cls(index, "", 0, " ".join(str(error).split()))

    def reason(self, max_tokens: int, max_length: int) -> str:
        """Return a sentence about it, for a user."""
        if self.error:
            return f"the task of index {self.index} is skipped: {self.error}"
        return (
            f"task {self.task_id!r} (index {self.index}) is skipped: its first prompt has {self.tokens} tokens, which "
            f"leaves no room for a turn of --max-tokens {max_tokens} within --max-length {max_length}."
        )
