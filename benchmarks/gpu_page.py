"""Writes the results of `gpu.py` as tables, and says which goals hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_parts import PARTS, results

Row = dict[str, Any]
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
MFU, FASTER, SMALLER, LORA_GIB, LONG = 0.4, 2.0, 0.5, 22.0, 8192
COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "seconds": ("seconds per update", "{:.2f}".format),
    "trajectories": ("trajectories", str),
    "images": ("images in each", str),
    "tokens_per_second": ("tokens per second", "{:.0f}".format),
    "milliseconds": ("ms", "{:.2f}".format),
    "tflops": ("TFLOP/s", "{:.4g}".format),
    "mfu": ("MFU", "{:.0%}".format),
    "gb_per_second": ("GB/s", "{:.0f}".format),
    "error": ("relative error", "{:.1e}".format),
    "allocated_gib": ("GiB of tensors", "{:.1f}".format),
    "used_gib": ("GiB in use", "{:.1f}".format),
    "tokens": ("tokens", str),
    "trainer_mean": ("trainer, mean", "{:.1e}".format),
    "trainer_max": ("max", "{:.1e}".format),
    "engine_mean": ("engine, mean", "{:.1e}".format),
    "engine_max": ("max", "{:.1e}".format),
    "between_mean": ("between, mean", "{:.1e}".format),
    "between_max": ("max", "{:.1e}".format),
    "sleep_seconds": ("seconds to sleep", "{:.2f}".format),
    "wake_seconds": ("seconds to wake", "{:.2f}".format),
    "awake_gib": ("GiB awake", "{:.1f}".format),
    "asleep_gib": ("asleep", "{:.1f}".format),
    "woken_gib": ("woken", "{:.1f}".format),
    "same_tokens": ("same greedy tokens", str),
    "cold_start_seconds": ("seconds of the cold start", "{:.0f}".format),
    "rollout_seconds": ("of an update's rollouts", "{:.1f}".format),
    "update_seconds": ("of an update", "{:.1f}".format),
    "rollout_tokens_per_second": ("tokens sampled per second", "{:.0f}".format),
    "calls": ("tool calls per episode", "{:.2f}".format),
    "gap": ("sampler against trainer, nats per token", "{:.1e}".format),
    "checkpoint_gib": ("GiB of a checkpoint", "{:.1f}".format),
    "resumed_seconds": ("seconds of the resumed run", "{:.0f}".format),
    "once": ("each update made once", str),
}
"""The columns of tables, in this order; other values stay in the result files."""


def text(out: Path, gpu: str, versions: dict[str, str], command: str, toy: bool) -> str:
    """Return the results as Markdown."""
    parts = {part: results(out / f"{part}.jsonl") for part in PARTS}
    peak, source = peak_of(gpu, parts["machine"])
    for part in ("update-3b", "update-7b", "update-8bit", "savings", "checkpointing", "trl"):
        for row in parts[part].values():
            if peak and "tflops" in row:
                row["mfu"] = row["tflops"] / peak
    lines = [f"{gpu}; " + ", ".join(f"{name} {version}" for name, version in versions.items()) + f"; `{command}`", ""]
    if toy:
        lines += ["**Toy size: these numbers mean nothing.**", ""]
    elif peak:
        lines += [f"MFU is relative to {peak:.0f} TFLOP/s ({source}).", ""]
    lines += ["| goal | holds | measured |", "| --- | --- | --- |", *goals(parts, toy), ""]
    for part, rows in parts.items():
        lines += [f"## {part}", "", *(table(rows) if rows else ["Not measured."]), ""]
    return "\n".join(lines).rstrip() + "\n"


def write(page: Path, content: str) -> Path:
    """Put the results into the page, between its two markers."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{content}\n{END}{after}", "utf-8")
    return page


def peak_of(gpu: str, machine: dict[str, Row]) -> tuple[float, str]:
    """Return the peak of bf16 products in TFLOP/s, and where it is from."""
    from codev_train.run.sizes import GPUS

    for name, known in GPUS.items():
        if name in gpu.lower():
            return known.flops / 1e12, "data sheet"
    return machine.get("product", {}).get("tflops", 0.0), "the matrix product measured here"


def table(rows: dict[str, Row]) -> list[str]:
    columns = [name for name in COLUMNS if any(name in row for row in rows.values())]
    lines = [f"| | {' | '.join(COLUMNS[c][0] for c in columns)} | |", "| --- |" + " --- |" * (len(columns) + 1)]
    for cell, row in rows.items():
        values = [COLUMNS[c][1](row[c]) if c in row else "" for c in columns]
        why = row.get("why", "").partition(" GPU 0 ")[0]  # what follows in CUDA's message is the machine's
        state = "" if row["state"] == "measured" else row["state"] + (f": {why}" if why else "")
        lines.append(f"| {cell} | {' | '.join(values)} | {state.replace('|', '/')} |")
    return lines


def goals(parts: dict[str, dict[str, Row]], toy: bool) -> list[str]:
    """Return a row for each goal; a goal whose cells are not all measured is open."""

    def line(goal: str, found: list[bool], complete: bool, measured: str) -> str:
        holds = "**no**" if not all(found) else "yes" if found and complete else "open"
        return f"| {goal} | {'–' if toy else holds} | {measured or 'nothing'} |"

    speeds: dict[str, float] = {}
    for part in ("update-3b", "update-7b"):
        for cell, row in parts[part].items():
            if "mfu" in row and int(cell.rpartition(", ")[2]) >= LONG:
                speeds[f"{part.removeprefix('update-')} {cell}"] = row["mfu"]
    low, high = (min(speeds, key=speeds.get), max(speeds, key=speeds.get)) if speeds else ("", "")
    span = f"{speeds[low]:.0%} ({low}) to {speeds[high]:.0%} ({high})" if speeds else ""
    complete = all(parts[part] for part in ("update-3b", "update-7b"))
    lines = [line(f"MFU of at least {MFU:.0%} from {LONG} tokens", [v >= MFU for v in speeds.values()], complete, span)]
    ratios, faster, smaller, pairs = [], [], [], 0
    for cell, row in parts["trl"].items():
        other = parts["trl"].get(cell.replace(", ours", ", TRL"), {})
        if not cell.endswith(", ours"):
            continue
        pairs += 1
        if "used_gib" not in row or "used_gib" not in other:
            continue
        faster.append(other["seconds"] / row["seconds"])
        smaller.append(row["used_gib"] / other["used_gib"])
        ratios.append(f"{cell.removesuffix(', ours')}: {faster[-1]:.2f} x as fast, {smaller[-1]:.2f} of the memory")
    lines += [
        line(
            f"at least {FASTER:g} x as fast as TRL per step, from {LONG} tokens",
            [ratio >= FASTER for ratio in faster],
            len(faster) == pairs,
            "; ".join(ratios),
        ),
        line(
            f"at most {SMALLER:g} of TRL's memory, from {LONG} tokens",
            [ratio <= SMALLER for ratio in smaller],
            len(smaller) == pairs,
            "; ".join(ratios),
        ),
    ]
    lora = {c: row for c, row in parts["update-3b"].items() if c.startswith("lora")}
    used = [
        f"{cell.removeprefix('lora, ')} tokens: {row['used_gib']:.1f} GiB"
        for cell, row in lora.items()
        if "used_gib" in row
    ]
    fits = [
        row.get("used_gib", float("inf")) < LORA_GIB
        for row in lora.values()
        if "used_gib" in row or "memory" in row["state"]
    ]
    lines.append(line(f"3B LoRA with images under {LORA_GIB:g} GiB", fits, bool(lora), "; ".join(used)))
    return lines
