"""The options of `codev eval`, `codev eval compare`, `codev report` and `codev view`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from codev_env.app.options import POSITIONAL, Field, model_validator, option_class
from codev_env.benches import suite_of
from codev_env.errors import TaskError
from codev_env.tasks import BENCHES, load_tasks
from codev_env.types import TaskSet
from codev_eval.bench.checks import missing_on_hub
from codev_eval.bench.choice import TaskOptions
from codev_eval.bench.released import Name, is_remote, with_published

Perturbation = Literal["mask", "noise", "other", "empty"]
"""Other tool outputs: a masked crop, noise, another part of the image, an empty image."""
Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0)]
SEVERITIES = (1, 3, 5)
FREE = ("as_", "out", "workers", "farm", "overwrite", "prompt_price", "completion_price")
"""Options that change no episode: an evaluation may be continued with others."""


@option_class
class CompareOptions:
    """Compare two evaluations of the same tasks: paired bootstrap of the differences, and McNemar's test."""

    a: Annotated[Path, POSITIONAL]
    """Folder of the first evaluation."""
    b: Annotated[Path, POSITIONAL]
    """Folder of the second; differences are B minus A."""
    out: Path | None = None
    """Folder for comparison.json and comparison.html, the two runs side by side."""
    common: bool = False
    """Compare the tasks that both have, even if each also has others."""
    judge_again: bool = False
    """Judge the recorded crops of both by the target boxes, for runs judged by different definitions of faithful."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the bootstrap."""


