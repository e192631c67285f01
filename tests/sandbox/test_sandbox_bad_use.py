"""Mistakes in using the sandbox: each one raises an error that says what to do, and has no other effect."""

from __future__ import annotations

import io
import os
import threading
from typing import Any

import numpy as np
import pytest
from leaks import leaks
from PIL import Image

from codev_env.errors import ConfigError, SandboxError
from codev_env.sandbox import Limits, Sandbox, Session

# A session


def test_a_closed_session_says_so_and_closing_again_is_nothing(box: Sandbox, image: Image.Image) -> None:
    session = box.session({"input.png": image})
    session.close()
    session.close()
    for use in (lambda: session.run("pass"), lambda: session.add_view("probe", {"input.png": image})):
        with pytest.raises(SandboxError, match="this session is closed; open a new one with Sandbox.session"):
            use()


@pytest.mark.parametrize("code", [None, b"pass", 5, ["pass"]])
def test_code_must_be_text(session: Session, code: Any) -> None:
    with pytest.raises(TypeError, match=f"code must be text, not {type(code).__name__}"):
        session.run(code)
    assert session.run("print(1)").stdout == "1\n"


def test_code_over_the_limit_is_the_programs_failure_and_names_the_limit(session: Session) -> None:
    allowed = Limits().code_chars
    execution = session.run("#" * (allowed + 1))
    assert execution.stop == "refused"
    assert execution.error == f"the code has {allowed + 1} characters; {allowed} are allowed."
    assert session.run("#" * allowed).stop == "ok"


@pytest.mark.parametrize("code", ["print(1)\0", "print('\ud800')"])
def test_text_that_is_no_program_is_the_programs_failure(session: Session, code: str) -> None:
    execution = session.run(code)
    assert execution.stop in ("error", "refused") and execution.error
    assert session.run("print(1)").stdout == "1\n"


@pytest.mark.parametrize("view", ["nope", None, ""])
def test_the_error_for_an_unknown_view_lists_the_known_ones(session: Session, view: Any) -> None:
    session.add_view("probe", {"input.png": Image.new("RGB", (4, 4))})
    with pytest.raises(SandboxError, match="there is no view .* Views: main, probe; see add_view"):
        session.run("pass", view=view)


@pytest.mark.parametrize("name", ["main", "probe"])
def test_a_view_cannot_be_added_twice_and_keeps_its_images(session: Session, name: str) -> None:
    session.add_view("probe", {"input.png": Image.new("RGB", (4, 4))})
    sizes = [session.run("print(image.size)", view=view).stdout for view in ("main", "probe")]
    with pytest.raises(SandboxError, match=f"the view '{name}' exists already; choose another name"):
        session.add_view(name, {"input.png": Image.new("RGB", (9, 9))})
    assert [session.run("print(image.size)", view=view).stdout for view in ("main", "probe")] == sizes


def test_a_view_that_does_not_fit_names_the_limit(image: Image.Image) -> None:
    with Sandbox(Limits(files_mb=1)) as box, box.session({"input.png": image}) as session:
        with pytest.raises(SandboxError, match=r"no room for the view 'probe': raise limits.files_mb=1"):
            session.add_view("probe", {"input.png": Image.new("RGB", (2000, 2000))})
        assert session.run("print(image.size)").stdout == "(160, 120)\n"


def test_threads_in_one_session_take_turns_and_each_gets_its_own_answer(session: Session) -> None:
    answers: dict[int, str] = {}

    def run(number: int) -> None:
        for _ in range(5):
            answers[number] = answers.get(number, "") + session.run(f"print({number})").stdout

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: f"{number}\n" * 5 for number in range(8)}


# Images


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0)])
def test_an_image_without_pixels_is_refused(box: Sandbox, size: tuple[int, int]) -> None:
    with pytest.raises(SandboxError, match=rf"image 'a.png' has {size[0]}x{size[1]} pixels; it must not be empty"):
        box.session({"a.png": Image.new("RGB", size)})


