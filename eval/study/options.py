"""The options of `codev study tapo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from codev_env.app.options import Field, field_validator, option_class

Count = Annotated[int, Field(ge=1)]


@option_class
class StudyOptions:
    """Train with every method from the same starts, measure what each changed, and write figures, tables and text.

    Finished jobs are not repeated: stop it, continue it, and add seeds and methods with the same command.
    """

    out: Path = Path("runs/study")
    """Folder of the study; `study.md` and `study.html` in it are its result."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each seed has a cold start of its own, from which all methods continue."""
    methods: tuple[str, ...] = ()
    """Names of methods, or `MODULE:ATTRIBUTE` of a `codev_eval.study.methods.Method`; by default all but the ablations
    of `imitation` (`imitation-none` and the other `ABLATIONS` there)."""
    settings: tuple[str, ...] = ("base",)
    """Starts and scenes: `base`, `weak-start`, `strong-start`, `weak-cue`, `strong-cue`, `large`, `charts`,
    `documents`, `glance`, or `MODULE:ATTRIBUTE`."""
    preset: str = "tapo"
    """Preset of `codev sft` and `codev train`."""
    steps: Annotated[int, Field(ge=0)] = 60
    """Updates of each run; 0 takes the preset's."""
    minibatches: Count = 4
    """Optimizer steps of each update."""
    episodes: Annotated[int, Field(ge=2)] = 256
    """Held-out episodes of each condition."""
    max_turns: Count = 2
    """Turns of an episode."""
    max_tokens: Count = 48
    """Tokens of a turn."""
    jobs: Count = 2
    """Processes at the same time, one thread each."""
    report: bool = False
    """Only write the page again, from the finished runs."""
    also: tuple[Path, ...] = ()
    """The `study.json` of studies made elsewhere, each with whole seeds, to show on the page as well."""

    @field_validator("seeds")
    @classmethod
    def _differ(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise ValueError("numbers from 0, each once, and at least one")
        return seeds
