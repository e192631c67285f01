"""What a study found, as files: numbers, figures, and a page of text with tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from codev_env.files import write_json, write_text
from codev_eval.report.plots import running_mean
from codev_eval.study import figures
from codev_eval.study.claims import Claim, claims
from codev_eval.study.methods import Method, Setting
from codev_eval.study.numbers import NUMBERS, SCHEMA, setting_numbers
from codev_eval.study.results import CURVES, MEASURES, WINDOW, Estimate, Measure, Results

PAGE, HTML = "study.md", "study.html"
_BAND_FROM = 3
"""Seeds from which curves show their interval: that of two seeds would cover all others."""
_BY_SEED = ("faithful_given_correct", "no_cue")
_MAIN = ("accuracy", "faithful", "faithful_given_correct", "tool_calls", "lazy", "no_cue", "evidence")


def write(
    out: Path, results: Results, settings: Sequence[Setting], methods: Sequence[Method], facts: Mapping[str, Any]
) -> Path:
    """Write everything to `out`; returns the page.

    Args:
        out: Folder.
        results: What was found.
        settings: Settings, in the order of the page.
        methods: Methods, in the order of its tables.
        facts: What the page says about how it was made.
    """
    pages, numbers = [_head(results, facts)], {}
    for setting in settings:
        if not any(found.run.setting.name == setting.name for found in results.found):
            continue
        drawn = _figures(results, setting, methods)
        for name, svg in drawn.items():
            write_text(out / name, svg)
        found = [*claims(results, setting.name)]
        pages.append(_section(results, setting, methods, found, drawn))
        numbers[setting.name] = setting_numbers(results, setting, methods, found)
    write_json(out / NUMBERS, {"schema": SCHEMA, "facts": dict(facts), "settings": numbers})
    text = "\n".join(pages)
    write_text(out / HTML, _html(text, out))
    write_text(out / PAGE, text)
    return out / PAGE


def _head(results: Results, facts: Mapping[str, Any]) -> str:
    machines = sorted({found.machine for found in results.found})
    sources = ", ".join(f"{name}: {value}" for name, value in facts.items())
    sources += f", on {'; '.join(machines)}"
    seconds = math.fsum(found.seconds for found in results.found)
    return (
        "# The study: what rewards make of the same policy\n\n"
        "Every method trains from the same cold start of a seed, on the same tasks, with the same number of episodes; "
        "only reward, judge, credit or choice of tasks differ. Held-out scenes, greedy answers. Numbers are means over "
        "seeds; in brackets the 95 % interval of that mean (Student's t), so it covers other starts and other samples, "
        "not other models or other tasks. Where methods are compared, the same seeds are. Curves show their interval "
        f"from {_BAND_FROM} seeds on.\n\n"
        f"{sources}; {seconds / 3600:.1f} hours of training in all.\n"
    )


def _section(
    results: Results, setting: Setting, methods: Sequence[Method], found: Sequence[Claim], drawn: Mapping[str, str]
) -> str:
    lines = [f"## {setting.name}: {setting.about}", ""]
    lines += [f"![{_title(svg)}]({name})" for name, svg in drawn.items()] + [""]
    lines += ["### What was found", "", "| claim | verdict | measured |", "| --- | --- | --- |"]
    lines += [f"| {claim.text} | **{claim.verdict}** | {claim.measured} |" for claim in found] + [""]
    for title, keys in (("Main measures", _MAIN), ("All others", [m.key for m in MEASURES if m.key not in _MAIN])):
        lines += [f"### {title}", ""] + [*_table(results, setting, methods, keys)] + [""]
    lines += ["### Seed by seed", "", *_seed_table(results, setting, methods), ""]
    lines += ["### What each is", ""]
    lines += [f"- **{m.name}**: {m.about}" for m in methods if results.runs(setting.name, m.name)]
    lines += [f"- *{measure.title}*: {measure.meaning}" for measure in MEASURES] + [""]
    return "\n".join(lines)


def _table(results: Results, setting: Setting, methods: Sequence[Method], keys: Sequence[str]) -> Iterator[str]:
    chosen = [measure for measure in MEASURES if measure.key in keys]
    yield f"| method | seeds | {' | '.join(measure.title for measure in chosen)} |"
    yield f"| --- | --- |{' --- |' * len(chosen)}"
    for name in (None, *(method.name for method in methods)):
        seeds = [found.run.seed for found in results.runs(setting.name, name)]
        if seeds:
            cells = [_cell(results.estimate(setting.name, name, measure.key), measure) for measure in chosen]
            yield f"| {name or 'the start'} | {_spans(seeds)} | {' | '.join(cells)} |"


def _seed_table(results: Results, setting: Setting, methods: Sequence[Method]) -> Iterator[str]:
    """The two measures that matter most for each run: means hide a method that learns from some starts only."""
    names = [None, *(method.name for method in methods if results.runs(setting.name, method.name))]
    values = {name: [results.values(setting.name, name, key) for key in _BY_SEED] for name in names}
    seeds = sorted({seed for both in values.values() for each in both for seed in each})
    titles = " / ".join(next(measure.title for measure in MEASURES if measure.key == key) for key in _BY_SEED)
    yield f"| {titles}, % | {' | '.join(map(str, seeds))} |"
    yield f"| --- |{' --- |' * len(seeds)}"
    for name, both in values.items():
        cells = [" / ".join(f"{100 * each[seed]:.1f}" for each in both if seed in each) or "–" for seed in seeds]
        yield f"| {name or 'the start'} | {' | '.join(cells)} |"


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
        return text  # Where all seeds agree, an interval of no width would claim too much.
    # Student's interval knows nothing of the ends that a share or a count cannot pass.
    least = -1.0 if measure.signed else 0.0
    low, high = max(least, estimate.low), min(1.0, estimate.high) if measure.share else estimate.high
    return f"{text} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]"


def _figures(results: Results, setting: Setting, methods: Sequence[Method]) -> dict[str, str]:
    """Return the figures by file name."""
    drawn = {}
    ordered = sorted(methods, key=lambda m: not m.curve)  # There are fewer colours than methods.
    colours = {m.name: figures.COLOURS[number % len(figures.COLOURS)] for number, m in enumerate(ordered)}
    for key, title in CURVES.items():
        series = {m.name: _curve(results, setting, m, key) for m in methods if m.curve}
        drawn[f"{setting.name}-{key}.svg"] = figures.curves(f"{setting.name}: {title}", "episodes", series, colours)
    for key in ("faithful_given_correct", "no_cue", "evidence"):
        measure = next(measure for measure in MEASURES if measure.key == key)
        rows = {}
        for name in (None, *(method.name for method in methods)):
            values = [*results.values(setting.name, name, key).values()]
            if estimate := Estimate.of(values):
                rows[name or "the start"] = (values, estimate.mean, estimate.low, estimate.high)
        drawn[f"{setting.name}-{key}.svg"] = figures.dots(f"{setting.name}: {measure.title}", rows, colours)
    return {name: svg for name, svg in drawn.items() if svg}


def _curve(results: Results, setting: Setting, method: Method, key: str) -> figures.Points:
    """Return mean and interval over seeds of a number of the training history, smoothed over updates."""
    runs = [found for found in results.runs(setting.name, method.name) if found.history.get(key)]
    if not runs:
        return []
    smooth = [running_mean(found.history[key], WINDOW) for found in runs]
    points = []
    for place, values in enumerate(zip(*smooth, strict=False)):
        estimate = Estimate.of(values)
        assert estimate is not None
        low, high = (estimate.low, estimate.high) if estimate.n >= _BAND_FROM else (estimate.mean, estimate.mean)
        points.append(((place + 1) * runs[0].episodes, estimate.mean, low, high))
    return points


def _title(svg: str) -> str:
    found = re.search(r'aria-label="([^"]*)"', svg)
    return found[1] if found else ""


def _html(text: str, out: Path) -> str:
    """Turn the page into one file: headings, paragraphs, lists, tables, and the figures in place."""
    body: list[str] = []
    for block in text.split("\n\n"):
        lines = block.strip().splitlines()
        if not lines:
            continue
        if lines[0].startswith("#"):
            depth = len(lines[0]) - len(lines[0].lstrip("#"))
            body.append(f"<h{depth}>{_inline(lines[0][depth:].strip())}</h{depth}>")
        elif lines[0].startswith("!["):
            names = re.findall(r"\]\(([^)]*)\)", block)
            body += [f"<figure>{(out / name).read_text('utf-8')}</figure>" for name in names]
        elif lines[0].startswith("|"):
            body.append(_html_table(lines))
        elif lines[0].startswith("- "):
            body.append("<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>")
        else:
            body.append(f"<p>{_inline(' '.join(lines))}</p>")
    style = (
        ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;"
        "padding:0 1rem}table{border-collapse:collapse;display:block;overflow-x:auto;font-size:14px}"
        "td,th{border-bottom:1px solid #8884;padding:.35rem .6rem;text-align:left;vertical-align:top}"
        "figure{display:inline-block;width:min(100%,34rem);margin:.5rem 0}"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Study</title><style>{style}</style><main>{''.join(body)}</main></html>\n"
    )


def _html_table(lines: Sequence[str]) -> str:
    rows = [[_inline(cell.strip()) for cell in line.strip("|").split("|")] for line in lines if "---" not in line]
    head = "".join(f"<th>{cell}</th>" for cell in rows[0])
    rest = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rest}</tbody></table>"


def _inline(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
    return re.sub(r"\*(.+?)\*", r"<i>\1</i>", text)
