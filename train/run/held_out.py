"""The options of evaluations on held-out tasks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from codev_env.app.options import option_class
from codev_train.run.ranges import Count, CountOrNone, Data, NotNegative


@option_class
class HeldOutOptions:
    """Evaluation on held-out tasks."""

    episodes: Count = 128
    """Held-out episodes; the same ones each time, shared out over processes."""
    every: CountOrNone = 0
    """Updates between evaluations, 0 for none; before and after training there is always one."""
    split: Literal["val", "test"] = "test"
    """Split they come from."""
    id: str = ""
    """Environment id, for training data without a held-out part; empty takes `env.id`."""
    data: Data = ""
    """Its data; empty takes `env.data`, or "synthetic" if `eval.id` is given."""
    only: str = ""
    """File of the tasks to evaluate on, as `codev data filter` writes it; empty for all. `env.only` is for training."""
    scenes: str = ""
    """Its preset of generated scenes, without `env.scene`; empty takes that of `env`, or the usual of `eval.id`."""
    contrast: dict[str, int | float] = Field(default_factory=dict)
    """Options of generated scenes that a second accuracy is measured on, for example `cue_p 0`; empty measures none."""
    dual: bool = False
    """Play the same tasks without the tool too, ask for answers at once, and say what a look gives (MED)."""
    temperature: NotNegative = 0.0
    """Sampling temperature; 0 is greedy."""
