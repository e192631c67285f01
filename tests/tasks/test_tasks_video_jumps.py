"""Frames of long videos: the decoder jumps between distant times, and gets the frames that decoding in order gets."""

from __future__ import annotations

import random

import pytest
from PIL import Image

from codev_env.tasks.readers import video_worker

SIZE = [32, 24]
FPS, SECONDS, GOP = 5, 60, 20

av = pytest.importorskip("av")


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=FPS)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = 32, 24, "yuv420p", GOP
        for number in range(FPS * SECONDS):
            color = (number * 5 % 256, number * 11 % 256, 60)
            for packet in stream.encode(av.VideoFrame.from_image(Image.new("RGB", (32, 24), color))):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)
    return path


class Counting:
    """A container that counts the frames that are decoded."""

    def __init__(self, path, lost: bool = False):
        self._container, self.streams, self.decoded, self.lost = av.open(str(path)), None, 0, lost
        self.streams = self._container.streams

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._container.close()

    def seek(self, *arguments, **options):
        if self.lost:
            raise OSError("no index")
        self._container.seek(*arguments, **options)

    def decode(self, stream):
        for frame in self._container.decode(stream):
            self.decoded += 1
            yield frame


def frames_of(path, times, jump, lost=False):
    video_worker_jump, video_worker._JUMP = video_worker._JUMP, jump
    opened = []
    try:
        found = video_worker._frames(lambda: opened.append(Counting(path, lost)) or opened[-1], times, SIZE)
    finally:
        video_worker._JUMP = video_worker_jump
    return found, [container.decoded for container in opened]


@pytest.mark.parametrize("seed", range(3))
def test_jumps_give_the_frames_of_decoding_in_order(film, seed):
    times = sorted(random.Random(seed).uniform(0, SECONDS + 5) for _ in range(8))
    in_order, _ = frames_of(film, times, float("inf"))
    assert frames_of(film, times, 1.0)[0] == in_order and len(in_order) == 8


def test_frames_between_distant_times_are_not_decoded(film):
    times = [0.0, 29.9, 59.0]
    found, (decoded,) = frames_of(film, times, 10.0)
    assert decoded <= 2 * GOP + 10 < FPS * SECONDS / 2
    assert found == frames_of(film, times, float("inf"))[0]


def test_a_file_in_which_nothing_can_jump_is_decoded_in_order(film):
    found, decoded = frames_of(film, [0.0, 30.0, 59.0], 10.0, lost=True)
    assert len(decoded) == 2 and decoded[1] >= FPS * 59
    assert found == frames_of(film, [0.0, 30.0, 59.0], float("inf"))[0]
