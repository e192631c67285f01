"""Several images and videos: boxes that know their image, frames in the sandbox, and video files."""

from __future__ import annotations

import copy
import json
import pickle

import gymnasium as gym
import pytest
from PIL import Image
from real_data import own_cache  # noqa: F401

from codev_agents import Oracle, run_episode
from codev_env.errors import ConfigError, SandboxError, TaskError
from codev_env.geometry import ImageBox, boxes_on, image_of
from codev_env.sandbox import Sandbox
from codev_env.tasks import load_tasks
from codev_env.trajectory import Trajectory, read_trajectories, write_trajectories

TURN = "<think>x</think><code>\n```python\n{}\n```\n</code>"


def scenes(preset: str, **options):
    return load_tasks("synthetic", "test", scenes={"preset": preset, **options})


# ---- boxes


def test_a_box_knows_its_image_and_equals_a_plain_one():
    box = ImageBox((1, 2, 3, 4), 5)
    assert box == (1, 2, 3, 4) and hash(box) == hash((1, 2, 3, 4)) and json.dumps(box) == "[1, 2, 3, 4]"
    for copied in (copy.deepcopy(box), pickle.loads(pickle.dumps(box))):
        assert (copied, image_of(copied)) == (box, 5)
    assert image_of((1, 2, 3, 4)) == 0
    assert boxes_on(5, [box, (0, 0, 1, 1), None]) == [box]


# ---- generated


@pytest.mark.parametrize("category", ["find", "which", "compare", "order"])
def test_an_album_has_its_evidence_on_each_image(category):
    tasks = scenes("album", categories=[category], count=3)
    for task in (tasks[n] for n in range(6)):
        assert (len(task.images), task.shown, task.times, task.category) == (3, None, (), category)
        on = {image_of(box): box for box in task.targets}
        listed = [item for item in task.meta["objects"] if tuple(item["box"]) == on.get(item["image"])]
        digits = {item["image"]: item["digit"] for item in listed}
        assert len(on) == (1 if category in ("find", "which") else 3) == len(digits)
        right = next(iter(on)) if len(on) == 1 else max(digits, key=digits.get)
        expected = {
            "find": str(digits.get(right)),
            "order": ", ".join(str(n + 1) for n in sorted(digits, key=digits.get)),
        }.get(category, str(right + 1))
        assert task.answer == expected


def test_a_video_shows_its_first_frame_and_has_the_evidence_in_another():
    task = scenes("video", count=5, fps=4.0)[3]
    assert task.times == (0.0, 0.25, 0.5, 0.75, 1.0) and task.shown == 1 and len(task.shown_images) == 1
    (box,) = task.targets
    assert 1 <= image_of(box) <= 4
    same = scenes("video", count=5, fps=4.0)[3]
    assert [image.tobytes() for image in same.images] == [image.tobytes() for image in task.images]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"preset": "album", "count": 1}, "count"),
        ({"preset": "album", "count": 65}, "count"),
        ({"preset": "video", "count": 65}, "from 2 to 64"),
        ({"preset": "album", "digits": 3}, "at most digits=3"),
        ({"preset": "video", "fps": 0.0}, "fps"),
        ({"preset": "video", "categories": ["which"]}, "appears, when"),
    ],
)
def test_impossible_options_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        load_tasks("synthetic", "test", scenes=options)


def test_orientations_turn_every_image_with_its_boxes():
    tasks = load_tasks("synthetic", "test", scenes="album", wrap=["flip_horizontal"])
    plain = load_tasks("synthetic", "test", scenes="album")
    task, before = tasks[0], plain[0]
    for box, old in zip(task.targets, before.targets, strict=True):
        assert image_of(box) == image_of(old)
        assert box == (280 - old[2], old[1], 280 - old[0], old[3])


# ---- environments


@pytest.fixture(scope="module")
def video_env():
    env = gym.make("codev_env:CodeV-Video-v0", data="synthetic", split="test")
    yield env
    env.close()


def look(env, code):
    return env.step(TURN.format(code))


def test_programs_find_frames_and_the_boxes_know_theirs(video_env):
    observation, _ = video_env.reset(options={"index": 0})
    assert len(observation["images"]) == 1 and "8 frames, from 0 to 3.5 s" in observation["text"]
    task = video_env.unwrapped.task
    (box,) = task.targets
    at = image_of(box)
    code = f"print(len(frames), len(video), video.duration)\nshow(frames[{at}].crop({tuple(box)}))"
    observation, reward, _, _, info = look(video_env, code)
    assert "8 8 3.5" in observation["text"] and info["is_faithful"] and reward > 0.4
    assert info["crop_boxes"] == (box,) and image_of(info["crop_boxes"][0]) == at
    look(video_env, f"show(video.at({task.times[at] + 0.1}).crop({tuple(box)}).resize((99, 99)))")
    (region,) = video_env.unwrapped.episode.steps[-1].regions
    assert region.image_index == at


