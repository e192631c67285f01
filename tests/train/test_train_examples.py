"""Examples for the cold start: what they say, what counts in the loss, and how a stage mixes them."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from accelerate import Accelerator
from micro_run import TOY_OPTIONS

from codev_agents import Oracle, RandomCrop, run_episode
from codev_agents.scripted import DecorativeCrop
from codev_env.dialects import get_dialect
from codev_env.errors import CodevError, ConfigError
from codev_env.tasks.scenes import parse_scenes
from codev_env.transforms import TRANSFORMS, transform_image
from codev_env.types import Task
from codev_train.run.environments import make_env
from codev_train.run.monitor import Monitor
from codev_train.run.options import EnvOptions, SFTOptions, StageOptions
from codev_train.sft import cold_start, examples
from codev_train.sft.examples import Example, ExampleMaker, StageData, corpus, named_objects, tokenize_trajectory


@pytest.fixture(scope="module")
def maker(policy, env_options) -> ExampleMaker:
    options = SFTOptions(env=env_options, snap=112, number_weight=4.0)
    honest = dataclasses.replace(env_options, scene={"cue_p": 0.0})
    return ExampleMaker(options, policy.processor, (make_env(env_options, "train"), make_env(honest, "train")))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def learned(example: Example, processor) -> str:
    """The text that the loss is on."""
    return processor.decode([i for i, w in zip(example.ids, example.weights, strict=True) if w > 0])


@pytest.mark.parametrize("kind", ["caption", "read", "expert", "decoration"])
def test_every_kind_has_images_and_ends_its_turns(maker, rng, kind):
    processor = maker.processor
    example = getattr(maker, kind)(3, rng)
    assert len(example.ids) == len(example.weights)
    assert example.ids.count(processor.image_id) == sum(b.tokens for b in example.images) > 0
    assert all(w == 0 for i, w in zip(example.ids, example.weights, strict=True) if i in processor.banned_ids)
    assert example.ids[-1] == processor.eos_id and example.weights[-1] == 1.0, "the end of a turn is learned"
    first = next(k for k, w in enumerate(example.weights) if w)
    assert first > 0 and set(example.weights) == {0.0, 1.0, 4.0}


def test_numbers_weigh_more(maker, rng):
    processor = maker.processor
    example = maker.expert(3, rng)
    heavy = [processor.tokenizer.decode([i]) for i, w in zip(example.ids, example.weights, strict=True) if w == 4.0]
    assert len(heavy) >= 4 and heavy == re.findall(r"\d+", learned(example, processor))


def test_a_caption_names_objects_where_they_are(maker, rng):
    task = maker.honest.unwrapped.tasks[5]
    text = learned(maker.caption(5, rng), maker.processor)
    said = re.findall(r" ([a-z]+)(\d+),(\d+) (\w+)", text)
    assert text == "".join(f" {c}{x},{y} {s}" for c, x, y, s in said)
    known = {(o["color"], str(o["cell"][0]), str(o["cell"][1]), o["shape"]) for o in task.meta["objects"]}
    assert len(said) == len(known) and set(said) == known


def test_a_caption_of_several_images_says_which_of_them_have_the_object(env_options, rng):
    pair = dataclasses.replace(env_options, scenes="pair", scene={})
    options = SFTOptions(env=pair, snap=56, toy=TOY_OPTIONS)
    env = make_env(pair, "train")
    maker = ExampleMaker(options, cold_start.toy_policy(options).processor, (env, env))
    text, images = learned(maker.caption(3, rng), maker.processor), maker.caption(3, rng).images
    objects = env.unwrapped.tasks[3].meta["objects"]
    said = {
        (color, shape, int(number) - 1, int(x), int(y))
        for color, places, shape in re.findall(r" ([a-z]+)([\d:, ]+) (\w+)", text)
        for number, x, y in re.findall(r"(\d):(\d+),(\d+)", places)
    }
    assert said == {(o["color"], o["shape"], o["image"], *o["cell"]) for o in objects}
    assert {place[2] for place in said} == {0, 1} and len(images) == 2
    kinds = {(o["color"], o["shape"]) for o in objects}
    assert len(re.findall(r" [a-z]+\d", text)) == len(kinds) < len(objects), "what both images have is named once"


def test_a_pretending_agent_crops_any_of_several_images(env_options):
    env = make_env(dataclasses.replace(env_options, scenes="pair", scene={}), "train")
    for agent in (DecorativeCrop(snap=56), RandomCrop()):
        on = [
            region.image_index
            for number in range(12)
            for region in run_episode(env, agent, options={"index": number}).turns[0].regions
        ]
        assert set(on) == {0, 1}, agent.name


def test_an_expert_looks_and_a_decorative_agent_pretends(maker, rng):
    expert, decoration = maker.expert(2, rng), maker.decoration(2, rng)
    task = maker.honest.unwrapped.tasks[2]
    for example, looks in ((expert, True), (decoration, False)):
        text = learned(example, maker.processor)
        x1, y1, x2, y2 = map(int, re.search(r"crop\(\((\d+), (\d+), (\d+), (\d+)\)\)", text).groups())  # type: ignore[union-attr]
        a, b, c, d = task.targets[0]
        assert (x1 <= a and y1 <= b and c <= x2 and d <= y2) is looks
    assert f"<answer>{task.answer}</answer>" in learned(expert, maker.processor)


def test_recorded_episodes_are_imitated_as_they_were(maker, env_options):
    trajectory = run_episode(make_env(env_options, "train"), Oracle(), options={"index": 1})
    text = learned(maker.imitated(trajectory), maker.processor)
    assert text == "".join(turn.action for turn in trajectory.turns)


@pytest.mark.parametrize(("dialect", "ends"), [("thyme", False), ("codev", True)])
def test_a_call_without_an_observation_does_not_end_a_message_that_goes_on(policy, env_options, dialect, ends):
    """In `thyme` the observation is part of the reply; the end of an episode at `max_turns` is no end of it."""
    cut = dataclasses.replace(env_options, dialect=dialect, max_turns=1)
    trajectory = run_episode(make_env(cut, "train"), Oracle(), options={"index": 1})
    tokens = tokenize_trajectory(trajectory, policy.processor)
    assert trajectory.stop_reason == "max_turns" and (tokens.ids[-1] == policy.processor.eos_id) == ends


def test_a_stage_mixes_as_asked_and_repeats_with_its_seed(maker):
    stage = StageOptions(steps=2, captions=2, reads=4, experts=4, decorative=1)

    def batches(seed: int) -> list[list[list[int]]]:
        return [[e.ids for e in batch] for batch in StageData(lambda: maker, stage, 4, (seed, 0, 0))]

    early, late = batches(0)
    # Half-way, seeing makes room for acting.
    assert len(early) == 2 + 4 + 1 + 1 and len(late) == 1 + 2 + 4 + 1
    assert batches(0) == [early, late] and batches(1) != [early, late]


def test_a_stage_has_scenes_of_its_own(policy, env_options, monkeypatch):
    monkeypatch.setattr(cold_start.torch, "set_num_threads", lambda count: None)
    options, stage = SFTOptions(env=env_options), StageOptions(scene={"cue_p": 0.0}, objects=(2, 3))
    made = cold_start.example_maker(options, stage, policy.processor, ())
    counts = {len(made.honest.unwrapped.tasks[number].meta["objects"]) for number in range(20)}
    assert counts == {2, 3}
    assert not any(made.honest.unwrapped.tasks[number].meta["cue_informative"] for number in range(20))
    biased = [made.biased.unwrapped.tasks[number] for number in range(20)]
    assert max(len(task.meta["objects"]) for task in biased) > 3


def test_a_small_set_of_tasks_is_drawn_from_whole(policy, env_options):
    few = dataclasses.replace(env_options, scene={**env_options.scene, "size": 3})
    options = SFTOptions(env=few, snap=112)
    maker = ExampleMaker(options, policy.processor, (make_env(few, "train"), make_env(few, "train")))
    stage = StageOptions(steps=2, captions=4, reads=4, experts=4, decorative=4)
    assert maker.scenes == 3
    assert [len(batch) for batch in StageData(lambda: maker, stage, options.pool, (0, 0, 0))] == [13, 12]


def test_a_toy_is_made_from_a_small_set_of_tasks(env_options):
    few = dataclasses.replace(env_options, scene={**env_options.scene, "size": 5})
    assert cold_start.toy_policy(SFTOptions(env=few, toy=TOY_OPTIONS)).processor.encode("circle")


def test_a_stage_without_experts_has_none(maker):
    stage = StageOptions(steps=4, captions=2, reads=2, experts=0)
    assert [len(batch) for batch in StageData(lambda: maker, stage, 4, (0, 0, 0))] == [4, 4, 2, 2]


def test_a_caption_says_where_crops_begin_in_scenes_without_cells(policy, rng):
    big = EnvOptions(scenes="vstar", max_turns=2)
    maker = ExampleMaker(SFTOptions(env=big, snap=100), policy.processor, (make_env(big, "train"),) * 2)
    task = maker.honest.unwrapped.tasks[1]
    text = learned(maker.caption(1, rng), maker.processor)
    said = {
        (color, int(x) // 100, int(y) // 100, shape)
        for color, places, shape in re.findall(r" ([a-z]+)((?:\d+,\d+ )+)(\w+)", text)
        for x, y in re.findall(r"(\d+),(\d+)", places)
    }
    objects = task.meta["objects"]
    assert said == {(o["color"], o["box"][0] // 100, o["box"][1] // 100, o["shape"]) for o in objects}


def test_objects_of_turned_scenes_are_named_where_they_are_shown(policy, rng):
    turned = EnvOptions(scenes="vstar", wrap=(*TRANSFORMS, "rotate_90+flip_vertical"))
    plain, env = make_env(dataclasses.replace(turned, wrap=()), "train").unwrapped.tasks[0], make_env(turned, "train")
    assert plain.image.width != plain.image.height
    for number, names in enumerate([*([name] for name in TRANSFORMS), ["rotate_90", "flip_vertical"]]):
        task = env.unwrapped.tasks[number]
        for item, source in zip(named_objects(task), plain.meta["objects"], strict=True):
            shown = plain.image.crop(tuple(source["box"]))
            for name in names:
                shown = transform_image(shown, name)
            assert task.image.crop(item["box"]).tobytes() == shown.tobytes(), names
    maker = ExampleMaker(SFTOptions(env=turned), policy.processor, (env, env))
    assert all(learned(maker.read(number, rng), maker.processor) for number in range(8))


@pytest.mark.parametrize("kind", ["captions", "reads"])
def test_captions_and_reads_need_scenes_of_named_objects(policy, kind):
    charts = EnvOptions(scenes="charts")
    maker = ExampleMaker(SFTOptions(env=charts), policy.processor, (make_env(charts, "train"),) * 2)
    (found,) = StageData(lambda: maker, StageOptions(steps=1, **{kind: 2}), 4, (0, 0, 0))
    assert isinstance(found, ConfigError) and "generated scenes only" in str(found)


@pytest.mark.parametrize(
    ("scenes", "stage", "message"),
    [
        ("charts", {"captions": 1}, "captions and reads of imitate"),
        ("codev-rl", {"reads": 1}, "captions and reads of imitate"),
        ("tiny", {"scene": {"cue_p": 7.0}}, "imitate.scene.*cue_p"),
        ("tiny", {"objects": (3, 9)}, "imitate.objects"),
    ],
)
def test_scenes_of_the_last_stage_are_checked_before_the_first(scenes, stage, message):
    stages = {"ground": StageOptions(steps=1), "imitate": StageOptions(steps=1, **stage)}
    options = SFTOptions(model="a-model", env=EnvOptions(scenes=scenes), **stages)
    with pytest.raises(ConfigError, match=message):
        cold_start.check_stages(options)
    cold_start.check_stages(dataclasses.replace(options, imitate=StageOptions(steps=0, **stage)))


def test_scenes_without_names_for_a_toy_are_refused_before_it_is_made():
    with pytest.raises(ConfigError, match="a toy model is made from generated scenes only"):
        cold_start.check_stages(SFTOptions(env=EnvOptions(scenes="documents"), imitate=StageOptions(steps=1)))


def test_the_end_of_the_process_that_makes_examples_is_named(env_options, tmp_path, monkeypatch):
    """As where memory is short; PyTorch's error comes from the middle of a forward pass."""
    monkeypatch.setattr(cold_start, "example_maker", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    options = SFTOptions(env=env_options, toy=TOY_OPTIONS, ground=StageOptions(steps=1))
    with pytest.raises(CodevError, match="makes the examples of ground has ended"):
        cold_start.cold_start(options, Monitor(tmp_path, False), Accelerator(cpu=True))


@pytest.mark.parametrize("scenes", ["pair", "video"])
def test_a_toy_talks_in_a_dialect_that_crops_only_the_first_image(scenes):
    """Where the target is on another image, the expert answers at once, and the pretending agent crops the first."""
    options = SFTOptions(env=EnvOptions(scenes=scenes, dialect="deepeyes", max_turns=2), toy=TOY_OPTIONS)
    processor = cold_start.toy_policy(options).processor
    maker = ExampleMaker(options, processor, (make_env(options.env, "train"),) * 2)
    experts = [maker.expert(number, np.random.default_rng(0)) for number in range(6)]
    assert max(len(e.ids) - sum(b.tokens for b in e.images) for e in experts) < 120


def test_the_words_of_a_toy_come_from_scenes_that_are_not_kept():
    tasks, seen = parse_scenes("tiny", "train"), list[weakref.ref]()

    def drawn() -> Iterator[Task]:
        for number in range(6):
            task = dataclasses.replace(tasks[number], images=(tasks[number].image.copy(),))
            seen.append(weakref.ref(task.image))
            yield task
            del task
            assert sum(image() is not None for image in seen) <= 2

    assert corpus(drawn(), get_dialect("codev"), 56)[1]


def test_episodes_and_scenes_are_kept_up_to_a_total_size(policy, env_options, monkeypatch):
    """Examples of large images would fill the memory; those that are made again are the same."""
    stage = StageOptions(steps=4, captions=2, reads=0, experts=4)

    def batches(kept: int) -> tuple[list[list[list[int]]], int]:
        monkeypatch.setattr(examples, "_KEPT", kept)
        options, made = SFTOptions(env=env_options, snap=112), list[int]()
        maker = ExampleMaker(options, policy.processor, (make_env(env_options, "train"),) * 2)
        expert = maker.expert
        monkeypatch.setattr(maker, "expert", lambda number, rng: (made.append(number), expert(number, rng))[1])
        return [[e.ids for e in batch] for batch in StageData(lambda: maker, stage, 3, (0, 0, 0))], len(made)

    (all_kept, made), (none_kept, more) = batches(2 << 30), batches(1)
    assert all_kept == none_kept and made <= 3 < more
