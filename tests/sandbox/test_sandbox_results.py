"""The ways in which a program hands images over, and the images that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from codev_env.sandbox import Limits, Sandbox, Session

CROP = (10, 20, 90, 80)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("show(image.crop((10, 20, 90, 80)))", ""),
        ("image.crop((10, 20, 90, 80)).show()", ""),
        ("show(np.array(image)[20:80, 10:90])", ""),
        ("image.crop((10, 20, 90, 80)).save('c.png')\nprint('c.png')", "c.png"),
        ("image.crop((10, 20, 90, 80)).save('c.jpg')\nprint('c.jpg')", "c.jpg"),
        ("image.crop((10, 20, 90, 80)).save('/tmp/c.png')\nprint('/tmp/c.png')", "c.png"),
        ("image.crop((10, 20, 90, 80)).save('c.png')\nshow('c.png')", "c.png"),
        ("result = image.crop((10, 20, 90, 80))", ""),
        ("output = [image.crop((10, 20, 90, 80))]", ""),
        ("result = np.array(image)[20:80, 10:90]", ""),
        ("image.crop((10, 20, 90, 80)).save('c.png')\nresult = 'c.png'", "c.png"),
        ("c = image.crop((10, 20, 90, 80))\nc.save('c.png')\nprint('c.png')\nshow(c)\nresult = c", "c.png"),
        ("c = image.crop((10, 20, 90, 80))\nshow(c)\nc.paste((0, 0, 0), (0, 0, 80, 60))", ""),
    ],
)
def test_every_way_gives_the_exact_pixels_once(code: str, name: str, session: Session, image: Image.Image) -> None:
    execution = session.run(code)
    assert (execution.stop, execution.error, execution.stdout) == ("ok", None, "")
    assert execution.names == (name,)
    assert execution.images[0].tobytes() == image.crop(CROP).tobytes()


def test_images_come_in_the_order_they_were_handed_over(session: Session) -> None:
    code = (
        "for n in (1, 2, 3):\n    Image.new('RGB', (n, n), (n, 0, 0)).save(f'{n}.png')\n"
        "print('2.png')\nshow(Image.new('RGB', (7, 7)))\nprint('text')\nprint('1.png')\nresult = Image.new('L', (9, 9))"
    )
    execution = session.run(code)
    assert [image.width for image in execution.images] == [2, 7, 1, 9]
    assert execution.names == ("2.png", "", "1.png", "")
    assert execution.stdout == "text\n"


def test_a_line_with_more_than_a_name_stays(session: Session) -> None:
    execution = session.run("image.save('a.png')\nprint('saved to a.png (160x120)')\nprint('from input.png')")
    assert execution.names == ("a.png",)
    assert execution.stdout == "saved to a.png (160x120)\nfrom input.png\n"


@pytest.mark.parametrize("line", ["mean=3.5, saved to /mnt/data/b.png", "Saved to: ./b.png"])
def test_a_line_that_ends_in_a_path_stays(session: Session, line: str) -> None:
    execution = session.run(f"image.save('b.png')\nprint({line!r})\nprint('/mnt/data/b.png')")
    assert (execution.names, execution.stdout) == (("b.png",), f"{line}\n")


def test_numbers_called_result_are_no_images(session: Session) -> None:
    execution = session.run("result = 3 * 4\nprint(result)\noutput = np.array([1.5, 2])")
    assert (execution.stop, execution.stdout, execution.images) == ("ok", "12\n", ())


def test_matplotlib_figures(session: Session) -> None:
    pytest.importorskip("matplotlib")
    code = (
        "import matplotlib.pyplot as plt\nplt.figure(figsize=(4, 3), dpi=100)\nplt.imshow(image)\n"
        "plt.title('x $a^2$ -1')\nplt.show()\n"
        "fig, ax = plt.subplots()\nax.bar(['a', 'b'], [1, 2])\nplt.savefig('bars.png')\nprint('bars.png')"
    )
    execution = session.run(code)
    assert execution.error is None
    assert [shown.size for shown in execution.images] == [(400, 300), (640, 480)]
    assert len(np.unique(np.asarray(execution.images[0]).reshape(-1, 3), axis=0)) > 50
    assert session.run("print(len(plt.gca().lines))").stdout == "0\n"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("result = image.resize((3000, 1))", "factor of 100"),
        ("show(Image.new('L', (6000, 6000)))", "at most"),
        ("show(image.crop((5, 5, 5, 9)))", "check the crop box"),
        ("show(np.zeros((3, 4, 7)))", "is no image"),
        ("show(np.array([[np.nan, 1.0]]))", "NaN"),
        ("show(np.array([['a']]))", "uint8"),
    ],
)
def test_bad_images_are_refused_with_a_reason(code: str, says: str, session: Session) -> None:
    execution = session.run(code)
    assert execution.stop == "result"
    assert execution.images == ()
    assert execution.error is not None and says in execution.error


@pytest.mark.parametrize("printed", ["", "print('text')\n", "print('text', end='')\n"])
def test_more_images_than_allowed_are_cut(session: Session, printed: str) -> None:
    execution = session.run(f"{printed}for n in range(1, 9):\n    show(Image.new('RGB', (n, n)))")
    assert (execution.stop, execution.error) == ("ok", None)
    assert [shown.width for shown in execution.images] == [1, 2, 3, 4, 5]
    assert execution.stdout == "text\n" * bool(printed) + "Only the first 5 images are shown.\n"


@pytest.mark.parametrize("printed", [90, 100, 500])
def test_more_images_than_allowed_beside_much_text(printed: int) -> None:
    code = f"for n in range(1, 9):\n    show(Image.new('RGB', (n, n)))\nprint('x' * {printed}, end='')"
    with Sandbox(Limits(output_chars=100)) as box, box.session({}) as session:
        execution = session.run(code)
    assert execution.stop == ("output" if printed > 100 else "ok")
    assert [shown.width for shown in execution.images] == [1, 2, 3, 4, 5]
    assert execution.stdout.startswith("xxx") and len(execution.stdout) <= 100
    assert execution.stdout.endswith("x\nOnly the first 5 images are shown.\n")


def test_images_shown_before_an_error_count(session: Session) -> None:
    execution = session.run("show(image)\nprint('text')\n1 / 0")
    assert (execution.stop, execution.stdout, len(execution.images)) == ("error", "text\n", 1)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("SyntaxError('odd', ('file', 2, 1, 5))", "SyntaxError: "),
        ("Odd('odd')", "Odd: "),
        ("SyntaxError('odd', ('file', 2, 1, 'text'))", "SyntaxError: odd (line 2: text)"),
    ],
)
def test_no_error_of_a_program_ends_its_worker(raised: str, said: str, box: Sandbox) -> None:
    code = f"class Odd(SyntaxError):\n    @property\n    def msg(self):\n        return 1 / 0\nkept = 3\nraise {raised}"
    with box.session({}, persist="variables") as session:
        execution = session.run(code)
        assert (execution.stop, execution.error) == ("error", said)
        assert session.run("print(kept)").stdout == "3\n"


def test_text_is_cut_at_the_limit() -> None:
    with Sandbox(Limits(output_chars=100)) as box, box.session({}) as session:
        execution = session.run("print('x' * 99)\nprint('y' * 50)")
        assert (execution.stop, execution.stdout) == ("output", "x" * 99 + "\n")
        endless = session.run("while True:\n    print('z' * 1000)")
        assert (endless.stop, endless.stdout) == ("output", "z" * 100)


def test_modes_of_input_images(box: Sandbox) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    rgba = Image.fromarray(colours)
    images = {"a.png": rgba, "g.png": rgba.convert("L"), "p.png": rgba.convert("RGB").convert("P")}
    with box.session(images) as session:
        execution = session.run("for im in images:\n    print(im.mode)\n    show(im)")
    assert execution.stdout == "RGBA\nL\nRGB\n"
    for shown, given in zip(execution.images, images.values(), strict=True):
        assert shown.tobytes() == given.convert("RGB").tobytes()


@pytest.mark.parametrize(
    "shown",
    [
        "show(deep)",
        "show(np.stack([deep] * 3, axis=2))",
        "show(deep.astype(int))",
        "show(Image.fromarray(deep))",
        "show(Image.fromarray(deep.astype(np.int32)))",
        "Image.fromarray(deep).save('a.png')\nprint('a.png')",
        "import cv2\ncv2.imwrite('a.png', deep)\nprint('a.png')",
        "import skimage\nshow(skimage.img_as_uint(np.asarray(grey)))",
    ],
)
def test_16_bits_are_shown_in_8(shown: str, session: Session, image: Image.Image) -> None:
    if "import" in shown:
        pytest.importorskip(shown.split()[1])
    code = "grey = image.convert('L')\ndeep = np.asarray(grey).astype(np.uint16) * 257\n"
    (found,) = session.run(code + shown).images
    assert found.tobytes() == image.convert("L").convert("RGB").tobytes()


def test_8_bits_that_were_brightened_are_cut_off(session: Session, image: Image.Image) -> None:
    (found,) = session.run("show(np.asarray(image).astype(np.uint16) * 2)").images
    assert found.tobytes() == np.minimum(np.asarray(image).astype(int) * 2, 255).astype(np.uint8).tobytes()
