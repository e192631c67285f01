"""OpenCV as programs see it, if installed: functions on arrays, and access to the episode's files."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from codev_env.sandbox.language import guards, imaging, state
from codev_env.sandbox.language.facade import Facade, pick
from codev_env.sandbox.language.refusals import RefusedCall

try:
    import cv2
except ImportError:
    cv2 = None  # type: ignore[assignment]

_GREY = np.array([9797, 19234, 3737])
"""By what red, green and blue are multiplied where a PNG is read as grey, in 1 / 32768."""
_AS_RGB = 256
"""The flag `cv2.IMREAD_COLOR_RGB`, which older versions do not have."""
_CLASSES = (
    "error KeyPoint DMatch Subdiv2D SimpleBlobDetector_Params SimpleBlobDetector_create SimpleBlobDetector ORB "
    "ORB_create SIFT_create AKAZE_create BRISK_create MSER_create BFMatcher BFMatcher_create "
    "FastFeatureDetector_create QRCodeDetector"
)

_BLOB_OPTIONS = (
    "blobColor collectContours filterByArea filterByCircularity filterByColor filterByConvexity filterByInertia "
    "maxArea maxCircularity maxConvexity maxInertiaRatio maxThreshold minArea minCircularity minConvexity "
    "minDistBetweenBlobs minInertiaRatio minRepeatability minThreshold thresholdStep"
)
"""Attributes of `SimpleBlobDetector_Params`, which hold numbers and switches: programs may set them."""


def _imread(filename: str, flags: int = 1) -> np.ndarray | None:
    """`cv2.imread` of the episode's files, with its flags; `None` for a missing file."""
    run = state.current()
    try:
        image = run.open(filename)
    except FileNotFoundError:
        return None
    if flags < 0 and image.mode == "RGBA":
        return cv2.cvtColor(np.array(image), cv2.COLOR_RGBA2BGRA)
    pixels = np.array(image if image.mode == "L" and flags < 0 else image.convert("RGB"))
    if pixels.ndim == 3 and not flags & _AS_RGB:
        grey = not flags & cv2.IMREAD_COLOR and (image.mode == "L" or not flags & cv2.IMREAD_ANYCOLOR)
        pixels = (pixels @ _GREY >> 15).astype(np.uint8) if grey else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    shrink = 1 if flags < 0 else 1 << (flags >> 4 & 7).bit_length()
    if shrink == 1:
        return pixels
    size = max(1, image.width // shrink), max(1, image.height // shrink)
    return cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR_EXACT)


def _imwrite(filename: str, img: Any, params: Any = None) -> bool:
    """`cv2.imwrite` into the episode's files."""
    array = np.clip(imaging.in_8_bits(np.asarray(img)), 0, 255).astype(np.uint8)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim == 3:
        array = cv2.cvtColor(array, cv2.COLOR_BGR2RGB if array.shape[2] == 3 else cv2.COLOR_BGRA2RGBA)
    state.current().save(Image.fromarray(array), filename)
    return True


def _no_window(*_args: Any, **_kwargs: Any) -> int:
    """Windows do not exist here; waiting for a key returns at once."""
    return -1


def _imshow(_window: str, img: Any) -> None:
    raise RefusedCall("cv2.imshow() has no window here: use show(image) with an RGB image.")


def modules() -> dict[str, Facade]:
    """The façade by import name; empty where OpenCV is not installed."""
    if cv2 is None:
        return {}
    builtin = type(cv2.resize)
    names: dict[str, Any] = {}
    for name, value in vars(cv2).items():
        if (isinstance(value, int) and name[:1].isupper()) or (isinstance(value, builtin) and name[:1] != "_"):
            names[name] = value
    names.update(pick(cv2, _CLASSES))
    for name in ("waitKey", "destroyAllWindows", "destroyWindow", "namedWindow"):
        names[name] = _no_window
    names.update(imread=_imread, imwrite=_imwrite, imshow=_imshow, __version__=cv2.__version__)
    hints = {"VideoCapture": "there are only pictures here", "dnn": "there are no models here"}
    kinds = tuple(value for value in vars(cv2).values() if isinstance(value, type))  # some have no common base
    guards.hide(kinds, "save", "read", "write")
    guards.allow_setting(names["SimpleBlobDetector_Params"], *_BLOB_OPTIONS.split())
    return {"cv2": Facade("cv2", names, hints)}


def warm() -> None:
    """One thread, no GPU, and the lazily loaded parts used once."""
    if cv2 is None:
        return
    cv2.setNumThreads(1)
    cv2.ocl.setUseOpenCL(False)
    image = np.zeros((32, 32, 3), np.uint8)
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    cv2.Canny(cv2.GaussianBlur(grey, (3, 3), 0), 50, 150)
    cv2.resize(image, (64, 64), interpolation=cv2.INTER_CUBIC)
    cv2.findContours(grey, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    cv2.createCLAHE().apply(grey)


def seed(value: int, _used: bool) -> None:
    """Start OpenCV's random stream of a run."""
    if cv2 is not None:
        cv2.setRNGSeed(value % (1 << 31))
