"""The same program in plain Python and in the sandbox: same text, same pixels."""

from __future__ import annotations

import contextlib
import decimal
import importlib.machinery
import importlib.util
import io
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageOps

from codev_env.errors import ConfigError
from codev_env.sandbox import REPAIRS, Sandbox, Session


def read_programs(path: Path) -> dict[str, str]:
    """The programs of a file, by the name in the line `#### name` above each."""
    parts = path.read_text(encoding="utf-8").split("#### ")[1:]
    return {name: code for name, _newline, code in (part.partition("\n") for part in parts)}


def by_cost(programs: dict[str, str]) -> list[Any]:
    """The names as parameters: libraries that take seconds to load are for the integration tests."""
    slow = re.compile(r"\b(?:scipy|skimage|sympy|pandas|sklearn)\b")
    return [
        pytest.param(name, marks=[pytest.mark.integration] if slow.search(code) else [])
        for name, code in programs.items()
    ]


def skip_without_libraries(code: str) -> None:
    """Skip a test whose program names a library that is not installed."""
    for library in re.findall(r"\b(?:cv2|matplotlib|scipy|skimage|sympy|pandas|sklearn)\b", code):
        if library != "sklearn":
            pytest.importorskip(library)
        elif importlib.machinery.PathFinder.find_spec(library) is None:  # it is hidden from this process
            pytest.skip("scikit-learn is not installed")


PROGRAMS = {
    name: code
    for path in sorted(Path(__file__).parent.glob("everyday*.txt"))
    for name, code in read_programs(path).items()
}


@contextlib.contextmanager
def settings_of_its_own(code: str) -> Iterator[None]:
    """Undo the settings that a program makes in libraries, as a separate process would."""
    with contextlib.ExitStack() as undo:
        undo.enter_context(np.printoptions())
        undo.enter_context(decimal.localcontext())
        if "pandas" in code:
            pandas = pytest.importorskip("pandas")
            undo.callback(pandas.reset_option, "^display")
        if "sklearn" in code:
            undo.enter_context(pytest.MonkeyPatch.context()).delitem(sys.modules, "sklearn", raising=False)
        if "matplotlib" in code:
            import matplotlib.pyplot as plt

            undo.enter_context(plt.rc_context())
            undo.callback(plt.close, "all")
        yield


def run_plainly(code: str, image: Image.Image, folder: Path) -> tuple[str, Any]:
    image.save(folder / "input.png")
    names: dict[str, Any] = {
        "__name__": "__main__", "image": image.copy(), "np": np, "math": math, "Image": Image, "ImageDraw": ImageDraw,
        "ImageEnhance": ImageEnhance, "ImageFilter": ImageFilter, "ImageFont": ImageFont, "ImageOps": ImageOps,
    }  # fmt: skip
    text = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(text), settings_of_its_own(code):
        try:
            exec(compile(code, "<plain>", "exec"), names)
        except SystemExit:
            pass  # exit() ends a program, not the test
    return text.getvalue(), names.get("result")


@pytest.mark.parametrize("name", by_cost(PROGRAMS))
def test_equals_plain_python(name: str, session: Session, image: Image.Image, tmp_path: Path) -> None:
    code = PROGRAMS[name]
    skip_without_libraries(code)
    text, result = run_plainly(code, image, tmp_path)
    execution = session.run(code)
    assert execution.error is None
    assert execution.stop == "ok"
    assert execution.stdout == text
    assert execution.repairs == ()
    if result is None:
        assert execution.images == ()
    else:
        (shown,) = execution.images
        assert shown.mode == "RGB"
        assert shown.size == result.size
        assert shown.tobytes() == result.convert("RGB").tobytes()


