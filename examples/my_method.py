"""Your own method in the study: a right answer counts only if a crop showed the object in question.

From the root of the repository: codev study tapo --methods outcome tapo examples.my_method:METHOD
"""

from codev_env.types import Episode
from codev_eval.study.methods import Method


def seen(episode: Episode) -> dict[str, float]:
    """Rewards right answers that were seen, and well-formed turns."""
    return {
        "outcome": float(episode.is_correct and episode.is_faithful),
        "format": 0.3 * all(not step.turn.problems for step in episode.steps),
    }


METHOD = Method("seen", "right answers count if the target was seen", {"reward": "examples.my_method:seen"})
