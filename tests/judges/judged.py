"""Tasks and steps to be judged, and a judge of a server."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from fake_judge_server import FakeJudgeServer
from PIL import Image

from codev_env.judges import VLMJudge
from codev_env.types import Code, Execution, Region, Step, Task

IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8))
TASK = Task("t7", (IMAGE,), "What colour is the mug?", "red", ("blue", "red"), targets=((10, 10, 40, 40),))
OPEN_TASK = Task("t8", (IMAGE,), "What is 3 + 4?", "7")


def crop(i: int = 0, width: int = 60, height: int = 40) -> Image.Image:
    return IMAGE.crop((i, 5, i + width, 5 + height))


def step_of(*images: Image.Image, regions: tuple[Region, ...] = (), stdout: str = "", **changes: Any) -> Step:
    return Step("action", Code("code"), Execution(stdout=stdout, images=images, **changes), regions)


def judge_of(server: FakeJudgeServer, **options: Any) -> VLMJudge:
    return VLMJudge("toy", server.url, "a-secret-key", **options)


def decoded(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
