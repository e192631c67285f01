"""`codev data push` and `codev data pull`: tasks as a data set of the hub, and back.

A data set is a folder for each split with `metadata.jsonl` and `images/`, the form that the hub's viewer and `datasets`
read as well; `--bench dataset` reads it again as the same tasks.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from codev_env.app.outputs import check_new
from codev_env.errors import CodevError, ConfigError, first_line
from codev_env.files import write_text
from codev_env.geometry import numbered
from codev_env.tasks import load_tasks
from codev_env.tasks.readers.hub import download
from codev_env.tasks.readers.record import COLUMN, record_of
from codev_env.types import Task, TaskSet
from codev_eval.data.options import PullCommand, PushCommand
from codev_eval.data.progress import progress

ROWS, IMAGES, CARD = "metadata.jsonl", "images", "README.md"


class PushFailed(CodevError):
    """The hub did not take a data set; the message has the command that repeats the upload."""


def run_push(command: PushCommand) -> int:
    """Make the repository, write the data set and upload it; returns the exit code, 0."""
    out = command.out
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out} exists already; give a new or an empty folder.")
    _check_name(command.repo)
    tasks = command.load()
    # Writing takes long, so a wrong place, a wrong token or a missing network is found before.
    if out is not None:
        check_new(out)
    repository, failure = "", None
    try:
        repository = _create(command.repo, command.private)
    except PushFailed as error:
        if out is None:
            raise PushFailed(f"{error} Nothing was written; --out FOLDER writes the files without the hub.") from error
        print(f"{error} Writing the files to {out} for a later upload.", file=sys.stderr)
        failure = error
    if repository:  # without an owner it is the user's; others need the whole name
        command = replace(command, repo=repository)
    if out is None:
        folder = Path(tempfile.mkdtemp(prefix="codev-push-"))
        try:
            write_data_set(folder, tasks, command)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        _upload(folder, command, repository)
        shutil.rmtree(folder)
        return 0
    # In place at once, so that a folder that exists is complete.
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as made:
        write_data_set(Path(made) / "data", tasks, command)
        if out.exists():
            out.rmdir()
        shutil.move(Path(made) / "data", out)
    if failure is not None:
        raise PushFailed(f"{failure} {_advice(out, command)}") from failure
    _upload(out, command, repository)
    return 0


def run_pull(command: PullCommand) -> int:
    """Download a data set, open each of its splits, and return the exit code, 0."""
    if command.out.exists() and not command.out.is_dir():
        raise ConfigError(f"--out {command.out} is a file; give a folder.")
    if not command.out.exists():
        check_new(command.out)
    folder = download(command.repo, ["*"], revision=command.revision, local_dir=command.out)
    splits = sorted(path.parent.name for path in folder.glob(f"*/{ROWS}"))
    for split in splits:
        tasks = load_tasks(str(folder), split, bench="dataset", reader={"boxes": "xyxy"})
        print(f"{folder / split}: {len(tasks)} tasks")
        words = ["--bench", "dataset", "--data", str(folder), "--split", split, "--reader", "boxes=xyxy"]
        print(f"  codev data check {shlex.join(words)}")
    if not splits:
        print(f"{folder}: downloaded. It is no data set of `codev data push`: see docs/data.md.")
    return 0


def write_data_set(folder: Path, tasks: TaskSet, command: PushCommand) -> None:
    """Write tasks, and the card of the data set.

    Args:
        folder: The folder, made if it is missing.
        tasks: The tasks.
        command: The options they were chosen by.
    """
    count = min(len(tasks), command.n or len(tasks))
    place = folder / command.split
    (place / IMAGES).mkdir(parents=True)
    several = False
    rows, categories, sources = [], Counter[str](), Counter[str]()
    with progress("task", "write", count) as bar:
        for index in range(count):
            task = tasks[index]
            rows.append(_row(task, index, place))
            several = several or len(task.images) > 1
            categories[task.category] += 1
            sources[task.source] += 1
            bar.update()
    for row in rows:  # one form for all rows, which the hub's viewer wants
        if not several:
            row["file_name"] = row.pop("file_names")[0]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text(place / ROWS, lines)
    write_text(folder / CARD, data_card(command, tasks.name, sources, categories))


def _row(task: Task, index: int, place: Path) -> dict[str, Any]:
    names = [f"{IMAGES}/{index:06d}{f'-{number}' if number else ''}.png" for number in range(len(task.images))]
    for name, image in zip(names, task.images, strict=True):
        image.save(place / name)
    return {
        "file_names": names,
        "id": task.task_id,
        "question": task.question,
        "answer": task.answer,
        "choices": list(task.choices),
        "targets": [numbered(box) for box in task.targets],
        "category": task.category,
        "transform": list(task.transform),
        COLUMN: record_of(task),
    }


def data_card(command: PushCommand, name: str, sources: Counter[str], categories: Counter[str]) -> str:
    """Write the card of a data set: what the tasks are, the fields of a row, and how to use them. No local paths."""
    count = sum(sources.values())
    data = command.data if command.data in ("synthetic", "hub") else "files"
    made = {"synthetic": f"generated scenes (`{command.scenes or command.bench}`)", "hub": "the published data"}.get(
        data, "data of the author's own"
    )
    table = "\n".join(f"| {_cell(category)} | {number} |" for category, number in sorted(categories.items()))
    bench = "" if command.bench == "dataset" else f", benchmark `{command.bench}`"
    return f"""---
