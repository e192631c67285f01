"""NeMo-Gym (0.4): an environment as its resources server, and the agent that shows the model the images.

The server answers the calls of NeMo-Gym's `GymnasiumServer`, `/reset` and `/step`, and `/close` for an episode that
ends early. NeMo-Gym's own observations are texts, and its agent for such servers passes on nothing else. Here an
observation is the content of a user message of the Responses API, images included, and so the agent is one of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.adapters.libraries import library_of
from codev_env.errors import ConfigError, TaskError
from codev_env.messages import content_parts, restore_stop
from codev_env.types import Observation

with library_of("nemo_gym"):
    from fastapi import FastAPI, HTTPException, Request
    from nemo_gym.base_resources_server import BaseResourcesServerConfig
    from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponse
    from nemo_gym.server_utils import SESSION_ID_KEY, get_response_json, raise_for_status
    from resources_servers.gymnasium import (
        EnvResetRequest,
        EnvResetResponse,
        EnvStepRequest,
        EnvStepResponse,
        GymnasiumServer,
        extract_text,
    )
    from responses_api_agents.gymnasium_agent.app import GymnasiumAgent, GymnasiumAgentRunRequest, GymnasiumRunResponse

AGENT = "codev_agent"
"""The agent's name in the configuration of `examples/nemo_gym`, and in the rows."""

Content = list[dict[str, Any]]
"""The content of a message of the Responses API."""


class CodeVServerConfig(BaseResourcesServerConfig):
    """Which environment."""

    env: str = "CodeV-VStar-v0"
    """The environment's id."""
    options: dict[str, Any] = {}
    """Arguments of the environment, for example `{"data": "synthetic"}`."""
    idle_s: float = 3600.0
    """Seconds without a call after which the episode of a session is dropped, as soon as another one starts."""


class ResetResponse(EnvResetResponse):
    """The first observation; `info` is the Gymnasium info."""

    observation: Content | None = None


class StepResponse(EnvStepResponse):
    """The text and images since the last turn; at the end of an episode `info["summary"]` has its sums."""

    observation: Content | None = None


@dataclass
class _Session:
    """One episode. The lock is held while it is played: a call that is sent again waits for the first one."""

    runner: EpisodeRunner
    used: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    over: bool = False
    """Whether its environment was given back, and may be another session's by now."""

    def free(self) -> None:
        """Give the environment back; the lock is held."""
        self.over = True
        self.runner.close()


