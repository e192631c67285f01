from __future__ import annotations

import errno
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

import codev_env
from codev_env.envs.shared_observations import SharedValues
from codev_env.envs.vector import ImageToolVectorEnv
from codev_env.errors import ConfigError, JudgeError
from codev_env.sandbox.host.handle import WorkerHandle
from codev_env.types import StepScore

ARGS: dict[str, Any] = {"data": "synthetic", "scenes": "toy", "max_turns": 3}
ACTIONS = [
    "<answer>A</answer>",
    "<answer>B</answer>",
    "<code>show(image.crop((10, 20, 90, 120)))</code>",
    "<code>show(np.random.randint(0, 256, (40, 50, 3)).astype('uint8'))</code>",
    "<code>print(1 / 0)</code>",
    "nothing",
]
MODES = list(AutoresetMode)

ENVS_AND_MODES = [
    pytest.param(env_id, mode, id=f"{env_id}-{mode.name}", marks=() if (i + j) % 3 == 0 else pytest.mark.integration)
    for i, env_id in enumerate(codev_env.ENV_IDS)
    for j, mode in enumerate(MODES)
]
"""Every environment under every mode; without `integration` each environment under one."""


def pair(env_id: str, mode: AutoresetMode, num_envs: int = 3, **options: Any) -> tuple[Any, Any]:
    args = {**ARGS, **options}
    ours = gym.make_vec(env_id, num_envs=num_envs, autoreset_mode=mode, **args)
    sync = gym.make_vec(
        env_id, num_envs=num_envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **args
    )
    return ours, sync


@pytest.mark.parametrize(("env_id", "mode"), ENVS_AND_MODES)
def test_equal_to_sync_vector_env_step_by_step(env_id: str, mode: AutoresetMode) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, sync = pair(env_id, mode)
    assert isinstance(ours, ImageToolVectorEnv)
    assert ours.observation_space == sync.observation_space
    assert ours.action_space == sync.action_space
    assert ours.metadata == sync.metadata
    assert data_equivalence(ours.reset(seed=3), sync.reset(seed=3), exact=True)
    assert ours.np_random_seed == sync.np_random_seed == (3, 4, 5)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(9):
        actions = tuple(rng.choice(ACTIONS, 3).tolist())
        result, expected = ours.step(actions), sync.step(actions)
        assert data_equivalence(result, expected, exact=True)
        assert result[0] in ours.observation_space
        ended = result[2] | result[3]
        ends += int(ended.sum())
        if mode is AutoresetMode.DISABLED and ended.any():
            options = {"reset_mask": ended, "index": 1}
            assert data_equivalence(ours.reset(options=options), sync.reset(options=dict(options)), exact=True)
            assert list(options) == ["reset_mask", "index"]
    assert ends >= 3
    ours.close()
    sync.close()


def test_the_spec_makes_the_same_environment_again() -> None:
    ours = gym.make_vec("CodeV-VStar-v0", num_envs=2, **ARGS)
    again = gym.make_vec(ours.spec)
    assert again.num_envs == 2
    assert data_equivalence(ours.reset(seed=1), again.reset(seed=1), exact=True)


def test_a_partial_reset_gives_new_arrays_and_leaves_the_others() -> None:
    ours, _ = pair("CodeV-VStar-v0", AutoresetMode.DISABLED)
    first, _ = ours.reset(seed=0)
    ours.step(("<answer>A</answer>", "nothing", "nothing"))
    with pytest.raises(ResetNeeded, match=r"environments \[0\] are over"):
        ours.step(("nothing", "nothing", "nothing"))
    before = ours.call("episode")
    second, infos = ours.reset(options={"reset_mask": np.array([True, False, False])})
    assert infos["_task_id"].tolist() == [True, False, False]
    assert len(ours.get_attr("episode")[1].steps) == 1
    assert ours.get_attr("episode")[1] is before[1]
    assert second["text"][1] != first["text"][1]
    for a, b in zip(first["images"], second["images"], strict=True):
        assert not any(np.shares_memory(x, y) for x in a for y in b)
    ours.step(("nothing", "nothing", "nothing"))


class BatchJudge:
    """Counts how often it is asked."""

    name = "batch"

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.fail = False

    def score(self, task: Any, step: Any, history: Any) -> StepScore:
        return StepScore(len(history) / 4, "", False)

    def score_batch(self, items: Any) -> list[StepScore]:
        self.batches.append(len(items))
        if self.fail:
            raise TimeoutError("no reply")
        return [self.score(*item) for item in items]


