"""Runs a demonstration's programs in the sandbox and records what they give here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from PIL import Image

from codev_env.dialects import get_dialect
from codev_env.errors import ConfigError, unknown
from codev_env.images import to_shown_array
from codev_env.sandbox import Sandbox, Session
from codev_env.scoring import is_correct
from codev_env.seeds import seed_of
from codev_env.trajectory import Trajectory
from codev_env.types import Answer, Code, Execution, Step
from codev_eval.data.demonstrations.convert import Plan, plan
from codev_eval.data.demonstrations.demonstration import Demonstration, RecordedTurn, Unusable, reports_error

RecordedErrors = Literal["keep", "drop"]

_REASONS = {"refused": "refused", "timeout": "timeout", "memory": "limits", "output": "limits", "result": "limits"}


@dataclass(frozen=True)
class ReplayOptions:
    """Settings of the replay; a result depends on all of them.

    Attributes:
        dialect: The dialect of the trajectories; `None` for that of the data.
        wall_s: Seconds that one program may take.
        recorded_errors: Rows in which a program failed when it was recorded: `"keep"` them if the
            program fails here as well (error recovery), or `"drop"` it.
    """

    dialect: str | None = None
    wall_s: float = 10.0
    recorded_errors: RecordedErrors = "keep"

    def __post_init__(self) -> None:
        if self.recorded_errors not in get_args(RecordedErrors):
            raise unknown("recorded_errors", self.recorded_errors, get_args(RecordedErrors))
        if not self.wall_s > 0:
            raise ConfigError(f"wall_s is {self.wall_s!r}; it must be above 0 seconds.")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one row.

    Attributes:
        demo_id: The row.
        digest: Of its content.
        reason: Why it is left out, one of `REASONS`; `""` if it is kept.
        detail: The value or error that was seen.
        trajectory: The record, where it is kept. `meta["replay"]` describes the replay.
    """

    demo_id: str
    digest: str
    reason: str = ""
    detail: str = ""
    trajectory: Trajectory | None = None


def replay(demo: Demonstration, box: Sandbox, options: ReplayOptions) -> Outcome:
    """Run every program of a demonstration, under the rules an environment has for the dialect.

    Observations of the trajectory are made from what the programs gave here, not from what was recorded.

    Args:
        demo: The demonstration.
        box: Runs the programs, within its limits.
        options: How.

    Raises:
        SandboxError: The sandbox itself does not work; this says nothing about the demonstration.
    """
    try:
        planned = plan(demo, options.dialect)
        turns, facts = _run(demo, planned, box, options)
    except Unusable as verdict:
        return Outcome(demo.demo_id, demo.digest, verdict.reason, verdict.detail)
    dialect = get_dialect(options.dialect or demo.dialect)
    answer = planned.turns[-1]
    assert isinstance(answer, Answer)
    trajectory = Trajectory(
        task_id=demo.demo_id,
        split="train",
        source="real",
        question=demo.question,
        answer=demo.answer,
        system_prompt=dialect.system_prompt(),
        prompt=dialect.first_message(planned.task),
        images=demo.images,
        dialect=dialect.name,
        observation_role=dialect.observation_role,
        agent=f"demonstration:{demo.dialect}",
        turns=turns,
        final_answer=answer.text,
        is_correct=demo.is_gold and bool(is_correct(planned.task, answer.text)),
        stop_reason="answer",
        meta={
            **demo.meta,
            "replay": {
                "digest": demo.digest,
                "where": demo.where,
                "has_gold_answer": demo.is_gold,
                "problems": list(demo.problems),
                "adaptations": list(planned.adaptations),
                **facts,
            },
        },
    )
    return Outcome(demo.demo_id, demo.digest, trajectory=trajectory)


def _run(
    demo: Demonstration, planned: Plan, box: Sandbox, options: ReplayOptions
) -> tuple[tuple[Step, ...], dict[str, Any]]:
    """Run the programs in one session; returns the records of the turns and the description of the replay."""
    if options.recorded_errors == "drop" and any(turn.failed for turn in demo.turns):
        raise Unusable("recorded_error", "a recorded output reports an error")
    dialect = get_dialect(options.dialect or demo.dialect)
    inputs = {dialect.image_name(i): image for i, image in enumerate(demo.images)}
    records: list[Step] = []
    same_text: list[bool] = []
    same_sizes = True
    repairs: list[list[str]] = []
    seed = seed_of(planned.task.task_id)
    if len(planned.turns) == 1:
        return (Step(planned.texts[0], planned.turns[0]),), _facts(same_text, same_sizes, repairs, demo)
    with box.session(inputs, seed=seed, persist=dialect.persist, repairs=dialect.repairs) as session:
        seen = tuple(inputs)
        for text, turn, recorded in zip(planned.texts[:-1], planned.turns[:-1], demo.turns, strict=False):
            assert isinstance(turn, Code)
            execution, seen = _step(session, dialect, turn, seen)
            _judge(len(records) + 1, execution, recorded)
            if recorded.printed is not None:
                same_text.append(_plain(execution.stdout) == _plain(recorded.printed))
            repairs.append(list(execution.repairs))
            same_sizes &= tuple(image.size for image in execution.images) == recorded.sizes
            images = tuple(Image.fromarray(to_shown_array(image)) for image in execution.images)
            records.append(
                Step(
                    text,
                    turn,
                    replace(execution, wall_s=round(execution.wall_s, 4)),
                    observation=dialect.render(execution, len(images)),
                    images=images,
                    crop_boxes=(None,) * len(images),
                )
            )
    records.append(Step(planned.texts[-1], planned.turns[-1]))
    return tuple(records), _facts(same_text, same_sizes, repairs, demo)


def _step(session: Session, dialect: Any, turn: Code, seen: tuple[str, ...]) -> tuple[Execution, tuple[str, ...]]:
    execution = session.run(dialect.program(turn, seen))
    return dialect.report(execution, seen), (*seen, *execution.names)


def _judge(number: int, execution: Execution, recorded: RecordedTurn) -> None:
    """Raise `Unusable` where the execution does not fit the rest of the recording."""
    if execution.error is not None and not recorded.failed:
        raise Unusable(_REASONS.get(execution.stop, "error"), f"turn {number}: {execution.error}")
    if execution.error is None and recorded.failed and not reports_error(execution.stdout):
        raise Unusable("error_is_gone", f"turn {number}: recorded was {recorded.output[:200]!r}")
    if len(execution.images) != len(recorded.sizes):
        raise Unusable(
            "images_differ", f"turn {number}: {len(execution.images)} images, recorded {len(recorded.sizes)}"
        )


def _facts(same_text: list[bool], same_sizes: bool, repairs: list[list[str]], demo: Demonstration) -> dict[str, Any]:
    return {
        "repairs": repairs,
        "same_text": all(same_text) if same_text else None,
        "same_sizes": same_sizes,
        "failed_turns": sum(turn.failed for turn in demo.turns),
    }


def _plain(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())
