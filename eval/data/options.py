"""The options of the `codev data` commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from codev_env.app.options import POSITIONAL, Field, field_validator, model_validator, option_class
from codev_eval.bench.choice import TaskChoice

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]


@option_class
class ReplayCommand:
    """Read SFT trajectories, run their programs in the sandbox, and keep those that run. Run it again to continue."""

    format: Literal["thyme", "codevision"]
    """Format of the data: that of Kwai-Keye/Thyme-SFT or of kkwok/CodeVision-SFT."""
    data: Path
    """A file or folder of that format."""
    out: Path
    """Folder for the trajectories (`codev sft` reads it), the rows left out, and summary.json."""
    dialect: str | None = None
    """Dialect of the trajectories written; by default that of the data."""
    workers: Seed = 0
    """Rows replayed at the same time; 0 for one per core."""
    farm: str = ""
    """Machines that run programs: `ray`, `ray://HOST:PORT`, or JSON (docs/cluster.md); empty: this one."""
    n: Annotated[int | None, Field(ge=1)] = None
    """Only the first N rows."""
    wall_s: Annotated[float, Field(gt=0)] = 10.0
    """Longest run of one program, in seconds."""
    recorded_errors: Literal["keep", "drop"] = "keep"
    """Rows with a program that failed when recorded: keep those in which it fails here as well, or drop all."""


@option_class
class ShowCommand(TaskChoice):
    """Draw tasks side by side into one image, with their evidence outlined."""

    data: str = "synthetic"
    """`synthetic`, `hub`, `auto`, or the path of a benchmark or data set."""
    n: Annotated[int | None, Field(ge=1)] = 12
    """Number of tasks."""
    start: int = 0
    """Index of the first one."""
    seed: Annotated[int | None, Field(ge=0)] = None
    """Draw the tasks from the whole set with this seed."""
    per_row: Count = 3
    """Tasks per row."""
    width: Count = 1800
    """Width of the image, in pixels."""
    out: Path = Path("sheet.png")
    """File of the image."""


@option_class
class CheckCommand(TaskChoice):
    """Read every task and report the rows that cannot be used, with reasons. Run it again to continue."""

    on_error: Literal["raise", "skip"] = Field("skip", init=False)
    show: int = 20
    """Maximum bad rows to name; all are counted."""


@option_class
class PushCommand(TaskChoice):
    """Upload tasks to the hub as a data set, with a card. Publish only data whose licence allows it."""

    repo: Annotated[str, POSITIONAL]
    """Repository of the hub, NAME or OWNER/NAME; made if it is missing."""
    data: str = "synthetic"
    """`synthetic` for generated scenes, `hub` for the published data, or the path of a benchmark or data set."""
    out: Path | None = None
    """Keep the files in this folder, which is new or empty."""
    private: bool = False
    """Make the repository private if it is new; otherwise the owner's settings decide."""


@option_class
class PullCommand:
    """Download a data set of the hub and print how to use it."""

    repo: Annotated[str, POSITIONAL]
    """Repository of the hub, OWNER/NAME."""
    out: Path
    """Folder for the files; what it has already is not downloaded again."""
    revision: str = "main"
    """Branch, tag or commit."""


@option_class
class FilterCommand(TaskChoice):
    """Play every task several times and keep those between two success rates. Run it again to continue."""

    # The options that `--help` shows.
    COMMON = (
        "data", "bench", "split", "scenes", "columns", "n", "agent", "out", "rollouts", "keep", "scorer", "seed",
        "dialect", "max_turns", "temperature", "max_tokens", "workers",
    )  # fmt: skip
    agent: str
    """`URL#NAME` of an OpenAI-compatible server, or `scripted:oracle|random|lazy|none`."""
    out: Path
    """JSON lines with the ids of the tasks kept; the rollouts go to a file beside it."""
    split: str = "train"
    """Split of the data."""
    scorer: str = "rules"
    """Scorer of answers: a name (docs/scorers.md), or `URL#NAME` of a model."""
    rollouts: Count = 8
    """Rollouts of each task."""
    keep: tuple[float, float] = (0.0, 0.9)
    """Lowest and highest success rate of the tasks kept, both included."""
    seed: Seed = 0
    """Seed of guesses and sampling; each rollout has a seed of its own."""
    dialect: str = "codev"
    """Dialect of the agent's turns."""
    max_turns: Count = 6
    """Turns of an episode, the answer included."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature (URL#NAME only)."""
    max_tokens: Count = 2048
    """Tokens per turn (URL#NAME only)."""
    workers: Count = 2
    """Episodes played at the same time."""
    farm: str = ""
    """Machines that run programs: `ray`, `ray://HOST:PORT`, or JSON (docs/cluster.md); empty: this one."""

    @field_validator("keep")
    @classmethod
    def _is_a_range(cls, keep: tuple[float, float]) -> tuple[float, float]:
        if not 0 <= keep[0] <= keep[1] <= 1:
            raise ValueError("two success rates, 0 <= low <= high <= 1")
        return keep

    @model_validator(mode="after")
    def _names_the_data(self) -> Self:
        if self.data == "auto":
            raise ValueError("--data auto is not for filtering: give --data synthetic, or the path of the data.")
        return self
