"""Health of a run: reads the numbers of each update and reports those that show that learning has broken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from codev_env.app.options import ZeroOrAboveOne, option_class
from codev_env.errors import CodevError


@option_class
class HealthOptions:
    """When to warn or stop: a threshold of 0 is never crossed; for `signal` and `judge_failed` that is 1."""

    mismatch: Annotated[float, Field(gt=0)] = 1e-3
    """Largest mean difference of log-probabilities between engine and trainer, in nats per token; above it the run
    stops."""
    ratio: ZeroOrAboveOne = 10.0
    """Largest factor between the probabilities that engine and trainer give to one token; 0 disables the check."""
    entropy: Annotated[float, Field(ge=0)] = 0.01
    """Smallest entropy of the policy, in nats per token."""
    tools: Annotated[float, Field(ge=0)] = 0.05
    """Smallest number of tool calls per episode, once there were four times as many."""
    signal: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Largest share of groups without signal (nothing is learned, as where all rewards are equal or all masked)."""
    judge_failed: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Largest share of episodes in which a tool call could not be judged."""
    patience: Annotated[int, Field(ge=1)] = 5
    """Consecutive updates that cross a threshold before it is reported."""
    stop: bool = False
    """Stop the run instead of warning; numbers that are not finite, and `mismatch`, always stop it."""


@dataclass(frozen=True)
class Finding:
    """A problem in one sentence, and whether the run has to stop."""

    reason: str
    stop: bool


class Unhealthy(CodevError, RuntimeError):
    """A run stopped because its numbers show that it no longer learns."""


class Health:
    """Looks at the numbers of one update after the other.

    A condition has to hold for `patience` updates in a row; it is then reported once, and again only after it was gone.
    """

    def __init__(self, options: HealthOptions) -> None:
        self.options = options
        self._lasting: dict[str, int] = {}
        self._most_tools = 0.0

    def look(self, row: Mapping[str, float | None]) -> list[Finding]:
        """Look at one update.

        Args:
            row: Its numbers by name, as `history.jsonl` has them. Names that are missing, None and NaN say nothing, but
                for the loss, the gradient and the reward, which must be finite.

        Returns:
            The problems, worst first.
        """
        findings = [
            Finding(f"{name} is {row[name]}: the weights or the rewards are broken", True)
            for name in ("update/loss", "update/grad_norm", "reward")
            if name in row and not math.isfinite(_number(row, name))
        ]
        for name, reason in self._crossed(row).items():
            self._lasting[name] = self._lasting.get(name, 0) + 1 if reason else 0
            if self._lasting[name] == self.options.patience:
                lasting = f" ({self.options.patience} updates in a row)" if self.options.patience > 1 else ""
                findings.append(Finding(reason + lasting, self.options.stop))
        return findings

    def _crossed(self, row: Mapping[str, float | None]) -> dict[str, str]:
        """Return a reason for each condition; empty if it is not met."""
        options = self.options
        tools, entropy = _number(row, "tool_calls"), _number(row, "update/entropy")
        silent, failed = _number(row, "share/groups_without_signal"), _number(row, "share/judge_failed")
        factor = math.exp(min(_number(row, "update/sampler_gap_max"), 700.0))
        self._most_tools = max(self._most_tools, 0.0 if math.isnan(tools) else tools)
        used = self._most_tools >= 4 * options.tools
        # A comparison with NaN is false: an unknown number crosses nothing.
        rules = {
            "ratio": (
                options.ratio > 0 and factor > options.ratio,
                f"engine and trainer give one token probabilities that differ by a factor of {factor:.3g}, more than "
                f"health.ratio ({options.ratio:g}): compare their precision, or use --correction token",
            ),
            "entropy": (
                entropy < options.entropy,
                f"entropy is {entropy:.2g} nats per token, below health.entropy ({options.entropy:g}): the policy no "
                "longer explores; lower optimizer.lr, or raise clip-high or entropy",
            ),
            "tools": (
                used and tools < options.tools,
                f"{tools:.2g} tool calls per episode, below health.tools ({options.tools:g}), after "
                f"{self._most_tools:.2g}: tool use has collapsed; check the reward of tool calls",
            ),
            "signal": (
                silent >= options.signal,
                f"{silent:.0%} of the groups are without signal: all rewards of a task are equal, or its episodes are "
                "masked, and nothing is learned; use harder or easier tasks, or a larger group",
            ),
            "judge_failed": (
                failed > options.judge_failed,
                f"the judge failed in {failed:.0%} of the episodes, more than health.judge-failed "
                f"({options.judge_failed:.0%}): check its server",
            ),
            "imitation": (
                _number(row, "imitation/looks") == 0,
                "no look was faithful, so nothing is imitated of the policy's own: it looks nowhere near the "
                "evidence, or the judge asks for more detail than its crops show (view_pixels, detail_power, "
                "detail_margin)",
            ),
        }
        return {name: reason if crossed else "" for name, (crossed, reason) in rules.items()}


def _number(row: Mapping[str, float | None], name: str) -> float:
    value = row.get(name)
    return math.nan if value is None else value
