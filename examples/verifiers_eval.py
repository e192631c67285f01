"""verifiers: evaluate a model behind any OpenAI-compatible server: `python examples/verifiers_eval.py URL MODEL [N]`.

Needs `pip install verifiers codev-env`. The same on verifiers' command line:

    vf-eval codev-verifiers --env.taskset.options '{"data": "synthetic"}' -m MODEL --client.base-url URL -n 8 --no-push
"""

from __future__ import annotations

import asyncio
import sys

import verifiers.v1 as vf

from codev_env.adapters.verifiers import load_environment


async def evaluate(url: str, model: str, n: int = 8) -> list[vf.Episode]:
    """Run the first tasks and print the reward of each, or why it has none."""
    env = load_environment("CodeV-VStar-v0", data="synthetic", scenes="toy", max_turns=3)
    context = vf.ModelContext(model=model, client=vf.EvalClientConfig(base_url=url), sampling=vf.SamplingConfig())
    async with env.serving():
        episodes = await asyncio.gather(*(env.run_episode(task, context) for task in env.taskset.take(n)))
    for episode in episodes:
        if not episode.ok:  # the server, the sandbox or the judge failed, which is no reward of 0
            print("failed:", *(error.message for error in episode.errors))
            continue
        for trace in episode.traces:
            terms = {name: reward.score for name, reward in trace.rewards.items()}
            print(trace.info, f"reward {trace.reward:.2f}", terms)
    return episodes


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    asyncio.run(evaluate(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 8))