class CodeVServer(GymnasiumServer):
    """Runs the episodes, one per session. A cookie identifies a session."""

    config: CodeVServerConfig

    def setup_webserver(self) -> FastAPI:
        """Return the application.

        Raises:
            ConfigError: If the environment cannot be made, or the sessions would be spread over several processes.
        """
        workers = self.config.num_workers or 1
        if workers > 1:
            raise ConfigError(f"num_workers is {workers}; an episode lives in one process, so it must be 1.")
        EpisodeRunner(self.config.env, **self.config.options).close()
        app = super().setup_webserver()
        app.post("/close")(self._close_endpoint)
        return app

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[Content, dict[str, Any]]:
        """Start an episode: of the task that `index` or `task_id` of the row names, else of one that `seed` draws."""
        await self._drop_idle()
        runner = await asyncio.to_thread(EpisodeRunner, self.config.env, **self.config.options)
        named = {name: metadata[name] for name in ("index", "task_id", "seed") if metadata.get(name) is not None}
        try:
            observation = await asyncio.to_thread(runner.reset, **named)
        except (ConfigError, TaskError, TypeError, ValueError, gym.error.Error) as error:
            runner.close()
            raise HTTPException(422, f"no episode of {named}: {error}") from error
        except Exception as error:
            runner.close()
            raise HTTPException(500, f"{type(error).__name__}: {error}") from error
        replaced = self.session_state.pop(session_id, None)
        self.session_state[session_id] = _Session(runner)
        await _close(replaced)
        return _content(observation), {**runner.info, "supports_explicit_close": True}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None
    ) -> tuple[Content, float, bool, bool, dict[str, Any]]:
        """Take one turn of the model; a failure of the sandbox or the judge ends the episode without a score."""
        session = self.session_state.get(session_id)
        if session is None:
            raise HTTPException(409, "no episode runs in this session: call /reset first, and send its cookies along.")
        async with session.lock:
            runner, session.used = session.runner, time.monotonic()
            if session.over:
                raise HTTPException(409, "the episode of this session ended while this call waited for the last one.")
            try:
                observation = await asyncio.to_thread(runner.step, _turn(action, runner))
            except Exception as error:
                self._forget(session_id, session)
                raise HTTPException(500, f"{type(error).__name__}: {error}") from error
            session.used = time.monotonic()
            if runner.done:
                self._forget(session_id, session)
            answered = runner.info["stop_reason"] == "answer"
            return _content(observation), runner.turn_reward, answered, runner.done and not answered, _info(runner)

    async def close_session(self, session_id: str | None) -> None:
        """Give the environment of a session back."""
        await _close(self.session_state.pop(session_id, None))

    async def _reset_endpoint(self, body: EnvResetRequest, request: Request) -> ResetResponse:
        observation, info = await self.reset(body.model_extra or {}, request.session.get(SESSION_ID_KEY))
        return ResetResponse(observation=observation, info=info)

    async def _step_endpoint(self, body: EnvStepRequest, request: Request) -> StepResponse:
        found = await self.step(body.response, body.model_extra or {}, request.session.get(SESSION_ID_KEY))
        return StepResponse(
            **dict(zip(("observation", "reward", "terminated", "truncated", "info"), found, strict=True))
        )

    async def _close_endpoint(self, request: Request) -> StepResponse:
        """End the episode of a session that nobody goes on with; the reward is the rest of the trajectory's."""
        session = self.session_state.pop(request.session.get(SESSION_ID_KEY), None)
        if session is None:
            return StepResponse(truncated=True)
        async with session.lock:
            if session.over:
                return StepResponse(truncated=True)
            runner = session.runner
            before = runner.reward
            runner.cut_off("no_answer")
            session.free()
            return StepResponse(reward=runner.reward - before, truncated=True, info=_info(runner))

    def _forget(self, session_id: str | None, session: _Session) -> None:
        """Free a session whose lock is held; the client may have begun another one by now."""
        session.free()
        if self.session_state.get(session_id) is session:
            del self.session_state[session_id]

    async def _drop_idle(self) -> None:
        oldest = time.monotonic() - self.config.idle_s
        for name, session in list(self.session_state.items()):
            if session.used < oldest and not session.lock.locked():
                await self.close_session(name)


