"""The options of `codev eval`, checked before anything is played or written."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from codev_env.errors import ConfigError
from codev_env.tasks import BENCHES, load_tasks
from codev_env.types import TaskSet
from codev_eval.bench.choice import TaskOptions
from codev_eval.bench.conditions import Perturbation

SEVERITIES = (1, 3, 5)
FREE = ("out", "workers", "overwrite", "prompt_price", "completion_price")
"""Options that change no episode: an evaluation may be continued with others."""


@dataclass(frozen=True, kw_only=True)
class EvalOptions(TaskOptions):
    """Play tasks with a model; write trajectories, metrics.json and report.html."""

    model: str
    """Who plays: `scripted:oracle|random|lazy|none`; `URL#NAME`, a model behind an OpenAI-compatible server; or the
    folder of a saved model."""
    out: Path
    """Folder for the results; an evaluation with the same options that was stopped goes on there."""
    data: tuple[str, ...]
    """`synthetic` for generated scenes, `hub` for the published data, or a path: of the benchmark, or of a folder with
    the folders of several; or one of these for each of `--bench`."""
    bench: tuple[str, ...] = ("vstar",)
    """Which benchmarks: `vstar`, `hrbench4k`, `hrbench8k`, `mathvista`, `mvtool`, a training set, or `dataset`."""
    samples: int = 1
    """Episodes of each task; more than one needs a model that samples."""
    perturb: tuple[Perturbation, ...] = ()
    """Play again with other tool outputs: `mask`, `noise`, `other` (another part of the image), `empty`."""
    dual: bool = False
    """Play again without the tool, and split what the tool changes into gains and harms."""
    suites: tuple[str, ...] = ()
    """Play again under transforms: `orientation`, `corruption`, names, or JSON, as for `--wrap`."""
    severities: tuple[int, ...] = SEVERITIES
    """Of `--suites corruption`: which of the five."""
    scorer: str = "rules"
    """Who decides whether an answer is right: `rules`, `official`, `vlmevalkit`, `lmms`, `math-verify`, `llm`,
    `answer`, `URL#NAME`, a model, or `MODULE:ATTRIBUTE`."""
    judge: str = "auto"
    """Who scores tool calls: `auto` (the target boxes, where there are any), `ground_truth`, `none`, `URL#NAME`, a
    vision-language model, or JSON such as `{"name": "vlm", "model": "m", "cache": "judged"}`."""
    reward: str = "tapo"
    """What the report says each turn would be paid: a name (`codev rewards list` shows them), or "module:attribute" of
    a function or a `Reward`. Besides it, only `reward_mean` depends on this."""
    seed: int = 0
    """Seeds guesses, sampling and the bootstrap of intervals; the tasks do not depend on it."""
    dialect: str = "codev"
    """How the model talks."""
    max_turns: int = 6
    """Turns of an episode, the answer included."""
    temperature: float = 0.0
    """Sampling temperature; scripted agents have none."""
    max_tokens: int = 2048
    """Tokens per turn; scripted agents have none."""
    engine: Literal["hf", "vllm"] = "hf"
    """What runs a folder's model: transformers, or vLLM in this process."""
    batch: int = 32
    """Episodes that a folder's model plays side by side."""
    workers: int = 2
    """Episodes played at the same time; of a folder's model: threads that run programs."""
    prompt_price: float = 0.0
    """Price of a million prompt tokens, to count the cost in your currency."""
    completion_price: float = 0.0
    """Price of a million completion tokens."""
    overwrite: bool = False
    """Replace the results that `--out` holds."""

    def check_all(self) -> None:
        """Raise `ConfigError` for values that cannot be used."""
        if "auto" in self.data:
            raise ConfigError(
                "--data auto is not for evaluations, which must say what they measured: give --data synthetic, or the "
                "path of the data."
            )
        self.check()
        for name, least in (
            ("workers", 1), ("max_turns", 1), ("max_tokens", 1), ("seed", 0), ("samples", 1), ("batch", 1),
            ("temperature", 0), ("prompt_price", 0), ("completion_price", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise ConfigError(f"--{name.replace('_', '-')} is {value}; it must be at least {least}.")
        for name in ("bench", "perturb", "suites"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ConfigError(f"--{name} {' '.join(values)}: names one twice. Leave it out.")
        if not self.bench:
            raise ConfigError("--bench names no benchmark.")
        if len(self.data) not in (1, len(self.bench)):
            raise ConfigError(
                f"--data has {len(self.data)} values for {len(self.bench)} of --bench: give one, or one for each."
            )
        if self.samples > 1 and self.temperature == 0 and not self.model.startswith("scripted:"):
            raise ConfigError(f"--samples {self.samples} at --temperature 0 are all alike: raise --temperature.")
        if self.suites and self.wrap:
            raise ConfigError("--suites and --wrap both transform the tasks: leave --wrap out.")
        if self.severities != SEVERITIES and "corruption" not in self.suites:
            given = " ".join(map(str, self.severities))
            raise ConfigError(f"--severities {given} is only of --suites corruption: add it, or leave them out.")

    def load(self, bench: str) -> TaskSet:
        """Load the tasks of a benchmark, all of them whatever `n` says."""
        place = self.data[0] if len(self.data) == 1 else self.data[self.bench.index(bench)]
        if len(self.data) == 1 and len(self.bench) > 1 and bench in BENCHES:
            inside = Path(place) / BENCHES[bench].folder
            place = str(inside) if BENCHES[bench].folder and inside.is_dir() else place
        return load_tasks(place, self.split, bench=bench, **self.described())

    def suite_specs(self) -> dict[str, Any]:
        """Return what `wrap_tasks` takes for each of `suites`, by a name that can be a folder's."""
        specs: dict[str, Any] = {}
        plain = [name for name in self.suites if name not in ("orientation", "corruption") and name[:1] != "{"]
        for name in self.suites:
            if name == "orientation":
                specs[name] = name
            elif name == "corruption":
                specs[name] = {"transforms": name, "severities": list(self.severities)}
            elif name.startswith("{"):
                specs[f"suite{len(specs) + 1}"] = name
        return specs | ({"named": plain} if plain else {})

    def fixed(self) -> dict[str, Any]:
        """Return the options that decide the episodes; JSON-able."""
        values = dataclasses.asdict(self)
        return {name: _jsonable(value) for name, value in values.items() if name not in FREE}

    def cost(self, usage: dict[str, int]) -> float:
        """Return what tokens cost at the given prices."""
        priced = usage["prompt_tokens"] * self.prompt_price + usage["completion_tokens"] * self.completion_price
        return priced / 1e6


def _jsonable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
