from __future__ import annotations

from collections.abc import Iterator

import pytest
from photos import photo
from PIL import Image

from codev_env.sandbox import Limits, Sandbox, Session


@pytest.fixture
def image() -> Image.Image:
    return photo()


@pytest.fixture(scope="session")
def box() -> Iterator[Sandbox]:
    with Sandbox(Limits(wall_s=20.0)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def quick_box() -> Iterator[Sandbox]:
    """For programs that are meant to be killed."""
    with Sandbox(Limits(wall_s=0.5)) as sandbox:
        yield sandbox


@pytest.fixture
def session(box: Sandbox, image: Image.Image) -> Iterator[Session]:
    with box.session({"input.png": image}) as opened:
        yield opened