@option_class
class EvalOptions(TaskOptions):
    """Evaluate a model on tasks; write trajectories, metrics.json and report.html."""

    # The options that `--help` shows.
    COMMON = (
        "model", "as_", "data", "bench", "split", "scenes", "n", "out", "overwrite", "samples", "perturb", "dual",
        "scorer", "judge", "seed", "dialect", "max_turns", "temperature", "max_tokens", "engine", "batch", "workers",
    )  # fmt: skip
    model: str
    """A folder, `URL#NAME` of an OpenAI-compatible server, or `scripted:oracle|random|lazy|none`."""
    as_: Name | None = None
    """Evaluate as a released checkpoint was, with its weights if `--model` is missing; its options apply unless others
    are given, and its published numbers are printed beside the results (docs/evaluation.md)."""
    out: Path = Path("runs/eval")
    """Folder for the results; an evaluation with the same options, or a larger `--n`, continues there."""
    data: tuple[str, ...]
    """`synthetic`, `hub`, or a path; one, or one per bench. `hub` is the published data, or the folder of a benchmark
    that is not there; a path is a benchmark, or a folder of them."""
    bench: Annotated[tuple[str, ...], Field(min_length=1)] = ("vstar",)
    """Benchmarks: `vstar`, `hrbench4k`, `hrbench8k`, `mathvista`, `mvtool`, `treebench`, `visualprobe`,
    `mme-realworld-lite`, `o3bench`, `zoombench`, `zoombench-crop`, `blink`, `charxiv`, `charxiv-descriptive`,
    `chartqapro`, `tirbench`, `video`, training sets, `dataset`."""
    suite: Literal["", "zoom", "all"] = ""
    """Benchmarks instead of `--bench`: `zoom` (those that need a look at detail), or `all` published ones."""
    samples: Count = 1
    """Episodes of each task; more than one needs a model that samples."""
    perturb: tuple[Perturbation, ...] = ()
    """Evaluate again with other tool outputs; `other` is another part of the image."""
    dual: bool = False
    """Evaluate again without the tool; a saved model also answers at once. Gains and harms are told apart."""
    suites: tuple[str, ...] = ()
    """Evaluate again under transforms: `orientation`, `corruption`, names, or JSON, as for `--wrap`."""
    severities: tuple[int, ...] = SEVERITIES
    """Severities of `--suites corruption`, from 1 to 5."""
    scorer: str = "rules"
    """Scorer of answers: a name (docs/scorers.md), `URL#NAME`, or `MODULE:ATTRIBUTE`."""
    judge: str = "auto"
    """Judge of tool calls: `auto` (target boxes), `none`, or `URL#NAME`; or another name, or JSON (docs/judges.md)."""
    reward: str = "tapo"
    """Reward of each turn in the report and of `reward_mean`: a name of `codev rewards list`, or "module:attribute"."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of guesses, sampling and intervals; the tasks do not depend on it."""
    dialect: str = "codev"
    """How the model talks."""
    max_turns: Count = 6
    """Turns of an episode, answer included."""
    temperature: NotNegative = 0.0
    """Sampling temperature; scripted agents have none."""
    max_tokens: Count = 2048
    """Tokens per turn; scripted agents have none."""
    max_pixels: Annotated[int | None, Field(ge=1)] = None
    """Most pixels of an image that the model of a folder sees, larger ones are shrunk; default: the model's own."""
    engine: Literal["hf", "vllm"] = "hf"
    """Engine of a model folder; `hf` is transformers, `vllm` runs in this process."""
    batch: Count = 32
    """Episodes at once of a model folder."""
    workers: Count = 2
    """Episodes played at the same time; for a model folder: threads that run programs."""
    farm: str = ""
    """Machines that run programs and judges: `ray`, `ray://HOST:PORT`, or JSON (docs/cluster.md); empty: this one."""
    prompt_price: NotNegative = 0.0
    """Price of a million prompt tokens, in your currency."""
    completion_price: NotNegative = 0.0
    """Price of a million completion tokens."""
    overwrite: bool = False
    """Replace the results in `--out`."""

    @model_validator(mode="before")
    @classmethod
    def _as_released(cls, given: Any) -> Any:
        from pydantic_core import ArgsKwargs  # a core install has option classes without it

        if isinstance(given, ArgsKwargs):
            return ArgsKwargs(given.args, with_published(given.kwargs or {}))
        return with_published(given) if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.max_pixels and is_remote(self.model):
            raise ValueError(
                f"--max-pixels {self.max_pixels} is of the model of a folder: "
                f"set the limit of {self.model} where it runs."
            )
        if "auto" in self.data:
            raise ValueError(
                "--data auto is not for evaluations, because it leaves their data ambiguous: give --data synthetic, or "
                "the path of the data."
            )
        for name in ("bench", "perturb", "suites"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"--{name} {' '.join(values)}: names one twice. Leave it out.")
        if self.suite and self.bench != ("vstar",):
            raise ValueError(f"--suite {self.suite} and --bench {' '.join(self.bench)} both name benchmarks: give one.")
        if len(self.data) not in (1, len(self.benches)):
            raise ValueError(
                f"--data has {len(self.data)} values for {len(self.benches)} of --bench: give one, or one for each."
            )
        missing = missing_on_hub(bench for bench in self.benches if self._place(bench) == "hub")
        if missing:
            others = " ".join(bench for bench in self.benches if bench not in missing)
            places = "; ".join(f"{bench} into {place}" for bench, place in missing.items())
            raise ValueError(
                f"--data hub does not download {', '.join(missing)} (docs/data.md says where to get them). Put the "
                f"files of {places}{f', or give --bench {others}' if others else ''}."
            )
        if self.samples > 1 and self.temperature == 0 and not self.model.startswith("scripted:"):
            raise ValueError(f"--samples {self.samples} at --temperature 0 are all alike: raise --temperature.")
        if self.suites and self.wrap:
            raise ValueError("--suites and --wrap both transform the tasks: leave --wrap out.")
        if self.severities != SEVERITIES and "corruption" not in self.suites:
            given = " ".join(map(str, self.severities))
            raise ValueError(f"--severities {given} is only of --suites corruption: add it, or leave them out.")
        return self

    @property
    def benches(self) -> tuple[str, ...]:
        """The benchmarks: those of `suite`, else `bench`."""
        return suite_of(self.suite) if self.suite else self.bench

    def load(self, bench: str) -> TaskSet:
        """Load the tasks of a benchmark, all of them whatever `n` says."""
        place, row = self._place(bench), BENCHES.get(bench)
        if place == "hub" and row and row.hub is None and (found := row.find()):
            place = str(found)
        several = row is not None and row.folder != "" and len(self.data) == 1 and len(self.benches) > 1
        inside = Path(place) / row.folder if row and several else Path(place)
        if several and inside.is_dir():
            place = str(inside)
        try:
            return load_tasks(place, self.split, bench=bench, **self.described())
        except TaskError as error:
            if not several or inside.is_dir() or not Path(place).is_dir():
                raise
            raise TaskError(f"{error} Of several benchmarks, {bench} is looked for in {inside}.") from error

    def _place(self, bench: str) -> str:
        """Return where the data of a benchmark are, as they are given."""
        return self.data[0] if len(self.data) == 1 else self.data[self.benches.index(bench)]

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
        values = dataclasses.asdict(self) | {"bench": self.benches}
        del values["suite"]
        return {name: _jsonable(value) for name, value in values.items() if name not in FREE}

    def cost(self, usage: Mapping[str, int]) -> float:
        """Return what tokens cost at the given prices."""
        priced = usage["prompt_tokens"] * self.prompt_price + usage["completion_tokens"] * self.completion_price
        return priced / 1e6


def _jsonable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
