"""The pages of an evaluation's other conditions, each beside the plain episodes, and the table that leads to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from codev_env.metrics import summarize
from codev_env.trajectory import Trajectory
from codev_eval.bench.folder import PERTURBED, PLAIN, REPORT, SUITE, WITHOUT_TOOL
from codev_eval.bench.measures import bench_of, key_of
from codev_eval.report.report import COMPARED_TASKS, EVAL_EPISODES, render_page, write_page
from codev_eval.report.tables import share

Episodes = Sequence[Trajectory]

_REPLACED = {
    "mask": "a grey image",
    "noise": "Gaussian noise",
    "other": "another part of the input",
    "empty": "neither image nor text",
}


@dataclass(frozen=True)
class Condition:
    """A condition for people.

    Attributes:
        folder: Name of its folder.
        name: What its episodes are called beside the plain ones; empty where they stand alone.
        label: What it is called.
        about: What was played.
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
            " what its program returned. Boxes and the judge's scores are those of the real output; the pictures in the"
            " turns are what the agent was shown."
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


def write_condition_pages(out: Path, played: Mapping[str, Episodes], title: str) -> str:
    """Write a page into the folder of each condition that has episodes.

    Args:
        out: The folder of the evaluation.
        played: The episodes by folder of the condition, in the order to show, the plain ones among them.
        title: That of the evaluation.

    Returns:
        HTML of the section that leads to these pages; empty where there are none.
    """
    others = sorted(folder for folder, episodes in played.items() if folder != PLAIN and episodes)
    found = [(condition_of(folder), played[folder]) for folder in others]
    for condition, episodes in found:
        write_page(out / condition.folder / REPORT, _page(condition, episodes, played[PLAIN], title))
    rows = "".join(_row(condition, episodes) for condition, episodes in found)
    if not rows:
        return ""
    return (
        '<section id="conditions"><h2>Other conditions</h2><p class="note">The same tasks played otherwise. Each has a'
        " page of its own, in its folder beside this one, with its episodes beside the plain ones.</p>"
        '<div class="part"><div class="scroll"><table><thead><tr><th scope="col">condition</th><th scope="col">episodes'
        '</th><th scope="col">accuracy</th><th scope="col">faithful</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></div></section>"
    )


def _row(condition: Condition, episodes: Episodes) -> str:
    rates = summarize(episodes)
    link = f'<a href="{escape(condition.folder)}/{REPORT}">{escape(condition.label)}</a>'
    cells = "".join(f"<td>{text}</td>" for text in (len(episodes), share(rates["accuracy"]), share(rates["faithful"])))
    return f'<tr><th scope="row">{link}</th>{cells}</tr>'


def _page(condition: Condition, episodes: Episodes, plain: Episodes, title: str) -> str:
    back = f'<p class="note"><a href="../{REPORT}">To the plain episodes and all results</a></p>'
    return render_page(
        kicker="Condition",
        title=f"{title}: {condition.label}",
        lead=f'<p class="lead">{escape(condition.about)}</p>{back}',
        played=beside_plain(condition, episodes, plain),
        limit=COMPARED_TASKS if condition.name else EVAL_EPISODES,
    )


def _key(t: Trajectory) -> tuple[str, str, int]:
    return bench_of(t), *key_of(t)
