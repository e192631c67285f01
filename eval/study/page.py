"""The results of a study as files: numbers, figures, and a page of text with tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codev_env.files import write_json, write_text
from codev_eval.report.rendering import render
from codev_eval.study import figures
from codev_eval.study.claims import Claim, claims, points
from codev_eval.study.methods import Method, Setting
from codev_eval.study.numbers import NUMBERS, SCHEMA, setting_numbers
from codev_eval.study.results import CURVES, MEASURES, WINDOW, Estimate, Measure, Results

PAGE, HTML = "study.md", "study.html"
_BAND_FROM = 3
"""Seeds from which curves show their interval: that of two seeds would cover all others."""
_BY_SEED = ("faithful_given_correct", "no_cue")
_MAIN = ("accuracy", "faithful", "faithful_given_correct", "tool_calls", "lazy", "no_cue", "evidence")
_MASTERY = ("blind", "call_gain", "schema_gain", "call_harm", "schema_harm", "tool_gain")
_START = "the start"
_ABOUT = (
    "Every method trains from the same cold start of a seed, on the same tasks, with the same number of episodes; "
    "only reward, judge, credit or choice of tasks differ. Held-out scenes, greedy answers. Numbers are means over "
    "seeds; in brackets the 95 % interval of that mean (Student's t), so it covers other starts and other samples, "
    "not other models or other tasks. Where methods are compared, the same seeds are. Curves show their interval "
    f"from {_BAND_FROM} seeds on."
)


@dataclass(frozen=True)
class Drawn:
    """A figure: its file, its title, and its content as SVG."""

    file: str
    title: str
    svg: str


@dataclass(frozen=True)
class Rows:
    """A table: heads of its columns, and the cells of its rows."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SettingPage:
    """The results of a setting, as the templates `study.md.j2` and `study.html.j2` lay them out.

    Attributes:
        setting: Name and description.
        figures: Figures.
        claims: Claims with their verdicts.
        tables: By title.
        methods: The methods that were trained.
        measures: The columns of the tables.
    """

    setting: Setting
    figures: tuple[Drawn, ...]
    claims: tuple[Claim, ...]
    tables: Mapping[str, Rows]
    methods: tuple[Method, ...]
    measures: tuple[Measure, ...] = MEASURES


def write(
    out: Path, results: Results, settings: Sequence[Setting], methods: Sequence[Method], facts: Mapping[str, Any]
) -> Path:
    """Write everything to `out`; returns the page.

    Args:
        out: Folder.
        results: The results.
        settings: Settings, in the order of the page.
        methods: Methods, in the order of its tables.
        facts: Facts on the study that the page names.
    """
    pages, numbers = [], {}
    for setting in settings:
        if not any(found.run.setting.name == setting.name for found in results.found):
            continue
        page = _setting_page(results, setting, methods)
        for figure in page.figures:
            write_text(out / figure.file, figure.svg)
        pages.append(page)
        numbers[setting.name] = setting_numbers(results, setting, methods, page.claims)
    write_json(out / NUMBERS, {"schema": SCHEMA, "facts": dict(facts), "settings": numbers})
    order = _order(results, [page.setting for page in pages], methods) if len(pages) > 1 else None
    common = {"about": _ABOUT, "sources": _sources(results, facts), "order": order, "pages": pages}
    for template, file in (("study.html.j2", HTML), ("study.md.j2", PAGE)):
        text = render(template, "codev_eval.study", **common)
        write_text(out / file, text)
    return out / PAGE


def _sources(results: Results, facts: Mapping[str, Any]) -> str:
    machines = sorted({found.machine for found in results.found})
    sources = ", ".join(f"{name}: {value}" for name, value in facts.items())
    seconds = math.fsum(found.seconds for found in results.found)
    return f"{sources}, on {'; '.join(machines)}; {seconds / 3600:.1f} hours of training in all."


