"""Everyday programs around a box of an image: what models write to look closer, whatever they do to the colours.

`<box>` is the crop, `<x1>` ... its corners; every program shows the crop's pixels, upright unless its name says otherwise.
"""

from __future__ import annotations

from geometric_programs import NAME

Box = tuple[int, int, int, int]

# ruff: noqa: E501
_PIL = f'im = Image.open("{NAME}")\nim = im.crop(<box>)\n'
_ARRAY = f'im = Image.open("{NAME}").convert("RGB")\na = np.array(im)[<y1>:<y2>, <x1>:<x2>]\n'
_CV2 = f'import cv2\nbgr = cv2.imread("{NAME}")\na = bgr[<y1>:<y2>, <x1>:<x2>]\n'
_GREY = _CV2 + "g = cv2.cvtColor(a, cv2.COLOR_BGR2GRAY)\n"
_WHOLE = f'im = Image.open("{NAME}")\n'
_PLOT = "import matplotlib.pyplot as plt\n" + _PIL

_ON_CROP = {
    "plain": "pass",
    "resize x2": "im = im.resize((im.width * 2, im.height * 2))",
    "resize x3 lanczos": "im = im.resize((im.width * 3, im.height * 3), Image.LANCZOS)",
    "resize x2 nearest": "im = im.resize((im.width * 2, im.height * 2), Image.NEAREST)",
    "shrink": "im = im.resize((im.width * 2 // 3, im.height * 2 // 3), Image.LANCZOS)",
    "thumbnail": "im.thumbnail((400, 400))",
    "contrast 1.5": "im = ImageEnhance.Contrast(im).enhance(1.5)",
    "contrast 2.5": "im = ImageEnhance.Contrast(im).enhance(2.5)",
    "contrast 4": "im = ImageEnhance.Contrast(im).enhance(4)",
    "contrast 0.5": "im = ImageEnhance.Contrast(im).enhance(0.5)",
    "brightness 1.4": "im = ImageEnhance.Brightness(im).enhance(1.4)",
    "brightness 2": "im = ImageEnhance.Brightness(im).enhance(2)",
    "brightness 0.5": "im = ImageEnhance.Brightness(im).enhance(0.5)",
    "colour 0": "im = ImageEnhance.Color(im).enhance(0)",
    "colour 2": "im = ImageEnhance.Color(im).enhance(2)",
    "sharpness 3": "im = ImageEnhance.Sharpness(im).enhance(3)",
    "sharpness and contrast": "im = ImageEnhance.Contrast(ImageEnhance.Sharpness(im).enhance(2)).enhance(1.8)",
    "zoom, contrast, sharpness": "im = im.resize((im.width * 3, im.height * 3), Image.BICUBIC)\n"
    "im = ImageEnhance.Sharpness(ImageEnhance.Contrast(im).enhance(1.6)).enhance(2)",
    "grey": "im = im.convert('L')",
    "grey and zoom": "im = im.convert('L').resize((im.width * 2, im.height * 2))",
    "ops grey": "im = ImageOps.grayscale(im)",
    "autocontrast": "im = ImageOps.autocontrast(im)",
    "autocontrast cutoff": "im = ImageOps.autocontrast(im, cutoff=2)",
    "grey autocontrast": "im = ImageOps.autocontrast(im.convert('L'), cutoff=1)",
    "equalize": "im = ImageOps.equalize(im)",
    "grey equalize": "im = ImageOps.equalize(im.convert('L'))",
    "invert": "im = ImageOps.invert(im)",
    "grey invert": "im = ImageOps.invert(im.convert('L'))",
    "posterize 2": "im = ImageOps.posterize(im, 2)",
    "posterize 4": "im = ImageOps.posterize(im, 4)",
    "solarize": "im = ImageOps.solarize(im, 128)",
    "quantize 8": "im = im.quantize(8).convert('RGB')",
    "quantize 32": "im = im.quantize(32).convert('RGB')",
    "adaptive palette": "im = im.convert('P', palette=Image.ADAPTIVE, colors=16).convert('RGB')",
    "threshold": "im = im.convert('L').point(lambda p: 255 if p > 128 else 0)",
    "threshold 100, zoomed": "im = im.convert('L').resize((im.width * 2, im.height * 2)).point(lambda p: 255 * (p > 100))",
    "threshold at mean": "g = im.convert('L')\nm = float(np.array(g).mean())\nim = g.point(lambda p: 255 if p > m else 0)",
    "gamma table": "im = im.point(lambda p: int(255 * (p / 255) ** 0.5))",
    "double levels": "im = im.point(lambda p: min(255, p * 2))",
    "detail, edge enhance more": "im = im.filter(ImageFilter.DETAIL).filter(ImageFilter.EDGE_ENHANCE_MORE)",
    "edge enhance": "im = im.filter(ImageFilter.EDGE_ENHANCE)",
    "edge enhance more": "im = im.filter(ImageFilter.EDGE_ENHANCE_MORE)",
    "find edges": "im = im.filter(ImageFilter.FIND_EDGES)",
    "grey find edges": "im = im.convert('L').filter(ImageFilter.FIND_EDGES)",
    "contour": "im = im.filter(ImageFilter.CONTOUR)",
    "emboss": "im = im.filter(ImageFilter.EMBOSS)",
    "sharpen twice": "im = im.filter(ImageFilter.SHARPEN).filter(ImageFilter.SHARPEN)",
    "unsharp": "im = im.filter(ImageFilter.UnsharpMask(radius=2, percent=200, threshold=3))",
    "zoomed unsharp": "im = im.resize((im.width * 2, im.height * 2), Image.LANCZOS).filter(ImageFilter.UnsharpMask(2, 150, 3))",
    "smooth": "im = im.filter(ImageFilter.SMOOTH_MORE)",
    "gaussian blur 1.5": "im = im.filter(ImageFilter.GaussianBlur(1.5))",
    "median 3": "im = im.filter(ImageFilter.MedianFilter(3))",
    "median 5": "im = im.filter(ImageFilter.MedianFilter(5))",
    "min filter": "im = im.filter(ImageFilter.MinFilter(3))",
    "max filter": "im = im.filter(ImageFilter.MaxFilter(3))",
    "kernel": "im = im.filter(ImageFilter.Kernel((3, 3), [-1, -1, -1, -1, 9, -1, -1, -1, -1]))",
    "red": "im = im.split()[0]",
    "green zoomed": "im = im.split()[1].resize((im.width * 2, im.height * 2))",
    "swap": "r, g, b = im.split()\nim = Image.merge('RGB', (b, g, r))",
    "hsv value": "im = im.convert('HSV').split()[2]",
    "hsv saturation": "im = im.convert('HSV').split()[1]",
    "ycbcr luma": "im = im.convert('YCbCr').split()[0]",
    "hsv boost": "h, s, v = im.convert('HSV').split()\ns = s.point(lambda p: min(255, p * 2))\n"
    "im = Image.merge('HSV', (h, s, v)).convert('RGB')",
    "jpeg 60": "import io\nb = io.BytesIO()\nim.save(b, 'JPEG', quality=60)\nb.seek(0)\nim = Image.open(b).convert('RGB')",
    "jpeg 30": "import io\nb = io.BytesIO()\nim.save(b, 'JPEG', quality=30)\nb.seek(0)\nim = Image.open(b).convert('RGB')",
    "colorize": "im = ImageOps.colorize(im.convert('L'), 'navy', 'yellow')",
    "expand": "im = ImageOps.expand(im, 20, fill='white')",
    "pad": "im = ImageOps.pad(im, (600, 600), color='black')",
    "outlined": "im = im.copy()\nImageDraw.Draw(im).rectangle((3, 3, im.width - 4, im.height - 4), outline='red', width=3)",
    "labelled": "im = im.copy()\nImageDraw.Draw(im).text((2, 2), 'crop', fill='red')",
    "blend with grey": "im = Image.blend(im, im.convert('L').convert('RGB'), 0.5)",
    "white balance": "a = np.array(im).astype(float)\nim = Image.fromarray(np.clip(a * (a.mean() / a.mean((0, 1))), 0, 255).astype(np.uint8))",
    "percentile stretch": "a = np.array(im).astype(float)\nlo, hi = np.percentile(a, (2, 98))\n"
    "im = Image.fromarray((np.clip((a - lo) / max(hi - lo, 1), 0, 1) * 255).astype(np.uint8))",
    "stretch per channel": "a = np.array(im).astype(float)\nlo, hi = a.min((0, 1)), a.max((0, 1))\n"
    "im = Image.fromarray(((a - lo) / np.maximum(hi - lo, 1) * 255).astype(np.uint8))",
    "gamma numpy": "im = Image.fromarray((255 * (np.array(im) / 255.0) ** 0.6).astype(np.uint8))",
    "gamma dark": "im = Image.fromarray((255 * (np.array(im) / 255.0) ** 2.2).astype(np.uint8))",
    "minus 255": "im = Image.fromarray(255 - np.array(im))",
    "mean of channels": "im = Image.fromarray(np.array(im).mean(2).astype(np.uint8))",
    "alpha beta": "im = Image.fromarray(np.clip(np.array(im).astype(int) * 1.8 - 60, 0, 255).astype(np.uint8))",
    "log": "a = np.array(im).astype(float)\nim = Image.fromarray((255 * np.log1p(a) / np.log(256)).astype(np.uint8))",
    "sigmoid": "a = np.array(im) / 255.0\nim = Image.fromarray((255 / (1 + np.exp(-8 * (a - 0.5)))).astype(np.uint8))",
    "gradient": "g = np.array(im.convert('L')).astype(float)\ngy, gx = np.gradient(g)\n"
    "im = Image.fromarray(np.clip(np.hypot(gx, gy) * 4, 0, 255).astype(np.uint8))",
}
_ON_ARRAY = {
    "otsu": "_, o = cv2.threshold(g, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)",
    "otsu inverted": "_, o = cv2.threshold(g, 0, 255, cv2.THRESH_BINARY_INV + cv2.THRESH_OTSU)",
    "blur and otsu": "_, o = cv2.threshold(cv2.GaussianBlur(g, (5, 5), 0), 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)",
    "otsu, zoomed": "_, o = cv2.threshold(cv2.resize(g, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC), 0, 255, cv2.THRESH_OTSU)",
    "adaptive mean": "o = cv2.adaptiveThreshold(g, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY, 31, 5)",
    "adaptive gaussian": "o = cv2.adaptiveThreshold(g, 255, cv2.ADAPTIVE_THRESH_GAUSSIAN_C, cv2.THRESH_BINARY, 11, 2)",
    "threshold 127": "_, o = cv2.threshold(g, 127, 255, cv2.THRESH_BINARY)",
    "equalizeHist": "o = cv2.equalizeHist(g)",
    "CLAHE": "o = cv2.createCLAHE(clipLimit=2.0, tileGridSize=(8, 8)).apply(g)",
    "CLAHE 4, zoomed": "o = cv2.createCLAHE(4.0, (8, 8)).apply(cv2.resize(g, None, fx=2, fy=2))",
    "CLAHE in LAB": "l, A, B = cv2.split(cv2.cvtColor(a, cv2.COLOR_BGR2LAB))\nl = cv2.createCLAHE(3.0, (8, 8)).apply(l)\n"
    "o = cv2.cvtColor(cv2.merge((l, A, B)), cv2.COLOR_LAB2RGB)",
    "LAB L": "o = cv2.split(cv2.cvtColor(a, cv2.COLOR_BGR2LAB))[0]",
    "LAB a stretched": "o = cv2.normalize(cv2.split(cv2.cvtColor(a, cv2.COLOR_BGR2LAB))[1], None, 0, 255, cv2.NORM_MINMAX)",
    "HSV V equalized": "h, s, v = cv2.split(cv2.cvtColor(a, cv2.COLOR_BGR2HSV))\no = cv2.cvtColor(cv2.merge((h, s, cv2.equalizeHist(v))), cv2.COLOR_HSV2RGB)",
    "YUV equalized": "y = cv2.cvtColor(a, cv2.COLOR_BGR2YUV)\ny[..., 0] = cv2.equalizeHist(y[..., 0])\no = cv2.cvtColor(y, cv2.COLOR_YUV2RGB)",
    "Canny": "o = cv2.Canny(g, 50, 150)",
    "Canny 100 200": "o = cv2.Canny(cv2.GaussianBlur(g, (3, 3), 0), 100, 200)",
    "Sobel": "o = cv2.convertScaleAbs(cv2.Sobel(g, cv2.CV_64F, 1, 1, ksize=3))",
    "Sobel magnitude": "o = cv2.convertScaleAbs(cv2.magnitude(cv2.Sobel(g, cv2.CV_32F, 1, 0), cv2.Sobel(g, cv2.CV_32F, 0, 1)))",
    "Laplacian": "o = cv2.convertScaleAbs(cv2.Laplacian(g, cv2.CV_64F))",
    "dilate": "o = cv2.dilate(g, np.ones((3, 3), np.uint8))",
    "erode": "o = cv2.erode(g, np.ones((3, 3), np.uint8))",
    "close": "o = cv2.morphologyEx(g, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8))",
    "open": "o = cv2.morphologyEx(g, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))",
    "tophat": "o = cv2.morphologyEx(g, cv2.MORPH_BLACKHAT, np.ones((9, 9), np.uint8))",
    "morphological gradient": "o = cv2.morphologyEx(g, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8))",
    "bilateral": "o = cv2.cvtColor(cv2.bilateralFilter(a, 9, 75, 75), cv2.COLOR_BGR2RGB)",
    "median": "o = cv2.cvtColor(cv2.medianBlur(a, 5), cv2.COLOR_BGR2RGB)",
    "gaussian": "o = cv2.cvtColor(cv2.GaussianBlur(a, (5, 5), 0), cv2.COLOR_BGR2RGB)",
    "filter2D": "o = cv2.cvtColor(cv2.filter2D(a, -1, np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]])), cv2.COLOR_BGR2RGB)",
    "addWeighted": "o = cv2.cvtColor(cv2.addWeighted(a, 1.5, cv2.GaussianBlur(a, (0, 0), 3), -0.5, 0), cv2.COLOR_BGR2RGB)",
    "convertScaleAbs": "o = cv2.cvtColor(cv2.convertScaleAbs(a, alpha=1.6, beta=20), cv2.COLOR_BGR2RGB)",
    "normalize": "o = cv2.cvtColor(cv2.normalize(a, None, 0, 255, cv2.NORM_MINMAX), cv2.COLOR_BGR2RGB)",
    "LUT": "o = cv2.cvtColor(cv2.LUT(a, np.array([255 * (i / 255) ** 0.7 for i in range(256)]).astype('uint8')), cv2.COLOR_BGR2RGB)",
    "applyColorMap": "o = cv2.cvtColor(cv2.applyColorMap(g, cv2.COLORMAP_JET), cv2.COLOR_BGR2RGB)",
    "not": "o = cv2.bitwise_not(g)",
    "stay BGR": "o = a",
    "area zoom": "o = cv2.cvtColor(cv2.resize(a, None, fx=1.7, fy=1.7, interpolation=cv2.INTER_CUBIC), cv2.COLOR_BGR2RGB)",
    "inRange": "m = cv2.inRange(g, 0, int(g.mean()))\no = m",
    "masked": "m = cv2.inRange(g, 0, int(g.mean()))\no = cv2.cvtColor(cv2.bitwise_and(a, a, mask=m), cv2.COLOR_BGR2RGB)",
    "detailEnhance": "o = cv2.cvtColor(cv2.detailEnhance(a, 10, 0.15), cv2.COLOR_BGR2RGB)",
    "jpeg by cv2": "o = cv2.cvtColor(cv2.imdecode(cv2.imencode('.jpg', a, [cv2.IMWRITE_JPEG_QUALITY, 60])[1], 1), cv2.COLOR_BGR2RGB)",
    "denoise": "o = cv2.fastNlMeansDenoising(g[:200, :200], None, 10, 7, 11) if 0 else cv2.GaussianBlur(g, (3, 3), 0)",
}
_OF_WHOLE = {
    "whole autocontrast": "im = ImageOps.autocontrast(im)",
    "whole autocontrast cutoff": "im = ImageOps.autocontrast(im, cutoff=2)",
    "whole equalize": "im = ImageOps.equalize(im)",
    "whole grey": "im = im.convert('L')",
    "whole grey autocontrast": "im = ImageOps.autocontrast(im.convert('L'))",
    "whole contrast": "im = ImageEnhance.Contrast(im).enhance(2)",
    "whole normalize": "a = np.array(im).astype(float)\na = (a - a.min()) / (a.max() - a.min()) * 255\nim = Image.fromarray(a.astype(np.uint8))",
    "whole standardize": "a = np.array(im.convert('L')).astype(float)\na = (a - a.mean()) / (a.std() + 1e-6)\n"
    "im = Image.fromarray(np.clip(a * 50 + 128, 0, 255).astype(np.uint8))",
    "whole threshold": "im = im.convert('L').point(lambda p: 255 if p > 140 else 0)",
    "whole otsu": "g = cv2.cvtColor(np.array(im), cv2.COLOR_RGB2GRAY)\nim = Image.fromarray(cv2.threshold(g, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)[1])",
    "whole CLAHE": "g = cv2.cvtColor(np.array(im), cv2.COLOR_RGB2GRAY)\nim = Image.fromarray(cv2.createCLAHE(2.0, (8, 8)).apply(g))",
    "whole invert": "im = ImageOps.invert(im)",
}
_PLOTTED = {
    "imshow": "plt.imshow(im)\nplt.axis('off')\nplt.show()",
    "imshow with axes": "plt.figure(figsize=(8, 6))\nplt.imshow(im)\nplt.title('Zoomed')\nplt.show()",
    "imshow gray": "plt.imshow(im.convert('L'), cmap='gray')\nplt.axis('off')\nplt.show()",
    "imshow viridis": "plt.imshow(np.array(im.convert('L')))\nplt.colorbar()\nplt.show()",
    "imshow hot": "plt.imshow(np.array(im)[..., 0], cmap='hot')\nplt.axis('off')\nplt.savefig('p.png')\nprint('p.png')",
    "imshow limits": "plt.imshow(np.array(im.convert('L')), cmap='gray', vmin=40, vmax=200)\nplt.show()",
    "imshow figure": "fig, ax = plt.subplots(figsize=(10, 8))\nax.imshow(im)\nax.set_title('Detail')\nax.axis('off')\n"
    "plt.tight_layout()\nplt.savefig('p.png', dpi=100, bbox_inches='tight')\nprint('p.png')",
    "crop and its grey": "fig, ax = plt.subplots(1, 2, figsize=(12, 5))\nax[0].imshow(im)\nax[1].imshow(im.convert('L'), cmap='gray')\nplt.show()",
}
_TURNED = {
    "rot90 grey": ("im = im.rotate(90, expand=True).convert('L')"),
    "rot180 contrast": ("im = ImageEnhance.Contrast(im.rotate(180)).enhance(2)"),
    "rot270 otsu": ("im = im.transpose(Image.ROTATE_270).convert('L').point(lambda p: 255 if p > 120 else 0)"),
    "flipped equalize": ("im = ImageOps.equalize(ImageOps.mirror(im))"),
    "flipped edges": ("im = ImageOps.flip(im).filter(ImageFilter.FIND_EDGES)"),
}
EVERYDAY: dict[str, str] = {
    **{name: _PIL + line + "\nshow(im)" for name, line in _ON_CROP.items()},
    **{name: _GREY + line + "\nshow(Image.fromarray(o))" for name, line in _ON_ARRAY.items()},
    **{
        name: f"{_WHOLE}import cv2\n{line}\nshow(im.crop(<box>))"
        if "cv2" in line
        else f"{_WHOLE}{line}\nshow(im.crop(<box>))"
        for name, line in _OF_WHOLE.items()
    },
    **{name: _PLOT + line for name, line in _PLOTTED.items()},
    **{name: _PIL + line + "\nshow(im)" for name, line in _TURNED.items()},
}
"""Programs by name; more than 150."""


def fill(template: str, box: Box) -> str:
    """Write a box into a program."""
    for key, value in {"box": box, **dict(zip(("x1", "y1", "x2", "y2"), box, strict=True))}.items():
        template = template.replace(f"<{key}>", str(value))
    return template
