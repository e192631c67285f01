"""An evaluation's metrics beyond the main rates, as tables: the same for the terminal and for the report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codev_eval.bench.suspicions import SUSPICIONS
from codev_eval.report.formats import UNDEFINED, difference, points, share, with_interval

CATEGORIES, SCORE, PLACES = "By category", "Score", "Place of the crops"
SHOWN_FAILURES = 20
"""Most episodes that the page and the terminal name of those that could not be evaluated."""
NUMBER = re.compile(r"[-+]?\d|–|$")
NARROW_COLUMNS, NARROW_TEXT = 4, 40
"""Most columns, and characters of a cell, of a table that shares a line of the page with another one."""


@dataclass(frozen=True)
class Table:
    """A table of text: title, note, heads of the columns, and rows whose first cell is their name."""

    title: str
    note: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds numbers, which are aligned on the right."""
        columns = zip(*self.rows, strict=True)
        return tuple(number > 0 and all(NUMBER.match(cell) for cell in cells) for number, cells in enumerate(columns))

    @property
    def prose(self) -> bool:
        """Whether the last column is text, which narrow screens show below the others."""
        return len(self.heads) > 2 and not self.numeric[-1]

    @property
    def wide(self) -> bool:
        """Whether the table needs a whole line of the page."""
        return len(self.heads) > NARROW_COLUMNS or any(len(cell) > NARROW_TEXT for row in self.rows for cell in row)


def tables(metrics: Mapping[str, Any]) -> list[Table]:
    """Return the tables of one benchmark, without those of protocols that the evaluation did not include."""
    return [table for table in _all(metrics) if table.rows]


def page_tables(metrics: Mapping[str, Any]) -> list[Table]:
    """Return the tables of one benchmark that repeat no number which its page shows elsewhere.

    The page has tiles with the same rates and plots of the places of the crops.
    """
    groups = _of(metrics, "by_category")
    rates = {name: row["accuracy"] for name, row in groups} | {"overall": metrics.get("accuracy")}
    score = metrics.get("score") or {}
    left_out = {PLACES}
    if len(groups) == 1:
        left_out.add(CATEGORIES)
    if all(rates.get(name) == value for name, value in score.items()):
        left_out.add(SCORE)
    return [table for table in tables(metrics) if table.title not in left_out]


def _all(metrics: Mapping[str, Any]) -> Iterator[Table]:
    heads = ("n", "accuracy", "faithful", "given correct", "and correct", "any crop")
    names = ("accuracy", "faithful", "faithful_given_correct", "faithful_and_correct", "any_crop")
    for grouping, title in (("by_category", "category"), ("by_variant", "variant")):
        rows = [(name, str(row["n"]), *(share(row.get(key)) for key in names)) for name, row in _of(metrics, grouping)]
        yield Table(f"By {title}", "", (title, *heads), tuple(rows))
    score = metrics.get("score") or {}
    how = "mean over the variants" if "by_variant" in metrics else "totalled as the benchmark's authors do"
    rows = [(name, share(value)) for name, value in sorted(score.items(), key=lambda item: item[0] != "overall")]
    yield Table(SCORE, how, ("part", "score"), tuple(rows))
    yield Table(
        "pass@k",
        "some of k samples is right",
        ("k", "pass@k"),
        tuple((k, with_interval(row["value"], row["ci95"])) for k, row in _of(metrics, "pass_at")),
    )
    yield _confusion(metrics)
    yield _dual(metrics.get("dual") or {}, "Does the tool help?", "without the tool")
    yield _dual(metrics.get("at_once") or {}, "Does it help over an answer at once?", "before a look")
    yield _perturbed(metrics)
    for name, suite in _of(metrics, "suites"):
        yield from _suite(name, suite)
    yield _provenance(metrics.get("provenance") or {}, str(metrics.get("provenance_definition") or ""))
    yield Table(
        PLACES,
        "best crop and target of each episode that has both",
        ("", "n", "mean", "quartiles"),
        tuple(
            (label, str(found["n"]), f"{found['mean']:.2f}", ", ".join(f"{q:.2f}" for q in found["quartiles"]))
            for key, label in (("coverage", "share of the target in the crop"), ("iou", "IoU of crop and target"))
            if (found := metrics.get(key)) and found.get("n")
        ),
    )
    counted = metrics.get("suspected") or {}
    yield Table(
        "Hacks suspected",
        "signs that an episode only pretends to look; the report can filter by each",
        ("sign", "episodes", "meaning"),
        tuple((name, str(count), SUSPICIONS.get(name, "")) for name, count in counted.items() if count),
    )