def test_the_right_place_in_another_frame_is_not_faithful(video_env):
    video_env.reset(options={"index": 0})
    (box,) = video_env.unwrapped.task.targets
    other = 1 + image_of(box) % 7
    *_, info = look(video_env, f"show(frames[{other}].crop({tuple(box)}))")
    assert not info["is_faithful"] and image_of(info["crop_boxes"][0]) == other


def test_crops_of_all_frames_are_no_search(video_env):
    """Crops of one place in every frame find it by chance: all that they show counts."""
    video_env.reset(options={"index": 0})
    x1, y1, x2, y2 = video_env.unwrapped.task.targets[0]
    wide = (max(0, x1 - 20), max(0, y1 - 20), min(280, x2 + 20), min(280, y2 + 20))
    for number in range(8):
        *_, info = look(video_env, f"show(frames[{number}].crop({wide}))")
        if info["stop_reason"]:
            break
    assert not info["is_faithful"]


def test_a_whole_frame_is_seen_once_without_harm(video_env):
    video_env.reset(options={"index": 0})
    scores = []
    for code in ("show(frames[3])", "show(frames[3])", "show(frames[0])"):
        look(video_env, code)
        scores.append(video_env.unwrapped.episode.steps[-1].score.value)
    assert scores == [0.0, -0.5, -0.5]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("video.at(99)", "the video has frames from 0 to 3.5 s"),
        ("frames[8]", "list index out of range"),
        ("video._frames", "_frames"),
        ("video.times = (1,)", "error"),
    ],
)
def test_mistakes_are_explained(video_env, code, says):
    video_env.reset(options={"index": 0})
    observation, *_ = look(video_env, code)
    assert says in observation["text"].replace("Error", "error")


def test_images_that_are_no_frames_have_no_video():
    env = gym.make("codev_env:CodeV-BLINK-v0", data="synthetic", split="test")
    observation, _ = env.reset(options={"index": 0})
    assert len(observation["images"]) == 4 and "Video" not in observation["text"]
    observation, *_ = look(env, "print(len(images))\nprint(video)")
    assert "NameError" in observation["text"]
    env.close()


@pytest.mark.parametrize("dialect", ["codev", "thyme", "codevision", "pyvision"])
@pytest.mark.parametrize(("name", "preset"), [("Video", "video"), ("BLINK", "album")])
def test_the_expert_is_right_and_faithful_and_its_record_is_read_back(tmp_path, dialect, name, preset):
    env = gym.make(f"codev_env:CodeV-{name}-v0", data="synthetic", split="test", dialect=dialect)
    played: list[Trajectory] = [run_episode(env, Oracle(), options={"index": n}) for n in range(3)]
    env.close()
    assert all(t.is_correct and t.is_faithful for t in played)
    write_trajectories(tmp_path / "trajectories.jsonl", played)
    again = list(read_trajectories(tmp_path / "trajectories.jsonl"))
    for one, other in zip(played, again, strict=True):
        assert [image_of(box) for box in one.targets] == [image_of(box) for box in other.targets]
        boxes = [[(box, image_of(box)) for t in x.turns for box in t.crop_boxes] for x in (one, other)]
        assert boxes[0] == boxes[1]


def test_a_session_checks_the_times():
    image = Image.new("RGB", (32, 32))
    with Sandbox() as box:
        for times in ((0.0,), (1.0, 0.0), (0.0, float("nan"))):
            with pytest.raises(SandboxError, match="rising seconds"):
                box.session({"a.png": image, "b.png": image}, times=times)
        with box.session({"a.png": image, "b.png": image}, times=(0, 2)) as session:
            assert session.run("print(video, frames[1].size)").stdout.strip() == "Video(2 frames, 0 to 2 s) (32, 32)"


# ---- files


@pytest.fixture
def film(tmp_path):
    """Write a film of 4 seconds, 5 frames a second, whose green grows by frame."""
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "film.mp4"), "w") as out:
        stream = out.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(20):
            image = Image.new("RGB", (64, 48), (10, 12 * number, 10))
            for packet in stream.encode(av.VideoFrame.from_image(image)):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)
    return tmp_path


def rows(folder, *changes):
    base = {
        "video": "film.mp4",
        "question": "How green?",
        "answer": "B",
        "choices": ["less", "more"],
        "targets": [{"seconds": 2.5, "box": [0, 0, 20, 10]}],
    }
    path = folder / "test.jsonl"
    path.write_text("\n".join(json.dumps(base | change) for change in changes or ({},)))
    return path


def test_a_film_is_decoded_on_demand(film, monkeypatch):
    from codev_env.tasks.readers import video

    asked = []
    ask = video._ask
    monkeypatch.setattr(video, "_ask", lambda *a: asked.append(a[3]) or ask(*a))
    task = load_tasks(rows(film), "test", bench="video")[0]
    assert (task.answer, task.times, task.shown) == ("more", (0.0, 1.0, 2.0, 3.0), 1)
    assert task.targets == ((0, 0, 20, 10),) and image_of(task.targets[0]) == 2
    assert task.image.size == (64, 48) and asked == [None, [0.0]]
    greens = [image.getpixel((30, 20))[1] for image in task.images]
    assert len(asked) == 3 and all(abs(g - 60 * n) < 12 for n, g in enumerate(greens))
    task.images[3]
    assert len(asked) == 3
    again = pickle.loads(pickle.dumps(task))
    assert again.images[2].tobytes() == task.images[2].tobytes()


