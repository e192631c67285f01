"""`codev play`: a person plays a task in the terminal, with the observations and rewards of a model."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
import textwrap
import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.app.arguments import parse
from codev_env.app.named_values import columns_of, reader_of, scenes_of
from codev_env.app.options import Field, option_class
from codev_env.app.outputs import make_folder
from codev_env.errors import ConfigError, unknown
from codev_env.messages import to_pil
from codev_env.registration import env_id_of
from codev_env.tasks import BENCHES, default_split, load_tasks
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Observation, TaskSet

HELP = """\
Write a turn as a model would. It ends with {stop}, or with a line that holds only a dot. Shorter:
  /crop X1 Y1 X2 Y2   look at a box of the image, in pixels
  /answer TEXT        answer
  /prompt             show the system prompt of the model
  /help               show this text; so does help or ?
  /quit               end; so do quit, exit and Ctrl-D"""
ENDS = ("quit", "exit", "/quit", "/exit")
_SOFTWARE = "codev play"
_SHORTCUT = re.compile(r"\s*(crop|answer|prompt)((?:\s.*)?)$", re.IGNORECASE)
"""A shortcut without its slash."""
_TURN_FILE = re.compile(r"turn\d+_\d+\.png")


@option_class
class PlayOptions:
    """Play a task yourself, with the observations and rewards of a model."""

    bench: str = "vstar"
    """Benchmark: `vstar`, `hrbench4k`, `mathvista`, …, or `dataset` for your own data (docs/data.md)."""
    data: str | None = None
    """`synthetic` (the default where there are generated scenes), `hub`, or a path."""
    split: str = ""
    """Split of the data; empty: the one that the benchmark is evaluated on."""
    scenes: str | None = None
    """Generated scenes: a preset (`toy`, `tiny`, `vstar`, …), or JSON."""
    columns: tuple[str, ...] = ()
    """Own data: the column of each field, such as `image=photo answer=label`."""
    reader: tuple[str, ...] = ()
    """Own data: more options of its reader, such as `boxes=xywh`."""
    image_folder: Path | None = None
    """Own data: folder of the images, if not the file's."""
    on_error: Literal["raise", "skip"] = "raise"
    """Bad rows: stop, or leave them out and count them."""
    index: int | None = None
    """Index of the task; by default one is drawn."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the draw."""
    dialect: str = "codev"
    """Dialect of the turns: a name of docs/dialects.md, or `MODULE:ATTRIBUTE`."""
    reward: str = "tapo"
    """Reward: a name of `codev rewards list`, or `MODULE:ATTRIBUTE`."""
    scorer: str = "rules"
    """Scorer of answers: a name of docs/scorers.md, `URL#NAME`, or `MODULE:ATTRIBUTE`."""
    judge: str = "auto"
    """Judge of tool calls: `auto`, `ground_truth`, `none`, `URL#NAME`, or `MODULE:ATTRIBUTE`."""
    max_turns: Annotated[int, Field(ge=1)] = 6
    """Turns, the answer included."""
    out: Path | None = None
    """Folder for the images; by default a temporary one, removed at the end."""
    open: bool = False
    """Open each image in the desktop's program."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `codev play`; returns the exit code."""
    given = parse(PlayOptions, sys.argv[2:] if argv is None else argv, "codev play")
    if given.bench not in BENCHES:
        raise unknown("bench", given.bench, BENCHES)
    if given.out is not None and given.out.exists() and not given.out.is_dir():
        raise ConfigError(f"--out {given.out} is a file; give a folder.")
    tasks = _tasks(given)
    if given.index is not None and not 0 <= given.index < len(tasks):
        raise ConfigError(f"--index is {given.index}; {tasks.name} has the tasks 0 to {len(tasks) - 1}.")
    player = EpisodeRunner(
        env_id_of(given.bench),
        data=tasks,
        dialect=given.dialect,
        scorer=given.scorer,
        reward=given.reward,
        judge=given.judge,
        max_turns=given.max_turns,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(player.env.close)
        folder = given.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="codev-play-")))
        make_folder(folder)
        play(player, folder, index=given.index, seed=given.seed, show=given.open)
    return 0


def play(player: EpisodeRunner, folder: Path, *, index: int | None, seed: int, show: bool = False) -> None:
    """Play one episode with the turns that standard input holds.

    Args:
        player: Runs the environment.
        folder: Folder for the images.
        index: Index of the task; `None` draws one.
        seed: Seed of the draw.
        show: Open each image in the program of the desktop.

    Raises:
        ConfigError: The folder has a file of another program where an image may be written.
    """
    observation = player.reset(index=index, seed=seed)
    base = player.base
    names = [base.dialect.image_name(i) for i in range(len(observation["images"]))]
    # In some dialects the name is that of a variable.
    paths = [folder / (name if name.endswith(".png") else f"{name}.png") for name in names]
    _check_free([*paths, *(path for path in folder.iterdir() if _TURN_FILE.fullmatch(path.name))])
    _tell(_help(base.dialect.stop))
    _tell(f"\nTask {player.info['index']}: {player.info['task_id']}, at most {base.max_turns} turns\n")
    _show(observation, paths, show)
    while not player.done:
        text = _read_turn(player, f"\n[turn {player.turns + 1} of {base.max_turns}]")
        if text is None:
            break
        before = dict(player.reward_terms)
        observation = player.step(text)
        numbers = range(1, len(observation["images"]) + 1)
        _show(observation, [folder / f"turn{player.turns}_{number}.png" for number in numbers], show)
        earned = {name: value - before.get(name, 0.0) for name, value in player.reward_terms.items()}
        _tell(f"turn reward: {_terms(earned)}")
    _tell_end(player)


