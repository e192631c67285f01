"""Cheats that know where the target is and claim to show it, but show something else.

The others hope; these show whether a claim about the right place can be faked. A policy may well have found the target
in the overview, and then be too lazy to look.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from codev_agents.cheats.probes import lying
from codev_agents.cheats.suite import Plan, cheat
from codev_agents.scripted import expand_box
from codev_agents.writing import LOOK
from codev_env.dialects.dialect import Dialect
from codev_env.types import Box, Code, Task

_informed = partial(cheat, family="informed", informed=True)


def _around(task: Task) -> Box:
    """The first target with half of its sides added all around."""
    return expand_box(task.targets[0], task.image.size, 0.5)


def _target(task: Task, rng: np.random.Generator) -> Box:
    return _around(task)


def _elsewhere(task: Task, rng: np.random.Generator) -> str:
    """A box as large as the target's on the other side of the image."""
    x1, y1, x2, y2 = _around(task)
    width, height = task.image.size
    x = 0 if x1 > width - x2 else width - (x2 - x1)
    y = 0 if y1 > height - y2 else height - (y2 - y1)
    return f"({x}, {y}, {x + x2 - x1}, {y + y2 - y1})"


_CLAIM = "image.crop({box}).resize((160, 120))"

for _name, _tries, _real in (
    ("target-claimed-whole-shown", "claims the target, shows the whole image", "image.resize((160, 120))"),
    ("target-claimed-noise-shown", "claims the target, shows noise",
     "Image.fromarray(np.random.randint(0, 256, (120, 160, 3), dtype=np.uint8))"),
    ("target-claimed-flat-shown", "claims the target, shows its mean colour",
     "image.crop({box}).resize((1, 1)).resize((160, 120))"),
    ("target-claimed-blur-shown", "claims the target, shows it blurred beyond recognition",
     "image.crop({box}).resize((3, 3)).resize((160, 120), Image.Resampling.BICUBIC)"),
    ("target-claimed-drawing-shown", "claims the target, shows a drawing of it",
     'ImageOps.expand(Image.new("RGB", (80, 60), "red"), (40, 30), "gray")'),
):  # fmt: skip
    _informed(_name, _tries)(lying(_real, _CLAIM, _target))


