"""Examples for the cold start: captions and close-ups of generated scenes, and episodes of scripted agents."""

from __future__ import annotations

import itertools
import multiprocessing
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from torch.utils.data import IterableDataset

from codev_agents import DecorativeCrop, Oracle, answer_turn, crop_turn, expand_box, run_episode
from codev_agents.agent import Agent
from codev_agents.rollout.tokens import ChatProcessor, PixelBlock, TokenSequence
from codev_env.dialects import Dialect, get_dialect
from codev_env.envs.image_tool import unwrap
from codev_env.errors import CodevError, ConfigError
from codev_env.geometry import image_of
from codev_env.tasks.readers.cache import SizedCache
from codev_env.trajectory import Trajectory, read_trajectories
from codev_env.transforms import TRANSFORMS, compose, transform_box, transform_size
from codev_env.types import IMAGE_PLACEHOLDER, Execution, Task
from codev_train.run.options import SFTOptions, StageOptions

CAPTION_PROMPT = f"{IMAGE_PLACEHOLDER}\nDescribe the image."
READ_PROMPT = f"{IMAGE_PLACEHOLDER}\nWhat is this?"
_NAMED = {"color", "shape", "label", "box"}
"""Fields of an object that can be named and read."""
TOY = ("a toy model is", "set model to a folder")
"""For `named_objects`: why a toy needs them, and how to do without."""
_KEPT = 2 << 30
"""Most bytes of images that are kept for the next time, of whole scenes and of episodes each."""


@dataclass(frozen=True, eq=False)
class Example:
    """Tokens with a loss weight each: 0 for the environment's text, optionally more than 1 for numbers."""

    ids: list[int]
    weights: list[float]
    images: list[PixelBlock]


def named_objects(
    task: Task, made: str = "captions and reads are", advice: str = "set both to 0"
) -> list[dict[str, Any]]:
    """Return the objects of a generated scene: colour, shape, label, and `box` in pixels of the task's images.

    Args:
        task: The scene.
        made: What is made of it, for the message.
        advice: How to do without it, for the message.

    Raises:
        ConfigError: The task is no generated scene of such objects.
    """
    objects = task.meta.get("objects")
    if not objects or not all(_NAMED <= set(item) for item in objects):
        raise ConfigError(
            f"{made} made from generated scenes only, of named objects as in `--env.scenes tiny` or `vstar`: {advice}, "
            "or env.data to synthetic and env.scenes to one of these."
        )
    # Tasks that `env.wrap` turns keep the boxes of their source.
    turn = compose(step for step in task.meta.get("variant", "").split("+") if step in TRANSFORMS)
    sources = [transform_size(image.size, turn) for image in task.images]
    return [{**item, "box": transform_box(item["box"], sources[item.get("image", 0)], turn)} for item in objects]


def caption_text(task: Task, snap: int, rng: np.random.Generator) -> str:
    """Name the objects of the images shown in random order, each with the top left corner of its crop in pixels.

    The place follows the colour directly: the token that asks is the token that is looked up in the image, which a
    small model learns in half the steps. Of several images, the number of each that has the object, from 1, comes
    before the place there: to name the images is to look for the object in all of them. Crops are aligned to `snap`
    pixels, 0 for no grid, as those of the expert.
    """
    several = len(task.shown_images) > 1
    places: dict[tuple[str, str], list[str]] = {}
    for item in named_objects(task):
        number = item.get("image", 0)
        if number < len(task.shown_images):
            left, top, *_ = expand_box(item["box"], task.images[number].size, 0.0, snap or None)
            place = f"{left},{top}"
            places.setdefault((item["color"], item["shape"]), []).append(f"{number + 1}:{place}" if several else place)
    named = [*places.items()]
    chosen = [named[i] for i in rng.permutation(len(named))]
    return "".join(f" {color}{' '.join(found)} {shape}" for (color, shape), found in chosen)


def read_text(item: dict[str, Any], dialect: Dialect) -> str:
    """Describe a close-up, then answer as in an episode."""
    return f" {item['color']} {item['shape']}\n" + answer_turn(dialect, item["label"], True)