def test_tool_calls_of_one_step_are_one_batch() -> None:
    judge = BatchJudge()
    ours, sync = pair("CodeV-VStar-v0", AutoresetMode.NEXT_STEP, judge=judge)
    ours.reset(seed=0)
    sync.reset(seed=0)
    for actions in ([ACTIONS[2], "nothing", ACTIONS[4]], [ACTIONS[2]] * 3, ["nothing"] * 3):
        assert data_equivalence(ours.step(actions), sync.step(tuple(actions)), exact=True)
    assert judge.batches == [2, 3]


def test_a_failing_batch_is_an_error_and_ends_the_episodes() -> None:
    judge = BatchJudge()
    ours, _ = pair("CodeV-VStar-v0", AutoresetMode.NEXT_STEP, judge=judge)
    ours.reset(seed=0)
    judge.fail = True
    with pytest.raises(JudgeError, match="TimeoutError"):
        ours.step([ACTIONS[2]] * 3)
    with pytest.raises(ResetNeeded):
        ours.step(["nothing"] * 3)
    judge.fail = False
    ours.reset(seed=0)
    ours.step([ACTIONS[2]] * 3)


def test_all_environments_share_one_sandbox_and_one_task_set() -> None:
    ours, _ = pair("CodeV-VStar-v0", AutoresetMode.NEXT_STEP)
    assert len({id(box) for box in ours.get_attr("sandbox")}) == 1
    assert len({id(tasks) for tasks in ours.get_attr("tasks")}) == 1


def test_render_and_attributes() -> None:
    ours = gym.make_vec("CodeV-VStar-v0", num_envs=2, render_mode="rgb_array", **ARGS)
    ours.reset(seed=0)
    assert [frame.shape for frame in ours.render()] == [(640, 960, 3)] * 2
    ours.set_attr("max_turns", [1, 2])
    assert ours.get_attr("max_turns") == (1, 2)
    with pytest.raises(ConfigError, match="give one each"):
        ours.set_attr("max_turns", [1])
    ours.close()
    ours.close()
    with pytest.raises(ClosedEnvironmentError, match="make others"):
        ours.reset(seed=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda env: env.step(["a"]), "1 actions for 2"),
        (lambda env: env.step("ab"), "actions is one text"),
        (lambda env: env.step(None), "actions is a NoneType; give a list"),
        (lambda env: env.reset(seed=[1]), "1 seeds for 2"),
        (lambda env: env.reset(options={"reset_mask": [True, False]}), "bool array of shape"),
        (lambda env: env.reset(options={"reset_mask": np.array([1, 0])}), "bool array of shape"),
        (lambda env: env.reset(options={"reset_mask": np.array([False, False])}), "at least one"),
        (lambda env: env.reset(options={"indx": 1}), "Did you mean 'index'"),
    ],
)
def test_what_cannot_be_used_says_why(call: Any, message: str) -> None:
    env = gym.make_vec("CodeV-VStar-v0", num_envs=2, **ARGS)
    with pytest.raises(ConfigError, match=message):
        call(env)


def test_no_environments_and_first_partial_reset_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_envs is 0"):
        gym.make_vec("CodeV-VStar-v0", num_envs=0, **ARGS)
    env = gym.make_vec("CodeV-VStar-v0", num_envs=2, **ARGS)
    with pytest.raises(ResetNeeded, match="must be of all"):
        env.reset(options={"reset_mask": np.array([True, False])})


def test_processes_get_a_sandbox_of_their_own() -> None:
    ours, _ = pair("CodeV-VStar-v0", AutoresetMode.NEXT_STEP, num_envs=2)
    ours.reset(seed=0)
    ours.step([ACTIONS[2]] * 2)
    # Forked or spawned after this process's sandbox has started: they must not talk to its workers.
    processes = gym.make_vec(
        "codev_env:CodeV-VStar-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False},
        **ARGS,
    )
    try:
        assert data_equivalence(ours.reset(seed=1), processes.reset(seed=1), exact=True)
        for actions in ((ACTIONS[2], ACTIONS[4]), (ACTIONS[3], "nothing"), (ACTIONS[0], ACTIONS[2])):
            assert data_equivalence(ours.step(actions), processes.step(actions), exact=True)
    finally:
        processes.close()


