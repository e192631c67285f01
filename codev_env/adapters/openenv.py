"""OpenEnv: an environment behind HTTP and WebSocket, and the client that plays it.

The server runs the programs and holds the answers; the client needs no sandbox and no data. An observation's images are
PNG data URLs, as chat models take them.
"""

from __future__ import annotations

from typing import Any

from codev_env import types
from codev_env.adapters.episodes import EpisodeRunner
from codev_env.adapters.libraries import library_of
from codev_env.messages import content_parts, from_data_url, png_data_url

with library_of("openenv"):
    from openenv.core import EnvClient
    from openenv.core.client_types import StepResult
    from openenv.core.env_server import Action, Environment, Observation, State, create_app
    from pydantic import Field


class TurnAction(Action):
    """One turn of the model."""

    text: str = Field(description="The model's raw text, in the grammar that the system prompt asks for.")


class TurnObservation(Observation):
    """The text and images since the last turn; `reward` and `done` are the step's, `metadata` is its Gymnasium info."""

    text: str = Field(default="", description="The user message; each <image> in it is the place of one of the images.")
    images: list[str] = Field(default_factory=list, description="PNG data URLs, in order.")
    system_prompt: str = Field(default="", description="The system message, at the start of an episode.")

    def content(self) -> list[dict[str, Any]]:
        """Return the observation as the content of a user message of the OpenAI API."""
        return content_parts(self.text, [from_data_url(url) for url in self.images])


class EpisodeState(State):
    """The episode so far."""

    task_id: str = ""
    reward: float = 0.0
    reward_terms: dict[str, float] = Field(default_factory=dict)


class CodeVEnvironment(Environment[TurnAction, TurnObservation, EpisodeState]):
    """The server's side of one session."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env: str = "CodeV-VStar-v0", **options: Any) -> None:
        super().__init__()
        self._player = EpisodeRunner(env, **options)
        self._episode_id: str | None = None

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        index: int | None = None,
        task_id: str | None = None,
        **kwargs: Any,
    ) -> TurnObservation:
        """Start an episode: of a task by `index` or `task_id`, else of one that the seed draws."""
        self._episode_id = episode_id
        found = self._player.reset(index=index, task_id=task_id, seed=seed)
        return self._observation(found, None, self._player.base.system_prompt)

    def step(self, action: TurnAction, timeout_s: float | None = None, **kwargs: Any) -> TurnObservation:
        """Take one turn; how long a program may run is the environment's limit, not the request's."""
        found = self._player.step(action.text)
        return self._observation(found, self._player.turn_reward)

    @property
    def state(self) -> EpisodeState:
        """The episode so far."""
        player = self._player
        return EpisodeState(
            episode_id=self._episode_id,
            step_count=player.turns,
            task_id=str(player.info.get("task_id", "")),
            reward=player.reward,
            reward_terms=player.reward_terms,
        )

    def render_web(self, observation: dict[str, Any]) -> str:
        """Draw the images of an observation in OpenEnv's web interface, which shows the other fields as text."""
        return "".join(f'<img src="{url}" style="max-width: 100%">' for url in observation["images"])

    def close(self) -> None:
        """Give the environment back."""
        self._player.close()

    def _observation(self, found: types.Observation, reward: float | None, system_prompt: str = "") -> TurnObservation:
        return TurnObservation(
            text=found["text"],
            images=[png_data_url(image) for image in found["images"]],
            system_prompt=system_prompt,
            reward=reward,
            done=self._player.done,
            metadata=dict(self._player.info),
        )


class CodeVClient(EnvClient[TurnAction, TurnObservation, EpisodeState]):
    """Plays a served environment: `async with CodeVClient(base_url=...)`, or `with CodeVClient(...).sync()`."""

    def _step_payload(self, action: TurnAction) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[TurnObservation]:
        result = {"reward": payload.get("reward"), "done": payload.get("done", False)}
        return StepResult(observation=TurnObservation(**{**payload["observation"], **result}), **result)

    def _parse_state(self, payload: dict[str, Any]) -> EpisodeState:
        return EpisodeState(**payload)


def make_app(env: str = "CodeV-VStar-v0", sessions: int = 8, **options: Any) -> Any:
    """Return the FastAPI application that serves an environment, for `uvicorn`.

    Args:
        env: The environment's id.
        sessions: Most clients at the same time.
        options: Arguments of the environment, for example `data="synthetic"`.
    """
    return create_app(
        lambda: CodeVEnvironment(env, **options),
        TurnAction,
        TurnObservation,
        env_name="codev_env",
        max_concurrent_envs=sessions,
    )
