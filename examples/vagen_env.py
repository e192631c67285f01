"""VAGEN: the environment's entry in its registry, and one episode run as its agent loop does.

Add to `vagen/configs/env_registry.yaml`:

    CodeV: codev_env.adapters.vagen.CodeVImageEnv

and to the data set's environments, with `concat_multi_turn` on:

    - {name: CodeV, n_envs: 1024, seed: [0, 1023], max_turns: 6, config: {env: CodeV-VStar-v0, data: synthetic}}
"""

from __future__ import annotations

import asyncio

from codev_env.adapters.vagen import CodeVImageEnv

LOOK = '<code>\n```python\nimage.crop((0, 0, 300, 300)).save("crop.png")\nprint("crop.png")\n```\n</code>'


async def play() -> None:
    """Look at a corner, then guess."""
    env = CodeVImageEnv({"env": "CodeV-VStar-v0", "data": "synthetic", "scenes": "toy"})
    observation, _ = await env.reset(seed=0)
    print(observation["obs_str"])
    for text in (LOOK, "<answer>1</answer>"):
        observation, reward, done, info = await env.step(text)
        print(f"reward {reward:.2f}, done {done}, success {info['success']}, {observation.get('multi_modal_input')}")
    await env.close()


def main() -> None:
    """Run one episode."""
    asyncio.run(play())


if __name__ == "__main__":
    main()
