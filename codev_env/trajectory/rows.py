"""Trajectories as JSON: one writer of schema 2, one reader of schemas 1 and 2.

A turn of schema 2 has every field of schema 1, and more, so that it is read back as it was written: `answer` and
`reason` (the text of an answer, the problem of a turn that could not be parsed), `image_index`, `names` and `repairs`
(see `Code` and `Execution`), and `returned`: the images that the program returned where others were shown, else null.
`score_why` is null where there is no score. `any_crop`, `spread` and `definition` (see `StepScore`) are missing in rows
of the first definition of *faithful*, and `judge_usage` where the judge sent no request. A row has `share` only where
the scorer gives parts of a point, and `times` only for a video.
A box has a fifth number, its image, where that is not the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from codev_env.geometry import ImageBox, numbered
from codev_env.trajectory.images import ImageFiles, same_images
from codev_env.trajectory.record import Trajectory
from codev_env.types import Answer, Box, Code, Execution, Invalid, Region, Step, StepScore, Turn
from codev_env.usage import Usage

SCHEMA = 2
SCHEMAS = (1, 2)
"""The schemas that this version reads."""
FILE_NAME = "trajectories.jsonl"

Row = dict[str, Any]
Save = Callable[[Image.Image], str]
"""Saves an image and returns the path of its file."""

_REGION = tuple(f.name for f in fields(Region) if f.compare and f.name not in ("others", "repeated"))
_TRAJECTORY = {f.name for f in fields(Trajectory)}
_TURN_REQUIRED = {"action", "kind"}
_TURN_1: Row = {
    "code": None,
    "stdout": "",
    "error": None,
    "stop": None,
    "observation": "",
    "images": (),
    "crop_boxes": (),
    "reward": 0.0,
    "reward_terms": {},
    "score": None,
    "score_why": "",
    "faithful": False,
    "judge_failed": False,
    "wall_s": 0.0,
    "regions": (),
    "problems": (),
    "probed": None,
}
_TURN_2: Row = _TURN_1 | {
    "score_why": None,
    "answer": None,
    "reason": None,
    "image_index": 0,
    "names": (),
    "repairs": (),
    "returned": None,
    "any_crop": None,
    "spread": False,
    "definition": "",
    "judge_usage": None,
}
"""Fields of a turn that a row may leave out, with their defaults."""


def row_of(trajectory: Trajectory, save: Save) -> Row:
    """Return the row of a trajectory; its images are saved first."""
    row = {f.name: _plain(getattr(trajectory, f.name)) for f in fields(trajectory)}
    row["targets"] = [numbered(box) for box in trajectory.targets]
    if row["share"] is None:
        del row["share"]
    if not row["times"]:
        del row["times"]
    row |= {"images": _saved(trajectory.images, save), "turns": [_turn_row(turn, save) for turn in trajectory.turns]}
    return {"schema": SCHEMA, **row}


def trajectory_of(row: Row, folder: Path) -> Trajectory:
    """Return the trajectory of a row.

    Args:
        row: Of a schema in `SCHEMAS`.
        folder: Where its image files are.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: It is not such a row.
    """
    schema, row = row["schema"], {name: value for name, value in row.items() if name != "schema"}
    _check_names(row, _TRAJECTORY, {"task_id", "turns"})
    found = row | {"images": _images(row.get("images", ()), folder)}
    for name in ("choices", "transform", "times"):
        found[name] = tuple(row.get(name, ()))
    found["targets"] = tuple(_box_of(box) for box in row.get("targets", ()))
    read = _step_of_schema_1 if schema == 1 else _step_of
    found["turns"] = tuple(read(turn, folder, row.get("final_answer")) for turn in row["turns"])
    return Trajectory(**found)


def _turn_row(step: Step, save: Save) -> Row:
    turn, execution = step.turn, step.execution
    returned = None if execution is None or same_images(execution.images, step.images) else execution.images
    row = {
        "action": step.action,
        "kind": step.kind,
        "code": step.code,
        "stdout": step.stdout,
        "error": step.error,
        "stop": step.stop,
        "observation": step.observation,
        "images": _saved(step.images, save),
        "crop_boxes": [None if box is None else numbered(box) for box in step.crop_boxes],
        "reward": step.reward,
        "reward_terms": step.reward_terms,
        "score": step.score_value,
        "score_why": None if step.score is None else step.score.why,
        "faithful": step.faithful,
        "judge_failed": step.judge_failed,
        "any_crop": None if step.score is None else step.score.any_crop,
        "spread": step.score is not None and step.score.spread,
        "definition": "" if step.score is None else step.score.definition,
        "wall_s": step.wall_s,
        "regions": [_region_row(region) for region in step.regions],
        "problems": step.problems,
        "probed": step.probed,
        "answer": turn.text if isinstance(turn, Answer) else None,
        "reason": turn.reason if isinstance(turn, Invalid) else None,
        "image_index": turn.image_index if isinstance(turn, Code) else 0,
        "names": execution.names if execution else (),
        "repairs": execution.repairs if execution else (),
        "returned": None if returned is None else _saved(returned, save),
    }
    if step.score is not None and step.score.usage:
        row["judge_usage"] = vars(step.score.usage)
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Return a number of NumPy, such as a judge may compute, as one of Python; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _step_of_schema_1(row: Row, folder: Path, final_answer: str | None) -> Step:
    """Read a turn of schema 1, in which an answer's text and a parser's reason have no field of their own."""
    _check_names(row, _TURN_1.keys() | _TURN_REQUIRED, _TURN_REQUIRED)
    row = _TURN_1 | row
    scored = row["score"] is not None or row["score_why"] or row["faithful"] or row["judge_failed"]
    answer = row["action"] if final_answer is None else final_answer
    added = {"score_why": row["score_why"] if scored else None, "answer": answer, "reason": row["observation"]}
    return _step_of(row | added, folder, final_answer)


def _step_of(row: Row, folder: Path, final_answer: str | None) -> Step:
    _check_names(row, _TURN_2.keys() | _TURN_REQUIRED, _TURN_REQUIRED)
    row = _TURN_2 | row
    images = _images(row["images"], folder)
    probed = row["probed"]
    return Step(
        action=row["action"],
        turn=_turn(row),
        execution=_execution(row, images if row["returned"] is None else _images(row["returned"], folder)),
        regions=tuple(_region(region) for region in row["regions"]),
        score=None if row["score_why"] is None else _score(row),
        probed=None if probed is None else (bool(probed[0]), bool(probed[1])),
        observation=row["observation"],
        images=images,
        crop_boxes=tuple(None if box is None else _box_of(box) for box in row["crop_boxes"]),
        reward=float(row["reward"]),
        reward_terms={name: float(value) for name, value in row["reward_terms"].items()},
    )


def _turn(row: Row) -> Turn:
    problems = tuple(row["problems"])
    match row["kind"]:
        case "code":
            return Code(row["code"] or "", problems, row["image_index"])
        case "answer":
            return Answer(row["answer"], problems)
        case "invalid":
            return Invalid(row["reason"], problems)
    raise ValueError(f"kind is {row['kind']!r}")


def _execution(row: Row, images: ImageFiles) -> Execution | None:
    if row["stop"] is None:
        return None
    names, repairs = tuple(row["names"]), tuple(row["repairs"])
    return Execution(row["stdout"], images, row["error"], row["stop"], row["wall_s"], names, repairs)


def _score(row: Row) -> StepScore:
    return StepScore(
        row["score"],
        row["score_why"],
        row["faithful"],
        row["judge_failed"],
        row["any_crop"],
        row["spread"],
        row["definition"],
        Usage(**(row["judge_usage"] or {})),
    )


def _box_of(row: Sequence[int]) -> Box:
    x1, y1, x2, y2, *image = row
    return ImageBox((x1, y1, x2, y2), image[0]) if image else (x1, y1, x2, y2)


def _region_row(region: Region) -> Row:
    row = {name: getattr(region, name) for name in _REGION}
    row |= {"repeated": region.repeated} if region.repeated else {}
    return row | ({"others": [_region_row(other) for other in region.others]} if region.others else {})


def _region(row: Row) -> Region:
    row = row | {"others": tuple(_region(other) for other in row.get("others", ()))}
    if row["polygon"] is not None:
        row["polygon"] = tuple((float(x), float(y)) for x, y in row["polygon"])
    if row["box"] is not None:
        row["box"] = tuple(row["box"])
    return Region(**row)


def _saved(images: Sequence[Image.Image], save: Save) -> list[Row]:
    return [{"file": save(image), "size": list(image.size)} for image in images]


def _images(entries: Sequence[Mapping[str, Any]], folder: Path) -> ImageFiles:
    return ImageFiles([folder / e["file"] for e in entries], [(e["size"][0], e["size"][1]) for e in entries])


def _check_names(row: Row, known: set[str], required: set[str]) -> None:
    if row.keys() - known or required - row.keys():
        raise ValueError(f"unknown fields {sorted(row.keys() - known)}, missing {sorted(required - row.keys())}")
