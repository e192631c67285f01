"""Gymnasium environments in which a vision-language model thinks with images, rewarded for what its tool calls show.

Importing the package registers its environments; everything else is imported when it is used:

    gymnasium.make("codev_env:CodeV-VStar-v0")
"""

from codev_env.registration import ENV_IDS, register_envs

__version__ = "0.2.0"
__all__ = ["ENV_IDS", "register_envs"]

register_envs()