def tokenize_trajectory(trajectory: Trajectory, processor: ChatProcessor) -> TokenSequence:
    """Turn a recorded episode into tokens, the model's turns marked, just as a rollout would have grown them."""
    images = [processor.image(image) for image in trajectory.images]
    tokens = TokenSequence()
    tokens.add_observation(processor.prompt(trajectory.system_prompt, trajectory.prompt, images), images)
    role = trajectory.observation_role
    for number, turn in enumerate(trajectory.turns):
        last = number + 1 == len(trajectory.turns)
        # If the observation is part of the same message, the model must not learn to end the message before it.
        ended = role == "user" or (last and turn.kind != "code")
        ids = processor.encode_reply(turn.action, tokens.ids) + [processor.eos_id] * ended
        tokens.add_action(ids, [0.0] * len(ids), number)
        if not last:
            images = [processor.image(image) for image in turn.images]
            tokens.add_observation(processor.observation(turn.observation, images, after=ids, role=role), images)
    return tokens


def read_recorded(options: SFTOptions) -> list[Trajectory]:
    """Read the recorded episodes to learn from, if any: their texts; images are decoded each time they are needed.

    Raises:
        ConfigError: No episodes, episodes of the test split, in another dialect than the environment's, or with other
            images than their texts have places for.
        TrajectoryError: A file that cannot be read.
    """
    if not options.trajectories:
        return []
    recorded = read_trajectories(options.trajectories)
    if not recorded:
        raise ConfigError(f"trajectories: {options.trajectories} holds no episodes; give a folder that has some.")
    if any(trajectory.split == "test" for trajectory in recorded):
        raise ConfigError(
            f"trajectories: {options.trajectories} holds episodes of the test split; do not train on them."
        )
    others = {trajectory.dialect for trajectory in recorded} - {get_dialect(options.env.dialect).name}
    if others:
        raise ConfigError(
            f"trajectories: {options.trajectories} holds episodes in the dialect {min(others)!r}, but env.dialect is "
            f"{options.env.dialect!r}: set env.dialect, or replay them with --dialect {options.env.dialect}."
        )
    for trajectory in recorded:
        seen = [(trajectory.prompt, trajectory.images), *((t.observation, t.images) for t in trajectory.turns[:-1])]
        if any(text.count(IMAGE_PLACEHOLDER) != len(images) for text, images in seen):
            raise ConfigError(
                f"trajectories: the prompt or an observation of the episode {trajectory.task_id!r} in "
                f"{options.trajectories} has not one {IMAGE_PLACEHOLDER} for each of its images; remove the episode."
            )
    return recorded


