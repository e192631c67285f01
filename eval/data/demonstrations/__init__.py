"""Published trajectories as training data: read, converted, replayed in the sandbox, and kept if they run."""

from __future__ import annotations

from codev_eval.data.demonstrations.convert import TARGETS, Plan, plan
from codev_eval.data.demonstrations.demonstration import REASONS, Broken, Demonstration, RecordedTurn, Unusable
from codev_eval.data.demonstrations.reading import FORMATS, DemonstrationSet
from codev_eval.data.demonstrations.replay import Outcome, ReplayOptions, replay
from codev_eval.data.demonstrations.run import ReplayRun, summary_table

__all__ = [
    "FORMATS",
    "REASONS",
    "TARGETS",
    "Broken",
    "Demonstration",
    "DemonstrationSet",
    "Outcome",
    "Plan",
    "RecordedTurn",
    "ReplayOptions",
    "ReplayRun",
    "Unusable",
    "plan",
    "replay",
    "summary_table",
]
