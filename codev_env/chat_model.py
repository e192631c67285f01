"""The parts that scorers, judges and agents behind an OpenAI-compatible server share."""

from __future__ import annotations

import importlib
import json
import os
import re
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from codev_env.errors import ConfigError, unstopped

MAX_CONTENT = 20_000
"""Characters of a reply, after what a model thought, in which an object is looked for."""
_MAX_STARTS = 50
_TEMPLATE_MARKS = re.compile(r"[<>]|\[(?=/?[A-Z_]{3,}\])")


def is_address(text: str) -> bool:
    """Whether a text is the address of a server, with or without a model's name."""
    return text.startswith(("http://", "https://"))


def split_address(text: str, what: str) -> tuple[str, str]:
    """Split `"URL#NAME"` into the server's address and the model's name.

    Args:
        text: For example `"http://localhost:8000/v1#my-model"`.
        what: The option that it is the value of, for the error message, for example `"judge"`.

    Raises:
        ConfigError: There is no name, or the address has no host or a port that cannot be.
    """
    url, _, model = text.partition("#")
    check_address(url, what)
    if not model:
        raise ConfigError(f"{what} {text!r} names no model: add it after the address, {url}#NAME.")
    return url, model


def check_address(url: object, what: str) -> None:
    """Raise `ConfigError` unless a value is the address of a server; `what` names it in the message."""
    with suppress(ValueError):  # a port above 65535, or an open bracket
        parts = urlsplit(url) if isinstance(url, str) and is_address(url) else None
        if parts and parts.hostname and parts.port != 0:
            return
    raise ConfigError(f"{what} is {url!r}; it must be an address such as http://localhost:8000/v1.")


def read_key(given: str | None, variable: str, who: str) -> str:
    """Return the key for a server without blanks around it, which one from a file may have; empty without any.

    Args:
        given: `None` takes it from the environment.
        variable: Name of the environment variable.
        who: Needs it, for the error message.

    Raises:
        ConfigError: It holds characters that no header may hold.
    """
    key = (given or os.environ.get(variable) or "").strip()
    if not (key.isascii() and key.isprintable()):
        place = "api_key" if given else f"the environment variable {variable}"
        raise ConfigError(f"{who}: its key holds characters that cannot be sent: correct {place}.")
    return key


def import_openai(who: str, *also: str) -> Any:
    """Return the module openai.

    Args:
        who: Needs it, for the error message, for example `"judge 'vlm'"`.
        also: Other modules that must be installed.

    Raises:
        ConfigError: One of the modules is not installed.
    """
    try:
        for name in also:
            importlib.import_module(name)
        return importlib.import_module("openai")
    except ImportError as error:
        raise ConfigError(
            f"{who} needs the package openai ({error}). Install it: pip install 'codev-env[eval]'."
        ) from error


def list_models(client: Any) -> list[str] | None:
    """Return the names of the models that a server lists, `None` if it lists none in the way of the OpenAI API.

    Args:
        client: An `openai.OpenAI`.

    Raises:
        openai.APIConnectionError: The server cannot be reached.
    """
    openai = import_openai("a model behind a server")
    try:
        listed = client.with_options(max_retries=0).get("/models", cast_to=object)
        return [str(model["id"]) for model in listed["data"]]
    except openai.APIConnectionError:
        raise
    except (openai.OpenAIError, ValueError, TypeError, LookupError):
        return None


