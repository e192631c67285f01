"""The judge `vlm`: a vision-language model behind an OpenAI-compatible server grades what a tool call showed."""

from __future__ import annotations

import asyncio
import os
import warnings
import weakref
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, TypeVar

from PIL import Image

from codev_env.chat_model import import_openai, missing_model, read_key
from codev_env.errors import JudgeError, unstopped
from codev_env.judges.client import CALL, Asker, Question
from codev_env.judges.ground_truth import RED_LINE
from codev_env.judges.images import as_given
from codev_env.judges.judge import Item
from codev_env.judges.options import JudgeStats, VLMOptions, make_options
from codev_env.judges.rubrics import MAX_PRINTED, VERSION, question_of, rubric_of
from codev_env.locks import ForkLock
from codev_env.threads import is_given_up, is_wanted
from codev_env.types import Region, Step, StepScore, Task
from codev_env.usage import EpisodeUsage, Usage

ORIGINAL_SHARE = 0.25
DEFINITION = f"vlm {VERSION}"
"""Name and version of what a model calls faithful; the version is that of its prompts."""
T = TypeVar("T")
_UNWANTED = "judge 'vlm': nobody waits for this score any more."
_lock = ForkLock()
_judges: weakref.WeakSet[VLMJudge] = weakref.WeakSet()
_by_options: dict[VLMOptions, VLMJudge] = {}
"""Kept until the process ends: new environments must not reset a budget."""
_inherited: list[Asker] = []
"""The askers of the process that this one was forked from: kept, for their connections must not be closed here."""


@dataclass(frozen=True)
class SettledScore:
    """The score of one image, of the judge or settled without a request."""

    value: float
    why: str
    faithful: bool = False


