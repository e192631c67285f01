"""Probes the policy in the middle of an episode for the answer that it would give now."""

from __future__ import annotations

from codev_agents.rollout.engine import Completion, Prompt, Sampling
from codev_agents.rollout.tokens import ChatProcessor, TokenSequence
from codev_env.dialects import Dialect
from codev_env.scoring import Scorer
from codev_env.types import Answer, Task

MAX_TOKENS = 64
"""Longest answer, in tokens."""
_MARK = "0"


class Probe:
    """Checks whether the policy would answer right if it had to answer now.

    The dialect's opening of an answer is appended to the tokens so far and continued greedily. The episode keeps none
    of it.

    Source: the answer probe of TACO (arXiv 2606.30251).

    Args:
        processor: The tokenizer side of the policy.
        dialect: How the policy talks.
        room: Most tokens that fit after an episode's tokens.
    """

    def __init__(self, processor: ChatProcessor, dialect: Dialect, room: int) -> None:
        self._processor, self._dialect = processor, dialect
        self._opening, _, self._closing = dialect.write(Answer(_MARK)).partition(_MARK)
        length = len(processor.encode_reply(self._opening, processor.prompt("", "", [])))
        self.sampling = Sampling(0.0, max(1, min(MAX_TOKENS, room - length)), tuple(dialect.stop))

    def prompt(self, tokens: TokenSequence) -> Prompt:
        """Return the prompt of the probe, from the tokens up to the start of the policy's next turn."""
        return Prompt([*tokens.ids, *self._processor.encode_reply(self._opening, tokens.ids)], list(tokens.images))

    def is_right(self, completion: Completion, task: Task, scorer: Scorer) -> bool:
        """Whether the answer to a task is right, by the environment's own scorer."""
        turn = self._dialect.parse(self._opening + self._processor.decode(completion.ids))
        return isinstance(turn, Answer) and bool(scorer(task, turn.text).correct)

    def starts_right(self, completion: Completion, task: Task, scorer: Scorer) -> bool:
        """Whether the first tokens of the answer, as many as the right one has, form a right answer.

        A policy that has never answered at this point may know the answer but not how to end it.
        """
        ids = completion.ids[: len(self._processor.encode(task.answer))]
        turn = self._dialect.parse(self._opening + self._processor.decode(ids) + self._closing)
        return isinstance(turn, Answer) and bool(scorer(task, turn.text).correct)