class ExampleMaker:
    """Makes the examples of one kind by number: the same number gives the same scene.

    Args:
        options: Kinds and shares of examples.
        processor: Tokenizer and image processor.
        envs: The environment with the guessing cue as configured, and one where the cue carries no information.
        recorded: Episodes that take the place of the oracle's, from `read_recorded`.
    """

    def __init__(
        self,
        options: SFTOptions,
        processor: ChatProcessor,
        envs: tuple[gym.Env[Any, Any], gym.Env[Any, Any]],
        recorded: Sequence[Trajectory] = (),
    ) -> None:
        self.options = options
        self.processor = processor
        self.biased, self.honest = envs
        self.recorded = recorded
        self.numbers = {i for t, i in processor.tokenizer.get_vocab().items() if t.isdecimal()}
        # The expert looks where looking is needed; the decorative agent pretends where the answer can be guessed.
        self.oracle: Agent = Oracle(margin=0.0, snap=options.snap or None)
        self.decorative: Agent = DecorativeCrop(snap=options.snap or None)
        self._views: SizedCache[list[PixelBlock]] = SizedCache(_KEPT, _bytes)

    @property
    def scenes(self) -> int:
        """How many scenes there are to make examples of."""
        return min(len(unwrap(env).tasks) for env in (self.biased, self.honest))

    def caption(self, number: int, rng: np.random.Generator) -> Example:
        """A whole scene, described."""
        task = self._task(number)
        views = self._views.get(number, lambda: [self.processor.image(image) for image in task.shown_images])
        return self._described(CAPTION_PROMPT, views, caption_text(task, self.options.snap, rng))

    def read(self, number: int, rng: np.random.Generator) -> Example:
        """The close-up of one object, read."""
        task = self._task(number)
        objects = named_objects(task)
        item = objects[int(rng.integers(len(objects)))]
        image = task.images[item.get("image", 0)]
        box = expand_box(item["box"], image.size, 0.0, self.options.snap or None)
        return self._described(
            READ_PROMPT,
            [self.processor.image(image.crop(box))],
            read_text(item, unwrap(self.honest).dialect),
        )

    def expert(self, number: int, rng: np.random.Generator) -> Example:
        """An episode of the oracle where the cue carries no information."""
        return self.imitated(run_episode(self.honest, self.oracle, options={"index": number}))

    def decoration(self, number: int, rng: np.random.Generator) -> Example:
        """An episode of the decorative agent where the cue often gives the answer away."""
        return self.imitated(run_episode(self.biased, self.decorative, options={"index": number}))

    def imitated(self, trajectory: Trajectory) -> Example:
        """A recorded episode."""
        tokens = tokenize_trajectory(trajectory, self.processor)
        return Example(tokens.ids, self._weights(tokens), tokens.images)

    def _task(self, number: int) -> Task:
        return unwrap(self.honest).tasks[number]

    def _described(self, prompt: str, images: list[PixelBlock], text: str) -> Example:
        tokens = TokenSequence()
        more = f"{IMAGE_PLACEHOLDER}\n" * (len(images) - 1)
        tokens.add_observation(self.processor.prompt("", more + prompt, images), images)
        ids = [*self.processor.encode_reply(text, tokens.ids), self.processor.eos_id]
        tokens.add_action(ids, [0.0] * len(ids), 0)
        return Example(tokens.ids, self._weights(tokens), tokens.images)

    def _weights(self, tokens: TokenSequence) -> list[float]:
        number = self.options.number_weight
        return [
            0.0 if turn < 0 else number if i in self.numbers else 1.0
            for i, turn in zip(tokens.ids, tokens.turns, strict=True)
        ]


class _Supply:
    """Examples of at most `max_length` tokens; `too_long` has kind and number of those that were left out."""

    def __init__(self, maker: ExampleMaker, pool: int, rng: np.random.Generator) -> None:
        self.maker, self.pool, self.rng = maker, pool, rng
        self.longest = maker.options.max_length
        self.too_long: set[tuple[str, int]] = set()
        self._episodes: SizedCache[Example] = SizedCache(_KEPT, lambda example: _bytes(example.images))

    def scenes(self, kind: str, count: int) -> Iterator[Example]:
        """Yield examples of scenes drawn from the pool; where one is left out, that of the next scene takes its place.

        Raises:
            ConfigError: All examples of this kind are too long.
        """
        for number in self.rng.integers(self.pool, size=count).tolist():
            for one in ((number + more) % self.pool for more in range(self.pool)):
                if (kind, one) not in self.too_long and self._fits(kind, one, example := self._made(kind, one)):
                    yield example
                    break
            else:
                raise ConfigError(f"all {self.pool} examples of the kind {kind!r} {self._more_tokens()}.")

    def recorded(self, rng: np.random.Generator) -> Iterator[Example]:
        """Yield recorded episodes without end, each once per pass.

        They are not kept: their images may be large and many.

        Raises:
            ConfigError: All episodes are too long.
        """
        episodes, kind = self.maker.recorded, "recorded"
        left = len(episodes)
        for number in _passes(len(episodes), rng):
            if (kind, number) in self.too_long:
                continue
            if self._fits(kind, number, example := self.maker.imitated(episodes[number])):
                yield example
            elif not (left := left - 1):
                raise ConfigError(
                    f"all {len(episodes)} episodes in {self.maker.options.trajectories} {self._more_tokens()}."
                )

    def _made(self, kind: str, number: int) -> Example:
        make: Callable[[int, np.random.Generator], Example] = getattr(self.maker, kind)
        if kind not in ("expert", "decoration"):
            return make(number, self.rng)
        return self._episodes.get((kind, number), lambda: make(number, self.rng))

    def _fits(self, kind: str, number: int, example: Example) -> bool:
        if len(example.ids) <= self.longest:
            return True
        self.too_long.add((kind, number))
        return False

    def _more_tokens(self) -> str:
        return f"have more tokens than --max-length {self.longest}"


