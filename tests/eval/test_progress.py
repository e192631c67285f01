"""Progress bars: the faithful-tool rate is among the judged episodes, and missing where nothing was judged."""

from __future__ import annotations

import pytest

from codev_env.scoring.metrics import summarize
from codev_env.trajectory import Trajectory
from codev_env.types import Answer, Code, Execution, Step, StepScore
from codev_eval.bench.options import EvalOptions
from codev_eval.bench.progress import ProgressBar

LOOK = Step("", Code("x"), Execution(), score=StepScore(1.0, faithful=True))
UNJUDGED = Step("", Code("x"), Execution())


def played(*turns: Step) -> Trajectory:
    faithful = any(turn.faithful for turn in turns)
    return Trajectory("t", turns=(*turns, Step("", Answer(""))), is_faithful=faithful, targets=((0, 0, 9, 9),))


@pytest.mark.parametrize(
    ("episodes", "shown"),
    [
        ([played(LOOK), played(UNJUDGED), played()], "faithful=50%"),
        ([played(LOOK), played(UNJUDGED)], "faithful=100%"),
        ([played(UNJUDGED), played(UNJUDGED)], None),
        ([played(), played()], None),
    ],
)
def test_the_bar_of_an_evaluation(capsys, episodes, shown):
    options = EvalOptions(model="scripted:oracle", data=("synthetic",))
    bar = ProgressBar("plain", len(episodes), 0, options)
    for episode in episodes:
        bar.add(episode)
    bar.close()
    said = capsys.readouterr().err
    assert (shown in said) if shown else ("faithful" not in said)
    if shown:
        assert f"{summarize(episodes)['faithful']:.0%}" == shown.removeprefix("faithful=")


def test_the_bar_of_training():
    pytest.importorskip("torch")
    from codev_train.tapo import bar_numbers

    row = {"reward": 1.0, "accuracy": 0.5, "faithful": 0.0, "other": 3.0}
    assert bar_numbers(row, [played(UNJUDGED), played()]) == {"reward": "1.00", "accuracy": "0.50"}
    assert bar_numbers(row, [played(LOOK)])["faithful"] == "0.00"
