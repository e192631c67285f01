"""Contact sheets: many tasks in one image, with their evidence outlined and enlarged (`codev data show`)."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import ExifTags, Image, ImageDraw, ImageFont

from codev_env.app.outputs import creating
from codev_env.errors import ConfigError
from codev_env.files import write_bytes
from codev_env.geometry import area, boxes_on, image_of
from codev_env.types import Task, TaskSet

_GAP = 14  # pixels around everything
_ROUND = 2  # an outline's distance from its box, and its width, in pixels
_MARK = (225, 20, 60)
_TEXT, _GREY, _RIGHT = (25, 25, 25), (110, 110, 110), (15, 125, 50)
_CONTEXT = 1.0  # margin of an inset around the target, in longer sides of the target
_FONT = 15
MADE_BY = "codev data show"
"""Mark of a contact sheet, in its EXIF data."""
_FONTS = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "NotoSansCJK-Regular.ttc", "wqy-zenhei.ttc", "Arial Unicode.ttf")
"""Fonts of the machine for texts beyond ASCII, which the font that Pillow brings does not have."""


def sheet(tasks: TaskSet, indices: Iterable[int], per_row: int = 3, width: int = 1800) -> Image.Image:
    """Draw tasks side by side.

    Each cell shows the image with its targets outlined, the first target enlarged, and below them the question, the
    choices with the right one marked, the answer, category, transform and source.

    Args:
        tasks: The task set.
        indices: The tasks to draw.
        per_row: Tasks per row.
        width: Width of the sheet in pixels.

    Returns:
        An RGB image; its height follows from the tasks.

    Raises:
        ConfigError: No tasks, or cells narrower than 200 pixels.
    """
    chosen = list(indices)
    if not chosen:
        raise ConfigError("no tasks to show: indices is empty.")
    if per_row < 1 or width // per_row < 200:
        raise ConfigError(f"{per_row} tasks per row on {width} pixels: each must be at least 200 pixels wide.")
    cell_width = (width - _GAP) // per_row - _GAP
    # One task at a time: several 8K images would fill the memory.
    cells = [_cell(tasks[index], cell_width) for index in chosen]
    rows = [cells[i : i + per_row] for i in range(0, len(cells), per_row)]
    heights = [max(cell.height for cell in row) for row in rows]
    page = Image.new("RGB", (width, sum(heights) + _GAP * (len(rows) + 1)), "white")
    y = _GAP
    for row, height in zip(rows, heights, strict=True):
        for column, cell in enumerate(row):
            page.paste(cell, (_GAP + column * (cell_width + _GAP), y))
        y += height + _GAP
    return page


def _cell(task: Task, width: int) -> Image.Image:
    """Draw one task: the image on top, the inset and the text below."""
    overview = _overview(task, (width, width * 3 // 4))
    inset = _inset(task, width * 3 // 10)
    left = inset.width + _GAP if inset else 0
    lines = [(line, color, _font_of(text)[1]) for text, color in _texts(task) for line in _wrap(text, width - left)]
    step = round(_FONT * 1.3)
    below = max(inset.height if inset else 0, step * len(lines) + 4)
    cell = Image.new("RGB", (width, overview.height + _GAP // 2 + below), "white")
    cell.paste(overview, (0, 0))
    top = overview.height + _GAP // 2
    if inset:
        cell.paste(inset, (0, top))
    canvas = ImageDraw.Draw(cell)
    for number, (line, color, font) in enumerate(lines):
        canvas.text((left, top + number * step), line, fill=color, font=font)
    return cell


def _overview(task: Task, room: tuple[int, int]) -> Image.Image:
    """Fit the image of the first target into a grey area of size `room` and outline the targets on it."""
    number = image_of(task.targets[0]) if task.targets else 0
    image = task.images[number]
    factor = min(room[0] / image.width, room[1] / image.height)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    overview = Image.new("RGB", room, (235, 235, 235))
    x, y = (room[0] - size[0]) // 2, (room[1] - size[1]) // 2
    overview.paste(image.convert("RGB").resize(size, Image.Resampling.BOX, reducing_gap=2.0), (x, y))
    canvas = ImageDraw.Draw(overview)
    for box in boxes_on(number, task.targets):
        x1, y1, x2, y2 = (value * factor for value in box)
        _outline(canvas, (x + x1, y + y1, x + x2, y + y2))
    return overview


def _inset(task: Task, side: int) -> Image.Image | None:
    """Enlarge the first target with its surroundings; `None` for a task without targets."""
    if not task.targets:
        return None
    box = task.targets[0]
    image = task.images[image_of(box)]
    reach = (0.5 + _CONTEXT) * max(box[2] - box[0], box[3] - box[1], 8)
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    # A square that stays inside the image, or a smaller one in a narrow image.
    half = min(reach, image.width / 2, image.height / 2)
    x = min(max(x, half), image.width - half)
    y = min(max(y, half), image.height - half)
    view = (x - half, y - half, x + half, y + half)
    inset = image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC, box=view)
    canvas, factor = ImageDraw.Draw(inset), side / (2 * half)
    canvas.rectangle((0, 0, side - 1, side - 1), outline=_GREY)
    for target in boxes_on(image_of(box), task.targets):
        x1, y1, x2, y2 = target
        _outline(
            canvas, tuple((value - start) * factor for value, start in zip((x1, y1, x2, y2), view[:2] * 2, strict=True))
        )
    return inset


def _outline(canvas: ImageDraw.ImageDraw, box: tuple[float, ...]) -> None:
    """Draw a line around a box, not on it: a target can be as small as a few pixels."""
    x1, y1, x2, y2 = box
    far = 2 * _ROUND
    canvas.rectangle((x1 - far, y1 - far, x2 + far - 1, y2 + far - 1), outline=_MARK, width=_ROUND)


def _texts(task: Task) -> list[tuple[str, tuple[int, int, int]]]:
    """Return the texts below a task, with colours."""
    texts = [(task.question, _TEXT)]
    for number, choice in enumerate(task.choices):
        texts.append((f"({chr(ord('A') + number)}) {choice}", _RIGHT if choice == task.answer else _TEXT))
    texts.append((f"Answer: {task.answer}", _RIGHT))
    about = [
        task.task_id,
        f"{task.image.width}x{task.image.height}",
        task.category,
        " ".join(task.transform),
        task.source,
    ]
    if task.targets:
        about.append(
            f"{len(task.targets)} target{'s' if len(task.targets) > 1 else ''}, {_share(task):.2g} % of the area"
        )
    return [*texts, (", ".join(part for part in about if part), _GREY)]


def _share(task: Task) -> float:
    """Return the area of the largest target in percent of the image."""
    return 100 * max(area(box) for box in task.targets) / (task.image.width * task.image.height)


@lru_cache(maxsize=1)
def _font() -> Any:
    return ImageFont.load_default(_FONT)


@lru_cache(maxsize=1)
def _system_fonts() -> tuple[Any, ...]:
    """The fonts of the machine that have more letters than the one that Pillow brings."""
    found = []
    for name in _FONTS:
        with contextlib.suppress(OSError):
            found.append(ImageFont.truetype(name, _FONT))
    return tuple(found)


@lru_cache(maxsize=4096)
def _has(font: Any, letter: str) -> bool:
    """Whether a font has a letter; one that it lacks is drawn as the last character, which no font has."""
    return bytes(font.getmask(letter)) != bytes(font.getmask("\uffff"))


def _font_of(text: str) -> tuple[str, Any]:
    """Return a text as it can be drawn, and the font: that with most of its letters; those that it lacks become `?`."""
    fonts = (_font(), *_system_fonts()) if not text.isascii() else (_font(),)

    def lacking(font: Any) -> int:
        return sum(not (letter.isspace() or _has(font, letter)) for letter in text)

    best = min(fonts, key=lacking)
    if not lacking(best):
        return text, best
    return "".join(letter if letter.isspace() or _has(best, letter) else "?" for letter in text), best


def _wrap(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` pixels; longer words are broken too."""
    plain, font = _font_of(text)
    lines = [""]
    for word in plain.split():
        while word:
            longer = f"{lines[-1]} {word}".lstrip()
            if font.getlength(longer) <= width:
                lines[-1], word = longer, ""
            elif lines[-1]:
                lines.append("")
            else:
                fits = max(1, next(n for n in range(len(word), 0, -1) if n == 1 or font.getlength(word[:n]) <= width))
                lines[-1], word = word[:fits], word[fits:]
                if word:
                    lines.append("")
    return lines


def check_place(path: Path) -> None:
    """Raise `ConfigError` if a file is there that is no contact sheet, such as an image of the data."""
    if not path.is_file():
        return
    try:
        with Image.open(path) as image:
            is_sheet = image.getexif().get(ExifTags.Base.Software) == MADE_BY
    except (OSError, ValueError, SyntaxError):
        is_sheet = False
    if not is_sheet:
        raise ConfigError(f"--out {path} exists and is no contact sheet of this command: give another file.")


def save(page: Image.Image, path: Path) -> None:
    """Save a contact sheet, marked as one; an earlier one is replaced whole, or stays as it was.

    Raises:
        ConfigError: The name ends in no known image format, the sheet is too large for it, or its folder cannot be
            made.
        OSError: The disk is full, or the folder cannot be written.
    """
    mark = Image.Exif()
    mark[ExifTags.Base.Software] = MADE_BY
    content = io.BytesIO()
    content.name = str(path)  # which says the format
    try:
        page.save(content, exif=mark)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--out {path}: cannot be written ({error}). Give a file name such as sheet.png.") from error
    with creating(path):
        write_bytes(path, content.getvalue())
