"""Views whose images several sessions share: in memory once, read-only, and at no program's cost."""

from __future__ import annotations

import pytest
from PIL import Image

from codev_env.sandbox import Limits, Sandbox

SHOW = "show(Image.open('input.png'))"


@pytest.fixture
def coded() -> Image.Image:
    return Image.effect_noise((300, 200), 60).convert("RGB")


@pytest.fixture
def given(coded: Image.Image) -> dict[str, Image.Image]:
    return {"input.png": coded.rotate(180)}


def test_sessions_read_one_file_that_no_program_changes(coded, given):
    with Sandbox() as box:
        for _ in range(2):
            with box.session(given) as one, box.session(given) as other:
                for session in (one, other):
                    session.add_view("probe", {"input.png": coded}, shared=True)
                one.run("im = Image.open('input.png')\nim.paste((1, 2, 3), (0, 0, 50, 50))\nshow(im)", view="probe")
                one.run("im = Image.open('input.png')\nim.paste((1, 2, 3), (0, 0, 50, 50))\nim.save('input.png')")
                assert other.run(SHOW, view="probe").images == (coded,)
                assert other.run(SHOW).images == (given["input.png"],)
        assert len(box.pool._files) == 2


def test_each_view_keeps_its_own_images(coded, given):
    images = [coded, coded.transpose(Image.Transpose.FLIP_LEFT_RIGHT), coded.point(lambda level: 255 - level)]
    with Sandbox() as box, box.session(given) as session:
        for number, image in enumerate(images):  # More than a worker has room for.
            session.add_view(f"view {number}", {"input.png": image}, shared=True)
        for _ in range(2):
            assert [session.run(SHOW, view=f"view {k}").images for k in range(3)] == [(image,) for image in images]
        session.add_view("view 0", {"input.png": images[1]}, replace=True, shared=True)
        assert session.run(SHOW, view="view 0").images == (images[1],)
        session.add_view("larger", {"input.png": coded.resize((900, 700))}, shared=True)
        assert session.run(SHOW, view="larger").images[0].size == (900, 700)


@pytest.mark.parametrize("isolation", ["episode", "step"])
def test_a_new_worker_finds_them_again(coded, given, isolation):
    with Sandbox(Limits(wall_s=0.7), isolation=isolation) as box, box.session(given) as session:
        session.add_view("probe", {"input.png": coded}, shared=True)
        assert session.run(SHOW, view="probe").images == (coded,)
        assert session.run("while True:\n    pass", view="probe").stop == "timeout"
        assert session.run(SHOW, view="probe").images == (coded,)


def test_they_take_nothing_of_a_programs_memory():
    """A program that gets all of its memory before views are added gets it afterwards."""
    image = Image.new("RGB", (4000, 3000))
    most = "x = bytearray(150 << 20)\nprint('done')"
    with Sandbox(Limits(memory_mb=200, image_pixels=1 << 24)) as box, box.session({"input.png": image}) as session:
        assert session.run(most).stdout == "done\n"
        for number in range(2):
            session.add_view(f"{number}", {"input.png": Image.new("RGB", image.size, (number, 1, 1))}, shared=True)
            assert session.run(most, view=f"{number}").stdout == "done\n"
        assert session.run(most).stdout == "done\n"
