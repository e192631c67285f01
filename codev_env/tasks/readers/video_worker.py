"""The process in which a video is decoded: a file nobody knows is read under limits, outside of the trainer. A script.

It imports nothing of the project. Request: one JSON object as the argument, `{"path", "times", "size", "cpu_s",
"memory", "pixels"}`. Reply: a line of JSON, then the frames as raw RGB. Without `times` it is `{"seconds", "width",
"height"}`. Frames, their width and their height are as players show them: cameras that were held upright record frames
that lie on their side, with a matrix that turns them. Frames above `pixels` are not decoded for this.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

_JUMP = 10.0  # seconds between times from which on the frames between them are not decoded


def main() -> None:
    """Answer the request."""
    request = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    av: Any = importlib.import_module("av")
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, request["cpu_s"]),
        (resource.RLIMIT_AS, request["memory"]),
    ):
        resource.setrlimit(limit, (most, most))
    try:
        # The file itself and nothing it names: no playlists, no network.
        def opened() -> Any:
            return av.open(request["path"], options={"protocol_whitelist": "file"})

        if request["times"] is None:
            with opened() as container:
                reply, frames = _about(container, _stream(container), request["pixels"]), []
        else:
            frames = _frames(opened, request["times"], request["size"])
            reply = {"frames": len(frames)}
    except MemoryError:
        reply, frames = {"error": "needs more memory than a video may take"}, []
    except Exception as error:  # whatever a damaged file makes the library raise
        reply, frames = {"error": f"{type(error).__name__}: {error}"[:300]}, []
    out.write(json.dumps(reply).encode() + b"\n")
    for frame in frames:
        out.write(frame)
    out.flush()


def _about(container: Any, stream: Any, most: int) -> dict[str, Any]:
    seconds = float(stream.duration * stream.time_base) if stream.duration else (container.duration or 0) / 1e6
    width, height = stream.codec_context.width, stream.codec_context.height
    first = next(container.decode(stream), None) if width * height <= most else None
    if first is not None and _turn(first)[0]:
        width, height = height, width
    return {"seconds": seconds, "width": width, "height": height}


def _stream(container: Any) -> Any:
    stream = container.streams.video[0]
    stream.thread_count = 1
    return stream


def _frames(opened: Callable[[], Any], times: list[float], size: list[int]) -> list[bytes]:
    """Return the frame shown at each time, which rise: the last one that starts by then.

    Between distant times the decoder jumps to the key frame before the next one. Where that fails, all frames are
    decoded in order.
    """
    try:
        with opened() as container:
            return [_pixels(frame, size) for frame in _shown(container, times, _JUMP)]
    except MemoryError:
        raise
    except Exception:  # whatever a file without an index makes the library raise
        with opened() as container:
            return [_pixels(frame, size) for frame in _shown(container, times, float("inf"))]


def _shown(container: Any, times: list[float], jump: float) -> Iterator[Any]:
    """Yield the frame shown at each time; raises `LookupError` after a jump to another place than was asked for."""
    stream = _stream(container)
    frames = container.decode(stream)
    last, ahead = next(frames, None), None
    start = _time(last)
    for time in times if last is not None else ():
        wanted = start + time + 1e-6
        here = _time(ahead or last)
        if wanted - here > jump:
            container.seek(int(wanted / stream.time_base), stream=stream)
            frames = container.decode(stream)
            last, ahead = next(frames, None), None
            if last is None or not here - jump <= _time(last) <= wanted:
                raise LookupError
        while ahead is None or _time(ahead) <= wanted:
            last, ahead = ahead or last, next(frames, None)
            if ahead is None:
                break
        yield last


def _time(frame: Any) -> float:
    return (frame and frame.time) or 0.0


def _pixels(frame: Any, size: list[int]) -> bytes:
    swapped, mirrored, flipped = _turn(frame)
    width, height = size[::-1] if swapped else size
    pixels = frame.to_ndarray(format="rgb24", width=width, height=height)
    if swapped:
        pixels = pixels.transpose(1, 0, 2)
    return bytes(pixels[:: -1 if flipped else 1, :: -1 if mirrored else 1].tobytes())


def _turn(frame: Any) -> tuple[bool, bool, bool]:
    """Return how players show a frame: with x and y swapped, then mirrored left to right, then top to bottom."""
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None:
        return False, False, False
    a, b, _, c, d = struct.unpack("9i", bytes(data))[:5]  # x' = a x + c y, y' = b x + d y
    swapped = abs(b) > abs(a)
    return swapped, (c if swapped else a) < 0, (b if swapped else d) < 0


if __name__ == "__main__":
    main()
