"""Episodes as TensorDicts: `python examples/torchrl_rollout.py`.

A scripted policy crops the middle of the image, then answers.
"""

from __future__ import annotations

from typing import Any

from tensordict import NonTensorData
from tensordict.nn import TensorDictModule
from torchrl.envs import GymEnv

from codev_env.adapters.torchrl import InfoReader


def write_turn(text: str, images: tuple[Any, ...]) -> NonTensorData:
    """Crop at the question, then answer; a real policy reads the images, arrays of (height, width, 3)."""
    asked = "Question:" in text
    return NonTensorData("<code>show(image.crop((224, 224, 448, 448)))</code>" if asked else "<answer>3</answer>")


def main() -> None:
    """Collect two episodes and print their content."""
    env = GymEnv("codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy", max_turns=3)
    env.set_info_dict_reader(InfoReader(["outcome", "tool"]))
    env.set_seed(0)
    policy = TensorDictModule(write_turn, in_keys=["text", "images"], out_keys=["action"])
    for episode in range(2):
        rollout = env.rollout(max_steps=3, policy=policy)
        shown = [[image.shape for image in step["next", "images"]] for step in rollout]
        print(f"episode {episode}: {len(rollout)} turns, images shown {shown}")
        print(f"  rewards {rollout['next', 'reward'].squeeze(-1).tolist()}")
        print(f"  tool reward {rollout['next', 'reward_terms', 'tool'].squeeze(-1).tolist()}")
        print(f"  is_correct {rollout['next', 'is_correct'].squeeze(-1).tolist()}")
    env.close()


if __name__ == "__main__":
    main()