def all_benches(record: Mapping[str, Any]) -> list[Table]:
    """Return one table with a row for each benchmark of an evaluation of several; none for a single one.

    Args:
        record: The content of metrics.json.
    """
    found: Mapping[str, Mapping[str, Any]] = record["benches"]
    if len(found) < 2:
        return []
    used = record["usage"]
    heads = [
        "benchmark",
        "data",
        "n",
        "failed",
        "accuracy",
        "score",
        "faithful",
        "and correct",
        "any crop",
        "tool calls",
    ]
    heads += ["tokens"] * bool(used["requests"]) + ["cost"] * bool(used.get("cost"))
    rows = []
    for name, metrics in found.items():
        total = (metrics.get("score") or {}).get("overall")
        tokens = metrics.get("usage") or {}
        spent = {"tokens": str(_tokens(tokens)), "cost": f"{tokens.get('cost', 0):.2f}"}
        calls = metrics.get("tool_calls")
        row = [
            name,
            record["sets"][name]["source"],
            str(metrics["n"]),
            str(metrics.get("n_failed", 0)),
            with_interval(metrics["accuracy"], (metrics.get("ci95") or {}).get("accuracy")),
            UNDEFINED if total is None else with_interval(total, metrics.get("score_ci95")),
            share(metrics.get("faithful")),
            share(metrics.get("faithful_and_correct")),
            share(metrics.get("any_crop")),
            UNDEFINED if calls is None else f"{calls:.2f}",
        ]
        rows.append((*row, *(spent[head] for head in heads[len(row) :])))
    note = "score: the total of the benchmark's authors; faithful, and any crop as in papers: among the judged episodes"
    found_tables = [Table("All benchmarks", note, tuple(heads), tuple(rows))]
    if gap := record.get("zooming_gap"):
        cells = (
            str(gap["n"]),
            share(gap["accuracy_whole"]),
            share(gap["accuracy_crop"]),
            _gain(gap["gap"], gap["gap_ci95"]),
        )
        found_tables.append(
            Table("Zooming gap", "ZoomBench", ("", "questions", "whole", "crop", "gap"), (("accuracy", *cells),))
        )
    return found_tables


def _tokens(used: Mapping[str, Any]) -> int:
    return used.get("prompt_tokens", 0) + used.get("completion_tokens", 0)


def failures(record: Mapping[str, Any], bench: str) -> list[Table]:
    """Return a table of the episodes of a benchmark that could not be evaluated; none if there are none.

    Args:
        record: The content of metrics.json.
        bench: The benchmark.
    """
    found = [row for row in record.get("failed") or () if row["bench"] == bench]
    rows = tuple(
        (str(row["index"]), str(row["sample"] + 1), str(row.get("condition", "")), str(row["reason"]))
        for row in found[:SHOWN_FAILURES]
    )
    more = f"the first {SHOWN_FAILURES} of {len(found)}; " if len(found) > SHOWN_FAILURES else ""
    note = f"{more}in no rate; the same command tries them again"
    return [Table("Not evaluated", note, ("task", "sample", "condition", "reason"), rows)] if rows else []


