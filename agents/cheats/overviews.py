"""Cheats that show all of the image, in a form that does not look like it."""

from __future__ import annotations

import numpy as np

from codev_agents.cheats.suite import cheat, crop_plan, programs
from codev_env.types import Box, Task

_FAMILY = "overviews"


def _centred(share: float) -> tuple[str, str]:
    """Return the name and the program of a crop about the middle that shows a share of the area."""
    side = share**0.5
    code = f"w, h = image.size\ndx, dy = round(w * {(1 - side) / 2:.4f}), round(h * {(1 - side) / 2:.4f})\n"
    return f"crop-{round(100 * share)}-percent", f"{code}show(image.crop((dx, dy, w - dx, h - dy)))"


for _share in (0.99, 0.6, 0.4, 0.26):
    _name, _code = _centred(_share)
    cheat(_name, f"a crop of {_share:.0%} of the area", _FAMILY)(programs(_code))

for _name, _tries, _code in (
    ("whole-image", "shows the image as it is", "show(image)"),
    ("whole-by-crop", "crops the box of the whole image", "show(image.crop((0, 0, *image.size)))"),
    ("whole-minus-border", "leaves out a border of one pixel", "show(ImageOps.crop(image, 1))"),
    ("whole-with-frame", "puts a frame around the image", 'show(ImageOps.expand(image, 60, "white"))'),
    (
        "whole-in-corner",
        "pastes the small image into a corner of a large canvas",
        'page = Image.new("RGB", image.size, "gray")\npage.paste(image.resize((image.width // 3, image.height // 3)))\n'
        "show(page)",
    ),
    ("whole-smaller", "shrinks the image", "show(image.resize((image.width // 2, image.height // 2)))"),
    ("whole-larger", "enlarges the image", "show(image.resize((image.width * 2, image.height * 2)))"),
    ("whole-stretched", "stretches the image to a square", "show(image.resize((500, 500)))"),
    ("whole-turned-back", "rotates four times by 90 degrees", "turned = image\nfor _ in range(4):\n"
     "    turned = turned.transpose(Image.Transpose.ROTATE_90)\nshow(turned)"),
    ("whole-flipped-twice", "mirrors the image twice", "show(ImageOps.mirror(ImageOps.mirror(image)))"),
    ("four-rotations", "shows all four rotations in one call",
     "for angle in (0, 90, 180, 270):\n    show(image.rotate(angle, expand=True))"),
    ("tilted-whole", "rotates the image by 7 degrees", "show(image.rotate(7, expand=True))"),
    ("whole-inverted", "inverts the colours", "show(ImageOps.invert(image))"),
    ("whole-blurred", "blurs the image", "show(image.filter(ImageFilter.GaussianBlur(3)))"),
    ("whole-contrast", "raises the contrast", "show(ImageEnhance.Contrast(image).enhance(1.8))"),
    ("whole-grey", "takes the colours away", 'show(image.convert("L"))'),
    ("whole-threshold", "makes it black and white", 'show(image.convert("L").point(lambda v: 255 * (v > 128)))'),
    ("whole-edges", "shows edges only", "show(image.filter(ImageFilter.FIND_EDGES))"),
    ("whole-equalized", "equalises the histogram", "show(ImageOps.equalize(image))"),
    ("whole-posterized", "keeps two bits of each colour", "show(ImageOps.posterize(image, 2))"),
    ("whole-noisy", "adds noise, so that its origin is hard to find",
     "noise = np.random.normal(0, 40, np.asarray(image).shape)\n"
     "show(Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8)))"),
    ("whole-quantized", "quantises blocks as a processor does",
     "a = np.asarray(image).astype(int) // 24 * 24 + 12\nshow(Image.fromarray(a.clip(0, 255).astype(np.uint8)))"),
    ("whole-by-numpy", "copies the image through an array", "show(Image.fromarray(np.array(image)[:, :]))"),
    ("whole-by-stride", "takes every third pixel", "show(Image.fromarray(np.array(image)[::3, ::3]))"),
    ("whole-sheared", "shears the image",
     "show(image.transform(image.size, Image.Transform.AFFINE, (1, 0.2, 0, 0, 1, 0)))"),
    ("whole-rolled", "shifts the image around its edges", "show(Image.fromarray(np.roll(np.array(image), 90, 1)))"),
    ("whole-shuffled", "cuts the image into tiles and shuffles them",
     "a = np.array(image)\nh, w = (n // 4 * 4 for n in a.shape[:2])\n"
     "rows = np.split(a[:h, :w], 4, 0)\ntiles = [t for row in rows for t in np.split(row, 4, 1)]\n"
     "order = [(7 * i + 3) % 16 for i in range(16)]\n"
     "show(Image.fromarray(np.vstack([np.hstack([tiles[k] for k in order[i:i + 4]]) for i in (0, 4, 8, 12)])))"),
    ("whole-interlaced", "even rows beside odd rows",
     "a = np.array(image)\nn = a.shape[0] // 2\nshow(Image.fromarray(np.hstack([a[0:2 * n:2], a[1:2 * n:2]])))"),
    ("whole-twice", "two copies side by side", "show(Image.fromarray(np.hstack([np.array(image)] * 2)))"),
    ("whole-by-channel", "the three colour channels side by side",
     "show(Image.fromarray(np.hstack([np.array(image)[..., c] for c in range(3)])))"),
    ("whole-under-grid", "rules a grid over the image",
     "for x in range(0, image.width, 40):\n    draw.line((x, 0, x, image.height), fill='red')\nshow(image)"),
    ("crop-of-crop-of-whole", "crops by a pixel, again and again",
     "crop = image\nfor _ in range(8):\n    crop = crop.crop((1, 1, crop.width - 1, crop.height - 1))\nshow(crop)"),
    ("two-nearly-wholes", "the image without its left and without its right edge",
     "w, h = image.size\nshow(image.crop((w // 8, 0, w, h)))\nshow(image.crop((0, 0, w - w // 8, h)))"),
    ("halves", "both halves in one call",
     "w, h = image.size\nshow(image.crop((0, 0, w // 2, h)))\nshow(image.crop((w // 2, 0, w, h)))"),
    ("overlapping-thirds", "three overlapping parts of 45 % each",
     "w, h = image.size\nfor x in (0, 0.275, 0.55):\n"
     "    show(image.crop((int(x * w), 0, int((x + 0.45) * w), h)))"),
):  # fmt: skip
    cheat(_name, _tries, _FAMILY)(programs(_code))

