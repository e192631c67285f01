"""The adapter for VisGym: its contract with Gymnasium's own package, its interactor where the fork is on the path.

VisGym is no package of the registry, and takes the name of `gymnasium`: to run the last test, put a checkout of
github.com/visgym/VisGym (tried at 0289034) first on PYTHONPATH, with ipywidgets installed.
"""

from __future__ import annotations

import ast
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from chat_server import LOOKED_RIGHT, SCENES

from codev_env.adapters.visgym import ID, CodeVVisGymEnv
from codev_env.errors import ConfigError

MAKE = f"codev_env.adapters.visgym:{ID}"
OPTIONS = {**SCENES, "scenes": {"preset": "toy", "size": 64}}


@pytest.fixture
def env():
    made = CodeVVisGymEnv(**OPTIONS)
    yield made
    made.close()


def test_an_expert_solves_it(env):
    image, _ = env.reset(seed=1)
    assert image.dtype == np.uint8 and image.shape == env.render().shape == env.observation_space.shape
    paid = 0.0
    for action in env.solve():
        assert isinstance(ast.literal_eval(action), tuple)
        image, reward, terminated, truncated, info = env.step(action)
        paid += reward
    assert terminated and not truncated and info["is_correct"] and info["is_faithful"]
    assert paid == pytest.approx(sum(LOOKED_RIGHT.values()))


def test_the_prompt_has_question_and_actions_and_nothing_of_the_answer(env):
    _, info = env.reset(seed=1)
    prompt = env.get_prompt()
    assert "What digit" in prompt and "'run'" in prompt and "'answer'" in prompt
    assert "<image>" not in prompt and "<code>" not in prompt and "answer" not in info.get("task", {})


@pytest.mark.parametrize("dialect", ["codev", "codevision", "thyme", "pyvision", "deepeyes"])
def test_its_own_examples_are_actions(dialect):
    env = CodeVVisGymEnv(**OPTIONS, dialect=dialect)
    env.reset(seed=1)
    example = next(line for line in env.get_prompt().splitlines() if line.startswith("- `('run'")).strip("- `")
    image, *_, info = env.step(example)
    assert info["action_kind"] == "code" and image.shape == (100, 100, 3), info["env_feedback"]
    env.close()


def test_a_program_with_an_error_leaves_the_image_and_says_why(env):
    before, _ = env.reset(seed=1)
    image, *_, info = env.step(str(("run", "image.crop(")))
    assert np.array_equal(image, before) and "SyntaxError" in info["env_feedback"]


def test_several_images_are_side_by_side(env):
    env.reset(seed=1)
    code = 'image.crop((0, 0, 40, 30)).save("a.png")\nimage.crop((0, 0, 50, 60)).save("b.png")\nprint("a.png\\nb.png")'
    image, *_ = env.step(str(("run", code)))
    assert image.shape == (60, 90, 3) and not image[30:, :40].any()


@pytest.mark.parametrize("action", ["('move', 0)", "nonsense", "('answer', '1', 2)", "", "(" * 9999, "('run',)", "\0"])
def test_other_actions_are_answered_with_feedback(env, action):
    env.reset(seed=1)
    _, _, terminated, _, info = env.step(action)
    assert not terminated and info["action_kind"] == "invalid" and info["env_feedback"]


def test_a_set_is_no_action(env):
    """Its order is another one in each process."""
    for answer in ("red", "blue", "green", "1", "2", "three"):
        env.reset(seed=1)
        assert env.step(f"{{'answer', '{answer}'}}")[4]["action_kind"] == "invalid"


def test_a_turn_in_the_dialect_is_taken_too(env):
    env.reset(seed=1)
    _, _, terminated, _, info = env.step("<think>I can see it.</think>\n<answer>1</answer>")
    assert terminated and info["action_kind"] == "answer"


def test_an_initial_state_starts_the_same_task(env):
    first, _ = env.reset(seed=5)
    state = env.get_init_state()
    env.reset(seed=6)
    again, _ = env.reset(seed=6, init_state=state)
    assert np.array_equal(first, again) and env.get_init_state() == state


def test_gymnasium_makes_it_by_name():
    made = gym.make(MAKE, seed=3, **OPTIONS)
    image, _ = made.reset(seed=3)
    assert image.ndim == 3
    made.close()


def test_text_modes_are_refused(env):
    env.reset(seed=1)
    for use in (lambda: CodeVVisGymEnv(render_mode="ansi", **OPTIONS), lambda: env.render("ansi")):
        with pytest.raises(ConfigError, match="ansi"):
            use()


@pytest.mark.skipif(not hasattr(gym, "VLMEnvMixin"), reason="gymnasium is not VisGym's fork (only from source)")
@pytest.mark.parametrize("tags", [False, True])
def test_its_interactor_plays_an_episode(tags):
    sys.modules.setdefault("qwen_vl_utils", types.SimpleNamespace(process_vision_info=None))  # of models not used here
    interactor = pytest.importorskip("gymnasium.vlm.interactor", reason="ipywidgets is not installed")

    class Expert(interactor.BaseVLM):
        def query(self, image, prompt, **_):
            self.conversation_history += [prompt]
            action = env.solve()[min(len(self.conversation_history), 2) - 1]
            return f"<think>so</think><answer>{action}</answer>" if tags else f"Action: {action}"

    env = gym.make(MAKE, **OPTIONS)
    played = interactor.Interactor(Expert(), env, max_steps=5)
    env = env.unwrapped
    stats = played.run_episode(seed=3, elicit_verbalization=tags, include_env_feedback=True)
    assert stats["terminated"] and stats["step"] == 2
    assert stats["reward"] == pytest.approx(sum(LOOKED_RIGHT.values()))
    env.close()


@pytest.mark.parametrize("action", ["('run', 'show(image)')", "('run', 5)", "('run', None)"])
def test_a_program_that_a_dialect_has_no_words_for_is_answered_with_feedback(action):
    env = CodeVVisGymEnv(**OPTIONS, dialect="deepeyes")
    env.reset(seed=1)
    *_, info = env.step(action)
    assert info["action_kind"] == "invalid" and info["env_feedback"]
    env.close()


def test_unknown_options_of_a_reset_are_named(env):
    with pytest.raises(ConfigError, match="unknown reset option 'split'"):
        env.reset(options={"split": "test"})


def test_the_expert_shows_what_a_dialect_can_crop():
    env = CodeVVisGymEnv(data="synthetic", scenes="album", dialect="deepeyes", max_turns=9)
    shown = 0
    for index in range(4):
        env.reset(options={"index": index})
        for action in env.solve():
            *_, info = env.step(action)
            shown += any(info["crop_boxes"])
        assert info["is_correct"]
    assert 0 < shown < 4  # targets on the first image
    env.close()
