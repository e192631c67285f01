"""Asks a server for verdicts: many at once in one thread of their own, each question once, tried again, counted."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, TypeVar

from PIL import Image

from codev_env.chat_model import import_openai, read_key
from codev_env.errors import JudgeError, unstopped
from codev_env.judges.cache import VerdictCache
from codev_env.judges.images import data_url
from codev_env.judges.options import JudgeStats, VLMOptions
from codev_env.judges.rubrics import SCHEMA, VERSION, RubricName, Verdict, messages, read_verdict

FIRST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_ASKED_PAUSE_S = 0.5, 8.0, 60.0
ENCODERS = 4
_AGAIN = (408, 409, 429)
CALL: ContextVar[JudgeStats | None] = ContextVar("judged call", default=None)
"""Counts the requests for one tool call; coroutines and tasks that are started for it see the same counters."""
T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """Everything that a verdict depends on, besides the model.

    Attributes:
        rubric: The kind of output that is graded.
        text: The question with its options.
        images: Not encoded yet.
        printed: Text that the program printed, for rubrics that show it; else empty.
    """

    rubric: RubricName
    text: str
    images: tuple[Image.Image, ...] = ()
    printed: str = ""

    def key(self, options: VLMOptions) -> str:
        """Return a digest of everything that a verdict depends on."""
        parts = (VERSION, options.model, options.temperature, options.image_side, self.rubric, self.text, self.printed)
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=24)
        for image in self.images:
            digest.update(repr((image.mode, image.size)).encode())
            digest.update(image.tobytes())
        return digest.hexdigest()


class _Again(Exception):
    """A try that failed and is worth another; `pause_s` where the server says how long to wait."""

    def __init__(self, problem: str, pause_s: float | None = None) -> None:
        super().__init__(problem)
        self.pause_s = pause_s


@dataclass
class _Flight:
    """A question that is being asked, and the number of callers that wait for its verdict."""

    task: asyncio.Task[Verdict]
    waiting: int = 0


class Asker:
    """Asks for verdicts in an event loop of its own, which runs in a thread until `close`.

    Its coroutines must run in that loop: hand them to `submit`.

    Args:
        options: Of the judge.
        api_key: `None` takes it from the environment.
        elsewhere: What the judge has counted on other machines; budgets include it.

    Raises:
        ConfigError: If the package openai is missing, or the key cannot be sent.
    """

    def __init__(self, options: VLMOptions, api_key: str | None, elsewhere: JudgeStats) -> None:
        self._openai = import_openai("judge 'vlm'", "aiohttp")
        self.options, self.stats, self._elsewhere = options, JudgeStats(), elsewhere
        self._key = read_key(api_key, options.api_key_env, "judge 'vlm'") or "none"
        self._cache = VerdictCache(options.cache) if options.cache is not None else None
        self._structured = True
        self._flights: dict[str, _Flight] = {}
        self._random = random.Random()
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._encoders = ThreadPoolExecutor(ENCODERS, "codev-judge-encode")
        self._client = self._make_client()
        self._slots = asyncio.Semaphore(options.concurrency)
        self._encoded = asyncio.Semaphore(2 * options.concurrency)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="codev-judge", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in this asker's loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def waited(self, seconds: float) -> None:
        """Count the time that a caller waited, from any thread."""
        with self._lock:
            self.stats.waited_s += seconds

    def close(self) -> None:
        """Cancel running requests and end the thread."""
        if self._pid != os.getpid() or self._loop.is_closed():
            return
        if threading.current_thread() is self._thread:
            self._loop.stop()
            return
        with suppress(Exception):
            self.submit(self._shut()).result(timeout=5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._encoders.shutdown(wait=False)
        if not self._thread.is_alive():
            self._loop.close()

    async def ask(self, question: Question) -> Verdict:
        """Return the verdict on a question; the same question at the same time is asked once.

        Raises:
            JudgeError: If there is none after all tries, or the budget is used up.
        """
        key = await self.in_thread(question.key, self.options)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(self._fetch(key, question)))
        else:
            self.stats.coalesced += 1
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting:  # No other caller waits for it: it is done, or can be cancelled.
                flight.task.cancel()
                if self._flights.get(key) is flight:
                    del self._flights[key]

    async def models(self) -> list[str] | None:
        """Return the names of the models that the server knows, `None` if it does not list them.

        Raises:
            JudgeError: If the server cannot be reached, or refuses.
        """
        try:
            async with asyncio.timeout(self.options.timeout_s):
                return [model.id async for model in self._client.models.list()]
        except (TimeoutError, self._openai.OpenAIError) as error:
            if getattr(error, "status_code", None) in (404, 405, 501):
                return None
            raise JudgeError(
                f"judge 'vlm': {self._where()} cannot be reached: {self._describe(error)}. Start the server, "
                "or correct its address."
            ) from error

    async def refusal(self) -> str:
        """Return why the server does not answer for the model, which is asked for a single token; empty if it does."""
        body = {
            "model": self.options.model,
            "messages": [{"role": "user", "content": "1"}],
            "max_completion_tokens": 1,
        }
        try:
            async with asyncio.timeout(self.options.timeout_s):
                await self._client.post("/chat/completions", body=body, cast_to=object)
        except (TimeoutError, ValueError, self._openai.OpenAIError) as error:
            return self._describe(error)
        return ""

    async def _fetch(self, key: str, question: Question) -> Verdict:
        verdict = await self.in_thread(self._cache.get, key) if self._cache else None
        if verdict is not None:
            self.stats.hits += 1
            return verdict
        try:
            async with self._encoded:  # Not all at once: encoded images take memory.
                images = await self.in_thread(_encode, question, self.options.image_side)
                async with self._slots:
                    verdict = await self._try(question, images)
        except JudgeError:
            self.stats.failures += 1
            raise
        if self._cache:
            await self.in_thread(self._cache.put, key, verdict)
        return verdict

    async def _try(self, question: Question, images: list[str]) -> Verdict:
        """Try until there is a verdict or no try is left. Pauses keep the slot, to spare a server that is busy."""
        problem: _Again | None = None
        for attempt in range(self.options.retries + 1):
            if problem is not None:
                self.stats.retries += 1
                await asyncio.sleep(self._pause(attempt, problem))
            check = 100_000 + secrets.randbelow(900_000)
            chat = messages(question.rubric, question.text, question.printed, images, check)
            try:
                return _verdict(await self._send(chat), check)
            except _Again as error:
                problem = error
        raise JudgeError(
            f"judge 'vlm': no verdict from {self._where()} in {self.options.retries + 1} tries; the last: {problem}. "
            "Check the server, raise timeout_s, retries or max_tokens, or take another model."
        )

    async def _send(self, chat: list[dict[str, Any]]) -> Any:
        """Send one request and return the reply's JSON; without structured output if the server refuses that."""
        openai, structured = self._openai, self._structured
        try:
            try:
                reply = await self._post(chat, structured)
            except (openai.BadRequestError, openai.UnprocessableEntityError):
                if not structured:
                    raise
                reply = await self._post(chat, False)
                self._structured = False
        except TimeoutError as error:
            raise _Again(f"no reply within {self.options.timeout_s:g} s") from error
        except openai.APIConnectionError as error:
            raise _Again(self._describe(error)) from error
        except openai.APIStatusError as error:
            if error.status_code in _AGAIN or error.status_code >= 500:
                raise _Again(self._describe(error), asked_pause(error.response.headers)) from error
            raise JudgeError(f"judge 'vlm': {self._where()} refuses: {self._describe(error)}") from error
        except openai.OpenAIError as error:
            raise JudgeError(f"judge 'vlm': {self._where()} failed: {self._describe(error)}") from error
        except ValueError as error:
            raise _Again(f"its reply is not JSON ({error})", 0.0) from error
        if isinstance(reply, dict) and reply.get("error") and not reply.get("choices"):
            raise _Again(self._describe(JudgeError(reply["error"])))  # with status 200, as some gateways send it
        self._count(reply)
        return reply

    async def _post(self, chat: list[dict[str, Any]], structured: bool) -> Any:
        options, stats = self.options, self.stats + self._elsewhere
        if options.max_calls is not None and stats.calls >= options.max_calls:
            raise JudgeError(f"judge 'vlm': the budget of option max_calls={options.max_calls} is used up; raise it.")
        if options.max_cost is not None and stats.cost >= options.max_cost:
            raise JudgeError(
                f"judge 'vlm': the budget of option max_cost={options.max_cost:g} is used up (spent: {stats.cost:.4g} "
                f"in {stats.calls} requests); raise it."
            )
        for counted in self._counters():
            counted.calls += 1
        body: dict[str, Any] = {"model": options.model, "messages": chat, "max_completion_tokens": options.max_tokens}
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if structured:
            body["response_format"] = {"type": "json_schema", "json_schema": SCHEMA}
        # `chat.completions.create` would check every field of request and reply, at nearly twice the time of a call.
        async with asyncio.timeout(options.timeout_s):
            return await self._client.post("/chat/completions", body=body, cast_to=object)

    def _count(self, reply: Any) -> None:
        options = self.options
        usage = reply.get("usage") if isinstance(reply, dict) else None
        prompt, completion = (_tokens(usage, name) for name in ("prompt_tokens", "completion_tokens"))
        if prompt is None or completion is None:
            if options.max_cost is not None:
                raise JudgeError(
                    f"judge 'vlm': {self._where()} does not report the tokens used, so that max_cost cannot be kept; "
                    "set max_calls instead."
                )
            return
        cost = (prompt * (options.prompt_price or 0) + completion * (options.completion_price or 0)) / 1e6
        for counted in self._counters():
            counted.prompt_tokens += prompt
            counted.completion_tokens += completion
            counted.cost += cost

    def _counters(self) -> tuple[JudgeStats, ...]:
        call = CALL.get()
        return (self.stats,) if call is None else (self.stats, call)

    def _pause(self, attempt: int, problem: _Again) -> float:
        if problem.pause_s is not None:
            return problem.pause_s
        return min(FIRST_PAUSE_S * 2 ** (attempt - 1), LONGEST_PAUSE_S) * self._random.uniform(0.5, 1.0)

    def _make_client(self) -> Any:
        openai, options = self._openai, self.options
        limits = type(openai.DEFAULT_CONNECTION_LIMITS)(
            max_connections=options.concurrency, max_keepalive_connections=options.concurrency
        )
        return openai.AsyncOpenAI(
            base_url=options.base_url,
            api_key=self._key,
            max_retries=0,
            timeout=None,  # `_post` has it.
            # With httpx the choice among a thousand connections is slow.
            http_client=openai.DefaultAioHttpClient(limits=limits),
        )

    def _where(self) -> str:
        return f"{self.options.model!r} at {self._client.base_url}"

    def _describe(self, error: BaseException) -> str:
        """Return an error's kind and text, without the key that a server may repeat."""
        if isinstance(error, self._openai.APIConnectionError) and error.__cause__:
            error = error.__cause__  # Says what is wrong with the connection; the error itself does not.
        text = " ".join(f"{type(error).__name__}: {unstopped(error)}".split())
        return text.replace(self._key, "***")[:300] if len(self._key) >= 8 else text[:300]

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function that takes a while outside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._encoders, function, *arguments)

    async def _shut(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.close()


def asked_pause(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a reply's headers ask to wait, at most 60, or `None` if they do not say."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            seconds = float(headers[name]) * unit
            return min(max(seconds, 0.0), LONGEST_ASKED_PAUSE_S) if seconds == seconds else None
    with suppress(KeyError, ValueError):
        return min(max(parsedate_to_datetime(headers["retry-after"]).timestamp() - time(), 0.0), LONGEST_ASKED_PAUSE_S)
    return None


def _tokens(usage: Any, name: str) -> int | None:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and count >= 0 else None


def _encode(question: Question, side: int) -> list[str]:
    return [data_url(image, side) for image in question.images]


def _verdict(reply: Any, check: int) -> Verdict:
    """Read a reply; raises `_Again` if it holds no verdict."""
    try:
        choice = reply["choices"][0]
        content, ending = choice["message"]["content"], choice.get("finish_reason")
    except (TypeError, LookupError, AttributeError):
        raise _Again("its reply has no choice with a message", 0.0) from None
    verdict = read_verdict(content, check)
    if verdict is None:
        cut = "which was cut off at max_tokens" if ending == "length" else "which is not the object asked for"
        raise _Again(f"it replied {str(content)[:100]!r}, {cut}", 0.0)
    return verdict
