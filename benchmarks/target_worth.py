"""Draws what a crop around a target is worth, by the size of the crop and of the target, for docs/rewards.md.

    python benchmarks/target_worth.py --out docs/images/target_worth.svg

The crops hold the whole target, at its pixels, in an episode that shows nothing else.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from codev_env.judges.evidence import CLEAR_VALUE, WHOLE, showing
from codev_env.provenance.coordinates import box_polygon
from codev_env.types import Region

SIDE = 100_000
EXPERT = 2.25
TARGETS = (0.0001, 0.0005, 0.0025, 0.01, 0.04, 0.12, 0.4)


def worth(target: float, crop: float) -> float:
    """Return the value of a crop of that share of the image which holds the whole of a target of that share."""
    box, inner = ((0, 0, round(SIDE * share**0.5), round(SIDE * share**0.5)) for share in (crop, target))
    region = Region(box_polygon(box), box, 0, "rot0", 1.0, 1.0, "probe")
    return 0.0 if crop >= WHOLE else showing(region, inner, (SIDE, SIDE)).value


def main() -> None:
    """Draw a curve for each size of target, with a point at the crop of an expert."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    plt.rcParams |= {"svg.hashsalt": "worth", "svg.fonttype": "none"}
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(TARGETS)))
    for target, colour in zip(TARGETS, colours, strict=True):
        crops = np.geomspace(target, 1, 300)
        axes.plot(crops, [worth(target, crop) for crop in crops], color=colour, label=f"{100 * target:g} %")
        axes.plot(EXPERT * target, worth(target, EXPERT * target), "o", color=colour)
    axes.axhline(CLEAR_VALUE, color="grey", linestyle=":")
    axes.text(TARGETS[0], CLEAR_VALUE + 0.02, "faithful above", color="grey")
    axes.set(xscale="log", ylim=(0, 1.05), xlabel="crop, share of the image", ylabel="value of the crop")
    axes.set_xticks([1e-4, 1e-3, 1e-2, 1e-1, 1], ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    axes.legend(title="target", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