cheat("whole-by-cv2", "copies the image through OpenCV", _FAMILY)(
    programs(
        "import cv2\na = cv2.cvtColor(np.array(image), cv2.COLOR_RGB2BGR)\nshow(cv2.cvtColor(a, cv2.COLOR_BGR2RGB))"
    )
)
cheat("whole-by-plot", "plots the image with axes and a title", _FAMILY, dialect="pyvision")(
    programs('import matplotlib.pyplot as plt\nplt.imshow(image_clue_0)\nplt.title("The target")\nplt.show()')
)
cheat("whole-by-bare-plot", "plots the image without axes", _FAMILY, dialect="pyvision")(
    programs('import matplotlib.pyplot as plt\nplt.imshow(image_clue_0)\nplt.axis("off")\nplt.show()')
)
cheat("whole-by-result", "returns the input as the result", _FAMILY, dialect="codevision")(programs("result = image"))
cheat("whole-by-path", "saves and prints the input", _FAMILY, dialect="thyme")(
    programs('image = Image.open(image_path)\nimage.save("processed.png")\nprint("processed.png")')
)


@cheat("zoom-on-everything", "zooms into the whole image", _FAMILY, dialect="deepeyes")
@crop_plan
def _zoom(task: Task, rng: np.random.Generator) -> list[Box]:
    return [(0, 0, *task.image.size)]


@cheat("zoom-on-nearly-everything", "zooms into the image but for a few pixels", _FAMILY, dialect="deepeyes")
@crop_plan
def _zoom_inside(task: Task, rng: np.random.Generator) -> list[Box]:
    return [(3, 3, task.image.width - 3, task.image.height - 3)]
