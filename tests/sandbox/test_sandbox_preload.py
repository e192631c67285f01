"""The larger libraries are loaded ahead of the first program that names them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator

import pytest
from PIL import Image
from test_sandbox_failures import worker_of
from zygotes import own_zygotes

from codev_env.sandbox import Limits, Sandbox
from codev_env.sandbox.host import process
from codev_env.sandbox.host import sandbox as sandbox_box

_real: Callable[[], None] = process.preload


@pytest.fixture
def preload() -> Iterator[None]:
    for library in ("cv2", "scipy"):
        pytest.importorskip(library)
    with own_zygotes() as patch:
        patch.setattr(process, "preload", _real)
        patch.setattr(process, "_preloading", [])
        yield
        process.shut_down()
        for thread in process._preloading:
            thread.join()


@pytest.mark.integration
def test_a_program_that_needs_a_library_loads_the_others(preload: None, image: Image.Image) -> None:
    with Sandbox(Limits(wall_s=20.0)) as box, box.session({"input.png": image}) as session:
        session.run("show(image)")
        assert not process._preloading
        session.run("import cv2")
        (thread,) = process._preloading
        session.run("import cv2")
        assert process._preloading == [thread]
        thread.join()
        zygote = process._shared["science"]
        assert session.run("import scipy.ndimage\nprint(scipy.ndimage.sum([1, 2]))").stdout.startswith("3")
        assert process.zygote("science") is zygote
        if sys.platform == "linux":
            worker = worker_of(session)
            assert os.getpriority(os.PRIO_PROCESS, worker) == os.getpriority(os.PRIO_PROCESS, 0)


def test_a_sandbox_in_long_use_loads_them(preload: None, monkeypatch: pytest.MonkeyPatch, image: Image.Image) -> None:
    monkeypatch.setattr(sandbox_box, "_PRELOAD_AFTER_S", 0.0)
    with Sandbox() as box:
        box.session({"input.png": image}).close()
    (thread,) = process._preloading
    process.shut_down()  # ends what is still loading
    thread.join()
    assert "science" not in process._shared or process._shared["science"].alive


def test_nothing_is_loaded_where_nothing_is_installed(preload: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    process.preload()
    assert not process._preloading
