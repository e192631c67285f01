"""Episodes as HTML: the image with its boxes, then turn by turn the code, its output, the crops and the rewards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from codev_env.metrics import told_of
from codev_env.trajectory import Trajectory, TurnRecord
from codev_eval.bench.measures import bench_of, plain_answer, sample_of
from codev_eval.bench.suspicions import suspicions
from codev_eval.report.highlight import highlight
from codev_eval.report.images import ImageStore, Mark, StoredImage, draw
from codev_eval.report.plots import duration

# A model may write without end: the page shows the head of each text, the trajectory file has it all.
MAX_TEXT = 6000
MAX_ANSWER = 200
"""Characters of an answer by which the page tells it from another one."""
CROP_WIDTHS = (110, 230)
"""Least and greatest width of a crop on the page, in CSS pixels."""

Runs = Sequence[tuple[str, Trajectory]]
"""The episodes of one task: name of the run (`"before"`, `"after"` or `""`) and the episode."""


def task_section(runs: Runs, store: ImageStore) -> str:
    """Return one task with its episodes side by side.

    Args:
        runs: At least one episode; all of the same task.
        store: Where the pictures go.
    """
    task = runs[0][1]
    choices = "".join(_choice(choice, choice == task.answer) for choice in task.choices)
    choices = f'<ul class="choices">{choices}</ul>' if choices else ""
    sample = f"sample {sample_of(task) + 1}" if sample_of(task) else ""
    named = (f"#{task.index}", sample, task.category.replace("_", " "), task.task_id)
    meta = " · ".join(escape(part) for part in named if part)
    episodes = "".join(episode(name, trajectory, store) for name, trajectory in runs)
    return (
        f'<section class="task" tabindex="-1" aria-label="Task {task.index}"><header><p class="meta">{meta}</p>'
        f"<h3>{escape(task.question)}</h3>{choices}</header>"
        f'<div class="runs {"one" if len(runs) == 1 else "two"}">{episodes}</div></section>'
    )


def _choice(text: str, gold: bool) -> str:
    return (
        f'<li class="gold">{escape(text)} <span aria-hidden="true">✓</span></li>'
        if gold
        else f"<li>{escape(text)}</li>"
    )


def episode(run: str, trajectory: Trajectory, store: ImageStore) -> str:
    """Return one episode; its `data-` attributes are what the page's filters look at."""
    signs = suspicions(trajectory)
    badges = [
        _badge("correct", "good") if trajectory.is_correct else _badge("wrong", "bad"),
        _look_badge(trajectory),
        *(_badge(sign) for sign in signs),
    ]
    turns = "".join(_turn(turn, first, trajectory, store) for turn, first in _with_crop_numbers(trajectory.turns))
    return (
        f'<article class="episode" data-run="{escape(run)}" data-correct="{int(trajectory.is_correct)}"'
        f' data-faithful="{int(trajectory.is_faithful)}" data-category="{escape(trajectory.category)}"'
        f' data-bench="{escape(bench_of(trajectory))}" data-variant="{escape(variant_of(trajectory))}"'
        f' data-answer="{escape(plain_answer(trajectory.final_answer)[:MAX_ANSWER])}"'
        f' data-suspected="{escape("|".join(signs))}">'
        f'<h4><span class="run">{_run_name(run)}</span>{"".join(badges)}</h4>'
        f'<div class="scene">{_scene(trajectory, store)}</div>'
        f'<ol class="turns">{turns}{_end(trajectory)}</ol></article>'
    )


def variant_of(trajectory: Trajectory) -> str:
    """Return the variant of its task that an episode was played under; empty where there is none."""
    return str(told_of(trajectory).get("variant", ""))


def _run_name(run: str) -> str:
    return f'<span class="key {escape(run)}"></span>{escape(run.capitalize())}' if run else "Episode"


def _badge(text: str, kind: str = "") -> str:
    mark = {"good": "✓ ", "bad": "✗ "}.get(kind, "")
    return f'<span class="badge {kind}"><span aria-hidden="true">{mark}</span>{text}</span>'


def _look_badge(trajectory: Trajectory) -> str:
    if trajectory.is_faithful:
        return _badge("faithful", "good")
    calls = [turn for turn in trajectory.turns if turn.kind == "code"]
    if calls and all(turn.score is None for turn in calls):
        return _badge("not judged")
    if calls:
        return _badge("not faithful", "bad")
    return _badge("no tool call")


def _with_crop_numbers(turns: Sequence[TurnRecord]) -> list[tuple[TurnRecord, int]]:
    """Pair each turn with the number of its first returned image, counted from 1 through the episode."""
    numbered, number = [], 1
    for turn in turns:
        numbered.append((turn, number))
        number += len(turn.images)
    return numbered


