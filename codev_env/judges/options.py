"""The options of the vision-language judge, and its counters."""

from __future__ import annotations

import math
import os
from dataclasses import astuple, dataclass, fields
from numbers import Real
from typing import Any, Literal

from codev_env.chat_model import check_address
from codev_env.errors import ConfigError, unknown

_CHOICES = {"rubric": ("search", "calculation", "auto"), "images": ("each", "together"), "on_error": ("raise", "mask")}
_LEAST = {"max_images": 1, "concurrency": 1, "retries": 0, "max_tokens": 1, "image_side": 28, "max_calls": 0}
_POSITIVE = ("timeout_s", "temperature", "max_cost", "prompt_price", "completion_price")


@dataclass(frozen=True)
class VLMOptions:
    """Options of `VLMJudge`; all can be written in JSON.

    Attributes:
        model: The model's name as the server knows it. There is no default: scores depend on it.
        base_url: For example `http://localhost:8000/v1`; `None`: the environment's `OPENAI_BASE_URL`, else OpenAI's.
        api_key_env: The environment variable that holds the key; where it is not set, a placeholder is sent, which
            local servers take.
        rubric: The output that is graded: `"search"` (the content of the images), `"calculation"` (printed values and
            images), or `"auto"`, which takes `"calculation"` for steps that only print, in tasks without target boxes.
        images: `"each"`: every image is judged alone; `"together"`: all images of a step in one request.
            `"calculation"` is always together.
        max_images: Images of a step that are judged; those after them are worth 0.
        only_original: Images that are known to hold less than a quarter of pixels of the original are worth 0 and
            are not sent, for text drawn into them may address the judge. For `"search"` only.
        concurrency: Requests of this process in flight at the same time.
        retries: Tries after the first, with growing pauses, after 408, 409, 429, 5xx, time-outs, lost connections and
            replies that are not as asked.
        timeout_s: Seconds for one try, from the first byte sent to the last byte received.
        temperature: `None` leaves it to the server, for models that refuse one.
        max_tokens: Tokens of one reply, with what the model thinks before it.
        image_side: Images are shrunk so that no side is longer, in pixels.
        cache: Folder in which verdicts are kept; several processes may share it. `None`: none are kept.
        max_calls: Requests that this judge may send, retries too.
        max_cost: Limit of its requests' cost; needs both prices. Requests that are in flight when it is reached still
            end and are counted.
        prompt_price: Of a million tokens of prompts, in the unit of `max_cost`.
        completion_price: Of a million tokens of replies.
        on_error: `"raise"` a `JudgeError`, or `"mask"`: the score has no value and `failed` is set.

    Raises:
        ConfigError: An option is missing or cannot be used.
    """

    model: str = ""
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    rubric: Literal["search", "calculation", "auto"] = "search"
    images: Literal["each", "together"] = "each"
    max_images: int = 5
    only_original: bool = True
    concurrency: int = 64
    retries: int = 5
    timeout_s: float = 60.0
    temperature: float | None = 0.0
    max_tokens: int = 1024
    image_side: int = 1024
    cache: str | os.PathLike[str] | None = None
    max_calls: int | None = None
    max_cost: float | None = None
    prompt_price: float | None = None
    completion_price: float | None = None
    on_error: Literal["raise", "mask"] = "raise"

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise ConfigError(f"judge 'vlm': option model is {self.model!r}; name the model, there is no default.")
        if self.base_url is not None:
            check_address(self.base_url, "judge 'vlm': option base_url")
        if not isinstance(self.api_key_env, str) or not self.api_key_env:
            raise ConfigError(f"judge 'vlm': option api_key_env is {self.api_key_env!r}; it must be a variable's name.")
        if self.cache is not None and not (isinstance(self.cache, str | os.PathLike) and os.fspath(self.cache)):
            raise ConfigError(f"judge 'vlm': option cache is {self.cache!r}; it must be a folder, or None for none.")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise unknown(f"judge 'vlm': option {name}", getattr(self, name), known)
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and name == "max_calls":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"judge 'vlm': option {name} is {value!r}; it must be a whole number, {least} or more."
                )
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is None and name != "timeout_s":
                continue
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value < 0:
                raise ConfigError(f"judge 'vlm': option {name} is {value!r}; it must be a number that is not negative.")
        if self.timeout_s == 0:
            raise ConfigError("judge 'vlm': option timeout_s is 0; give each try some seconds.")
        if not isinstance(self.only_original, bool):
            raise ConfigError(f"judge 'vlm': option only_original is {self.only_original!r}; it must be true or false.")
        if self.max_cost is not None and (self.prompt_price is None or self.completion_price is None):
            raise ConfigError(
                f"judge 'vlm': option max_cost is {self.max_cost!r}, but without prompt_price and completion_price no "
                "cost can be counted; give both, or max_calls instead."
            )


def make_options(**options: Any) -> VLMOptions:
    """Make options by name; raises `ConfigError` for names that are no option."""
    known = [field.name for field in fields(VLMOptions)]
    for name in options:
        if name == "api_key":
            raise ConfigError(
                "judge 'vlm': api_key is no option, for options are written to files; put the key into an environment "
                "variable and name that as api_key_env, or pass VLMJudge(model, url, key)."
            )
        if name not in known:
            raise unknown("option of judge 'vlm'", name, known)
    return VLMOptions(**options)


@dataclass
class JudgeStats:
    """Counters of a judge in this process, and of the same judge on the nodes of its farms.

    Attributes:
        calls: Requests sent, retries too.
        hits: Verdicts found in the cache on disk.
        coalesced: Verdicts that came from a request which was already on its way for another tool call.
        retries: Requests sent again.
        failures: Questions without a verdict.
        prompt_tokens: As the server reports them.
        completion_tokens: As the server reports them.
        cost: By `prompt_price` and `completion_price`; 0 without them.
        waited_s: Seconds that callers of `score`, `score_batch` and `ascore` waited, added up over calls.
    """

    calls: int = 0
    hits: int = 0
    coalesced: int = 0
    retries: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    waited_s: float = 0.0

    def __add__(self, other: JudgeStats) -> JudgeStats:
        return JudgeStats(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: JudgeStats) -> JudgeStats:
        return JudgeStats(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))
