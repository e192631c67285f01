"""Compares an output with the image in detail: how far a map is off, and how much of the image's detail is left."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.provenance.agreement import box_sum
from codev_env.provenance.legibility import FEWEST, PLAIN, legible, normalized, slopes, steepness
from codev_env.provenance.regions import Around, Bools, Bounds, Originals, scales, to_size

Array = NDArray[np.floating]

_PATCH = 96
_CELLS = (32, 16, 8)
"""Sides of cells in pixels, of which the largest that fits is taken: it has an octave of detail for each halving."""
_LEAST_ENERGY = 1.0
_OVERVIEW = 96
_LIKE = 0.7
_SMALL = 8
_VISIBLE, _FADED = 4.0, 8.0
_AROUND, _CONTRAST, _ANY = 4, 0.25, 1.0
"""Pixels of an overview on each side of a place over which it varies; the least share of what varies that is left, and
levels by which it varies then."""
_LEVELS = 16
_SPARE = 4
"""Pixels around what a patch shows, by which a map may be shifted without another look at the image."""


@dataclass(frozen=True)
class Patch:
    """A part of an output, in grey, at the output's or the image's resolution, whichever is lower.

    Attributes:
        box: Left, top, right, bottom in the output.
        pixels: The output there, shape (height, width).
        cells: Which cells, of 32 x 32 pixels or a half or quarter of that, hold nothing but original pixels.
        around: The part of the image that was last looked at, if any.
    """

    box: tuple[float, float, float, float]
    pixels: Array
    cells: Bools
    around: list[Around] = field(default_factory=list, compare=False, repr=False)

    @property
    def octaves(self) -> int:
        """How often a cell can be halved."""
        return max(1, self.pixels.shape[0] // len(self.cells)).bit_length() - 1

    def expected(self, affine: Array, image: Image.Image) -> Array:
        """The content that a map predicts for the patch, in grey."""
        to_image = to_size(affine, self.box, self.pixels.shape[::-1])
        around = self.around[-1] if self.around else None
        if around is None or not around.holds(image, to_image, self.pixels.shape[::-1]):
            around = Around(image, to_image, self.pixels.shape[::-1], grey=True, spare=_SPARE)
            self.around[:] = [around]
        return np.asarray(around.show(to_image, self.pixels.shape[::-1]), np.float32)

    def weights(self) -> Array:
        """1 for pixels of whole cells, 0 for others."""
        side = max(1, self.pixels.shape[0] // len(self.cells))
        return self.cells.repeat(side, 0).repeat(side, 1).astype(np.float32)


def patches(output: Image.Image, affine: Array, bounds: Bounds, originals: Originals) -> list[Patch]:
    """Up to four patches of the part of an output that shows the image, with some whole cell each."""
    found = (_patches(output, affine, bounds, originals, cell) for cell in _CELLS)
    return next((some for some in found if some), [])


def _patches(output: Image.Image, affine: Array, bounds: Bounds, originals: Originals, cell: int) -> list[Patch]:
    left, top, right, bottom = bounds
    lines = []
    for start, end, step in ((left, right, scales(affine)[0]), (top, bottom, scales(affine)[1])):
        enlarged = max(1.0, 1 / max(step, 1e-9))
        count = min(_PATCH, int((end - start) / enlarged)) // cell * cell
        room = (end - start) - count * enlarged
        places = [start + 0.2 * room, start + 0.8 * room] if room > count * enlarged else [start + room / 2]
        lines.append(([float(int(p)) for p in places] if enlarged == 1 else places, count, count * enlarged))
    (xs, columns, width), (ys, rows, height) = lines
    if not rows or not columns:
        return []
    found = (_patch(output, (x, y, x + width, y + height), (columns, rows), originals, cell) for y in ys for x in xs)
    return [patch for patch in found if patch.cells.any()]


def _patch(
    output: Image.Image, box: tuple[float, float, float, float], size: tuple[int, int], originals: Originals, cell: int
) -> Patch:
    columns, rows = size[0] // cell, size[1] // cell
    u = np.linspace(box[0], box[2] - 1, 5 * columns).astype(np.intp)
    v = np.linspace(box[1], box[3] - 1, 5 * rows).astype(np.intp)
    found = originals(*np.meshgrid(v, u, indexing="ij"))
    pixels = output.resize(size, Image.Resampling.BOX, box).convert("L")
    return Patch(box, np.asarray(pixels, np.float32), np.asarray(found.reshape(rows, 5, columns, 5).all((1, 3))))


def overview(output: Image.Image, bounds: Bounds, originals: Originals) -> Patch:
    """The whole part of an output that shows the image, shrunk; each pixel is a cell."""
    left, top, right, bottom = bounds
    shrink = min(1.0, _OVERVIEW / max(right - left, bottom - top))
    size = max(1, round((right - left) * shrink)), max(1, round((bottom - top) * shrink))
    u = (left + (np.arange(size[0]) + 0.5) / shrink).astype(np.intp).clip(left, right - 1)
    v = (top + (np.arange(size[1]) + 0.5) / shrink).astype(np.intp).clip(top, bottom - 1)
    found = originals(*np.meshgrid(v, u, indexing="ij"))
    box = (float(left), float(top), float(right), float(bottom))
    return Patch(box, np.asarray(output.resize(size, Image.Resampling.BOX, bounds).convert("L"), np.float32), found)


def likeness(expected: Array, patch: Patch) -> float | None:
    """Correlation of a patch with what it is expected to show, -1 to 1; `None` if that is too plain to compare."""
    weight = patch.weights()
    if expected[weight > 0].size < 16 or expected[weight > 0].std() < PLAIN:
        return None
    a, b = normalized(expected, weight), normalized(patch.pixels, weight)
    return float((weight * a * b).sum() / weight.sum())


def kinship(expected: Array, patch: Patch) -> float:
    """How much of a patch what is expected explains, 0 to 1: by its brightness, through any function, or by its edges.

    The first is the correlation ratio over 16 levels of brightness, less what chance makes of it; the second is the
    correlation with the gradient.
    """
    weight = patch.weights()
    values, returned = expected[weight > 0], patch.pixels[weight > 0]
    if returned.std() == 0:
        return 0.0
    _, count, means = _tones(values, returned)
    explained = (count * (means - returned.mean()) ** 2).sum() / (len(returned) * returned.var())
    chance = (np.count_nonzero(count) - 1) / max(len(returned) - 1, 1)
    ratio = float(np.sqrt(max(explained - chance, 0.0)))
    gradient = normalized(steepness(expected), weight)
    return max(ratio, float((weight * gradient * normalized(patch.pixels, weight)).sum() / weight.sum()))


def _tones(values: Array, returned: Array) -> tuple[Array, NDArray[np.integer], Array]:
    """Bounds of 16 levels of what is expected, as many pixels in each, their numbers of pixels, and what is returned.

    Returns:
        Shape (15,), (16,) and (16,).
    """
    bounds = np.quantile(values, np.linspace(0, 1, _LEVELS + 1)[1:-1])
    level = np.searchsorted(bounds, values)
    count = np.bincount(level, minlength=_LEVELS)
    return bounds, count, np.bincount(level, returned, _LEVELS) / np.maximum(count, 1)


def visible(expected: Array, patch: Patch) -> bool:
    """Whether a patch shows anything where there is something to show: legible, and not faded to a rest of contrast.

    It is faded if it varies by less than 4 levels, or an eighth of what is expected. It is faded, too, unless places
    with a quarter of the expected variance, at least, vary by an eighth of that in proportion to the whole.
    """
    weight = patch.weights() > 0
    if weight.sum() < FEWEST or expected[weight].std() < PLAIN:
        return True
    faded = patch.pixels[weight].std() / expected[weight].std()
    if patch.pixels[weight].std() < _VISIBLE or faded < 1 / _FADED:
        return False
    before, after = (_variance(part, patch.weights())[weight] for part in (expected, patch.pixels))
    left = after >= np.maximum(_ANY, before * (min(1.0, faded) / _FADED) ** 2)
    return float(before[left].sum()) >= _CONTRAST * float(before.sum()) and legible(
        expected, patch.pixels, patch.weights()
    )


def _variance(pixels: Array, weight: Array) -> Array:
    """The variance around each pixel, over those of weight 1."""
    centred, count = pixels - pixels[weight > 0].mean(), np.maximum(box_sum(weight, _AROUND), 1.0)
    mean = box_sum(weight * centred, _AROUND) / count
    return np.asarray(np.maximum(box_sum(weight * centred * centred, _AROUND) / count - mean * mean, 0.0))


def align(affine: Array, image: Image.Image, patch: list[Patch], most: float) -> Array | None:
    """Shift a map so that the image, as the map shows it, lies on what patches show (Lucas and Kanade, 1981).

    Brightness and contrast do not matter, nor whether they are inverted; what looks like nothing in the image, such as
    edges, stays where it is.

    Args:
        affine: The map, right up to a shift of a few pixels of the patches.
        image: The image.
        patch: The patches, of one resolution.
        most: Pixels of the image by which the map may be off.

    Returns:
        `None` if the map is off by more.
    """
    patch = [one for one in patch if min(one.pixels.shape) >= _SMALL]
    if not patch:
        return affine
    first = patch[0]
    pixel = np.array([first.box[2] - first.box[0], first.box[3] - first.box[1]]) / first.pixels.shape[::-1]
    weights = [one.weights()[1:-1, 1:-1] for one in patch]
    shifted = affine
    for _ in range(4):
        normal, target = np.zeros((2, 2)), np.zeros(2)
        for one, weight in zip(patch, weights, strict=True):
            expected, returned = (
                normalized(part[1:-1, 1:-1], weight) for part in (one.expected(shifted, image), one.pixels)
            )
            alike = float((weight * expected * returned).sum() / max(weight.sum(), 1))
            if abs(alike) < _LIKE:
                continue
            du, dv = (np.gradient(expected, axis=axis) for axis in (1, 0))
            off = np.sign(alike) * returned - expected
            wu, wv = weight * du, weight * dv
            across = (wu * dv).sum()
            normal += [[(wu * du).sum(), across], [across, (wv * dv).sum()]]
            target += [(wu * off).sum(), (wv * off).sum()]
        if not normal.any() or np.linalg.cond(normal) > 1e4:
            break  # A plain area lies anywhere.
        step = (shifted[:, :2] * pixel) @ np.linalg.solve(normal, target)
        shifted = np.column_stack([shifted[:, :2], shifted[:, 2] + step])
        if np.abs(step).max() < max(0.05, 0.02 * float(pixel.max())):
            break
    return shifted if np.abs(shifted[:, 2] - affine[:, 2]).max() <= most else None


def kept(affine: Array, image: Image.Image, found: list[Patch]) -> float | None:
    """The share of an output's resolution, or of the image's if that is lower, that holds detail of it, 0 to 1.

    Patches of both are taken apart into octaves of detail (a Laplacian pyramid). Of each octave, that share is left to
    which the two are correlated, or to which the output's part in it is weaker than in the best octave. Detail ends
    where half is left: that a contrast scales all octaves does not matter, nor does noise make up for a lost one. The
    image is taken as it is and in the output's tones, such as those of a threshold. Where one axis has lost more than
    the other, by itself, as in what was squeezed, no more is left than the ratio of both.

    Args:
        affine: The map from the output's pixels to the image's.
        image: The input image.
        found: Patches of the output.

    Returns:
        `None` if no octave of the output is like the image's, as in edges.
    """
    if not found:
        return 1.0
    expected = [patch.expected(affine, image) for patch in found]
    toned: list[Array] = []
    left, *both = (_left(expected, toned, found, axes) for axes in ((0, 1), (0,), (1,)))
    along = [part for part in both if part is not None]
    return left and min(left, min(along, default=1.0) / max(along, default=1.0))


def edges_kept(affine: Array, image: Image.Image, found: list[Patch]) -> float | None:
    """The share as of `kept` in an output of edges, by the image's edges, all or those along one axis.

    Returns:
        `None` if no octave of the output is like them either.
    """
    expected = [patch.expected(affine, image) for patch in found]
    kinds = [
        list(map(steepness, expected)),
        *(list(map(np.abs, some)) for some in zip(*map(slopes, expected), strict=True)),
    ]
    shares = [_kept(sums, np.arange(len(sums))) for sums in (_octaves(edges, found) for edges in kinds)]
    return max((share for share in shares if share is not None), default=None)


def _left(expected: list[Array], toned: list[Array], found: list[Patch], axes: tuple[int, ...]) -> float | None:
    """The share as of `kept`, by the octaves along some axes alone; `toned` is made where it is first looked at."""
    sums = _octaves(expected, found, axes)
    clear = np.flatnonzero(sums[:, 1] >= _LEAST_ENERGY)
    if not len(clear):
        return 1.0
    left = _kept(sums, clear)
    if left is not None and left < 1:
        toned[:] = toned or [_in_tones_of(patch, one) for patch, one in zip(found, expected, strict=True)]
        left = max(left, _kept(_octaves(toned, found, axes), clear) or 0.0)
    return left


def _in_tones_of(patch: Patch, expected: Array) -> Array:
    """The content expected of a patch, each of its brightnesses replaced by the mean that the patch has there."""
    inside = patch.weights() > 0
    bounds, _, means = _tones(expected[inside], patch.pixels[inside])
    return np.asarray(means[np.searchsorted(bounds, expected)], np.float32)


def _kept(sums: Array, clear: NDArray[np.intp]) -> float | None:
    """The share by the octaves that are clear; `None` where no octave of one is like that of the other."""
    cross, expected, returned = np.abs(sums[clear].T)
    expected = np.maximum(expected, 1e-6)
    coherence = cross / np.sqrt(np.maximum(expected * returned, 1e-12))
    best = int(np.argmax(coherence))
    if coherence[best] < _LIKE:
        return None
    left = np.minimum(coherence / coherence[best], cross / expected / (cross[best] / expected[best]))
    first = int(np.argmax(left >= 0.5))
    if first == 0:
        return 1.0
    part = (0.5 - left[first - 1]) / (left[first] - left[first - 1])
    return float(0.5 ** (clear[first - 1] + part * (clear[first] - clear[first - 1])))


def scale_of(scale: float, left: float) -> float:
    """Output pixels per pixel of the image, less the detail lost: of the image's own pixels where it is enlarged.

    Args:
        scale: Output pixels per pixel of the image.
        left: The share of the lower of both resolutions that holds detail, as `kept` measures it.
    """
    return scale if left >= 1 else min(scale, 1.0) * left


def _octaves(images: list[Array], found: list[Patch], axes: tuple[int, ...] = (0, 1)) -> Array:
    """Means of products of the details of images and of patches over whole cells, by octave, finest first.

    Args:
        images: What is expected of the patches.
        found: The patches.
        axes: Those along which detail is looked at.

    Returns:
        Of both, of the first with itself, of the second with itself, over a cell; shape (octaves, 3).
    """
    sums = np.zeros((found[0].octaves, 3))
    half = slice(None, None, 2 if 0 in axes else 1), slice(None, None, 2 if 1 in axes else 1)
    for patch, image in zip(found, images, strict=True):
        pair, weight, cells = (image, patch.pixels), patch.weights(), int(patch.cells.sum())
        for octave in range(patch.octaves):
            smooth = _smooth(pair[0], axes), _smooth(pair[1], axes)
            a, b = pair[0] - smooth[0], pair[1] - smooth[1]
            weights = weight * (cells / weight.sum())
            sums[octave] += (a * b * weights).sum(), (a * a * weights).sum(), (b * b * weights).sum()
            pair, weight = (smooth[0][half], smooth[1][half]), weight[half]
    return sums / sum(int(patch.cells.sum()) for patch in found)


def _smooth(pixels: Array, axes: tuple[int, ...]) -> Array:
    """An image under a binomial filter of 5 pixels along some axes, which leaves about half of its resolution there."""
    for axis in (0, 1):
        if axis in axes:
            a = np.concatenate([pixels[:1], pixels[:1], pixels, pixels[-1:], pixels[-1:]])
            pixels = (a[:-4] + a[4:]) / 16 + (a[1:-3] + a[3:-1]) / 4 + a[2:-2] * 0.375
        pixels = pixels.T
    return pixels