def _of(metrics: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    found = metrics.get(name)
    return list(found.items()) if isinstance(found, Mapping) else []


def _confusion(metrics: Mapping[str, Any]) -> Table:
    found = metrics.get("confusion")
    rows: list[tuple[str, ...]] = []
    if found and any(found.values()):
        for kind in ("faithful", "unfaithful"):
            rows.append((kind, str(found[f"{kind}_correct"]), str(found[f"{kind}_wrong"])))
    return Table("Faithful and correct", "episodes whose tool calls were judged", ("", "correct", "wrong"), tuple(rows))


def _dual(found: Mapping[str, Any], title: str, without: str) -> Table:
    labels = {
        "accuracy_without": f"accuracy {without}",
        "accuracy_with": "accuracy with the tool",
        "gain": "gain",
        "call_gain": "+ wrong without, right with a call",
        "schema_gain": "+ wrong without, right with no call",
        "call_harm": "- right without, wrong with a call",
        "schema_harm": "- right without, wrong with no call",
    }
    rows = tuple(
        (text, _gain(found[key], found["gain_ci95"]) if key == "gain" else share(found[key]))
        for key, text in labels.items()
        if found
    )
    return Table(title, "MED: the gain is the sum of its four terms", ("", "share"), rows)


def _gain(value: Any, interval: Sequence[float] | None) -> str:
    """A difference with its interval; alone where all tasks differ alike, which gives no interval."""
    return difference(value, interval) if interval else points(value)


def _perturbed(metrics: Mapping[str, Any]) -> Table:
    heads = (
        "tool output",
        "accuracy",
        "visual evidence gain",
        "episodes with an image",
        "their gain",
        "answer changed",
    )
    rows = [
        (
            name,
            share(row["accuracy_perturbed"]),
            _gain(row["visual_evidence_gain"], row["visual_evidence_gain_ci95"]),
            str(row["n_looked"]),
            points(row["gain_looked"]),
            share(row["answer_changed"]),
        )
        for name, row in _of(metrics, "perturbed")
    ]
    if rows:
        rows = [("as it is", share(_of(metrics, "perturbed")[0][1]["accuracy"]), "", "", "", ""), *rows]
    return Table("Does it use what it saw?", "accuracy where tool outputs are replaced", heads, tuple(rows))


def _suite(name: str, suite: Mapping[str, Any]) -> Iterator[Table]:
    rows = suite["variants"]
    graded = {key for key in rows if ":" in key and "+" not in key}
    plain = [
        (key, str(row["n"]), share(row["accuracy"]), share(row["faithful"]))
        for key, row in rows.items()
        if key not in graded
    ]
    mean = ("average", "", share(suite["mean"]["accuracy"]), share(suite["mean"]["faithful"]))
    note = "the average includes the source"
    if len(names := {str(row["faithful_definition"]) for row in rows.values() if row.get("faithful_definition")}) > 1:
        note += f"; different definitions of faithful: {'; '.join(sorted(names))}"
    yield Table(f"Suite {name}", note, ("variant", "n", "accuracy", "faithful"), (*plain, mean))
    severities = sorted({key.partition(":")[2] for key in graded})
    for rate in ("accuracy", "faithful"):
        grid = [
            (kind, *(share(rows[f"{kind}:{s}"][rate]) if f"{kind}:{s}" in rows else "" for s in severities))
            for kind in dict.fromkeys(key.partition(":")[0] for key in rows if key in graded)
        ]
        heads = ("corruption", *(f"severity {s}" for s in severities))
        yield Table(f"Suite {name}: {rate} by severity", "", heads, tuple(grid))


def _provenance(found: Mapping[str, Any], definition: str) -> Table:
    labels = {
        "faithful": "faithful by target boxes",
        "faithful_given_correct": "the same, given correct",
        "faithful_and_correct": "the same, and correct",
        "agreement": "the judge agrees in",
    }
    if not found.get("n"):  # no task has boxes to compare with
        return Table("The judge against target boxes", definition, (), ())
    rows = [(text, share(found[key])) for key, text in labels.items()]
    rows.append(("Cohen's kappa", UNDEFINED if found["kappa"] is None else f"{found['kappa']:.2f}"))
    return Table("The judge against target boxes", definition, ("", f"{found['n']} episodes"), tuple(rows))
