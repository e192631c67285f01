"""Settings of all tests."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import logging
import os
import signal
import ssl
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from PIL import Image

from codev_env.tasks.generators import photos
from codev_env.tasks.readers.cache import TASKS

# No test asks a model hub: without a network each question would take half a minute to fail.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# There are as many processes of tests as cores: threads of one would wait for those of another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests never time anything: a busy machine must not fail them.
settings.register_profile("quick", deadline=None, max_examples=25)
settings.register_profile("soak", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("quick")

# Collecting makes millions of objects that stay: no garbage collection looks through them, then or later.
gc.disable()

# Transformers imports scikit-learn, and with it pandas, for a way of sampling that nothing here uses: not where it
# seems to be missing at that time.
HIDDEN = pytest.MonkeyPatch()
HIDDEN.setitem(sys.modules, "sklearn", None)


class RaisesErrors(logging.Handler):
    """Raises the error that a record is about, where it was caught."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "codev_env.farm.programs" and record.exc_info and record.exc_info[1]:
            raise record.exc_info[1]


# Users get a warning and unknown regions where provenance fails on an image; a test must not pass over that.
logging.getLogger("codev_env.farm").addHandler(RaisesErrors())

HERE = Path(__file__).parent
SLOWEST = [
    "train/test_default_run.py",
    "train/test_train_engine_vllm.py",
    "sandbox/test_sandbox_programs.py",
    "cheats/test_cheats.py",
    "sandbox/test_sandbox_corpus.py",
    "sandbox/test_sandbox_leftovers.py",
    "envs/test_vector.py",
    "judges/test_judges_vlm_failures.py",
    "test_replay.py",
    "train/test_train_engine_contract.py",
    "train/test_train_checkpoints.py",
    "train/test_train_pace.py",
    "eval/test_agreement.py",
    "sandbox/test_sandbox_escapes.py",
    "provenance/test_provenance_tracker.py",
    "sandbox/test_sandbox_failures.py",
    "envs/test_registry.py",
    "eval/test_evaluation.py",
    "train/test_train_run.py",
    "provenance/test_provenance_holes.py",
    "test_doctor.py",
    "tasks/test_tasks_scenes.py",
    "dialects/test_dialects_properties.py",
    "scoring/test_scoring_maths.py",
    "eval/test_eval_cli.py",
    "sandbox/test_sandbox_fuzz.py",
    "train/test_train_resumed.py",
    "train/test_train_killed.py",
    "train/test_train_scale.py",
    "sandbox/test_sandbox_sessions.py",
    "provenance/test_provenance_programs.py",
]

SCIENCE = {
    "adapters/test_crop.py",
    "agents/test_chat.py",
    "cheats/test_cheats.py",
    "dialects/test_dialects_programs.py",
    "dialects/test_dialects_transcripts.py",
    "farm/test_farm.py",
    "provenance/test_provenance_collages.py",
    "sandbox/test_sandbox_escapes.py",
    "sandbox/test_sandbox_leftovers.py",
    "sandbox/test_sandbox_programs.py",
    "sandbox/test_sandbox_reads.py",
    "sandbox/test_sandbox_results.py",
    "test_replay.py",
    "train/test_train_recorded.py",
    "train/test_train_same_turn.py",
}
"""Their programs use SciPy or Matplotlib, which one process loads once for all of them."""

QUICK_BACKGROUNDS = {"adapters", "agents", "dialects", "envs", "eval", "farm", "judges", "tasks", "train"}


@pytest.fixture(autouse=True, scope="session")
def no_preload() -> Iterator[None]:
    """No test loads libraries that it does not use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codev_env.sandbox.host.process.preload", lambda: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_clients() -> Iterator[None]:
    """Clients do not wait before they try again, nor read certificates (0.05 s each): none speaks TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_verify_locations", lambda *args, **options: None)
        if importlib.util.find_spec("openai"):
            patch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
        yield


@pytest.fixture(autouse=True, scope="module")
def quick_backgrounds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where no test looks at the details of a background, it is enlarged without smoothing: in half the time."""
    if request.path.parent.name not in QUICK_BACKGROUNDS:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        TASKS.clear()
        patch.setattr(photos, "_SMOOTH", Image.Resampling.NEAREST)
        yield
        TASKS.clear()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """So many descriptors are open that further ones have numbers above 1023, which `select` does not take."""
    resource = pytest.importorskip("resource")
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("fewer descriptors may be open here (ulimit -n)")
    with contextlib.ExitStack() as held:
        fd = 0
        while fd < 1100:
            fd = os.open("/dev/null", os.O_RDONLY)
            held.callback(os.close, fd)
        yield


def pytest_configure() -> None:
    """Let tests interrupt themselves where the shell that started them ignores Ctrl-C, as for jobs in background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each process read the files in another order, so that in a new checkout each compiles a part of them."""
    report = yield
    if isinstance(collector, pytest.Dir) and report.passed:
        name, count = (
            os.environ.get("PYTEST_XDIST_WORKER", "gw0"),
            int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
        )
        start = len(report.result) * int(name.removeprefix("gw")) // count
        report.result = report.result[start:] + report.result[:start]
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a process whole files, as `--dist loadfile` does, and in a quick run all of `SCIENCE` to the same one."""
    if config.getoption("dist") != "loadfile" or "not integration" not in config.getoption("markexpr"):
        return None
    scheduling = pytest.importorskip("xdist.scheduler").LoadFileScheduling

    class Scheduling(scheduling):  # type: ignore[misc, valid-type]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0].removeprefix("tests/")
            return "science" if file in SCIENCE else file

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slowest files, so that all processes end at about the same time."""
    order = {HERE / name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: (order.get(item.path, len(order)), item.path))


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but only what tests make; and have scikit-learn."""
    HIDDEN.undo()
    gc.freeze()
    gc.enable()
