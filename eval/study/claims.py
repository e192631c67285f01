"""The claims of a study: each with the measured numbers, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from codev_eval.study.methods import ABLATIONS, VERSIONS
from codev_eval.study.results import Estimate, Results

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
SAME = 0.02
"""Accuracies nearer to each other than this count as equal, as the whole interval has to show."""
BETTER, USED = 0.6, 0.85
"""Least gain of faithful given correct, and the cue-free accuracy of a policy that uses the images it sees."""
TOOLS, HARM = 0.5, 0.02
"""Least share of the accuracy gained that is the tool's, and the most that the tool may harm."""
SEES, WORST, GIVEN, LONGER = 0.93, 0.88, 0.95, 1.3
"""Goals of self-imitation: cue-free accuracy, mean and worst seed; faithful given correct; times of TAPO's time."""


@dataclass(frozen=True)
class Claim:
    """A claim and its verdict.

    Attributes:
        text: The claim.
        verdict: Whether it holds: by the whole 95 % interval over seeds, not by its middle.
        measured: The numbers.
    """

    text: str
    verdict: Verdict
    measured: str


def claims(results: Results, setting: str) -> Iterator[Claim]:
    """Yield every claim about one setting."""
    drop = results.difference(setting, "outcome", None, "faithful")
    yield Claim(
        "Rewarding the answer alone keeps or lowers the faithful-tool rate.",
        _verdict(drop, lambda e: e.high <= SAME, lambda e: e.low > SAME),
        f"faithful, after minus before: {points(drop)}",
    )
    call = results.difference(setting, "any-call", "outcome", "faithful")
    yield Claim(
        "Rewarding any tool call does not make the calls faithful.",
        _verdict(call, lambda e: e.high < 0.1, lambda e: e.low >= 0.1),
        f"faithful, any-call minus outcome: {points(call)}",
    )
    given = results.difference(setting, "tapo", "outcome", "faithful_given_correct")
    yield Claim(
        "TAPO raises faithful given correct by at least 60 points over the outcome alone.",
        _verdict(given, lambda e: e.low >= BETTER, lambda e: e.high < BETTER),
        f"tapo minus outcome: {points(given)}",
    )
    for name, title in (("codevision", "CodeVision's reward"), ("taco", "TACO's reward")):
        gained = results.difference(setting, name, None, "faithful_given_correct")
        yield Claim(
            f"{title} raises faithful given correct by at least 60 points over the start.",
            _verdict(gained, lambda e: e.low >= BETTER, lambda e: e.high < BETTER),
            f"{name}, after minus before: {points(gained)}",
        )
    accuracy = results.difference(setting, "tapo", "outcome", "accuracy")
    yield Claim(
        "TAPO costs no accuracy.",
        _verdict(accuracy, lambda e: e.low >= -SAME, lambda e: e.high < -SAME),
        f"accuracy, tapo minus outcome: {points(accuracy)}",
    )
    yield _sooner(results, setting)
    for rate in (5, 10, 20, 40):
        name = f"tapo-noise{rate:02}"
        lost = results.difference(setting, name, "tapo", "faithful")
        yield Claim(
            f"A judge that errs in {rate} % of calls costs less than 10 points of the faithful-tool rate.",
            _verdict(lost, lambda e: e.low > -0.1, lambda e: e.high <= -0.1),
            f"faithful, {name} minus tapo: {points(lost)}",
        )
    for name, title in (("tapo", "TAPO's"), ("codevision", "CodeVision's"), ("taco", "TACO's")):
        unused = results.estimate(setting, name, "no_cue")
        yield Claim(
            f"{title} policy looks but does not use all it sees: without the cue it is below 85 % right.",
            _verdict(unused, lambda e: e.high < USED, lambda e: e.low >= USED),
            f"cue-free accuracy of {name}: {_percent(unused)}" + _beside_tapo(results, setting, name),
        )
    closed = results.estimate(setting, "evidence", "no_cue")
    yield Claim(
        "Playing what it cannot guess first closes that gap: at least 85 % right without the cue, in as many episodes.",
        _verdict(closed, lambda e: e.low >= USED, lambda e: e.high < USED),
        f"cue-free accuracy of evidence: {_percent(closed)}" + _beside_tapo(results, setting, "evidence"),
    )
    for name in [name for name in VERSIONS if results.runs(setting, name)] or VERSIONS[:1]:
        yield _share(results, setting, name, "look_gain", "that of looking over an answer at once", "looking")
        looks = "that of looking, where only the target shows the answer"
        yield _share(results, setting, name, "no_cue_look_gain", looks, "looking", "no_cue")
        yield from _imitation(results, setting, name)
        yield from _mastery(results, setting, name)
    yield from _ablations(results, setting)


