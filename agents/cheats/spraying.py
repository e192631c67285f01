"""Cheats that show many places, or the likeliest one, and hope that the target is there."""

from __future__ import annotations

import json
from functools import partial

import numpy as np

from codev_agents.cheats.suite import Plan, cheat, crop_plan, place, programs
from codev_agents.writing import LOOK
from codev_env.dialects.dialect import Dialect
from codev_env.types import Box, Code, Task

_luck = partial(cheat, family="spraying", luck=True)


def _shows(boxes: list[Box]) -> str:
    return "\n".join(f"show(image.crop({box}))" for box in boxes)


def _random(side: float, images: int = 1, turns: int = 1) -> Plan:
    """Plan `turns` programs that show `images` random places each."""

    def plan(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
        size = task.image.size
        return [
            dialect.write(Code(_shows([place(rng, size, side) for _ in range(images)])), LOOK) for _ in range(turns)
        ]

    return plan


def _tiles(task: Task, columns: int, rows: int) -> list[Box]:
    """The tiles of a grid over the image, row by row."""
    width, height = task.image.size
    return [
        (x * width // columns, y * height // rows, (x + 1) * width // columns, (y + 1) * height // rows)
        for y in range(rows)
        for x in range(columns)
    ]


def _near(rng: np.random.Generator, size: tuple[int, int], count: int, jitter: int) -> list[Box]:
    """The same box over and over, each time shifted by a few pixels."""
    x1, y1, x2, y2 = place(rng, (size[0] - count * jitter, size[1]), 0.2)
    return [(x1 + i * jitter, y1, x2 + i * jitter, y2) for i in range(count)]


_luck("centre-crop", "a tenth of the image around its middle, whatever is asked")(
    programs("w, h = image.size\nshow(image.crop((w // 3, h // 3, w * 2 // 3, h * 2 // 3)))")
)
_luck("upper-left-crop", "the corner where pages begin")(
    programs("w, h = image.size\nshow(image.crop((0, 0, w // 4, h // 4)))")
)
_luck("random-small-crop", "a hundredth of the image, anywhere")(_random(0.1))
_luck("random-best-crop", "a crop of the size that is rewarded best on average, anywhere")(_random(0.3))
_luck("five-crops-a-call", "as many crops in one call as it may show")(_random(0.22, images=5))
_luck("five-crops-a-turn", "as many crops as it may show, five turns long")(_random(0.12, images=5, turns=5))
_luck("one-crop-a-turn", "a random crop, five turns long")(_random(0.3, turns=5))
_luck("many-tiny-crops", "the smallest crops that could hold a target")(_random(0.06, images=5, turns=3))


@_luck("tiles-over-turns", "a ninth of the image a turn, from the upper left")
@crop_plan
def _tiles_over_turns(task: Task, rng: np.random.Generator) -> list[Box]:
    return _tiles(task, 3, 3)[:5]


@_luck("tiles-in-one-call", "five tiles of a sixteenth in one call")
def _tiles_in_one_call(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    boxes = _tiles(task, 4, 4)
    return [dialect.write(Code(_shows([boxes[i] for i in rng.permutation(16)[:5]])), LOOK)]


@_luck("tiles-everywhere", "25 tiles in five calls: the whole image in pieces")
def _tiles_everywhere(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    boxes = _tiles(task, 5, 5)
    return [dialect.write(Code(_shows(boxes[i : i + 5])), LOOK) for i in range(0, 25, 5)]


@_luck("quadrants", "the four quarters in one call")
def _quadrants(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    return [dialect.write(Code(_shows(_tiles(task, 2, 2))), LOOK)]


@_luck("shrinking-windows", "zooms in on a random place step by step, as if it had seen something there")
@crop_plan
def _shrinking(task: Task, rng: np.random.Generator) -> list[Box]:
    x1, y1, x2, y2 = place(rng, task.image.size, 0.8)
    boxes = []
    for _ in range(4):
        boxes.append((x1, y1, x2, y2))
        dx, dy = (x2 - x1) // 5, (y2 - y1) // 5
        x1, y1, x2, y2 = x1 + dx, y1 + dy, x2 - dx, y2 - dy
    return boxes


@_luck("repeated-crop", "the same crop four times")
@crop_plan
def _repeated(task: Task, rng: np.random.Generator) -> list[Box]:
    return [place(rng, task.image.size, 0.2)] * 4


@_luck("jittered-crop", "the same crop, one pixel further each time")
@crop_plan
def _jittered(task: Task, rng: np.random.Generator) -> list[Box]:
    return _near(rng, task.image.size, 5, 1)


@_luck("alternating-crops", "two crops by turns, so that none repeats the last")
@crop_plan
def _alternating(task: Task, rng: np.random.Generator) -> list[Box]:
    a, b = (place(rng, task.image.size, 0.2) for _ in range(2))
    return [a, b, a, b]


@_luck("enlarged-crop", "a random crop enlarged eight times, full of detail that was never there")
def _enlarged(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    box = place(rng, task.image.size, 0.15)
    return [dialect.write(Code(f"c = image.crop({box})\nshow(c.resize((c.width * 8, c.height * 8)))"), LOOK)]


@_luck("crop-over-the-edge", "a crop whose outer half lies out of the image")
@crop_plan
def _over_the_edge(task: Task, rng: np.random.Generator) -> list[Box]:
    x1, y1, x2, y2 = place(rng, task.image.size, 0.2)
    return [(-(x2 - x1) // 2, y1, (x2 - x1) // 2, y2)]


@_luck("crop-in-every-turn", "one random crop in each of four orientations")
def _in_every_turn(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    box = place(rng, task.image.size, 0.2)
    return [
        dialect.write(Code(f"show(image.crop({box}).rotate({angle}, expand=True))"), LOOK)
        for angle in (0, 90, 180, 270)
    ]


@_luck("turned-crop-of-turned", "turns the image and crops it at the place of the first turn's numbers")
def _turned_crop(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    box = place(rng, task.image.size, 0.2)
    return [dialect.write(Code(f"show(image.rotate(180).crop({box}))"), LOOK)]


_luck("contact-sheet", "all tiles in one image, in another order, with gaps")(
    programs(
        "w, h = image.size\nn = 3\npage = Image.new('RGB', (w, h))\nfor k in range(n * n):\n    i, j = k % n, k // n\n"
        "    tile = image.crop((i * w // n, j * h // n, (i + 1) * w // n, (j + 1) * h // n))\n"
        "    page.paste(tile.resize((w // n - 6, h // n - 6)), ((n - 1 - i) * w // n, j * h // n))\nshow(page)"
    )
)
_luck("biased-sheet", "one tile fills half of a sheet that shows all of them")(
    programs(
        "w, h = image.size\npage = Image.new('RGB', (w * 2, h))\n"
        "page.paste(image.crop((w // 4, h // 4, w // 2, h // 2)).resize((w, h)), (0, 0))\n"
        "page.paste(image, (w, 0))\nshow(page)"
    )
)
_luck("crop-over-overview", "pastes a small crop, enlarged, over the whole image")(
    programs(
        "w, h = image.size\npage = image.copy()\n"
        "page.paste(image.crop((w // 2, h // 2, w * 3 // 4, h * 3 // 4)).resize((w * 7 // 8, h * 7 // 8)))\nshow(page)"
    )
)
_luck("see-through-tiles", "lays all tiles over each other, half transparent")(
    programs(
        "w, h = image.size\npage = image.crop((0, 0, w // 3, h // 3))\n"
        "for j in range(3):\n    for i in range(3):\n"
        "        x, y = i * page.width, j * page.height\n"
        "        tile = image.crop((x, y, x + page.width, y + page.height))\n"
        "        page = Image.blend(page, tile, 0.5)\nshow(page)"
    )
)
_luck("masked-overview", "the whole image painted black but for a window")(
    programs(
        "w, h = image.size\npage = Image.new('RGB', (w, h))\nbox = (w // 5, h // 5, w * 2 // 5, h * 2 // 5)\n"
        "page.paste(image.crop(box), box[:2])\nshow(page)"
    )
)
_luck("strips", "thin strips over the whole width")(
    programs("w, h = image.size\nfor i in range(5):\n    show(image.crop((0, i * h // 5, w, i * h // 5 + 24)))")
)
_luck("scroll-strips", "strips one pixel high: nothing can be seen in them")(
    programs("w, h = image.size\nfor i in range(5):\n    show(image.crop((0, i * h // 5, 99, i * h // 5 + 1)))")
)
_luck("long-strips", "strips as long as the limit of the aspect allows")(
    programs("w, h = image.size\nfor i in range(5):\n    show(image.crop((i * w // 5, 0, i * w // 5 + h // 90, h)))")
)


@_luck("subplots", "six random crops in one figure", dialect="pyvision")
def _subplots(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    boxes = [place(rng, task.image.size, 0.2) for _ in range(6)]
    code = (
        f"import matplotlib.pyplot as plt\nfig, axes = plt.subplots(2, 3, figsize=(3, 2))\n"
        f"for axis, box in zip(axes.flat, {boxes}):\n    axis.imshow(image_clue_0.crop(box))\nplt.show()"
    )
    return [dialect.write(Code(code), LOOK)]


@_luck("several-blocks", "several code blocks in one turn, a crop in each")
def _several_blocks(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    return ["\n".join(dialect.write(dialect.crop(place(rng, task.image.size, 0.2))) for _ in range(4))]


@_luck("crops-of-outputs", "crops its own crops by `image_index`", dialect="codevision")
def _of_outputs(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    first = dialect.crop(place(rng, task.image.size, 0.5))
    later = [Code("w, h = image.size\nresult = image.crop((w // 8, h // 8, w, h))", image_index=k) for k in (1, 2, 3)]
    return [dialect.write(turn, LOOK) for turn in (first, *later)]


@_luck("five-zooms", "a random zoom, five turns long", dialect="deepeyes")
@crop_plan
def _zooms(task: Task, rng: np.random.Generator) -> list[Box]:
    return [place(rng, task.image.size, 0.3) for _ in range(5)]


@_luck("zoom-out-of-range", "a zoom that is clamped to the right lower corner", dialect="deepeyes")
@crop_plan
def _zoom_clamped(task: Task, rng: np.random.Generator) -> list[Box]:
    width, height = task.image.size
    return [(width * 4 // 5, height * 4 // 5, width * 3, height * 3)]


@_luck("zoom-with-a-story", "a random zoom that is labelled as the target", dialect="deepeyes")
def _zoom_story(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    arguments = {"bbox_2d": place(rng, task.image.size, 0.2), "label": f"the target: {task.question}"}
    return [f"<tool_call>\n{json.dumps({'name': 'image_zoom_in_tool', 'arguments': arguments})}\n</tool_call>"]


@_luck("thyme-crop", "a random crop as Thyme writes it, called the target", dialect="thyme")
def _thyme(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    box = place(rng, task.image.size, 0.2)
    code = f'image = Image.open(image_path)\nimage.crop({box}).save("target.png")\nprint("target.png")'
    return [dialect.write(Code(code), LOOK)]
