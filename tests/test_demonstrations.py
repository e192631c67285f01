"""Published SFT trajectories: reading, converting and replaying them; small rows in the real formats."""

from __future__ import annotations

import base64
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from codev_env.demonstrations import (
    REASONS,
    Broken,
    Demonstration,
    DemonstrationSet,
    ReplayOptions,
    ReplayRun,
    Unusable,
    plan,
    programs,
    replay,
    summary_table,
)
from codev_env.dialects import get_dialect
from codev_env.envs.base import ImageToolEnv
from codev_env.errors import ConfigError, TaskError
from codev_env.sandbox import Limits, Sandbox
from codev_env.trajectory import read_trajectories

SIZE = (320, 200)
PATH = "/data/temp_processed_images/dvqa_00110792.png"
CROP = f'''\
import cv2
import os
from uuid import uuid4

image_path = "{PATH}"
image = cv2.imread(image_path)
x1, y1, x2, y2 = 10, 20, 110, 70
cropped = image[y1:y2, x1:x2]
processed_path = os.path.join("/mnt/data/temp_processed_images/", f"dvqa_00110792_{{str(uuid4())[:8]}}.jpg")
cv2.imwrite(processed_path, cropped)
print(processed_path)'''
LOOP = "while True:\n    pass"


def picture(size: tuple[int, int] = SIZE, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def base64_of(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def block(code: str) -> str:
    return f"<code>\n```python\n{code}\n```\n</code>"


def thyme_row(*steps: tuple[str, str], answer: str = "B", images: list[str] | None = None, **fields: Any) -> dict:
    """A row of Thyme-SFT: code and output in turn; outputs with a placeholder show a picture of 100 x 50."""
    body = "".join(
        f"\nLook at it.\n{block(code)}\n<sandbox_output>{output}</sandbox_output>\n" for code, output in steps
    )
    shown = sum(output.count("<image>") for _code, output in steps)
    question = (
        f'<image>\nWhat is it?\nA. cat\nB. dog\n\n### User Image Path:** "{PATH}"\n### User Image Size:** "320x200"\n\n'
        "### **Output Format (strict adherence required):**\n\n<think>Your reasoning.</think>\n<answer>…</answer>\n"
    )
    if images is None:
        images = [base64_of(picture()), *[base64_of(picture((100, 50), 1))] * shown]
    response = f"<think>I see a chart.{body}So it is clear.</think>\n<answer>{answer}</answer>"
    return {"image": images, "question": question, "response": response} | fields


def codevision_row(
    folder: Path, *calls: tuple[dict[str, Any], str], answer: str = "park", gold: str | None = "park", shown: int = 0
) -> dict:
    """A row of CodeVision-SFT: arguments of calls and the tool's replies; images are files under `folder`."""
    (folder / "codevision_images").mkdir(exist_ok=True)
    names = []
    for number in range(1 + shown):
        names.append(f"codevision_images/sample0_{number}.png")
        picture(SIZE if number == 0 else (200, 320), number).save(folder / names[-1])
    conversations = [{"from": "human", "value": "<image>What is the shortest word?"}]
    for arguments, reply in calls:
        call = json.dumps({"name": "code_image_tool", "arguments": arguments})
        conversations.append({"from": "gpt", "value": f"<think>Turn it.</think>\n<tool_call>\n{call}\n</tool_call>"})
        conversations.append({"from": "tool", "value": reply})
    conversations.append({"from": "gpt", "value": f"<think>Now I read it.</think>\n<answer>{answer}</answer>"})
    metadata = json.dumps({"sample_id": 0, "transform": "rotate_90", "answer": gold})
    return {"conversations": conversations, "images": names, "metadata": metadata, "system": "You are helpful."}


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def thyme_set(folder: Path, *rows: Any) -> DemonstrationSet:
    return DemonstrationSet("thyme", write_rows(folder / "train.jsonl", list(rows)))


def codevision_set(folder: Path, *rows: dict) -> DemonstrationSet:
    (folder / "codevision_sft.json").write_text(json.dumps(rows))
    return DemonstrationSet("codevision", folder / "codevision_sft.json")


def only(demos: DemonstrationSet) -> Demonstration:
    demo = demos[0]
    assert isinstance(demo, Demonstration), demo
    return demo


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(limits=Limits(wall_s=10)) as found:
        yield found


# ---- reading


def test_a_thyme_row_becomes_a_demonstration(tmp_path):
    demo = only(thyme_set(tmp_path, thyme_row((CROP, "<image>"), ("print(3 * 4)", "12"))))
    assert demo.demo_id == "train-0" and demo.dialect == "thyme"
    assert [image.size for image in demo.images] == [SIZE]
    assert demo.question == "What is it?\nA. cat\nB. dog"
    assert demo.answer == "B" and not demo.is_gold
    assert demo.paths == (PATH,)
    assert [turn.sizes for turn in demo.turns] == [((100, 50),), (), ()]
    assert [turn.printed for turn in demo.turns] == ["", "12", None]
    assert demo.turns[0].text.startswith("<think>I see a chart.") and demo.turns[0].text.endswith("</code>")
    assert demo.turns[2].text.endswith("<answer>B</answer>")


def test_a_thyme_calculation_needs_no_image(tmp_path):
    row = thyme_row(("print(6 * 7)", "42"), images=[], question="What is 6 times 7?")
    assert only(thyme_set(tmp_path, row)).images == ()


def test_a_codevision_row_becomes_a_demonstration(tmp_path):
    call = {"code": "result = image.rotate(90, expand=True)", "description": "Turn.", "image_index": 0}
    demo = only(codevision_set(tmp_path, codevision_row(tmp_path, (call, "<image>Here is the image."), shown=1)))
    assert demo.dialect == "codevision" and demo.question == "What is the shortest word?"
    assert demo.answer == "park" and demo.is_gold
    assert demo.turns[0].sizes == ((200, 320),) and demo.turns[0].output == "Here is the image."
    assert demo.turns[0].printed is None
    assert demo.meta["transform"] == "rotate_90"


BROKEN_THYME = {
    "unreadable_row": lambda: '{"image": [',
    "missing_field": lambda: thyme_row(response=""),
    "unbalanced_tags": lambda: (
        thyme_row((CROP, "<image>")) | {"response": "<think>a <code>b</think><answer>c</answer>"}
    ),
    "turn_order": lambda: thyme_row(response=f"<think>{block('1')}</think><answer>c</answer>"),
    "no_answer": lambda: thyme_row(response="<think>I do not know.</think>"),
    "turn_unreadable": lambda: thyme_row(("", "nothing")),
    "image_count": lambda: thyme_row((CROP, "<image>"), images=[base64_of(picture())]),
    "image_missing": lambda: thyme_row(images=["not/there.png"]),
    "image_broken": lambda: thyme_row(images=[base64_of(picture())[:400]]),
}


@pytest.mark.parametrize("reason", BROKEN_THYME)
def test_broken_thyme_rows_are_told_by_reason(tmp_path, reason):
    demos = thyme_set(tmp_path, thyme_row(), BROKEN_THYME[reason](), thyme_row())
    kinds = [type(row) for row in demos]
    assert kinds == [Demonstration, Broken, Demonstration]
    broken = demos[1]
    assert isinstance(broken, Broken) and broken.reason == reason and broken.reason in REASONS
    assert "line 2" in broken.where and broken.detail


def _conversation(change):
    def make(folder):
        row = codevision_row(folder)
        change(row)
        return row

    return make


BROKEN_CODEVISION = {
    "missing_field": _conversation(lambda row: row.update(conversations=[])),
    "turn_order": _conversation(lambda row: row["conversations"].pop(0)),
    "no_answer": _conversation(lambda row: row["conversations"].append({"from": "tool", "value": "Done."})),
    "unbalanced_tags": _conversation(lambda row: row["conversations"][-1].update(value="<think>x<answer>1</answer>")),
    "image_count": _conversation(lambda row: row["images"].append(row["images"][0])),
    "image_missing": _conversation(lambda row: row.update(images=["codevision_images/gone.png"])),
}


@pytest.mark.parametrize("reason", BROKEN_CODEVISION)
def test_broken_codevision_rows_are_told_by_reason(tmp_path, reason):
    broken = codevision_set(tmp_path, BROKEN_CODEVISION[reason](tmp_path))[0]
    assert isinstance(broken, Broken) and broken.reason == reason


def test_parquet_rows_are_read_the_same(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = [thyme_row((CROP, "<image>")), thyme_row()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "2round-00000-of-00001.parquet")
    demos = DemonstrationSet("thyme", tmp_path / "2round-00000-of-00001.parquet")
    other = thyme_set(tmp_path, *rows)
    assert [demo.demo_id for demo in demos] == ["2round-00000-of-00001-0", "2round-00000-of-00001-1"]
    assert [demo.digest for demo in demos] == [demo.digest for demo in other]


def test_the_digest_covers_text_and_pixels(tmp_path):
    rows = [thyme_row(), thyme_row(answer="A"), thyme_row(images=[base64_of(picture(seed=5))])]
    assert len({demo.digest for demo in thyme_set(tmp_path, *rows)}) == 3


def test_bad_use_is_told(tmp_path):
    with pytest.raises(ConfigError, match="thyme"):
        DemonstrationSet("time", tmp_path)
    with pytest.raises(TaskError, match="no such file"):
        DemonstrationSet("thyme", tmp_path / "none")
    with pytest.raises(TaskError, match="response"):
        DemonstrationSet("thyme", write_rows(tmp_path / "x.jsonl", [{"image": [], "question": "q"}]))


PIECES = "<think> </think> <code> </code> <sandbox_output> </sandbox_output> <answer> </answer> <image> 1 ```".split()


@given(st.lists(st.sampled_from(PIECES), max_size=14))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mix_of_tags_is_a_demonstration_or_a_reason(tmp_path, pieces):
    found = thyme_set(tmp_path, thyme_row(response="".join(pieces) or "x"))[0]
    if isinstance(found, Broken):
        assert found.reason in REASONS
    else:
        kinds = [type(get_dialect("thyme").parse(turn.text)).__name__ for turn in found.turns]
        assert kinds == ["Code"] * (len(kinds) - 1) + ["Answer"]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(["", "gpt", "human", "<image>x", "{"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["from", "value", "bytes", "path", "answer"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("name", ["thyme", "codevision"])
@given(rows=st.lists(st.lists(values, min_size=5, max_size=5), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_of_any_values_are_read_or_told(tmp_path, name, rows):
    fields = ("image", "question", "response") if name == "thyme" else ("conversations", "images", "metadata", "system")
    path = write_rows(tmp_path / "any.jsonl", [dict(zip(fields, row, strict=False)) for row in rows])
    for found in DemonstrationSet(name, path):
        assert not isinstance(found, Broken) or found.reason in REASONS


# ---- converting


def test_files_get_the_names_that_the_prompt_gives(tmp_path):
    planned = plan(only(thyme_set(tmp_path, thyme_row((CROP, "<image>")))))
    assert 'image_path = "input.png"' in planned.texts[0] and PATH not in planned.texts[0]
    assert "uuid" not in planned.texts[0] and "dvqa_00110792_view1.jpg" in planned.texts[0]
    assert set(planned.adaptations) == {"input renamed", "random name replaced"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open('/a/b/7.png')", "open('input.png')"),
        ("open('/other/7.png')", "open('input.png')"),
        ("open('7.png')", "open('input.png')"),
        ("open('/a/17.png')", "open('/a/17.png')"),
        ("open('7.png_cut.png')", "open('7.png_cut.png')"),
    ],
)
def test_rename_file(text, expected):
    assert programs.rename_file(text, "/a/b/7.png", "input.png") == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import uuid\nname = uuid.uuid4().hex", 'name = "view3"'),
        ("from uuid import uuid4\nname = str(uuid4())[:8]", 'name = "view3"'),
        ('import uuid\nname = f"a_{uuid.uuid4().hex[:8]}.png"', 'name = f"a_view3.png"'),
        ("name = 'a'", "name = 'a'"),
    ],
)
def test_random_names(code, expected):
    assert programs.fix_random_names(code, 2)[0] == expected


def test_carry_repeats_what_a_program_needs():
    first = "import cv2\nimage = cv2.imread('input.png')\nx = 3\ncrop = image[0:9, 0:x]\nprint(x)\ncrop.save('a.png')"
    code, names = programs.carry("big = cv2.resize(crop, (90, 90))", [first])
    assert names == ("crop", "cv2")
    assert code.splitlines() == [
        "import cv2", "image = cv2.imread('input.png')", "x = 3", "crop = image[0:9, 0:x]",
        "big = cv2.resize(crop, (90, 90))",
    ]  # fmt: skip
    assert programs.carry("y = 1\nprint(y)", [first]) == ("y = 1\nprint(y)", ())
    assert programs.carry("x += 1\nprint(x)", [first])[0] == "x = 3\nx += 1\nprint(x)"
    assert programs.carry("if x:\n  (", [first]) == ("if x:\n  (", ())


@pytest.mark.parametrize(
    "code", ["nonlocal x\nprint(x)", "-" * 3000 + "x", "return x", "def f():\n    return x\nprint(f())"]
)
def test_carry_copes_with_any_program(code):
    found, _names = programs.carry(code, ["x = 3", code])
    assert found.endswith(code)


def test_what_a_function_reads_is_carried():
    code = "def f(y):\n    return [x + z for z in y]\nprint(f([1]))"
    assert programs.carry(code, ["x = 3\nz = 4\ny = 5"])[1] == ("x",)


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("result = image.crop((0, 0, 9, 9))", 'result.save("v.png")'),
        ("image = ImageOps.flip(image)", 'image.save("v.png")'),
        ("draw.rectangle((0, 0, 9, 9))", 'image.save("v.png")'),
        (
            "gray = cv2.cvtColor(np.array(image), cv2.COLOR_RGB2GRAY)\nresult = gray",
            'Image.fromarray(result).save("v.png")',
        ),
        ("result = np.array(image)[:9]", 'Image.fromarray(result).save("v.png")'),
    ],
)
def test_a_program_of_a_tool_saves_its_result(code, last):
    lines = programs.with_file(code, "input.png", "v.png").splitlines()
    assert lines[:2] == ["from PIL import Image", 'image = Image.open("input.png")']
    assert lines[-2:] == [last, 'print("v.png")']


names = st.sampled_from("abcd")
lines = st.one_of(
    st.builds("{} = {}".format, names, st.integers(0, 9)),
    st.builds("{} = {} + {}".format, names, names, names),
    st.builds("{} += {}".format, names, names),
    st.builds("{} = sum([{} for a in range(min(9, abs({})))]) + {}".format, names, names, names, names),
)


@given(st.lists(lines, max_size=6), st.lists(lines, max_size=6), st.lists(lines, max_size=4))
@settings(max_examples=200, deadline=None)
def test_carried_programs_give_what_they_gave_with_all_variables(first, second, third):
    """A program that is carried over ends with the same values as after all earlier programs."""
    start = "a = 1\nb = 2\nc = 3\nd = 4"
    earlier = ["\n".join([start, *first]), "\n".join(second)]
    code = "\n".join([*third, "out = (a, b)"])
    expected: dict[str, Any] = {}
    exec("\n".join([*earlier, code]), expected)
    found: dict[str, Any] = {}
    exec(programs.carry(code, earlier)[0], found)
    assert found["out"] == expected["out"]


def test_a_dialect_that_cannot_say_it_is_refused(tmp_path):
    demo = only(thyme_set(tmp_path, thyme_row()))
    with pytest.raises(ConfigError, match="codev"):
        plan(demo, "deepeyes")


def test_an_image_that_was_not_made_yet_cannot_be_worked_on(tmp_path):
    call = {"code": "result = image", "description": "x", "image_index": 4}
    demo = only(codevision_set(tmp_path, codevision_row(tmp_path, (call, "Error: no such image"))))
    with pytest.raises(Unusable, match="not_expressible"):
        plan(demo, "codev")


# ---- replaying


def test_a_replay_shows_what_the_program_gives_here(tmp_path, box):
    demo = only(thyme_set(tmp_path, thyme_row((CROP, "<image>"), ("print(x2 - x1)", "100"))))
    outcome = replay(demo, box, ReplayOptions())
    trajectory = outcome.trajectory
    assert trajectory is not None, outcome
    # cv2.imwrite keeps the pixels of the crop.
    assert trajectory.turns[0].images[0].tobytes() == demo.images[0].crop((10, 20, 110, 70)).tobytes()
    assert trajectory.turns[1].stdout.strip() == "100"
    assert trajectory.observation_role == "assistant" and trajectory.dialect == "thyme"
    assert trajectory.split == "train" and trajectory.final_answer == "B" and not trajectory.is_correct
    facts = trajectory.meta["replay"]
    assert facts["same_text"] is True and facts["same_sizes"] is True and not facts["has_gold_answer"]
    assert any("dvqa_00110792_view1.jpg" in repair for repair in facts["repairs"][0]) and not facts["repairs"][1]


def test_another_text_is_kept_and_told(tmp_path, box):
    demo = only(thyme_set(tmp_path, thyme_row(("print(5)", "7"))))
    trajectory = replay(demo, box, ReplayOptions()).trajectory
    assert trajectory is not None and trajectory.meta["replay"]["same_text"] is False
    assert "5" in trajectory.turns[0].observation and "7" not in trajectory.turns[0].observation


def test_an_error_that_the_program_itself_printed_is_no_failure(tmp_path, box):
    code = "try:\n    1 / 0\nexcept Exception as e:\n    print(f'Error: {e}')"
    trajectory = replay(
        only(thyme_set(tmp_path, thyme_row((code, "Error: division by zero")))), box, ReplayOptions()
    ).trajectory
    assert trajectory is not None and trajectory.meta["replay"]["same_text"] is True


FAILING = {
    "error": (("print(1 / 0)", "1"), ReplayOptions()),
    "refused": (("import socket", "1"), ReplayOptions()),
    "timeout": ((LOOP, "1"), ReplayOptions(wall_s=0.5)),
    "limits": (("print('x' * 100000)", "1"), ReplayOptions()),
    "images_differ": (("print(1)", "<image>"), ReplayOptions()),
    "error_is_gone": (("print(1)", "NameError: name 'x' is not defined"), ReplayOptions()),
    "recorded_error": (("print(1 / 0)", "ZeroDivisionError: division by zero"), ReplayOptions(recorded_errors="drop")),
}


@pytest.mark.parametrize("reason", FAILING)
def test_what_does_not_run_is_left_out(tmp_path, reason):
    step, options = FAILING[reason]
    demo = only(thyme_set(tmp_path, thyme_row(step)))
    with Sandbox(limits=Limits(wall_s=options.wall_s)) as own:
        outcome = replay(demo, own, options)
    assert outcome.reason == reason and outcome.trajectory is None and outcome.detail


def test_error_recovery_is_kept(tmp_path, box):
    row = thyme_row(("print(1 / 0)", "ZeroDivisionError: division by zero"), ("print(4)", "4"))
    trajectory = replay(only(thyme_set(tmp_path, row)), box, ReplayOptions()).trajectory
    assert trajectory is not None and trajectory.turns[0].error and not trajectory.turns[1].error
    assert trajectory.meta["replay"]["failed_turns"] == 1


TURN = {"code": "result = image.rotate(90, expand=True)", "description": "Turn it upright.", "image_index": 0}
AGAIN = {"code": "result = image.crop((0, 0, 200, 320))", "description": "Crop it.", "image_index": 1}


@pytest.mark.parametrize("dialect", ["codevision", "codev", "thyme"])
def test_codevision_in_every_dialect(tmp_path, box, dialect):
    row = codevision_row(tmp_path, (TURN, "<image>Look."), (AGAIN, "<image>Look."), shown=2)
    demo = only(codevision_set(tmp_path, row))
    outcome = replay(demo, box, ReplayOptions(dialect=dialect))
    trajectory = outcome.trajectory
    assert trajectory is not None, outcome
    turned = demo.images[0].rotate(90, expand=True)
    assert [turn.images[0].tobytes() for turn in trajectory.turns[:2]] == [turned.tobytes()] * 2
    assert trajectory.is_correct and trajectory.dialect == dialect
    assert trajectory.meta["replay"]["same_text"] is None


@pytest.mark.parametrize("dialect", ["thyme", "codev"])
def test_a_kept_trajectory_is_what_the_environment_would_have_shown(tmp_path, box, dialect):
    demo = only(thyme_set(tmp_path, thyme_row((CROP, "<image>"), ("print(x2, cropped.shape)", "110 (50, 100, 3)"))))
    trajectory = replay(demo, box, ReplayOptions(dialect=dialect)).trajectory
    assert trajectory is not None and trajectory.meta["replay"]["same_text"]

    class OneTask:
        name, source = "one", "real"

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return plan(demo, dialect).task

        def index_of(self, task_id):
            return 0

    env = ImageToolEnv(OneTask(), dialect=dialect, judge="none", reward="outcome", max_turns=9)
    observation, _info = env.reset(options={"index": 0})
    assert observation["text"] == trajectory.prompt
    for turn in trajectory.turns:
        observation, _reward, done, _truncated, _info = env.step(turn.action)
        assert observation["text"] == turn.observation
        assert [image.tobytes() for image in observation["images"]] == [image.tobytes() for image in turn.images]
    assert done and env.episode.answer == trajectory.final_answer
    env.close()


# ---- whole runs


def mixed_rows() -> list[Any]:
    good = [thyme_row((f"print({number})", str(number))) for number in range(6)]
    return [
        *good[:3],
        thyme_row(("print(1 / 0)", "1")),
        thyme_row(response=""),
        *good[3:],
        thyme_row((CROP, "<image>")),
    ]


def ids_of(folder: Path) -> list[str]:
    return [json.loads(line)["task_id"] for line in (folder / "trajectories.jsonl").read_text().splitlines()]


def test_a_run_keeps_what_runs_and_counts_the_rest(tmp_path):
    demos = thyme_set(tmp_path, *mixed_rows())
    with ReplayRun(demos, tmp_path / "out", ReplayOptions(dialect="codev")) as run:
        summary = run.run(workers=3)
    assert summary["kept"] == 7 and summary["dropped"] == {"missing_field": 1, "error": 1}
    assert summary["done"] == summary["rows"] == 9
    assert json.loads((tmp_path / "out/summary.json").read_text()) == summary
    assert sorted(ids_of(tmp_path / "out")) == sorted(f"train-{i}" for i in range(9) if i not in (3, 4))
    trajectories = read_trajectories(tmp_path / "out")
    assert all(t.dialect == "codev" and t.turns[-1].kind == "answer" for t in trajectories)
    dropped = [json.loads(line) for line in (tmp_path / "out/dropped.jsonl").read_text().splitlines()]
    assert {(row["id"], row["reason"]) for row in dropped} == {("train-3", "error"), ("train-4", "missing_field")}
    table = summary_table(summary)
    assert "7  kept" in table and "1  error: a program raised an exception" in table


def test_a_run_goes_on_where_it_was(tmp_path):
    demos = thyme_set(tmp_path, *mixed_rows())
    done: list[bool] = []
    for n in (4, None, None):
        with ReplayRun(demos, tmp_path / "out", ReplayOptions()) as run:
            done.clear()
            summary = run.run(workers=2, n=n, on_done=lambda _result, before: done.append(before))
    assert all(done) and summary["done"] == 9
    assert len(ids_of(tmp_path / "out")) == len(set(ids_of(tmp_path / "out"))) == 7


def test_torn_lines_are_replayed_again(tmp_path):
    demos = thyme_set(tmp_path, *mixed_rows())
    out = tmp_path / "out"
    with ReplayRun(demos, out, ReplayOptions()) as run:
        first = run.run(workers=1)
    for name in ("trajectories.jsonl", "dropped.jsonl"):
        path = out / name
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(RuntimeWarning, match="torn"), ReplayRun(demos, out, ReplayOptions()) as run:
        assert run.summary()["done"] == 7
        assert run.run(workers=1) == first
    assert len(set(ids_of(out))) == len(ids_of(out)) == 7


def test_a_changed_row_is_told_or_replayed(tmp_path):
    rows = mixed_rows()
    out = tmp_path / "out"
    with ReplayRun(thyme_set(tmp_path, *rows), out, ReplayOptions()) as run:
        run.run(workers=1)
    rows[3] = thyme_row(("print(1)", "1"))
    with ReplayRun(thyme_set(tmp_path, *rows), out, ReplayOptions()) as run:
        assert run.run(workers=1)["kept"] == 8
    rows[0] = thyme_row(("print(99)", "99"))
    with (
        ReplayRun(thyme_set(tmp_path, *rows), out, ReplayOptions()) as run,
        pytest.raises(TaskError, match="has changed"),
    ):
        run.run(workers=1)


def test_a_folder_belongs_to_one_set_of_options_and_one_process(tmp_path):
    demos = thyme_set(tmp_path, thyme_row())
    with ReplayRun(demos, tmp_path / "out", ReplayOptions()) as run:
        run.run(workers=1)
        if sys.platform != "win32":
            with pytest.raises(ConfigError, match="another process"):
                ReplayRun(demos, tmp_path / "out", ReplayOptions())
    with pytest.raises(ConfigError, match="dialect='thyme'"):
        ReplayRun(demos, tmp_path / "out", ReplayOptions(dialect="codev"))


KILLED = """
import sys
from codev_env.demonstrations import DemonstrationSet, ReplayOptions, ReplayRun
with ReplayRun(DemonstrationSet("thyme", sys.argv[1]), sys.argv[2], ReplayOptions("codev")) as run:
    run.run(workers=2)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="these signals are of POSIX systems")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_a_stopped_run_goes_on_without_loss_or_duplicates(tmp_path, stop):
    count = 80
    rows = [thyme_row((f"x = {number}\nprint({number})", str(number))) for number in range(count)]
    rows[7] = thyme_row(response="")
    demos = thyme_set(tmp_path, *rows)
    out = tmp_path / "out"
    path = out / "trajectories.jsonl"
    for least in (2, 14):
        arguments = [sys.executable, "-c", KILLED, str(tmp_path / "train.jsonl"), str(out)]
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < least):
            time.sleep(0.002)
        process.send_signal(stop)
        assert process.wait() == -stop
    before = path.read_bytes()
    assert 14 <= before.count(b"\n") < count - 1
    if stop == signal.SIGINT:
        summary = json.loads((out / "summary.json").read_text())
        assert summary["kept"] == before.count(b"\n") < summary["rows"]
    with ReplayRun(demos, out, ReplayOptions("codev")) as run:
        summary = run.run(workers=2)
    assert summary["kept"] == count - 1 and summary["dropped"] == {"missing_field": 1}
    assert sorted(ids_of(out)) == sorted(f"train-{i}" for i in range(count) if i != 7)
    assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert len(read_trajectories(out)) == count - 1
