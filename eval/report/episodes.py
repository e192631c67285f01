"""Episodes of the report: the image with its boxes, then turn by turn the code, its output, the crops and the rewards.

The functions prepare plain data from trajectories; `episodes.html.j2` lays it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codev_env.geometry import image_of
from codev_env.scoring.metrics import task_meta_of
from codev_env.trajectory import Trajectory
from codev_env.types import Box, Step
from codev_eval.bench.measures import bench_of, plain_answer, sample_of
from codev_eval.bench.suspicions import suspicions
from codev_eval.report.formats import counted, duration
from codev_eval.report.highlight import Pieces, highlight
from codev_eval.report.images import Drawing, ImageStore, Mark, StoredImage, draw
from codev_eval.report.targets import SeenTarget, scaled_box, seen_targets

# A model may write without end: the page shows the head of each text, the trajectory file has it all.
MAX_TEXT = 6000
MAX_ANSWER = 200
"""Characters of an answer by which the page distinguishes it from another one."""
CROP_WIDTHS = (110, 230)
"""Least and greatest width of a crop on the page, in CSS pixels."""

Runs = Sequence[tuple[str, Trajectory]]
"""The episodes of one task: name of the run (`"before"`, `"after"` or `""`) and the episode."""


@dataclass(frozen=True)
class Badge:
    """A short verdict on an episode, and its CSS class: `"good"`, `"bad"` or `""`."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class ShownAnswer:
    """An answer, and the right one where it is wrong (else `None`)."""

    given: str
    right: str | None


@dataclass(frozen=True)
class Crop:
    """A returned image: its number in the episode, the part of the input that it shows, and whether it is evidence."""

    drawing: Drawing
    number: int
    source: str
    seen: bool


