"""An agent loop of your own: `python examples/openai_loop.py URL MODEL [N]`, for any server with the OpenAI chat API.

For example `vllm serve Qwen/Qwen2.5-VL-7B-Instruct`, then `python examples/openai_loop.py http://localhost:8000/v1
Qwen/Qwen2.5-VL-7B-Instruct`. Needs `pip install openai codev-env`.
"""

from __future__ import annotations

import sys

import gymnasium as gym
from openai import OpenAI

from codev_env.messages import content_parts, restore_stop


def play(env: gym.Env, client: OpenAI, model: str, index: int) -> float:
    """Run one episode and return its reward."""
    base = env.unwrapped
    observation, _ = env.reset(options={"index": index})
    messages = [{"role": "system", "content": base.system_prompt}]
    total, done = 0.0, False
    while not done:
        messages.append({"role": "user", "content": content_parts(**observation)})
        reply = client.chat.completions.create(model=model, messages=messages, stop=list(base.dialect.stop))
        text = reply.choices[0].message.content or ""
        if reply.choices[0].finish_reason == "stop":  # not a limit of tokens
            text = restore_stop(text, base.dialect.stop)
        messages.append({"role": "assistant", "content": text})
        observation, reward, terminated, truncated, info = env.step(text)
        total, done = total + reward, terminated or truncated
    print(f"{info['task_id']}: reward {total:.2f}, correct {info['is_correct']}, faithful {info['is_faithful']}")
    return total


def main(url: str, model: str, n: int = 8) -> list[float]:
    """Run the first tasks one after the other."""
    env = gym.make("codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy", max_turns=3)
    client = OpenAI(base_url=url, api_key="EMPTY")
    return [play(env, client, model, index) for index in range(n)]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
