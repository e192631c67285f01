"""The texts of `codev eval --as NAME`: downloads and options first, then published numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codev_env.benches import BENCHES, benches_scored_by
from codev_eval.bench.models import is_folder
from codev_eval.bench.released import RELEASED, UNREAD, Name, Released, is_remote
from codev_eval.bench.saved import longest_episode

GIGABYTES = 16.6
"""Weights of Qwen2.5-VL-7B, on which all of them build, in bfloat16: 8 292 166 656 parameters of 2 bytes."""
EVERYWHERE = (
    "the prompts are this package's own words in the published grammar, and its sandbox is another one "
    "(docs/dialects.md)",
    "the order of options is drawn with a seed, and a benchmark's files may have changed since",
)
"""Reasons for a difference that every checkpoint has."""
WEIGHED = benches_scored_by("hrbench", "blink-eval", "tir", "relaxed")
"""Benchmarks whose total is not the share of right answers: means over parts, or parts of a point."""


def announcement(name: Name, options: Mapping[str, Any]) -> str:
    """Return what an evaluation downloads and how it differs from the published one, before it begins.

    Args:
        name: The checkpoint.
        options: All options by name.
    """
    row = RELEASED[name]
    lines = [f"{name}: {row.title}, {row.paper}", "Download (unless the hub's cache has it):"]
    if options["model"] == row.weights and not is_folder(row.weights):
        lines.append(f"  https://huggingface.co/{row.weights}: about {GIGABYTES} GB in bfloat16")
    else:
        lines.append(f"  no weights: the model is {options['model']}")
    if "hub" in options["data"]:
        lines += [f"  {row.hub.url}" for row in map(BENCHES.get, options["bench"]) if row and row.hub]
    lines += ["Options, and where they were read:"]
    for option, (value, source) in row.options.items():
        shown = options[option]
        lines.append(
            f"  {_flag(option)} {shown}" + ("" if shown == value else f" (published: {value})") + f"  {source}"
        )
    lines += [f"{UNREAD.capitalize()}: {text}." for text in row.unread]
    return "\n".join(lines)


def comparison(name: Name, options: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the published numbers beside ours, with the reasons a difference can have; JSON-able.

    Args:
        name: The checkpoint.
        options: All options by name.
        record: The content of metrics.json.
    """
    row, benches = RELEASED[name], {}
    for bench, metrics in record["benches"].items():
        number, source = row.published.get(bench, (None, "no published number was found"))
        score = metrics.get("score", {})
        here = score.get("overall", metrics["accuracy"])
        # The interval of the same number: that of accuracy says nothing about a total of another kind.
        other = "overall" in score and bench in WEIGHED
        interval = metrics.get("score_ci95", None if other else metrics.get("ci95", {}).get("accuracy"))
        benches[bench] = {
            "published": number,
            "here": None if here is None else 100 * here,
            "ci95": interval and [100 * end for end in interval],
            "source": source,
        }
    unread = (f"{UNREAD}: {text}" for text in row.unread if not text.startswith("weights: "))
    reasons = [*_of_this_run(row, options, record), *row.differs, *unread, *EVERYWHERE]
    return {"as": name, "title": row.title, "paper": row.paper, "benches": benches, "reasons": reasons}


def comparison_text(found: Mapping[str, Any]) -> str:
    """Return what `comparison` found as lines for a terminal."""
    lines = [f"\n{found['title']} as published ({found['paper']}) and here, accuracy in %"]
    lines.append(f"{'benchmark':<20} {'published':>9} {'here':>6}   95 % interval   source")
    for bench, numbers in found["benches"].items():
        published, here = ("–" if n is None else f"{n:.1f}" for n in (numbers["published"], numbers["here"]))
        ends = "[{:.1f}, {:.1f}]".format(*numbers["ci95"]) if numbers["ci95"] else ""
        lines.append(f"{bench:<20} {published:>9} {here:>6}   {ends:<15} {numbers['source']}")
    return "\n".join([*lines, "Reasons that a difference can have:", *(f"- {text}." for text in found["reasons"])])


def _of_this_run(row: Released, options: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons that lie in the options and data of one evaluation."""
    generated = [bench for bench, tasks in record["sets"].items() if tasks["source"] == "generated"]
    if generated:
        yield f"generated scenes stand in for {', '.join(generated)}: the two numbers cannot be compared"
    if options["model"] != row.weights:
        yield f"the model is {options['model']}, not {row.weights or 'the published one'}"
    for option, (value, _) in row.options.items():
        if options[option] != value:
            yield f"{_flag(option)} is {options[option]}, and {value} as published"
    if not is_remote(options["model"]):
        longest = longest_episode(options["max_tokens"])
        yield f"an episode that would grow past {longest} tokens, or the model's last position, ends without an answer"
    if options["engine"] == "hf" and not is_remote(options["model"]):
        yield "the engine hf computes in float32; published runs used bfloat16, mostly in vLLM"
    whole: Mapping[str, Sequence[Any]] = {"samples": (1,)}
    yield from (
        f"{_flag(name)} is {_written(options[name])}: not every task once"
        for name in ("n", "subset", "only", "wrap", "samples")
        if options[name] not in (None, [], (), *whole.get(name, ()))
    )


def _written(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
