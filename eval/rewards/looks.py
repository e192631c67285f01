"""How the images of a recorded episode show its targets, and what keeps them from being faithful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from codev_env.judges import GroundTruthJudge
from codev_env.judges.evidence import TOTAL
from codev_env.judges.ground_truth import ImageScore
from codev_env.scoring.metrics import definitions_of
from codev_env.trajectory import Trajectory
from codev_eval.bench.replay import examined

Looks = Sequence[Sequence[ImageScore]]
"""The images of each turn."""


def looks(trajectory: Trajectory) -> Looks:
    """Judge the images of an episode again by the target boxes, with the view of its recorded definition."""
    found = examined(trajectory, _judge_of(trajectory))
    return [() if judged is None else judged.images for judged in found]


def looks_notes(trajectory: Trajectory) -> list[str]:
    """Say whether the episode is faithful, by which definition, and where that is not the one that `looks` applies."""
    judge, definitions = _judge_of(trajectory), definitions_of([trajectory])
    notes = []
    if definitions:
        verdict = "faithful" if trajectory.is_faithful else "not faithful"
        notes.append(f"The episode was recorded as {verdict}, by the definition: {', '.join(definitions)}.")
    scores = [turn.score for turn in trajectory.turns if turn.score is not None and turn.score.value is not None]
    if scores and scores[-1].spread:
        notes.append("In all it has shown too much of the image: chance explains what it found (docs/rewards.md).")
    if definitions and trajectory.targets and definitions != (judge.definition,):
        notes.append(f"Images are explained by the definition: {judge.definition}.")
    return notes


def text_of_look(image: ImageScore) -> str:
    """Return what decides whether an image is faithful, in one line."""
    view = image.view
    if view is None:
        return f"{image.why} (worth {image.value:+.2f})"
    verdict = f"not faithful by {' and '.join(view.missing)}" if view.missing else "faithful"
    return (
        f"{verdict}: coverage {view.coverage:.2f}, tightness {view.tightness:.3f}, detail {view.detail:.2f}, "
        f"share {view.share:.2f}, compact {view.compact:.2f} (shown {100 * view.shown:.2f} % of the image, limit "
        f"{100 * view.limit:.2f} %), search {view.search:.2f} (shown in all {100 * view.total:.2f} %, limit "
        f"{100 * min(1.0, TOTAL * view.limit):.2f} %)"
    )


def record_of_look(image: ImageScore) -> dict[str, Any]:
    """Return an image's score and all that decides whether it is faithful, JSON-able."""
    view = image.view
    record: dict[str, Any] = {"value": image.value, "faithful": image.faithful, "why": image.why}
    return record if view is None else record | asdict(view) | {"missing": list(view.missing)}


def _judge_of(trajectory: Trajectory) -> GroundTruthJudge:
    return GroundTruthJudge.from_definition(" ".join(definitions_of([trajectory])))
