"""The pages of an evaluation's other conditions, each beside the plain episodes, and the table that leads to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codev_env.scoring.metrics import judges_boxless, summarize
from codev_env.trajectory import Trajectory
from codev_eval.bench.folder import PERTURBED, PLAIN, REPORT, SUITE, WITHOUT_TOOL
from codev_eval.bench.measures import bench_of, key_of
from codev_eval.report.formats import share
from codev_eval.report.page import ConditionRow, Sections, render_page, write_page
from codev_eval.report.report import COMPARED_TASKS, EVAL_EPISODES

Episodes = Sequence[Trajectory]

_REPLACED = {
    "mask": "a grey image",
    "noise": "Gaussian noise",
    "other": "another part of the input",
    "empty": "neither image nor text",
}


@dataclass(frozen=True)
class Condition:
    """A condition as pages name it.

    Attributes:
        folder: Name of its folder.
        name: Name of its episodes beside the plain ones; empty if its page has no plain episodes.
        label: Its name on pages.
        about: How its episodes differ from the plain ones.
    """

    folder: str
    name: str
    label: str
    about: str


def condition_of(folder: str) -> Condition:
    """Return the condition whose episodes lie in a folder of that name."""
    if folder == WITHOUT_TOOL:
        about = "Every task again, under a system prompt that says there are no tools."
        return Condition(folder, "without tool", "without the tool", about)
    if folder.startswith(PERTURBED):
        kind = folder.removeprefix(PERTURBED)
        about = (
            f"Episodes that were returned an image, again: the agent is shown {_REPLACED.get(kind, kind)} instead of"
            " the output of its program. Boxes and the judge's scores are those of the real output; the images in the"
            " turns are those that the agent was shown."
        )
        return Condition(folder, kind, f"tool output: {kind}", about)
    about = "Every task again under each transform, the variants of a task in a row."
    return Condition(folder, "", f"suite {folder.removeprefix(SUITE)}", about)


def beside_plain(condition: Condition, episodes: Episodes, plain: Episodes) -> dict[str, Episodes]:
    """Return the episodes of a condition under their name, after the plain ones of the same tasks if it has a name."""
    if not condition.name:
        return {"": episodes}
    again = {_key(t) for t in episodes}
    return {"plain": [t for t in plain if _key(t) in again], condition.name: episodes}


def write_condition_pages(out: Path, played: Mapping[str, Episodes], title: str) -> list[ConditionRow]:
    """Write a page into the folder of each condition that has episodes.

    Args:
        out: The folder of the evaluation.
        played: The episodes by folder of the condition, in the order to show, the plain ones among them.
        title: That of the evaluation.

    Returns:
        A row for each of these pages, for the report of the evaluation.
    """
    rows = []
    boxless = judges_boxless([t for episodes in played.values() for t in episodes])
    for folder in sorted(folder for folder, episodes in played.items() if folder != PLAIN and episodes):
        condition, episodes = condition_of(folder), played[folder]
        write_page(out / folder / REPORT, _page(condition, episodes, played[PLAIN], title))
        rates = summarize(episodes, boxless=boxless)
        shares = share(rates["accuracy"]), share(rates["faithful"])
        rows.append(ConditionRow(f"{folder}/{REPORT}", condition.label, len(episodes), *shares))
    return rows


def _page(condition: Condition, episodes: Episodes, plain: Episodes, title: str) -> str:
    return render_page(
        "condition.html.j2",
        f"{title}: {condition.label}",
        Sections(),
        beside_plain(condition, episodes, plain),
        COMPARED_TASKS if condition.name else EVAL_EPISODES,
        about=condition.about,
        evaluation=f"../{REPORT}",
    )


def _key(t: Trajectory) -> tuple[str, str, int]:
    return bench_of(t), *key_of(t)
