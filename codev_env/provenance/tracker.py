"""Finds the region of the original that each image returned by a program shows.

The same program runs again, in a view of the sandbox session that leaves no trace in the episode, on images that carry
their own coordinates; the answer is read off its output, so no reading of the code is involved. Stages, each only for
what the one before could not place:

0. *Exact copy* (`exact.find`, no run): the output equals a part that the program's process says it cut out, as it is,
   turned, resized or in other colours (`tables.Recoloured`).
1. *Pixel code* (`codes.PixelCode`, one run): each pixel carries its own coordinates, exactly and smoothly. Survives
   slicing, turning, mirroring, pasting, sampling, and interpolation, blur and plots that keep the colours.
2. *Weave* (`weave.weave`, one run, and often a `proof.Proof` on the real image, another): bars of two colours. Survive
   any change of colours, thresholds, edges and palettes, also turned by odd angles (`tilt.Tilt`).
3. *Phase code* (`codes.phase_image`, two runs): smooth waves. Survive odd angles in changed colours.
4. *Match* (no run): the output is searched in the original, pixel by pixel.
5. *Stripes* (`stripes.Stripes`, about a dozen runs): stripes of the original itself are slightly disturbed, which
   changes the course of few programs that depend on the pixels.

Work is counted in runs and pixels, decided before a stage begins; what it does not place is `unknown`.

Of a collage, the parts are located one by one: after the weave if the whole is in doubt, or at the end. A claim is only
made if the pixels really returned agree with the region claimed: a program that behaves otherwise on coded images is
caught, and its output is `unknown` unless it can be matched.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codev_env.errors import ViewLost
from codev_env.lazy import LazyProperty
from codev_env.provenance import codes, exact, woven
from codev_env.provenance.collage import Collage, is_doubtful
from codev_env.provenance.cuts import Cuts
from codev_env.provenance.outputs import Outputs, few, is_grey, part_of
from codev_env.provenance.panels import MOST, WHOLE, panels, parts_of
from codev_env.provenance.reading import Reading, read_code, read_crop
from codev_env.provenance.regions import Bounds, united
from codev_env.provenance.repeats import with_repeats
from codev_env.provenance.reruns import KILLED, ProbeSession, Reruns
from codev_env.provenance.search import find_copy
from codev_env.provenance.stripes import FEWEST_PLANES, StripeReader, Stripes, planes, read_stripes
from codev_env.provenance.tilt import Tilt, find_tilt
from codev_env.provenance.waves import read_phase
from codev_env.provenance.weave import WovenPart, read_weave, weave
from codev_env.types import Execution, Region

Array = NDArray[np.floating]
Show = Callable[[Image.Image], Image.Image]
"""Brings an output, or its counterpart in another run, into the form that is read: a part of it, or turned back."""

UNKNOWN, LATE = Region(), Region(how="late")
MOST_RUNS, MOST_PIXELS = 64, 96 * 3840 * 2160
"""Programs that one trace runs at most, and pixels of input images and outputs that these read and return."""
_PROOFS = 3
"""Runs that the proof of a claim by the weave takes at most."""
_CODE, _STRIPES, _WEAVE, _PROOF = "code", "stripes", "weave", "proof"
_log = logging.getLogger(__name__)


class Tracker:
    """Follows the pixels through one episode.

    Args:
        session: The episode's sandbox session; the programs passed to `trace` have run in its `main` view.
        images: The input images: by the names the programs open them under, or in order, named as in `names`.
        names: Names of the images given in order; default `input.png`, `input2.png`, ...
        secret: Decides, with the images, where outputs are looked at.
    """

    def __init__(
        self,
        session: ProbeSession,
        images: Mapping[str, Image.Image] | Sequence[Image.Image],
        names: Sequence[str] | None = None,
        *,
        secret: int = 0,
    ) -> None:
        if isinstance(images, Mapping):
            names, images = tuple(images), tuple(images.values())
        names = names or ["input.png" if i == 0 else f"input{i + 1}.png" for i in range(len(images))]
        self._images = tuple(images)
        self._sizes = tuple(image.size for image in images)
        self._seed = secret
        self._reruns = Reruns(session, names)
        self._cuts = Cuts(self._sizes)
        self._coded = self._woven_probes = tuple[Image.Image | None, ...]()
        self._panels: list[list[list[WovenPart]]] = []

    def trace(self, code: str, execution: Execution) -> tuple[Region, ...]:
        """Find the region of each image that a program returned.

        Must be called for every program of the episode, in order, also for those that returned no image: later programs
        may use files that they saved. A program runs again where a later one whose image has to be placed reads its
        files, or where variables persist.

        Args:
            code: The program that ran in the `main` view.
            execution: Its result.

        Returns:
            One region per image of `execution`; `LATE` where the machine, twice, did not let a program run again.
        """
        self._cuts.add(execution.cuts)
        if execution.stop != "refused":
            self._reruns.add(code, execution)
        if execution.stop in KILLED or execution.stop == "refused" or not execution.images:
            return (UNKNOWN,) * len(execution.images)
        found = self._by_copy(execution)
        if all(found):
            return tuple(region for region in found if region)
        try:
            return self._by_runs(Outputs(execution, self._sizes), found)
        except ViewLost as error:
            _log.warning("provenance could not run a program again, and its step is not judged: %s", error)
            self._reruns.forget()
            return tuple(region or LATE for region in found)

    def _by_runs(self, outputs: Outputs, copies: list[Region | None]) -> tuple[Region, ...]:
        found = copies
        self._panels = [[]] * len(found)
        self._coded = self._woven_probes = (None,) * len(found)
        pixels = outputs.pixels + sum(width * height for width, height in self._sizes)
        self._reruns.begin(min(MOST_RUNS, MOST_PIXELS // pixels))
        # Grey made of colours is no work for the pixel code: it is left for what the weave does not show.
        changed = all(map(is_grey, outputs.images)) and not all(map(is_grey, map(few, self._images)))
        if changed:
            found = self._by_weave(outputs, found)
        readings: list[Reading | None] = [None] * len(found)
        if not all(found):
            readings = self._by_code(outputs)
            found = [
                region or (reading.region if reading and reading.sure else None)
                for region, reading in zip(found, readings, strict=True)
            ]
        if not changed:
            found = self._by_weave(outputs, found)
        guesses = [reading and reading.region for reading in readings]
        found = [region and united(region, guess) for region, guess in zip(found, guesses, strict=True)]
        collages = [self._by_seams(outputs, at, *known) for at, known in enumerate(zip(found, guesses, strict=True))]
        found = [collage or region for collage, region in zip(collages, found, strict=True)]
        found = self._by_phase(outputs, found)
        found = [region or self._by_match(output) for region, output in zip(found, outputs.images, strict=True)]
        found = self._by_stripes(outputs, found)
        regions = [one or guess or UNKNOWN for one, guess in zip(found, guesses, strict=True)]
        known = [collages[at] or self._with_others(outputs, at, region) for at, region in enumerate(regions)]
        pairs = zip(known, outputs.images, strict=True)
        known = [with_repeats(region, output, self._images, self._cuts.pieces()) for region, output in pairs]
        return tuple(copy or region for copy, region in zip(copies, outputs.regions(known), strict=True))

    @LazyProperty
    def _secret(self) -> int:
        """It decides, with an output, where that is looked at; copies of pixels do not need it."""
        secret = zlib.crc32(self._seed.to_bytes(8, "little", signed=True))
        for image in self._images:
            secret = zlib.crc32(np.asarray(image.reduce(max(1, min(image.size) // 16))).tobytes(), secret)
        return secret

    def _by_copy(self, execution: Execution) -> list[Region | None]:
        # With more images than the pixel code holds, a match is tried first: the weave is slow for so many.
        found = [exact.find(one, self._images, self._cuts.pieces(), self._secret) for one in execution.images]
        if len(self._sizes) <= codes.MOST_IMAGES:
            return found
        return [region or self._by_match(output) for region, output in zip(found, execution.images, strict=True)]

    def _by_code(self, outputs: Outputs) -> list[Reading | None]:
        if len(self._sizes) > codes.MOST_IMAGES or not self._reruns.affords("pixel code", 1, [_CODE]):
            return [None] * len(outputs.images)
        code = codes.pixel_code(self._sizes)
        probes = self._coded = outputs.pair(self._reruns.run(_CODE, code.images))
        return [
            None if probe is None else self._read_code(output, probe, code)
            for output, probe in zip(outputs.images, probes, strict=True)
        ]

    def _read_code(self, output: Image.Image, probe: Image.Image, code: codes.PixelCode) -> Reading | None:
        crop = read_crop(output, probe, code, self._images)
        return Reading(crop, True) if crop else read_code(output, probe, code, self._images, self._secret)

    def _by_weave(self, outputs: Outputs, found: list[Region | None]) -> list[Region | None]:
        if all(found) or not self._reruns.affords("weave", 1, [_WEAVE]):
            return found
        probes = outputs.pair(self._reruns.run(_WEAVE, [weave(size, i) for i, size in enumerate(self._sizes)]))
        self._woven_probes = probes
        return [
            region if region or probe is None else self._read_weave(outputs, at, probe)
            for at, (region, probe) in enumerate(zip(found, probes, strict=True))
        ]

    def _read_weave(self, outputs: Outputs, at: int, probe: Image.Image) -> Region | None:
        """The region that an output shows by the pattern, upright or turned by an odd angle."""
        tilt = find_tilt(probe)
        region = self._tilted(outputs, at, probe, tilt)
        if region is not None:
            return region
        panels = [read_weave(probe, size, index) for index, size in enumerate(self._sizes)]
        if tilt is None and not any(panel.is_clear for some in panels for panel in some):
            region = self._tilted(outputs, at, probe, find_tilt(probe, thorough=True))
            if region is not None:
                return region
        self._panels[at] = panels
        return self._woven(outputs, at, (0, 0, *probe.size), panels)

    def _tilted(self, outputs: Outputs, at: int, probe: Image.Image, tilt: Tilt | None) -> Region | None:
        # If it fails, the output is read as if it were upright.
        if tilt is None or not self._reruns.affords("tilt", 2 * _PROOFS):
            return None
        upright = tilt.upright(probe)
        panels = [read_weave(upright, size, index) for index, size in enumerate(self._sizes)]
        found = self._proved(outputs, at, tilt.upright, panels, is_exact=False)
        if found is None:
            return None
        region, affine = found
        return tilt.region(region, affine, outputs.images[at], self._images[region.image_index], self._secret)

    def _woven(self, outputs: Outputs, at: int, part: Bounds, panels: Sequence[list[WovenPart]]) -> Region | None:
        """The region that a part of an output shows by the pattern; for each input image the panels that show it."""
        found = self._proved(outputs, at, partial(part_of, bounds=part), panels)
        return found and found[0]

    def _proved(
        self, outputs: Outputs, at: int, show: Show, panels: Sequence[list[WovenPart]], is_exact: bool = True
    ) -> tuple[Region, Array] | None:
        """The region that an output shows by the pattern, as it is after `show`, and the map from that to the input.

        `is_exact` says whether the map is good to a pixel.
        """
        if not any(panels):
            return None  # To turn a large output back takes long.
        output = show(outputs.images[at])
        for image, (index, some) in zip(self._images, enumerate(panels), strict=False):
            claimed = woven.claim(output, some, image, index, self._secret)
            if claimed is None:
                continue
            disturb = partial(self._disturbed, outputs, at, show, index)
            region = claimed.region or woven.prove(claimed, output, image, index, self._secret, disturb, is_exact)
            return None if region is None else (region, claimed.affine)
        return None

    def _disturbed(self, outputs: Outputs, at: int, show: Show, index: int, image: Image.Image) -> Image.Image | None:
        """An output for another image of that index, after `show`; `None` if there is none, or no run is left."""
        if not self._reruns.affords("proof", 1):
            return None
        self._reruns.forget(_PROOF)
        images = (*self._images[:index], image, *self._images[index + 1 :])
        probe = outputs.pair(self._reruns.run(_PROOF, images))[at]
        return probe and show(probe)

    def _by_seams(self, outputs: Outputs, at: int, region: Region | None, guess: Region | None) -> Region | None:
        """The places of images that an output puts side by side, where it is unknown or in doubt as a whole."""
        if region is not None and (region.polygon is None or region.original_share >= WHOLE):
            return None
        seen, pieces = (outputs.images[at], self._coded[at], self._woven_probes[at]), list(self._cuts.pieces())
        collage = Collage(*seen, self._images, pieces, self._secret, partial(self._woven, outputs, at))
        return collage.read(region, guess, self._shown(at))

    def _shown(self, at: int) -> list[WovenPart]:
        return [panel for some in self._panels[at] for panel in some]

    def _with_others(self, outputs: Outputs, at: int, region: Region) -> Region:
        """Add what other parts of an output show, where most of it may be something else than its region."""
        if region.polygon is not None and region.original_share >= WHOLE:
            return region
        output, probe = outputs.images[at], self._coded[at]
        doubtful = is_doubtful(region, self._shown(at))
        if probe is not None:
            code = codes.pixel_code(self._sizes)
            bounds = panels(output, probe, code, self._secret)
            readings = [self._read_code(part_of(output, part), part_of(probe, part), code) for part in bounds]
            found = [one.region if one and one.sure else None for one in readings]
            if any(found):
                return parts_of(bounds, found, region, output.size, doubtful)
        shown = [(index, panel) for index, some in enumerate(self._panels[at]) for panel in some][:MOST]
        if len(shown) < 2:
            return region
        found = [self._woven(outputs, at, panel.bounds, [[]] * index + [[panel.alone]]) for index, panel in shown]
        return parts_of([panel.bounds for _, panel in shown], found, region, output.size, doubtful)

    def _by_phase(self, outputs: Outputs, found: list[Region | None]) -> list[Region | None]:
        for index in range(len(self._images)):
            # Waves are recognised by their colours.
            open_ = [
                region is None and not is_grey(output) for region, output in zip(found, outputs.images, strict=True)
            ]
            names = [f"phase-{index}-{axis}" for axis in (0, 1)]
            if not any(open_) or not self._reruns.affords("phase code", 2, names):
                break
            waves = [
                self._reruns.run(name, codes.phase_images(self._sizes, index, axis)) for axis, name in enumerate(names)
            ]
            found = [
                read_phase(output, np.asarray(x), np.asarray(y), self._images[index], index, self._secret)
                if missing and x is not None and y is not None
                else region
                for region, missing, output, x, y in zip(
                    found, open_, outputs.images, *map(outputs.pair, waves), strict=True
                )
            ]
        return found

    def _by_match(self, output: Image.Image) -> Region | None:
        regions = (find_copy(output, image, index) for index, image in enumerate(self._images))
        return next((region for region in regions if region is not None), None)

    def _by_stripes(self, outputs: Outputs, found: list[Region | None]) -> list[Region | None]:
        for index, image in enumerate(self._images):
            if all(found) or not self._reruns.affords("stripes", FEWEST_PLANES):
                break
            stripes = Stripes(image, self._secret)
            readers = [
                None if region else StripeReader(output, stripes)
                for region, output in zip(found, outputs.images, strict=True)
            ]
            for plane in planes():
                wanting = [reader is not None and reader.wants(plane) for reader in readers]
                if not any(wanting):
                    continue
                if not self._reruns.affords("stripes", 1):
                    return found
                images = (*self._images[:index], stripes.draw(plane), *self._images[index + 1 :])
                self._reruns.forget(_STRIPES)
                probes = outputs.pair(self._reruns.run(_STRIPES, images))
                for reader, wants, probe in zip(readers, wanting, probes, strict=True):
                    if reader is not None and wants:
                        reader.read(plane, probe)
            found = [
                read_stripes(output, reader, image, index, self._secret) if reader else region
                for region, reader, output in zip(found, readers, outputs.images, strict=True)
            ]
        return found
