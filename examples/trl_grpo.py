"""TRL: train with `GRPOTrainer`: `python examples/trl_grpo.py [MODEL]`.

Needs `pip install trl "codev-env[train]"`. MODEL is a vision-language model that calls tools, such as
`Qwen/Qwen3-VL-4B-Instruct`; without one, a toy with random weights takes two steps on the CPU.
"""

from __future__ import annotations

import sys
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from codev_env.adapters.trl import environment_factory, episode_reward, prompt_rows


def train(model: Any, processor: Any = None, **settings: Any) -> GRPOTrainer:
    """Train on generated scenes; `settings` are those of `GRPOConfig`."""
    given = {"max_tool_calling_iterations": 2, "max_completion_length": 8192, "num_generations": 4, "logging_steps": 1}
    trainer = GRPOTrainer(
        model,
        reward_funcs=episode_reward,
        args=GRPOConfig(**{**given, **settings}),
        train_dataset=Dataset.from_list(prompt_rows(range(64))),
        processing_class=processor,
        environment_factory=environment_factory("CodeV-VStar-v0", data="synthetic", scenes="toy", max_turns=3),
    )
    trainer.train()
    return trainer


def train_toy(output_dir: str) -> GRPOTrainer:
    """Take two steps with a toy; its samples are interpreted as a place to look, then as an answer."""
    from codev_agents.engines.options import ToyModelOptions
    from codev_agents.engines.toy_processor import toy_processor
    from codev_train.run.options import EnvOptions, SFTOptions
    from codev_train.sft import cold_start as sft

    toy = ToyModelOptions(hidden=64, layers=2, heads=2, view=84, min_view=84)
    policy = sft.toy_policy(SFTOptions(env=EnvOptions(scenes="toy"), toy=toy))
    policy.model.config.text_config.max_position_embeddings = 32768
    processor = toy_processor(policy)
    tokenizer = processor.tokenizer
    start = tokenizer.convert_tokens_to_ids("<|vision_start|>")
    tokenizer.padding_side, tokenizer.response_template = "left", {}
    tokenizer.parse_response = lambda ids, prefix, tools=None: read_toy(ids, looked=list(prefix).count(start) > 1)
    sizes = {"max_steps": 2, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "learning_rate": 1e-4}
    quiet = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, "bf16": False}
    sampling = {"max_new_tokens": 8, "suppress_tokens": sorted({*policy.processor.banned_ids, policy.processor.eos_id})}
    return train(policy.model, processor, output_dir=output_dir, generation_kwargs=sampling, **sizes, **quiet)


def read_toy(ids: list[int], looked: bool) -> dict[str, Any]:
    """Interpret sampled tokens as a turn: first a call that crops somewhere, then an answer."""
    if looked:
        return {"role": "assistant", "content": f"<answer>{sum(ids) % 10}</answer>"}
    x, y = 50 * (ids[0] % 9), 50 * (ids[-1] % 9)
    code = f'Image.open("input.png").crop(({x}, {y}, {x + 270}, {y + 270})).save("crop.png")\nprint("crop.png")'
    call = {"type": "function", "function": {"name": "run_python", "arguments": {"code": code}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


if __name__ == "__main__":
    trained = train(sys.argv[1], output_dir="runs/trl") if len(sys.argv) > 1 else train_toy("runs/trl-toy")
    for line in trained.state.log_history:
        print({name: value for name, value in line.items() if name in ("loss", "reward") or name.startswith("codev/")})