def _order(results: Results, settings: Sequence[Setting], methods: Sequence[Method]) -> Rows:
    """How the methods compare in each setting and outside `base`: means, worst seeds, and pairs from the same start.

    Over several settings, only seeds that have all of them count, and the pairs of a seed are averaged first: the
    interval is one of seeds, not of runs.
    """
    others = [setting for setting in settings if setting.name != "base"]
    groups = {setting.name: [setting] for setting in settings}
    if len(others) > 1:
        groups["all but base"] = others
    rows = []
    for name, group in groups.items():
        tapo = _seen(results, group, "tapo")
        for method in methods:
            values = _seen(results, group, method.name)
            if not values:
                continue
            gains = {} if method.name == "tapo" else {key: values[key] - tapo[key] for key in values if key in tapo}
            means = _seed_means(values)
            counts = (sum(g > 0 for g in gains.values()), sum(g == 0 for g in gains.values()))
            rows.append(
                (
                    name,
                    method.name,
                    str(len(means)),
                    f"{100 * math.fsum(means) / len(means):.1f} %",
                    f"{100 * min(values.values()):.1f} %",
                    points(Estimate.of(_seed_means(gains)) if gains else None),
                    " / ".join(map(str, (*counts, len(gains) - sum(counts)))) if gains else "–",
                )
            )
    heads = ("setting", "method", "seeds", "mean", "worst seed", "minus tapo", "pairs above / equal / below")
    return Rows(heads, tuple(rows))


def _seen(results: Results, settings: Sequence[Setting], method: str) -> dict[tuple[int, str], float]:
    """The cue-free accuracy of a method by seed and setting, of the seeds that have all settings."""
    columns = {setting.name: results.values(setting.name, method, "no_cue") for setting in settings}
    seeds = sorted(set.intersection(*(set(column) for column in columns.values())))
    return {(seed, name): column[seed] for seed in seeds for name, column in columns.items()}


def _seed_means(values: Mapping[tuple[int, str], float]) -> list[float]:
    """The mean over settings, for each seed."""
    seeds = {seed: [value for (other, _), value in values.items() if other == seed] for seed, _ in values}
    return [math.fsum(found) / len(found) for found in seeds.values()]


def _setting_page(results: Results, setting: Setting, methods: Sequence[Method]) -> SettingPage:
    tables = {
        "Main measures": _table(results, setting, methods, _MAIN),
        "Where right answers come from (MED, arXiv 2602.01334)": _table(results, setting, methods, _MASTERY),
        "All others": _table(results, setting, methods, [m.key for m in MEASURES if m.key not in (*_MAIN, *_MASTERY)]),
        "Seed by seed": _seed_table(results, setting, methods),
    }
    trained = tuple(m for m in methods if results.runs(setting.name, m.name))
    found = tuple(claims(results, setting.name))
    return SettingPage(setting, _figures(results, setting, methods), found, tables, trained)


def _table(results: Results, setting: Setting, methods: Sequence[Method], keys: Sequence[str]) -> Rows:
    chosen = [measure for measure in MEASURES if measure.key in keys]
    rows = []
    for name in (None, *(method.name for method in methods)):
        seeds = [found.run.seed for found in results.runs(setting.name, name)]
        if seeds:
            cells = (_cell(results.estimate(setting.name, name, measure.key), measure) for measure in chosen)
            rows.append((name or _START, _spans(seeds), *cells))
    return Rows(("method", "seeds", *(measure.title for measure in chosen)), tuple(rows))


def _seed_table(results: Results, setting: Setting, methods: Sequence[Method]) -> Rows:
    """The two measures that matter most for each run: means hide a method that learns from some starts only."""
    names = [None, *(method.name for method in methods if results.runs(setting.name, method.name))]
    values = {name: [results.values(setting.name, name, key) for key in _BY_SEED] for name in names}
    seeds = sorted({seed for both in values.values() for each in both for seed in each})
    titles = " / ".join(_title(key) for key in _BY_SEED)
    rows = []
    for name, both in values.items():
        cells = (" / ".join(f"{100 * each[seed]:.1f}" for each in both if seed in each) or "–" for seed in seeds)
        rows.append((name or _START, *cells))
    return Rows((f"{titles}, %", *map(str, seeds)), tuple(rows))


