"""Published SFT trajectories: reading and converting them."""

from __future__ import annotations

from typing import Any

import pytest
from demonstration_rows import (
    CROP,
    PATH,
    SIZE,
    base64_of,
    block,
    codevision_row,
    codevision_set,
    only,
    picture,
    thyme_row,
    thyme_set,
    write_rows,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from codev_env.dialects import get_dialect
from codev_env.errors import ConfigError, TaskError
from codev_eval.data.demonstrations import REASONS, Broken, Demonstration, DemonstrationSet, Unusable, plan, programs

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


@pytest.mark.integration
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
@example(rows=[[[{"from": []}], None, None, None, None]])
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


@pytest.mark.integration
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
