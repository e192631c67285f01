"""How TIR-Bench's script looks an option's text up in the prompt: A to J, then H once more."""

from __future__ import annotations

import pytest

from codev_env.scoring import get_scorer
from codev_env.types import Task


@pytest.mark.parametrize(
    ("prompt", "answer", "letter"),
    [
        ("Which?\nA. red\nB. blue", "blue", "B"),
        # J is read first; the second H then finds "HJ" in the prompt, as in the script.
        ("Which, in HJ?\nI. red\nJ. blue", "blue", "H"),
        ("Which?\nI. red\nJ. blue", "blue", "J"),
    ],
)
def test_a_text_is_looked_up_as_in_the_script(prompt, answer, letter):
    for gold in ("B", "H", "J"):
        task = Task("t", (), "Which?", gold, category="math", meta={"bench": "tirbench", "prompt": prompt})
        assert get_scorer("official")(task, answer).points == float(gold == letter)
