"""Sequences of bars with structure at every scale, and how to find which stretch of one a signal shows."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

BAR = 3
"""Pixels of the image that the narrowest bar is wide."""
_CHILDREN, _LEVELS = 5, 4
_RATIO = 1.03
_SAMPLES = 96
_MOST_ZOOM, _MOST_SHRINK = 16.0, 24.0
CLEAR, _LIKELY = 0.82, 0.6
_CLEARER = 0.05
"""Correlations of a signal with a stretch of bars: enough to look no further, enough at all; lead over other places."""
_LUCK = 5.2
"""Noise is correlated with its best place by that, over the root of its samples."""
_USUAL = [1 / 2, 1 / 3, 1 / 4, 2 / 3, 2.0, 1.5]
"""Pixels per sample after usual resizes."""
LEAST_BARS = 7
"""Bars that a stretch holds."""
_EDGE = 2
"""Pixels of the image that an edge is wide: those on both sides of it."""


def bars(length: int, axis: int) -> Array:
    """The sequence of bars along an axis, -1 or 1 for each pixel, shape (length,); x of the first image is axis 0."""
    rng = np.random.default_rng((71, axis))
    wide = BAR * _CHILDREN ** (_LEVELS - 1)
    signs = rng.integers(0, 2, -(-length // wide)) * 2 - 1
    patterns = np.array([[1 if n >> k & 1 else -1 for k in range(_CHILDREN)] for n in range(1 << _CHILDREN)])
    patterns = patterns[patterns.sum(1) > 0]
    for _ in range(_LEVELS - 1):
        signs = (signs[:, None] * patterns[rng.integers(0, len(patterns), len(signs))]).ravel()
    return np.asarray(signs.repeat(BAR)[:length].astype(np.float64))


class Line(NamedTuple):
    """Which stretch of an axis of the image a signal shows: from `start`, shown at its beginning, to `end`."""

    start: float
    end: float
    score: float
    edges: bool


class Bank:
    """Sequences of one axis at many scales, and what it takes to find a signal in them."""

    def __init__(self, length: int, axis: int) -> None:
        self.length = length
        signs = bars(length, axis)
        edges = np.append(np.abs(np.diff(signs)) / 2, 0.0)
        edges = np.maximum(edges, np.roll(edges, 1))
        self.sums = [np.concatenate([[0.0], np.cumsum(one)]) for one in (signs, edges)]
        self._scaled: dict[tuple[int, bool], _Scaled] = {}

    def shown(self, start: Array, end: Array, count: int, edges: bool) -> Array:
        """Signals of so many samples that show stretches of the sequence, one a row; 0 outside the image."""
        ends = start[:, None] + (end - start)[:, None] * np.linspace(0, 1, count + 1)
        sums = np.interp(ends, np.arange(self.length + 1), self.sums[edges])
        return np.asarray(np.diff(sums) * count / (end - start)[:, None])

    def at_scale(self, number: int, edges: bool) -> _Scaled:
        """The whole sequence with `_RATIO ** number` pixels a sample; cached."""
        key = number, edges
        if key not in self._scaled:
            count = max(2, round(self.length / _RATIO**number))
            line = self.shown(np.zeros(1), np.full(1, count * _RATIO**number), count, edges)[0]
            line = np.pad(line, _SAMPLES // 4)
            room = 1 << (len(line) + _SAMPLES - 1).bit_length()
            spectrum = np.fft.rfft(line, room).astype(np.complex64)
            sums, squares = (np.concatenate([[0.0], np.cumsum(one)]).astype(np.float32) for one in (line, line**2))
            self._scaled[key] = _Scaled(spectrum, sums, squares, room)
        return self._scaled[key]


class _Scaled(NamedTuple):
    """A sequence at one scale: its spectrum, the sums of its first values and of their squares, the FFT's length."""

    spectrum: NDArray[np.complex64]
    sums: NDArray[np.float32]
    squares: NDArray[np.float32]
    room: int

    def weights(self, samples: int) -> NDArray[np.float32]:
        """By what correlations with a signal of so many samples are multiplied at each place."""
        mean = (self.sums[samples:] - self.sums[:-samples]) / samples
        spread = np.sqrt(np.maximum((self.squares[samples:] - self.squares[:-samples]) - samples * mean**2, 1e-9))
        return np.asarray(1 / np.maximum(spread, 0.15 * spread.max(initial=1e-9)), np.float32)


@lru_cache(maxsize=16)
def bank_of(length: int, axis: int) -> Bank:
    """The sequences of an axis; cached."""
    return Bank(length, axis)


def find_line(signal: Array, length: int, axis: int, hint: float | None = None, usual: bool = False) -> Line | None:
    """Find the stretch of an axis that a signal shows, in either direction; `None` if there is no clear one.

    Args:
        signal: Shape (n,); its scale, offset and sign do not matter.
        length: Of the axis, in pixels.
        axis: 0 for x, 1 for y.
        hint: Pixels per sample that are likely.
        usual: Look at no other scales than these, one and those of usual resizes.
    """
    least = max(_LIKELY, _LUCK / float(np.sqrt(min(len(signal), _SAMPLES)))) if len(signal) else 1.0
    if least >= 1 or signal.std() < 1e-9:
        return None  # Of few samples, no correlation would say anything.
    bank = bank_of(length, axis)
    best: Line | None = None
    likely = [1.0] if hint is None else [hint, 1.0]
    for scales in (likely, _USUAL) if usual else (likely, _USUAL, None):
        for edges in (False, True):
            one = _coarse(signal, bank, scales, edges)
            if one is None:
                continue
            one = _placed(signal, bank, one)
            if abs(one.end - one.start) < LEAST_BARS * BAR:
                continue  # A few bars are like anything.
            if best is None or one.score > best.score:
                best = one
            if best.score >= CLEAR:
                return best
    return best if best is not None and best.score >= least else None


