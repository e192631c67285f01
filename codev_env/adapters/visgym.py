"""VisGym: an environment for its interactor, which shows a model one image a step and takes one action as a tuple.

VisGym is a fork of Gymnasium 1.1.1 that takes the place of the `gymnasium` package; the environments of this package
run in it as they are. This class speaks its conventions: `get_prompt`, `render` as observation, `env_feedback`,
`get_init_state` and `solve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.envs.image_tool import RESET_OPTIONS
from codev_env.errors import ConfigError, unknown
from codev_env.geometry import grow_box, image_of, same_image
from codev_env.messages import restore_stop
from codev_env.python_text import literal
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Box, Code, Observation

if TYPE_CHECKING:
    VLMEnvMixin: Any
else:
    VLMEnvMixin = getattr(gym, "VLMEnvMixin", object)  # only the fork has it; its methods count, not the class

ID = "CodeV-VisGym-v0"
RUN, ANSWER = "run", "answer"

_EXAMPLE = (0, 0, 100, 100)
_RULES = f"""Available actions:
1. '{RUN}': run a Python program, which shows you the images that it makes, as the example does. Format: \
`('{RUN}', 'program')`, with \\n between its lines.
2. '{ANSWER}': give the final answer. Format: `('{ANSWER}', 'your answer')`

Please respond with exactly one action. For example:
- `%s`
- `('{ANSWER}', 'red')`"""


class CodeVVisGymEnv(gym.Env[np.ndarray, str], VLMEnvMixin):
    """An environment of this package behind VisGym's interface.

    An action is the text of a tuple: `('run', program)` or `('answer', text)`. Any other text is a turn in the
    environment's own dialect. Observations are images of shape (height, width, 3), uint8: those of the last turn that
    had any, side by side. Its text is in `info["env_feedback"]`, the outcome in `info["is_correct"]`.

    Args:
        codev: The id of an environment of this package.
        render_mode: `"rgb_array"`, the mode in which VisGym shows images.
        seed: Taken and not used; VisGym's runner gives the seed of an episode to the constructor, and to `reset` too.
        options: Arguments of the environment, as for `gymnasium.make`.

    Raises:
        ConfigError: Another render mode, or an argument that the environment refuses.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's name and type)

    def __init__(
        self,
        codev: str = "CodeV-VStar-v0",
        render_mode: str | None = "rgb_array",
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"render_mode is {render_mode!r}, but tasks here are images: use 'rgb_array'.")
        self.render_mode = "rgb_array"
        self.env_feedback: str | None = None
        self._player = EpisodeRunner(codev, **options)
        self._shown = np.zeros((1, 1, 3), np.uint8)
        self.action_space = self._player.base.action_space
        self.observation_space = gym.spaces.Box(0, 255, (1, 1, 3), np.uint8)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        init_state: Mapping[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode: of the task in `init_state` or `options`, by `index` or `task_id`, else of one drawn."""
        super().reset(seed=seed)
        chosen = {**(options or {}), **(init_state or {})}
        for name in chosen:
            if name not in RESET_OPTIONS:
                raise unknown("reset option", name, RESET_OPTIONS)
        observation = self._player.reset(seed=seed, **chosen)
        self._question = observation["text"].replace(IMAGE_PLACEHOLDER, "").strip()
        return self._observe(observation), self._info()

    def step(self, action: str) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one turn of the model; the reward is that of the turn."""
        player = self._player
        observation = player.step(self._turn(action))
        truncated = player.done and player.info["stop_reason"] != "answer"
        shown = self._observe(observation)
        return shown, player.turn_reward, player.done and not truncated, truncated, self._info()

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """Return what the model sees now."""
        if mode != "rgb_array":
            raise ConfigError(f"render mode {mode!r}: tasks here are images, not texts; use 'rgb_array'.")
        return self._shown

    def get_prompt(self, **_: Any) -> str:
        """Return the question, and which actions there are."""
        return f"{self._question}\n\n{_RULES % self._crop(_EXAMPLE)}"

    def get_init_state(self) -> dict[str, Any]:
        """Return what `reset(init_state=...)` needs to start the episode again."""
        return {"task_id": self._player.base.task.task_id}

    def solve(self, **_: Any) -> list[str]:
        """Return the actions of an expert: a crop of each target that the dialect can show, and the answer."""
        task, dialect = self._player.base.task, self._player.base.dialect
        crops = [
            self._crop(same_image(grow_box(box, task.images[image_of(box)].size, dialect.least_side), box))
            for box in task.targets
            if dialect.croppable is None or image_of(box) < dialect.croppable
        ]
        return [*crops, str((ANSWER, task.answer))]

    def close(self) -> None:
        """Give the environment back."""
        self._player.close()

    def _crop(self, box: Box) -> str:
        """The action that shows a box: a tuple, unless the dialect chooses the image outside of the program."""
        dialect = self._player.base.dialect
        code = dialect.crop(box, image_of(box))
        return dialect.write(code) if code.image_index else str((RUN, code.code))

    def _turn(self, action: str) -> str:
        """The turn that an action stands for, in the dialect of the environment."""
        dialect = self._player.base.dialect
        try:
            found = literal(action.strip())
            name, payload = found if isinstance(found, list | tuple) else ("", action)  # a set has no order
        except (ValueError, TypeError):
            name, payload = "", action
        if name == ANSWER:
            return dialect.write(Answer(str(payload)))
        try:
            return dialect.write(Code(str(payload))) if name == RUN else restore_stop(action, dialect.stop)
        except ConfigError:  # a program that the dialect has no words for is an action of no known form
            return action

    def _observe(self, observation: Observation) -> np.ndarray:
        images = observation["images"]
        if images:
            height = max(image.shape[0] for image in images)
            self._shown = np.hstack([np.pad(i, ((0, height - i.shape[0]), (0, 0), (0, 0))) for i in images])
            self.observation_space = gym.spaces.Box(0, 255, self._shown.shape, np.uint8)
        self.env_feedback = observation["text"].replace(IMAGE_PLACEHOLDER, "").strip()
        return self._shown

    def _info(self) -> dict[str, Any]:
        return {**self._player.info, "env_feedback": self.env_feedback}


gym.register(ID, CodeVVisGymEnv, order_enforce=False, disable_env_checker=True)
