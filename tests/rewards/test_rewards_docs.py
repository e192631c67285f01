"""docs/rewards.md: its table is the package's, and its code runs."""

from __future__ import annotations

import re
from pathlib import Path

from codev_env.rewards import REWARDS, get_reward
from codev_eval.rewards.cli import formula

TEXT = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text("utf-8")


def test_the_table_is_the_packages() -> None:
    for reward in REWARDS.values():
        needs = ", ".join(reward.needs) or "-"
        assert f"| `{reward.name}` | {formula(reward)} | {needs} | {'yes' if reward.robust else 'no'} |" in TEXT


def test_the_code_runs_and_is_a_reward(capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 2 and get_reward(names["brisk"]).names == ("outcome", "look", "turns")
    assert capsys.readouterr().out == "{'outcome': 0.0, 'look': 0.0, 'turns': 0.0}\n"