class StageData(IterableDataset[list[Example] | CodevError]):
    """The batches of one stage. Runs in a loader process, so that making data overlaps training.

    Args:
        maker: Makes the maker inside the loader process: environments do not travel between processes.
        stage: How many of each kind per step.
        pool: Distinct episodes and scenes of each kind; fewer if there are fewer tasks.
        seed: Seed of the order.

    Attributes:
        left_out: How many examples were left out so far for their length, shared with the loader process.
    """

    def __init__(self, maker: Callable[[], ExampleMaker], stage: StageOptions, pool: int, seed: Sequence[int]) -> None:
        self.maker, self.stage, self.pool, self.seed = maker, stage, pool, tuple(seed)
        self.left_out = multiprocessing.Value("q", 0)

    def __iter__(self) -> Iterator[list[Example] | CodevError]:
        """Yield the batches, and in place of one that cannot be made its error.

        Raised in a loader process, it would have the traceback in its message.
        """
        try:
            yield from self._batches()
        except CodevError as error:
            yield error

    def _batches(self) -> Iterator[list[Example]]:
        maker, rng = self.maker(), np.random.default_rng(self.seed)
        supply = _Supply(maker, min(self.pool, maker.scenes), rng)
        recorded = supply.recorded(np.random.default_rng((*self.seed, 1)))
        for step in range(self.stage.steps + self.stage.more):
            # Learn to see and to place first, to act later: episodes become more frequent half-way.
            late = step >= self.stage.steps // 2
            captions, reads = (n // 2 if late else n for n in (self.stage.captions, self.stage.reads))
            experts = self.stage.experts
            if experts and self.stage.captions and not late:
                experts = max(1, experts // 4)
            batch = [*supply.scenes("caption", captions), *supply.scenes("read", reads)]
            batch += itertools.islice(recorded, experts) if maker.recorded else supply.scenes("expert", experts)
            batch += supply.scenes("decoration", self.stage.decorative)
            self.left_out.value = len(supply.too_long)
            yield batch


def _passes(count: int, rng: np.random.Generator) -> Iterator[int]:
    """Yield the numbers below `count` without end, in another order in each pass."""
    while True:
        yield from rng.permutation(count).tolist()


def _bytes(images: Iterable[PixelBlock]) -> int:
    return sum(image.values.nbytes for image in images)


def corpus(tasks: Iterable[Task], dialect: Dialect, snap: int) -> tuple[list[str], list[str], list[str]]:
    """Collect the vocabulary of an environment for a toy tokenizer.

    Args:
        tasks: At least one scene; none is kept, as all of them may fill the memory.
        dialect: How the policy talks.
        snap: Grid of crops in pixels, 0 for none.

    Returns:
        Texts (observations and replies), words that stay tokens of their own, and the dialect's
        tags.

    Raises:
        ConfigError: The tasks are not generated scenes of named objects.
    """
    rng = np.random.default_rng(0)
    frame, usual, texts = ["system\n", "user\n", "assistant\n", "\n"], list[str](), list[str]()
    words = set()
    for task in tasks:
        objects = named_objects(task, *TOY)
        if not usual:
            shown = Execution(images=tuple(task.images), names=("crop.png",))
            usual = [*frame, dialect.system_prompt(), dialect.render(shown, 1), dialect.render(Execution(), 0)]
        on = image_of(task.targets[0])
        reached = on if dialect.croppable is None else min(on, dialect.croppable - 1)
        box = expand_box(task.targets[0], task.images[reached].size, 0.0, snap or None)
        texts += [
            *usual,
            dialect.first_message(task),
            crop_turn(dialect, box, reached),
            answer_turn(dialect, task.answer, True),
            caption_text(task, snap, rng),
            CAPTION_PROMPT,
            READ_PROMPT,
        ]
        if reached != on:  # The expert answers without a crop.
            texts.append(answer_turn(dialect, task.answer, False))
        for item in objects:
            words |= {item["color"], item["shape"]}
            texts.append(read_text(item, dialect))
    tags = sorted(set(re.findall(r"</?[a-z_]+>", "".join(usual))) - {IMAGE_PLACEHOLDER})
    pieces = re.compile("|".join(map(re.escape, [*tags, IMAGE_PLACEHOLDER])))
    return [p for text in texts for p in pieces.split(text) if p], sorted(words), tags