def _imitation(results: Results, setting: str, name: str) -> Iterator[Claim]:
    """Yield the claims about self-imitation of looks, of one method."""
    runs = results.runs(setting, name)
    seen = results.estimate(setting, name, "no_cue")
    yield Claim(
        f"With {_title(name)} answers come from what was seen: at least {100 * SEES:.0f} % right without the cue.",
        _verdict(seen, lambda e: e.low >= SEES, lambda e: e.high < SEES),
        f"cue-free accuracy of {name}: {_percent(seen)}" + _beside_tapo(results, setting, name),
    )
    worst = min(((f.values["no_cue"], f.run.seed) for f in runs if "no_cue" in f.values), default=None)
    yield Claim(
        f"On its worst seed that is at least {100 * WORST:.0f} %.",
        "not measured" if not worst else "holds" if worst[0] >= WORST else "does not hold",
        f"cue-free accuracy of seed {worst[1]}: {100 * worst[0]:.1f} %" if worst else "–",
    )
    given = results.estimate(setting, name, "faithful_given_correct")
    yield Claim(
        f"Right answers stay faithful: at least {100 * GIVEN:.0f} %.",
        _verdict(given, lambda e: e.low >= GIVEN, lambda e: e.high < GIVEN),
        f"faithful given correct of {name}: {_percent(given)}",
    )
    accuracy = results.difference(setting, name, "tapo", "accuracy")
    yield Claim(
        f"{_title(name).capitalize()} costs no accuracy.",
        _verdict(accuracy, lambda e: e.low >= -SAME, lambda e: e.high < -SAME),
        f"accuracy, {name} minus tapo: {points(accuracy)}",
    )
    alone = {f.run.seed: f.seconds for f in results.runs(setting, "tapo")}
    times = Estimate.of([f.seconds / alone[f.run.seed] for f in runs if f.seconds and alone.get(f.run.seed)])
    yield Claim(
        f"It trains in at most {LONGER} times the time.",
        _verdict(times, lambda e: e.high <= LONGER, lambda e: e.low > LONGER),
        f"seconds of training, {name} over tapo: "
        + _written(times, lambda value: f"{value:.2f}", f", {times.n} seeds" if times and times.n > 1 else ""),
    )
    lost = results.difference(setting, f"{name}-noise10", name, "no_cue")
    yield Claim(
        "With a judge that errs in 10 % of calls it loses at most 5 points.",
        _verdict(lost, lambda e: e.low >= -0.05, lambda e: e.high < -0.05),
        f"cue-free accuracy, {name}-noise10 minus {name}: {points(lost)}",
    )


def _share(results: Results, setting: str, name: str, key: str, text: str, by: str, whole: str = "accuracy") -> Claim:
    """Return a claim that at least half of the accuracy gained is that of a measure, such as the gain by the tool."""
    gained, of_key = (
        {seed: found - before[seed] for seed, found in after.items() if seed in before}
        for after, before in (
            (results.values(setting, name, one), results.values(setting, None, one)) for one in (whole, key)
        )
    )
    # A difference: a share of a small gain has no interval to speak of.
    pairs = [(gained[seed], of_key[seed]) for seed in gained if seed in of_key]
    most, gain = Estimate.of([own - TOOLS * gain for gain, own in pairs]), sum(gain for gain, _ in pairs)
    return Claim(
        f"At least {100 * TOOLS:.0f} % of the accuracy that {_title(name)} gains is {text}.",
        _verdict(most, lambda e: e.low >= 0, lambda e: e.high < 0),
        f"gain by {by} less {100 * TOOLS:.0f} % of the gain of accuracy, after minus before: {points(most)}"
        + (f", {100 * sum(own for _, own in pairs) / gain:.0f} % of it in all" if gain > 0 else ""),
    )


