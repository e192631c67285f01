"""Released checkpoints by name: weights, options and published numbers, for `codev eval --as NAME`.

Each value has the place where it was read; what no public source says is listed as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from codev_eval.bench.models import is_folder

Name = Literal["codev-7b", "codevision-7b", "deepeyes-7b", "pyvision", "pyvision-image-7b", "thyme-7b"]
Sourced = Mapping[str, tuple[Any, str]]
"""Values by name, each with the place where it was read."""

UNREAD = "not read in a public source"
"""In place of a source, for values that none gave."""


@dataclass(frozen=True, kw_only=True)
class Released:
    """One checkpoint as its authors evaluated it.

    Attributes:
        title: Its published name.
        paper: Where its numbers are published.
        weights: Its name on the Hugging Face hub; empty where no weights were found.
        options: Options of `codev eval`; the dialect holds the prompts.
        published: Accuracy in percent by benchmark.
        unread: What no public source that was found says, and what is used in its place.
        differs: Further reasons for a difference to the published numbers.
    """

    title: str
    paper: str
    weights: str
    options: Sourced
    published: Sourced
    unread: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


def _sourced(source: str, **values: Any) -> dict[str, tuple[Any, str]]:
    return {name: (value, source) for name, value in values.items()}


_CODEV = "github.com/RenlyH/CodeV_internal at c7eed11"
_DEEPEYES = "github.com/Visual-Agent/DeepEyes at 6c5e796"
_THYME = "github.com/yfzhang114/Thyme at b9285b7, eval/VLMEvalKit/vlmeval/vlm/thyme/model.py"
_CODEVISION = "github.com/ByteDance-BandAI/CodeVision at e098588"
_PYVISION = "github.com/agents-x-project/PyVision at d08b450"
_PYVISION_RL = "github.com/agents-x-project/PyVision-RL at 62ca599"

RELEASED: dict[Name, Released] = {
    "codev-7b": Released(
        title="CodeV-7B",
        paper="arXiv 2511.19661",
        weights="RenlyH/CodeV-RL",
        options=_sourced(f"{_CODEV}, eval/vlmeval/utils/python_tool.py (no line after an output)", dialect="codev")
        | _sourced(f"{_CODEV}, eval/vlmeval/api/lmdeploy.py", max_turns=10, temperature=0.0)
        | _sourced(f"{_CODEV}, rl/examples/agent/codev_7b_H200.sh (training)", max_tokens=4096)
        | _sourced(f"{_CODEV}, eval/ (a copy of VLMEvalKit)", scorer="vlmevalkit"),
        published=_sourced("arXiv 2511.19661, read in notes on the paper", vstar=84.8, hrbench4k=76.1, mathvista=71.8),
        unread=(
            "the image budget of the evaluation: the checkpoint's own is used",
            "the tokens per turn of the evaluation: those of training are used",
        ),
        differs=(
            "VLMEvalKit asks an LLM where its rules read nothing; here such an answer is wrong",
            "the copy of VLMEvalKit is an older one: a letter counts anywhere in an answer, and an option's text in an "
            "answer of any length",
            "the released code takes a last message without <answer> as a whole for the answer, and of several answers "
            "the first; here there is no answer, and the last counts",
        ),
    ),
    "codevision-7b": Released(
        title="CodeVision-7B",
        paper="arXiv 2512.03746",
        weights="",
        options=_sourced(f"{_CODEVISION}, recipe/codevision/config/code_image_tool_config.yaml", dialect="codevision")
        | _sourced(
            f"{_CODEVISION}, recipe/codevision/eval.sh", max_turns=12, max_tokens=16384, max_pixels=8192 * 28 * 28
        )
        | _sourced(f"{_CODEVISION}, verl/trainer/config/_generated_ppo_trainer.yaml", temperature=0.0)
        | _sourced(f"{_CODEVISION}, recipe/codevision/reward.py (a rule, then an LLM)", scorer="answer"),
        published=_sourced(
            "arXiv 2512.03746, read in notes on the paper", vstar=83.7, hrbench4k=75.6, hrbench8k=72.2, mvtool=60.1
        ),
        unread=("weights: the repository links data sets only, and none were found on the hub",),
        differs=(
            "the released rule takes the last of A to D in an answer, or its last number within 0.0001, and an LLM "
            "(Qwen3-235B-A22B-Instruct) decides about the other answers: give --scorer URL#NAME to ask one",
            "the released code takes the last line of a reply without <answer> for the answer; here there is none",
            "16 384 tokens were for all turns together, tool outputs included; here they are for each turn",
            "programs saw the shrunk image; here they see the whole one",
        ),
    ),
    "deepeyes-7b": Released(
        title="DeepEyes-7B",
        paper="arXiv 2505.14362",
        weights="ChenShawn/DeepEyes-7B",
        options=_sourced(
            f"{_DEEPEYES}, eval/eval_vstar.py",
            dialect="deepeyes",
            max_turns=11,
            max_tokens=10240,
            max_pixels=16384 * 28 * 28,
            temperature=0.0,
        )
        | _sourced(f"{_DEEPEYES}, eval/judge_result.py (a letter, then an LLM)", scorer="answer"),
        published=_sourced("arXiv 2505.14362, table 1", vstar=90.1, hrbench4k=75.1, hrbench8k=72.6)
        | {"mme-realworld-lite": (53.2, "arXiv 2505.14362, table 2")}
        | _sourced("arXiv 2505.14362, table 4", mathvista=70.1),
        differs=(
            "an LLM (Qwen2.5-72B) decided where the answer is no letter: give --scorer URL#NAME to ask one",
            "the released script takes a last message without <answer> as a whole for the answer; here there is none",
            "the released script says how to go on inside of <tool_response>; here that follows it",
            "the released script for V*Bench lists options in the file's order, so that A is always right",
            "the released script does not refuse small regions, and enlarges them; the tool of training, used here, "
            "refuses sides of 30 pixels or less",
        ),
    ),
    "pyvision": Released(
        title="PyVision with GPT-4.1",
        paper="arXiv 2507.07998",
        weights="",
        options=_sourced(f"{_PYVISION}, inference_engine/vis_inference_demo_gpt.py", dialect="pyvision")
        | _sourced(f"{_PYVISION}, run.sh", max_tokens=10000, temperature=0.6)
        | _sourced(UNREAD, max_turns=30, scorer="answer"),
        published=_sourced("arXiv 2507.07998, table 2", vstar=75.9, mathvista=71.7),
        unread=(
            "weights: PyVision prompts models that are behind an API",
            "a limit on turns: the released loop has none; 30 are allowed here",
            "the scorer",
        ),
        differs=(
            "the published numbers are those of GPT-4.1 in June 2025: another model has others",
            "one sample at temperature 0.6 is partly chance",
        ),
    ),
    "pyvision-image-7b": Released(
        title="PyVision-Image-7B-RL",
        paper="arXiv 2602.20739",
        weights="Agents-X/PyVision-Image-7B-RL",
        options=_sourced(
            f"{_PYVISION_RL}, README.md (validation during training)",
            dialect="pyvision",
            max_turns=30,
            max_tokens=10240,
            max_pixels=2_000_000,
        )
        | _sourced(f"{_PYVISION_RL}, verl_agents/verl/trainer/config/ppo_trainer.yaml", temperature=0.0)
        | _sourced(f"{_PYVISION_RL}, README.md (an LLM judges)", scorer="answer"),
        published=_sourced(
            "arXiv 2602.20739, read in notes on the paper", vstar=88.7, hrbench4k=78.1, hrbench8k=74.3, tirbench=19.8
        ),
        unread=(
            "the settings of the published evaluation, whose repository (PyVision-RL-Eval) was not found: those of "
            "validation during training are used",
        ),
        differs=(
            "V*Bench is the mean of 32 samples (avg@32): give --samples 32 and a --temperature",
            "an LLM (Qwen2.5-72B-Instruct in training) decided what is right: give --scorer URL#NAME to ask one",
            "TIR-Bench's own rules give parts of a point, which this scorer does not: give --scorer official",
        ),
    ),
    "thyme-7b": Released(
        title="Thyme-7B",
        paper="arXiv 2508.11630",
        weights="Kwai-Keye/Thyme-RL",
        options=_sourced(_THYME, dialect="thyme", max_turns=5, max_tokens=2048)
        | _sourced(f"{_THYME} (temperature 0.01 with top_k 1)", temperature=0.0)
        | _sourced("arXiv 2508.11630, section 5.2", scorer="vlmevalkit"),
        published=_sourced(
            "arXiv 2508.11630, table 3", vstar=82.2, hrbench4k=77.0, hrbench8k=72.0, mathvista=70.0, blink=56.1
        )
        | {"mme-realworld-lite": (55.2, "arXiv 2508.11630, table 3")},
        unread=("the image budget: the released code sets none, so the checkpoint's own is used",),
        differs=(
            "the released code tries again up to five times at temperature 1 where no answer came, then asks with a "
            "simple prompt and no tool; here an episode without an answer is wrong",
            "the released code leaves a program without an output out of the conversation, and tries another one; here "
            "the model sees its error",
            "VLMEvalKit asks an LLM where its rules read nothing; here such an answer is wrong",
            "VLMEvalKit's total of BLINK is the accuracy over all questions; here it is the mean over its tasks",
        ),
    ),
}
"""The checkpoints by name."""


def is_remote(model: str) -> bool:
    """Whether a model is scripted or behind a server: no image processor of ours prepares its images."""
    return model.startswith(("scripted:", "http:", "https:"))


def with_published(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options, those that a checkpoint's authors used where none is given.

    Raises:
        ValueError: The checkpoint has no weights, and no model is given in their place.
    """
    row = RELEASED.get(given.get("as_"))  # type: ignore[arg-type]
    if row is None:  # Of an unknown name only that is reported, not the missing model too.
        return ({"model": ""} if given.get("as_") else {}) | dict(given)
    model = given.get("model") or row.weights
    if not model:
        raise ValueError(f"--as {given['as_']} has no published weights that were found: give a --model, too.")
    values = {name: value for name, (value, _) in row.options.items()}
    if is_remote(model):
        values.pop("max_pixels", None)
    return values | dict(given) | {"model": model}


def is_saved(name: Name | None, model: str) -> bool:
    """Whether an engine of ours samples from a model: it is a folder, or the weights of checkpoint `name`."""
    return is_folder(model) or (name is not None and bool(model) and model == RELEASED[name].weights)
