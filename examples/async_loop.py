"""Runs many episodes in one event loop: `python examples/async_loop.py URL MODEL [N] [AT_ONCE]`.

Each episode waits only for its own replies, programs run in threads, and the server gets many requests to batch. Needs
`pip install openai codev-env`.
"""

from __future__ import annotations

import asyncio
import sys

from openai import AsyncOpenAI

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.messages import content_parts, restore_stop


async def run_one(client: AsyncOpenAI, model: str, index: int) -> dict[str, float]:
    """Run one episode and return its numbers."""
    player = EpisodeRunner("CodeV-VStar-v0", data="synthetic", scenes="toy", max_turns=3)
    stop = list(player.base.dialect.stop)
    messages = [{"role": "system", "content": player.base.system_prompt}]
    try:
        observation = await asyncio.to_thread(player.reset, index=index)
        while not player.done:
            messages.append({"role": "user", "content": content_parts(**observation)})
            reply = await client.chat.completions.create(model=model, messages=messages, stop=stop)
            text = reply.choices[0].message.content or ""
            if reply.choices[0].finish_reason == "stop":  # not a limit of tokens
                text = restore_stop(text, stop)
            messages.append({"role": "assistant", "content": text})
            observation = await asyncio.to_thread(player.step, text)
    finally:
        player.close()
    return player.summary()


async def main(url: str, model: str, n: int = 32, at_once: int = 16) -> list[dict[str, float]]:
    """Run the first tasks, at most `at_once` at the same time, and print the means."""
    client, slots = AsyncOpenAI(base_url=url, api_key="EMPTY"), asyncio.Semaphore(at_once)

    async def limited(index: int) -> dict[str, float]:
        async with slots:
            return await run_one(client, model, index)

    found = await asyncio.gather(*map(limited, range(n)))
    print({name: round(sum(row[name] for row in found) / n, 3) for name in found[0]})
    return found


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
