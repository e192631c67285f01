"""Lets torchrl hold observations and actions of these environments: importing this module registers their spaces.

    import codev_env.adapters.torchrl
    from torchrl.envs import GymEnv

    env = GymEnv("codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy")

`Images` and `Unicode` become `NonTensor` specs: a TensorDict carries the tuple of arrays and the text as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from codev_env.adapters.libraries import library_of
from codev_env.spaces import Images, Unicode

with library_of("torchrl"):
    import torch
    from tensordict import TensorDict
    from torchrl.data import Binary, Composite, NonTensor, Unbounded
    from torchrl.envs.gym_like import BaseInfoDictReader
    from torchrl.envs.libs.gym import register_gym_spec_conversion


@register_gym_spec_conversion(Images)
def images_spec(spec: Images, device: Any = None, **options: Any) -> NonTensor:
    """Return the spec of a tuple of images; torchrl calls it with options that do not matter here."""
    return NonTensor((), device=device, example_data=(np.zeros((1, 1, 3), np.uint8),))


@register_gym_spec_conversion(Unicode)
def text_spec(spec: Unicode, device: Any = None, **options: Any) -> NonTensor:
    """Return the spec of a text; torchrl calls it with options that do not matter here."""
    return NonTensor((), device=device, example_data="")


class InfoReader(BaseInfoDictReader):
    """Puts `is_correct`, `is_faithful` and terms of the reward into the TensorDict, for `env.set_info_dict_reader`.

    Args:
        terms: Names of reward terms; each becomes `("reward_terms", name)`.
    """

    def __init__(self, terms: Sequence[str] = ()) -> None:
        self.terms = tuple(terms)

    def __call__(self, info_dict: dict[str, Any], tensordict: TensorDict) -> TensorDict:
        """Read the info of a reset or a step."""
        for name in ("is_correct", "is_faithful"):
            tensordict.set(name, torch.tensor([info_dict[name]]))
        for name in self.terms:
            value = torch.tensor([info_dict["reward_terms"][name]], dtype=torch.float32)
            tensordict.set(("reward_terms", name), value)
        return tensordict

    @property
    def info_spec(self) -> Composite:
        """The specs of the entries that it adds to the observation."""
        spec = Composite({name: Binary(shape=(1,), dtype=torch.bool) for name in ("is_correct", "is_faithful")})
        if self.terms:
            spec["reward_terms"] = Composite({name: Unbounded((1,), dtype=torch.float32) for name in self.terms})
        return spec
