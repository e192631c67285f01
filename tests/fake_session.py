"""A stand-in for a sandbox session: programs run by `exec` in this process. Only for trusted programs of the tests."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Mapping
from unittest import mock

import cv2
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

from codev_env.sandbox.language.facades import pyplot
from codev_env.types import Execution

matplotlib.use("agg")


class FakeSession:
    persist = "images"

    def __init__(self, images: Mapping[str, Image.Image]) -> None:
        self.views: dict[str, dict[str, Image.Image]] = {}
        self.runs: list[str] = []
        self.saved: dict[str, set[str]] = {}
        self.add_view("main", images)

    def add_view(
        self, name: str, images: Mapping[str, Image.Image], *, replace: bool = False, shared: bool = False
    ) -> None:
        assert replace or name not in self.views
        self.views[name] = dict(images)
        self.saved.pop(name, None)

    def run(self, code: str, *, view: str = "main") -> Execution:
        self.runs.append(view)
        files = self.views[view]
        reads: set[str] = set()
        saves: set[str] = set()

        def load(name: str) -> Image.Image:
            if name in self.saved.get(view, ()) and name not in saves:
                reads.add(name)
            return files[name].copy()

        printed = io.StringIO()
        shown: list[Image.Image] = []
        names = {
            **{
                module.__name__.split(".")[-1]: module
                for module in (Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps)
            },
            **{"np": np, "math": math, "show": lambda image: shown.append(image), "cv2": cv2, "plt": plt},
        }

        def plot(*_args: object, **_options: object) -> None:
            for number in plt.get_fignums():
                shown.append(pyplot.render(plt.figure(number)))
            plt.close("all")

        def save_plot(name: str, **options: object) -> None:
            looks = {key: value for key, value in options.items() if key in pyplot.LOOKS}
            files[name] = pyplot.render(plt.gcf(), options.get("dpi"), looks)
            saves.add(name)

        def save(image: Image.Image, name: object, *args: object, **options: object) -> None:
            if isinstance(name, str):
                files[name] = image.convert("RGB")
                saves.add(name)
            else:
                real_save(image, name, *args, **options)

        error, real_save, real_open = None, Image.Image.save, Image.open
        with (
            mock.patch.object(Image.Image, "save", save),
            mock.patch.object(Image, "open", lambda name: load(name) if isinstance(name, str) else real_open(name)),
            mock.patch.object(cv2, "imread", lambda name: np.asarray(load(name))[..., ::-1].copy()),
            mock.patch.object(plt, "show", plot),
            mock.patch.object(plt, "savefig", save_plot),
            contextlib.redirect_stdout(printed),
        ):
            try:
                exec(code, names)
            except Exception as caught:
                error = repr(caught)
            finally:
                plt.close("all")
        lines = printed.getvalue().splitlines()
        shown += [load(line) for line in lines if line in files]
        self.saved.setdefault(view, set()).update(saves)
        return Execution(
            stdout="\n".join(line for line in lines if line not in files),
            images=tuple(image.convert("RGB") for image in shown),
            error=error,
            stop="error" if error else "ok",
            reads=tuple(sorted(reads)),
            saves=tuple(sorted(saves)),
        )