def missing_model(client: Any, model: str) -> str:
    """Return why a server does not have a model; empty if it has it, or does not say.

    Servers know models by more names than they list: one that is not listed is asked for a single token.

    Args:
        client: An `openai.OpenAI`.
        model: The model's name.

    Raises:
        openai.APIConnectionError: The server cannot be reached.
    """
    openai = import_openai("a model behind a server")
    known = list_models(client)
    if known is None or model in known:
        return ""
    body = {"model": model, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
    try:
        client.post("/chat/completions", body=body, cast_to=object)
    except openai.NotFoundError as error:
        return f"{unstopped(error)}. {served(known)}"
    except (openai.OpenAIError, ValueError):  # whatever else is wrong is reported with an episode
        pass
    return ""


def served(models: Sequence[str]) -> str:
    """Return a sentence on the models that a server lists, the first 20 of them."""
    return f"It serves: {', '.join(models[:20]) or 'nothing'}{', …' if len(models) > 20 else ''}."


class ReplyError(ValueError):
    """A reply that is no chat completion; the text says what it is."""


@dataclass(frozen=True)
class ChatReply:
    """The first choice of a chat completion.

    Attributes:
        text: The message, empty without content; texts of several parts are joined.
        finish_reason: Why it ended, empty where the server does not say.
        stop_reason: The stop string or token that vLLM reports.
        prompt_tokens: 0 where the server does not count, as for `completion_tokens`.
        completion_tokens: Tokens generated.
    """

    text: str
    finish_reason: str = ""
    stop_reason: Any = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


def read_reply(reply: Any) -> ChatReply:
    """Read the JSON of a reply; a proxy may send anything with status 200.

    Raises:
        ReplyError: It is no chat completion, or has no choice.
    """
    if isinstance(reply, dict) and reply.get("choices") == []:
        raise ReplyError("returned no choice")
    try:
        choice = reply["choices"][0]
        content, ending, stop = choice["message"].get("content"), choice.get("finish_reason"), choice.get("stop_reason")
        if isinstance(content, list):
            parts = [part.get("text") if isinstance(part, dict) else part for part in content]
            content = "".join(part for part in parts if isinstance(part, str))
        if not isinstance(content, str | None):
            raise TypeError(content)
    except (TypeError, LookupError, AttributeError):
        raise ReplyError(f"returned no chat completion, but {str(reply)[:200]!r}") from None
    usage = reply.get("usage")
    counts = [usage.get(name) if isinstance(usage, dict) else 0 for name in ("prompt_tokens", "completion_tokens")]
    prompt, completion = (count if type(count) is int else 0 for count in counts)
    return ChatReply(content or "", str(ending or ""), stop, prompt, completion)


def as_data(data: dict[str, Any]) -> str:
    """Return untrusted data as one line of ASCII JSON that can neither end its string nor look like a chat template.

    Marks like `<|im_end|>` or `[/INST]` are escaped too.
    """
    text = json.dumps(data)
    return _TEMPLATE_MARKS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def read_checked(content: object, check: int) -> dict[str, Any] | None:
    """Read a reply that is to be one JSON object and to repeat a random number, which whoever is judged cannot know.

    Args:
        content: Its text: the object, alone or as the only one in other text (from servers without structured output),
            after what a model thought in `<think>` tags.
        check: The number under `"check"`.

    Returns:
        The object without the number, or `None` if the reply is anything else.
    """
    text = content.rpartition("</think>")[2] if isinstance(content, str) else ""
    found = _objects(text) if len(text) <= MAX_CONTENT else []
    if len(found) != 1 or type(found[0].get("check")) is not int or found[0]["check"] != check:
        return None
    return {name: value for name, value in found[0].items() if name != "check"}


def _objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects in a text, without those inside others; two at most, for more than one is too many."""
    decoder, found, at = json.JSONDecoder(), list[dict[str, Any]](), text.find("{")
    for _ in range(_MAX_STARTS):
        if at < 0 or len(found) > 1:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    return found


class JsonCache:
    """Keeps JSON values in a folder.

    A file appears complete or not at all, so a killed process leaves nothing that could be misread. A disk that is full
    or cannot be written costs requests and one warning, never a score.

    Args:
        folder: Is made with the first value.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser()
        self._warned = False

    def read(self, key: str) -> Any:
        """Return the value kept for a key, a hexadecimal digest, or `None` where there is none or it cannot be read."""
        try:
            return json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, key: str, value: Any) -> None:
        """Keep a value."""
        path = self._path(key)
        draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_text(json.dumps(value), encoding="utf-8")
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"cannot keep verdicts in {self.folder} ({error}); it goes on without the cache.",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"
