"""Reference transcripts: the environment says exactly what stands in them, in every dialect."""

from __future__ import annotations

import gymnasium as gym
import pytest
from dialect_transcripts import NAMES, read_transcript

import codev_env  # noqa: F401 - registers the environments
from codev_env.dialects import dialect_names, get_dialect
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Code, Invalid


def test_every_dialect_has_a_transcript() -> None:
    assert dialect_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_follows_the_transcript(name: str) -> None:
    if name == "pyvision":
        pytest.importorskip("matplotlib", reason="this family shows images with plt.show()")
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", dialect=name, disable_env_checker=True)
    observation, info = env.reset(options={"index": 0})
    terminated = False
    for part in read_transcript(name):
        if part.role == "model":
            observation, _, terminated, _, info = env.step(part.text)
            continue
        assert observation["text"] == part.text
        assert tuple(image.shape[1::-1] for image in observation["images"]) == part.sizes
        assert part.text.count(IMAGE_PLACEHOLDER) == len(part.sizes)
    assert terminated
    assert info["is_correct"]
    assert info["is_faithful"]
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_transcript_holds_every_kind_of_turn(name: str) -> None:
    dialect, parts = get_dialect(name), read_transcript(name)
    turns = [dialect.parse(part.text) for part in parts if part.role == "model"]
    assert {type(turn) for turn in turns} == {Code, Answer, Invalid}
    assert any("Error:" in part.text for part in parts)
    assert max(len(part.sizes) for part in parts[1:]) > 0


@pytest.mark.parametrize("name", NAMES)
def test_turns_are_read_the_same_where_generation_stopped(name: str) -> None:
    """Servers differ in whether they return the stop string."""
    dialect = get_dialect(name)
    for part in read_transcript(name):
        turn = dialect.parse(part.text)
        if part.role == "model" and not isinstance(turn, Invalid):
            stop = next(stop for stop in dialect.stop if part.text.endswith(stop))
            assert dialect.parse(part.text.removesuffix(stop)) == turn
