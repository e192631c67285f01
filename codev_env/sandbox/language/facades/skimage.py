"""scikit-image as programs see it, if installed: functions on arrays, and `io` on the episode's files."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from typing import Any

import numpy as np
from PIL import Image

from codev_env.sandbox.language import state
from codev_env.sandbox.language.facade import Facade, nested, public

try:
    import skimage
except ImportError:
    skimage = None  # type: ignore[assignment]

_PACKAGES = (
    "color draw exposure feature filters filters.rank graph measure metrics morphology registration restoration "
    "segmentation transform util"
)
_HINTS = {
    "apply_parallel": "call the function on the array",
    "Cascade": "there are no models here",
    "data": "the pictures of the task are all there is",
    "future": "use the other subpackages",
    "try_all_threshold": "use threshold_otsu and the others by name",
    "plot_matched_features": "draw with matplotlib.pyplot",
    "show_rag": "draw with matplotlib.pyplot",
}
_IO_HINTS = {"imread_collection": "read the files one by one", "ImageCollection": "read the files one by one"}


def _imread(fname: str, as_gray: bool = False, **_other: Any) -> np.ndarray:
    """`skimage.io.imread` of the episode's files: RGB, or two dimensions for a grey one."""
    image = state.current().open(fname)
    pixels = np.array(image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB"))
    if not as_gray or pixels.ndim == 2:
        return pixels
    opaque = skimage.color.rgba2rgb(pixels) if pixels.shape[2] == 4 else pixels
    return skimage.color.rgb2gray(opaque)


def _to_bytes(arr: Any) -> np.ndarray:
    array = np.asarray(arr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = array if array.dtype == np.uint8 else skimage.util.img_as_ubyte(array)
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def _imsave(fname: str, arr: Any, **_other: Any) -> None:
    """`skimage.io.imsave` into the episode's files."""
    state.current().save(Image.fromarray(np.ascontiguousarray(_to_bytes(arr))), fname)


def _imshow(arr: Any, *_args: Any, **_other: Any) -> None:
    """`skimage.io.imshow`: hands the image over."""
    if isinstance(arr, str):
        state.current().show(arr)
    else:
        state.current().show(Image.fromarray(np.ascontiguousarray(_to_bytes(arr))))


def _show() -> None:
    """`skimage.io.show`: `imshow` has handed the images over already."""


def modules() -> dict[str, Facade]:
    """The façades by import name; empty where scikit-image is not installed."""
    if skimage is None:
        return {}
    _tighten()
    found: dict[str, Facade] = {}
    for name in _PACKAGES.split():
        module = importlib.import_module(f"skimage.{name}")
        found[f"skimage.{name}"] = public(module, f"skimage.{name}", _HINTS)
    colour = found["skimage.color"].__dict__
    for name, value in vars(skimage.color).items():
        if isinstance(value, np.ndarray):
            colour[name] = value.copy()  # the matrices of the conversions, which must stay as they are
    files = {"imread": _imread, "imsave": _imsave, "imshow": _imshow, "show": _show}
    for kind in ("opening", "closing", "erosion", "dilation"):  # of old, and still what most programs write
        old = getattr(skimage.morphology, f"binary_{kind}", None)
        found["skimage.morphology"].__dict__[f"binary_{kind}"] = old or getattr(skimage.morphology, kind)
    found["skimage.io"] = Facade("skimage.io", files, _IO_HINTS)
    names = {name: getattr(skimage.util, name) for name in dir(skimage.util) if name.startswith("img_as_")}
    nested(found, Facade("skimage", {**names, "__version__": vars(skimage)["__version__"]}, _HINTS), "skimage")
    return found


def _tighten() -> None:
    """Prevent a region from offering NumPy attributes with double underscores."""
    from skimage.measure import _regionprops

    find = _regionprops.RegionProperties.__getattr__

    def find_named(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return find(self, name)

    _regionprops.RegionProperties.__getattr__ = find_named  # type: ignore[method-assign]


def seed(_value: int, _used: bool) -> None:
    """scikit-image draws from NumPy's streams; nothing to start."""


def warm() -> None:
    """Load every lazy name, and use once what loads more when it runs."""
    if skimage is None:
        return
    for name in _PACKAGES.split():
        module = importlib.import_module(f"skimage.{name}")
        for attribute in module.__all__ if hasattr(module, "__all__") else dir(module):
            getattr(module, attribute, None)
    rng = np.random.default_rng(0)
    grey = rng.random((48, 48))
    colour = rng.random((48, 48, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for use in _uses(grey, colour):
            with contextlib.suppress(TypeError, ValueError, ImportError):  # another version, or an optional package
                use()


def _uses(grey: np.ndarray, colour: np.ndarray) -> list[Any]:
    """Calls that load tables, compiled parts or other packages the first time they run."""
    from skimage import (
        color,
        exposure,
        feature,
        filters,
        graph,
        measure,
        metrics,
        morphology,
        registration,
        restoration,
        segmentation,
        transform,
        util,
    )

    labels = measure.label(grey > 0.5)
    segments = np.arange(48)[:, None] // 12 + np.zeros(48, int)
    volume = np.stack([grey] * 8)

    def properties() -> None:
        for region in measure.regionprops(labels, intensity_image=grey)[:2]:
            for name in region:
                getattr(region, name, None)

    return [
        properties,
        lambda: segmentation.slic(colour, n_segments=4),
        lambda: color.rgb2lab(colour),
        lambda: color.label2rgb(labels, colour),
        lambda: exposure.equalize_adapthist(grey),
        lambda: feature.canny(grey),
        lambda: feature.hog(grey),
        lambda: feature.ORB(n_keypoints=5).detect_and_extract(grey),
        lambda: feature.SIFT().detect_and_extract(np.kron(grey, np.ones((2, 2)))),
        lambda: feature.blob_log(grey, max_sigma=2),
        lambda: feature.peak_local_max(grey),
        lambda: feature.match_template(grey, grey[:8, :8]),
        lambda: feature.local_binary_pattern((grey * 255).astype(np.uint8), 8, 1),
        lambda: filters.gaussian(grey),
        lambda: filters.threshold_local(grey, 5),
        lambda: filters.rank.median((grey * 255).astype(np.uint8), morphology.disk(2)),
        lambda: filters.frangi(grey),
        lambda: graph.rag_mean_color(colour, segments),
        lambda: graph.route_through_array(grey, (0, 0), (5, 5)),
        lambda: measure.find_contours(grey, 0.5),
        lambda: measure.marching_cubes(volume, 0.5),
        lambda: measure.ransac(np.argwhere(grey > 0.9), measure.LineModelND, 2, 1, max_trials=3),
        lambda: metrics.structural_similarity(grey, grey, data_range=1),
        lambda: morphology.skeletonize(grey > 0.5),
        lambda: morphology.thin(grey > 0.5),
        lambda: morphology.medial_axis(grey > 0.5),
        lambda: morphology.convex_hull_image(grey > 0.9),
        lambda: morphology.reconstruction(grey, grey),
        lambda: registration.phase_cross_correlation(grey, grey),
        lambda: restoration.denoise_nl_means(grey),
        lambda: restoration.denoise_tv_chambolle(grey),
        lambda: restoration.inpaint_biharmonic(grey, grey > 0.99),
        lambda: segmentation.watershed(grey, labels),
        lambda: segmentation.felzenszwalb(colour),
        lambda: segmentation.random_walker(grey, np.where(grey > 0.9, 1, np.where(grey < 0.1, 2, 0)), mode="cg_j"),
        lambda: transform.warp(grey, transform.SimilarityTransform(scale=1.1)),
        lambda: transform.resize(grey, (20, 20)),
        lambda: transform.iradon(transform.radon(grey, [0.0, 45.0]), [0.0, 45.0]),
        lambda: transform.probabilistic_hough_line(grey > 0.9),
        lambda: util.random_noise(grey, rng=0),
        lambda: util.map_array(labels, np.arange(3), np.arange(3)),
    ]
