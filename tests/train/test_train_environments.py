"""Which environment a run trains in, and which it is evaluated in."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from codev_env.envs.image_tool import unwrap
from codev_env.errors import ConfigError
from codev_train.run.config import fingerprint
from codev_train.run.environments import make_eval_env, make_train_env, with_view
from codev_train.run.options import EnvOptions, HeldOutOptions, SFTOptions, TrainOptions


def tasks_of(env):
    env.close()
    return env.unwrapped.tasks


def test_evaluated_where_it_is_trained_unless_told_otherwise():
    options = TrainOptions(env=EnvOptions(scenes="toy", scene={"cue_p": 0.0}))
    trained, held_out = tasks_of(make_train_env(options)), tasks_of(make_eval_env(options))
    assert held_out[0].image.size == trained[0].image.size
    assert held_out[0].task_id != trained[0].task_id


def test_evaluated_on_other_scenes():
    options = TrainOptions(env=EnvOptions(scenes="toy", scene={"cue_p": 0.0}), eval=HeldOutOptions(scenes="vstar"))
    assert tasks_of(make_eval_env(options))[0].image.size != tasks_of(make_train_env(options))[0].image.size


def test_contrast_scenes_differ_in_their_options_alone():
    env = EnvOptions(scenes="toy", scene={"cue_p": 1.0})
    options = TrainOptions(env=env, eval=HeldOutOptions(contrast={"cue_p": 0.0}))
    plain, contrast = tasks_of(make_eval_env(options)), tasks_of(make_eval_env(options, contrast=True))
    assert [plain[n].question for n in range(4)] == [contrast[n].question for n in range(4)]
    assert np.any(np.asarray(plain[0].image) != np.asarray(contrast[0].image))
    alike = dataclasses.replace(env, scene={**env.scene, "cue_p": 0.0})
    same = tasks_of(make_eval_env(dataclasses.replace(options, env=alike)))
    assert all(np.array_equal(same[n].image, contrast[n].image) for n in range(4))


@pytest.mark.parametrize(
    ("asked", "judge", "told"),
    [
        ("auto", "auto", 4900),
        ("auto", "ground_truth", 4900),
        ("auto", "http://localhost:1/v1#m", 0),
        (0, "auto", 0),
        (64, "auto", 64),
    ],
)
def test_the_judge_is_told_what_the_policy_sees(asked, judge, told):
    env = with_view(EnvOptions(scenes="toy", view_pixels=asked, judge=judge), 4900)
    assert env.view_pixels == told
    if judge != "ground_truth":
        return
    made = make_eval_env(TrainOptions(env=env))
    assert made.unwrapped.judge.view.pixels == 4900
    made.close()


def test_the_view_in_the_options_of_a_judge_stays():
    judge = '{"name": "ground_truth", "view_pixels": 64}'
    made = make_eval_env(TrainOptions(env=with_view(EnvOptions(scenes="toy", view_pixels="auto", judge=judge), 4900)))
    assert made.unwrapped.judge.view.pixels == 64
    made.close()


def test_a_view_that_nobody_has_looked_up_counts_as_none():
    made = make_eval_env(TrainOptions(env=EnvOptions(scenes="toy", view_pixels="auto", judge="ground_truth")))
    assert made.unwrapped.judge.view.pixels is None
    made.close()


@pytest.mark.parametrize("changes", [{"env": EnvOptions(data="hub")}, {"eval": {"data": "some/where"}}])
def test_contrast_needs_scenes_that_are_generated(changes):
    held_out = HeldOutOptions(contrast={"cue_p": 0.0}, **changes.pop("eval", {}))
    with pytest.raises(ValueError, match=r"eval.contrast.*generated scenes"):
        TrainOptions(eval=held_out, **changes)
    TrainOptions(eval=dataclasses.replace(held_out, id="codev_env:CodeV-MVTool-v0", data=""), **changes)


@pytest.mark.parametrize(
    ("wrap", "done"),
    [
        ((), {()}),
        (("crop",), {("crop",)}),
        (("rotate_90", "flip_vertical"), {("rotate_90",), ("flip_vertical",)}),
        (('{"transforms": ["rotate_90+crop"], "mode": "one"}',), {("rotate_90", "crop")}),
    ],
)
def test_tasks_are_wrapped_where_it_is_trained_and_where_it_is_evaluated(wrap, done):
    options = TrainOptions(env=EnvOptions(scenes="toy", wrap=wrap))
    for make in (make_train_env, make_eval_env):
        tasks = tasks_of(make(options))
        assert {tasks[number].transform for number in range(4)} == done
    elsewhere = TrainOptions(env=options.env, eval=HeldOutOptions(id="codev_env:CodeV-MVTool-v0"))
    assert "@" not in tasks_of(make_eval_env(elsewhere)).name


def test_evaluated_in_another_environment():
    """For training data without a held-out part."""
    options = TrainOptions(env=EnvOptions(data="hub"), eval=HeldOutOptions(id="codev_env:CodeV-MVTool-v0"))
    env = make_eval_env(options)
    assert env.unwrapped.spec.id == "CodeV-MVTool-v0"
    assert tasks_of(env).source == "generated"


def test_an_evaluation_that_is_not_there():
    with pytest.raises(ConfigError, match="CodeV-VStars-v0"):
        make_eval_env(TrainOptions(eval=HeldOutOptions(id="codev_env:CodeV-VStars-v0")))


def test_own_data_is_described_by_columns_and_the_reader(tmp_path):
    Image.new("RGB", (80, 60), "grey").save(tmp_path / "a.png")
    row = {"file": "a.png", "q": "Which?", "gold": "B", "A": "cat", "B": "dog", "box": [10, 10, 20, 20]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    columns = ("image=file", "question=q", "answer=gold", "choices=A,B", "targets=box")
    own = {"id": "codev_env:CodeV-Dataset-v0", "data": str(tmp_path)}
    env = EnvOptions(**own, columns=columns, reader=("boxes=xywh",))
    for made in (make_train_env(TrainOptions(env=env)), make_eval_env(TrainOptions(env=env))):
        task = unwrap(made).tasks[0]
        assert (task.answer, task.targets) == ("dog", ((10, 10, 30, 30),))
        made.close()
    assert fingerprint(SFTOptions()) != fingerprint(SFTOptions(env=EnvOptions(columns=columns)))
    other = HeldOutOptions(id="codev_env:CodeV-VStar-v0", scenes="toy")
    made = make_eval_env(TrainOptions(env=env, eval=other))
    assert unwrap(made).tasks.source == "generated"
    made.close()
    with pytest.raises(ConfigError, match="columns, reader and image_folder describe your own data"):
        make_train_env(TrainOptions(env=EnvOptions(columns=columns)))
