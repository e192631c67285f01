"""The gallery of the site: for each environment a task, the crops of the scripted expert, and the reward they earned.

The episodes are played while the site is built, on generated scenes.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import gymnasium as gym
from PIL import Image, ImageDraw

from codev_agents import Oracle, run_episode
from codev_env.benches import BENCHES, environments
from codev_env.trajectory import Trajectory

FOLDER = "gallery"
SCENE_WIDTH, CROP_WIDTH = 720, 240
"""Greatest widths of the images, in pixels."""
TARGET, CROP = "#00a884", "#f2711c"


@dataclass(frozen=True)
class Entry:
    """An environment in the gallery.

    Attributes:
        env_id: Its id.
        title: Its benchmark.
        about: The episode in Markdown.
        images: Path within the site and JPEG file of each image.
    """

    env_id: str
    title: str
    about: str
    images: tuple[tuple[str, bytes], ...]


def entries() -> list[Entry]:
    """Play one episode in each environment."""
    return [
        _entry(env_id, BENCHES[arguments["bench"]].title, number)
        for number, (env_id, arguments) in enumerate(environments().items())
    ]


def gallery_page(found: list[Entry]) -> str:
    """Return the gallery as Markdown."""
    lines = [
        "# Gallery",
        "",
        "One task of each environment, from generated scenes. Green: the evidence. Orange: what the scripted expert",
        "cropped. Below each task are the crops, and the reward that they and the answer earned.",
        "",
        '<div class="gallery" markdown>',
    ]
    for entry in found:
        link = f"[{entry.env_id}](reference/environments/{entry.env_id}.md)"
        lines += ['<div class="entry" markdown>', "", f"### {link} {{: .plain}}", "", entry.title, "", entry.about]
        lines += ["", "</div>"]
    return "\n".join([*lines, "</div>", ""])


def entry_on_page(entry: Entry, root: str) -> str:
    """Return an entry's Markdown for a page from which `root` leads to the site's first folder."""
    return entry.about.replace(f"]({FOLDER}/", f"]({root}{FOLDER}/")


def _entry(env_id: str, title: str, index: int) -> Entry:
    env = gym.make(f"codev_env:{env_id}", data="synthetic")
    try:
        played = run_episode(env, Oracle(crops=2), options={"index": index})
    finally:
        env.close()
    crops = [image for turn in played.turns for image in turn.images]
    files = [(f"{FOLDER}/{env_id}.jpg", _jpeg(_scene(played)))]
    files += [(f"{FOLDER}/{env_id}-{number}.jpg", _jpeg(_crop(crop))) for number, crop in enumerate(crops, 1)]
    scene, *rest = (path for path, _ in files)
    terms = ", ".join(f"`{name}` {value:+.3g}" for name, value in played.reward_terms.items() if value)
    lines = [
        f"![A task of {env_id}, with the evidence and the expert's crops]({scene})",
        "",
        f"**{_escape(played.question)}** {_escape(played.final_answer or '')}",
        "",
        " ".join(f"![Crop {number}]({path}){{: .crop}}" for number, path in enumerate(rest, 1)),
        "",
        f"Reward **{played.total_reward:.3g}**: {terms}",
    ]
    return Entry(env_id, title, "\n".join(lines), tuple(files))


def _scene(played: Trajectory) -> Image.Image:
    """The first image of a task, scaled down, with the target boxes and the crop boxes."""
    image = played.images[0].convert("RGB")
    scale = min(1.0, SCENE_WIDTH / image.width)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(image)
    crops = [box for turn in played.turns for box in turn.crop_boxes if box is not None]
    for boxes, color, space in ((played.targets, TARGET, 2), (crops, CROP, 6)):
        for box in boxes:
            x1, y1, x2, y2 = (side * scale for side in box)
            draw.rectangle((x1 - space, y1 - space, x2 + space, y2 + space), outline=color, width=3)
    return image


def _crop(crop: Image.Image) -> Image.Image:
    """A crop at a size at which people see it."""
    scale = min(CROP_WIDTH / crop.width, CROP_WIDTH * 0.75 / crop.height)
    size = max(1, round(crop.width * scale)), max(1, round(crop.height * scale))
    return crop.convert("RGB").resize(size, Image.Resampling.BICUBIC)


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "jpeg", quality=84)
    return buffer.getvalue()


def _escape(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]#|!$" else letter for letter in plain)
