"""Selection of tasks that cannot be answered without looking: the policy is made to answer before its first turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def least_guessable(
    choose: Callable[[int], Sequence[int]],
    guesses: Callable[[Sequence[int]], Sequence[bool]],
    factor: int,
    share: float,
    count: int,
) -> list[int]:
    """Draw more tasks than are wanted, and prefer those that the policy cannot answer before it has looked.

    An answer that the policy can guess is rewarded whether it looked or not. If most tasks are like that, the policy
    never learns to use tool outputs; tasks on which its guess fails show it the difference.

    Args:
        choose: Gives the indices of this many tasks.
        guesses: Returns for each task whether the policy's guess is right.
        factor: Tasks drawn for each one wanted.
        share: Share of the tasks wanted that is chosen so; the others are as drawn.
        count: Tasks wanted.
    """
    wanted = round(share * count)
    tasks = list(choose(factor * wanted))
    right = guesses(tasks)
    order = sorted(range(len(tasks)), key=lambda place: right[place])
    return [*(tasks[place] for place in order[:wanted]), *choose(count - wanted)]
