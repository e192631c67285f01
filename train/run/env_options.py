"""The options of the environment that a policy acts in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from codev_env.app.options import option_class
from codev_train.run.ranges import Count, CountOrNone, Data


@option_class
class EnvOptions:
    """Which environment the policy acts in."""

    id: str = "codev_env:CodeV-VStar-v0"
    """Gymnasium id; its module is in front."""
    data: Data = "synthetic"
    """"synthetic", "hub" (downloads the data set of `id`), or the path of a data set."""
    scenes: str = "vstar"
    """Preset of the generated scenes; empty takes the usual one of the id."""
    scene: dict[str, int | float] = Field(default_factory=dict)
    """Options of the generated scenes that differ from the preset's, for example `cue_p 0.5`."""
    columns: tuple[str, ...] = ()
    """Own data: the column of each field, such as `image=photo answer=label` (docs/data.md)."""
    reader: tuple[str, ...] = ()
    """Own data: more options of its reader, such as `boxes=xywh`."""
    subset: str = ""
    """Only tasks of this category, or of this variant of `wrap`; empty for all."""
    only: str = ""
    """File of the tasks to train on, as `codev data filter` writes it; empty for all."""
    on_error: Literal["raise", "skip"] = "raise"
    """Bad rows: stop before the run, or leave them out and count them."""
    wrap: tuple[str, ...] = ()
    """Transforms of the tasks: a suite, names, or JSON (docs/robustness.md); `crop` says that a crop is needed."""
    dialect: str = "codev"
    """How the model family talks."""
    judge: str = "auto"
    """Judge of tool calls: a name, or `URL#NAME` of a model; or `MODULE:ATTRIBUTE`, or JSON (docs/judges.md)."""
    scorer: str = "rules"
    """Scorer of answers: a name of docs/scorers.md, `URL#NAME`, or `MODULE:ATTRIBUTE`."""
    view_pixels: CountOrNone | Literal["auto"] = 0
    """Pixels at which the policy sees a large image, "auto" asks its processor: larger crops lose detail; 0: off."""
    max_turns: Count = 6
    """Turns before an episode is cut off."""
    farm: str = ""
    """Machines that run programs and judges: `ray`, `ray://HOST:PORT`, or JSON (docs/cluster.md); empty: this one."""
