"""The options of a farm, and where it is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from codev_env.errors import ConfigError, unknown

FORMS = '"ray" (the cluster of this machine), "ray://HOST:PORT" (Ray\'s client port), or a mapping with "address"'


@dataclasses.dataclass(frozen=True)
class FarmOptions:
    """Options of a farm.

    Attributes:
        address: `"ray"`: the cluster that runs on this machine or that `RAY_ADDRESS` names, else a new one on it alone;
            `"ray://HOST:PORT"`: a cluster through Ray's client server.
        share: Processes that share the nodes, each with a farm of its own: a farm uses that part of a node's cores and
            of its `images_mb`. A node with fewer cores than processes is used by as many processes as it has cores.
        part: Number of this process among them, from 0.
        in_flight: Programs under way on a node, per core of it; others wait in the process that asks.
        beat_s: Seconds between two signs of life of a node without results.
        patience_s: Seconds without a sign of life after which a node counts as lost.
        start_s: Longest start of a node's worker process, in seconds.
        wait_s: Longest time, in seconds, that an episode waits for a node while there is none.
        images_mb: MiB of images that a node keeps for later episodes.
        spare_memory: Share of a node's memory that new episodes leave free. Where less is free, an episode that has run
            no program yet goes to another node, or its first program waits for `wait_s` seconds at most while others
            are open there. 0 never waits.
        allow_weaker: Take nodes whose kernel lacks required layers of the sandbox.
    """

    address: str = "ray"
    share: int = 1
    part: int = 0
    in_flight: int = 4
    beat_s: float = 1.0
    patience_s: float = 30.0
    start_s: float = 180.0
    wait_s: float = 300.0
    images_mb: int = 4096
    spare_memory: float = 0.1
    allow_weaker: bool = False

    def __post_init__(self) -> None:
        if self.address != "ray" and not self.address.startswith("ray://"):
            raise ConfigError(f"farm {self.address!r} is no farm. Give {FORMS}.")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "address":
                continue
            if field.name == "allow_weaker":
                fits, needed = isinstance(value, bool), "True or False"
            elif field.name == "spare_memory":
                fits, needed = type(value) in (int, float) and 0 <= value < 1, "a number from 0 to below 1"
            elif field.name == "part":
                fits, needed = type(value) is int and value >= 0, "a whole number of at least 0"
            elif field.type == "int":
                fits, needed = type(value) is int and value >= 1, "a whole number of at least 1"
            else:
                fits, needed = type(value) in (int, float) and 0 < value < 1e6, "a number above 0"
            if not fits:
                raise ConfigError(f"farm option {field.name} is {value!r}; it must be {needed}.")
        if self.patience_s <= 2 * self.beat_s:
            raise ConfigError(
                f"farm option patience_s is {self.patience_s:g}; it must be more than twice beat_s, {self.beat_s:g}."
            )


def make_options(farm: str | Mapping[str, Any] | FarmOptions, **more: Any) -> FarmOptions:
    """Make options from an argument `farm`: an address, a mapping of options, or its JSON.

    Args:
        farm: The argument.
        **more: Options that the argument may override.

    Raises:
        ConfigError: An option is unknown or cannot be used.
    """
    if isinstance(farm, FarmOptions):
        return farm
    if isinstance(farm, str) and farm.startswith("{"):
        try:
            farm = json.loads(farm)
        except ValueError as error:
            raise ConfigError(f"farm {farm!r} is not JSON: {error}.") from error
    if isinstance(farm, str):
        return FarmOptions(**{**more, "address": farm})
    if not isinstance(farm, Mapping):
        raise ConfigError(f"farm is a {type(farm).__name__}; give {FORMS}.")
    known = [field.name for field in dataclasses.fields(FarmOptions)]
    for name in farm:
        if name not in known:
            raise unknown("farm option", name, known)
    if not isinstance(farm.get("address", ""), str):
        raise ConfigError(f"farm option address is {farm['address']!r}; give {FORMS}.")
    return FarmOptions(**{**more, **farm})