task_categories: [visual-question-answering]
tags: [codev-env]
configs:
- config_name: default
  data_files:
  - split: {json.dumps(command.split)}
    path: {json.dumps(f"{command.split}/**")}
---

# {command.repo.rpartition("/")[2]}

{count} questions about images with the boxes of their evidence, for agents that look before they answer: {made}{bench},
task set `{name}`.

| category | tasks |
| --- | --- |
{table}

A row has `file_name` (or `file_names`, if some tasks have several), `id`, `question`, `answer`, `choices`, `targets`
(boxes `[x1, y1, x2, y2]` of the evidence in pixels of the first image; a fifth number is the image, from 0; empty where
unknown), `category`, `transform` (what was done to the original image) and `{COLUMN}` (JSON: `shown`, the number of
images in the first observation; `times`, the seconds of frames; `source`; `meta`). Images are PNG files, exactly as the
tasks have them.

## Use

```
codev data pull {command.repo} --out data
codev eval --model scripted:oracle --bench dataset --data data --split {command.split} --reader boxes=xyxy --out results
```
"""


def _cell(text: str) -> str:
    """Return a text as a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|") or "–"


def _check_name(repo: str) -> None:
    """Raise `ConfigError` for a name that no repository of the hub can have."""
    try:
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id
    except ImportError as error:
        raise ConfigError(
            f"uploading needs huggingface_hub ({error}). Install it: pip install 'codev-env[data]'."
        ) from error
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ConfigError(
            f"REPO is {repo!r}; it must be NAME or OWNER/NAME of letters, digits, '-', '_' and '.', at most 96 "
            "characters, without '--' or '..', and with neither '-' nor '.' at its ends."
        ) from error


def _create(repo: str, private: bool) -> str:
    """Make the repository where it is missing; returns its full name."""
    from huggingface_hub import HfApi

    try:
        made = HfApi().create_repo(repo, repo_type="dataset", private=private or None, exist_ok=True)
    except Exception as error:  # of whichever HTTP library this version of the client uses
        raise PushFailed(
            f"the repository {repo} could not be made: {first_line(error)}. Check the owner, the network and the token "
            "(`hf auth login` or HF_TOKEN)."
        ) from error
    return str(made.repo_id)


def _upload(folder: Path, command: PushCommand, repository: str) -> None:
    """Upload the folder; after a failure it stays, and the message names the command that repeats the upload."""
    from huggingface_hub import HfApi

    try:
        HfApi().upload_folder(
            repo_id=repository, repo_type="dataset", folder_path=folder, commit_message="codev data push"
        )
    except Exception as error:  # as above
        advice = _advice(folder, command)
        raise PushFailed(f"the upload to {command.repo} failed: {first_line(error)}. {advice}") from error
    print(f"Uploaded: {HfApi().endpoint}/datasets/{repository}")


def _advice(folder: Path, command: PushCommand) -> str:
    private = ["--private"] if command.private else []
    again = shlex.join(["hf", "upload", command.repo, str(folder), "--repo-type", "dataset", *private])
    return f"The data set is complete in {folder}. Upload it with: {again}"
