"""The parts of the inputs that programs say they cut out: candidates for what their outputs show, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from codev_env.transforms import IDENTITY, TRANSFORMS, compose, inverse, transform_box, transform_size
from codev_env.types import Box, Cut

Size = tuple[int, int]
TURNS = (IDENTITY, *TRANSFORMS)
_COMPOSED = {(first, then): compose((first, then)) for first in TURNS for then in TURNS}

_MOST = 256
"""Pieces of an episode that are kept, the newest; with many inputs two for each, for a cut may be of any of them."""


class Piece(NamedTuple):
    """A box of an input, turned or mirrored.

    Attributes:
        image_index: Which input.
        box: In its pixels.
        turn: A transform of `codev_env.transforms` that leads from the box to the piece.
    """

    image_index: int
    box: Box
    turn: str = IDENTITY

    @property
    def size(self) -> Size:
        """(width, height), turned."""
        left, top, right, bottom = self.box
        return transform_size((right - left, bottom - top), self.turn)

    def turned(self, turn: str) -> Piece:
        """The piece after one more transform."""
        return Piece(self.image_index, self.box, _COMPOSED[self.turn, turn])

    def cut(self, box: Box) -> Piece:
        """A box of the piece."""
        left, top, right, bottom = (int(side) for side in transform_box(box, self.size, inverse(self.turn)))
        x, y = self.box[:2]
        return Piece(self.image_index, (x + left, y + top, x + right, y + bottom), self.turn)


class Cuts:
    """Follows recorded cuts back to the inputs, by the sizes of what was cut.

    A cut of a cut is found by the size of the first one, a cut of a turned input by the turns that give its size. Which
    of several pieces of one size was meant is not decided here.

    Args:
        sizes: (width, height) of the inputs.
    """

    def __init__(self, sizes: Iterable[Size]) -> None:
        self._wholes = tuple(Piece(index, (0, 0, *size)) for index, size in enumerate(sizes))
        self._pieces: dict[Piece, None] = {}

    def add(self, cuts: Iterable[Cut]) -> None:
        """Add the cuts of one program, oldest first."""
        of_inputs = [whole.turned(turn) for turn in TURNS for whole in self._wholes]
        for size, box in cuts:
            of_cuts = [piece for piece in self._pieces if piece.size == size]
            for base in (*(base for base in of_inputs[::-1] if base.size == size), *of_cuts):
                piece = base.cut(box)
                self._pieces.pop(piece, None)
                self._pieces[piece] = None
        for piece in list(self._pieces)[: -max(_MOST, 2 * len(self._wholes))]:
            del self._pieces[piece]

    def pieces(self) -> Iterator[Piece]:
        """The pieces, newest first, then the whole inputs; first all as they were cut, then turned."""
        known = dict.fromkeys((*reversed(self._pieces), *self._wholes))
        given = set(known)
        yield from known
        for turn in TRANSFORMS:
            for piece in known:
                turned = piece.turned(turn)
                if turned not in given:
                    given.add(turned)
                    yield turned
