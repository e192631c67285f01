"""The progress bar of an evaluation."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tqdm import tqdm

from codev_env.farm.farm import farm_metrics
from codev_env.scoring.metrics import judged_episodes
from codev_env.trajectory import Trajectory
from codev_env.usage import EpisodeUsage
from codev_eval.bench.options import EvalOptions
from codev_eval.bench.usage import taken


class ProgressBar:
    """The progress bar of a condition: running scores, tokens, failures and the time left.

    Args:
        title: Name of the condition.
        total: Number of its episodes.
        initial: Number of them from an earlier start.
        options: Hold the prices of tokens.
    """

    def __init__(self, title: str, total: int, initial: int, options: EvalOptions) -> None:
        self._bar = tqdm(total=total, initial=initial, desc=title, unit="ep", file=sys.stderr)
        self._options = options
        self.played = self.right = self.faithful = self._failed = self._judged = 0
        self._scored = False
        self._taken = EpisodeUsage()

    def start(self, found: Sequence[Trajectory], failed: EpisodeUsage) -> None:
        """Count the episodes of an earlier start, and what failed ones took, without drawing."""
        self._taken += failed
        for trajectory in found:
            self._note(trajectory)

    def add(self, trajectory: Trajectory) -> None:
        """Show one more episode."""
        self._note(trajectory)
        shown = {"accuracy": f"{self.right / self.played:.0%}"}
        if self._scored:  # without boxes and without a judge the rate is unknown, not 0
            shown["faithful"] = f"{self.faithful / self._judged:.0%}"
        model, judge = self._taken.agent, self._taken.judge
        if tokens := model["prompt_tokens"] + model["completion_tokens"]:
            shown["tokens"] = f"{tokens:,}"
        if cost := self._options.cost(model) + judge.cost:
            shown["cost"] = f"{cost:.2f}"
        if self._failed:
            shown["failed"] = str(self._failed)
        if farm := farm_metrics():
            shown["nodes"] = f"{farm['farm/nodes']:.0f}"
            if restarts := farm["farm/episodes_restarted"]:
                shown["restarts"] = f"{restarts:.0f}"
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update()

    def failed(self, usage: EpisodeUsage) -> None:
        """Show one more failure, and what it took."""
        self._failed += 1
        self._taken += usage
        self._bar.update()

    def close(self) -> None:
        """End the bar."""
        self._bar.close()

    def _note(self, trajectory: Trajectory) -> None:
        self.played += 1
        self.right += trajectory.is_correct
        self._scored = self._scored or any(turn.score_value is not None for turn in trajectory.turns)
        for judged in judged_episodes((trajectory,)):  # the rate is among these, as in metrics.json
            self._judged += 1
            self.faithful += judged.is_faithful
        self._taken += taken((trajectory,))
