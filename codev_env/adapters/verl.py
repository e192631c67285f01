"""verl (0.9): an agent loop that plays an environment, tokens in and tokens out, with the images that programs return.

verl finds it by a YAML file, `actor_rollout_ref.rollout.agent.agent_loop_config_path`:

    - name: codev
      _target_: codev_env.adapters.verl.CodeVAgentLoop
      env: CodeV-VStar-v0
      options: {data: synthetic, max_turns: 6}

and by the column `agent_name: codev` of the data set, whose `extra_info` has the `index` of the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.adapters.libraries import library_of
from codev_env.messages import image_blocks
from codev_env.types import Observation

with library_of("verl"):
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
    from verl.utils.profiler import simple_timer

NAME = "codev"
"""The name in the data set's `agent_name` column."""


@dataclass
class _Tokens:
    """A trajectory as tokens.

    Attributes:
        ids: All of them, the prompt's too.
        mask: Per token after the prompt: 1 where the model sampled it.
        logprobs: Per token after the prompt, 0 where it was not sampled; `None` if the server returns none.
        messages: The conversation so far.
        images: All images so far.
        metrics: Seconds of sampling and of programs, and how often the server preempted a request, as verl logs them.
    """

    ids: list[int]
    messages: list[dict[str, Any]]
    images: list[Any]
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None
    metrics: dict[str, Any] = field(default_factory=dict)


@register(NAME)
class CodeVAgentLoop(AgentLoopBase):
    """Plays one episode; its reward is the trajectory's, its terms are among the extra fields.

    Args:
        args: Arguments that verl passes.
        env: The environment's id.
        options: The environment's arguments.
        kwargs: Arguments that verl passes.
    """

    def __init__(
        self, *args: Any, env: str = "CodeV-VStar-v0", options: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._env, self._options = env, dict(options or {})

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Play the task that the row names, until it ends or the response reaches its length limit.

        A failure of the sandbox or the judge raises.
        """
        row = {**(kwargs.get("extra_info") or {}), **{k: kwargs[k] for k in ("index", "task_id") if k in kwargs}}
        task = {"task_id": str(row["task_id"])} if row.get("task_id") else {"index": int(row["index"])}
        player = await asyncio.to_thread(EpisodeRunner, self._env, **self._options)
        try:
            return await self._play(player, task, sampling_params)
        finally:
            player.close()

    async def _play(self, player: EpisodeRunner, task: Mapping[str, Any], params: dict[str, Any]) -> AgentLoopOutput:
        longest = self.rollout_config.response_length
        params = {**params, "stop": list(player.base.dialect.stop)}
        tokens = await self._start(player.base.system_prompt, await asyncio.to_thread(player.reset, **task))
        request = uuid4().hex
        while True:
            with simple_timer("generate_sequences", tokens.metrics):
                text = await self._sample(tokens, params, request)
            if len(tokens.mask) >= longest:
                player.cut_off("length")
                break
            with simple_timer("tool_calls", tokens.metrics):
                observation = await asyncio.to_thread(player.step, text)
            if player.done or not await self._show(tokens, text, observation, longest):
                player.cut_off("length")
                break
        start = len(tokens.ids) - len(tokens.mask)
        return AgentLoopOutput(
            prompt_ids=tokens.ids[:start],
            response_ids=tokens.ids[start:][:longest],
            response_mask=tokens.mask[:longest],
            response_logprobs=None if tokens.logprobs is None else tokens.logprobs[:longest],
            multi_modal_data={"images": tokens.images},
            reward_score=player.reward,
            num_turns=2 * player.turns,
            metrics=AgentLoopMetrics(**tokens.metrics),
            extra_fields={"reward_extra_info": player.summary()},
        )

    async def _start(self, system: str, observation: Observation) -> _Tokens:
        content = image_blocks(**observation)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}, {"role": "user", "content": content}]
        images = [block["image"] for block in content if block["type"] == "image"]
        self._assert_mm_supported(bool(images))
        return _Tokens(await self.ct_build_initial_tokens(messages, images=images), messages, images)

    async def _sample(self, tokens: _Tokens, params: dict[str, Any], request: str) -> str:
        """Let the model write a turn; returns its text."""
        output = await self.server_manager.generate(
            request_id=request, prompt_ids=tokens.ids, sampling_params=params, image_data=tokens.images
        )
        if output.num_preempted is not None:
            tokens.metrics["num_preempted"] = tokens.metrics.get("num_preempted", 0) + output.num_preempted
        if output.log_probs and tokens.logprobs is None:
            tokens.logprobs = []
        merged, tokens.mask, tokens.logprobs = await self.ct_merge_assistant_token(
            tokens.ids, output.token_ids, tokens.mask, tokens.logprobs, assistant_logprobs=output.log_probs or None
        )
        tokens.ids = merged.token_ids
        return self.tokenizer.decode(output.token_ids, skip_special_tokens=True)

    async def _show(self, tokens: _Tokens, text: str, observation: Observation, longest: int) -> bool:
        """Append an observation; `False`, with nothing changed, if it does not fit."""
        content = image_blocks(**observation)
        messages = [*tokens.messages, {"role": "assistant", "content": text}]
        shown = [*messages, {"role": "user", "content": content}]
        ids, mask, logprobs = list(tokens.ids), list(tokens.mask), tokens.logprobs
        if ids[-1] != self.tokenizer.eos_token_id:  # a stop string ended the turn, not the model
            ids, mask = [*ids, self.tokenizer.eos_token_id], [*mask, 0]
            logprobs = None if logprobs is None else [*logprobs, 0.0]
        merged, mask, logprobs = await self.ct_merge_context_msg(messages, shown, ids, mask, logprobs)
        if len(mask) >= longest:
            return False
        tokens.ids, tokens.mask, tokens.logprobs, tokens.messages = merged.token_ids, mask, logprobs, shown
        tokens.images = tokens.images + [block["image"] for block in content if block["type"] == "image"]
        return True


def rows(indices: Iterable[int], data_source: str = NAME) -> list[dict[str, Any]]:
    """Return rows for verl's Parquet data set, one per task; the agent loop makes the prompt itself.

    Args:
        indices: Which tasks.
        data_source: The name under which verl logs the rewards.
    """
    prompt = [{"role": "user", "content": "The environment asks."}]
    return [
        {"data_source": data_source, "agent_name": NAME, "prompt": prompt, "extra_info": {"index": index}}
        for index in indices
    ]
