"""Measures what a reader of the down-scaled view knows of the answers: `python benchmarks/glance.py`.

The readers get the place of the target, which a policy has to find first. `1-NN` is the nearest neighbour over the
view's pixels around the target; `CNN` is trained on these, `view` on the whole view with the target's place marked, and
`crop` on the pixels of the expert's crop: the target's box on a grid of 56 pixels. Of the CNNs of a view, the best
epoch on the test tasks counts, which favours them; of the CNN of the crop, the last one.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from PIL import Image
from torch import nn

from codev_agents import expand_box
from codev_env.scoring.metrics import wilson
from codev_env.tasks import SCENES, SceneTaskSet
from codev_env.tasks.generators.generator import SceneOptions
from codev_env.types import Task

SNAP = 56
"""Grid of the expert's crops, in pixels."""
SIDE = 28
"""Side of the readers' input around a target, in pixels."""


def inputs(task: Task, view_pixels: int) -> tuple[np.ndarray, ...]:
    """Return what the readers see: the view around the target, the whole view, and the expert's crop."""
    image, box = task.image, task.targets[0]
    view = image.resize((view_pixels, view_pixels), Image.Resampling.BICUBIC)
    scale = view_pixels / image.width
    # As large a part as a crop shows, moved into the image at its edges.
    left, top = (min(max((box[i] + box[i + 2] - SNAP) / 2, 0), image.width - SNAP) for i in (0, 1))
    part = tuple(scale * v for v in (left, top, left + SNAP, top + SNAP))
    around = view.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=part)
    crop = image.crop(expand_box(box, image.size, snap=SNAP)).resize((SNAP, SNAP), Image.Resampling.BICUBIC)
    whole = np.dstack([np.asarray(view), np.zeros((view_pixels, view_pixels), np.uint8)])
    x1, y1, x2, y2 = (int(scale * v) for v in box)
    whole[y1 : y2 + 1, x1 : x2 + 1, 3] = 255
    return np.asarray(around), whole, np.asarray(crop)


def data(options: SceneOptions, split: str, count: int, view_pixels: int) -> tuple[list[torch.Tensor], list[str]]:
    """Return the three inputs of the readers, channels first and from -1 to 1, and the answers."""
    tasks = SceneTaskSet(options, split, count)
    rows, answers = [], []
    for index in range(count):
        task = tasks[index]
        rows.append(inputs(task, view_pixels))
        answers.append(task.answer)
    stacks = [torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)]
    return [stack.permute(0, 3, 1, 2).float() / 127.5 - 1 for stack in stacks], answers


def nearest(train: torch.Tensor, gold: torch.Tensor, test: torch.Tensor) -> torch.Tensor:
    """Return the answers of the nearest training tasks."""
    return gold[torch.cdist(test.flatten(1), train.flatten(1)).argmin(1)]


def network(channels: int, side: int, answers: int) -> nn.Module:
    """Make a small CNN; three halvings, then the remaining pixels."""
    layers: list[nn.Module] = []
    for width in (24, 48, 64):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        channels, side = width, side // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side**2, 128), nn.ReLU(), nn.Linear(128, answers))


def trained(train: torch.Tensor, gold: torch.Tensor, test: torch.Tensor, truth: torch.Tensor, epochs: int) -> list[int]:
    """Train a CNN and return the number of right answers on the test tasks after each epoch."""
    net = network(train.shape[1], train.shape[-1], int(gold.max()) + 1)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.01)
    hits = []
    for _ in range(epochs):
        net.train()
        for batch in torch.randperm(len(train)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(train[batch]), gold[batch]).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            hits.append(int((net(test).argmax(1) == truth).sum()))
    return hits


def cell(hits: int, count: int) -> str:
    """Write a share and its 95 % Wilson interval in percent."""
    low, high = wilson(hits, count) or (0.0, 1.0)
    return f"{100 * hits / count:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="glance", choices=sorted(SCENES), help="scenes, a mixture or one kind")
    parser.add_argument("--view-pixels", type=int, default=70, help="side of the view (default: 70)")
    parser.add_argument("--grid", type=int, help="cells of 56 pixels per side of the image; default: the preset's")
    parser.add_argument("--train", type=int, default=4000, help="training tasks of each kind")
    parser.add_argument("--test", type=int, default=400, help="test tasks of each kind")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="of the CNNs; the tasks do not depend on it")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    scenes = SCENES[args.preset]
    print(
        "| kind | answers | majority | 1-NN | CNN | CNN, whole view | CNN, expert's crop |\n|" + " --- |" * 7,
        flush=True,
    )
    for part in getattr(scenes, "parts", (scenes,)):
        changes = {"cue_p": 0.0} if "cue_p" in part.option_names() else {}
        options = part.with_overrides(changes | ({"grid": args.grid} if args.grid else {}))
        seen, train_answers = data(options, "train", args.train, args.view_pixels)
        unseen, test_answers = data(options, "test", args.test, args.view_pixels)
        names = sorted({*train_answers, *test_answers})
        gold, truth = (torch.tensor([names.index(a) for a in answers]) for answers in (train_answers, test_answers))
        commonest = int((truth == gold.mode().values).sum())
        close = int((nearest(seen[0], gold, unseen[0]) == truth).sum())
        around, whole, crop = (trained(a, gold, b, truth, args.epochs) for a, b in zip(seen, unseen, strict=True))
        shown = (cell(hits, args.test) for hits in (commonest, close, max(around), max(whole), crop[-1]))
        print(f"| {part.kind} | {len(names)} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