def test_gymnasium_wrappers_fit() -> None:
    ours, sync = pair("CodeV-VStar-v0", AutoresetMode.NEXT_STEP)
    wrapped = [gym.wrappers.vector.RecordEpisodeStatistics(env) for env in (ours, sync)]
    for env in wrapped:
        env.reset(seed=0)
    for actions in ([ACTIONS[2]] * 3, [ACTIONS[0], "nothing", ACTIONS[1]]):
        infos = [env.step(tuple(actions))[-1] for env in wrapped]
    assert infos[0]["episode"]["r"].tolist() == infos[1]["episode"]["r"].tolist()
    assert infos[0]["_episode"].tolist() == [True, False, True]


def test_a_failing_batch_skips_no_task_of_those_that_start_again() -> None:
    judge = BatchJudge()
    ours, sync = pair("CodeV-VStar-v0", AutoresetMode.NEXT_STEP, judge=judge)
    for env in (ours, sync):
        env.reset(seed=0)
        env.step(("<answer>A</answer>", "nothing", "nothing"))
    before = ours.get_attr("task")[0].task_id
    judge.fail = True
    for _ in range(2):
        with pytest.raises((JudgeError, ResetNeeded)):
            ours.step([ACTIONS[2]] * 3)
    assert ours.get_attr("task")[0].task_id == before
    judge.fail = False
    ours.reset(options={"index": 1})
    sync.reset(options={"index": 1})
    for actions in (("<answer>A</answer>", "nothing", "nothing"), ("nothing",) * 3):
        found, expected = ours.step(actions), sync.step(actions)
    assert found[-1]["task_id"].tolist() == expected[-1]["task_id"].tolist()


@pytest.mark.parametrize("phase", ["finish", "reset"])
def test_any_error_of_a_step_ends_the_episodes_of_the_batch(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    """The others have taken their turn: a second try would take it twice."""
    ours, _ = pair("CodeV-VStar-v0", AutoresetMode.NEXT_STEP)
    ours.reset(seed=0)
    ours.step(("<answer>A</answer>", "nothing", "nothing"))

    def fail(*given: Any, **options: Any) -> Any:
        raise ConfigError("told to fail")

    monkeypatch.setattr(ours.envs[1 if phase == "finish" else 0], phase, fail)
    with pytest.raises(ConfigError, match="told to fail"):
        ours.step(("nothing",) * 3)
    monkeypatch.undo()
    with pytest.raises(ResetNeeded):
        ours.step(("nothing",) * 3)
    ours.reset(seed=0)
    assert ours.step(("nothing",) * 3)[-1]["turn"].tolist() == [1, 1, 1]


def test_ctrl_c_ends_the_programs_that_threads_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _ = pair("CodeV-VStar-v0", AutoresetMode.NEXT_STEP, limits={"wall_s": 40, "cpu_s": 200})
    ours.reset(seed=0)
    ask = WorkerHandle.ask

    def ask_and_interrupt(*arguments: Any) -> Any:
        monkeypatch.setattr(WorkerHandle, "ask", ask)
        threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        return ask(*arguments)

    monkeypatch.setattr(WorkerHandle, "ask", ask_and_interrupt)
    # It is ignored where the tests run in the background.
    before, started = signal.signal(signal.SIGINT, signal.default_int_handler), time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            ours.step(["<code>while True: pass</code>"] * 3)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 30
    with pytest.raises(ResetNeeded):
        ours.step(ACTIONS[:3])
    ours.reset(seed=0)
    assert ours.step([ACTIONS[2]] * 3)[-1]["action_kind"].tolist() == ["code"] * 3
    ours.close()


def test_observations_without_room_in_memory_go_to_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    values = SharedValues(2, "")
    folders, write_bytes = values._folders, Path.write_bytes
    if len(folders) == 1:
        pytest.skip("there is no /dev/shm here")
    values.write(0, "old")

    def full(path: Path, data: bytes) -> int:
        if path.parent == folders[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        values.write(0, "large")
        assert tuple(pickle.loads(pickle.dumps(values))) == ("large", "")
    values.write(0, "small")
    assert tuple(values) == ("small", "")
    del values
    assert not any(folder.exists() for folder in folders)


def test_observations_of_a_killed_process_go_when_the_next_ones_are_made() -> None:
    made = (
        "from codev_env.envs.shared_observations import SharedValues as S; s = S(1, ''); print(*s._folders, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", f"{made}; input()"], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout
        folders = [Path(name) for name in process.stdout.readline().split()]
        alive = SharedValues(1, "")
        assert folders and all(folder.exists() for folder in folders)
        process.kill()
    assert all(folder.exists() for folder in (*folders, *alive._folders))
    SharedValues(1, "")
    assert not any(folder.exists() for folder in folders)
    assert all(folder.exists() for folder in alive._folders)
