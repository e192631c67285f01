"""`codev judge`: whether a judge answers, and how well it agrees with ground truth on crops of known kind."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from tqdm import tqdm

from codev_env.app.arguments import parse, run_subcommand
from codev_env.app.outputs import check_new
from codev_env.errors import CodevError, ConfigError
from codev_env.judges import Judge, NoJudge, ServedJudge, get_judge
from codev_env.tasks import load_tasks
from codev_env.trajectory import FILE_NAME as TRAJECTORIES
from codev_env.trajectory import IMAGE_DIR, TrajectoryWriter
from codev_env.types import TaskSet
from codev_eval.agreement.judging import JudgedCrop, judge_scenes
from codev_eval.agreement.options import AgreementOptions, PingOptions
from codev_eval.agreement.sheet import draw_row, stack
from codev_eval.agreement.table import summarize, text_table
from codev_eval.bench.folder import remove_trajectories

RESULT, TEXT, SHEET = "agreement.json", "agreement.txt", "sheet.png"
SCHEMA = 1
SHEET_SCENES = 12
"""Scenes on the contact sheet."""
MOST_FAILURES = 20
"""A study stops after so many failures if they are more than half of its crops so far."""


class AgreementError(CodevError, RuntimeError):
    """Most crops could not be judged by both judges: rates of the others would mean nothing."""


COMMANDS = {
    "agreement": "measure how well a judge agrees with ground truth",
    "ping": "ask whether a judge answers, at hardly any cost",
}


def main(argv: Sequence[str]) -> int:
    """Run `codev judge COMMAND` and return its exit code: 1 if some crops could not be judged."""
    return run_subcommand("codev judge", COMMANDS, argv, _run)


def _run(name: str, words: list[str]) -> int:
    if name == "ping":
        print(ping(parse(PingOptions, words, "codev judge ping").judge))
        return 0
    options = parse(AgreementOptions, words, "codev judge agreement")
    record = run_agreement(options)
    print(json.dumps(record, indent=2) if options.json else f"\n{text_table(record)}\n\nResults: {options.out}")
    failures = record["failures"]
    if not failures["total"]:
        return 0
    print(f"codev judge: {failures['total']} crops could not be judged and are not counted:", file=sys.stderr)
    for failure in failures["first"]:
        print(f"  {failure['task']}, {failure['kind']}: {failure['reason']}", file=sys.stderr)
    return 1


def run_agreement(options: AgreementOptions) -> dict[str, Any]:
    """Measure, write the results, and return what agreement.json holds.

    Raises:
        ConfigError: If an option cannot be used; nothing is written then.
        AgreementError: If most crops could not be judged by both; nothing is written then.
    """
    judge, reference = (_ready(getattr(options, name), f"--{name}") for name in ("judge", "against"))
    sets = [
        load_tasks("synthetic", "test", scenes={"preset": name, "size": options.n, "seed": options.seed})
        for name in options.scenes
    ]
    _check_folder(options)
    check_new(options.out)
    # Written beside and copied at the end: a study that fails leaves nothing behind and removes nothing.
    out = options.out.resolve()  # "." has no name
    scratch = out.with_name(f".{out.name}.partial")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        record = _measure(options, sets, judge, reference, scratch)
        remove_trajectories(options.out)
        shutil.copytree(scratch, options.out, dirs_exist_ok=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return record


def ping(spec: str) -> str:
    """Return one line on a judge; raises `JudgeError` if it needs a server that does not answer."""
    return _ping(get_judge(spec)) or f"{spec} needs no server"


def _ping(judge: Judge) -> str:
    """Ask a judge that needs a server whether it answers; empty for one that needs nothing."""
    return judge.ping() if isinstance(judge, ServedJudge) else ""


def _ready(spec: str, option: str) -> Judge:
    """Make the judge that an option names, and check that it answers: a study without it would only fail later."""
    judge = get_judge(spec)
    if isinstance(judge, NoJudge):
        raise ConfigError(f"{option} {spec!r} scores nothing; name a judge that does, such as ground_truth.")
    _ping(judge)
    return judge


def _check_folder(options: AgreementOptions) -> None:
    """Refuse a folder that holds results, unless they are a study's that is to be replaced."""
    out = options.out
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; give a folder.")
    found = [name for name in (RESULT, TEXT, SHEET, TRAJECTORIES, IMAGE_DIR) if (out / name).exists()]
    if found and RESULT not in found:
        raise ConfigError(f"--out {out} already holds {found[0]}, which is of no study: give another folder.")
    if found and not options.overwrite:
        raise ConfigError(f"--out {out} already holds {found[0]}: give another folder, or add --overwrite.")


def _measure(
    options: AgreementOptions, sets: Sequence[TaskSet], judge: Judge, reference: Judge, folder: Path
) -> dict[str, Any]:
    scenes: list[tuple[str, tuple[JudgedCrop, ...]]] = []
    rows: list[Image.Image] = []
    total = options.n * len(sets)
    with TrajectoryWriter(folder) as writer, tqdm(total=total, desc="judge", unit="scene") as bar:
        for tasks in sets:
            for scene in judge_scenes(
                tasks, judge, reference, seed=options.seed, workers=options.workers, calls=options.calls
            ):
                writer.append(scene.trajectory)
                scenes.append((scene.trajectory.task_id, scene.crops))
                if len(rows) < SHEET_SCENES:
                    rows.append(draw_row(scene))
                bar.update()
                _check_failures(scenes, MOST_FAILURES)
    _check_failures(scenes, 1)
    named = {"judge": options.judge, "against": options.against, "scenes": options.scenes, "seed": options.seed}
    record: dict[str, Any] = {"schema": SCHEMA, **named, **summarize(scenes, options.seed)}
    (folder / RESULT).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    (folder / TEXT).write_text(text_table(record) + "\n", "utf-8")
    stack(rows).save(folder / SHEET)
    return record


def _check_failures(scenes: Sequence[tuple[str, Sequence[JudgedCrop]]], least: int) -> None:
    crops = [crop for _, crops in scenes for crop in crops]
    failures = [crop for crop in crops if crop.failed]
    if len(failures) >= least and 2 * len(failures) > len(crops):
        raise AgreementError(
            f"{len(failures)} of {len(crops)} crops could not be judged by both; the first: {failures[0].reason}"
        )