@pytest.mark.parametrize("thing", [b"PNG", "a.png", None, np.zeros((4, 4, 3), np.uint8)])
def test_what_is_no_image_is_refused_by_its_type(box: Sandbox, thing: Any) -> None:
    with pytest.raises(SandboxError, match=f"image 'a.png' is a {type(thing).__name__}; a PIL image is needed"):
        box.session({"a.png": thing})


@pytest.mark.parametrize("name", ["", "a/b.png", "/etc/passwd", "a" * 101 + ".png", None, 5, b"a.png"])
def test_a_name_that_is_no_bare_file_name_is_refused(box: Sandbox, image: Image.Image, name: Any) -> None:
    with pytest.raises(SandboxError, match="a bare file name such as 'input.png' is needed"):
        box.session({name: image})


@pytest.mark.parametrize("names", [("A.png", "a.png"), ("\u00e9.png", "e\u0301.png"), ("a", "a.png"), (" ", "  ")])
def test_names_that_look_alike_are_two_files(box: Sandbox, names: tuple[str, str]) -> None:
    images = {name: Image.new("RGB", (width, 2)) for width, name in enumerate(names, 3)}
    with box.session(images) as session:
        code = "print([Image.open(name).width for name in " + repr(list(names)) + "])"
        assert session.run(code).stdout == "[3, 4]\n"


@pytest.mark.parametrize(
    ("mode", "color", "seen"),
    [
        ("1", 1, "RGB (255, 255, 255)"),
        ("L", 7, "L 7"),
        ("LA", (7, 200), "RGBA (7, 7, 7, 200)"),
        ("P", 0, "RGB (0, 0, 0)"),
        ("RGBA", (1, 2, 3, 4), "RGBA (1, 2, 3, 4)"),
        ("CMYK", (0, 0, 0, 0), "RGB (255, 255, 255)"),
        ("YCbCr", (255, 128, 128), "RGB (255, 255, 255)"),
        ("HSV", (0, 255, 255), "RGB (255, 0, 0)"),
    ],
)
def test_an_image_of_a_mode_that_can_be_shown_is_shown(box: Sandbox, mode: str, color: Any, seen: str) -> None:
    with box.session({"a.png": Image.new(mode, (3, 2), color)}) as session:
        execution = session.run("print(image.mode, image.getpixel((0, 0)))\nshow(image)")
        assert (execution.stop, execution.stdout) == ("ok", f"{seen}\n")
        assert execution.images[0].mode == "RGB" and execution.images[0].size == (3, 2)


def test_a_palette_with_a_transparent_color_keeps_its_colors(box: Sandbox) -> None:
    image = Image.new("RGB", (4, 4), (10, 200, 30)).convert("P", palette=Image.Palette.ADAPTIVE)
    image.info["transparency"] = 0
    with box.session({"a.gif": image}) as session:
        assert session.run("print(image.getpixel((0, 0))[:3])").stdout == "(10, 200, 30)\n"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F", "I;16"])
def test_a_result_of_any_mode_that_converts_is_handed_over_as_rgb(session: Session, mode: str) -> None:
    execution = session.run(f"show(image.convert({mode!r}))")
    assert execution.stop == "ok" and [shown.mode for shown in execution.images] == ["RGB"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("show(image.crop((5, 5, 5, 9)))", "0x4 pixels cannot be handed over: check the crop box"),
        ("show(image.resize((1000, 2)))", "sides may differ by a factor of 100 at most"),
        ("show(np.zeros((4, 4, 5)))", "an array of shape (4, 4, 5) is no image: (height, width)"),
        ("show(np.full((4, 4), np.nan))", "an array that holds NaN or infinity is no image"),
        ("show(None)", "show() takes images, not NoneType"),
        ("show('nope.png')", "there is no file 'nope.png' here. Files: input.png"),
    ],
)
def test_a_result_that_is_no_image_says_what_is_wrong(session: Session, code: str, says: str) -> None:
    execution = session.run(code)
    assert execution.stop in ("result", "error") and says in (execution.error or "") and not execution.images


