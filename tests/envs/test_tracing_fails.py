"""Where provenance itself fails on an image: the episode goes on, users are warned, and tests are not."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from codev_env.dialects import get_dialect
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import SandboxError
from codev_env.farm import programs
from codev_env.provenance import Tracker
from codev_env.tasks import load_tasks
from codev_env.types import Code, Execution, Region


@pytest.fixture
def env() -> Iterator[ImageToolEnv]:
    made = ImageToolEnv(load_tasks("synthetic", "test", scenes="toy"), max_turns=4)
    yield made
    made.close()


def code(program: str) -> str:
    return get_dialect("codev").write(Code(program), "look")


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def fails_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the first image of an episode be one that provenance fails on."""
    real, errors = Tracker.trace, [error]

    def trace(self: Tracker, code: str, execution: Execution) -> tuple[Region, ...]:
        if errors:
            raise errors.pop()
        return real(self, code, execution)

    monkeypatch.setattr(Tracker, "trace", trace)


def test_an_image_that_provenance_fails_on_is_unknown_and_the_episode_goes_on(
    env: ImageToolEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_once(monkeypatch, ValueError("too small for a gradient"))
    records = Records()
    monkeypatch.setattr(programs._log, "propagate", False)
    monkeypatch.setattr(programs._log, "handlers", [records])
    env.reset(options={"index": 0})
    *_, info = env.step(code("show(image.crop((0, 0, 60, 60)))\nshow(image.crop((10, 10, 60, 60)))"))
    assert info["crop_boxes"] == (None, None) and env.episode.steps[0].regions == (Region(), Region())
    *_, info = env.step(code("show(image.crop((10, 20, 60, 60)))"))
    assert info["crop_boxes"] == ((10, 20, 60, 60),)
    (record,) = records.records
    assert (
        record.levelno == logging.WARNING
        and repr(env.task.task_id) in record.getMessage()
        and "(2)" in record.getMessage()
    )
    assert record.exc_info and "too small for a gradient" in str(record.exc_info[1])


def test_a_failure_of_the_sandbox_while_provenance_works_is_no_unknown_image(
    env: ImageToolEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_once(monkeypatch, SandboxError("no process can be started"))
    env.reset(options={"index": 0})
    with pytest.raises(SandboxError, match="no process"):
        env.step(code("show(image)"))


def test_tests_do_not_pass_over_what_provenance_fails_on(env: ImageToolEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_once(monkeypatch, ZeroDivisionError("a mistake in provenance"))
    env.reset(options={"index": 0})
    with pytest.raises(ZeroDivisionError):
        env.step(code("show(image)"))
