"""The trainers that `trainer.py` compares: each takes some steps on a case and returns their cost.

Both get the same saved policy, fp32, the same AdamW, as many trajectories per forward pass, and use `trainer_play`.
TRL gets the environment through `environment_factory`: its tool method runs the next turn in the real environment and
returns the images as content blocks, and `get_reward` answers and returns the reward of the episode.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
from trainer_play import ENV, Case, ScriptedPlay, Watch, banned

from codev_agents.engines.policy import Policy
from codev_env.adapters.episodes import EpisodeRunner
from codev_env.messages import image_blocks
from codev_train.run.options import EnvOptions, OptimizerOptions, TrainOptions

RATE = 1e-5


def make_play(case: Case, played: Counter[int]) -> Callable[..., ScriptedPlay]:
    """Return the factory of a run's environments; `played` counts their tasks."""
    from codev_env.envs.codev_env import CodeVBenchEnv

    return lambda **options: ScriptedPlay(CodeVBenchEnv(bench="vstar", **options), case, played)


def run_ours(case: Case, model: str, steps: int, checkpointing: bool, packed: bool) -> dict[str, Any]:
    """Take steps with `codev_train.tapo`."""
    from accelerate import Accelerator

    from codev_agents.engines import make_engine
    from codev_train.learn.trained import distribute
    from codev_train.run.monitor import Monitor
    from codev_train.tapo import tapo

    policy = Policy.load(model)
    played: Counter[int] = Counter()
    gym.register("Scripted-v0", make_play(case, played))
    env = EnvOptions(**{**vars(ENV), "id": "Scripted-v0"})
    options = TrainOptions(
        env=env, steps=steps, prompts=case.prompts, group=case.group, max_tokens=case.tokens,
        micro_batch=case.micro_batch, token_budget=case.budget if packed else 0, save_every=steps,
        gradient_checkpointing=checkpointing, optimizer=OptimizerOptions(lr=RATE),
    )  # fmt: skip
    policy.processor.banned_ids = banned(policy, ("</code>", "</answer>"))
    if checkpointing:
        policy.checkpoint_gradients()
    engine = make_engine("hf", policy.model, policy.processor, case.rows, 0, options.vllm, options.max_length)
    watch = Watch(policy.model)
    engine.generate = watch.timed(engine.generate)  # type: ignore[method-assign]
    sleep = engine.sleep

    def end_rollouts() -> None:
        sleep()
        watch.enter("update")

    engine.sleep = end_rollouts  # type: ignore[method-assign]

    class Steps(Monitor):
        def update(self, values: Any, step: int) -> None:
            watch.add("sampled", values["response_tokens"] * case.rows)
            watch.add("tokens", values["trajectory_tokens"] * case.rows)
            watch.add("loss", values["update/loss"])
            watch.end_step()

    with tempfile.TemporaryDirectory() as folder:
        accelerator = Accelerator()
        trained = distribute(options, policy, accelerator)
        tapo(options, trained, engine, Path(folder), Steps(Path(folder), active=False), accelerator)
    return watch.close() | {"tasks": list(played)}


def run_trl(case: Case, model: str, steps: int, checkpointing: bool, tasks: list[int]) -> dict[str, Any]:
    """Take steps with TRL's `GRPOTrainer` on the same tasks."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    policy = Policy.load(model)
    watch = Watch(policy.model)
    script = Script(case)
    environment, system = look_environment(case)
    prompt = [{"role": "system", "content": [{"type": "text", "text": system}]}, {"role": "user", "content": []}]
    settings = GRPOConfig(
        tempfile.mkdtemp(), max_steps=steps, learning_rate=RATE, lr_scheduler_type="constant", adam_beta2=0.99,
        optim="adamw_torch", per_device_train_batch_size=case.micro_batch,
        gradient_accumulation_steps=case.rows // case.micro_batch, num_generations=case.group,
        max_completion_length=16384, shuffle_dataset=False, bf16=False, use_cpu=True, save_strategy="no",
        report_to="none", logging_steps=1, disable_tqdm=True, gradient_checkpointing=checkpointing,
        generation_kwargs={
            "max_new_tokens": case.tokens, "suppress_tokens": banned(policy, ("</code>", "</answer>"))
        },
    )  # fmt: skip

    class Watched(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            script.restart()
            made = super()._generate_and_score_completions(inputs)
            mask = made["completion_mask"]
            watch.add("sampled", int((mask * made["tool_mask"]).sum()))
            watch.add("tokens", int(mask.sum() + made["prompt_mask"].sum()))
            watch.enter("update")
            return made

        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            return watch.timed(super()._generate_single_turn)(*args, **kwargs)

    class Steps(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if "loss" in (logs or {}):
                watch.add("loss", logs["loss"])
                watch.end_step()

    trainer = Watched(
        policy.model,
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": prompt, "index": task} for task in tasks]),
        processing_class=tool_processor(policy, script),
        environment_factory=environment,
        callbacks=[Steps()],
    )
    trainer.train()
    return watch.close()


class Script:
    """Decides for each completion, in the order in which TRL reads them, whether it calls the tool."""

    def __init__(self, case: Case) -> None:
        self.turns = [case.turns_of(row % case.group) for row in range(case.rows)]
        self._calls: Iterator[bool] = iter(())

    def restart(self) -> None:
        """Begin the next step: all running rollouts are read turn by turn."""
        rounds = range(1, max(self.turns) + 1)
        self._calls = (turns > turn for turn in rounds for turns in self.turns if turns >= turn)

    def read(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Stand in for the tokenizer's `parse_response`."""
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        if next(self._calls):
            message["tool_calls"] = [{"type": "function", "function": {"name": "look", "arguments": {}}}]
        return message


def look_environment(case: Case) -> tuple[Callable[[], Any], str]:
    """Return a factory for TRL, and the system prompt of its environments."""
    make = make_play(case, Counter())
    options = {"scenes": {"preset": ENV.scenes, **ENV.scene}, "data": ENV.data, "max_turns": ENV.max_turns}

    class Look:
        def __init__(self) -> None:
            self._player = EpisodeRunner(make, split="train", **options)

        def reset(self, index: int, **row: Any) -> list[dict[str, Any]]:
            return image_blocks(**self._player.reset(index=index))

        def look(self) -> list[dict[str, Any]]:
            """Look closer."""
            return image_blocks(**self._player.step(""))

        def get_reward(self) -> float:
            self._player.step("")
            return self._player.reward

    first = Look()
    made = iter([first])
    return lambda: next(made, None) or Look(), first._player.base.system_prompt


def tool_processor(policy: Policy, script: Script) -> Any:
    """Make the processor for TRL, whose replies the script reads."""
    from codev_agents.engines.toy_processor import toy_processor

    tokenizer = policy.processor.tokenizer
    tokenizer.padding_side = "left"
    tokenizer.response_template = {}
    tokenizer.parse_response = script.read
    return toy_processor(policy)