@pytest.mark.parametrize("kind", ["closed", "cut PNG", "cut JPEG"])
def test_an_image_that_cannot_be_read_costs_no_descriptor(box: Sandbox, kind: str) -> None:
    broken = Image.new("RGB", (4, 4))
    if kind == "closed":
        broken.close()
    else:
        file = io.BytesIO()
        noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
        Image.fromarray(noise).save(file, kind.split()[1])
        broken = Image.open(io.BytesIO(file.getvalue()[:3000]))

    def use() -> None:
        with pytest.raises((SandboxError, OSError, ValueError), match="closed|truncated"):
            box.session({"a.png": broken})

    assert leaks(use) <= 0


# A sandbox


def test_a_closed_sandbox_says_so_and_its_open_sessions_go_on(image: Image.Image) -> None:
    box = Sandbox()
    with box.session({"input.png": image}) as session:
        box.close()
        box.close()
        for use in (lambda: box.session({"input.png": image}), box.describe):
            with pytest.raises(SandboxError, match="this sandbox is closed; make a new Sandbox"):
                use()
        assert session.run("print(image.size)").stdout == "(160, 120)\n"


@pytest.mark.parametrize("isolation", ["steps", "", None, []])
def test_an_unknown_isolation_lists_the_known_ones(isolation: Any) -> None:
    with pytest.raises(ConfigError, match="unknown isolation .* Known: episode, step"):
        Sandbox(isolation=isolation)


def test_an_unknown_way_to_persist_lists_the_known_ones(box: Sandbox, image: Image.Image) -> None:
    with pytest.raises(ConfigError, match="unknown persist 'variable'. Did you mean 'variables'"):
        box.session({"input.png": image}, persist="variable")  # type: ignore[arg-type]
    with Sandbox(isolation="step") as strict, pytest.raises(ConfigError, match="with isolation='step'.*Known: images"):
        strict.session({"input.png": image}, persist="variables")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("wall_s", "5", "a number above 0 is needed"),
        ("wall_s", -1, "a number above 0 is needed"),
        ("wall_s", float("nan"), "a number above 0 is needed"),
        ("wall_s", float("inf"), "a number above 0 is needed"),
        ("cpu_s", None, "a number above 0 is needed"),
        ("images", 2.5, "a whole number is needed"),
        ("images", True, "a number above 0 is needed"),
        ("files_mb", 0, "a number above 0 is needed"),
        ("memory_mb", 10, "at least 64 MiB are needed"),
    ],
)
def test_a_limit_that_cannot_be_names_itself(name: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"limits\.{name}={value!r}: {says}"):
        Limits(**{name: value})


def test_any_whole_number_is_a_seed(box: Sandbox, image: Image.Image) -> None:
    drawn = []
    for seed in (0, -1, 10**30, 0):
        with box.session({"input.png": image}, seed=seed) as session:
            drawn.append(session.run("import random\nprint(random.random(), np.random.rand())").stdout)
    assert all(drawn) and drawn[0] == drawn[3] and len(set(drawn)) == 3


@pytest.mark.parametrize("images", [None, [], [Image.new("RGB", (4, 4))], Image.new("RGB", (4, 4))])
def test_images_without_names_are_refused(box: Sandbox, session: Session, images: Any) -> None:
    for use in (lambda: box.session(images), lambda: session.add_view("probe", images)):
        with pytest.raises(SandboxError, match=r"images by file name are needed, as in {'input.png': image}"):
            use()


@pytest.mark.parametrize("name", [".", "..", "a\\b.png", "a\0.png", "a\n.png", "\ud800.png"])
def test_a_name_that_no_line_can_name_is_refused(box: Sandbox, image: Image.Image, name: str) -> None:
    with pytest.raises(SandboxError, match="a bare file name such as 'input.png' is needed"):
        box.session({name: image})


@pytest.mark.parametrize("mode", ["I", "F", "I;16", "I;16B", "La"])
def test_an_image_whose_values_have_no_known_range_is_refused(box: Sandbox, mode: str) -> None:
    with pytest.raises(SandboxError, match=f"image 'a.png' has mode {mode}.*scale them to 0..255"):
        box.session({"a.png": Image.new(mode, (4, 4))})


