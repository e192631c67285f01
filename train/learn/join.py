"""Fewer and shorter forward passes for the same gradient, where samples share tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codev_train.learn.sample import Sample


def joined(samples: Sequence[Sample], image_id: int, always: bool) -> list[Sample]:
    """Return samples of which each token is run through the model once where that is possible.

    Tokens after the last one of the loss are left out. An imitated sample that is the beginning of a rollout that is
    trained on becomes part of its sample; both have the loss that they had.

    Args:
        samples: The samples of an update.
        image_id: Id of an image token.
        always: Whether samples whose advantages are all 0 are trained on, too.
    """
    found = dict(enumerate(samples))
    trained: dict[tuple[int, ...], list[int]] = {}
    for place, sample in enumerate(samples):
        if not sample.is_imitated and (always or bool(sample.advantages.any())):
            trained.setdefault(_opening(sample), []).append(place)
    for place, sample in enumerate(samples):
        if sample.is_imitated:
            copied = trimmed(sample, image_id)
            found[place] = copied = replace(copied, imitated=_advantages(copied))
            own = next((p for p in trained.get(_opening(copied), ()) if _covers(found[p], copied)), None)
            if own is not None:
                del found[place]
                rest = [0.0] * (len(found[own]) - len(copied))
                found[own] = replace(found[own], imitated=[*copied.imitated, *rest])
    return list(found.values())


def trimmed(sample: Sample, image_id: int) -> Sample:
    """Leave out what follows the last token of the loss: a token depends on those before it alone."""
    length = max((place + 1 for place, covered in enumerate(sample.mask) if covered), default=len(sample))
    if length == len(sample):
        return sample
    ids = sample.ids[:length]
    shown, images = sum(token == image_id for token in ids), []
    for image in sample.images:
        if shown <= 0:
            break
        images.append(image)
        shown -= image.tokens
    cut = {name: getattr(sample, name)[:length] for name in ("turns", "logprobs", "mask", "lags")}
    return replace(sample, ids=ids, images=images, **cut)


def _opening(sample: Sample) -> tuple[int, ...]:
    """The image that a trajectory begins with, which its task alone has."""
    return tuple(id(image) for image in sample.images[:1])


def _covers(own: Sample, imitated: Sample) -> bool:
    """Whether a sample begins with an imitated one, is trained on all of its tokens, and has no other as its part."""
    length = len(imitated)
    return (
        not own.imitated
        and len(own) >= length
        and [*map(id, own.images[: len(imitated.images)])] == [*map(id, imitated.images)]
        and list(own.ids[:length]) == list(imitated.ids)
        and all(mine for mine, other in zip(own.mask, imitated.mask, strict=False) if other)
    )


def _advantages(sample: Sample) -> list[float]:
    """The advantage of each token that the loss covers, 0 for the others."""
    of_turn = sample.advantages.tolist()
    return [of_turn[turn] if covered else 0.0 for turn, covered in zip(sample.turns, sample.mask, strict=True)]