def test_ready_names(session: Session) -> None:
    code = (
        "print(image.size == img.size == images[0].size, image_path, image_filename)\n"
        "print(math.floor(2.5), np.ones(2).sum())\n"
        "draw.rectangle((0, 0, 3, 3), fill='red')\nprint(image.getpixel((1, 1)))\n"
        "print(Image.new('RGB', (2, 2)).size, ImageOps.invert(image).size, ImageFont.load_default() is not None)"
    )
    execution = session.run(code)
    assert execution.error is None
    assert execution.stdout == "True input.png input.png\n2 2.0\n(255, 0, 0)\n(2, 2) (160, 120) True\n"


def test_every_kind_of_worker_lists_the_same_modules(session: Session) -> None:
    libraries = [name for name in ("cv2", "matplotlib", "scipy", "sympy") if importlib.util.find_spec(name)]
    for code in ("import nothing_like_it", "import math, re\nx = 'cv2'\nimport nothing_like_it"):
        listed = str(session.run(code).error).partition("available are ")[2].partition(". ")[0].partition(" (")[0]
        names = listed.rstrip(".").split(", ")
        assert {"PIL", "numpy", "math", *libraries} <= set(names) and len(names) == len(set(names)), listed


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("result = image.croop((0, 0, 5, 5))", "has no attribute 'croop'"),
        ("x = 1\ny = x / 0", "line 2: y = x / 0"),
        ("def f(:\n  pass", "SyntaxError"),
        ("import os\nos.system('ls')", "no other programs can be started"),
        ("import torch", "use numpy"),
        ("import requests.adapters", "there is no network"),
        ("import os\nos.remove('a.png')", "they end with the episode"),
        ("np.int(3)", "use int"),
        ("bytes(np.array([image, 1], dtype=object))", "addresses"),
        ("print(bytearray(np.array([None])))", "convert it first, as in array.astype(float)"),
        ("class A(np.ndarray):\n    pass", "derived from this one here: keep an object of it as an attribute"),
        ("import requests", "there is no network"),
        ("import nothing_like_it", "available are"),
        ("open('a.txt').read()", "there is no file 'a.txt' here. Files: input.png"),
        ("open('a.txt', 'w').write('a' * 3_000_000)", "2 MiB together"),
        ("Image.open('other.png')", "Files: input.png"),
        ("async def f():\n    async with f():\n        pass", "write a plain with statement"),
        ("eval('1 + 1')", "write the expression itself"),
        ("image.crop((5, 5, 5, 5)).save('a.png')", "check the crop box"),
        ("image.save('a.doc')", "unknown file extension"),
        ("image.convert('RGBA').save('a.jpg')", "cannot write mode RGBA as JPEG"),
        ("print(undefined_name)", "undefined_name"),
        ("def f(n):\n    return f(n + 1)\nf(0)", "RecursionError"),
        ("show(3)", "show() takes images"),
        ("np.zeros(3).resize(5)", "use np.resize"),
        ("np.load('a.npy')", "there is no file 'a.npy' here"),
        ("Image.open(open('a.png', 'w'))", "file name must be text"),
        ("ImageFont.truetype('font.bin')", "cannot open resource"),
    ],
)
def test_errors_say_what_to_do(code: str, says: str, session: Session) -> None:
    execution = session.run(code)
    assert execution.stop in ("error", "refused", "result")
    assert execution.error is not None and says in execution.error
    assert session.run("print('next')").stdout == "next\n"


@pytest.mark.parametrize("name", ["crop", "crop.v2", "crop.png"])
@pytest.mark.parametrize("argument", ["'PNG'", "format='png'", "'JPEG'", "'jpg'"])
def test_a_format_that_is_given_needs_no_extension(name, argument, session):
    execution = session.run(f"image.crop((5, 5, 25, 20)).save('{name}', {argument})\nprint('{name}')")
    assert execution.error is None and execution.names == (name,) and execution.images[0].size == (20, 15)


def test_a_format_that_is_given_counts(session):
    assert session.run("image.convert('RGBA').save('a.jpg', 'PNG')").error is None
    assert "mode RGBA as JPEG" in session.run("image.convert('RGBA').save('a', 'JPEG')").error
    assert "unknown file extension" in session.run("image.save('a', 'EPS')").error


