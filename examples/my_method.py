"""A method of one's own in the study: a right answer counts only where a crop showed what was asked about.

From the root of the repository: codev study tapo --methods outcome tapo examples.my_method:METHOD
"""

from codev_env.types import Episode
from codev_eval.study.methods import Method


def seen(episode: Episode) -> dict[str, float]:
    """Pay for right answers to what was seen, and for writing in the right form."""
    return {
        "outcome": float(episode.is_correct and episode.is_faithful),
        "format": 0.3 * all(not step.turn.problems for step in episode.steps),
    }


METHOD = Method("seen", "right answers count where the target was seen", {"reward": "examples.my_method:seen"})
