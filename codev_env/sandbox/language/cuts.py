"""Records which parts a program cuts out of images and arrays."""

from __future__ import annotations

from codev_env.sandbox.wire.limits import MOST_CUTS

_LONGEST = 1 << 20


class CutRecord:
    """The last cuts of a run: width and height of what was cut, and left, top, right and bottom of the box."""

    def __init__(self) -> None:
        self._cuts: dict[tuple[int, int, int, int, int, int], None] = {}

    def note(self, size: tuple[int, int], box: tuple[int, int, int, int]) -> None:
        """Record a cut, unless it is empty or reaches out of an image or array of (width, height)."""
        (width, height), (left, top, right, bottom) = size, box
        if not (0 <= left < right <= width <= _LONGEST and 0 <= top < bottom <= height <= _LONGEST):
            return
        cut = width, height, left, top, right, bottom
        self._cuts.pop(cut, None)
        self._cuts[cut] = None
        if len(self._cuts) > MOST_CUTS:
            del self._cuts[next(iter(self._cuts))]

    def to_json(self) -> list[list[int]]:
        """The cuts, oldest first."""
        return [list(cut) for cut in self._cuts]
