"""A toy policy, and one cold start that the training runs of these tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

pytest.importorskip("torch")
pytest.importorskip("transformers")

import micro_run  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from codev_agents.engines.hf import HFEngine  # noqa: E402
from codev_agents.engines.policy import Policy  # noqa: E402
from codev_agents.rollout.engine import Sampling  # noqa: E402
from codev_agents.rollout.runner import RolloutRunner  # noqa: E402
from codev_env.app.cli import main as cli_main  # noqa: E402
from codev_train import cli  # noqa: E402
from codev_train.run.environments import make_env  # noqa: E402
from codev_train.run.options import EnvOptions, SFTOptions  # noqa: E402
from codev_train.sft import cold_start as sft  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def quick() -> Iterator[None]:
    """One thread, so that sums are made in one order; a tokenizer made from few scenes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sft, "CORPUS_SCENES", 40)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def env_options() -> EnvOptions:
    return EnvOptions(scenes="toy", scene={"cue_p": 0.5}, max_turns=2)


@pytest.fixture(scope="session")
def policy(env_options) -> Policy:
    """A toy policy; do not change its weights.

    Its weights are wide, so that what it writes depends on everything before it: a wrong position or mask shows.
    """
    made = sft.toy_policy(SFTOptions(env=env_options, snap=112, toy=micro_run.TOY_OPTIONS))
    with torch.no_grad():
        for parameter in made.model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(3)
    return made


@pytest.fixture(scope="session")
def play(env_options) -> Callable[[Policy, Path], Path]:
    """Fills a folder with `policy/` and `rollouts.pt`: four rollouts of a policy, the third without an advantage."""

    def fill(policy: Policy, folder: Path) -> Path:
        policy.save(folder / "policy")
        runner = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor)
        try:
            rollouts = runner.play(HFEngine(policy.model, policy.processor, seed=4), [0, 1], 2, Sampling(0.8, 12))
        finally:
            runner.close()
        advantages = torch.tensor([[1.0, 0.5], [-0.5, 2.0], [0.0, 0.0], [-1.0, -1.0]], dtype=torch.float64)
        torch.save((rollouts, advantages), folder / "rollouts.pt")
        return folder

    return fill


@pytest.fixture(scope="session")
def played(tmp_path_factory, policy, play) -> Path:
    """The folder of the toy policy."""
    return play(policy, tmp_path_factory.mktemp("played"))


@pytest.fixture
def picture():
    """Makes random images, always the same ones."""
    rng = np.random.default_rng(0)
    return lambda width, height: rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def config(runs) -> Path:
    return micro_run.write_config(runs / "micro.yaml")


@pytest.fixture(scope="session")
def start(runs, config) -> Path:
    """The policy after the cold start."""
    cli.sft(["--config", str(config), "--out", str(runs), "--threads", "1"])
    return next(runs.glob("start-*/config.json")).parent


@pytest.fixture(scope="session")
def arguments(runs, config, start):
    """Makes the command line of a run that starts from `start`."""

    def make(name: str, *more: str) -> list[str]:
        options = ["--out", str(runs), "--name", name, "--model", str(start), "--threads", "1"]
        return ["--config", str(config), *options, *more]

    return make


@pytest.fixture(scope="session")
def finished(runs, arguments) -> Path:
    """A run that went through undisturbed."""
    assert cli_main(["train", *arguments("whole")]) == 0
    return runs / "whole"


@pytest.fixture(scope="session")
def evaluated(runs, arguments) -> Path:
    """A run that evaluates after every update, on contrast scenes too."""
    assert cli_main(["train", *arguments("evaluated", "--eval.every", "1", "--eval.contrast", "cue_p", "0")]) == 0
    return runs / "evaluated"


@pytest.fixture
def vllm_python() -> str:
    """A Python that has vLLM: `$CODEV_VLLM_PYTHON`, or that of `make vllm`."""
    root = Path(__file__).resolve().parents[2]
    found = Path(os.environ.get("CODEV_VLLM_PYTHON") or root / ".venv-vllm" / "bin" / "python")
    if not found.exists():
        pytest.skip(f"{found} is missing: make vllm, or set CODEV_VLLM_PYTHON")
    return str(found)
