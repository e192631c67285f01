"""docs/contributing.md: its code blocks become `my_codev.py`, and each of its extensions is used."""

from __future__ import annotations

import importlib
import math
import re
import sys

import gymnasium as gym
import pytest
from pages import DOCS, ROOT, python_blocks

from codev_agents import Oracle, run_episode

ENV = "codev_env:CodeV-VStar-v0"
PAGE = DOCS / "contributing.md"


@pytest.fixture(scope="module")
def my_codev(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_codev.py").write_text("\n\n".join(block.text for block in python_blocks(PAGE)), "utf-8")
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("my_codev")
    finally:
        sys.path.remove(str(folder))
        del sys.modules["my_codev"]


def play_episode(**arguments):
    env = gym.make(ENV, **{"data": "synthetic", **({} if "data" in arguments else {"scenes": "toy"}), **arguments})
    trajectory = run_episode(env, Oracle(), options={"index": 3})
    env.close()
    return trajectory


def test_the_reward_is_computed(my_codev):
    assert play_episode(reward="my_codev:looked").reward_terms == pytest.approx({"outcome": 1.0, "seen": 0.3})


def test_the_task_set_works_and_its_boxes_are_right(my_codev):
    trajectory = play_episode(data=my_codev.Dots())
    assert trajectory.task_id == "dots-3" and trajectory.is_correct and trajectory.is_faithful
    task = my_codev.Dots()[3]
    x1, y1, x2, y2 = task.targets[0]
    red = task.image.crop((x1, y1, x2, y2)).getbbox()
    assert red == (0, 0, x2 - x1, y2 - y1)
    drawn = [(x, y) for x in range(640) for y in (209, 210) if task.image.getpixel((x, y)) == (255, 0, 0)]
    assert min(drawn)[0] == x1 and max(drawn)[0] == x2 - 1


def test_the_dialect_works(my_codev):
    env = gym.make(ENV, data="synthetic", scenes="toy", dialect="my_codev:Terse")
    assert env.unwrapped.system_prompt == my_codev.Terse().system_prompt()
    assert run_episode(env, Oracle(), options={"index": 3}).is_faithful


def test_the_judge_works(my_codev):
    trajectory = play_episode(judge=my_codev.SmallViews(), reward="tapo")
    assert trajectory.turns[0].score_why in ("some view is small", "no view is small")
    assert play_episode(judge="my_codev:SmallViews", reward="tapo").turns[0].score_why == trajectory.turns[0].score_why


def test_the_credit_works(my_codev):
    torch = pytest.importorskip("torch")
    from codev_train.learn.credit import Credit, combine, get_credit

    credit = get_credit("my_codev:above_median")
    rewards = torch.tensor([[1.0, 2.0], [0.0, 1.0], [5.0, 0.0], [7.0, 0.0]])
    turns, groups = torch.tensor([2, 2, 1, 1]), torch.tensor([0, 0, 1, 1])
    # Sums 3, 1 | 5, 7; torch's median is the lower one of two.
    expected = torch.tensor([[2.0, 2.0], [0.0, 0.0], [0.0, 0.0], [2.0, 2.0]])
    assert torch.equal(credit(rewards, turns, groups), expected)
    kept = torch.ones(1, 4, dtype=torch.bool)
    assert torch.equal(combine(credit, rewards[None], turns, groups, [1.0], kept), expected)
    assert get_credit("my_codev:ABOVE_MEDIAN") == Credit(credit.function, divides_by_std=False)


def test_the_loss_works(my_codev):
    torch = pytest.importorskip("torch")
    from codev_train.learn.loss import Clip, LossTokens, check_loss, get_loss

    check_loss("my_codev:unclipped")
    logprobs, old = torch.tensor([0.0, -1.0]), torch.tensor([0.0, -2.0])
    tokens = LossTokens(logprobs, old, torch.tensor([1.0, -2.0]), torch.tensor([0, 0]))
    loss, clipped = get_loss("my_codev:unclipped").surrogate(tokens, Clip(0.2, 0.2))
    assert loss.tolist() == pytest.approx([-1.0, 2 * math.e]) and not clipped.any()


def test_the_method_is_one_of_the_study(my_codev):
    from codev_eval.study.methods import METHODS, Method, find

    (method,) = find("method", METHODS, ["my_codev:METHOD"])
    assert isinstance(method, Method) and method.options == {
        "reward": "my_codev:looked",
        "credit": "my_codev:above_median",
    }


def test_each_block_is_about_ten_lines():
    for block in python_blocks(PAGE):
        lines = [line for line in block.text.splitlines() if line.strip() and not line.startswith(("from ", "import "))]
        assert len(lines) <= 15, block.text


def test_the_tree_lists_every_subpackage():
    rows = re.findall(r"^\| `(\w+)/` \| `codev_\w+` \| ([^|]+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert [folder for folder, _ in rows] == ["codev_env", "agents", "train", "eval"]
    for folder, floors in rows:
        subpackages = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
        assert subpackages == set(re.findall(r"`(\w+)/`", floors)), folder


def test_places_that_the_table_names_exist():
    rows = re.findall(r"^\| a?n? ?[^|]+ \| [^|]+ \| `([^`]+)` \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) >= 12
    for place, table in rows:
        assert (ROOT / place).exists(), place
        named = re.findall(r"`(\w+)` of `([^`]+)`", table)
        assert named or table.startswith("nothing")
        for name, file in named:
            assert re.search(rf"^ *{name}\b", (ROOT / file).read_text("utf-8"), re.MULTILINE), table
