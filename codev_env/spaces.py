"""Spaces of any text and of images of any size, which Gymnasium's `Text` and `Box` cannot describe."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from gymnasium.spaces import Sequence, Space, Text
from numpy.typing import NDArray

MAX_CHARS = 1_000_000
MAX_SIDE = 65_536
_SAMPLE_CHARS = 64
_SAMPLE_SIDE = 64


class Unicode(Text):
    """Any Unicode string of at most `max_length` characters, line breaks and the empty string included.

    Samples are short strings of printable ASCII. A `mask` or `probability` works as in `Text`, over these characters.
    """

    def __init__(self, max_length: int = MAX_CHARS, *, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a string, of at most 64 characters unless `mask` gives a length."""
        if mask is None and probability is None:
            length = int(self.np_random.integers(0, min(self.max_length, _SAMPLE_CHARS) + 1))
            return "".join(self.np_random.choice(self.character_list, size=length))
        return super().sample(mask=mask, probability=probability)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string of at most `max_length` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    @property
    def is_np_flattenable(self) -> bool:
        """`False`: the set of characters is not fixed."""
        return False

    def __repr__(self) -> str:
        return f"Unicode({self.max_length})"

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Unicode) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]


class RGBImage(Space[NDArray[np.uint8]]):
    """One uint8 array of shape (height, width, 3), with sides of 1 to `max_side` pixels."""

    def __init__(self, max_side: int = MAX_SIDE, *, seed: int | np.random.Generator | None = None) -> None:
        self.max_side = int(max_side)
        super().__init__(None, np.uint8, seed)

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[np.uint8]:
        """Draw an image with sides of at most 64 pixels; it takes no mask."""
        if mask is not None or probability is not None:
            raise ValueError(f"{self!r} samples without mask and probability.")
        height, width = self.np_random.integers(1, min(self.max_side, _SAMPLE_SIDE) + 1, size=2)
        return self.np_random.integers(0, 256, size=(height, width, 3), dtype=np.uint8)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is such an array."""
        return (
            isinstance(x, np.ndarray)
            and x.dtype == np.uint8
            and x.ndim == 3
            and x.shape[2] == 3
            and 1 <= min(x.shape[:2])
            and max(x.shape[:2]) <= self.max_side
        )

    @property
    def is_np_flattenable(self) -> bool:
        """`False`: the size varies."""
        return False

    def to_jsonable(self, sample_n: Any) -> list[Any]:
        """Turn images into nested lists."""
        return [image.tolist() for image in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[Any]:
        """Turn nested lists back into images."""
        return [np.array(image, dtype=np.uint8) for image in sample_n]

    def __repr__(self) -> str:
        return f"RGBImage({self.max_side})"

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, RGBImage) and self.max_side == other.max_side

    __hash__ = None  # type: ignore[assignment]


class Images(Sequence):
    """A tuple of any number of RGB images, each of its own size."""

    def __init__(self, max_side: int = MAX_SIDE, *, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(RGBImage(max_side), seed=seed)

    def __repr__(self) -> str:
        return f"Images({self.feature_space.max_side})"  # type: ignore[attr-defined]

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Images) and self.feature_space == other.feature_space

    __hash__ = None  # type: ignore[assignment]