def _mastery(results: Results, setting: str, name: str) -> Iterator[Claim]:
    """Yield the claims about what the tool gives the policy of self-imitation, after MED (arXiv 2602.01334)."""
    yield _share(results, setting, name, "tool_gain", "the tool's", "the tool")
    calls, offers = (results.values(setting, name, key) for key in ("call_harm", "schema_harm"))
    harm = Estimate.of([calls[seed] + offers[seed] for seed in calls if seed in offers])
    yield Claim(
        f"The tool harms at most {100 * HARM:.0f} points.",
        _verdict(harm, lambda e: e.high <= HARM, lambda e: e.low > HARM),
        f"call harm and schema harm of {name}: {_percent(harm)}",
    )


def _ablations(results: Results, setting: str) -> Iterator[Claim]:
    """Yield, for each part of self-imitation that was left out, whether it is needed."""
    for row in ABLATIONS:
        lost = results.difference(setting, row.name, "imitation", "no_cue")
        yield Claim(
            f"Self-imitation is right less often without the cue if changed so: {row.about}.",
            _verdict(lost, lambda e: e.high < 0, lambda e: e.low >= 0),
            f"cue-free accuracy, {row.name} minus imitation: {points(lost)}",
        )


def _title(name: str) -> str:
    return "self-imitation" if name == "imitation" else name


def _beside_tapo(results: Results, setting: str, name: str) -> str:
    if name == "tapo":
        return ""
    return f"; {name} minus tapo: {points(results.difference(setting, name, 'tapo', 'no_cue'))}"


def _sooner(results: Results, setting: str) -> Claim:
    text = "Turn credit is as faithful as TAPO after fewer episodes."
    after = {name: {f.run.seed: f.learned for f in results.runs(setting, name)} for name in ("tapo", "tapo-turn")}
    seeds = sorted(set(after["tapo"]) & set(after["tapo-turn"]))
    if not seeds:
        return Claim(text, "not measured", "–")
    listed = ", ".join(f"{_episodes(after['tapo-turn'][s])} / {_episodes(after['tapo'][s])}" for s in seeds)
    measured = f"episodes until 90 % of an update's rollouts are faithful, turn / trajectory credit, by seed: {listed}"
    if any(math.isinf(after[name][s]) for name in after for s in seeds):
        return Claim(text, "undecided", measured)
    saved = Estimate.of([after["tapo"][s] - after["tapo-turn"][s] for s in seeds])
    return Claim(text, _verdict(saved, lambda e: e.low > 0, lambda e: e.high <= 0), measured)


def _episodes(count: float) -> str:
    return "never" if math.isinf(count) else f"{count:.0f}"


def _verdict(
    estimate: Estimate | None, holds: Callable[[Estimate], bool], fails: Callable[[Estimate], bool]
) -> Verdict:
    if estimate is None:
        return "not measured"
    return "holds" if holds(estimate) else "does not hold" if fails(estimate) else "undecided"


def points(estimate: Estimate | None) -> str:
    """Write a difference of two shares, with its interval, in points."""
    return _written(estimate, lambda value: f"{100 * value:+.1f}", " points")


def _written(estimate: Estimate | None, number: Callable[[float], str], unit: str) -> str:
    if estimate is None:
        return "–"
    if estimate.n == 1:
        return f"{number(estimate.mean)}{unit} (one seed)"
    return f"{number(estimate.mean)} [{number(estimate.low)}, {number(estimate.high)}]{unit}"


def _percent(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    if estimate.n == 1:
        return f"{100 * estimate.mean:.1f} % (one seed)"
    low, high = max(0.0, estimate.low), min(1.0, estimate.high)  # Student's interval knows no ends of a share
    return f"{100 * estimate.mean:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
