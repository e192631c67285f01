"""Measures the attention of Qwen2.5-VL's vision tower: `python benchmarks/vision.py [--layers 8] [--width 160]`.

A tower of random weights, narrower and with fewer layers than the real one, runs forward and backward over one image,
as `transformers` runs it and as the trainer does (`agents/engines/vision.py`). One layer has full attention, the others
windows. The two ways alternate. The output has the calls of the attention function in one forward pass, the median
seconds of a forward and a backward pass and of the calls in the forward pass, and the largest difference of the output.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration


def make_model(layers: int, width: int) -> Any:
    torch.manual_seed(0)
    heads = width // 80
    vision = {"depth": layers, "hidden_size": width, "intermediate_size": width * 3420 // 1280, "num_heads": heads}
    text = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 2, "bos_token_id": None, "eos_token_id": None}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}
    vision |= {"out_hidden_size": 32, "fullatt_block_indexes": [layers - 1]}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision))


class Calls:
    """Counts and times the calls of scaled dot-product attention in a forward pass."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self._original = torch.nn.functional.scaled_dot_product_attention
        torch.nn.functional.scaled_dot_product_attention = self

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run it."""
        started = time.perf_counter()
        out = self._original(*args, **kwargs)
        self.count += 1
        self.seconds += time.perf_counter() - started
        return out


def main() -> None:
    from codev_agents.engines.vision import linear_patch_embedding, speed_up

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--size", type=int, nargs=2, default=(1600, 900), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    side = 28
    grid = torch.tensor([[1, round(given.size[1] / side) * 2, round(given.size[0] / side) * 2]])
    pixels = torch.randn(int(grid.prod()), 3 * 2 * 14 * 14)
    models = {"transformers": make_model(given.layers, given.width), "grouped": make_model(given.layers, given.width)}
    speed_up(models["grouped"])
    linear_patch_embedding(models["transformers"], models["transformers"].model.visual)
    calls = Calls()
    found: dict[str, list[tuple[float, float, int]]] = {way: [] for way in models}
    outputs = {}
    for repeat in range(given.repeats + 1):
        for way, model in models.items():
            calls.count, calls.seconds = 0, 0.0
            started = time.perf_counter()
            out = model.model.visual(pixels, grid_thw=grid).pooler_output
            attention = calls.seconds
            out.sum().backward()
            outputs[way] = out.detach()
            if repeat:  # the first is a warm-up
                found[way].append((time.perf_counter() - started, attention, calls.count))
    print(f"{len(pixels)} patches, {given.layers} layers of width {given.width}, {torch.get_num_threads()} threads\n")
    print("| | calls | seconds | of which attention, forward |\n| --- | --- | --- | --- |")
    medians = {way: [statistics.median(column) for column in zip(*rows, strict=True)] for way, rows in found.items()}
    for way, (seconds, attention, count) in medians.items():
        print(f"| {way} | {count:.0f} | {seconds:.2f} | {attention:.3f} |")
    a, b = medians["grouped"], medians["transformers"]
    print(f"| ratio | {a[2] / b[2]:.3f} | {a[0] / b[0]:.2f} | {a[1] / b[1]:.2f} |")
    print(
        f"\nlargest difference of the output: {float((outputs['grouped'] - outputs['transformers']).abs().max()):.1e}"
    )


if __name__ == "__main__":
    main()
