"""An agent behind any server that speaks the OpenAI chat-completions API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from codev_agents.agent import AgentError, ContextFull
from codev_env.chat_model import (
    ChatReply,
    ReplyError,
    check_address,
    import_openai,
    list_models,
    missing_model,
    read_key,
    read_reply,
    served,
)
from codev_env.envs.image_tool import unwrap
from codev_env.errors import ConfigError, unstopped
from codev_env.messages import content_parts, restore_stop
from codev_env.types import Observation

NOT_FINISHED = ("content_filter", "error", "abort")
"""Reasons for which a server, not the model, ends a turn; one without text is a failure then."""
_FULL = re.compile(
    r"context[ _](?:length|size|window)|max(?:imum)?[ _]model[ _]len|prompt is too long"
    r"|range of input length|input token count .{0,20}exceeds",
    re.IGNORECASE,
)
"""Errors about a conversation that no longer fits, of OpenAI's API, vLLM, SGLang, llama.cpp, DashScope, Gemini and
others."""


class ChatAgent:
    """Plays with a chat model over the OpenAI API (a vLLM server, a hosted model, ...).

    Args:
        model: The model's name at the server.
        base_url: For example `"http://localhost:8000/v1"`; `None` for the client's default.
        api_key: `None` reads `OPENAI_API_KEY`; servers that need no key take any.
        temperature: Sampling temperature.
        max_tokens: Tokens per turn.
        timeout_s: Seconds to wait for one reply.
        retries: How often a failed request (429, 5xx, timeout, lost connection) is sent again, with back-off.
        seed: Sampling seed, for servers that know it; may be changed between two episodes.
        extra_body: Further fields of the request, for example `{"top_k": 20}`.

    Raises:
        ConfigError: If the `openai` package is missing or the server does not know the model.
        AgentError: If the server cannot be reached or refuses the request, after all retries, or its reply is no chat
            completion, or it ended the turn before the model wrote anything; `ContextFull` where the conversation has
            outgrown the model's context.

    A model that refuses `max_tokens` or stop strings, as reasoning models of OpenAI do, is asked without: by
    `max_completion_tokens`, and its turn ends at a stop string all the same.

    After an episode `meta` holds `{"model", "requests", "prompt_tokens", "completion_tokens", "truncated_turns"}`.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        temperature: float = 0.0,
        max_tokens: int = 2048,
        timeout_s: float = 120.0,
        retries: int = 3,
        seed: int | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        openai = import_openai("ChatAgent")
        if base_url is not None:
            check_address(base_url, "base_url of ChatAgent")
        self.name = f"chat:{model}"
        self.model, self.base_url = model, base_url
        self._openai = openai
        self._client: Any = openai.OpenAI(
            base_url=base_url,
            api_key=read_key(api_key, "OPENAI_API_KEY", f"the agent of {model!r}") or "EMPTY",
            timeout=timeout_s,
            max_retries=retries,
        )
        self._options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        self.seed = seed
        self._extra_body = dict(extra_body or {})
        self.meta: dict[str, Any] = {}
        self._messages: list[dict[str, Any]] = []
        self._stop: tuple[str, ...] = ()
        self._sends_stop = True
        self._same_message = False

    def check_model(self) -> None:
        """Ask the server whether it has the model, if it can list its models.

        Raises:
            ConfigError: It has not.
            AgentError: The server cannot be reached.
        """
        try:
            problem = missing_model(self._client, self.model)
        except self._openai.APIConnectionError as error:
            raise self._unreachable(error) from error
        if problem:
            raise ConfigError(f"{self._where()} has no model {self.model!r}: {problem}")

    def reset(self, env: gym.Env[Any, Any]) -> None:
        """Start a new conversation with the environment's system prompt."""
        base = unwrap(env)
        self._messages = [{"role": "system", "content": base.system_prompt}]
        self._stop = tuple(base.dialect.stop)
        self._same_message = base.dialect.observation_role == "assistant"
        self.meta = {
            "model": self.model,
            "requests": 0,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "truncated_turns": 0,
        }

    def act(self, observation: Observation) -> str:
        """Send the observation and return the model's turn, with the stop string the server cut off put back."""
        parts = content_parts(observation["text"], observation["images"])
        same = self._same_message and len(self._messages) > 1 and self._messages[-1]["role"] == "assistant"
        if same:
            self._messages[-1]["content"] += parts
        else:
            self._messages.append({"role": "user", "content": parts})
        reply = self._request(same)
        text = _up_to(self._stop, reply.text)
        if reply.finish_reason == "stop":
            text = restore_stop(text, self._stop, reply.stop_reason)
        written = [{"type": "text", "text": text}]
        if same:
            self._messages[-1]["content"] += written
        else:
            self._messages.append({"role": "assistant", "content": written if self._same_message else text})
        return text

    def _send(self, same_message: bool) -> Any:
        """Send the conversation, again if the model refuses a field without which it can be asked."""
        body = {"model": self.model, "messages": self._messages, **self._options}
        if self.seed is not None:
            body["seed"] = self.seed
        if self._stop and self._sends_stop:
            body["stop"] = list(self._stop)
        body |= self._extra_body
        if same_message:  # vLLM's names for going on with the last message
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        try:
            return self._client.post("/chat/completions", body=body, cast_to=object)
        except self._openai.BadRequestError as error:
            if error.code != "unsupported_parameter" or not self._goes_without(error.param):
                raise
        return self._send(same_message)

    def _goes_without(self, name: str | None) -> bool:
        """Leave a field out of requests from now on; false if it is needed, or was left out before."""
        if name == "stop" and self._sends_stop:
            self._sends_stop = False
            return True
        if name == "max_tokens" and name in self._options:
            self._options["max_completion_tokens"] = self._options.pop(name)
            return True
        return False

    def _request(self, same_message: bool) -> ChatReply:
        openai = self._openai
        try:
            reply = read_reply(self._send(same_message))
        except openai.NotFoundError as error:
            raise ConfigError(
                f"{self._where()} has no model {self.model!r}: {unstopped(error)}. {self._known_models()}"
            ) from error
        except openai.APIConnectionError as error:
            raise self._unreachable(error) from error
        except openai.OpenAIError as error:
            is_full = isinstance(error, openai.BadRequestError) and _FULL.search(str(error))
            raise (ContextFull if is_full else AgentError)(f"{self._where()} failed: {error}") from error
        except ReplyError as error:
            raise AgentError(f"{self._where()} {error}.") from None
        except ValueError as error:
            raise AgentError(f"{self._where()} returned no JSON: {error}.") from error
        self._count(reply)
        if reply.finish_reason in NOT_FINISHED and not reply.text.strip():
            raise AgentError(f"{self._where()} returned no text (finish_reason {reply.finish_reason!r}).")
        return reply

    def _known_models(self) -> str:
        try:
            known = list_models(self._client)
        except self._openai.APIConnectionError:
            known = None
        return "Check base_url and the name." if known is None else served(known)

    def _unreachable(self, error: Exception) -> AgentError:
        if isinstance(error, self._openai.APITimeoutError):
            return AgentError(f"{self._where()} did not answer in time: raise timeout_s or check its load.")
        return AgentError(f"cannot reach {self._where()} ({unstopped(error)}): is it running, is base_url right?")

    def _where(self) -> str:
        return f"the server at {self._client.base_url}"

    def _count(self, reply: ChatReply) -> None:
        self.meta["requests"] += 1
        self.meta["truncated_turns"] += reply.finish_reason == "length"
        self.meta["prompt_tokens"] += reply.prompt_tokens
        self.meta["completion_tokens"] += reply.completion_tokens


def _up_to(stop: tuple[str, ...], text: str) -> str:
    """Return the text up to its first stop string, with which it ends."""
    return text[: min((text.find(end) + len(end) for end in stop if end in text), default=len(text))]
