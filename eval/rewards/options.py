"""The options of the `codev rewards` commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from codev_env.app.options import POSITIONAL, Field, option_class


@option_class
class ListCommand:
    """List the rewards."""

    json: bool = False
    """Print JSON."""


@option_class
class ExplainCommand:
    """Print the reward of an episode, turn by turn and term by term."""

    path: Annotated[Path, POSITIONAL]
    """A folder that `codev eval` or `codev train` wrote, or a trajectories.jsonl."""
    index: int | None = None
    """Episodes of the task at this index; without it and `--task`, the first episode."""
    task: str | None = None
    """Episodes of the task with this id."""
    reward: str | None = None
    """Another reward than the recorded one: a name, or the `module:attribute` of a function or a `Reward`."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weights that differ from the table's, for example `--weights tool 1.0`."""
    json: bool = False
    """Print JSON."""


@option_class
class RedTeamOptions:
    """Play cheating agents and print what each reward gives them for tools, beside what an honest crop would earn.

    Exit code 1 if a reward that claims to be robust gives one of them more than its bound.
    """

    reward: tuple[str, ...] = ()
    """Rewards: names, or `module:attribute` paths; by default all that come with the package."""
    cheats: tuple[str, ...] = ()
    """Names or families of cheats; by default all."""
    tasks: Annotated[int, Field(ge=1)] = 12
    """Generated tasks that each cheat plays."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the tasks and of the cheats' random choices."""
    out: Path | None = None
    """Folder for redteam.json, the trajectories and report.html."""
    json: bool = False
    """Print JSON instead of the table."""
    workers: Annotated[int, Field(ge=1)] = 2
    """Cheats played at the same time."""


@option_class
class BoundOptions:
    """Print how often blind programs are faithful, beside one random crop of the same total area, and experts.

    The programs are judged by the regions they show, without a sandbox. Exit code 1 if one is faithful more than 1.5
    times as often as the random crop.
    """

    tasks: Annotated[int, Field(ge=1)] = 56
    """Scenes for each program and size of target."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the scenes and of the programs' random choices."""
    json: bool = False
    """Print JSON instead of the tables."""
