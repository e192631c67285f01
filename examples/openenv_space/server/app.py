"""Serve the environment that the variables `CODEV_SPACE_*` describe; README.md lists them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import uvicorn

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.adapters.openenv import make_app
from codev_env.errors import CodevError
from codev_env.sandbox import Sandbox

PREFIX = "CODEV_SPACE_"
DEFAULTS = {"ENV": "CodeV-VStar-v0", "DATA": "synthetic", "SCENES": "", "MAX_TURNS": "6", "SESSIONS": "8"}


def read_options(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `make_app`; raises `ValueError` for a variable that cannot be used."""
    given = {name: value.strip() for name, value in variables.items() if name.startswith(PREFIX) and value.strip()}
    known = {PREFIX + name: value for name, value in DEFAULTS.items()}
    for name in sorted(given.keys() - known.keys()):
        raise ValueError(f"there is no variable {name}. Known: {', '.join(known)}.")
    options: dict[str, Any] = {}
    for name, value in (known | given).items():
        option = name.removeprefix(PREFIX).lower()
        if option in ("max_turns", "sessions"):
            if not (value.isdecimal() and int(value)):
                raise ValueError(f"{name}={value!r}: a whole number of at least 1 is needed.")
            options[option] = int(value)
        elif value:
            options[option] = value
    return options


def check(options: dict[str, Any]) -> None:
    """Make the environment once, and look at the sandbox: strangers send programs, so its kernel filter must work."""
    described = {name: value for name, value in options.items() if name != "sessions"}
    try:
        EpisodeRunner(**described).close()
    except (CodevError, gym.error.Error, ImportError, TypeError, ValueError) as error:
        shown = ", ".join(f"{PREFIX}{name.upper()}={value!r}" for name, value in described.items())
        raise ValueError(f"no environment can be made of {shown}: {error}") from error
    with Sandbox() as box:
        seccomp = box.describe().get("seccomp", "unknown")
    if seccomp != "on":
        raise ValueError(f"the sandbox lacks seccomp here ({seccomp}). Run the container where it is allowed.")


def start() -> Any:
    """Return the application; ends the process with one line where it cannot work."""
    try:
        options = read_options(os.environ)
        check(options)
    except (ValueError, CodevError) as error:
        raise SystemExit(f"the Space cannot start: {error}") from None
    return make_app(**options)


app = start()


def main(host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve on this machine only; the Dockerfile names the address that a container needs."""
    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