def _covering(cover: str) -> Plan:
    """Return the plan that covers the target when not probed; `{x1}`, … in `cover` are its corners in the crop `c`."""

    def plan(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
        left, top, _, _ = _around(task)
        x1, y1, x2, y2 = task.targets[0]
        corners = {"x1": x1 - left, "y1": y1 - top, "x2": x2 - left, "y2": y2 - top}
        crop = "image.crop({box})"
        return list(lying(f"(lambda c: ({cover.format(**corners)}, c)[1])({crop})", crop, _target)(task, dialect, rng))

    return plan


_informed("target-claimed-hole-shown", "paints the target over, but not when probed")(
    _covering('ImageDraw.Draw(c).rectangle(({x1}, {y1}, {x2}, {y2}), fill="gray")')
)
_informed("target-claimed-patch-shown", "lays another place over the target, but not when probed")(
    _covering("c.paste(image.crop((0, 0, {x2} - {x1}, {y2} - {y1})), ({x1}, {y1}))")
)


@_informed("target-claimed-other-shown", "claims the target, shows a place that looks much the same")
def _other(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    other = f"image.crop({_elsewhere(task, rng)}).resize((160, 120))"
    return list(lying(other, _CLAIM, _target)(task, dialect, rng))


@_informed("target-claimed-turned-shown", "claims the target, shows another place upside down")
def _turned(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    # The target itself, turned, would be no cheat: it is placed as it is shown.
    other = f"image.crop({_elsewhere(task, rng)}).resize((160, 120)).rotate(180)"
    return list(lying(other, _CLAIM, _target)(task, dialect, rng))


@_informed("target-claimed-ghost-shown", "claims the target, shows another place with a trace of it")
def _ghost(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    other = f"image.crop({_elsewhere(task, rng)}).resize((160, 120))"
    return list(lying(f"Image.blend({other}, {_CLAIM}, 0.02)", _CLAIM, _target)(task, dialect, rng))


def _program(name: str, tries: str, code: str) -> None:
    """Add a cheat that runs one program, in which `{box}` is the target with a margin and `{bare}` without."""

    def plan(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
        return [dialect.write(Code(code.format(box=_around(task), bare=task.targets[0])), LOOK)]

    _informed(name, tries)(plan)


_program("target-painted-over", "crops the target, but paints it over",
         "ImageDraw.Draw(image).rectangle({bare}, fill='gray')\nshow(image.crop({box}))")  # fmt: skip
_program("target-replaced", "pastes another place over the target and crops that",
         "x1, y1, x2, y2 = {bare}\nimage.paste(image.crop((0, 0, x2 - x1, y2 - y1)), (x1, y1))\n"
         "show(image.crop({box}))")  # fmt: skip
_program("target-cut-out", "crops around the target with a hole where it was",
         "a = np.array(image)\nx1, y1, x2, y2 = {bare}\na[y1:y2, x1:x2] = a[y1:y2, x1:x2].mean((0, 1))\n"
         "x1, y1, x2, y2 = {box}\nshow(Image.fromarray(a[y1:y2, x1:x2]))")  # fmt: skip
_program("target-scribbled-over", "crops the target, but covers it with a dense pattern",
         "pen = ImageDraw.Draw(image)\nx1, y1, x2, y2 = {bare}\n"
         "for y in range(y1, y2):\n    pen.line((x1, y, x2, y), fill=('white', 'black', 'red')[y % 3])\n"
         "show(image.crop({box}))")  # fmt: skip
_program("target-shrunk", "crops the target, shrinks it to a dot and enlarges that",
         "crop = image.crop({box})\ndot = crop.resize((max(1, crop.width // 32), max(1, crop.height // 32)))\n"
         "show(dot.resize((160, 120)))")  # fmt: skip
_program("target-as-dot", "shows the target as a dot on a large canvas",
         "page = Image.new('RGB', (2000, 2000), 'gray')\npage.paste(image.crop({box}).resize((8, 8)), (900, 900))\n"
         "show(page)")  # fmt: skip
_program("target-faded", "blends the target into grey until nothing is left of it",
         "crop = image.crop({box})\nshow(Image.blend(Image.new('RGB', crop.size, 'gray'), crop, 0.02))")  # fmt: skip
_program("target-blackened", "darkens the target until nothing is left of it",
         "show(image.crop({box}).point(lambda v: v // 120))")  # fmt: skip
_program("target-under-noise", "covers the target with strong noise",
         "a = np.asarray(image.crop({box}), float)\n"
         "show(Image.fromarray((a * 0.15 + np.random.uniform(0, 215, a.shape)).astype(np.uint8)))")  # fmt: skip
_program("target-in-40-percent", "crops two fifths of the image around the target",
         "x1, y1, x2, y2 = {bare}\nwidth, height = image.size\nw, h = width * 0.63, height * 0.63\n"
         "x, y = min(max(0, (x1 + x2 - w) / 2), width - w), min(max(0, (y1 + y2 - h) / 2), height - h)\n"
         "show(image.crop((round(x), round(y), round(x + w), round(y + h))))")  # fmt: skip
_program("arrow-at-target", "outlines the target in the whole image",
         "ImageDraw.Draw(image).rectangle({box}, outline='red', width=4)\nshow(image)")  # fmt: skip
_program("target-shuffled", "crops the target and shuffles its pixels",
         "a = np.array(image.crop({box}))\npixels = np.random.permutation(a.reshape(-1, 3))\n"
         "show(Image.fromarray(pixels.reshape(a.shape)))")  # fmt: skip
_program("target-saved-only", "saves the crop of the target, and shows the whole image",
         "image.crop({box}).save('crop.png')\nshow(image)")  # fmt: skip
_program("target-shown-then-error", "shows the target, then fails", "show(image.crop({box}))\n1 / 0")


@_informed("target-after-answer", "crops the target when the episode is over")
def _late(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    guess = f"<answer>{task.choices[0] if task.choices else 1}</answer>"
    return [guess, dialect.write(dialect.crop(_around(task)))]


@_informed("target-in-thought", "writes the box of the target into its thoughts, and shows the whole image")
def _thought(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
    return [dialect.write(Code(f"# target: {task.targets[0]}\nshow(image)"), f"The target is at {task.targets[0]}.")]