def _tasks(given: PlayOptions) -> TaskSet:
    """Load the tasks that the options choose, as `codev eval` does."""
    bench = BENCHES[given.bench]
    if given.data is None and not given.scenes and not bench.folder:
        example = "rows.jsonl" if bench.name == "dataset" else "FOLDER"
        raise ConfigError(
            f"--bench {bench.name} ({bench.title}) has no data of its own. Name yours: "
            f"codev play --bench {bench.name} --data {example}. --data synthetic gives generated scenes."
        )
    return load_tasks(
        given.data or "synthetic",
        given.split or default_split(bench.name),
        bench=bench.name,
        scenes=scenes_of(given.scenes),
        columns=columns_of(given.columns),
        reader=reader_of(given.reader),
        image_folder=given.image_folder,
        on_error=given.on_error,
    )


def _read_turn(player: EpisodeRunner, heading: str) -> str | None:
    """Read lines until a turn is complete; `None` at the end of the input if nothing was written."""
    dialect = player.base.dialect
    if sys.stdin.isatty():
        print(heading)
    lines: list[str] = []
    while (line := _read_line()) is not None:
        if not lines and line.strip().lower() in ENDS:
            return None
        if not lines and (line.startswith("/") or line.strip().lower() in ("help", "?")):
            turn = _shortcut(player, line)
            if turn is not None:
                return turn
            continue
        if not lines and (named := _SHORTCUT.match(line)):
            _tell(f"Shortcuts begin with a slash: /{named[1].lower()}{named[2]}")
            continue
        if line.strip() == "." and lines:
            break
        if lines or line.strip(" ."):
            lines.append(line)
        if any(line.rstrip().endswith(stop) for stop in dialect.stop):
            break
        if len(lines) == 1 and "<" not in line and sys.stdin.isatty():
            _tell("(The turn goes on; a line that holds only a dot ends the turn. /help shows the shortcuts.)")
    else:
        return "\n".join(lines) or None
    return "\n".join(lines)


def _read_line() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "")
    except EOFError:
        return None


def _shortcut(player: EpisodeRunner, line: str) -> str | None:
    """Return the turn of a shortcut; `None` if it is no turn, after printing why."""
    command, _, rest = line.partition(" ")
    command = command.lower()
    dialect = player.base.dialect
    try:
        if command == "/answer" and rest.strip():
            return dialect.write(Answer(rest.strip()), "I answer.")
        if command == "/crop":
            x1, y1, x2, y2 = (int(value) for value in rest.replace(",", " ").split())
            return dialect.write(dialect.crop((x1, y1, x2, y2)), "I look closer.")
        _tell(player.base.system_prompt if command == "/prompt" else _help(dialect.stop))
    except ConfigError as error:
        _tell(str(error))
    except ValueError:
        _tell("Write /crop X1 Y1 X2 Y2 with four whole numbers.")
    return None


def _check_free(paths: Iterable[Path]) -> None:
    """Raise `ConfigError` for the first file that is there and was not written by `codev play`."""
    for path in paths:
        try:
            with Image.open(path) as image:
                mine = image.info.get("Software") == _SOFTWARE
        except FileNotFoundError:
            continue
        except OSError:  # No image.
            mine = False
        if not mine:
            raise ConfigError(
                f"--out {path.parent} holds {path.name}, which is not of codev play: give another folder."
            )


def _show(observation: Observation, paths: list[Path], show: bool) -> None:
    """Save the images and print the text, with paths in place of the images."""
    text = _wrapped(observation["text"])
    mark = PngInfo()
    mark.add_text("Software", _SOFTWARE)
    for image, path in zip(observation["images"], paths, strict=True):
        to_pil(image).save(path, pnginfo=mark)
        text = text.replace(IMAGE_PLACEHOLDER, f"[image: {path}]", 1)
        if show:
            webbrowser.open(path.resolve().as_uri())
    if text:
        print(text, flush=True)


def _help(stop: Sequence[str]) -> str:
    return HELP.format(stop=" or ".join(stop))


def _tell(text: str) -> None:
    print(_wrapped(text), flush=True)


def _wrapped(text: str) -> str:
    """Break lines between words at the width of the terminal; the second column of the help stays a column."""
    width = shutil.get_terminal_size().columns

    def wrapped(line: str) -> str:
        column = re.match(r" +\S.*? {2,}(?=\S)", line)
        indent = " " * (column.end() if column and column.end() < width // 2 else 0)
        return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)

    return "\n".join(line if len(line) <= width else wrapped(line) for line in text.split("\n"))


def _tell_end(player: EpisodeRunner) -> None:
    if not player.done:
        _tell("\nThe episode was left before its end.")
        return
    task = player.base.task
    if player.info["is_correct"]:
        verdict = "The answer is right"
    elif player.info["stop_reason"] == "answer":
        verdict = f"The answer is wrong; the right one is: {task.answer}"
    else:
        verdict = f"There was no answer; the right one is: {task.answer}"
    calls = [step for step in player.base.episode.steps if step.kind == "code"]
    if not calls:
        look = "No program looked at the evidence"
    elif not player.info["is_faithful"] and all(step.score_value is None for step in calls):
        look = "The images were not judged. The evidence"
    else:
        look = f"The images {'showed' if player.info['is_faithful'] else 'did not show'} the evidence"
    _tell(f"\n{verdict}. {look}: {list(task.targets) or 'unknown'}.")
    _tell(f"reward: {_terms(player.reward_terms)}")


def _terms(terms: dict[str, float]) -> str:
    named = ", ".join(f"{name} {value:+.2f}" for name, value in terms.items())
    return f"{sum(terms.values()):+.2f} ({named})"