def _spans(numbers: Sequence[int]) -> str:
    """Write rising numbers shortly: 0-2, 5, 7."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    parts = [f"{span[0]}-{span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans]
    return ", ".join(parts)


def _cell(estimate: Estimate | None, measure: Measure) -> str:
    if estimate is None:
        return "–"
    scale, digits = (100, 1) if measure.share else (1, 2)
    text = f"{scale * estimate.mean:.{digits}f}{' %' if measure.share else ''}"
    if estimate.low == estimate.high or estimate.n == 1:
        return text  # If all seeds agree, an interval of no width would claim too much.
    # Student's interval knows nothing of the ends that a share or a count cannot pass.
    least = -1.0 if measure.signed else 0.0
    low, high = max(least, estimate.low), min(1.0, estimate.high) if measure.share else estimate.high
    return f"{text} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]"


def _figures(results: Results, setting: Setting, methods: Sequence[Method]) -> tuple[Drawn, ...]:
    drawn = []
    ordered = sorted(methods, key=lambda m: not m.curve)  # There are fewer colours than methods.
    colours = {m.name: figures.COLOURS[number % len(figures.COLOURS)] for number, m in enumerate(ordered)}
    for key, curve in CURVES.items():
        title = f"{setting.name}: {curve}"
        series = {m.name: _curve(results, setting, m, key) for m in methods if m.curve}
        drawn.append(Drawn(f"{setting.name}-{key}.svg", title, figures.curves(title, "episodes", series, colours)))
    for key in ("faithful_given_correct", "no_cue", "evidence"):
        title = f"{setting.name}: {_title(key)}"
        rows = {}
        for name in (None, *(method.name for method in methods)):
            values = [*results.values(setting.name, name, key).values()]
            if estimate := Estimate.of(values):
                rows[name or _START] = (values, estimate.mean, estimate.low, estimate.high)
        drawn.append(Drawn(f"{setting.name}-{key}.svg", title, figures.dots(title, rows, colours)))
    title = f"{setting.name}: where right answers come from"
    parts = {_title(key): key for key in _MASTERY[:-1]}
    bars = {}
    for name in (None, *(method.name for method in methods)):
        means = {part: results.estimate(setting.name, name, key) for part, key in parts.items()}
        if all(means.values()):
            signs = {part: -1 if part.endswith("harm") else 1 for part in parts}
            bars[name or _START] = {part: signs[part] * each.mean for part, each in means.items() if each}
    drawn.append(Drawn(f"{setting.name}-mastery.svg", title, figures.stacks(title, bars)))
    return tuple(figure for figure in drawn if figure.svg)


def _title(key: str) -> str:
    return next(measure.title for measure in MEASURES if measure.key == key)


def _curve(results: Results, setting: Setting, method: Method, key: str) -> figures.Points:
    """Return mean and interval over seeds of a number of the training history, smoothed over updates."""
    runs = [found for found in results.runs(setting.name, method.name) if found.history.get(key)]
    if not runs:
        return []
    points = []
    for place in range(min(len(found.history[key]) for found in runs)):
        rows = (found.history[key][max(0, place + 1 - WINDOW) : place + 1] for found in runs)
        known = [[value for value in row if math.isfinite(value)] for row in rows]  # NaN: nothing was judged
        estimate = Estimate.of([math.fsum(row) / len(row) for row in known if row])
        if estimate is None:
            continue
        low, high = (estimate.low, estimate.high) if estimate.n >= _BAND_FROM else (estimate.mean, estimate.mean)
        points.append(((place + 1) * runs[0].episodes, estimate.mean, low, high))
    return points