def test_a_program_may_handle_that_an_empty_image_cannot_be_saved(session: Session) -> None:
    code = "try:\n    image.crop((5, 5, 5, 5)).save('a.png')\nexcept ValueError as error:\n    print(error)"
    execution = session.run(code)
    assert (execution.stop, execution.error) == ("ok", None) and "check the crop box" in execution.stdout


@pytest.mark.parametrize(
    ("code", "stdout", "repair"),
    [
        ("    x = 1\n    print(x)", "1\n", "indentation removed"),
        ("x = 1\n    print(x)", "1\n", "indentation removed"),
        ("print(1,\u00a02)", "1 2\n", "no-break spaces replaced"),
        ("print(Image.open('/mnt/input.png').size)", "(160, 120)\n", "path '/mnt/input.png' read as 'input.png'"),
        ("print(re.sub('a', 'b', 'a'))", "b\n", "module re imported as re"),
        ("print(ImageFont.truetype('/x/Arial.ttf', 20).size)", "20\n", "font 'Arial.ttf' read as Pillow's own"),
        ("image.save('/x/a.png')\nprint(Image.open('a.png').width)", "160\n", "path '/x/a.png' saved as 'a.png'"),
    ],
)  # fmt: skip
def test_repairs_are_reported(code: str, stdout: str, repair: str, session: Session) -> None:
    execution = session.run(code)
    assert (execution.stop, execution.stdout, execution.repairs) == ("ok", stdout, (repair,))


@pytest.mark.parametrize(
    ("kind", "code", "says"),
    [
        ("indentation", "    x = 1", "IndentationError"),
        ("paths", "Image.open('/mnt/input.png')", "no file '/mnt/input.png' here. Files: input.png"),
        ("paths", "image.save('/x/a.png')", "save as 'a.png'"),
        ("imports", "re.sub('a', 'b', 'a')", "name 're' is not defined"),
    ],
)
def test_repairs_can_be_switched_off(kind: str, code: str, says: str, box: Sandbox, image: Image.Image) -> None:
    others = [other for other in REPAIRS if other != kind]
    for repairs, stop in ((others, "error"), ([kind], "ok")):
        with box.session({"input.png": image}, repairs=repairs) as session:
            execution = session.run(code)
            assert execution.stop == stop
            assert stop == "ok" or (says in str(execution.error) and execution.repairs == ())
            assert session.run("image.save('./a.png')\nprint(Image.open('./input.png').width)").stdout == "160\n"
    with pytest.raises(ConfigError, match="repairs"):
        box.session({}, repairs=["spelling"])


def test_a_saved_file_does_not_change_with_the_image_it_was_saved_from(session: Session) -> None:
    changes = (
        "image.putpixel((0, 0), (1, 2, 3))", "image.load()[0, 0] = (1, 2, 3)", "image.paste((1, 2, 3), (0, 0, 9, 9))",
        "ImageDraw.Draw(image).rectangle((0, 0, 9, 9), fill=(1, 2, 3))", "image.thumbnail((50, 50))",
        "image.putalpha(3)", "image.putdata([(1, 2, 3)] * 19200)",
    )  # fmt: skip
    for change in changes:
        execution = session.run(
            f"b = np.array(image)\nimage.save('a.png')\n{change}\nimage.save('b.png')\n"
            "print((np.array(Image.open('a.png')) == b).all(), np.array_equal(np.array(Image.open('b.png')), b))"
        )
        assert execution.stdout == "True False\n", (change, execution)


def test_output_is_the_same_every_time(box: Any, image: Image.Image) -> None:
    code = (
        "import random\nprint(random.random(), np.random.rand(), np.random.default_rng().random(), {'b', 'a', 'c'})\n"
        "print(object(), lambda: 1)"
    )
    texts = []
    for seed in (1, 1, 2):
        with box.session({"input.png": image}, seed=seed) as session:
            texts.append(session.run(code).stdout)
    assert texts[0] == texts[1] != texts[2]
    assert "0x" not in texts[0]


