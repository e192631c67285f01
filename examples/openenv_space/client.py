"""Use a served environment: `python client.py [http://localhost:8000]`; a Space has the URL of its app."""

from __future__ import annotations

import sys

from codev_env.adapters.openenv import CodeVClient, TurnAction

LOOK = '<code>\n```python\nimage.crop((0, 0, 300, 300)).save("crop.png")\nprint("crop.png")\n```\n</code>'


def main(url: str = "http://localhost:8000") -> None:
    """Look at a corner, then guess; a model would get `observation.content()`."""
    with CodeVClient(base_url=url).sync() as env:
        first = env.reset(index=0).observation
        print(first.text)
        looked = env.step(TurnAction(text=LOOK))
        print(f"{len(looked.observation.images)} image, reward {looked.reward:.2f}")
        answered = env.step(TurnAction(text="<answer>1</answer>"))
        print(f"done: {answered.done}, reward {answered.reward:.2f}, {env.state().reward_terms}")


if __name__ == "__main__":
    main(*sys.argv[1:])