def _scene(trajectory: Trajectory, store: ImageStore) -> str:
    """The input images, the first with its target and crop boxes."""
    if not len(trajectory.images):
        return '<p class="empty">This task has no image.</p>'
    marks = [Mark("target", box) for box in trajectory.targets]
    for turn, first in _with_crop_numbers(trajectory.turns):
        boxes = enumerate(turn.crop_boxes, first)
        marks += [Mark("crop", box, str(number)) for number, box in boxes if box is not None]
    crops = sum(mark.kind == "crop" for mark in marks)
    alt = f"Input image with {len(trajectory.targets)} target boxes and {crops} crop boxes"
    pictures = [draw(store.add(trajectory.images), alt, marks)]
    further = range(1, len(trajectory.images))
    pictures += [draw(store.add(trajectory.images, n), f"Input image {n + 1}") for n in further]
    return "".join(pictures)


def _turn(turn: TurnRecord, first: int, trajectory: Trajectory, store: ImageStore) -> str:
    parts = []
    said = spoken(turn.action)
    if said:
        parts.append(f'<p class="say">{_text(said)}</p>')
    if turn.kind == "code":
        parts.append(f"<pre><code>{highlight(_cut(turn.code or ''))}</code></pre>")
        if turn.stdout:
            parts.append(f'<p class="label">Printed</p><pre>{_text(turn.stdout)}</pre>')
        if turn.error:
            parts.append(f'<p class="label">Error</p><pre class="error">{_text(turn.error)}</pre>')
        parts.append(_crops(turn, first, trajectory, store))
    elif turn.kind == "invalid":
        parts.append(f'<p class="label">Not a valid turn</p><pre class="error">{_text(turn.observation.strip())}</pre>')
    else:
        parts.append(_answer(trajectory))
    parts.append(rewards(turn.reward_terms))
    parts.append(f'<details class="raw-text"><summary>as written</summary><pre>{_text(turn.action)}</pre></details>')
    return f'<li class="turn">{"".join(parts)}</li>'


def _crops(turn: TurnRecord, first: int, trajectory: Trajectory, store: ImageStore) -> str:
    if not len(turn.images):
        return '<p class="label">Returned no image</p>'
    boxes = list(turn.crop_boxes) + [None] * (len(turn.images) - len(turn.crop_boxes))
    figures = []
    for place, box in enumerate(boxes[: len(turn.images)]):
        figures.append(_figure(store.add(turn.images, place), first + place, box, trajectory))
    why = f'<p class="why">Judge: {_text(turn.score_why)}</p>' if turn.score_why else ""
    return f'<div class="crops">{"".join(figures)}</div>{why}'


def _figure(picture: StoredImage, number: int, box: Sequence[int] | None, trajectory: Trajectory) -> str:
    if box is None:
        source = "source unknown"
    else:
        source = "({}, {}) – ({}, {})".format(*box)
        if trajectory.image_size is not None:
            area = (box[2] - box[0]) * (box[3] - box[1]) / max(1, trajectory.image_size[0] * trajectory.image_size[1])
            source += f" · {100 * area:.{2 if area < 0.1 else 0}f} % of the image"
    shown = min(max(picture.width, CROP_WIDTHS[0]), CROP_WIDTHS[1])
    drawn = draw(picture, f"Returned image {number}, {source}", shown_width=shown)
    return f"<figure>{drawn}<figcaption><b>{number}</b> {source}</figcaption></figure>"


def _answer(trajectory: Trajectory) -> str:
    given = "" if trajectory.final_answer is None else trajectory.final_answer
    gold = "" if trajectory.is_correct else f" · right is <b>{escape(trajectory.answer)}</b>"
    return f'<p class="answer">Answer <b>{_text(given)}</b>{gold}</p>'


def _end(trajectory: Trajectory) -> str:
    """The last entry: the sum of the rewards, and why it ended where it was not an answer."""
    wall = sum(turn.wall_s for turn in trajectory.turns)
    ended = ""
    if trajectory.final_answer is None:
        why = escape(trajectory.stop_reason)
        ended = f'<p class="answer">No answer ({why}) · right is <b>{escape(trajectory.answer)}</b></p>'
    time = f" · sandbox {duration(wall)}" if wall else ""
    total = rewards(trajectory.reward_terms, total=trajectory.total_reward)
    return f'<li class="turn">{ended}<p class="label">Reward of the episode{time}</p>{total}</li>'


def rewards(terms: Mapping[str, float], total: float | None = None) -> str:
    """Return reward terms as a list with their names; a term that pays nothing is left out."""
    paid = {name: value for name, value in terms.items() if abs(value) >= 0.005}
    items = [f'<li class="{"plus" if v > 0 else "minus"}">{escape(name)} {v:+.2f}</li>' for name, v in paid.items()]
    if total is not None:
        items.append(f'<li class="sum">sum {total:+.2f}</li>')
    return f'<ul class="rewards">{"".join(items) or "<li>reward 0</li>"}</ul>'


def spoken(action: str) -> str:
    """What the model said around its code or answer: the text before it, without the `think` tags."""
    head = re.split(r"<(?:code|tool_call|answer)>|```", action, maxsplit=1)[0]
    return re.sub(r"</?think>", "", head).strip()


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + f"\n… {len(text) - MAX_TEXT} more characters"


def _text(text: str) -> str:
    return escape(_cut(text))
