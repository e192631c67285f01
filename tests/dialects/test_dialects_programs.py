"""What runs: each family's turns as programs in the real sandbox, and where the pixels they show come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

import codev_env  # noqa: F401 - registers the environments
from codev_agents import LazyCrop, Oracle, run_episode
from codev_env.dialects import Dialect, dialect_names, get_dialect
from codev_env.dialects.codevision import NO_IMAGE
from codev_env.provenance import Tracker
from codev_env.sandbox import Limits, Sandbox
from codev_env.types import Answer, Code, Execution, Region

CODEVISION, DEEPEYES, PYVISION, THYME = map(get_dialect, ("codevision", "deepeyes", "pyvision", "thyme"))
IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8))


class Play:
    """Runs turns as the environment does."""

    def __init__(self, box: Sandbox, dialect: Dialect, inputs: int = 1, trace: bool = True) -> None:
        images = {dialect.image_name(i): IMAGE.rotate(180 * i) for i in range(inputs)}
        self.dialect = dialect
        self.session = box.session(images, persist=dialect.persist, repairs=dialect.repairs)
        self.tracker = Tracker(self.session, images) if trace else None
        self.seen = tuple(images)
        self.regions: tuple[Region, ...] = ()

    def __call__(self, turn: Code | str) -> Execution:
        turn = Code(turn) if isinstance(turn, str) else turn
        program, seen = self.dialect.program(turn, self.seen), self.seen
        execution = self.session.run(program)
        self.regions = self.tracker.trace(program, execution) if self.tracker else ()
        self.seen = (*seen, *execution.names)
        return self.dialect.report(execution, seen)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(Limits(wall_s=2)) as box:
        yield box


def same(image: Image.Image, other: Image.Image) -> bool:
    return image.size == other.size and image.tobytes() == other.tobytes()


@pytest.mark.parametrize("variable", ["result", "output", "processed_image", "img", "image"])
def test_codevision_returns_what_is_assigned(box: Sandbox, variable: str) -> None:
    play = Play(box, CODEVISION)
    execution = play(f"{variable} = image.rotate(90, expand=True)")
    assert execution.error is None
    assert [same(image, IMAGE.rotate(90, expand=True)) for image in execution.images] == [True]
    assert execution.names == ("image_1.png",)
    assert play.regions[0].orientation == "rot90"


def test_codevision_works_on_any_image_so_far(box: Sandbox) -> None:
    play = Play(box, CODEVISION, inputs=2)
    first = play(Code("result = img.crop((10, 20, 110, 120))", image_index=1)).images[0]
    assert same(first, IMAGE.rotate(180).crop((10, 20, 110, 120)))
    assert (play.regions[0].box, play.regions[0].image_index) == ((10, 20, 110, 120), 1)
    failed = play(Code("x = 1\nresult = nowhere", image_index=2))
    assert failed.error == "NameError: name 'nowhere' is not defined (line 2: result = nowhere)"
    second = play(Code("result = image.crop((30, 30, 90, 90))", image_index=2)).images[0]
    assert same(second, first.crop((30, 30, 90, 90)))
    assert play.seen == ("image_0.png", "image_1.png", "image_2.png", "image_3.png")
    # A crop of a crop, in the frame of the original.
    assert (play.regions[0].box, play.regions[0].image_index) == ((40, 50, 100, 110), 1)
    again = play(Code("result = image", image_index=0))
    assert same(again.images[0], IMAGE)
    assert play(Code("result = image", image_index=5)).error == "there is no image 5: there are images 0 to 4"


def test_codevision_counts_images_that_were_only_shown(box: Sandbox) -> None:
    play = Play(box, CODEVISION)
    play("for i in (1, 2):\n    show(image.crop((0, 0, 40 * i, 50)))\nresult = image.crop((5, 5, 95, 90))")
    assert play.seen == ("image_0.png", "", "", "image_1.png")
    for number in (1, 2):
        error = play(Code("result = image", image_index=number)).error
        assert error is not None and error.startswith(f"there is no image {number} to work on: it was only shown")
    assert play(Code("result = image.crop((0, 0, 9, 9))", image_index=3)).images[0].size == (9, 9)


def test_codevision_opens_files_whatever_they_are_called(box: Sandbox) -> None:
    play = Play(box, CODEVISION)
    play("""image.crop((0, 0, 30, 40)).save('a"b.png'); print('a"b.png')""")
    assert play(Code("result = image", image_index=1)).images[0].size == (30, 40)


def test_codevision_draws_in_place_on_a_copy(box: Sandbox) -> None:
    play = Play(box, CODEVISION)
    drawn = play("draw.rectangle((0, 0, 50, 50), fill=(1, 2, 3))").images[0]
    assert drawn.getpixel((10, 10)) == (1, 2, 3)
    assert same(play("result = image").images[0], IMAGE)
    line = play(Code("draw.line((0, 60, 90, 60), fill=(9, 9, 9))\nresult = image", image_index=1)).images[0]
    assert (line.getpixel((10, 10)), line.getpixel((10, 60))) == ((1, 2, 3), (9, 9, 9))


def test_codevision_shows_arrays_and_printed_text(box: Sandbox) -> None:
    play = Play(box, CODEVISION)
    execution = play("a = np.asarray(image)\nprint(a.shape)\nresult = np.fliplr(a)")
    assert execution.stdout == "(200, 300, 3)\n"
    assert same(execution.images[0], IMAGE.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    assert play.regions[0].orientation == "flip_h"
    only_text = play("print(image.size)\ndef f():\n    result = image\nlambda output: output")
    assert (only_text.stdout, only_text.images, only_text.error) == ("(300, 200)\n", (), None)
    assert CODEVISION.render(only_text, 0).startswith("<tool_response>\n(300, 200)\n")


@pytest.mark.parametrize(
    "code", ["result = 5", "result = None", "if image.width < 0:\n    result = image", "output = 'a'"]
)
def test_codevision_says_that_no_image_was_assigned(box: Sandbox, code: str) -> None:
    play = Play(box, CODEVISION)
    execution = play(code)
    assert (execution.error, execution.images, play.seen) == (NO_IMAGE, (), ("image_0.png",))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("result = image.crop((5, 5, 5, 9))", "an image of 0x4 pixels cannot be saved: check the crop box."),
        ("x = 1\nfor i in range(2):\nresult = image", "on line 2 (line 3: result = image)"),
        ("raise ValueError('line 7')", "ValueError: line 7 (line 1: raise ValueError('line 7'))"),
        ("import os.path2", "(line 1: import os.path2)"),
    ],
)
def test_codevision_tells_errors_in_the_lines_of_the_code(box: Sandbox, code: str, error: str) -> None:
    execution = Play(box, CODEVISION)(code)
    assert execution.error is not None
    assert execution.error.endswith(error)
    assert "image_1.png" not in execution.error


@pytest.mark.parametrize("code", ["(" * 1000, "x = " + "-" * 2000 + "1", "\0", "class", "[" * 90 + "]" * 90])
def test_any_code_becomes_a_program(box: Sandbox, code: str) -> None:
    for dialect in (CODEVISION, PYVISION, THYME):
        assert isinstance(dialect.program(Code(code), [dialect.image_name(0)]), str)
    assert Play(box, CODEVISION)(code).images == ()


@pytest.mark.integration
def test_pyvision_variables_live_on(box: Sandbox) -> None:
    pytest.importorskip("matplotlib")
    play = Play(box, PYVISION, inputs=2, trace=False)
    assert play(
        "print(image_clue_0.size, image_clue_1.getpixel((0, 0)) == image_clue_0.getpixel((299, 199)))"
    ).stdout == ("(300, 200) True\n")
    play("image_clue_0 = image_clue_0.resize((30, 20))\nsmall = 7")
    assert play("print(image_clue_0.size, small)").stdout == "(30, 20) 7\n"
    shown = play("for i in range(2):\n    plt.figure()\n    plt.imshow(image_clue_1)\n    plt.show()")
    assert shown.names == ("image_clue_2", "image_clue_3")
    assert "<image_clue_2><image></image_clue_2>\n<image_clue_3><image></image_clue_3>" in PYVISION.render(shown, 2)
    assert play("plt.imshow(image_clue_0)\nplt.show()").names == ("image_clue_4",)
    assert play("x = 1\nprint(image_clue_2)").error == (
        "NameError: name 'image_clue_2' is not defined (line 2: print(image_clue_2))"
    )
    # Whatever ended the process took the variables with it, but not the inputs.
    assert play("while True: pass").stop == "timeout"
    assert play("print(image_clue_0.size)").stdout == "(300, 200)\n"


def test_pyvision_shows_a_crop_pixel_for_pixel(box: Sandbox) -> None:
    pytest.importorskip("matplotlib")
    play = Play(box, PYVISION)
    execution = play(PYVISION.crop((10, 20, 110, 93)))
    assert [same(image, IMAGE.crop((10, 20, 110, 93))) for image in execution.images] == [True]
    assert play.regions[0].box == (10, 20, 110, 93)


def test_thyme_repairs_what_its_own_sandbox_repairs(box: Sandbox) -> None:
    play = Play(box, THYME)
    execution = play(
        '    path = "/data/user/input.png"\n    cut = Image.open(path).crop((0, 0, 64, 64))\n'
        '    cut.save("/mnt/data/temp_processed_images/cut.png")\n    print("/mnt/data/temp_processed_images/cut.png")'
    )
    assert execution.error is None
    assert same(execution.images[0], IMAGE.crop((0, 0, 64, 64)))
    assert len(execution.repairs) == 3
    assert play("print(cut.size)").stdout == "(64, 64)\n"


@pytest.mark.parametrize(
    ("box_2d", "shown"),
    [
        ((10, 20, 110, 120), (10, 20, 110, 120)),
        ((-50, -9, 60, 70), (0, 0, 60, 70)),
        ((250, 150, 999, 999), (250, 150, 300, 200)),
        ((10.4, 20.6, 110.2, 119.8), (10, 21, 110, 120)),
        ((0, 0, 31, 200), (0, 0, 31, 200)),
    ],
)
def test_deepeyes_crops_and_clamps(
    box: Sandbox, box_2d: tuple[float, float, float, float], shown: tuple[int, int, int, int]
) -> None:
    text = f'<tool_call>{{"name": "image_zoom_in_tool", "arguments": {{"bbox_2d": {list(box_2d)}}}}}</tool_call>'
    turn = DEEPEYES.parse(text)
    assert isinstance(turn, Code)
    play = Play(box, DEEPEYES)
    assert same(play(turn).images[0], IMAGE.crop(shown))
    assert play.regions[0].box == shown


@pytest.mark.parametrize(
    "box_2d", [(0, 0, 30, 100), (0, 0, 100, 30), (100, 0, 50, 90), (400, 0, 500, 90), (5, 5, 5, 5), (290, 0, 999, 200)]
)
def test_deepeyes_refuses_thin_boxes(box: Sandbox, box_2d: tuple[int, int, int, int]) -> None:
    execution = Play(box, DEEPEYES)(DEEPEYES.crop(box_2d))
    assert execution.error == "within the image the box must be wider and higher than 30 pixels"
    assert execution.images == ()


def test_deepeyes_refuses_long_boxes(box: Sandbox) -> None:
    with box.session({"image_0.png": Image.new("RGB", (4000, 60))}, repairs=()) as session:
        execution = DEEPEYES.report(session.run(DEEPEYES.crop((0, 0, 3500, 34)).code), [])
    assert execution.error == "one side of the box is more than 100 times as long as the other"


@pytest.mark.parametrize("name", dialect_names())
def test_scripted_agents_play_in_every_dialect(name: str) -> None:
    if name == "pyvision":
        pytest.importorskip("matplotlib")
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", dialect=name, disable_env_checker=True)
    for index in range(3):
        played = run_episode(env, Oracle(), options={"index": index})
        assert (played.is_correct, played.is_faithful, played.stop_reason) == (True, True, "answer")
        assert [turn.error for turn in played.turns] == [None, None]
        lazy = run_episode(env, LazyCrop(), options={"index": index})
        assert not lazy.is_faithful
        assert lazy.turns[0].images[0].size == lazy.images[0].size
    env.close()


def test_the_environment_numbers_images_through_the_episode() -> None:
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", dialect="codevision", disable_env_checker=True)
    for _ in range(2):  # the numbers start again with each episode
        env.reset(options={"index": 0})
        for number in range(3):
            code = f"result = image.crop((10, 10, {300 - 50 * number}, 300))"
            observation, _, _, _, info = env.step(CODEVISION.write(Code(code, image_index=number)))
            assert len(observation["images"]) == 1, observation["text"]
        assert info["crop_boxes"] == ((30, 30, 220, 300),)
    assert env.step(CODEVISION.write(Answer("0")))[2]
    env.close()


def test_the_dialect_in_the_documentation_plays() -> None:
    page = (Path(__file__).parents[2] / "docs" / "dialects.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```\n", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "dialects.md", "exec"), names)
    env = gym.make("CodeV-VStar-v0", data="synthetic", scenes="toy", dialect=names["Plain"](), disable_env_checker=True)
    played = run_episode(env, Oracle(), options={"index": 0})
    assert (played.is_correct, played.is_faithful) == (True, True)
    env.close()


@pytest.mark.parametrize("dialect", [CODEVISION, PYVISION, THYME], ids=lambda one: one.name)
def test_a_refused_program_is_told_the_lines_of_its_own_code(box: Sandbox, dialect: Dialect) -> None:
    found = Play(box, dialect, trace=False)("from math import *\nx = 1\nx.__class__\nprint('line 7: ')")
    assert found.stop == "refused" and found.error is not None
    assert [line.partition(":")[0] for line in found.error.splitlines()] == ["line 1", "line 3"]
