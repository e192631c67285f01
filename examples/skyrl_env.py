"""SkyRL: register the environment, make the rows of the data set, and run one as the vision-language generator does.

Needs `pip install skyrl-gym codev-env`. To train, call `register` in the entry point and in `skyrl_entrypoint`'s Ray
task, write `rows(range(n))` to a Parquet file, and run SkyRL with `generator.vision_language_generator=true`,
`generator.batched=false`, `generator.sampling_params.stop='["</code>", "</answer>"]'` and `generator.max_turns=6`.
"""

from __future__ import annotations

import skyrl_gym

from codev_agents import answer_turn, crop_turn, expand_box
from codev_env.adapters.skyrl import register, rows


def main() -> None:
    """Look at the target of one task, then answer."""
    register(data="synthetic", scenes="toy")
    [row] = rows([3])
    with skyrl_gym.make(row["env_class"], extras={"extra_info": row["extra_info"], "max_turns": 6}) as env:
        env.init(row["prompt"])
        base = env._player.base  # a model would read the messages; this agent knows the task
        look = crop_turn(base.dialect, expand_box(base.task.targets[0], base.task.image.size, 0.25))
        answer = answer_turn(base.dialect, base.task.answer, looked=True)
        total = sum(env.step(text)["reward"] for text in (look, answer))
        print(f"reward {total:.2f}", env.get_metrics())


if __name__ == "__main__":
    main()
