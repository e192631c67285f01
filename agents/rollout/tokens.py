"""Text and images to token ids and back: tokens in, tokens out.

A trajectory's ids only ever grow: sampled ids are appended as they are, and only the environment's new text is
tokenised. Nothing is rendered again, so the policy is trained on exactly the ids that it sampled.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image

from codev_agents.rollout.families import QWEN3_VL, Family
from codev_env.errors import ConfigError
from codev_env.types import IMAGE_PLACEHOLDER

_OPENED, _CLOSE = re.compile(r"<think>\s*$"), "</think>\n\n"
_SYSTEM, _USER, _REPLY, _AFTER = ("\x00system\x00", "\x00user\x00", "\x00reply\x00", "\x00after\x00")


@dataclass(frozen=True, eq=False)
class PixelBlock:
    """One image as the model sees it, processed once and shared by engine and trainer.

    Attributes:
        values: Patches, `[patches, patch_dim]`, or tiles, `[tiles, 3, height, width]`, float32.
        grid: Patches along time, height and width; None for tiles.
        tokens: Number of tokens it takes.
    """

    values: torch.Tensor
    grid: tuple[int, int, int] | None
    tokens: int


@dataclass(eq=False)
class TokenSequence:
    """The tokens of one trajectory so far.

    Attributes:
        ids: All token ids; every image is a run of image tokens.
        turns: For each token the number of the model's turn it was sampled in, or -1 where the environment wrote it.
        logprobs: The sampler's log-probability of each sampled token; 0 where the environment wrote it.
        images: The images in the order of their runs.
        versions: For each token the number of updates of the weights that sampled it; -1 where the environment wrote it
            or the engine does not say.
    """

    ids: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    images: list[PixelBlock] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def add_observation(self, ids: Sequence[int], images: Sequence[PixelBlock] = ()) -> None:
        """Append text and images of the environment."""
        self.ids += ids
        self.turns += [-1] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.versions += [-1] * len(ids)
        self.images += images

    def add_action(
        self, ids: Sequence[int], logprobs: Sequence[float], turn: int, versions: Sequence[int] = ()
    ) -> None:
        """Append the ids that the model sampled in turn number `turn`, with the versions that sampled them if known."""
        if len(ids) != len(logprobs):
            raise ValueError(f"{len(ids)} sampled ids but {len(logprobs)} log-probabilities")
        if versions and len(ids) != len(versions):
            raise ValueError(f"{len(ids)} sampled ids but {len(versions)} versions")
        self.ids += ids
        self.turns += [turn] * len(ids)
        self.logprobs += logprobs
        self.versions += versions or [-1] * len(ids)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sampled(self) -> int:
        """Number of tokens that the model sampled."""
        return sum(turn >= 0 for turn in self.turns)

    @property
    def oldest(self) -> int | None:
        """The oldest version that sampled one of the tokens; `None` if none is known."""
        return min((version for version in self.versions if version >= 0), default=None)


class ChatProcessor:
    """Turns an environment's texts and images into token ids with the model family's own chat template.

    Args:
        tokenizer: A `transformers` tokenizer with a chat template of text and image blocks.
        image_processor: The family's image processor.
        family: The model family.
        ends: More tokens that end a reply.

    Attributes:
        opening: The start of a reply that the chat template writes for the model, `<think>` and white space; empty for
            most templates.
        end_ids: The tokens that end a reply: that of the end of a turn, the one for padding, which some models sample
            in its place, and `ends`.

    Raises:
        ConfigError: The tokenizer has no chat template, or one that this class cannot split.
    """

    def __init__(
        self, tokenizer: Any, image_processor: Any, family: Family = QWEN3_VL, ends: Iterable[int] = ()
    ) -> None:
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.family = family
        self.eos_id: int = tokenizer.eos_token_id
        self.pad_id: int = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        self.end_ids = frozenset({self.eos_id, self.pad_id, *ends})
        self.image_id: int = tokenizer.convert_tokens_to_ids(family.image_token)
        known = tokenizer.get_vocab()
        self.banned_ids = [known[name] for name in family.control if name in known]
        if not tokenizer.chat_template:
            raise ConfigError(f"the tokenizer {tokenizer.name_or_path!r} has no chat template; use an instruct model")
        self.opening = ""
        self._frame = self._split_template()

    @property
    def view_pixels(self) -> int:
        """The most pixels at which the policy sees an image: the image processor makes larger ones smaller."""
        tiles, size = getattr(self.image_processor, "max_patches", None), self.image_processor.size
        # `longest_edge` is an area in the other families, whatever its name says.
        return int(tiles * size["height"] * size["width"] if tiles else size["longest_edge"])

    def limit_pixels(self, most: int) -> None:
        """Set the most pixels at which the policy sees an image; raises `ConfigError` for a family that cuts tiles."""
        images = self.image_processor
        if self.family.tile_tokens:
            raise ConfigError(f"--max-pixels {most}: {self.family.name} cuts images into tiles, whose number is fixed.")
        smallest = min(images.size["shortest_edge"], most)
        images.size = type(images.size)(shortest_edge=smallest, longest_edge=most)

    def _split_template(self) -> dict[str, list[int]]:
        """Find the markup that the chat template writes around each message, by rendering markers once."""

        def render(messages: list[dict[str, Any]]) -> str:
            return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

        system = {"role": "system", "content": _SYSTEM}
        image = {"type": "image"}
        first = {"role": "user", "content": [{"type": "text", "text": _USER}, image, {"type": "text", "text": _AFTER}]}
        text = render(
            [
                system,
                first,
                {"role": "assistant", "content": _REPLY},
                {"role": "user", "content": [{"type": "text", "text": _SYSTEM}]},
            ]
        )
        try:
            before_system, rest = text.split(_SYSTEM, 1)
            before_user, rest = rest.split(_USER, 1)
            around_image, rest = rest.split(_AFTER, 1)
            _, rest = rest.split(_REPLY, 1)
            between, last = rest.split(_SYSTEM, 1)
            image_before, image_after = around_image.split(self.family.image_token)
        except ValueError:
            raise ConfigError(
                f"the chat template of {self.tokenizer.name_or_path!r} does not keep message texts or "
                f"{self.family.image_token!r} as they are; take the template of an instruct model of {self.family.name}"
            ) from None
        if opened := _OPENED.search(last):
            self.opening = opened[0]
        encode = self._encode_markup
        start, end = self.family.around_image
        return {
            "before_system": encode(before_system),
            "before_user": encode(before_user),
            "image_before": encode(image_before + start),
            "image_after": encode(end + image_after),
            "between": encode(between),
            # Not as before the earlier reply: templates write no opened thinking there.
            "last": encode(last),
        }

    def _encode_markup(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def encode(self, text: str) -> list[int]:
        """Tokenise data: control tokens of the chat format spelled out in it stay plain text."""
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] if text else []

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of sampled ids, without the token that ends them."""
        return self.tokenizer.decode([i for i in ids if i not in self.end_ids], skip_special_tokens=False)

    def reply(self, ids: Sequence[int], after: Sequence[int]) -> str:
        """Return the text of a reply: sampled ids, after the opening if the template has written one.

        Args:
            ids: The sampled ids.
            after: All ids before them; where they go on with a reply, nothing was opened.
        """
        return (self.opening if self._opens(after) else "") + self.decode(ids)

    def encode_reply(self, text: str, after: Sequence[int]) -> list[int]:
        """Tokenise a reply, the inverse of `reply`.

        Where the template has opened a thinking that the text lacks, the ids close it first.

        Args:
            text: The reply, without its end.
            after: All ids before it.
        """
        if self._opens(after):
            tag = self.opening.rstrip()
            if text.startswith(tag):
                text = text.removeprefix(self.opening).removeprefix(tag)
            else:
                text = _CLOSE + text
        return self.encode(text)

    def _opens(self, after: Sequence[int]) -> bool:
        last = self._frame["last"]
        return bool(self.opening) and list(after[-len(last) :]) == last

    def image(self, image: Image.Image | np.ndarray) -> PixelBlock:
        """Process one RGB image (uint8, HxWx3) for the model."""
        # The number of rows must not decide which axis has the channels: images of one or three rows were misread.
        process = functools.partial(self.image_processor, [image], input_data_format="channels_last")
        if self.family.tile_tokens:
            # As the family's processor asks for it: tiles, and a thumbnail if there is more than one.
            tiles = process(crop_to_patches=True, return_tensors="pt")["pixel_values"]
            return PixelBlock(tiles, None, len(tiles) * self.family.tile_tokens)
        out = process(return_tensors="pt")
        t, h, w = out["image_grid_thw"][0].tolist()
        return PixelBlock(out["pixel_values"], (t, h, w), t * h * w // self.image_processor.merge_size**2)

    def _content(self, text: str, images: Sequence[PixelBlock]) -> list[int]:
        pieces = text.split(IMAGE_PLACEHOLDER)
        if len(pieces) != len(images) + 1:
            raise ValueError(f"{len(pieces) - 1} image placeholders in the text but {len(images)} images")
        ids = self.encode(pieces[0])
        for piece, image in zip(pieces[1:], images, strict=True):
            ids += [*self._frame["image_before"], *[self.image_id] * image.tokens, *self._frame["image_after"]]
            ids += self.encode(piece)
        return ids

    def prompt(self, system: str, text: str, images: Sequence[PixelBlock]) -> list[int]:
        """Return the ids of system prompt and first user message, up to the start of the model's reply."""
        frame = self._frame
        return [
            *frame["before_system"],
            *self.encode(system),
            *frame["before_user"],
            *self._content(text, images),
            *frame["last"],
        ]

    def observation(
        self, text: str, images: Sequence[PixelBlock], after: Sequence[int], role: str = "user"
    ) -> list[int]:
        """Return the ids that follow a reply: its end, the observation as a user message, the start of the next reply.

        Args:
            text: The observation with one placeholder per image.
            images: Its images.
            after: The sampled ids it follows; an end-of-turn token at their end is not written twice.
            role: `Dialect.observation_role`. With `"assistant"` the reply continues with the observation, unless the
                model ended it: then the observation is a user message after all.
        """
        if role == "assistant" and not (after and after[-1] in self.end_ids):
            return self._content(text, images)
        between = self._frame["between"]
        if after and between and after[-1] == between[0] == self.eos_id:
            between = between[1:]
        return [*between, *self._content(text, images), *self._frame["last"]]
