from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from codev_env.dialects import get_dialect
from codev_env.envs.image_tool import ImageToolEnv, unwrap
from codev_env.envs.vstar import CodeVVStarEnv
from codev_env.errors import ConfigError, JudgeError, TaskError
from codev_env.images import to_shown_array
from codev_env.rewards import Reward, Term
from codev_env.spaces import MAX_SIDE
from codev_env.tasks import load_tasks, wrap_tasks
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Code, Observation, Step, StepInfo, StepScore, Task

INFO = {
    "task_id": str,
    "index": int,
    "turn": int,
    "action_kind": str,
    "stop_reason": str,
    "is_correct": bool,
    "is_faithful": bool,
    "reward_terms": dict,
    "crop_boxes": tuple,
    "source": str,
}


def code(program: str) -> str:
    return get_dialect("codev").write(Code(program), "look")


def answer(text: str) -> str:
    return get_dialect("codev").write(Answer(text), "done")


class Tasks:
    """Three small pictures of known colours."""

    name = "three"
    source = "generated"

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Task:
        rng = np.random.default_rng(index)
        image = Image.fromarray(rng.integers(0, 256, (90, 120, 3), dtype=np.uint8))
        meta = {"secret": "meta-secret"}
        return Task(f"t{index}", (image,), "Which word?", "gold-secret", targets=((20, 30, 40, 50),), meta=meta)

    def index_of(self, task_id: str) -> int:
        if task_id not in ("t0", "t1", "t2"):
            raise TaskError(f"no task {task_id!r}")
        return int(task_id[1:])


class ListJudge:
    """Scores tool calls from a list and remembers what it was asked."""

    name = "list"

    def __init__(self, *scores: float | None | Exception) -> None:
        self.scores = list(scores)
        self.asked: list[tuple[Task, Step, int]] = []

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        self.asked.append((task, step, len(history)))
        score = self.scores.pop(0)
        if isinstance(score, Exception):
            raise score
        return StepScore(score, "listed", faithful=score == 1.0)


@pytest.fixture
def env() -> ImageToolEnv:
    return ImageToolEnv(Tasks(), max_turns=4)


def test_the_first_observation(env: ImageToolEnv) -> None:
    observation, info = env.reset(options={"index": 1})
    assert observation["text"] == env.dialect.first_message(env.task)
    assert observation["text"].count(IMAGE_PLACEHOLDER) == len(observation["images"]) == 1
    np.testing.assert_array_equal(observation["images"][0], np.asarray(Tasks()[1].image))
    assert info == {
        "task_id": "t1",
        "index": 1,
        "turn": 0,
        "action_kind": "",
        "stop_reason": "",
        "is_correct": False,
        "is_faithful": False,
        "reward_terms": {"outcome": 0.0, "format": 0.0, "tool": 0.0},
        "crop_boxes": (),
        "source": "generated",
    }
    assert env.system_prompt == env.dialect.system_prompt()


def test_an_episode_of_code_and_answer(env: ImageToolEnv) -> None:
    env.reset(options={"task_id": "t2"})
    observation, reward, terminated, truncated, info = env.step(
        code("crop = image.crop((15, 25, 60, 65))\ncrop.save('c.png')\nprint('seen')\nprint('c.png')")
    )
    assert (terminated, truncated) == (False, False)
    assert observation["text"] == "<sandbox_output>\nseen\n<image>\n</sandbox_output>"
    np.testing.assert_array_equal(observation["images"][0], np.asarray(env.task.image.crop((15, 25, 60, 65))))
    assert info["crop_boxes"] == ((15, 25, 60, 65),)
    assert (info["action_kind"], info["turn"], info["stop_reason"]) == ("code", 1, "")
    assert reward == pytest.approx(sum(info["reward_terms"].values()), abs=0)

    observation, reward, terminated, truncated, info = env.step(answer("gold-secret"))
    assert (terminated, truncated) == (True, False)
    assert observation == {"text": "", "images": ()}
    assert (info["action_kind"], info["stop_reason"], info["is_correct"]) == ("answer", "answer", True)
    assert info["reward_terms"]["outcome"] == 1.0
    with pytest.raises(ResetNeeded, match=r"call reset\(\)"):
        env.step(answer("gold-secret"))


