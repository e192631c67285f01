from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from codev_env.errors import TrajectoryError
from codev_env.trajectory import Trajectory, TrajectoryWriter, read_trajectories, write_trajectories
from codev_env.types import Answer, Code, Execution, Invalid, Region, Step, StepScore

REGION = Region(((1.0, 2.0), (3.0, 2.0), (3.0, 4.0), (1.0, 4.0)), (1, 2, 3, 4), 0, "rot0", 1.0, 0.5, "probe")


def picture(seed: int, size: tuple[int, int] = (9, 7)) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def episode(seed: int = 0, **changes) -> Trajectory:
    turns = (
        Step(
            "<code>é😀\n</code>",
            Code("print(1)\u2028", ("two blocks",), image_index=1),
            Execution(
                stdout="1\n",
                images=(picture(seed + 1), picture(seed + 3, (3, 4))),
                error="ValueError: x",
                stop="error",
                wall_s=0.25,
                names=("a.png", ""),
                repairs=("a quote",),
            ),
            (replace(REGION, others=(replace(REGION, image_index=1, original_share=0.25),)), Region()),
            StepScore(-0.5, "red line", faithful=True),
            probed=(False, True),
            observation="<image> and <image>",
            images=(picture(seed + 1), picture(seed + 2, (3, 4))),
            crop_boxes=((1, 2, 3, 4), None),
            reward=0.1 + 0.2,
            reward_terms={"tool": 0.1, "format": 0.2},
        ),
        Step("?", Invalid("no tags"), observation="Write an answer."),
        Step("<answer>3</answer>", Answer("3"), reward=1.0, reward_terms={"outcome": 1.0, "tool": 0.5}),
    )
    values = {
        "task_id": f"t{seed}",
        "index": seed,
        "choices": ("3", "4"),
        "answer": "3",
        "targets": ((0, 0, 2, 2),),
        "images": (picture(seed),),
        "turns": turns,
        "final_answer": "3",
        "is_correct": True,
        "seed": 7,
        "meta": {"cue": (1, 2)},
    }
    return Trajectory(**(values | changes))


def test_round_trip_is_equal_pixels_included(tmp_path):
    written = [episode(i) for i in range(3)]
    write_trajectories(tmp_path, written)
    found = read_trajectories(tmp_path)
    assert found == written
    assert found[0].images[0].tobytes() == picture(0).tobytes()
    assert found[0].image_size == (9, 7)
    assert found[0].turns[0].crop_boxes == ((1, 2, 3, 4), None)


def test_another_pixel_is_not_equal(tmp_path):
    changed = picture(0)
    changed.putpixel((0, 0), (1, 2, 3))
    write_trajectories(tmp_path, [episode(0, images=(changed,))])
    assert read_trajectories(tmp_path) != [episode(0)]
    assert read_trajectories(tmp_path) == [episode(0, images=(changed,))]


def test_rewards_add_up():
    found = episode()
    assert found.total_reward == pytest.approx(1.3)
    assert found.reward_terms == pytest.approx({"tool": 0.6, "format": 0.2, "outcome": 1.0})


@settings(max_examples=40, deadline=None)
@given(st.text(), st.text(), st.floats(allow_nan=False, allow_infinity=False), st.none() | st.text())
def test_any_text_and_number_survives(tmp_path_factory, action, stdout, reward, answer):
    folder = tmp_path_factory.mktemp("t")
    turn = Step(action, Code(action), Execution(stdout), reward=reward)
    written = [Trajectory(task_id=action, turns=(turn,), final_answer=answer)]
    write_trajectories(folder, written)
    assert read_trajectories(folder) == written


def test_lone_surrogates_survive(tmp_path):
    written = [Trajectory(task_id="a", final_answer="\ud800")]
    write_trajectories(tmp_path, written)
    assert read_trajectories(tmp_path) == written


def test_append_continues(tmp_path):
    write_trajectories(tmp_path, [episode(0)])
    write_trajectories(tmp_path, [episode(1)])
    assert read_trajectories(tmp_path) == [episode(0), episode(1)]


