"""verifiers (0.4, `verifiers.v1`): a task set, the environment that plays it, and a harness that runs no process.

The environment is the user of the conversation: each reply of the model is a turn, whose output, images included, is
the next user message. Programs run in codev-env's own sandbox and nowhere else, so the harness asks the model from this
process instead of starting a program in a runtime. The rewards of an episode go to the trace, one per term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.adapters.libraries import library_of
from codev_env.messages import content_parts, restore_stop

with library_of("verifiers"):
    import verifiers.v1 as vf
    from openai import AsyncOpenAI
    from verifiers.v1.dialects.chat import message_to_wire

TASKSET = "codev-verifiers"
"""The id of the task set: `vf-eval codev-verifiers` on the command line of verifiers."""


class CodeVTasksetConfig(vf.TasksetConfig):
    """Which tasks."""

    env: str = "CodeV-VStar-v0"
    """The environment's id."""
    options: dict[str, Any] = {}
    """Arguments of the environment, for example `{"data": "synthetic"}`."""


class CodeVData(vf.TaskData):
    """One task as it goes over the wire: where it is found, not its image or its answer."""

    env: str
    options: dict[str, Any]
    index: int
    stop: list[str]
    """Strings at which a turn ends."""


class CodeVTask(vf.Task[CodeVData, vf.State, vf.TaskConfig]):
    """A task; its rewards come from the environment."""


class CodeVTaskset(vf.Taskset[CodeVTask, CodeVTasksetConfig]):
    """All tasks of an environment, in their order."""

    def load(self) -> Iterator[CodeVTask]:
        """Yield the tasks without decoding an image."""
        config = self.config
        player = EpisodeRunner(config.env, **config.options)
        base, count = player.base, len(player.base.tasks)
        player.close()
        for index in range(count):
            data = CodeVData(
                name=f"{base.tasks.name}#{index}",
                system_prompt=base.system_prompt,
                env=config.env,
                options=config.options,
                index=index,
                stop=list(base.dialect.stop),
            )
            yield CodeVTask(data, config.task)


class CodeVHarnessConfig(vf.HarnessConfig):
    """How the model is asked."""

    id: str = TASKSET


class CodeVHarness(vf.Harness[CodeVHarnessConfig]):
    """Asks the model for one turn, in this process; it runs nothing and starts nothing."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        """Send the conversation to the interception server, which records the reply."""
        system, prompt = self.resolve_prompt(data)
        messages = [message_to_wire(message) for message in prompt or []]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages, stop=data.stop or None)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class CodeVEnvConfig(vf.EnvConfig):
    """The agent that plays."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The model; nothing runs in its runtime."""


class CodeVEnv(vf.Env[CodeVEnvConfig]):
    """Plays one episode: the environment answers each turn of the model."""

    async def run(self, task: CodeVTask, agents: Any) -> None:
        """Play to the end, and record the reward by term.

        A failure of the sandbox or the judge raises: the episode fails, and counts as no score.
        """
        data = task.data
        player = await asyncio.to_thread(EpisodeRunner, data.env, **data.options)
        try:
            observation = await asyncio.to_thread(player.reset, index=data.index)
            async with agents.player.interaction(task) as conversation:
                while not player.done:
                    parts = content_parts(**observation)
                    segment = await conversation.turn([{"role": "user", "content": parts}])
                    if segment.terminated:
                        break
                    text = segment.last_reply
                    if not conversation.trace.is_truncated:  # by a limit of tokens; else a stop string ended it
                        text = restore_stop(text, data.stop)
                    observation = await asyncio.to_thread(player.step, text)
            if conversation.trace.ok:
                player.cut_off("no_answer")
                _record(conversation.trace, player)
        finally:
            player.close()


def load_environment(env: str = "CodeV-VStar-v0", **options: Any) -> CodeVEnv:
    """Return an environment of verifiers.

    Args:
        env: The id of an environment of codev-env.
        options: Its arguments, for example `data="synthetic"`.
    """
    return CodeVEnv(CodeVEnvConfig(taskset={"id": TASKSET, "env": env, "options": options}))


def _record(trace: Any, player: EpisodeRunner) -> None:
    for name, value in player.reward_terms.items():
        trace.record_reward(name, value)  # weighted already: they add up to the reward
    summary = player.summary()
    trace.record_metrics({name: summary[name] for name in ("correct", "faithful", "turns", "tool_calls")})
    trace.info |= {"task_id": player.info["task_id"], "stop_reason": player.info["stop_reason"]}