def test_files_stay_from_one_turn_to_the_next_and_not_beyond_the_episode(env: ImageToolEnv) -> None:
    env.reset(options={"index": 0})
    env.step(code("image.crop((20, 20, 80, 80)).save('a.png')"))
    observation, *_, info = env.step(code("Image.open('a.png').crop((10, 10, 50, 50)).save('b.png')\nprint('b.png')"))
    assert info["crop_boxes"] == ((30, 30, 70, 70),)
    env.reset(options={"index": 0})
    observation, *_ = env.step(code("show(Image.open('a.png'))"))
    assert "Error:" in observation["text"]
    assert observation["images"] == ()


def test_unreadable_text_costs_a_turn_and_is_told_why(env: ImageToolEnv) -> None:
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step("hm")
    assert "no code block and no answer block" in observation["text"]
    assert (info["action_kind"], info["turn"], reward, terminated, truncated) == ("invalid", 1, 0.0, False, False)


def test_the_turn_budget_truncates(env: ImageToolEnv) -> None:
    env.reset(seed=0)
    results = [env.step(code("print(1)")) for _ in range(4)]
    assert [result[3] for result in results] == [False, False, False, True]
    assert [result[4]["stop_reason"] for result in results] == ["", "", "", "max_turns"]
    assert "1" in results[-1][0]["text"]
    assert not any(result[2] for result in results)
    with pytest.raises(ResetNeeded):
        env.step(answer("A"))


def test_an_answer_in_the_last_turn_terminates(env: ImageToolEnv) -> None:
    env.reset(seed=0)
    for _ in range(3):
        env.step("hm")
    _, _, terminated, truncated, info = env.step(answer("wrong"))
    assert (terminated, truncated, info["stop_reason"], info["is_correct"]) == (True, False, "answer", False)


def test_steps_before_a_reset_are_refused(env: ImageToolEnv) -> None:
    with pytest.raises(ResetNeeded):
        env.step(answer("A"))
    with pytest.raises(ResetNeeded):
        _ = env.task


def test_a_reset_that_fails_leaves_no_episode_to_go_on_with(env: ImageToolEnv) -> None:
    env.reset(options={"index": 0})
    with pytest.raises(ConfigError):
        env.reset(options={"index": 99})
    with pytest.raises(ResetNeeded):
        env.step(code("print(1)"))
    env.reset(options={"index": 0})
    assert env.step(code("print(1)"))[0]["text"]


def test_a_seed_that_cannot_be_used_leaves_no_episode_to_go_on_with(env: ImageToolEnv) -> None:
    env.reset(seed=0)
    with pytest.raises(gym.error.Error, match="Seed"):
        env.reset(seed=-1)
    with pytest.raises(ResetNeeded):
        env.step(answer("A"))


@pytest.mark.parametrize("action", [3, None, b"<answer>A</answer>", ["a"]])
def test_actions_are_text(env: ImageToolEnv, action: Any) -> None:
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="must be the model's text"):
        env.step(action)
    env.step(answer("A"))


texts = st.one_of(
    st.text(max_size=30), st.sampled_from([code("print(2)"), code("1/0"), answer("A"), "<code>", "<answer>"])
)