def test_torn_last_line_is_ignored_by_the_reader_and_removed_by_the_writer(tmp_path):
    path = write_trajectories(tmp_path, [episode(0), episode(1)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.warns(RuntimeWarning, match="line 2: torn"):
        assert read_trajectories(tmp_path) == [episode(0)]
    with pytest.warns(RuntimeWarning, match="line 2: torn"):
        write_trajectories(tmp_path, [episode(2)])
    assert read_trajectories(tmp_path) == [episode(0), episode(2)]


def test_line_that_lacks_only_its_end_is_kept(tmp_path):
    path = write_trajectories(tmp_path, [episode(0)])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert read_trajectories(tmp_path) == [episode(0)]
    write_trajectories(tmp_path, [episode(1)])
    assert read_trajectories(tmp_path) == [episode(0), episode(1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a trajectory"),
        ('{"task_id": "a"}', "no `schema`"),
        ('{"schema": 99}', "reads schema 1 and 2"),
        ('{"schema": 1, "task_id": "a", "turns": [{"kind": "code"}]}', "missing \\['action'\\]"),
        ('{"schema": 2, "task_id": "a", "turns": [{"action": "b"}]}', "missing \\['kind'\\]"),
        ('{"schema": 2, "task_id": "a", "turns": [{"action": "b", "kind": "c"}]}', "kind is 'c'"),
        ('{"schema": 1, "task_id": "a", "turns": [{"action": "b", "kind": "code", "names": []}]}', "\\['names'\\]"),
        ('{"schema": 1, "task_id": "a", "turns": [], "colour": 1}', "unknown fields \\['colour'\\]"),
        ('{"schema": 1, "task_id": "a", "turns": [], "images": [1]}', "not a trajectory"),
    ],
)
def test_broken_line_names_file_and_line(tmp_path, line, message):
    path = write_trajectories(tmp_path, [episode(0)])
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(TrajectoryError, match=message) as caught:
        read_trajectories(tmp_path)
    assert f"{path}, line 2" in str(caught.value)


def test_file_without_a_later_field_is_read_with_its_default(tmp_path):
    path = write_trajectories(tmp_path, [episode(0)])
    row = json.loads(path.read_text())
    del row["meta"]
    path.write_text(json.dumps(row) + "\n")
    assert read_trajectories(path)[0].meta == {}


def test_missing_file_and_missing_image(tmp_path):
    with pytest.raises(TrajectoryError, match="Give the folder"):
        read_trajectories(tmp_path)
    write_trajectories(tmp_path, [episode(0)])
    found = read_trajectories(tmp_path)
    found[0].images.files[0].unlink()
    with pytest.raises(TrajectoryError, match="cannot read image"):
        found[0].images[0]


def test_values_that_json_cannot_hold_leave_nothing_behind(tmp_path):
    with TrajectoryWriter(tmp_path) as writer:
        with pytest.raises(TrajectoryError, match="not JSON"):
            writer.append(Trajectory(task_id="a", turns=(Step("x", Invalid(""), reward=float("nan")),)))
        writer.append(episode(0))
    assert read_trajectories(tmp_path) == [episode(0)]
    with pytest.raises(TrajectoryError, match="meta"):
        Trajectory(task_id="a", meta={"x": object()})


def test_equal_images_share_a_file_and_no_temporary_file_stays(tmp_path):
    write_trajectories(tmp_path, [episode(0), episode(0)])
    assert sorted(path.suffix for path in (tmp_path / "images").iterdir()) == [".png"] * 4


def test_threads_write_whole_lines(tmp_path):
    with TrajectoryWriter(tmp_path) as writer:
        threads = [
            threading.Thread(target=lambda k=k: [writer.append(episode(k * 10 + i)) for i in range(5)])
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = read_trajectories(tmp_path)
    assert sorted(t.index for t in found) == [k * 10 + i for k in range(4) for i in range(5)]
    assert all(t == episode(t.index) for t in found)


def test_schema_1_is_read_field_by_field():
    """`schema1/` was written by the last version of schema 1."""
    path = Path(__file__).parent / "schema1" / "trajectories.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    found = read_trajectories(path)
    assert [row["schema"] for row in rows] == [1] * 3 and len(found) == 3
    for row, trajectory in zip(rows, found, strict=True):
        for name in row.keys() - {"schema", "turns", "images"}:
            assert json.loads(json.dumps(getattr(trajectory, name))) == row[name], name
        assert named(trajectory.images) == row["images"]
        for old, turn in zip(row["turns"], trajectory.turns, strict=True):
            assert_reads(old, turn, trajectory)


def named(images) -> list[dict]:
    pairs = zip(images.files, images.sizes, strict=True)
    return [{"file": f"images/{path.name}", "size": list(size)} for path, size in pairs]


def assert_reads(old: dict, turn: Step, trajectory: Trajectory) -> None:
    """Every field of a turn of schema 1 is in the record."""
    special = {"images", "regions", "score"}
    for name in old.keys() - special:
        assert json.loads(json.dumps(getattr(turn, name))) == old[name], name
    assert turn.score_value == old["score"] and named(turn.images) == old["images"]
    regions = zip(turn.regions, old["regions"], strict=True)
    read = [{name: getattr(region, name) for name in one} for region, one in regions]
    assert json.loads(json.dumps(read)) == old["regions"]
    match turn.turn:
        case Code(code):
            assert code == old["code"] and (turn.execution is None) == (old["stop"] is None)
            assert turn.execution is None or turn.execution.images == turn.images
        case Answer(text):
            assert text == trajectory.final_answer
        case Invalid(reason):
            assert reason == old["observation"]


def test_schema_1_written_again_is_schema_2_and_equal(tmp_path):
    found = read_trajectories(Path(__file__).parent / "schema1")
    path = write_trajectories(tmp_path, found)
    assert read_trajectories(tmp_path) == found
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["schema"] for row in rows] == [2] * 3
    assert all(turn["returned"] is None for row in rows for turn in row["turns"])


def test_images_that_were_shown_otherwise_are_both_kept(tmp_path):
    write_trajectories(tmp_path, [episode(0)])
    turn = read_trajectories(tmp_path)[0].turns[0]
    assert turn.images[1].tobytes() == picture(2, (3, 4)).tobytes()
    assert turn.execution.images[1].tobytes() == picture(3, (3, 4)).tobytes()


def test_a_line_that_is_taken_back_takes_no_line_of_another_process_with_it(tmp_path):
    """Two evaluations may continue one folder; here each has a file of its own, as in two processes."""
    with TrajectoryWriter(tmp_path) as full, TrajectoryWriter(tmp_path) as other:
        file, thread = full._file, threading.Thread(target=other.append, args=(episode(1),))

        class Full:
            def write(self, line: bytes) -> int:
                thread.start()
                thread.join(0.3)
                return file.write(line[:9])

            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

        full._file = Full()
        with pytest.raises(OSError, match="disk full"):
            full.append(episode(0))
        thread.join()
        full._file = file
    assert read_trajectories(tmp_path) == [episode(1)]


def test_numbers_of_numpy_are_written_as_numbers(tmp_path):
    """A judge, a scorer or a reward of one's own may compute with NumPy."""
    score = StepScore(np.float32(0.5), "mine", np.bool_(True), any_crop=np.bool_(False), spread=np.bool_(True))
    turn = Step("a", Code("b"), Execution(), score=score, reward=np.float64(0.25))
    written = [Trajectory("t", turns=(turn,), is_correct=np.bool_(True), share=np.float32(0.5), index=np.int64(3))]
    write_trajectories(tmp_path, written)
    (found,) = read_trajectories(tmp_path)
    assert [found] == written and type(found.turns[0].score_value) is float and found.is_correct is True


def test_an_image_file_that_a_power_failure_left_empty_is_written_again(tmp_path):
    write_trajectories(tmp_path, [episode(0)])
    for path in (tmp_path / "images").iterdir():
        path.write_bytes(b"")
    write_trajectories(tmp_path, [episode(0)])
    assert read_trajectories(tmp_path) == [episode(0)] * 2


@pytest.mark.parametrize(
    "turn",
    [
        {"images": [{"file": "a.png", "size": [1]}]},
        {"probed": [True]},
        {"reward": None},
        {"reward_terms": None},
        {"reward_terms": {"tool": "much"}},
    ],
)
def test_a_turn_that_another_program_wrote_wrongly_is_an_error_of_its_line(tmp_path, turn):
    row = {"schema": 2, "task_id": "a", "turns": [{"action": "b", "kind": "code"} | turn]}
    (tmp_path / "trajectories.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(TrajectoryError, match="line 1: not a trajectory of schema 2"):
        read_trajectories(tmp_path)
