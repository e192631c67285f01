"""`codev eval compare`: two evaluations of the same tasks, with paired intervals and McNemar's test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from codev_env.app.arguments import parse
from codev_env.app.outputs import make_folder
from codev_env.errors import ConfigError
from codev_env.files import write_json
from codev_env.scoring.clusters import clusters_of
from codev_env.scoring.med import by_task
from codev_env.scoring.metrics import (
    GIVEN,
    counts_of,
    definition_text,
    definitions_of,
    judged_episodes,
    judges_boxless,
    leaves_unjudged,
)
from codev_env.trajectory import Trajectory
from codev_eval.bench.clusters import clustered
from codev_eval.bench.folder import METRICS, PLAIN, TRAJECTORIES, read_metrics, read_played
from codev_eval.bench.measures import bench_of, sample_of
from codev_eval.bench.options import CompareOptions
from codev_eval.bench.paired import difference_interval, share, sign_flip
from codev_eval.bench.replay import judged_again
from codev_eval.bench.unchanged import question_of
from codev_eval.report.differences import compared, who_is_right
from codev_eval.report.formats import difference
from codev_eval.report.formats import share as shown
from codev_eval.report.report import write_comparison
from codev_eval.report.tables import Table
from codev_eval.report.text import text_of

RATES = ("accuracy", "faithful", "faithful_given_correct", "faithful_and_correct", "any_crop", GIVEN, "lazy")
SCHEMA = 1
RESULT, PAGE = "comparison.json", "comparison.html"


def main(argv: Sequence[str]) -> int:
    """Run `codev eval compare` and return its exit code."""
    options = parse(CompareOptions, argv, "codev eval compare")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        raise ConfigError(f"--out {options.out} is a file; give a folder.")
    (of_a, a), (of_b, b) = (_read(folder) for folder in (options.a, options.b))
    differ = _differing(of_a, of_b, ("judge", "max_turns", "samples"))
    if "scorer" in _differing(of_a, of_b, ("scorer",)):
        raise ConfigError(
            f"the answers were scored by different scorers ({of_a['scorer']!r} and {of_b['scorer']!r}), whose "
            "accuracies cannot be compared. Evaluate one of them again with the other's --scorer."
        )
    runs = [a, b]
    if options.judge_again:
        differ.pop("judge", None)
        runs = [{bench: [judged_again(t) for t in episodes] for bench, episodes in run.items()} for run in runs]
    found = compare(*runs, common=options.common, seed=options.seed)
    if options.out is not None:
        make_folder(options.out)
    record = {"schema": SCHEMA, "a": str(options.a), "b": str(options.b), "differ": differ, "benches": found}
    print("\n\n".join([*map(text_of, tables(record)), *_notes(differ)]))
    if options.out is not None:
        write_json(options.out / RESULT, record)
        named = {name: [t for bench in run.values() for t in bench] for name, run in zip("AB", runs, strict=True)}
        differences = [compared(bench, row) for bench, row in found.items()]
        facts = {"A": str(options.a), "B": str(options.b)}
        facts |= {name.replace("_", " "): f"{pair['a']} (A), {pair['b']} (B)" for name, pair in differ.items()}
        page = write_comparison(options.out / PAGE, named, differences, _title(record), facts)
        print(f"\nReport:  {page}")
    return 0


def compare(
    a: Mapping[str, Sequence[Trajectory]],
    b: Mapping[str, Sequence[Trajectory]],
    *,
    common: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare the plain episodes of two evaluations.

    Args:
        a: Episodes by benchmark.
        b: The same benchmarks by another run.
        common: Leave out tasks that only one of them has.
        seed: Seeds the bootstrap.

    Returns:
        For each benchmark `tasks`; `rates`, each with `a`, `b`, `difference` (b - a) and its paired `ci95` over tasks;
        and `mcnemar` of the first samples, with the tasks that `both`, `only_a`, `only_b` and `neither` have right, and
        the exact two-sided `p` over questions.

    Raises:
        ConfigError: If the two did not evaluate the same tasks, or judged by different definitions of *faithful*.
    """
    if a.keys() != b.keys():
        raise ConfigError(f"the benchmarks differ: {', '.join(a)} and {', '.join(b)}. Evaluate the same ones.")
    boxless = _boxless(*([t for episodes in run.values() for t in episodes] for run in (a, b)))
    return {bench: _compare_bench(bench, a[bench], b[bench], common, seed, boxless) for bench in a}


def _boxless(a: Sequence[Trajectory], b: Sequence[Trajectory]) -> tuple[bool, bool]:
    """Whether each run was judged by a judge that needs no boxes; a run without any call takes it from the other."""
    either = judges_boxless([*a, *b])
    left, right = (judges_boxless(run) or (either and not leaves_unjudged(run)) for run in (a, b))
    return left, right


