"""From a demonstration to the turns that are replayed: in its own dialect, or rewritten in another one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

from codev_env.dialects import Dialect, get_dialect
from codev_env.errors import ConfigError, unknown
from codev_env.types import Answer, Code, Task
from codev_eval.data.demonstrations import programs
from codev_eval.data.demonstrations.demonstration import Demonstration, Unusable

TARGETS = {"thyme": ("thyme", "codev"), "codevision": ("codevision", "codev", "thyme")}
"""By the dialect of a demonstration: the dialects it can be turned into. Others cannot express its programs."""

_THINK_TAGS = re.compile(r"</?think>")
_BLOCKS = {"thyme": re.compile(r"<(?:code|answer)>"), "codevision": re.compile(r"<(?:tool_call|answer)>")}


@dataclass(frozen=True)
class Plan:
    """A demonstration ready to be replayed.

    Attributes:
        task: The images and the question; its id is the demonstration's.
        texts: The model's turns in the target dialect.
        turns: The same, parsed; the last one is an `Answer`.
        adaptations: Names of the changes to programs, each once.
    """

    task: Task
    texts: tuple[str, ...]
    turns: tuple[Code | Answer, ...]
    adaptations: tuple[str, ...]


def check_target(source: str, target: str) -> None:
    """Raise `ConfigError` unless demonstrations in dialect `source` can be turned into dialect `target`."""
    if source not in TARGETS:
        raise unknown("dialect of demonstrations", source, TARGETS)
    if target not in TARGETS[source]:
        raise ConfigError(
            f"dialect is {target!r}; demonstrations in the dialect {source!r} can be turned into "
            f"{' or '.join(map(repr, TARGETS[source]))}."
        )


def plan(demo: Demonstration, dialect: str | None = None) -> Plan:
    """Turn a demonstration into the turns of a trajectory.

    Args:
        demo: The demonstration.
        dialect: The dialect to write it in; `None` for its own.

    Raises:
        Unusable: The dialect cannot express one of its turns.
        ConfigError: Demonstrations of this kind cannot be turned into that dialect.
    """
    target_name = dialect or demo.dialect
    check_target(demo.dialect, target_name)
    source, target = get_dialect(demo.dialect), get_dialect(target_name)
    notes: dict[str, None] = {}
    texts = _named(demo, source, target, notes)
    if source.name != target.name:
        texts = _rewritten(demo, texts, source, target, notes)
    turns: list[Code | Answer] = []
    for number, text in enumerate(texts, 1):
        turn = target.parse(text)
        wanted = Answer if number == len(texts) else Code
        if not isinstance(turn, wanted):
            raise Unusable("turn_unreadable", f"turn {number} is {type(turn).__name__} after its files were renamed")
        turns.append(turn)
    task = Task(
        task_id=demo.demo_id,
        images=demo.images,
        question=demo.question,
        answer=demo.answer,
        source="real",
        meta=dict(demo.meta),
    )
    return Plan(task, tuple(texts), tuple(turns), tuple(notes))


def _named(demo: Demonstration, source: Dialect, target: Dialect, notes: dict[str, None]) -> list[str]:
    """Return the turns with the names of files that the target's prompt gives, and without random names."""
    if demo.dialect != "thyme":
        return [turn.text for turn in demo.turns]
    paths: Sequence[str] = demo.paths
    if not paths:
        opened = (programs.first_opened_path(turn.text) for turn in demo.turns)
        paths = [path for path in opened if path][:1]
    texts, taken = [], 0
    for turn in demo.turns:
        text = turn.text
        for index, path in enumerate(paths[: len(demo.images)]):
            renamed = programs.rename_file(text, path, target.image_name(index))
            if renamed != text:
                notes["input renamed"] = None
            text = renamed
        parsed = source.parse(text)
        if isinstance(parsed, Code):
            code, count = programs.fix_random_names(parsed.code, taken)
            if count > taken:
                notes["random name replaced"] = None
                text = text.replace(parsed.code, code)
            taken = count
        texts.append(text)
    return texts


def _rewritten(
    demo: Demonstration, texts: Sequence[str], source: Dialect, target: Dialect, notes: dict[str, None]
) -> list[str]:
    """Parse each turn with its own dialect and write it in the target's."""
    files = [target.image_name(i) for i in range(len(demo.images))]
    written, codes = list[str](), list[str]()
    for number, (text, recorded) in enumerate(zip(texts, demo.turns, strict=True), 1):
        turn = source.parse(text)
        if isinstance(turn, Code):
            code = turn.code
            if source.name == "codevision":
                view = f"view{1 + len(files) - len(demo.images)}.png"
                if turn.image_index >= len(files):
                    raise Unusable(
                        "not_expressible", f"turn {number} works on image {turn.image_index} of {len(files)}"
                    )
                code = programs.with_file(code, files[turn.image_index], view)
                notes["files instead of variables"] = None
                files += [view] * bool(recorded.sizes)
            elif source.persist == "variables" and target.persist == "images":
                code, names = programs.carry(code, codes)
                if names:
                    notes["statements of earlier turns repeated"] = None
            codes.append(turn.code)
            turn = dataclasses.replace(turn, code=code, problems=(), image_index=0)
        if not isinstance(turn, (Code, Answer)):
            raise Unusable("turn_unreadable", f"turn {number}: {turn.reason}")
        turn = dataclasses.replace(turn, problems=())
        text = target.write(turn, _thinking(text, source.name))
        if target.parse(text) != turn:
            raise Unusable("not_expressible", f"turn {number} is read as another one in the dialect {target.name!r}")
        written.append(text)
    return written


def _thinking(text: str, dialect: str) -> str:
    """Return the text before the code or answer of a turn, without tags of thinking."""
    end = text.find("</think>")
    start = end if dialect == "codevision" and end >= 0 else 0
    block = _BLOCKS[dialect].search(text, start)
    return _THINK_TAGS.sub("", text[: block.start()] if block else text).strip()
