"""Measures what an update of the default run saves by sharing: `python benchmarks/joined.py [--steps 20]`.

The updates of a training run are made in four ways from the same weights, on the same samples: as they are; with a row
of its own for each imitated sample; with each image seen by the vision tower as often as it is shown; and with both.
The output has the mean CPU seconds of an update, without its rollouts and the choice of what is imitated, and their
ratio to the first way.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch

from codev_agents.engines.batch import collate
from codev_agents.engines.lean import import_transformers
from codev_train.learn.join import joined
from codev_train.learn.sample import Sample


def apart(samples: Sequence[Sample], image_id: int, always: bool) -> list[Sample]:
    """Return what `joined` does of each sample alone."""
    return [part for sample in samples for part in joined([sample], image_id, always)]


def replaced(patches: Sequence[tuple[str, Callable[..., Any]]]) -> Any:
    """Make all of these replacements."""
    stack = contextlib.ExitStack()
    for target, replacement in patches:
        stack.enter_context(mock.patch(target, replacement))
    return stack


UPDATE, INPUTS = "codev_train.learn.update", "codev_train.learn.inputs"
EACH = (f"{INPUTS}.collate", lambda *args, once=False: collate(*args))
APART = (f"{UPDATE}.joined", apart)
WAYS: dict[str, tuple[tuple[str, Callable[..., Any]], ...]] = {
    "as it is": (),
    "imitated samples apart": (APART,),
    "images seen as often as shown": (EACH,),
    "both": (APART, EACH),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    import_transformers()
    from codev_env.app.cli import main as codev
    from codev_train.learn.update import Updater

    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    original = Updater.update

    def in_every_way(self: Updater, samples: Sequence[Sample], rng: np.random.Generator, **options: Any) -> Any:
        module, optimizer = self.module, self.optimizer
        before = copy.deepcopy((module.state_dict(), optimizer.state_dict(), rng))
        # The first way is the last one, from which the run goes on; the others take turns.
        others = list(WAYS)[1:]
        turn = len(seconds["as it is"]) % len(others)
        for way in [*others[turn:], *others[:turn], "as it is"]:
            weights, moments, generator = copy.deepcopy(before)
            module.load_state_dict(weights)
            optimizer.load_state_dict(moments)
            rng.bit_generator.state = generator.bit_generator.state
            with replaced(WAYS[way]):
                started = time.process_time()
                stats = original(self, samples, rng, **options)
                seconds[way].append(time.process_time() - started)
        return stats

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(Updater, "update", in_every_way):
        codev(["train", "--preset", "tiny", "--steps", str(given.steps), "--eval.episodes", "1", "--out", folder])
    print("| way | CPU seconds per update | relative |\n| --- | --- | --- |")
    first = np.mean(seconds["as it is"])
    for way, values in seconds.items():
        print(f"| {way} | {np.mean(values):.2f} | {np.mean(values) / first:.2f} |")


if __name__ == "__main__":
    main()