class VLMJudge:
    """Asks a vision-language model to grade the output of a tool call; options in `VLMOptions`, prompts in `rubrics`.

    It sees the question, the images and, for the rubric `calculation`, the printed text; never the policy's reasoning,
    code or answer. For `search` the value is the mean over the step's images, and the step is faithful if one image
    clearly shows what is asked about as its main content. Settled without a request: a program that ends with an error
    and a image that was seen before, exactly (both `RED_LINE`); no image, and drawn ones (both 0).

    Safe to use from several threads and after a fork. A copy is the judge itself; one that is pickled has the same
    options, but a key that was passed stays behind: there the environment variable is read.

    Args:
        model: The model's name as the server knows it.
        base_url: For example `http://localhost:8000/v1`.
        api_key: `None` reads the environment variable `api_key_env`.
        **options: The other fields of `VLMOptions`.

    Raises:
        ConfigError: If an option is unknown or cannot be used, or the package openai is missing.
    """

    name = "vlm"

    def __init__(
        self, model: str = "", base_url: str | None = None, api_key: str | None = None, **options: Any
    ) -> None:
        self.options = make_options(model=model, base_url=base_url, **options)
        import_openai("judge 'vlm'", "aiohttp")
        self._key, self._elsewhere = api_key, JudgeStats()
        self._running: tuple[Asker, weakref.finalize[Any, Any]] | None = None
        self._warned = False
        with _lock:
            _judges.add(self)

    def __repr__(self) -> str:
        return f"VLMJudge({self.options})"

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_judge, (self.options,)

    def __copy__(self) -> VLMJudge:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> VLMJudge:
        return self

    def score(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Score a code turn; see `Judge.score`."""
        return self.score_batch([(task, step, history)])[0]

    def score_batch(self, items: Sequence[Item]) -> list[StepScore]:
        """Score several code turns at once; each item is the arguments of `score`.

        Raises:
            JudgeError: If one is missing and `on_error` is `"raise"`; the other requests are cancelled. Or if nobody
                waits for what this thread does any more.
        """
        if is_given_up():  # before a request is sent
            raise JudgeError(_UNWANTED)
        asker, started = self._asker(), monotonic()
        future = asker.submit(_all(self._score(asker, *item) for item in items))
        try:
            if not is_wanted(future):
                raise JudgeError(_UNWANTED)
            return self._warned_of(future.result())
        except BaseException:
            future.cancel()
            raise
        finally:
            asker.waited(monotonic() - started)

    async def ascore(self, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        """Score a code turn from any event loop; see `Judge.score`."""
        asker, started = self._asker(), monotonic()
        try:
            score = await asyncio.wrap_future(asker.submit(self._score(asker, task, step, history)))
            return self._warned_of([score])[0]
        finally:
            asker.waited(monotonic() - started)

    def stats(self) -> JudgeStats:
        """Return the counters of this process, and those of the nodes of its farms."""
        running = self._running
        return (running[0].stats if running else JudgeStats()) + self._elsewhere

    def count(self, stats: JudgeStats) -> None:
        """Add what this judge has counted on another machine; `max_calls` and `max_cost` include it."""
        with _lock:
            vars(self._elsewhere).update(vars(self._elsewhere + stats))

    def ping(self) -> str:
        """Return one line on the server; raises `JudgeError` if it or the model is missing.

        It costs nothing, but for a name that the server does not list: that is asked for a single token, for servers
        know models by more names than they list.
        """
        asker, options = self._asker(), self.options
        server = options.base_url or "the server"
        models = asker.submit(asker.models()).result()
        if models is None:
            return f"{server} answers, but does not list its models"
        if options.model not in models:
            if refusal := asker.submit(asker.refusal()).result():
                raise JudgeError(
                    f"judge 'vlm': {server} has no model {options.model!r}; it serves: "
                    f"{', '.join(models[:20]) or 'nothing'}. Asked for that model, it says: {refusal}"
                )
            return f"{server} answers for {options.model}, which it does not list"
        return f"{server} serves {options.model}"

    def check_model(self) -> None:
        """Raise `JudgeError` if the server cannot be reached, or neither lists the model nor answers for it.

        Unlike `ping` it accepts a name that the server knows without listing it, and asks that for a single token.
        """
        options, openai = self.options, import_openai("judge 'vlm'")
        key = read_key(self._key, options.api_key_env, "judge 'vlm'") or "none"
        with openai.OpenAI(base_url=options.base_url, api_key=key, max_retries=0, timeout=options.timeout_s) as client:
            try:
                problem = missing_model(client, options.model)
            except openai.APIConnectionError as error:
                problem = f"it cannot be reached ({unstopped(error)}); start the server, or correct its address."
            if problem:
                raise JudgeError(f"judge 'vlm': {options.model!r} at {client.base_url}: {problem}")

    def close(self) -> None:
        """Cancel running requests and close the connections; the next call opens new ones and restarts the counters."""
        with _lock:
            running, self._running = self._running, None
            self._elsewhere = JudgeStats()
        if running is not None:
            running[1]()

    def _asker(self) -> Asker:
        with _lock:
            if self._running is None:
                asker = Asker(self.options, self._key, self._elsewhere)
                self._running = asker, weakref.finalize(self, asker.close)
            return self._running[0]

    async def _score(self, asker: Asker, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        CALL.set(spent := JudgeStats())
        try:
            score = await self._judge(asker, task, step, history)
        except JudgeError as error:
            failure = JudgeError(str(error))  # of this call alone: others may wait for the same verdict
            failure.usage = EpisodeUsage(judge=_usage(spent))
            raise failure from error
        return replace(score, definition=DEFINITION, usage=_usage(spent))

    async def _judge(self, asker: Asker, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        execution = step.execution
        if execution is None:
            return StepScore(None, "no code ran")
        if execution.error is not None:
            return StepScore(RED_LINE, f"avoidable error ({execution.stop})")
        try:
            if rubric_of(self.options.rubric, task, step) == "calculation":
                return await self._score_calculation(asker, task, step)
            return await self._score_search(asker, task, step, history)
        except JudgeError as error:
            if self.options.on_error == "raise":
                raise
            return StepScore(None, str(error), failed=True)

    async def _score_search(self, asker: Asker, task: Task, step: Step, history: Sequence[Step]) -> StepScore:
        assert step.execution is not None
        images = step.execution.images
        if not images:
            return StepScore(0.0, "no image")
        parts = await asker.in_thread(self._settled, task, step, history)
        open_parts = [i for i, part in enumerate(parts) if part is None]
        for i in open_parts[self.options.max_images :]:
            parts[i] = SettledScore(0.0, "beyond max_images")
        open_parts = open_parts[: self.options.max_images]
        alone = self.options.images == "each"
        groups = [(i,) for i in open_parts] if alone else [tuple(open_parts)] if open_parts else []
        questions = [Question("search", question_of(task), tuple(images[i] for i in group)) for group in groups]
        verdicts = await _all(asker.ask(question) for question in questions)
        for group, verdict in zip(groups, verdicts, strict=True):
            for i in group:
                parts[i] = SettledScore(verdict.score, f"{verdict.score:g}: {verdict.why}", verdict.faithful)
        done = [part for part in parts if part is not None]
        whys = dict.fromkeys(part.why for part in done)
        value = sum(part.value for part in done) / len(done)
        return StepScore(value, "; ".join(whys), any(part.faithful for part in done))

    async def _score_calculation(self, asker: Asker, task: Task, step: Step) -> StepScore:
        assert step.execution is not None
        printed, images = step.execution.stdout, step.execution.images
        if not images and not printed.strip():
            return StepScore(0.0, "no output")
        if len(printed) > MAX_PRINTED:
            printed = printed[:MAX_PRINTED] + " …"
        judged = tuple(images[: self.options.max_images])
        verdict = await asker.ask(Question("calculation", question_of(task), judged, printed))
        return StepScore(verdict.score, f"{verdict.score:g}: {verdict.why}")

    def _settled(self, task: Task, step: Step, history: Sequence[Step]) -> list[SettledScore | None]:
        """Return, for each image of a step, its score if no model has to look at it, else `None`."""
        seen = [*map(as_given, task.shown_images), *(image for earlier in history for image in shown(earlier))]
        parts: list[SettledScore | None] = []
        for i, image in enumerate(shown(step)):
            region = step.regions[i] if i < len(step.regions) else Region()
            if any(_same(image, other) for other in seen):
                parts.append(SettledScore(RED_LINE, "no-op: shown before"))
            elif self.options.only_original and _is_drawn(region):
                parts.append(SettledScore(0.0, "drawn or generated"))
            else:
                parts.append(None)
        return parts

    def _warned_of(self, scores: list[StepScore]) -> list[StepScore]:
        """Return the scores; the first that is masked is warned of."""
        why = next((score.why for score in scores if score.failed), None)
        if why is not None and not self._warned:
            self._warned = True
            warnings.warn(
                f"a tool call gets no score, and its episode must not be trained on: {why} Further ones are only "
                "counted, in stats().failures.",
                RuntimeWarning,
                stacklevel=3,
            )
        return scores


def shared_judge(options: VLMOptions) -> VLMJudge:
    """Return this process's judge with these options, so that environments share its limits and connections."""
    with _lock:
        judge = _by_options.get(options)
    if judge is None:
        judge = VLMJudge(**vars(options))
        with _lock:
            judge = _by_options.setdefault(options, judge)
    return judge


def shown(step: Step) -> tuple[Image.Image, ...]:
    """The images that a step showed."""
    return tuple(step.execution.images) if step.execution else ()


def _is_drawn(region: Region) -> bool:
    return region.how == "probe" and (region.polygon is None or region.traced_share < ORIGINAL_SHARE)


def _same(image: Image.Image, other: Image.Image) -> bool:
    return image.size == other.size and image.tobytes() == other.tobytes()


def _usage(spent: JudgeStats) -> Usage:
    return Usage(spent.calls, spent.prompt_tokens, spent.completion_tokens, spent.cost)


async def _all(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Wait for coroutines that run side by side; the first error cancels the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _after_fork() -> None:
    """A forked child has its parent's objects, but neither its threads nor its connections."""
    for judge in list(_judges):
        if judge._running is not None:
            asker, finalizer = judge._running
            finalizer.detach()
            _inherited.append(asker)
            judge._running, judge._elsewhere = None, JudgeStats()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
