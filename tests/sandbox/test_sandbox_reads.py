"""What an execution says of the episode's files: those of earlier runs that it read, and those that it saved."""

from __future__ import annotations

import pytest
from PIL import Image

from codev_env.sandbox import Limits, Sandbox, Session

SAVED = ("a.png", "b.png", "notes.txt")
SAVE = """
image.crop((0, 0, 20, 10)).save('a.png')
image.save('b.png')
open('notes.txt', 'w').write('text')
"""


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("show(image)", ()),
        ("Image.open('a.png')", ("a.png",)),
        ("Image.open('/tmp/a.png')", ("a.png",)),
        ("show('b.png')", ("b.png",)),
        ("print('b.png')", ("b.png",)),
        ("print('saved to b.png')", ()),
        ("result = 'a.png'", ("a.png",)),
        ("print(open('notes.txt').read())", ("notes.txt",)),
        ("from pathlib import Path\nPath('notes.txt').read_text()", ("notes.txt",)),
        ("open('notes.txt', 'a').write('more')", ("notes.txt",)),
        ("open('notes.txt', 'w').write('more')", ()),
        ("try:\n    open('notes.txt', 'x')\nexcept FileExistsError:\n    print('there')", ("notes.txt",)),
        ("Image.open(image_path)", ()),
        ("Image.new('RGB', (9, 9)).save('a.png')\nshow(Image.open('a.png'))", ()),
        ("show(Image.open('a.png'))\nimage.save('a.png')", ("a.png",)),
        ("import os\nos.path.exists('a.png')", ("a.png",)),
        ("import os\nos.path.exists('input.png')", ()),
        ("import os\nos.path.exists('missing.png')", SAVED),
        ("import os\nprint(os.listdir())", SAVED),
        ("import glob\nglob.glob('*.png')", SAVED),
        ("from pathlib import Path\nlist(Path('.').iterdir())", SAVED),
        ("Image.open('missing.png')", SAVED),
        ("image.save('b.png')\nimport os\nos.listdir()", ("a.png", "notes.txt")),
        ("Image.open('a.png')\n1 / 0", ("a.png",)),
        ("x = [0] * 10**10", ()),
        ("while True:\n    pass", SAVED),
        ("import os; os.system('ls')", ()),
        ("show(", ()),
        ("x" * 30_000, ()),
    ],
)
def test_reads(code: str, reads: tuple[str, ...], image: Image.Image) -> None:
    with Sandbox(Limits(wall_s=1.5)) as box, box.session({"input.png": image}) as session:
        session.run(SAVE)
        assert session.run(code).reads == reads


@pytest.mark.parametrize("library", ["cv2", "skimage.io", "imageio", "matplotlib.image"])
def test_libraries_read(library: str, session: Session) -> None:
    pytest.importorskip(library)
    session.run(SAVE)
    execution = session.run(f"import {library} as library\nlibrary.imread('a.png')")
    assert (execution.error, execution.reads) == (None, ("a.png",))


def test_saves(session: Session) -> None:
    assert session.run(SAVE).saves == SAVED
    assert session.run("show(Image.open('a.png'))").saves == ()
    assert session.run("open('b.png.txt', 'w').write('b')\n1 / 0").saves == ("b.png.txt",)
    killed = session.run("image.save('c.png')\nx = [0] * 10**10")
    assert (killed.stop, killed.saves) == ("memory", ("c.png",))
    assert session.run("Image.open('c.png')").reads == ("c.png",)
    image = session.run("image.save('input.png')")
    assert image.saves == ("input.png",)
    assert session.run("Image.open(image_path)").reads == ("input.png",)


def test_a_killed_run_saves_nothing(quick_box: Sandbox, image: Image.Image) -> None:
    with quick_box.session({"input.png": image}) as session:
        assert session.run("image.save('a.png')\nwhile True:\n    pass").saves == ()
        assert session.run("import os\nos.listdir()").reads == ()


def test_variables_may_stem_from_any_file(box: Sandbox, image: Image.Image) -> None:
    with box.session({"input.png": image}, persist="variables") as session:
        assert session.run(SAVE).reads == ()
        assert session.run("show(image)").reads == SAVED


def test_each_view_has_files_of_its_own(session: Session, image: Image.Image) -> None:
    session.add_view("other", {"input.png": image})
    session.run(SAVE)
    assert session.run("import os\nos.listdir()", view="other").reads == ()


def test_files_that_find_no_room_are_no_files(image: Image.Image) -> None:
    with Sandbox(Limits(files_mb=1)) as box, box.session({"input.png": image}) as session:
        large = "Image.new('RGB', (2000, 2000)).save"
        execution = session.run(f"image.save('a.png')\nfor i in range(9):\n    {large}(f'{{i}}.png')")
        assert (execution.stop, execution.saves) == ("result", ())
        execution = session.run("import os\nprint(os.listdir())")
        assert (execution.stdout, execution.reads) == ("['input.png']\n", ())
        assert session.run("image.save('a.png')").saves == ("a.png",)


def test_a_folder_counts_as_a_file_where_an_earlier_run_made_it(session: Session) -> None:
    (folders,) = session.run("import os\nos.makedirs('out')").saves
    save = "image.save('out/a.png')"
    assert (session.run(save).reads, session.run(save).saves) == ((folders,), ("a.png",))
    assert session.run("import os\nos.makedirs('out')\nimage.save('/tmp/b.png')").saves == ("b.png",)
    assert session.run("import os\nos.mkdir('more')").reads == (folders,)
    assert session.run("Image.open('a.png')").reads == ("a.png",)