@dataclass(frozen=True)
class RewardItem:
    """A reward term as text, and its CSS class: `"plus"`, `"minus"`, `"sum"` or `""`."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class TurnView:
    """A turn of an episode.

    Attributes:
        kind: `"code"`, `"answer"` or `"invalid"`.
        said: Text before the code or the answer.
        code: The program, highlighted.
        stdout: Printed text.
        error: Error of the program; empty without.
        problem: Reply to an invalid turn.
        crops: Returned images.
        why: The judge's reason.
        answer: The answer, of a turn that gives one.
        rewards: Reward terms.
        action: The turn as the model wrote it.
    """

    kind: str
    said: str
    code: Pieces
    stdout: str
    error: str
    problem: str
    crops: tuple[Crop, ...]
    why: str
    answer: ShownAnswer
    rewards: tuple[RewardItem, ...]
    action: str


@dataclass(frozen=True)
class EpisodeEnd:
    """The last entry of an episode.

    Attributes:
        unanswered: Why there is no answer; `None` if there is one.
        right: The right answer.
        time: Seconds in the sandbox, as text; empty without.
        rewards: Reward terms of the episode and their sum.
    """

    unanswered: str | None
    right: str
    time: str
    rewards: tuple[RewardItem, ...]


@dataclass(frozen=True)
class EpisodeView:
    """An episode; `data` has the `data-` attributes of its element, which the filters of the page read."""

    run: str
    data: Mapping[str, str | int]
    badges: tuple[Badge, ...]
    scene: tuple[Drawing, ...]
    turns: tuple[TurnView, ...]
    end: EpisodeEnd


@dataclass(frozen=True)
class TaskView:
    """A task with its episodes side by side; each choice is paired with whether it is the right one."""

    index: int
    meta: str
    question: str
    choices: tuple[tuple[str, bool], ...]
    episodes: tuple[EpisodeView, ...]


def task_of(runs: Runs, store: ImageStore) -> TaskView:
    """Return one task with its episodes.

    Args:
        runs: At least one episode; all of the same task.
        store: Collects the images.
    """
    task = runs[0][1]
    sample = f"sample {sample_of(task) + 1}" if sample_of(task) else ""
    named = (f"#{task.index}", sample, task.category.replace("_", " "), task.task_id)
    return TaskView(
        task.index,
        " · ".join(part for part in named if part),
        task.question,
        tuple((choice, choice == task.answer) for choice in task.choices),
        tuple(episode_of(name, trajectory, store) for name, trajectory in runs),
    )


def episode_of(run: str, trajectory: Trajectory, store: ImageStore) -> EpisodeView:
    """Return one episode.

    Args:
        run: Name of its run.
        trajectory: The episode.
        store: Collects the images.
    """
    signs = suspicions(trajectory)
    verdict = Badge("correct", "good") if trajectory.is_correct else Badge("wrong", "bad")
    return EpisodeView(
        run,
        {
            "run": run,
            "correct": int(trajectory.is_correct),
            "faithful": int(trajectory.is_faithful),
            "category": trajectory.category,
            "bench": bench_of(trajectory),
            "variant": variant_of(trajectory),
            "answer": plain_answer(trajectory.final_answer)[:MAX_ANSWER],
            "suspected": "|".join(signs),
        },
        (verdict, _look_badge(trajectory), *map(Badge, signs)),
        _scene(trajectory, store),
        tuple(_turn(turn, first, trajectory, store) for turn, first in _with_crop_numbers(trajectory.turns)),
        _end(trajectory),
    )


def variant_of(trajectory: Trajectory) -> str:
    """Return the variant of its task that an episode was played under; empty where there is none."""
    return str(task_meta_of(trajectory).get("variant", ""))


def _look_badge(trajectory: Trajectory) -> Badge:
    if trajectory.is_faithful:
        return Badge("faithful", "good")
    calls = [turn for turn in trajectory.turns if turn.kind == "code"]
    if calls and all(turn.score_value is None for turn in calls):
        return Badge("not judged")
    return Badge("not faithful", "bad") if calls else Badge("no tool call")


def _with_crop_numbers(turns: Sequence[Step]) -> list[tuple[Step, int]]:
    """Pair each turn with the number of its first returned image, counted from 1 through the episode."""
    numbered, number = [], 1
    for turn in turns:
        numbered.append((turn, number))
        number += len(turn.images)
    return numbered


def _scene(trajectory: Trajectory, store: ImageStore) -> tuple[Drawing, ...]:
    """The input images, each with its target and crop boxes, the first with what was seen of it."""
    if not len(trajectory.images):
        return ()
    found = [
        target
        for turn in trajectory.turns
        for place in range(len(turn.images))
        for target in seen_targets(turn, place, trajectory)
        if target.clear
    ]
    seen = {target.number for target in found}
    parts = [
        part.polygon
        for turn in trajectory.turns
        for region in turn.regions
        for part in region.parts
        if part.polygon is not None and part.image_index == 0
    ]
    drawings = []
    for place in range(len(trajectory.images)):
        numbered = [(number, box) for number, box in enumerate(trajectory.targets) if image_of(box) == place]
        marks = [Mark("target", box, seen=number in seen) for number, box in numbered]
        for count, (turn, first) in enumerate(_with_crop_numbers(trajectory.turns), 1):
            boxes = enumerate(turn.crop_boxes, first)
            on_it = [(n, box) for n, box in boxes if box is not None and image_of(box) == place]
            marks += [Mark("crop", box, str(number), count) for number, box in on_it]
        alt = f"Input image {place + 1}" if place else "Input image"
        if marks or not place:
            alt += f" with {counted(len(numbered), 'target box')} and {counted(len(marks) - len(numbered), 'crop box')}"
        drawings.append(draw(store.add(trajectory.images, place), alt, marks, seen=() if place else parts))
    return tuple(drawings)


def _turn(turn: Step, first: int, trajectory: Trajectory, store: ImageStore) -> TurnView:
    return TurnView(
        turn.kind,
        _cut(spoken(turn.action)),
        highlight(_cut(turn.code or "")) if turn.kind == "code" else [],
        _cut(turn.stdout),
        _cut(turn.error or ""),
        _cut(turn.observation.strip()),
        _crops(turn, first, trajectory, store) if turn.kind == "code" else (),
        _cut(turn.score_why),
        ShownAnswer(_cut(trajectory.final_answer or ""), None if trajectory.is_correct else trajectory.answer),
        rewards(turn.reward_terms),
        _cut(turn.action),
    )


def _crops(turn: Step, first: int, trajectory: Trajectory, store: ImageStore) -> tuple[Crop, ...]:
    boxes = list(turn.crop_boxes) + [None] * (len(turn.images) - len(turn.crop_boxes))
    return tuple(
        _crop(store.add(turn.images, place), first + place, box, trajectory, seen_targets(turn, place, trajectory))
        for place, box in enumerate(boxes[: len(turn.images)])
    )


def _crop(
    stored: StoredImage, number: int, box: Box | None, trajectory: Trajectory, seen: Sequence[SeenTarget]
) -> Crop:
    if box is None:
        source = "source unknown"
    else:
        source = "({}, {}) – ({}, {})".format(*box)
        if (size := trajectory.size_of(image_of(box))) is not None:
            area = (box[2] - box[0]) * (box[3] - box[1]) / max(1, size[0] * size[1])
            source += f" · {100 * area:.{2 if area < 0.1 else 0}f} % of the image"
    source += "".join(f" · {target.text}" for target in seen)
    marks = [
        Mark("target", scaled_box(target.part, stored), seen=target.clear) for target in seen if target.part is not None
    ]
    width = min(max(stored.width, CROP_WIDTHS[0]), CROP_WIDTHS[1])
    drawing = draw(stored, f"Returned image {number}, {source}", marks, shown_width=width)
    return Crop(drawing, number, source, any(target.clear for target in seen))


def _end(trajectory: Trajectory) -> EpisodeEnd:
    wall = sum(turn.wall_s for turn in trajectory.turns)
    return EpisodeEnd(
        trajectory.stop_reason if trajectory.final_answer is None else None,
        trajectory.answer,
        duration(wall) if wall else "",
        rewards(trajectory.reward_terms, total=trajectory.total_reward),
    )


def rewards(terms: Mapping[str, float], total: float | None = None) -> tuple[RewardItem, ...]:
    """Return reward terms with their names, without those that round to 0, and their sum."""
    items = [
        RewardItem(f"{name} {value:+.2f}", "plus" if value > 0 else "minus")
        for name, value in terms.items()
        if abs(value) >= 0.005
    ]
    if total is not None:
        items.append(RewardItem(f"sum {total:+.2f}", "sum"))
    return tuple(items) or (RewardItem("reward 0"),)


def spoken(action: str) -> str:
    """Return the text of a turn before its code or answer, without the `think` tags."""
    head = re.split(r"<(?:code|tool_call|answer)>|```", action, maxsplit=1)[0]
    return re.sub(r"</?think>", "", head).strip()


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + f"\n… {len(text) - MAX_TEXT} more characters"
