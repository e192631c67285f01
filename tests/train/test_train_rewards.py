"""A training run under a reward that has everything: channels, terms of the group, probing."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import torch
from micro_run import history, letters

from codev_env.app.cli import main
from codev_env.rewards import Channel, GroupTerm, Reward, Term, terms
from codev_env.types import Episode


def most(episodes: Sequence[Episode]) -> list[float]:
    """1 for the rollouts that wrote the most letters."""
    counts = [letters(episode) for episode in episodes]
    return [float(count == max(counts)) for count in counts]


EVERYTHING = Reward(
    "everything",
    (
        Term("outcome", terms.outcome, 1.0),
        Term("letters", letters, 0.5, Channel("letters")),
        Term("gain", terms.gain, 0.15, Channel("gain")),
        Term("saving", terms.efficiency, 0.25, Channel("saving", only_correct=True)),
    ),
    (GroupTerm("most", most, -1.0),),
    needs=("probing",),
)


@pytest.mark.integration
def test_channels_group_terms_and_probing_train(runs, arguments):
    more = ("--reward", f"{__name__}:EVERYTHING", "--weights", "letters", "0.25", "--steps", "2")
    assert main(["train", *arguments("everything", *more)]) == 0
    run = runs / "everything"
    assert "after" in json.loads((run / "summary.json").read_text())
    for row in history(run):
        paid = [row[f"reward/{name}"] for name in ("outcome", "letters", "gain", "saving", "most")]
        assert abs(sum(paid) - row["reward"]) < 1e-6
        assert row["reward/letters"] > 0 > row["reward/most"] and row["share/judge_failed"] == 0
        assert row["update/grad_norm"] > 0


def all_equal(rewards: torch.Tensor, turns: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Advantages of 1 for every turn that was taken."""
    return (torch.arange(rewards.shape[1]) < turns[:, None]).to(rewards)


def test_a_credit_of_ones_own_and_tasks_that_need_a_look_train(runs, arguments):
    more = ("--credit", f"{__name__}:all_equal", "--candidates", "2", "--steps", "1")
    assert main(["train", *arguments("own-credit", *more)]) == 0
    assert history(runs / "own-credit")[0]["update/grad_norm"] > 0


def test_a_credit_that_is_none_is_refused(arguments, capsys):
    assert main(["train", *arguments("no-credit", "--credit", "turns")]) == 1
    assert "credit" in (said := capsys.readouterr().err) and "'turn'" in said
