"""The terms of the released CodeV code (arXiv 2511.19661), where they differ from the paper's.

Source: RenlyH/CodeV_internal, rl/verl/utils/reward_score/vl_agent.py.
"""

from __future__ import annotations

import re

from codev_env.benches import suite_of
from codev_env.rewards.terms import tool_level, written
from codev_env.types import Code, Episode, Step

SEARCH = "search"
CALCULATION = "calculation"
COUNTING = "counting"
RUBRICS = {
    **dict.fromkeys(("vstar", "chart", "high_res"), SEARCH),
    **dict.fromkeys(
        ("GeoQA", "Geometry3K", "TabMWP", "FigureQA", "ScienceQA", "thinklite_eureka"),
        CALCULATION,
    ),
    "IconQA": COUNTING,
}
"""The rubric of each `data_source` of CodeV's training data, which a task keeps as its category."""
SEARCHED = frozenset((*suite_of("zoom"), "mvtool"))
"""Benchmarks, none of CodeV's data sources, whose questions need a look at some place: by the rubric for search."""
SCENES = frozenset(
    (
        *("direct_attributes", "relative_position", "single", "cross"),
        *("color_and_shape", "shape", "color"),
        *("recognition", "counting", "paragraph"),
        *("value", "extreme", "difference", "count", "list"),
        *("compare", "sum", "product", "total"),
        *("jigsaw", "spot_difference"),
        *("find", "which", "order", "appears", "when"),
    )
)
"""Categories of generated scenes, whose evidence always has a place: by the rubric for search."""

_BOXED = re.compile(r"\\boxed{([^}]+)}", re.DOTALL)
_SOUND, _GENUINE, _PARTIAL, _WEAK = 1.0, 0.75, 0.5, 0.25


def rubric(episode: Episode) -> str:
    """Return the rubric by which the tool term scores an episode: `"search"`, `"calculation"` or `"counting"`.

    An unknown `data_source` is scored as a calculation, as in the released code; tasks without any, generated scenes
    and the benchmarks of `SEARCHED`, which the released code does not know, as a search.
    """
    task = episode.task
    if task.category in RUBRICS:
        return RUBRICS[task.category]
    scene = task.source == "generated" and task.category in SCENES
    searched = not task.category or scene or task.meta.get("bench") in SEARCHED
    return SEARCH if searched else CALCULATION


def well_formed(episode: Episode) -> float:
    r"""1 while the text is well formed, else 0; a finished episode needs exactly one answer.

    Of all the text that the model wrote: as many `<code>` as `</code>` and `<think>` as `</think>`; no code after the
    last `</answer>`; after the last `</think>` one closed `<answer>`, or without any one `\boxed{}` and no code before
    it. Several code blocks in a turn are no flaw.

    Source: `check_format_errors` and `extract_and_verify_answer`.
    """
    return float(not _flaw(episode))


def tool(episode: Episode) -> float:
    """The level of the released rubric of the task's `data_source`: 0, 0.25, 0.5, 0.75 or 1.

    - search: `terms.tool_level`.
    - calculation: code is optional. Without a call 1 if the answer is right, else 0.25. With calls, by the best score
      of one: 0.75 and more is genuine work, which with a right answer is sound (1); below that 0.5 from a score of
      0.5, or if a call failed and a later one did not; 0.25 from above 0; else 0.
    - counting: the same without the credit for answers: 0 without a call, and a score of 1 for the level 1.

    The released judge reads the whole trajectory. Here no judge sees reasoning: a right answer stands for sound
    reasoning, and the judge's score of each call for its work (`rubric="auto"` of the judge `vlm`).
    """
    kind = rubric(episode)
    if kind == SEARCH:
        return tool_level(episode)
    steps = [step for step in episode.steps if isinstance(step.turn, Code)]
    if not steps:
        if kind == COUNTING or not episode.done:
            return 0.0
        return _SOUND if episode.is_correct else _WEAK
    scores = [step.score.value for step in steps if step.score is not None and step.score.value is not None]
    best = max(scores, default=0.0)
    if best >= _SOUND or (best >= _GENUINE and kind == CALCULATION and episode.is_correct):
        return _SOUND
    if best >= _GENUINE:
        return _GENUINE
    if best >= _PARTIAL or _repaired(steps):
        return _PARTIAL
    return _WEAK if best > 0 else 0.0


def why_format(episode: Episode) -> str:
    """Say what the first flaw is."""
    return _flaw(episode) or "no flaw"


def why_tool(episode: Episode) -> str:
    """Say by which rubric the calls were scored, and how."""
    steps = [step for step in episode.steps if isinstance(step.turn, Code)]
    scores = [step.score.value for step in steps if step.score is not None and step.score.value is not None]
    best = f"the best score {max(scores):+.2f}" if scores else "none scored"
    return f"rubric {rubric(episode)}: calls: {len(steps)}, {best}"


def _repaired(steps: list[Step]) -> bool:
    """Whether a call failed and a later one did not."""
    failed = [step.execution is not None and step.execution.error is not None for step in steps]
    return True in failed and not all(failed[failed.index(True) :])


def _flaw(episode: Episode) -> str:
    """The first flaw of the text that the model wrote; empty where there is none."""
    text = written(episode)
    for tag in ("code", "think"):
        if text.count(f"<{tag}>") != text.count(f"</{tag}>"):
            return f"unbalanced <{tag}>"
    if not episode.done:
        return ""
    tail = text.rpartition("</think>")[2]
    if "<code>" in text.rpartition("</answer>")[2]:
        return "code after the answer"
    answers, closed = tail.count("<answer>"), tail.count("</answer>")
    if answers != closed:
        return "unbalanced <answer>"
    # Up to the last brace: no search for one goes through the whole text in vain.
    answered = "</answer>" in tail.rpartition("<answer>")[2] if answers else False
    found = answers if answered else len(_BOXED.findall(tail, 0, tail.rfind("}") + 1))
    return "" if found == 1 else "several answers" if found else f"no answer ({episode.stop_reason})"