def test_other_libraries_follow_the_seed(box: Any, image: Image.Image) -> None:
    for library in ("scipy", "skimage", "sympy"):
        pytest.importorskip(library)
    code = (
        "from scipy import stats, optimize\nfrom scipy.cluster.vq import kmeans2\nfrom skimage import util\n"
        "import sympy\n"
        "print(stats.norm.rvs(size=3), kmeans2(np.arange(40.0).reshape(20, 2), 3, minit='random', iter=1)[0])\n"
        "print(optimize.differential_evolution(lambda v: float(np.sin(v[0])), [(0, 100)], maxiter=1).x)\n"
        "print(util.random_noise(np.zeros((2, 2))), sympy.randprime(1, 10**6), sympy.randMatrix(2))\n"
        "print(Image.effect_noise((3, 3), 50).tobytes())"
    )
    lines = []
    for seed in (1, 1, 2):
        with box.session({"input.png": image}, seed=seed) as session:
            execution = session.run(code)
            assert execution.error is None
            lines.append(execution.stdout)
    assert lines[0] == lines[1]
    assert lines[0] != lines[2]


def test_settings_end_with_the_run(session: Session) -> None:
    change = "np.set_printoptions(precision=2)\nimport decimal\ndecimal.getcontext().prec = 3\nprint(np.array([1 / 3]))"
    read = "import decimal\nprint(np.array([1 / 3]), decimal.Decimal(1) / 3)"
    assert session.run(change).stdout == "[0.33]\n"
    assert session.run(read).stdout == "[0.33333333] 0.3333333333333333333333333333\n"


@pytest.mark.parametrize(
    "code",
    [
        "show(image.convert('LAB'))",
        "lab = list(image.convert('LAB').split())\nshow(Image.merge('LAB', lab).convert('RGB'))",
        "import matplotlib.pyplot as plt\nplt.tricontourf([0, 1, 1], [0, 0, 1], [1, 2, 3])\nplt.show()",
        "import matplotlib.pyplot as plt\nplt.triplot([0, 1, 1], [0, 0, 1])\nplt.show()",
        "import matplotlib.pyplot as plt\naxes = plt.figure().add_subplot(projection='3d')\n"
        "axes.plot_trisurf([0, 1, 1, 0], [0, 0, 1, 1], [1, 2, 3, 4])\nplt.show()",
        "from scipy.cluster import hierarchy\nimport matplotlib.pyplot as plt\n"
        "hierarchy.dendrogram(hierarchy.linkage(np.random.rand(9, 2)))\nplt.show()",
    ],
)
def test_libraries_find_what_they_load_when_it_is_needed(code: str, session: Session) -> None:
    for library in ("matplotlib", "scipy"):
        if library in code:
            pytest.importorskip(library)
    execution = session.run(code)
    assert (execution.error, len(execution.images)) == (None, 1)


@pytest.mark.parametrize(
    "code",
    [
        "show(image, title='crop')",
        "show(image, 'crop')",
        "show([image], ['The crop, v1.0'])",
        "show(image, 'Left half.')",
        "image.show('crop')",
        "image.show(title='crop')",
    ],
)
def test_titles_of_shown_images_are_not_seen(code: str, session: Session) -> None:
    execution = session.run(code)
    assert (execution.error, execution.stdout, len(execution.images)) == (None, "", 1)


@pytest.mark.parametrize("code", ["show('crop')", "show(image, 'crop.png')", "show(['crop'])", "show('crop', image)"])
def test_a_name_that_is_no_title_must_be_that_of_a_file(code: str, session: Session) -> None:
    execution = session.run(code)
    assert execution.error is not None and "there is no file 'crop" in execution.error


def test_a_file_whose_name_could_be_a_title_is_shown(session: Session) -> None:
    execution = session.run("image.resize((9, 9)).save('crop', 'PNG')\nshow(image, 'crop')")
    assert [one.size for one in execution.images] == [(160, 120), (9, 9)]