@given(actions=st.lists(texts, min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_any_text_is_legal_and_info_keeps_its_shape(actions: list[str]) -> None:
    env = ImageToolEnv(Tasks(), max_turns=3)
    observation, info = env.reset(seed=0)
    total, paid = 0.0, dict.fromkeys(env.reward.names, 0.0)
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation in env.observation_space
        assert {name: type(value) for name, value in info.items()} == INFO
        assert list(info) == list(INFO)
        assert all(type(value) is float for value in info["reward_terms"].values())
        assert reward == sum(info["reward_terms"].values())
        assert len(info["crop_boxes"]) == len(observation["images"]) == observation["text"].count(IMAGE_PLACEHOLDER)
        total += reward
        paid = {name: paid[name] + value for name, value in info["reward_terms"].items()}
        if terminated or truncated:
            break
    value = env.reward.value(env.episode)
    assert paid == pytest.approx(value, abs=1e-12)
    assert total == pytest.approx(sum(value.values()), abs=1e-12)
    env.close()


def test_options(env: ImageToolEnv) -> None:
    assert env.reset(options={"index": np.int64(2)})[1]["task_id"] == "t2"
    assert env.reset(options={"task_id": "t1"})[1]["index"] == 1
    options = {"index": 1}
    env.reset(options=options)
    assert options == {"index": 1}
    with pytest.raises(ConfigError, match="Did you mean 'index'"):
        env.reset(options={"indx": 1})
    for bad in (3, -1, True, "1", 1.0):
        with pytest.raises(ConfigError, match="from 0 to 2"):
            env.reset(options={"index": bad})
    with pytest.raises(ConfigError, match="task_id is 3; it must be a str"):
        env.reset(options={"task_id": 3})
    with pytest.raises(ConfigError, match="either index or task_id"):
        env.reset(options={"index": 1, "task_id": "t1"})
    with pytest.raises(TaskError, match="nope"):
        env.reset(options={"task_id": "nope"})


def test_tasks_are_drawn_from_the_seeded_generator(env: ImageToolEnv) -> None:
    def drawn(seed: int) -> list[int]:
        first = env.reset(seed=seed)[1]["index"]
        return [first, *(env.reset()[1]["index"] for _ in range(20))]

    assert drawn(5) == drawn(5) != drawn(6)
    assert set(drawn(5)) == {0, 1, 2}


def test_images_are_fresh_and_writable(env: ImageToolEnv) -> None:
    first = env.reset(options={"index": 0})[0]["images"][0]
    shown = [env.step(code("show(image)"))[0]["images"][0] for _ in range(2)]
    again = env.reset(options={"index": 0})[0]["images"][0]
    arrays = [first, *shown, again]
    assert all(array.flags.writeable for array in arrays)
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    first[:] = 0
    assert env.reset(options={"index": 0})[0]["images"][0].any()


def test_small_crops_are_scaled_up_and_narrow_ones_refused(env: ImageToolEnv) -> None:
    env.reset(options={"index": 0})
    observation, *_, info = env.step(code("show(image.crop((0, 0, 10, 20)))\nshow(image.crop((0, 0, 120, 1)))"))
    assert [image.shape for image in observation["images"]] == [(56, 28, 3)]
    assert info["crop_boxes"] == ((0, 0, 10, 20),)
    assert "120x1" in observation["text"] and "Error" in observation["text"]


@given(width=st.integers(1, 2000), height=st.integers(1, 60))
def test_shown_sizes(width: int, height: int) -> None:
    shown = to_shown_array(Image.new("RGB", (width, height)))
    assert shown.shape[2] == 3
    assert min(shown.shape[:2]) == max(28, min(width, height))
    assert max(shown.shape[:2]) <= MAX_SIDE
    assert shown.shape[1] / shown.shape[0] == pytest.approx(width / height, rel=0.02)


def test_each_tool_call_is_judged_once_with_what_came_before() -> None:
    judge = ListJudge(1.0, None, 0.5)
    env = ImageToolEnv(Tasks(), judge=judge, max_turns=6)
    env.reset(options={"index": 0})
    terms = [env.step(a)[4]["reward_terms"]["tool"] for a in (code("show(image)"), code("x = 1"), "hm", code("1/0"))]
    assert terms == [0.5, 0.0, 0.0, 0.5 * 0.75 - 0.5]
    assert [(task.task_id, history) for task, _, history in judge.asked] == [("t0", 0), ("t0", 1), ("t0", 3)]
    *_, info = env.step(answer("A"))
    assert info["is_faithful"] is True
    assert len(judge.asked) == 3


@pytest.mark.parametrize("failure", [JudgeError("no reply"), ValueError("bad json")])
def test_a_judge_that_fails_is_never_a_score_of_zero(failure: Exception) -> None:
    env = ImageToolEnv(Tasks(), judge=ListJudge(failure, 1.0))
    env.reset(seed=0)
    with pytest.raises(JudgeError):
        env.step(code("show(image)"))
    assert env.episode.steps == []
    with pytest.raises(ResetNeeded):
        env.step(code("show(image)"))
    env.reset(seed=0)
    assert env.step(code("show(image)"))[4]["reward_terms"]["tool"] == 0.5


def test_a_custom_reward_with_weights() -> None:
    turns = Reward("turns", (Term("turns", lambda episode: float(len(episode.steps))),))
    env = ImageToolEnv(Tasks(), reward=turns, reward_weights={"turns": -0.25})
    env.reset(seed=0)
    assert [env.step("hm")[1] for _ in range(2)] == [-0.25, -0.25]


def texts_of(value: Any) -> str:
    """All that is written anywhere in a value, arrays aside."""
    if isinstance(value, dict):
        return " ".join(texts_of(part) for pair in value.items() for part in pair)
    if isinstance(value, (tuple, list)):
        return " ".join(texts_of(part) for part in value)
    return str(value)


class SpySandbox:
    """Passes everything on to the real sandbox and remembers it."""

    def __init__(self, box: Any) -> None:
        self.box, self.seen = box, []

    def session(self, images: Any, **options: Any) -> Any:
        self.seen.append((sorted(images), [image.info for image in images.values()], options))
        session = self.box.session(images, **options)
        run, view = session.run, session.add_view
        session.run = lambda *a, **k: (self.seen.append((a, k)), run(*a, **k))[1]
        session.add_view = lambda *a, **k: (self.seen.append((a, sorted(k))), view(*a, **k))[1]
        return session


def test_the_answer_reaches_neither_observation_nor_info_nor_sandbox(env: ImageToolEnv) -> None:
    spy = SpySandbox(env.sandbox)
    spied = ImageToolEnv(Tasks(), sandbox=spy, max_turns=3)  # type: ignore[arg-type]
    seen: list[Any] = [spied.reset(options={"index": 0})]
    seen += [spied.step(action) for action in (code("print(dir())\nshow(image)"), "hm", answer("wrong"))]
    assert len(spy.seen) >= 2
    for secret in ("gold-secret", "meta-secret"):
        assert secret not in texts_of(seen)
        assert secret not in texts_of(spy.seen)
    assert secret not in spied.system_prompt


def test_environments_of_a_process_share_one_sandbox(env: ImageToolEnv) -> None:
    other = ImageToolEnv(Tasks(), limits={"wall_s": 4.0})
    assert ImageToolEnv(Tasks()).sandbox is env.sandbox
    assert other.sandbox is not env.sandbox
    assert ImageToolEnv(Tasks(), sandbox=env.sandbox).sandbox is env.sandbox
    env.reset(seed=0)
    env.step(code("show(image)"))
    env.close()
    env.close()
    fresh = ImageToolEnv(Tasks())
    fresh.reset(seed=0)
    assert fresh.step(code("show(image)"))[0]["images"]


def test_limits_reach_the_sandbox() -> None:
    env = ImageToolEnv(Tasks(), limits={"wall_s": 0.5})
    env.reset(seed=0)
    observation, *_ = env.step(code("while True:\n    pass"))
    assert env.episode.steps[0].execution is not None
    assert env.episode.steps[0].execution.stop == "timeout"
    assert "Hint: Make it faster." in observation["text"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_turns": 0}, "at least 1"),
        ({"max_turns": 2.5}, "at least 1"),
        ({"dialect": "codevv"}, "Did you mean 'codev'"),
        ({"reward": "tap"}, "Did you mean 'tapo'"),
        ({"reward_weights": {"x": 1.0}}, "Known: format, outcome, tool"),
        ({"judge": "ground_thruth"}, "Did you mean 'ground_truth'"),
        ({"limits": {"wal_s": 1.0}}, "Did you mean 'wall_s'"),
        ({"limits": 3}, "give a mapping"),
        ({"render_mode": "ascii"}, "Did you mean 'ansi'"),
    ],
)
def test_arguments_that_cannot_be_used_say_why(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ImageToolEnv(Tasks(), **options)


def test_limits_and_sandbox_exclude_each_other(env: ImageToolEnv) -> None:
    with pytest.raises(ConfigError, match="leave limits out"):
        ImageToolEnv(Tasks(), sandbox=env.sandbox, limits={"wall_s": 1.0})


class Coloured(Tasks):
    """One of the pictures, in another mode of Pillow."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        wide = Image.fromarray(np.arange(90 * 120, dtype=np.uint16).reshape(90, 120) * 6)
        return dataclasses.replace(task, images=[wide if self.mode == "I;16" else task.image.convert(self.mode)])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_crops_of_images_that_are_not_rgb_have_a_place(mode: str) -> None:
    env = ImageToolEnv(Coloured(mode))
    seen, _ = env.reset(options={"index": 0})
    observation, _, _, _, info = env.step(code("print(image.mode)\nshow(image.crop((10, 20, 70, 60)))"))
    assert "RGB\n" in observation["text"] and info["crop_boxes"] == ((10, 20, 70, 60),)
    assert np.array_equal(observation["images"][0], seen["images"][0][20:60, 10:70])
    assert seen["images"][0].std() > 20  # 16 bits are scaled, not cut off


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "CMYK", "I;16"])
def test_images_that_are_not_rgb_are_corrupted_as_rgb(mode: str) -> None:
    pytest.importorskip("albumentations")
    shown = Image.fromarray(ImageToolEnv(Coloured(mode)).reset(options={"index": 0})[0]["images"][0])

    class Converted(Tasks):
        def __getitem__(self, index: int) -> Task:
            return dataclasses.replace(super().__getitem__(index), images=(shown,))

    found, wanted = (wrap_tasks(tasks, ["jpeg:1"])[0].image for tasks in (Coloured(mode), Converted()))
    assert found.mode == "RGB" and np.array_equal(found, wanted)


def test_images_without_a_range_are_refused() -> None:
    with pytest.raises(TaskError, match="task 't1': the image has floating point pixels"):
        ImageToolEnv(Coloured("F")).reset(options={"index": 1})


def test_an_empty_task_set_is_refused() -> None:
    class Empty(Tasks):
        def __len__(self) -> int:
            return 0

    with pytest.raises(TaskError, match="empty"):
        ImageToolEnv(Empty())


def test_vstar_takes_a_task_set() -> None:
    env = gym.make("CodeV-VStar-v0", data=Tasks())
    assert env.reset(options={"index": 1})[1]["task_id"] == "t1"
    with pytest.raises(ConfigError, match="without scenes"):
        CodeVVStarEnv(data=Tasks(), scenes="toy")
    with pytest.raises(ConfigError, match="data is 3"):
        CodeVVStarEnv(data=3)  # type: ignore[arg-type]


def test_a_copied_environment_does_not_share_the_episode(env: ImageToolEnv) -> None:
    env.reset(seed=0)
    twin = copy.deepcopy(env)
    env.step(code("show(image)"))
    with pytest.raises(ResetNeeded):
        twin.step(answer("A"))
    assert len(env.episode.steps) == 1


def test_a_pickled_environment_uses_the_sandbox_of_its_process(env: ImageToolEnv) -> None:
    spied = ImageToolEnv(Tasks(), sandbox=SpySandbox(env.sandbox), max_turns=2)  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(spied))
    assert again.sandbox is env.sandbox
    assert again.max_turns == 2


def test_the_spec_has_the_sandbox_that_was_given(env: ImageToolEnv) -> None:
    made = gym.make("CodeV-VStar-v0", data=Tasks(), sandbox=env.sandbox)
    assert made.spec is not None and made.spec.kwargs["sandbox"] is env.sandbox
    assert unwrap(gym.make(made.spec)).sandbox is env.sandbox


def test_a_task_set_that_is_given_is_wrapped_as_the_id_says():
    tasks = load_tasks("synthetic", "test", scenes="toy")
    env = gym.make("CodeV-Orientation-v0", data=tasks)
    env.reset(options={"index": 1})
    assert env.unwrapped.task.transform == ("rotate_90",)
    assert len(env.unwrapped.tasks) == 6 * len(tasks)
    with pytest.raises(ConfigError, match="a TaskSet without scenes"):
        gym.make("CodeV-Orientation-v0", data=tasks, scenes="toy")


def test_unwrap_finds_the_environment_and_names_another_one():
    env = ImageToolEnv(Tasks())
    assert unwrap(gym.wrappers.TimeLimit(env, 3)) is unwrap(env) is env
    with pytest.raises(ConfigError, match="is a CartPoleEnv; give one of this package's"):
        unwrap(gym.make("CartPole-v1"))


def test_observation_and_info_have_the_keys_of_their_types():
    env = ImageToolEnv(Tasks())
    observation, info = env.reset(options={"index": 0})
    assert observation.keys() == Observation.__annotations__.keys()
    assert info.keys() == StepInfo.__annotations__.keys() == INFO.keys()
    env.close()


def test_a_step_is_not_rewritten():
    """The judge's score is part of another record: the environment's."""
    env = ImageToolEnv(Tasks())
    env.reset(options={"index": 0})
    made = env.execute(code("show(image)"))
    env.finish(made, StepScore(0.5))
    assert made.score is None and env.episode.steps[0] == dataclasses.replace(made, score=StepScore(0.5))
    env.note_probe(False, True)
    assert env.episode.steps[0].probed == (False, True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.score = StepScore(0.5)
    env.close()
