"""Several images, and frames of a video: grid scenes whose evidence is on one image, or on each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from codev_env.errors import unknown
from codev_env.geometry import ImageBox
from codev_env.tasks.generators.answers import answer_fields
from codev_env.tasks.generators.generator import between, pick, require, require_names, sample, stream
from codev_env.tasks.generators.grid import CUES, GridOptions
from codev_env.types import Task

MOST_IMAGES = 64
ALBUM = ("find", "which", "compare", "order")
"""Categories of questions about several images: an object on one of them, the image with a digit, the image with the
largest digit, all images in order."""
VIDEO = ("appears", "when")
"""Categories of questions about a video: what is on the object that appears in one frame, and which frame it is."""


@dataclass(frozen=True)
class SequenceOptions(GridOptions):
    """Options that several images and videos share."""

    all_categories: ClassVar[tuple[str, ...]] = ()

    categories: tuple[str, ...] = ()
    """The categories of questions."""
    count: int = 4
    """Number of images, or of frames; at most 64."""
    digits: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require_names("categories", self.categories, self.all_categories)
        require(2 <= self.count <= MOST_IMAGES, "count", self.count, f"from 2 to {MOST_IMAGES}")

    def only(self, category: str) -> SequenceOptions:
        """Return a copy with one category; raises `ConfigError` for an unknown one."""
        if category not in self.categories:
            raise unknown(f"category of {self.kind} scenes", category, self.categories)
        return replace(self, categories=(category,))

    def _moved(self, rng: np.random.Generator, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the objects at other places."""
        cells = sample(rng, range(self.grid**2), len(objects))
        shifts = rng.integers(-self.jitter, self.jitter + 1, (len(objects), 2)).tolist()
        return [
            self._object(item["color"], item["shape"], cell, shift, item["digit"])
            for item, cell, shift in zip(objects, cells, shifts, strict=True)
        ]

    def _image(self, background: tuple[int, int, int], objects: list[dict[str, Any]]) -> Image.Image:
        image = Image.new("RGB", (self.grid * self.cell,) * 2, background)
        for item in objects:
            self._paste(image, item)
        return image

    def _meta(self, objects: list[list[dict[str, Any]]], kind: str) -> dict[str, Any]:
        listed = [{**item, "image": number} for number, items in enumerate(objects) for item in items]
        return {"objects": listed, **answer_fields("list" if kind == "order" else "integer", ())}


@dataclass(frozen=True)
class AlbumOptions(SequenceOptions):
    """Options of several images: "In which image is the digit 3 on the red circle?".

    The object is on each image, with different digits, or for `find` on one. The targets are its boxes: one for `find`
    and `which`, else all.
    """

    kind: ClassVar[str] = "album"
    all_categories: ClassVar[tuple[str, ...]] = ALBUM

    categories: tuple[str, ...] = ALBUM

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.count <= self.digits, "count", self.count, f"at most digits={self.digits}")

    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the images that belong to a seed; see `SceneOptions.draw`."""
        rng = stream(seed, 0)
        category = pick(rng, self.categories)
        digits = sample(rng, range(self.digits), self.count)
        looks = self._objects(rng)
        scenes = []
        for digit in digits:
            others = [{**item, "digit": between(rng, 0, self.digits - 1)} for item in looks[1:]]
            scenes.append(self._moved(rng, [{**looks[0], "digit": digit}, *others]))
        name = "{color} {shape}".format(**looks[0])
        single = category in ("find", "which")
        right = int(rng.integers(self.count)) if single else digits.index(max(digits))
        if category == "find":
            scenes = [scene if number == right else scene[1:] for number, scene in enumerate(scenes)]
        question, answer = {
            "find": (f"One of the images has a {name}. Which digit is on it?", self.labels[digits[right]]),
            "which": (f"In which image is the digit {digits[right]} on the {name}?", str(right + 1)),
            "compare": (f"In which image is the largest digit on the {name}?", str(right + 1)),
            "order": (
                f"Order the images by the digit on the {name}, smallest first.",
                ", ".join(str(int(number) + 1) for number in np.argsort(digits)),
            ),
        }[category]
        hint = {
            "find": "",
            "order": " The first image is 1; answer with the numbers of the images, separated by commas.",
        }.get(category, " The first image is 1; answer with the number of the image.")
        evidence = [right] if single else range(self.count)
        return Task(
            task_id=task_id,
            images=tuple(self._image(pick(rng, CUES), scene) for scene in scenes),
            question=question + hint,
            answer=answer,
            targets=tuple(ImageBox(scenes[number][0]["box"], number) for number in evidence),
            category=category,
            meta=self._meta(scenes, category),
        )


@dataclass(frozen=True)
class VideoOptions(SequenceOptions):
    """Options of a video: "A red circle appears in one frame. Which digit is on it?".

    The first observation shows frame 0, where it is not; programs have all frames. The target is its box in its frame.
    """

    kind: ClassVar[str] = "video"
    all_categories: ClassVar[tuple[str, ...]] = VIDEO

    categories: tuple[str, ...] = VIDEO
    count: int = 8
    fps: float = 2.0
    """Frames a second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.fps <= 1000, "fps", self.fps, "above 0 and at most 1000")

    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the frames that belong to a seed; see `SceneOptions.draw`."""
        rng = stream(seed, 0)
        category, objects = pick(rng, self.categories), self._objects(rng)
        at, background = between(rng, 1, self.count - 1), pick(rng, CUES)
        frames = [self._moved(rng, objects if number == at else objects[1:]) for number in range(self.count)]
        name = "{color} {shape}".format(**objects[0])
        question, answer = {
            "appears": (f"A {name} appears in one frame. Which digit is on it?", objects[0]["label"]),
            "when": (f"A {name} appears in one frame. Which frame is it? The first one is frame 0.", str(at)),
        }[category]
        return Task(
            task_id=task_id,
            images=tuple(self._image(background, frame) for frame in frames),
            question=question,
            answer=answer,
            targets=(ImageBox(frames[at][0]["box"], at),),
            category=category,
            meta=self._meta(frames, category),
            shown=1,
            times=tuple(round(number / self.fps, 3) for number in range(self.count)),
        )