@pytest.mark.parametrize("seed", ["1", 1.5, None])
def test_a_seed_must_be_a_whole_number(box: Sandbox, image: Image.Image, seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed=.*: a whole number is needed"):
        box.session({"input.png": image}, seed=seed)


def test_a_seed_of_numpy_is_the_same_number(box: Sandbox, image: Image.Image) -> None:
    drawn = []
    for seed in (3, np.int64(3)):
        with box.session({"input.png": image}, seed=seed) as session:
            drawn.append(session.run("import random\nprint(random.random())").stdout)
    assert drawn[0] and drawn[0] == drawn[1]


@pytest.mark.parametrize("limits", [{"wall_s": 5}, 5, Limits])
def test_limits_must_be_limits(limits: Any) -> None:
    with pytest.raises(ConfigError, match=r"pass Limits\(...\)"):
        Sandbox(limits)


@pytest.mark.parametrize("allow", ["no", 1, None])
def test_whether_weaker_layers_will_do_is_said_plainly(allow: Any) -> None:
    with pytest.raises(ConfigError, match="allow_weaker=.*: True or False is needed"):
        Sandbox(allow_weaker=allow)


@pytest.mark.parametrize(("name", "value"), [("wall_s", 1e11), ("aspect", 0.5)])
def test_a_limit_that_means_nothing_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"limits\.{name}="):
        Limits(**{name: value})


@pytest.mark.parametrize("name", ["", None, 5, []])
def test_a_view_needs_a_name(session: Session, image: Image.Image, name: Any) -> None:
    with pytest.raises(SandboxError, match="view name .*: text is needed"):
        session.add_view(name, {"input.png": image})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_cannot_use_a_session_and_does_its_owner_no_harm(session: Session) -> None:
    assert session.run("pass").stop == "ok"
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            session.close()
            session.run("print('child')")
            os.write(writer, b"it ran")
        except SandboxError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader, "rb") as file:
        assert b"opened by another process; open one in the process that uses it" in file.read()
    assert session.run("print('parent')").stdout == "parent\n"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("image.crop(1, 2, 3, 4)", "TypeError: crop() takes from 1 to 2 positional arguments but 5 were given"),
        ("image.save()", "TypeError: save() missing 1 required positional argument: 'fp'"),
        ("image.filter()", "TypeError: filter() missing"),
        ("image.show(titel='x')", "TypeError: show() got an unexpected keyword argument 'titel'"),
        ("show(image, titel='x')", "TypeError: show() got an unexpected keyword argument 'titel'"),
        ("image.getdata(1, 2)", "TypeError: getdata() takes"),
        ("image.frombytes()", "TypeError: frombytes() missing"),
        ("Image.open()", "TypeError: open() missing"),
        ("Image.fromarray()", "TypeError: fromarray() missing"),
        ("open()", "TypeError: open() missing"),
        ("getattr(1)", "TypeError: getattr() missing"),
        ("hash()", "TypeError: hash() missing"),
        ("np.save('a')", "TypeError: save() missing"),
        ("import cv2\ncv2.imread()", "TypeError: imread() missing"),
        ("import time\ntime.sleep()", "TypeError: sleep() missing"),
        ("import os\nos.path.exists()", "TypeError: exists() missing"),
        ("import random\nrandom.seed(1, 2, 3)", "TypeError: seed() takes"),
        ("def _own(a): pass\n_own()", "TypeError: _own() missing"),
    ],
)
def test_messages_name_functions_as_programs_do(session: Session, code: str, says: str) -> None:
    if "cv2" in code:
        pytest.importorskip("cv2")
    assert (session.run(code).error or "").startswith(says)


def test_the_old_name_of_exif_data_names_the_new_one(session: Session) -> None:
    execution = session.run("print(image._getexif())")
    assert execution.stop == "refused" and "use image.getexif()" in (execution.error or "")