def test_evidence_is_on_the_frame_nearest_to_its_second(film):
    found = [{"targets": [{"seconds": second, "box": [0, 0, 20, 10]}]} for second in (0.4, 0.6, 2.5, 2.7, 3.9)]
    tasks = load_tasks(rows(film, *found), "test", bench="video")
    assert [image_of(tasks[n].targets[0]) for n in range(5)] == [0, 1, 2, 3, 3]


def test_the_last_part_of_a_second_has_a_frame(film):
    from codev_env.tasks.readers.video import VideoLimits, open_frames

    path = film / "film.mp4"
    assert open_frames(path, "row", VideoLimits(fps=0.4)).times == (0.0, 2.5)
    assert open_frames(path, "row", VideoLimits(fps=0.2)).times == (0.0,)
    assert open_frames(path, "row", VideoLimits(fps=5, max_frames=20)).times[-1] == 3.8


# What players show of a film that is red at the top left and green at the bottom left, at its four corners.
@pytest.mark.parametrize(
    ("degrees", "hflip", "size", "corners"),
    [
        (0, False, (64, 48), "r.g."),
        (90, False, (48, 64), "..rg"),
        (180, False, (64, 48), ".g.r"),
        (270, False, (48, 64), "gr.."),
        (0, True, (64, 48), ".r.g"),
        (90, True, (48, 64), "..gr"),
    ],
)
def test_a_film_is_upright_as_players_show_it(tmp_path, degrees, hflip, size, corners):
    av = pytest.importorskip("av")
    if not hasattr(av.video.stream.VideoStream, "set_display_rotation"):
        pytest.skip("this PyAV cannot write a rotation")
    image = Image.new("RGB", (64, 48))
    image.paste("red", (0, 0, 32, 24))
    image.paste((0, 255, 0), (0, 24, 32, 48))
    with av.open(str(tmp_path / "film.mp4"), "w") as out:
        stream = out.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.set_display_rotation(degrees, hflip=hflip)
        for frame in [av.VideoFrame.from_image(image) for _ in range(10)]:
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    box = [size[0] - 8, size[1] - 8, *size]
    task = load_tasks(rows(tmp_path, {"targets": [{"seconds": 1, "box": box}]}), "test", bench="video")[0]
    assert (task.image.size, task.meta["video"]["size"], task.targets) == (size, list(size), (tuple(box),))
    for shown in task.images:
        pixels = [shown.getpixel((x, y)) for y in (8, size[1] - 8) for x in (8, size[0] - 8)]
        assert "".join("r" if p[0] > 200 else "g" if p[1] > 200 else "." for p in pixels) == corners


def test_programs_see_a_film(film):
    env = gym.make("codev_env:CodeV-Video-v0", data=str(rows(film)), split="test")
    env.reset(options={"index": 0})
    observation, _, _, _, info = look(
        env, "print(video.at(2.4).getpixel((3, 3))[1])\nshow(frames[2].crop((0, 0, 20, 10)))"
    )
    assert image_of(info["crop_boxes"][0]) == 2 or info["crop_boxes"] == (None,)  # flat colours have no place
    assert int(observation["text"].split()[1]) in range(108, 133)
    env.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"video": "none.mp4"}, "is missing"),
        ({"video": "bad.mp4"}, "is no video that can be read"),
        ({"video": "playlist.m3u8"}, "is no video that can be read"),
        ({"video": ""}, "'video' is empty"),
        ({"answer": "E"}, "options are A, B"),
        ({"targets": [[0, 0, 1, 1]]}, "expected {'seconds'"),
        ({"targets": [{"seconds": 9, "box": [0, 0, 5, 5]}]}, "is not in the video"),
        ({"targets": [{"seconds": 1, "box": [0, 0, 65, 5]}]}, "is not in the video"),
    ],
)
def test_films_and_rows_that_are_refused(film, change, says):
    (film / "bad.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(2000))
    (film / "playlist.m3u8").write_text("#EXTM3U\n#EXTINF:1,\n/etc/passwd\n")
    with pytest.raises(TaskError, match=says):
        load_tasks(rows(film, change), "test", bench="video")[0]


def test_limits_of_films(film):
    from codev_env.tasks.readers.video import VideoLimits, open_frames

    path = film / "film.mp4"
    assert len(open_frames(path, "row", VideoLimits(fps=5, max_frames=8)).times) == 8
    assert open_frames(path, "row", VideoLimits(max_pixels=1000)).size == (36, 28)
    for limits, says in (
        (VideoLimits(max_seconds=2), "takes 4 s, more than 2 s"),
        (VideoLimits(max_source_pixels=1000), "frames of 64x48, more than 1000 pixels"),
    ):
        with pytest.raises(TaskError, match=says):
            open_frames(path, "row", limits)
    with pytest.raises(ConfigError, match="max_frames of videos is 65"):
        VideoLimits(max_frames=65)