def _compare_bench(
    bench: str,
    a: Sequence[Trajectory],
    b: Sequence[Trajectory],
    common: bool,
    seed: int,
    boxless: tuple[bool, bool],
) -> dict[str, Any]:
    of_a, of_b = by_task(a), by_task(b)
    names = [name for name in of_a if name in of_b]
    _check_tasks(bench, of_a, of_b, names, common)
    definition = _definition(bench, a, b)
    judged_a, judged_b = (by_task(judged_episodes(run, each)) for run, each in zip((a, b), boxless, strict=True))
    clusters = clusters_of([_first(of_a[name]) for name in names])
    rates = {}
    for rate in RATES:
        left, right = (
            [counts_of(rate, group[name], judged.get(name, ())) for name in names]
            for group, judged in ((of_a, judged_a), (of_b, judged_b))
        )
        by_a, by_b = clustered(left, clusters), clustered(right, clusters)
        x, y = share(left), share(right)
        rates[rate] = {
            "a": x,
            "b": y,
            "difference": None if x is None or y is None else y - x,
            "ci95": None if x is None or y is None else difference_interval(by_a, by_b, seed),
        }
    table = {(x, y): 0 for x in (True, False) for y in (True, False)}
    gained: Counter[Hashable] = Counter()
    for name, cluster in zip(names, clusters, strict=True):
        before, after = _first(of_a[name]).is_correct, _first(of_b[name]).is_correct
        table[before, after] += 1
        gained[cluster] += after - before
    counted = {
        "both": table[True, True],
        "only_a": table[True, False],
        "only_b": table[False, True],
        "neither": table[False, False],
    }
    return {
        "tasks": len(names),
        "faithful_definition": definition,
        "rates": rates,
        "mcnemar": counted | {"p": sign_flip(list(gained.values()))},
    }


def _check_tasks(bench: str, a: Mapping[str, Any], b: Mapping[str, Any], names: Sequence[str], common: bool) -> None:
    if not names:
        raise ConfigError(f"{bench}: no task is in both runs, so there is nothing to compare.")
    only = [[name for name in x if name not in y] for x, y in ((a, b), (b, a))]
    if any(only) and not common:
        example = (only[0] or only[1])[0]
        raise ConfigError(
            f"{bench}: {len(only[0])} tasks are only in the first run and {len(only[1])} only in the second, such as "
            f"{example!r}. Evaluate the same tasks, or add --common for the {len(names)} that both have."
        )
    for name in names:
        # The same name for another question, or other options in another order, is another task.
        if question_of(_first(a[name])) != question_of(_first(b[name])):
            raise ConfigError(f"{bench}: task {name!r} differs between the runs (question, choices or answer).")


def _definition(bench: str, a: Sequence[Trajectory], b: Sequence[Trajectory]) -> str | None:
    """The definition of *faithful* by which both runs were judged; `None` where one of them has no judged call."""
    definitions = definitions_of([*a, *b])
    if len(definitions) > 1:
        raise ConfigError(
            f"{bench}: the runs were judged by different definitions of faithful ({', '.join(definitions)}), whose "
            "rates cannot be compared. Add --judge-again to judge the recorded crops of both by the target boxes, or "
            "evaluate again."
        )
    return definition_text(definitions)


def _first(group: Sequence[Trajectory]) -> Trajectory:
    return min(group, key=sample_of)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, list[Trajectory]]]:
    """Return the content of metrics.json, and the plain episodes by benchmark."""
    if not (folder / METRICS).is_file():
        raise ConfigError(f"{folder} holds no {METRICS}; give the folder of a finished `codev eval`.")
    metrics = read_metrics(folder)
    benches = list(metrics["benches"])
    episodes = read_played(folder)[PLAIN]
    if not episodes:
        raise ConfigError(f"{folder} holds {METRICS}, but no episodes: restore {TRAJECTORIES}, or evaluate again.")
    # A run with one benchmark need not name it in each episode.
    only = benches[0] if len(benches) == 1 else None
    return metrics, {bench: [t for t in episodes if (bench_of(t) or only) == bench] for bench in benches}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings that differ, those left out that a run of an earlier version does not name."""
    return {n: {"a": a[n], "b": b[n]} for n in names if n in a and n in b and a[n] != b[n]}


def _notes(differ: Mapping[str, Mapping[str, Any]]) -> list[str]:
    told = [f"--{name.replace('_', '-')} {pair['a']} (A) and {pair['b']} (B)" for name, pair in differ.items()]
    return [f"The runs had other options: {', '.join(told)}."] if told else []


def tables(record: Mapping[str, Any]) -> list[Table]:
    """Return the comparison as tables: for each benchmark the rates, and the tasks that each run has right."""
    found = []
    for bench, row in record["benches"].items():
        rates = tuple(
            (name.replace("_", " "), shown(r["a"]), shown(r["b"]), difference(r["difference"], r["ci95"]))
            for name, r in row["rates"].items()
        )
        note = f"{row['tasks']} tasks, 95 % intervals by paired bootstrap"
        if row["faithful_definition"]:
            note += f"; definition of faithful: {row['faithful_definition']}"
        found.append(Table(bench, note, ("", "A", "B", "B - A"), rates))
        found.append(who_is_right(bench, row["mcnemar"]))
    return found


def _title(record: Mapping[str, Any]) -> str:
    """Return the names of both folders, or as much of their paths as differs."""
    a, b = (list(Path(record[run]).resolve().parts[1:]) for run in "ab")
    while a != b and len(a) > 1 and len(b) > 1 and a[-1] == b[-1]:
        a.pop(), b.pop()
    return f"{a[-1]} and {b[-1]}" if a and b else "Comparison"
