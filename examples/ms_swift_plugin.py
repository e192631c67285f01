"""ms-swift: register the environment, make the rows of the data set, and play one as the `gym_scheduler` does.

Needs `pip install ms-swift codev-env`. To train, name your data in `register` below, write `rows(range(n))` to a JSONL
file, and give this file to both commands, with the stop strings of the dialect. The environment ends after its own
`max_turns`:

    swift rollout --model Qwen/Qwen2.5-VL-7B-Instruct --external_plugins ms_swift_plugin.py \
        --vllm_use_async_engine true --multi_turn_scheduler gym_scheduler --gym_env codev
    swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --external_plugins ms_swift_plugin.py \
        --dataset rows.jsonl --use_vllm true --vllm_mode server --vllm_server_host 127.0.0.1 --use_gym_env true \
        --stop_words "</code>" "</answer>"
"""

from __future__ import annotations

import asyncio
from typing import Any

from swift.rollout.gym_env import envs

from codev_agents import answer_turn, crop_turn, expand_box
from codev_env.adapters.ms_swift import NAME, register, rows

register(data="synthetic", scenes="toy")


async def play(row: dict[str, Any]) -> float:
    """Look at the target of a row's task, then answer; returns the reward."""
    env = envs[NAME](row["env_config"])
    observation, _, system = await env.reset(None)
    conversation = [{"role": "system", "content": system}, {"role": "user", "content": observation}]
    base = env._player.base  # a model would read the conversation; this agent knows the task
    look = crop_turn(base.dialect, expand_box(base.task.targets[0], base.task.image.size, 0.25))
    total = 0.0
    for text in (look, answer_turn(base.dialect, base.task.answer, looked=True)):
        conversation.append({"role": "assistant", "content": text})
        observation, reward, done, info = await env.step(conversation)
        conversation.append({"role": "user", "content": observation})
        total += reward
    print(f"reward {total:.2f}", info["metrics"] if done else "")
    await env.close()
    return total


if __name__ == "__main__":
    asyncio.run(play(rows([3])[0]))
