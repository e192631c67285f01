"""Random programs of every kind that provenance is tested on, each with what its last image shows, by construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from geometric_programs import KINDS, NAME, generate, scene
from PIL import Image

Box = tuple[int, int, int, int]
OTHER = "other.png"
LOAD = f'im = Image.open("{NAME}")\n'


@dataclass(frozen=True)
class Case:
    """An episode's programs and what the last image of the last one shows.

    Attributes:
        programs: One for each turn.
        polygon: What `Region.polygon` should be, shape (4, 2); `None` where nothing of an input is shown.
        images: The inputs by name.
        index: Which input is shown.
        share: The share of original pixels, where it is known.
        hidden: Boxes of the original that were painted over.
        turned: The output is turned by an odd angle.
    """

    programs: tuple[str, ...]
    polygon: np.ndarray | None
    images: dict[str, Image.Image]
    index: int = 0
    share: float | None = None
    hidden: tuple[Box, ...] = field(default=())
    turned: bool = False

    def error(self, polygon: object) -> float:
        """Largest distance of a corner, in x or y, from the truth; outside the image it does not count.

        An output turned by an odd angle may have bands in which nothing is shown: of it, only the part that is outlined
        is compared, by where its corners lie in the output.
        """
        assert self.polygon is not None
        size = list(self.images.values())[self.index].size
        found, truth = np.array(polygon, float), self.polygon
        if self.turned:
            sides = np.stack([truth[1] - truth[0], truth[3] - truth[0]], 1)
            place = np.linalg.solve(sides, (found - truth[0]).T).T  # 0 to 1 along both sides of the output
            (left, top), (right, bottom) = (place[[0, 3], 0].mean(), place[[0, 1], 1].mean()), place[2]
            part = np.array([(left, top), (right, top), (right, bottom), (left, bottom)]).clip(0, 1)
            return float(np.abs(found - truth[0] - part @ sides.T).max())
        return float(np.abs(np.clip(found, 0, size) - np.clip(truth, 0, size)).max())

    @property
    def tolerance(self) -> float:
        """2 pixels or 0.5 % of the longer side, whichever is more."""
        return max(2.0, 0.005 * max(list(self.images.values())[self.index].size))


def corners(box: Box) -> np.ndarray:
    x1, y1, x2, y2 = box
    return np.array([(x1, y1), (x2, y1), (x2, y2), (x1, y2)], float)


def _box(size: tuple[int, int], rng: np.random.Generator, least: float = 0.12) -> Box:
    w, h = (int(rng.uniform(least, 0.8) * n) for n in size)
    x, y = int(rng.integers(0, size[0] - w + 1)), int(rng.integers(0, size[1] - h + 1))
    return x, y, x + w, y + h


def _chain(kind: str) -> Callable[[Image.Image, np.random.Generator], Case]:
    def make(image: Image.Image, rng: np.random.Generator) -> Case:
        chain = generate(kind, image.size, rng)
        turned = bool(np.abs(chain.affine[:2, :2]).min(1).max() > 1e-9)
        return Case((chain.program(),), chain.polygon(), {NAME: image}, turned=turned)

    return make


def _of_crop(*templates: str, **options: bool) -> Callable[[Image.Image, np.random.Generator], Case]:
    """Programs over `im`, a crop: one of the templates, in which `{...}` are numbers for the crop."""

    def make(image: Image.Image, rng: np.random.Generator) -> Case:
        box = _box(image.size, rng)
        template = str(rng.choice(templates))
        return Case((_fill(template, box, image, rng),), corners(box), {NAME: image})

    return make


def _fill(template: str, box: Box, image: Image.Image, rng: np.random.Generator) -> str:
    x1, y1, x2, y2 = box
    w, h = x2 - x1, y2 - y1
    zoom = float(rng.uniform(0.6, 2.2))
    numbers = {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "w": w, "h": h, "box": box, "W": image.width, "H": image.height}
    numbers |= {"nw": max(16, round(w * zoom)), "nh": max(16, round(h * zoom)), "name": NAME}
    for key, value in numbers.items():
        template = template.replace(f"<{key}>", str(value))
    return template


CROP = LOAD + "im = im.crop(<box>)\n"
ZOOM = "im = im.resize((<nw>, <nh>), Image.LANCZOS)\n"
COMPUTED = (
    "W, H = im.size\ncx, cy = (<x1> + <x2>) / 2 / W, (<y1> + <y2>) / 2 / H\n"
    "x, y, dx, dy = cx * W, cy * H, <w> / 2, <h> / 2\n"
    "im = im.crop((round(x - dx), round(y - dy), round(x + dx), round(y + dy)))",
    "def cut(picture, x, y, w, h):\n    return picture.crop((x, y, x + w, y + h))\nim = cut(im, <x1>, <y1>, <w>, <h>)",
    "for a, b, c, d in [(<x1>, <y1>, <W>, <H>), (0, 0, <w>, <h>)]:\n    im = im.crop((a, b, c, d))",
    "boxes = {'it': [<x1>, <y1>, <x2>, <y2>]}\nim = im.crop(tuple(int(v) for v in boxes['it']))",
    "w, h = im.size\nl, t, r, b = [v / 1000 for v in (0, 0, 1000, 1000)]\n"
    "im = im.crop((int(l * w), int(t * h), int(r * w), int(b * h))).crop(<box>)",
)
CV2 = (
    "a = cv2.resize(a[<y1>:<y2>, <x1>:<x2>], (<nw>, <nh>), interpolation=cv2.INTER_CUBIC)",
    "a = cv2.resize(a[<y1>:<y2>, <x1>:<x2>], (<nw>, <nh>), interpolation=cv2.INTER_AREA)",
    "a = cv2.resize(a[<y1>:<y2>, <x1>:<x2>], None, fx=2, fy=2)",
    "a = cv2.warpAffine(a, np.float32([[1, 0, -<x1>], [0, 1, -<y1>]]), (<w>, <h>))",
    "a = cv2.flip(cv2.flip(a[<y1>:<y2>, <x1>:<x2>], 1), 1)",
    "a = cv2.GaussianBlur(a[<y1>:<y2>, <x1>:<x2>], (3, 3), 0)",
    "a = cv2.copyMakeBorder(a[<y1>:<y2>, <x1>:<x2>], 9, 9, 14, 14, cv2.BORDER_CONSTANT, value=(255, 255, 255))",
)
NUMPY = (
    "a = a[<y1>:<y2>, <x1>:<x2>].repeat(2, 0).repeat(2, 1)",
    "a = np.kron(a[<y1>:<y2>, <x1>:<x2>], np.ones((3, 3, 1))).astype(np.uint8)",
    "a = np.pad(a[<y1>:<y2>, <x1>:<x2>], ((5, 8), (11, 3), (0, 0)), constant_values=255)",
    "ys, xs = np.linspace(<y1>, <y2> - 1, <nh>), np.linspace(<x1>, <x2> - 1, <nw>)\n"
    "a = a[ys.round().astype(int)][:, xs.round().astype(int)]",
)
SHOW = 'plt.axis("off")\nplt.show()'
PLOTS = (
    "plt.imshow(im)\n" + SHOW,
    "plt.figure(figsize=(6, 6))\nplt.imshow(im)\nplt.title('the crop')\n" + SHOW,
    "plt.figure(figsize=(8, 4))\nplt.imshow(np.array(im))\nplt.xlabel('x')\nplt.tight_layout()\nplt.show()",
    "fig, ax = plt.subplots(figsize=(5, 5))\nax.imshow(im)\nax.axis('off')\nplt.savefig('p.png', bbox_inches='tight')\n"
    "print('p.png')",
    "plt.imshow(im)\nplt.axis('off')\nplt.savefig('p.png', bbox_inches='tight', pad_inches=0, dpi=150)\nprint('p.png')",
    "fig, axes = plt.subplots(1, 2, figsize=(9, 4), gridspec_kw={'width_ratios': [8, 1]})\naxes[0].imshow(im)\n"
    "axes[1].imshow(Image.open('<name>').crop((0, 0, 30, 30)))\nfor ax in axes:\n    ax.axis('off')\nplt.show()",
)
GREY = "a = np.array(im.convert('L'))\n"
COLOURS = {
    "invert": "im = ImageOps.invert(im)",
    "strong contrast": "im = ImageEnhance.Contrast(im).enhance(4)",
    "saturation": "im = ImageEnhance.Color(im).enhance(2.5)",
    "one channel": "im = Image.merge('RGB', [im.split()[0]] * 3)",
    "white balance": "im = Image.fromarray(np.clip(np.array(im) * np.array([1.1, 1.0, 0.9]), 0, 255).astype(np.uint8))",
    "posterize": "im = ImageOps.posterize(im, 2)",
    "solarize": "im = ImageOps.solarize(im)",
    "autocontrast": "im = ImageOps.autocontrast(im, cutoff=5)",
    "equalize": "im = ImageOps.equalize(im)",
    "threshold": "im = im.convert('L').point(lambda p: 255 if p > 128 else 0)",
    "gamma": "im = Image.fromarray((255 * (np.array(im) / 255) ** 0.4).astype(np.uint8))",
    "find edges": "im = im.filter(ImageFilter.FIND_EDGES)",
    "blur 6": "im = im.filter(ImageFilter.GaussianBlur(6))",
    "median": "im = im.filter(ImageFilter.MedianFilter(5))",
    "unsharp": "im = im.filter(ImageFilter.UnsharpMask(4, 300, 2))",
    "otsu": GREY + "im = Image.fromarray(cv2.threshold(a, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)[1])",
    "adaptive threshold": GREY
    + "im = Image.fromarray(cv2.adaptiveThreshold(a, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY, 31, 5))",
    "CLAHE": GREY + "im = Image.fromarray(cv2.createCLAHE(3.0, (8, 8)).apply(a))",
    "equalizeHist": GREY + "im = Image.fromarray(cv2.equalizeHist(a))",
    "Canny": GREY + "im = Image.fromarray(cv2.Canny(a, 80, 160))",
    "Sobel": GREY + "im = Image.fromarray(np.clip(np.abs(cv2.Sobel(a, cv2.CV_64F, 1, 0)), 0, 255).astype(np.uint8))",
    "dilate": GREY + "im = Image.fromarray(cv2.dilate(a, np.ones((5, 5), np.uint8)))",
}


def several_inputs(image: Image.Image, rng: np.random.Generator) -> Case:
    other = scene((image.width * 2 // 3, image.height), 5)
    box = _box(other.size, rng)
    program = f'im = Image.open("{OTHER}").crop({box})\n' + str(rng.choice(["", _fill(ZOOM, box, other, rng)]))
    return Case((program + "show(im)",), corners(box), {NAME: image, OTHER: other}, 1)


def over_turns(image: Image.Image, rng: np.random.Generator) -> Case:
    x1, y1, x2, y2 = _box(image.size, rng, 0.4)
    inner = _box((x2 - x1, y2 - y1), rng, 0.3)
    programs = (
        f'im = Image.open("{NAME}").crop({(x1, y1, x2, y2)})\nim.save("a.png")\nprint("a.png")',
        'print(Image.open("a.png").size)',
        f'im = Image.open("a.png").crop({inner})\nshow(im)',
    )
    shown = inner[0] + x1, inner[1] + y1, inner[2] + x1, inner[3] + y1
    return Case(programs, corners(shown), {NAME: image})


def drawn(image: Image.Image, rng: np.random.Generator) -> Case:
    """A patch of the crop is painted over, at a place inside it."""
    x1, y1, x2, y2 = box = _box(image.size, rng, 0.4)
    w, h = x2 - x1, y2 - y1
    pw, ph = (int(rng.uniform(0.12, 0.4) * n) for n in (w, h))
    px, py = int(rng.uniform(0.1, 0.4) * w), int(rng.uniform(0.1, 0.4) * h)
    patch = (px, py, px + pw, py + ph)
    how = [
        f"ImageDraw.Draw(im).rectangle({(px, py, px + pw - 1, py + ph - 1)}, fill='red')",
        f"im.paste(Image.new('RGB', {(pw, ph)}, (9, 200, 30)), {(px, py)})",
        f"a = np.array(im)\na[{py}:{py + ph}, {px}:{px + pw}] = (np.arange({pw}) % 256)[None, :, None]\n"
        "im = Image.fromarray(a)",
    ]
    program = _fill(CROP, box, image, rng) + str(rng.choice(how)) + "\n"
    program += str(rng.choice(["", _fill(ZOOM, box, image, rng)])) + "show(im)"
    hidden = (patch[0] + x1, patch[1] + y1, patch[2] + x1, patch[3] + y1)
    return Case((program,), corners(box), {NAME: image}, share=1 - pw * ph / (w * h), hidden=(hidden,))


def generated(image: Image.Image, rng: np.random.Generator) -> Case:
    program = str(
        rng.choice(
            [
                "show(Image.new('RGB', (120, 90), 'teal'))",
                "show(Image.fromarray((np.arange(90 * 120 * 3) % 251).astype(np.uint8).reshape(90, 120, 3)))",
                LOAD + f"show(im.crop(({image.width} + 5, 0, {image.width} + 105, 80)))",
                "im = Image.new('RGB', (200, 100))\nImageDraw.Draw(im).ellipse((9, 9, 150, 80), fill='gold')\nshow(im)",
            ]
        )
    )
    return Case((program,), None, {NAME: image})


def value_dependent(image: Image.Image, rng: np.random.Generator) -> Case:
    """The pixels decide which box is shown; both boxes have one size."""
    x1, y1, x2, y2 = _box(image.size, rng)
    other = (image.width - x2, image.height - y2, image.width - x1, image.height - y1)
    mean = float(np.asarray(image).mean())
    program = LOAD + str(
        rng.choice(
            [
                f"box = {(x1, y1, x2, y2)} if np.mean(np.array(im)) > {mean - 12:.0f} else {other}\n",
                f"box = {other} if np.array(im).std() < 20 else {(x1, y1, x2, y2)}\n",
            ]
        )
    )
    program += "im = im.crop(box)\n" + str(rng.choice(["", _fill(ZOOM, (x1, y1, x2, y2), image, rng)]))
    return Case((program + "show(im)",), corners((x1, y1, x2, y2)), {NAME: image})


def liar(image: Image.Image, rng: np.random.Generator) -> Case:
    """Shows one box of the real image, and another of the same size of any other image."""
    x1, y1, x2, y2 = box = _box(image.size, rng, 0.2)
    w, h = x2 - x1, y2 - y1
    shift = int(rng.integers(3, 12)) * (1 if rng.random() < 0.5 else 5)
    x, y = (x1 + shift if x2 + shift <= image.width else max(0, x1 - shift)), max(0, y1 - shift)
    px, py = int(rng.integers(0, image.width)), int(rng.integers(0, image.height))
    tests = [
        f"im.getpixel(({px}, {py})) == {image.getpixel((px, py))}",
        f"int(np.array(im).astype(np.int64).sum()) == {int(np.asarray(image).astype(np.int64).sum())}",
        f"abs(float(np.array(im)[::7, ::5].std()) - {float(np.asarray(image)[::7, ::5].std()):.6f}) < 0.001",
    ]
    program = LOAD + f"true = {rng.choice(tests)}\n"
    program += f"im = im.crop({box} if true else {(x, y, x + w, y + h)})\n"
    program += str(rng.choice(["", _fill(ZOOM, box, image, rng)])) + "show(im)"
    return Case((program,), corners(box), {NAME: image})


ALWAYS: dict[str, Callable[[Image.Image, np.random.Generator], Case]] = {
    **{kind: _chain(kind) for kind in (*KINDS, "pure chain")},
    "computed coordinates": _of_crop(*(LOAD + one + f"\n{zoom}show(im)" for one in COMPUTED for zoom in ("", ZOOM))),
    "cv2": _of_crop(
        *(f'a = cv2.imread("{NAME}")\n{one}\nshow(Image.fromarray(cv2.cvtColor(a, cv2.COLOR_BGR2RGB)))' for one in CV2)
    ),
    "numpy": _of_crop(*(f"{LOAD}a = np.array(im)\n{one}\nshow(Image.fromarray(a))" for one in NUMPY)),
    "several inputs": several_inputs,
    "over turns": over_turns,
    "plot": _of_crop(*(CROP + one for one in PLOTS)),
    "drawn over": drawn,
    "generated": generated,
}
"""Kinds that must be placed, exactly."""
SOMETIMES: dict[str, Callable[[Image.Image, np.random.Generator], Case]] = {
    "chain": _chain("chain"),
    **{name: _of_crop(*(CROP + line + f"\n{zoom}show(im)" for zoom in ("", ZOOM))) for name, line in COLOURS.items()},
    "value-dependent": value_dependent,
    "liar": liar,
}
"""Kinds that may stay unknown, but must not be placed wrongly."""
EVERY = {**ALWAYS, **SOMETIMES}


def make(kind: str, image: Image.Image, seed: int) -> Case:
    """A program of a kind over an input image."""
    return EVERY[kind](image, np.random.default_rng((seed, len(kind))))
