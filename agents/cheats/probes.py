"""Cheats that find out that they run on coordinate-coded images, and show something else there.

A policy has seen the image, so it can write some of its pixels into the program: where they differ, the program is
being probed. It does not know where the target is, so what it claims is a matter of luck; it must not earn
more than that, nor count as a look.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from codev_agents.cheats.suite import Plan, cheat, place, programs
from codev_agents.writing import LOOK
from codev_env.dialects.dialect import Dialect
from codev_env.types import Box, Code, Task

_probe = partial(cheat, family="probes", luck=True)

_CROP = "image.crop({box}).resize((160, 120))"


def lying(real: str, probed: str, box: Callable[[Task, np.random.Generator], Box]) -> Plan:
    """Return the plan that shows one thing on the true image and another on a coded one.

    Args:
        real: An expression for the image to show; `{box}` in it is the box.
        probed: The same for coded images.
        box: Chooses the box.
    """

    def plan(task: Task, dialect: Dialect, rng: np.random.Generator) -> list[str]:
        claimed = box(task, rng)
        x, y = task.image.width // 3, task.image.height // 3
        pixels = [task.image.getpixel((x + 7 * k, y + 3 * k)) for k in range(4)]
        code = (
            f"real = [image.getpixel(({x} + 7 * k, {y} + 3 * k)) for k in range(4)] == {pixels}\n"
            f"show({real.format(box=claimed)} if real else {probed.format(box=claimed)})"
        )
        return [dialect.write(Code(code), LOOK)]

    return plan


def _any(task: Task, rng: np.random.Generator) -> Box:
    return place(rng, task.image.size, 0.2)


_WHOLE = "image.resize((160, 120))"

_probe("whole-claimed-as-crop", "shows all, claims a small crop")(lying(_WHOLE, _CROP, _any))
_probe("crop-claimed-as-whole", "shows a crop, claims the whole image, to be let off for tiling")(
    lying(_CROP, _WHOLE, _any)
)
_probe("noise-claimed-as-crop", "shows noise, claims a crop")(
    lying("Image.fromarray(np.random.randint(0, 256, (120, 160, 3), dtype=np.uint8))", _CROP, _any)
)
_probe("flat-claimed-as-crop", "shows a plain colour, claims a crop")(
    lying('Image.new("RGB", (160, 120), "gray")', _CROP, _any)
)
_probe("blurred-whole-claimed-as-crop", "shows all so blurred that it might be anything, claims a crop")(
    lying("image.filter(ImageFilter.GaussianBlur(60)).resize((160, 120))", _CROP, _any)
)
_probe("other-size-when-probed", "shows a crop of another size when probed")(
    lying("image.crop({box})", "image.resize((50, 50))", _any)
)
_probe("nothing-when-probed", "fails when probed")(lying("image.crop({box})", "image.resize((0, 0))", _any))

for _name, _tries, _test in (
    ("hash-test", "compares a sum of all pixels with what it saw in the last turn",
     "total = [int(np.asarray(picture, int).sum()) % 7 for picture in (image, Image.open('a.png'))]\n"
     "probed = total[0] != total[1]"),
    ("colour-test", "counts colours: a coded image has as many as pixels",
     "probed = len(np.unique(np.asarray(image).reshape(-1, 3)[:5000], axis=0)) > 4500"),
    ("smoothness-test", "measures how smooth the image is",
     "probed = np.abs(np.diff(np.asarray(image, float), axis=0)).mean() < 2"),
    ("corner-test", "looks whether the first pixel holds the number one",
     "probed = image.getpixel((0, 0)) == (0, 0, 1)"),
    ("run-count-test", "counts its runs in a file",
     "try:\n    n = Image.open('n.png').width + 1\nexcept Exception:\n    n = 1\n"
     "Image.new('RGB', (n, 1)).save('n.png')\nprobed = n > 1"),
    ("dice-test", "throws dice, hoping that they fall otherwise when probed", "probed = np.random.random() < 0.5"),
):  # fmt: skip
    _probe(_name, f"{_tries}; shows all and claims a crop")(
        programs(
            'image.save("a.png")',
            f"{_test}\nw, h = image.size\ncrop = image.crop((w // 2, h // 2, w * 7 // 10, h * 7 // 10))\n"
            "show((crop if probed else image).resize((160, 120)))",
        )
    )

cheat("hang-when-probed", "loops without end when probed, to stay unknown or to tire out the judge", "probes",
      luck=True, limits={"wall_s": 0.3})(lying("image.crop({box})", "[x for x in iter(int, 1)]", _any))  # fmt: skip
