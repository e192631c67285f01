"""`codev eval`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from codev_env.app.arguments import parse
from codev_env.files import write_json
from codev_env.scoring.metrics import judges_boxless
from codev_env.usage import EpisodeUsage
from codev_eval.bench.evaluation import BenchEpisodes, Evaluation, FailedEpisode
from codev_eval.bench.folder import METRICS, PERTURBED, PLAIN, SCHEMA, SUITE, WITHOUT_TOOL, refuse_data_folder
from codev_eval.bench.measures import dual, evidence_gain, measure, sample_of, suite_table
from codev_eval.bench.options import EvalOptions
from codev_eval.bench.usage import taken
from codev_eval.bench.zoom import zooming_gap
from codev_eval.compare import main as compare
from codev_eval.report.cli import title_of
from codev_eval.report.condition_pages import write_condition_pages
from codev_eval.report.formats import counted
from codev_eval.report.published import announcement, comparison, comparison_text
from codev_eval.report.report import write_report
from codev_eval.report.tables import SHOWN_FAILURES, all_benches
from codev_eval.report.text import text_of, text_results


def evaluate(argv: Sequence[str]) -> int:
    """Run `codev eval` and return its exit code: 1 if any episode could not be evaluated."""
    if argv and argv[0] == "compare":
        return compare(argv[1:])
    options = parse(EvalOptions, argv, "codev eval")
    failures = run_eval(options)
    if not failures:
        return 0
    print(f"codev eval: {counted(len(failures), 'episode')} could not be evaluated:", file=sys.stderr)
    for failed in failures[:SHOWN_FAILURES]:
        where = (
            f"{failed.bench} {failed.condition}".rstrip() + " " if len(options.benches) > 1 or failed.condition else ""
        )
        print(f"  {where}task {failed.failure.index}: {failed.failure.reason}", file=sys.stderr)
    if len(failures) > SHOWN_FAILURES:
        print(f"  and {len(failures) - SHOWN_FAILURES} more, in {options.out / METRICS}", file=sys.stderr)
    again = "The same command" + (" without --overwrite" if options.overwrite else "")
    print(f"{again} tries these again, and only these.", file=sys.stderr)
    return 1


def run_eval(options: EvalOptions) -> list[FailedEpisode]:
    """Evaluate, write the results and print the table.

    Returns:
        The episodes that could not be evaluated; the metrics are about the others.

    Raises:
        ConfigError: If an option cannot be used; nothing is written then.
        EvaluationError: If not a single episode could be evaluated.
    """
    for data in options.data:
        refuse_data_folder(options.out, data)
    if options.as_:
        print(announcement(options.as_, options.fixed()), flush=True)
    played = Evaluation(options).play()
    record = results(options, played)
    if options.as_:
        record["published"] = comparison(options.as_, options.fixed(), record)
    write_json(options.out / METRICS, record)
    episodes = {folder: [t for bench in benches.values() for t in bench] for folder, benches in played.episodes.items()}
    conditions = write_condition_pages(options.out, episodes, title_of(record))
    page = write_report(options.out, episodes[PLAIN], record, title_of(record), conditions)
    print(text_results(record))
    if options.as_:
        print(comparison_text(record["published"]))
    for table in all_benches(record):
        print(f"\n{text_of(table)}")
    print(f"\nReport:  {page}\nMetrics: {options.out / METRICS}")
    return played.failed


def results(options: EvalOptions, played: BenchEpisodes) -> dict[str, Any]:
    """Return the content of metrics.json; docs/evaluation.md describes its entries."""
    everything = [t for benches in played.episodes.values() for ts in benches.values() for t in ts]
    used = taken(everything) + sum(played.failed_usage.values(), EpisodeUsage())
    boxless = judges_boxless([t for episodes in played.episodes[PLAIN].values() for t in episodes])
    sets = {bench: {"data": tasks.name, "source": tasks.source} for bench, tasks in played.tasks.items()}
    gap = zooming_gap(played.episodes[PLAIN], played.tasks, options.seed)
    return {
        "schema": SCHEMA,
        "model": options.model,
        "data": ", ".join(dict.fromkeys(tasks["data"] for tasks in sets.values())),
        "source": ", ".join(dict.fromkeys(tasks["source"] for tasks in sets.values())),
        "split": options.split,
        "scorer": options.scorer,
        "judge": options.judge,
        "max_turns": options.max_turns,
        "reward": options.reward,
        "wrap": list(options.wrap),
        "tasks": options.described(),
        "seed": options.seed,
        "samples": options.samples,
        "sets": sets,
        "usage": _usage(options, used),
        "benches": {bench: _of_bench(bench, options, played, boxless) for bench in played.tasks},
        **({"zooming_gap": gap} if gap else {}),
        "failed": [failed.row() for failed in played.failed],
        "not_tried": [
            {"bench": bench, **({"condition": condition} if condition else {}), "episodes": count}
            for (condition, bench), count in played.not_tried.items()
        ],
    }


def _of_bench(bench: str, options: EvalOptions, played: BenchEpisodes, boxless: bool) -> dict[str, Any]:
    plain, seed = played.episodes[PLAIN][bench], options.seed
    other_judge = options.judge not in ("auto", "ground_truth", "none")
    found = measure(plain, bench, seed, provenance=other_judge, boxless=boxless)
    found["usage"] = _usage(options, taken(plain) + played.failed_usage.get((PLAIN, bench), EpisodeUsage()))
    found["n_failed"] = sum(f.bench == bench and not f.condition for f in played.failed)
    found["n_not_tried"] = played.not_tried.get((PLAIN, bench), 0)
    if bench in played.at_once:
        found["at_once"] = played.at_once[bench]
    for condition, benches in played.episodes.items():
        episodes = benches[bench]
        if condition == WITHOUT_TOOL:
            found["dual"] = dual(plain, episodes, seed)
        elif condition.startswith(SUITE):
            source = [t for t in plain if sample_of(t) == 0]
            found.setdefault("suites", {})[condition.removeprefix(SUITE)] = suite_table(source, episodes, seed, boxless)
        elif condition.startswith(PERTURBED):
            gain = evidence_gain(plain, episodes, seed)
            found.setdefault("perturbed", {})[condition.removeprefix(PERTURBED)] = gain
    return found


def _usage(options: EvalOptions, used: EpisodeUsage) -> dict[str, Any]:
    """Return the content of `usage`; no entry of a judge or scorer that sent no request."""
    others = {"judge": used.judge, "scorer": used.scorer}
    cost = {"cost": options.cost(used.agent)}
    return {**used.agent, **cost, **{name: asdict(other) for name, other in others.items() if other}}