def _coarse(signal: Array, bank: Bank, scales: list[float] | None, edges: bool) -> Line | None:
    """The best place at the scales of the bank, or near some of them, for a signal of few samples."""
    samples = min(_SAMPLES, len(signal))
    sums = np.concatenate([[0.0], np.cumsum(signal)])
    short = np.diff(np.interp(np.linspace(0, len(signal), samples + 1), np.arange(len(sums)), sums))
    per = len(signal) / samples
    short = short - short.mean()
    norm = float(np.sqrt((short**2).sum()))
    if norm < 1e-9:
        return None
    log = np.log(_RATIO)
    if scales is None:
        low, high = (
            np.log(max(per / _MOST_ZOOM, LEAST_BARS * BAR / samples)) / log,
            np.log(min(per * _MOST_SHRINK, 1.3 * bank.length / samples)) / log,
        )
        numbers = list(range(int(np.floor(low)), int(np.ceil(high)) + 1))
    else:
        numbers = sorted({round(np.log(per * scale) / log) + k for scale in scales for k in (-1, 0, 1)})
    pair = np.stack([short, short[::-1]]) / norm
    spectra: dict[int, NDArray[np.complex64]] = {}
    scores: list[tuple[int, NDArray[np.float32]]] = []
    for number in numbers:
        scaled = bank.at_scale(number, edges)
        weights = scaled.weights(samples)
        if not len(weights):
            continue
        if scaled.room not in spectra:
            spectra[scaled.room] = np.conj(np.fft.rfft(pair, scaled.room)).astype(np.complex64)
        match = np.fft.irfft(scaled.spectrum * spectra[scaled.room], scaled.room)[:, : len(weights)]
        scores.append((number, np.abs(match) * weights))
    if not scores:
        return None
    tops = np.array([score.max(1) for _, score in scores])
    at, back = divmod(int(tops.argmax()), 2)
    number, score = scores[at]
    best, place = float(tops[at, back]), int(score[back].argmax())
    if best < 0.45:
        return None
    width = _RATIO**number
    start = (place - _SAMPLES // 4) * width
    ends = (start, start + samples * width)
    # Where other places are as like, there are too few bars.
    for (other, score), top in zip(scores, tops, strict=True):
        for side in np.flatnonzero(top > best - _CLEARER).tolist():
            like = np.flatnonzero(score[side] > best - _CLEARER) - _SAMPLES // 4
            firsts, lasts = like * _RATIO**other, (like + samples) * _RATIO**other
            if side != back:
                firsts, lasts = lasts, firsts
            if (np.maximum(np.abs(firsts - ends[0]), np.abs(lasts - ends[1])) > 0.2 * samples * width).any():
                return None
    return Line(*(ends[::-1] if back else ends), best, edges)


def _placed(signal: Array, bank: Bank, line: Line) -> Line:
    """Refine a stretch; in an enlarged image, lines thinner than its edges are spread to their width if that fits."""
    refined = _refined(signal, bank, line)
    width = round(_EDGE * len(signal) / abs(line.end - line.start)) if line.edges else 1
    if refined.score >= CLEAR or width <= _EDGE:
        return refined
    return max(refined, _refined(np.convolve(signal, np.ones(width), "same"), bank, line), key=lambda one: one.score)


def _refined(signal: Array, bank: Bank, line: Line) -> Line:
    """Move both ends of a stretch to where the signal fits best."""
    count = min(len(signal), 768)
    sums = np.concatenate([[0.0], np.cumsum(signal)])
    signal = np.diff(np.interp(np.linspace(0, len(signal), count + 1), np.arange(len(sums)), sums))
    step = 1.6 * abs(line.end - line.start) / min(_SAMPLES, count)
    moves = np.array([(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)], float)
    ends, score = np.array([line.start, line.end]), 0.0
    while step > 0.04:
        # Blurred while the ends are rough, so that the best place can be felt from afar.
        shown = _few(signal, min(count, max(24, int(4 * abs(ends[1] - ends[0]) / step))))
        shown = shown - shown.mean()
        norm = max(float(np.sqrt((shown**2).sum())), 1e-9)
        for _ in range(4):
            tried = ends + step * moves
            tried = tried[np.abs(tried[:, 1] - tried[:, 0]) > 1.0]
            expected = bank.shown(tried[:, 0], tried[:, 1], len(shown), line.edges)
            expected = expected - expected.mean(1, keepdims=True)
            scores = np.abs(expected @ shown) / (norm * np.maximum(np.sqrt((expected**2).sum(1)), 1e-9))
            best = int(scores.argmax())
            score = float(scores[best])
            if (tried[best] == ends).all():
                break
            ends = tried[best]
        step *= 0.5
    return Line(float(ends[0]), float(ends[1]), score, line.edges)


def _few(signal: Array, count: int) -> Array:
    sums = np.concatenate([[0.0], np.cumsum(signal)])
    return np.asarray(np.diff(np.interp(np.linspace(0, len(signal), count + 1), np.arange(len(sums)), sums)))


def sharpness(signal: Array, line: Line, length: int, axis: int) -> float:
    """The correlation of the changes of a signal, from sample to sample, with those that it should have."""
    model = bank_of(length, axis).shown(np.array([line.start]), np.array([line.end]), len(signal), line.edges)[0]
    a, b = np.diff(signal), np.diff(model)
    return float(np.abs((a * b).sum()) / max(float(np.sqrt((a * a).sum() * (b * b).sum())), 1e-9))
