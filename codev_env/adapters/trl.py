"""TRL: environments for `GRPOTrainer(environment_factory=...)`, whose model calls `run_python` as a tool.

TRL (1.16) makes one environment per rollout, shows the model every public method as a tool, appends what `reset` and
the tools return to the conversation, images included, and asks the reward functions at the end. The answer is in the
model's last message, which only a reward function gets to see: pass `episode_reward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium as gym

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.errors import ConfigError
from codev_env.messages import image_blocks

SYSTEM_PROMPT = """\
You answer questions about an image. To look closer, call run_python with a program that saves an image and prints its \
file name: you are shown that image. When you know the answer, write it as <answer>your answer</answer> and call no \
tool."""


class ToolEnvironment:
    """One rollout at a time; its only tool is `run_python`."""

    def __init__(self, player: EpisodeRunner) -> None:
        self._player = player
        self._failure: Exception | None = None

    def reset(self, index: int | None = None, task_id: str | None = None, **row: Any) -> list[dict[str, Any]]:
        """Start an episode of the task that the row of the data set names, else of one that is drawn.

        Returns:
            Content blocks: the question, with the images as `PIL.Image` at their places in it.
        """
        self._failure = None
        return image_blocks(**self._player.reset(index=index, task_id=task_id))

    def run_python(self, code: str) -> list[dict[str, Any]]:
        """Run a Python program and see the images it saves. Pillow and NumPy are there.

        Args:
            code: The program. It opens an image by its given name, saves what is to be seen, and prints the file name.
        """
        if self._player.done:
            return [{"type": "text", "text": "The episode is over: no turns are left."}]
        try:
            return image_blocks(**self._player.step(self._player.code_turn(code)))
        except Exception as error:
            self._failure = error  # TRL shows it to the model and continues
            raise

    def _conclude(self, text: str) -> EpisodeRunner:
        """End the episode with the model's last message; a failure of the sandbox or the judge is raised here."""
        if self._failure is not None:
            raise self._failure
        self._player.conclude(text)
        return self._player


def environment_factory(
    env: str | Callable[..., gym.Env[Any, Any]] = "CodeV-VStar-v0", **options: Any
) -> Callable[[], ToolEnvironment]:
    """Return the `environment_factory` of `GRPOTrainer`.

    Args:
        env: Which environment, see `EpisodeRunner`.
        options: Its arguments, for example `data="synthetic"`. `max_turns` counts the answer: set the trainer's
            `max_tool_calling_iterations` to one less, so that the model is asked for an answer in its last turn.

    Raises:
        ConfigError: From the function that is returned: the environment's dialect cannot write any program.
    """

    def make() -> ToolEnvironment:
        player = EpisodeRunner(env, **options)
        try:
            player.code_turn("pass")
        except ConfigError as error:
            player.close()
            raise ConfigError(
                f"dialect {player.base.dialect.name!r} cannot run the programs of run_python ({error}). Give another."
            ) from error
        return ToolEnvironment(player)

    return make


def prompt_rows(indices: Iterable[int], system: str = SYSTEM_PROMPT) -> list[dict[str, Any]]:
    """Return rows for `datasets.Dataset.from_list`, one per task; the environment adds question and image.

    Args:
        indices: Which tasks.
        system: The system message.
    """
    messages = [{"role": "system", "content": [{"type": "text", "text": system}]}, {"role": "user", "content": []}]
    return [{"prompt": messages, "index": index} for index in indices]


def episode_reward(
    completions: Sequence[Sequence[dict[str, Any]]],
    environments: Sequence[ToolEnvironment],
    log_metric: Callable[[str, float], None] | None = None,
    **row: Any,
) -> list[float]:
    """End each episode with the answer in the model's last message, and return the rewards of the episodes.

    Logs the means of the reward terms, of right answers and of faithful looks as `codev/NAME`. Without an `<answer>`
    the episode ends unanswered.

    Args:
        completions: Per rollout the messages that the model and the tools wrote.
        environments: Per rollout its environment.
        log_metric: TRL's function that logs a number.
        row: Other arguments that TRL passes.
    """
    players = [
        environment._conclude(_last_text(messages))
        for messages, environment in zip(completions, environments, strict=True)
    ]
    if log_metric is not None:
        summaries = [player.summary() for player in players]
        for name in summaries[0]:
            log_metric(f"codev/{name}", sum(summary[name] for summary in summaries) / len(summaries))
    return [player.reward for player in players]


def _last_text(messages: Sequence[dict[str, Any]]) -> str:
    """Return the text of the last message, if the model wrote it."""
    last = messages[-1] if messages else {}
    content = last.get("content") or "" if last.get("role") == "assistant" else ""
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)
