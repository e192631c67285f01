"""The options of the `codev judge` commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from codev_env.app.options import POSITIONAL, Field, option_class

Count = Annotated[int, Field(ge=1)]


@option_class
class AgreementOptions:
    """Let two judges score crops of known kind in generated scenes, and report how far they agree."""

    judge: str
    """The judge: `ground_truth`, `noisy:RATE`, `URL#NAME` (an OpenAI-compatible server), or `module:attribute`."""
    out: Path
    """Folder for agreement.json, agreement.txt, trajectories.jsonl and sheet.png."""
    against: str = "ground_truth"
    """The reference, named as `--judge` is."""
    scenes: tuple[str, ...] = ("vstar",)
    """Presets of generated scenes (`toy`, `vstar`, `counting`, …)."""
    n: Count = 50
    """Number of scenes of each preset."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the scenes, the places of crops, and the resamples of the intervals."""
    workers: Count = 2
    """Scenes at the same time."""
    calls: Count = 16
    """Crops judged at the same time; each worker has about 16 of them."""
    json: bool = False
    """Print agreement.json instead of the table."""
    overwrite: bool = False
    """Replace the results in `--out`."""


@option_class
class PingOptions:
    """Ask at hardly any cost whether a judge answers and knows the model."""

    judge: Annotated[str, POSITIONAL]
    """The judge, as in `codev judge agreement --judge`, for example http://localhost:8000/v1#my-model."""
