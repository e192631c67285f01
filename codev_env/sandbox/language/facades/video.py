"""`video`: the frames of a video by their seconds, as programs see them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PIL import Image


class Video:
    """Frames that were decoded before the program runs; nothing here reads a video file.

    Attributes:
        times: The second of each frame.
        duration: The second of the last frame.
    """

    def __init__(self, frames: Sequence[Image.Image], times: Sequence[float]) -> None:
        self._frames = tuple(frames)
        self.times = tuple(times)
        self.duration = self.times[-1]

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: int) -> Image.Image:
        return self._frames[index]

    def __iter__(self) -> Iterator[Image.Image]:
        return iter(self._frames)

    def at(self, seconds: float) -> Image.Image:
        """Return the frame whose time is nearest; raises `ValueError` for a time before the first or after the last."""
        if not self.times[0] <= seconds <= self.duration:
            raise ValueError(f"video.at({seconds}): the video has frames from {self.times[0]:g} to {self.duration:g} s")
        return self._frames[min(range(len(self.times)), key=lambda i: abs(self.times[i] - seconds))]

    def __repr__(self) -> str:
        return f"Video({len(self)} frames, {self.times[0]:g} to {self.duration:g} s)"
