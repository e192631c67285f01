"""The environments over benchmarks, training sets and generated scenes: one class for all ids."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium.utils import EzPickle

from codev_env.envs import shared_observations  # noqa: F401 - AsyncVectorEnv then knows the spaces
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ArgumentError, ConfigError, unknown
from codev_env.types import TaskSet

if TYPE_CHECKING:
    from codev_env.dialects import Dialect
    from codev_env.farm.farm import Farm
    from codev_env.farm.options import FarmOptions
    from codev_env.judges import Judge
    from codev_env.rewards import Reward, RewardFunction
    from codev_env.sandbox import Limits, Sandbox
    from codev_env.scoring import Scorer


def _names_near_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor raise `ArgumentError` with the nearest known name for an argument that it does not have.

    The message ends in the words of Python: by them Gymnasium and TorchRL know that `frameskip`, say, is refused.
    """
    known = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def checked(self: CodeVBenchEnv, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                from codev_env.tasks.readers.dataset import open_dataset

                error = str(unknown("argument of the environment", name, known))
                if name in inspect.signature(open_dataset).parameters:  # nearer than any name of the environment's own
                    of_episodes = "of episodes, give reset(seed=…); " if name == "seed" else ""
                    given = f"{of_episodes}of a reader, give reader={{{name!r}: …}}"
                    error = f"unknown argument of the environment {name!r}: {given}."
                raise ArgumentError(f"{error} (__init__() got an unexpected keyword argument {name!r})")
        init(self, *args, **kwargs)

    return checked


class CodeVBenchEnv(ImageToolEnv):
    """Questions about images that need a closer look, as in CodeV (arXiv 2511.19661).

    ## Description
    The model gets an image, or several, and a question, with choices or without. At each turn it either writes Python
    that makes new images from the given one (crops, rotations, enhancements, measurements) or answers. The code runs in
    a sandbox; its images and its printed text are the next observation. Each tool call is scored by what it *showed*,
    never by its text.

    | id | data |
    | --- | --- |
    | `CodeV-VStar-v0` | V*Bench (arXiv 2312.14135): an attribute of a small target, or how two targets lie |
    | `CodeV-HRBench4K-v0`, `CodeV-HRBench8K-v0` | HR-Bench (arXiv 2408.15556): images of 4K and 8K, each question four times with its options in turn |
    | `CodeV-MathVista-v0` | MathVista (arXiv 2310.02255): charts, figures and sums, with choices or open answers |
    | `CodeV-MVTool-v0` | MVToolBench (arXiv 2512.03746): small print in documents that are turned or mirrored |
    | `CodeV-TreeBench-v0` | TreeBench: photographs with boxes of the evidence |
    | `CodeV-VisualProbe-v0`, `CodeV-O3Bench-v0` | VisualProbe, O3-Bench: visual search, charts and maps |
    | `CodeV-MMERealWorldLite-v0`, `CodeV-BLINK-v0` | MME-RealWorld-Lite, BLINK |
    | `CodeV-CharXiv-v0`, `CodeV-CharXivDescriptive-v0`, `CodeV-ChartQAPro-v0` | CharXiv's reasoning and descriptive questions, ChartQAPro |
    | `CodeV-TIRBench-v0` | TIR-Bench: 13 tasks, with parts of a point |
    | `CodeV-ZoomBench-v0`, `CodeV-ZoomBenchCrop-v0` | ZoomBench: the whole image, and the published crop |
    | `CodeV-Orientation-v0` | V*Bench upright, in three rotations and two flips |
    | `CodeV-Corruption-v0` | V*Bench under natural corruptions of five severities |
    | `CodeV-RL-v0`, `CodeVision-RL-v0`, `CodeV-DeepEyes-v0` | the training sets of CodeV, CodeVision and DeepEyes |
    | `CodeV-Video-v0` | videos, generated or your own: one frame is shown, programs have `frames[i]` and `video.at(seconds)` |
    | `CodeV-Dataset-v0` | your own: a folder, JSONL, Parquet or a data set of the hub |

    ## Action Space
    `Unicode(1000000)`: the model's raw text. In the `codev` dialect a turn is `<think>…</think>`, then
    `<code>` with fenced Python and `</code>`, or `<answer>…</answer>`. Any text is legal: one that cannot be parsed
    costs a turn, and the observation says why.

    ## Observation Space
    `Dict("images": Images(65536), "text": Unicode(1000000))`, only what is new since the last turn:

    | key | value |
    | --- | --- |
    | `text` | the user message; each `<image>` in it is the place of one of `images`, in order |
    | `images` | tuple of uint8 arrays of shape (height, width, 3); shorter side at least 28 pixels after a tool call |

    After an answer the text is empty. The system message is `env.unwrapped.system_prompt`.

    ## Starting State
    A task drawn from the split with the environment's random generator, or `reset(options={"index": i})` or
    `reset(options={"task_id": s})`. The first observation names the image and its size in pixels, and asks the question.

    ## Rewards
    The change of a weighted sum of terms, so that an episode's step rewards add up to the reward of the trajectory.
    `reward="tapo"`:

    | term | weight | value |
    | --- | --- | --- |
    | `outcome` | 1.0 | 1 if the answer is right |
    | `format` | 0.3 | 1 while every turn is well formed |
    | `tool` | 0.5 | mean over the code turns of the judge's score: did an image show a target as its main content? |

    `reward="outcome"` has the first term alone; `codev rewards list` names the others.

    ## Episode End
    Termination: the model answers (`stop_reason` `"answer"`). Truncation: after `max_turns` turns without an answer
    (`"max_turns"`).

    ## Information
    The same keys at reset and every step:

    | key | value |
    | --- | --- |
    | `task_id`, `index` | the task, and its place in the task set |
    | `turn` | turns taken |
    | `action_kind` | `"code"`, `"answer"` or `"invalid"`; `""` at reset |
    | `stop_reason` | `""` while the episode runs |
    | `is_correct`, `is_faithful` | the answer is right; some tool call showed a target as its main content |
    | `reward_terms` | name to float; adds up to the step's reward |
    | `crop_boxes` | for each image returned this turn `(x1, y1, x2, y2)` in pixels of the original, `None` if unknown |
    | `source` | `"real"` or `"generated"` |

    The gold answer is not among them; `env.unwrapped.task` has it.

    ## Arguments
    | argument | default | meaning |
    | --- | --- | --- |
    | `bench` | set by the id | which data: a name in `codev_env.tasks.BENCHES` |
    | `data` | `"auto"` | `"synthetic"`: generated scenes; a path; `"hub"`; `"auto"`: the data where it is found, else scenes, with a warning; or a `TaskSet`. `CodeV-Dataset-v0` needs a path, rows in memory (a list of dicts, a `DataFrame` of pandas or polars, a `datasets.Dataset`) or `"synthetic"` |
    | `split` | `""` | part of the data; empty for the first one that the real data has |
    | `subset` | `None` | only this category, or this variant of `wrap` |
    | `scenes` | `None` | settings of the generated scenes: a name or a mapping |
    | `wrap` | set by the id | transforms and corruptions: a suite (`"orientation"`, `"corruption"`), names, or a mapping |
    | `only` | `None` | a file of task ids, as `codev data filter` writes it: only these tasks |
    | `columns`, `reader` | `None` | `CodeV-Dataset-v0` only: which column holds what, and more options of the reader |
    | `on_error` | `"raise"` | what to do about bad rows of real data: `"raise"`, or `"skip"` with a count |
    | `scorer` | `"rules"` | who decides whether an answer is right: a name in `codev_env.scoring.SCORERS` or a `Scorer` |
    | `dialect` | `"codev"` | how the model talks |
    | `reward`, `reward_weights` | `"tapo"`, `None` | a name, a function of an `Episode`, a `"module:attribute"` path or a `Reward` (docs/rewards.md); weights to change, by term |
    | `judge` | `"auto"` | who scores tool calls: a name, `"URL#NAME"`, a mapping with name and options, or a `Judge` (docs/judges.md) |
    | `view_pixels` | `None` | the policy sees an image at no more than this many pixels: a crop of more has less detail (docs/judges.md) |
    | `max_turns` | `6` | turns of the model, the answer included |
    | `limits` | `None` | limits of the sandbox: a mapping such as `{"wall_s": 5}` or `Limits` |
    | `sandbox` | `None` | a live `Sandbox` to use instead of the one that the environments of a process share |
    | `farm` | `None` | run programs, provenance and judge on many machines: `"ray"`, `"ray://HOST:PORT"` or a mapping (docs/cluster.md) |
    | `render_mode` | `None` | `"human"`, `"ansi"` or `"rgb_array"` |

    ## Version History
    * v0: first version.
    """  # noqa: E501 - rows of tables cannot be wrapped

    @_names_near_arguments
    def __init__(
        self,
        *,
        bench: str,
        data: Any = "auto",
        split: str = "",
        subset: str | None = None,
        dialect: str | Dialect = "codev",
        reward: str | Reward | RewardFunction = "tapo",
        judge: str | Mapping[str, Any] | Judge = "auto",
        max_turns: int = 6,
        limits: Limits | Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        scenes: str | Mapping[str, Any] | None = None,
        reward_weights: Mapping[str, float] | None = None,
        on_error: str = "raise",
        columns: Mapping[str, Any] | None = None,
        reader: Mapping[str, Any] | None = None,
        wrap: str | Sequence[str] | Mapping[str, Any] | None = None,
        only: str | None = None,
        scorer: str | Scorer = "rules",
        sandbox: Sandbox | None = None,
        view_pixels: int | None = None,
        farm: str | Mapping[str, Any] | FarmOptions | Farm | None = None,
    ) -> None:
        from codev_env.tasks import default_split, load_tasks, narrow, wrap_tasks
        from codev_env.tasks.readers.fields import brief

        shared: dict[str, Any] = {
            "split": split or default_split(bench),
            "dialect": dialect,
            "reward": reward,
            "judge": judge,
            "view_pixels": view_pixels,
            "max_turns": max_turns,
            "limits": limits,
            "farm": farm,
            "render_mode": render_mode,
            "reward_weights": reward_weights,
            "scorer": scorer,
        }
        described: dict[str, Any] = {"scenes": scenes, "subset": subset, "columns": columns, "reader": reader}
        changed: dict[str, Any] = {"wrap": wrap, "only": only}
        data = os.fspath(data) if isinstance(data, os.PathLike) else data
        if isinstance(data, str) or (bench == "dataset" and not isinstance(data, TaskSet)):
            tasks = load_tasks(data, shared["split"], bench=bench, on_error=on_error, **described, **changed)
        elif isinstance(data, TaskSet) and not any(described.values()):
            tasks = narrow(wrap_tasks(data, wrap), only)
        elif isinstance(data, TaskSet):
            given = ", ".join(name for name, value in described.items() if value)
            raise ConfigError(f"data is a TaskSet, which is taken as it is: give a TaskSet without {given}, or a path.")
        else:
            raise ConfigError(
                f"data is {brief(data)}: only CodeV-Dataset-v0 takes rows in memory. Give a path (a str) or a TaskSet."
            )
        super().__init__(tasks, sandbox=sandbox, **shared)
        EzPickle.__init__(self, bench=bench, data=data, on_error=on_error, **described, **changed, **shared)
