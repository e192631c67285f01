"""A contact sheet of judged crops: a row for each scene, a column for each kind, framed by agreement."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from codev_env.types import StepScore
from codev_eval.agreement.crops import KINDS
from codev_eval.agreement.judging import JudgedScene

_COLUMNS = tuple(KINDS)
_SIDE, _GAP, _LINE = 132, 6, 14
_SAME, _OTHER, _NONE = (40, 140, 60), (200, 40, 40), (150, 150, 150)
_TEXT = (30, 30, 30)


def draw_row(scene: JudgedScene) -> Image.Image:
    """Draw a scene with its targets, and beside it its crops with both scores.

    A frame is green where the judges agree on whether the crop is faithful, red where they do not, grey where there are
    no two scores. `yes` and `no` are the verdicts; the reference comes first.
    """
    page = Image.new("RGB", (_GAP + (1 + len(_COLUMNS)) * (_SIDE + _GAP), _SIDE + 2 * _GAP + 2 * _LINE), "white")
    about = scene.trajectory
    _draw_cell(page, 0, _overview(scene), _TEXT, [about.question, about.task_id])
    for crop, turn in zip(scene.crops, about.turns, strict=True):
        color = _NONE
        if crop.reference and crop.judge:
            color = _SAME if crop.reference.faithful == crop.judge.faithful else _OTHER
        lines = [crop.kind, f"{_score(crop.reference)} / {_score(crop.judge)}"]
        _draw_cell(page, 1 + _COLUMNS.index(crop.kind), turn.images[0] if turn.images else None, color, lines)
    return page


def stack(rows: Sequence[Image.Image]) -> Image.Image:
    """Put rows of equal size below each other."""
    page = Image.new("RGB", (rows[0].width, sum(row.height for row in rows)))
    for number, row in enumerate(rows):
        page.paste(row, (0, number * row.height))
    return page


def _draw_cell(
    page: Image.Image, column: int, image: Image.Image | None, color: tuple[int, int, int], lines: list[str]
) -> None:
    canvas, x, y = ImageDraw.Draw(page), _GAP + column * (_SIDE + _GAP), _GAP
    if image is not None:
        factor = _SIDE / max(image.size)
        size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
        page.paste(image.convert("RGB").resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0), (x, y))
    canvas.rectangle((x - 2, y - 2, x + _SIDE + 1, y + _SIDE + 1), outline=color, width=2)
    font = ImageFont.load_default(11)
    for number, line in enumerate(lines):
        text = line.encode("ascii", "replace").decode()
        while font.getlength(text) > _SIDE:
            text = text[:-1]
        canvas.text((x, y + _SIDE + 3 + number * _LINE), text, fill=color if number else _TEXT, font=font)


def _overview(scene: JudgedScene) -> Image.Image:
    image = scene.trajectory.images[0].convert("RGB")
    canvas, line = ImageDraw.Draw(image), max(2, max(image.size) // 100)
    for x1, y1, x2, y2 in scene.trajectory.targets:
        canvas.rectangle((x1 - 2 * line, y1 - 2 * line, x2 + 2 * line, y2 + 2 * line), outline=_OTHER, width=line)
    return image


def _score(score: StepScore | None) -> str:
    return "none" if score is None or score.value is None else f"{score.value:.2f} {'yes' if score.faithful else 'no'}"
