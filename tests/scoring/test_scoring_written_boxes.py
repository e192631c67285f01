"""TreeBench's mean IoU of written boxes, held to values computed by hand from the rules of its script."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codev_env.scoring.metrics import published_score
from codev_env.scoring.written_boxes import written_boxes, written_iou
from codev_env.trajectory import Trajectory
from codev_env.types import Answer, Code, Execution, Step

ONE, TWO = ((10, 10, 20, 20),), ((0, 0, 10, 10), (20, 20, 30, 30))
VECTORS = [
    ("the sign <box>[10,10,20,20]</box> says B", ONE, 1.0),
    ("<box>[10,10,20,15]</box>", ONE, 0.5),  # 50 of 100
    ("<box>[15,10,25,20]</box>", ONE, 1 / 3),  # 50 of 150
    ("<box>[0,0,9,9]</box>", ONE, 0.0),
    ("<box>[0,0,9,9]</box> no, <box>[10,10,20,15]</box>", ONE, 0.5),  # the best one
    ("<box>[0,0,10,10]</box>", TWO, 0.5),  # (1 + 0) / 2
    ("<box>[0,0,30,30]</box>", TWO, 1 / 9),  # 100 of 900, for both
    ("<box>[20,20,30,30]</box><box>[0,0,10,5]</box>", TWO, 0.75),
    ("<box>\n[10,10,20,20] </box>", ONE, 1.0),
    ("<box>[10,10,20,20], the red one</box>", ONE, 1.0),
    ("<box>at [10,10,20,20]</box>", ONE, 0.0),
    ("<box>[10, 10, 20, 20]</box>", ONE, 0.0),
    ("<box>[10.0,10.0,20.0,20.0]</box>", ONE, 0.0),
    ("<box>10,10,20,20</box>", ONE, 0.0),
    ("<box>[20,20,10,10]</box>", ONE, 0.0),
    ("<BOX>[10,10,20,20]</BOX>", ONE, 0.0),
    ("<box>[10,10,20,20]", ONE, 0.0),
    ("<box>[1,1,2,2]<box>[10,10,20,20]</box>", ONE, 0.0),  # one pair of marks; its first box counts
    ("[10,10,20,20]", ONE, 0.0),
    ("<box>[10,10,20,20]</box>", (), 0.0),
    ("", ONE, 0.0),
]


@pytest.mark.parametrize(("text", "targets", "value"), VECTORS)
def test_the_script_s_rules(text, targets, value):
    assert written_iou(text, targets) == pytest.approx(value)


@given(st.lists(st.sampled_from(["<box>", "</box>", "[1,2,3,4]", "[9,9,1,1]", " ", "x", "\n", "<", "[1,2,3,4]]"])))
def test_marks_pair_as_in_the_script(parts):
    text = "".join(parts)
    marked = re.findall(r"<box>(.*?)</box>", text, re.DOTALL)
    expected = [(1, 2, 3, 4) for inside in marked if inside.strip().startswith("[1,2,3,4]")]
    assert written_boxes(text) == expected


def test_hostile_texts_end():
    assert written_boxes("<box>" * 200_000) == []
    assert written_boxes(f"<box>[{'9' * 5000},1,2,3]</box>") == []


def played(text: str, targets, category: str = "Perception/OCR") -> Trajectory:
    turns = (Step(text, Code("show(image)"), Execution()), Step("<answer>B</answer>", Answer("B")))
    return Trajectory("t", targets=targets, turns=turns, category=category, is_correct=True)


def test_an_evaluation_reports_it_beside_the_accuracy():
    episodes = [played("<think><box>[10,10,20,15]</box></think>", ONE), played("none", TWO)]
    found = published_score("treebench", episodes)
    assert found == pytest.approx({"overall": 1.0, "Perception/OCR": 1.0, "mIoU": 0.25})
    assert "mIoU" not in published_score("vstar", episodes)
    json.dumps(found)
