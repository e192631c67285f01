"""VLMEvalKit and lmms-eval: an agent that looks with programs, as a model of their multi-step modes.

Both hand over images and a prompt, and take a text. In between an episode is played: the agent's turns, programs in the
sandbox, the images that they return. The harness scores the answer; nothing is judged or rewarded here.

Interfaces: `open-compass/VLMEvalKit`, `vlmeval/vlm/base.py` (`generate(message, dataset)`), and `EvolvingLMMs-Lab/
lmms-eval`, `lmms_eval/api/model.py` (`generate_until(requests)`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
from PIL import Image

from codev_env.adapters.libraries import library_of
from codev_env.envs.image_tool import ImageToolEnv
from codev_env.errors import ContextFull, TaskError
from codev_env.tasks.readers.cells import image_sources
from codev_env.tasks.readers.images import decode
from codev_env.types import Observation, Source, Task


class Player(Protocol):
    """An agent, such as `codev_agents.ChatAgent`."""

    def reset(self, env: gym.Env[Any, Any]) -> None:
        """Begin an episode."""
        ...

    def act(self, observation: Observation) -> str:
        """Return the text of a turn."""
        ...


class _OneTask:
    """A task set of the question at hand."""

    name = "harness"
    source: Source = "real"

    def __init__(self, task: Task) -> None:
        self.task = task

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Task:
        if index != 0:
            raise IndexError(index)
        return self.task

    def index_of(self, task_id: str) -> int:
        if task_id != self.task.task_id:
            raise TaskError(f"no task {task_id!r} here.")
        return 0


class ToolModel:
    """Answers prompts about images by playing episodes.

    Args:
        agent: Makes an agent; each thread has one of its own.
        dialect: How the model talks.
        max_turns: Turns of an episode.
        options: More arguments of `ImageToolEnv`, such as `limits`.
    """

    def __init__(
        self, agent: Callable[[], Player], *, dialect: str = "codev", max_turns: int = 6, **options: Any
    ) -> None:
        self._make, self._agents = agent, threading.local()
        self._options = {"dialect": dialect, "max_turns": max_turns, "judge": "none", "reward": "outcome", **options}

    def answer(self, prompt: str, images: Sequence[Image.Image | str]) -> str:
        """Return the answer to a prompt; the last text where turns, or the model's context, run out before it.

        Args:
            prompt: The question, with its options.
            images: Images, or paths of image files.

        Raises:
            TaskError: There is no image, or one that cannot be read.
            ContextFull: The prompt alone does not fit into the model's context.
        """
        if not images:
            raise TaskError("a prompt without an image: programs have nothing to look at.")
        if not hasattr(self._agents, "agent"):
            self._agents.agent = self._make()
        player: Player = self._agents.agent
        env = ImageToolEnv(_OneTask(Task("harness-0", tuple(map(_image, images)), prompt, answer="")), **self._options)
        try:
            observation, _ = env.reset(options={"index": 0})
            player.reset(env)
            text, done = "", False
            while not done:
                try:
                    text = player.act(observation)
                except ContextFull:
                    if not env.episode.steps:  # the prompt alone is too long
                        raise
                    break
                observation, _, terminated, truncated, _ = env.step(text)
                done = terminated or truncated
            return text if env.episode.answer is None else env.episode.answer
        finally:
            env.close()


class VLMEvalKitModel(ToolModel):
    """A model of VLMEvalKit: put `partial(VLMEvalKitModel, agent)` into `vlmeval.config.supported_VLM`."""

    INTERLEAVE = True
    is_api = True
    allowed_types = ("text", "image")

    def set_dump_image(self, dump_image_func: Callable[..., Any]) -> None:
        """Take the data set's function that writes images, which is not needed: messages have their paths."""

    def use_custom_prompt(self, dataset: str) -> bool:
        """Return `False`: the data set's own prompts are used."""
        return False

    def generate(self, message: Sequence[Mapping[str, str]] | str, dataset: str | None = None) -> str:
        """Answer a message: entries of `type` `"text"` or `"image"` (`value` is a path), in order."""
        parts = [{"type": "text", "value": message}] if isinstance(message, str) else message
        for part in parts:
            if part["type"] not in self.allowed_types:
                raise TaskError(f"a message has a part of type {part['type']!r}; text and images are known.")
        texts = [part["value"] for part in parts if part["type"] == "text"]
        return self.answer("\n".join(texts), [part["value"] for part in parts if part["type"] == "image"])


def lmms_model(agent: Callable[[], Player], **options: Any) -> Any:
    """Return a model of lmms-eval, for `lmms_eval.evaluator.evaluate(lm=…)`; its class derives from the library's.

    Args:
        agent: As for `ToolModel`.
        options: As for `ToolModel`.
    """
    with library_of("harness"):
        from lmms_eval.api.model import lmms

    class CodeVModel(lmms):
        """Plays an episode for each request."""

        def __init__(self) -> None:
            super().__init__()
            self.tool_model = ToolModel(agent, **options)

        def generate_until(self, requests: Sequence[Any]) -> list[str]:
            found = []
            for request in requests:
                context, _, visuals, doc_id, task, split = request.args
                images = [image for image in visuals(self.task_dict[task][split][doc_id]) if image is not None]
                found.append(self.tool_model.answer(context, images))
            return found

        def loglikelihood(self, requests: Sequence[Any]) -> Any:
            raise NotImplementedError("an agent has no likelihood of a text: use tasks that generate.")

        def generate_until_multi_round(self, requests: Sequence[Any]) -> Any:
            raise NotImplementedError("rounds are the agent's own: use tasks with one round.")

    return CodeVModel()


def _image(source: Image.Image | str) -> Image.Image:
    """Decode an image as tasks over data are: transparency, grey of 16 bits and orientation count for objects, too."""
    if isinstance(source, Image.Image):
        return decode(image_sources(source, "an image", Path())[0], "an image").image
    return decode(Path(source), str(source)).image
