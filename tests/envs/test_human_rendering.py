"""What `render` does with the text of a model, which may hold any character."""

from __future__ import annotations

import io
import sys

import gymnasium as gym
import pytest

import codev_env  # noqa: F401 - registers the environments


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_terminal_without_a_character_ends_no_step(monkeypatch, encoding):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", render_mode="human")
    env.reset(seed=0)
    assert env.step("<answer>\u4e2d \ud800 end</answer>")[2]
    env.close()
    terminal.seek(0)
    assert ("\u4e2d ? end" if encoding == "utf-8" else "? ? end") in terminal.read()


def test_no_character_of_a_model_commands_the_terminal(capsys):
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", render_mode="human")
    env.reset(seed=0)
    env.step("<code>\n```python\nprint('\\x1b]52;c;eA==\\x07one\\ttwo')\n```\n</code>")
    env.step("<answer>\x1b[2J\x9b31m\rred\r\n</answer>")
    env.close()
    printed = capsys.readouterr().out
    assert "?]52;c;eA==?one\ttwo" in printed and "?[2J?31m?red\r\n" in printed
    assert not set(printed) & {chr(code) for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160))}