class CodeVAgent(GymnasiumAgent):
    """Plays an episode of `CodeVServer` with a model; `max_steps` are the most turns."""

    async def run(self, request: Request, body: GymnasiumAgentRunRequest) -> GymnasiumRunResponse:
        """Play the episode of a row: the row's messages come first, then the environment's."""
        found, cookies = await self._environment("/reset", body.model_dump(), request.cookies)
        try:
            return await self._play(body, found, cookies)
        except BaseException:
            with contextlib.suppress(Exception):
                await self._environment("/close", {}, cookies)
            raise

    async def _play(self, body: GymnasiumAgentRunRequest, step: dict[str, Any], cookies: Any) -> GymnasiumRunResponse:
        params, row, model_cookies = body.responses_create_params, body.model_dump(), None
        given = [_user(params.input)] if isinstance(params.input, str) else list(params.input)
        prompt = [*given, _user(step["observation"])]
        said: list[Any] = []
        reward, usage = 0.0, None
        for _ in range(self.config.max_steps):
            asked = params.model_copy(update={"input": prompt + said})
            found, model_cookies = await self._ask(self.config.model_server.name, "/v1/responses", asked, model_cookies)
            reply = NeMoGymResponse.model_validate(found)
            said, usage = said + reply.output, _sum(usage, reply.usage)
            if not turn_text(reply):  # what the model server returns where the conversation no longer fits
                step = {"truncated": False}
                break
            step, cookies = await self._environment("/step", row | {"response": reply.model_dump()}, cookies)
            reward += step["reward"]
            if step["terminated"] or step["truncated"]:
                break
            said.append(_user(step["observation"]))
        if not (step.get("terminated") or step["truncated"]):
            step, cookies = await self._environment("/close", {}, cookies)
            reward += step["reward"]
        reply.output, reply.usage = said, usage
        ended = {name: step[name] for name in ("terminated", "truncated", "info")}
        summary = {**step["info"].get("summary", {}), "reward": reward}
        params = params.model_copy(update={"input": prompt})
        return GymnasiumRunResponse(responses_create_params=params, response=reply, **ended, **summary)

    async def _environment(self, path: str, body: dict[str, Any], cookies: Any) -> tuple[dict[str, Any], Any]:
        return await self._ask(self.config.resources_server.name, path, body, cookies)

    async def _ask(self, server: str, path: str, body: Any, cookies: Any) -> tuple[dict[str, Any], Any]:
        response = await self.server_client.post(server_name=server, url_path=path, json=body, cookies=cookies)
        await raise_for_status(response)
        return await get_response_json(response), response.cookies


def rows(
    indices: Iterable[int], agent: str = AGENT, env: str = "CodeV-VStar-v0", **options: Any
) -> list[dict[str, Any]]:
    """Return rows for a JSONL file of NeMo-Gym, one per task: the system prompt, the stop strings and the task's index.

    Args:
        indices: Which tasks.
        agent: The agent's name in the configuration.
        env: The environment's id.
        options: Its arguments. Images and answers stay with the server, which must have the same arguments.
    """
    runner = EpisodeRunner(env, **options)
    extra = {"stop": list(runner.base.dialect.stop), "include_stop_str_in_output": True}
    params = {
        "input": [{"role": "system", "content": runner.base.system_prompt}],
        "metadata": {"extra_body": json.dumps(extra)},  # what NeMo-Gym's vLLM server adds to its requests
    }
    runner.close()
    named = {"type": "responses_api_agents", "name": agent}
    return [{"responses_create_params": params, "agent_ref": named, "index": index} for index in indices]


def turn_text(response: NeMoGymResponse) -> str:
    """Return the model's text of a turn, with the reasoning that the model server took out of it in its tags."""
    thoughts = [part.text for item in response.output if item.type == "reasoning" for part in item.summary]
    return "".join(f"<think>{thought}</think>" for thought in thoughts) + (extract_text(response) or "")


def _turn(response: NeMoGymResponse, runner: EpisodeRunner) -> str:
    """Return the text of a turn with its stop string, unless a limit of tokens ended it."""
    text = turn_text(response)
    return text if response.incomplete_details else restore_stop(text, runner.base.dialect.stop)


def _content(observation: Observation) -> Content:
    return [
        {"type": "input_text", "text": part["text"]}
        if part["type"] == "text"
        else {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}
        for part in content_parts(**observation)
    ]


def _info(runner: EpisodeRunner) -> dict[str, Any]:
    return {**runner.info, **({"summary": runner.summary()} if runner.done else {})}


async def _close(session: _Session | None) -> None:
    if session is not None:
        async with session.lock:
            session.free()


def _user(content: str | Content) -> Any:
    return NeMoGymEasyInputMessage(role="user", content=content)


def _sum(total: Any, usage: Any) -> Any:
    """Add up the tokens of two replies; what a server does not report counts as 0."""
    if total is None or usage is None:
        return total or usage
    names = ("input_tokens", "output_tokens", "total_tokens")
    return usage.model_copy(update={name: getattr(total, name) + getattr(usage, name) for name in names})
