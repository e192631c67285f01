"""What a study makes of its numbers: means over seeds, pairs, claims, figures, the page."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from codev_env.errors import ConfigError
from codev_eval.study import figures, page
from codev_eval.study.claims import Claim, claims
from codev_eval.study.cli import main
from codev_eval.study.jobs import Run, StudySize
from codev_eval.study.methods import ABLATIONS, IMITATION, METHODS, SETTINGS, Method, Setting, find
from codev_eval.study.numbers import NUMBERS, joined, read_numbers
from codev_eval.study.options import StudyOptions
from codev_eval.study.results import MEASURES, Estimate, Found, Results, check_definitions, learned_after

BASE = SETTINGS[0]
BY_NAME = {method.name: method for method in (*METHODS, *ABLATIONS)}
MINE = Method("mine", "as one likes")


def found(name: str | None, seed: int, faithful_rows: tuple[float, ...] = (), **values: float) -> Found:
    method = BY_NAME[name] if name else None
    history = {"faithful": faithful_rows, "accuracy": [0.5] * len(faithful_rows)} if name else {}
    learned = learned_after(faithful_rows, 100)
    return Found(Run(BASE, seed, method), values, history, 100, 60.0, learned, f"weights{seed}", "a laptop")


def test_runs_of_different_definitions_of_faithful_are_not_compared():
    old, new = found("tapo", 0), dataclasses.replace(found("tapo", 1), definition="boxes 2")
    without_calls = dataclasses.replace(found(None, 2), definition="")
    check_definitions([new, new, without_calls])
    check_definitions([old, old])
    with pytest.raises(ConfigError, match=r"boxes 2 \(such as base.*seed1.*\); unversioned"):
        check_definitions([old, new, without_calls])


def test_a_study_that_is_read_back_keeps_its_definition(tmp_path):
    mine = dataclasses.replace(found("tapo", 1, (0.5,), accuracy=0.5), definition="boxes 2")
    facts = {"seeds": "1"}
    page.write(tmp_path, Results([mine]), [BASE], [BY_NAME["tapo"]], facts)
    file = tmp_path / NUMBERS
    assert [one.definition for one in read_numbers(file, [BASE], [BY_NAME["tapo"]], {})] == ["boxes 2"]
    record = json.loads(file.read_text())
    del record["settings"]["base"]["methods"]["tapo"]["runs"][0]["definition"]  # as older files are
    file.write_text(json.dumps(record))
    (older,) = read_numbers(file, [BASE], [BY_NAME["tapo"]], {})
    other = dataclasses.replace(mine, run=Run(BASE, 2, BY_NAME["tapo"]))
    with pytest.raises(ConfigError, match="different definitions"):
        check_definitions(joined([other], file, [older]))


def test_a_page_may_be_of_studies_made_elsewhere_alone(tmp_path, capsys):
    scale = {field.name: getattr(StudyOptions(), field.name) for field in dataclasses.fields(StudySize)}
    page.write(tmp_path, Results([found("tapo", 1, (0.5,), accuracy=0.5)]), [BASE], [BY_NAME["tapo"]], scale)
    words = ["tapo", "--report", "--out", str(tmp_path / "joined"), "--also", str(tmp_path / NUMBERS)]
    assert main(words) == 0 and "| tapo | 1 | 50.0 % |" in (tmp_path / "joined" / "study.md").read_text()
    with pytest.raises(ConfigError, match="is of a study with steps 60, not 3"):
        main([*words[:3], str(tmp_path / "other"), *words[4:], "--steps", "3"])
    assert not (tmp_path / "other").exists()


def test_a_study_made_elsewhere_is_read_before_the_first_job(tmp_path, monkeypatch):
    monkeypatch.setattr("codev_eval.study.cli.Runner", lambda *_, **__: pytest.fail("a job began"))
    with pytest.raises(ConfigError, match=r"missing\.json cannot be read as the study\.json of a study"):
        main(["tapo", "--out", str(tmp_path / "study"), "--also", str(tmp_path / "missing.json")])


def test_the_interval_is_students():
    estimate = Estimate.of([1.0, 2.0, 3.0])
    half = 4.303 / math.sqrt(3)
    assert (estimate.mean, estimate.n) == (2.0, 3)
    assert (estimate.low, estimate.high) == pytest.approx((2 - half, 2 + half), abs=1e-3)
    assert Estimate.of([]) is None
    alone = Estimate.of([0.5])
    assert (alone.mean, alone.low, alone.high) == (0.5, -math.inf, math.inf)


@pytest.mark.parametrize(("seeds", "t"), [(31, 2.042), (32, 2.040), (41, 2.021), (61, 2.000), (121, 1.980)])
def test_the_interval_of_many_seeds_is_students_too(seeds, t):
    values = [float(i % 2) for i in range(seeds)]
    estimate = Estimate.of(values)
    assert estimate.high - estimate.mean == pytest.approx(t * statistics.stdev(values) / math.sqrt(seeds), rel=5e-4)


def test_differences_are_of_pairs():
    results = Results(
        [found("tapo", seed, accuracy=a) for seed, a in ((0, 0.5), (1, 0.7), (2, 0.1))]
        + [found("outcome", seed, accuracy=a) for seed, a in ((1, 0.6), (0, 0.3))]
    )
    difference = results.difference("base", "tapo", "outcome", "accuracy")
    assert difference.n == 2 and difference.mean == pytest.approx(0.15)
    assert results.difference("base", "tapo", "taco", "accuracy") is None
    assert results.estimate("elsewhere", "tapo", "accuracy") is None


def test_learned_after_so_many_episodes():
    assert learned_after((0.0, 1.0, 1.0, 1.0, 1.0, 1.0), 100) == 600
    assert learned_after((0.9, 0.9, 0.9, 0.9, 0.9), 100) == 500
    assert learned_after((1.0, 1.0, 1.0, 1.0, 0.0), 100) == math.inf


def without_ablations(results: Results) -> list[Claim]:
    return [claim for claim in claims(results, "base") if "if changed so" not in claim.text]


def verdicts(results: Results) -> dict[str, str]:
    return {
        claim.text.split(" ")[0] + " " + claim.text.split(" ")[1]: claim.verdict for claim in claims(results, "base")
    }


def test_claims_are_decided_by_whole_intervals():
    def results(gain: float, spread: float) -> Results:
        runs = []
        for seed, shift in enumerate((-spread, 0.0, spread)):
            runs += [
                found(None, seed, faithful=0.1),
                found("outcome", seed, faithful=0.05, faithful_given_correct=0.1, accuracy=0.9),
                found("tapo", seed, faithful=0.9, faithful_given_correct=0.1 + gain + shift, accuracy=0.9, no_cue=0.4),
            ]
        return Results(runs)

    assert verdicts(results(0.8, 0.01))["TAPO raises"] == "holds"
    assert verdicts(results(0.4, 0.01))["TAPO raises"] == "does not hold"
    assert verdicts(results(0.65, 0.2))["TAPO raises"] == "undecided"
    told = verdicts(results(0.8, 0.01))
    assert told["Rewarding the"] == told["TAPO costs"] == told["TAPO's policy"] == "holds"
    assert told["Rewarding any"] == told["Turn credit"] == told["TACO's reward"] == "not measured"
    more = [found("taco", seed, faithful_given_correct=0.9, no_cue=0.95) for seed in range(3)]
    more += [found(None, seed, faithful_given_correct=0.01 * seed) for seed in range(3)]
    assert (told := verdicts(Results(more)))["TACO's reward"] == "holds" and told["TACO's policy"] == "does not hold"


@pytest.mark.parametrize(
    ("seen", "worst", "decided"),
    [
        (0.97, 0.96, ["holds"] * 6),
        (0.97, 0.87, ["undecided", "does not hold", "holds", "holds", "holds", "holds"]),
        (0.85, 0.85, ["does not hold", "does not hold", "holds", "holds", "holds", "holds"]),
    ],
)
def test_self_imitation_is_held_to_what_it_is_to_reach(seen, worst, decided):
    runs = [found("tapo", seed, accuracy=0.9, no_cue=0.6) for seed in range(4)]
    for seed in range(4):
        value = worst if seed == 2 else seen
        runs += [
            found(name, seed, accuracy=0.95, no_cue=value, faithful_given_correct=0.99)
            for name in ("imitation", "imitation-noise10")
        ]
    runs = [dataclasses.replace(r, seconds=120.0 if "imitation" in r.run.method.name else 100.0) for r in runs]
    told = without_ablations(Results(runs))[-8:-2]
    assert [claim.verdict for claim in told] == decided
    assert told[1].measured == f"cue-free accuracy of seed {2 if worst < seen else 0}: {100 * worst:.1f} %"
    slow = [dataclasses.replace(r, seconds=1.4 * r.seconds) if r.run.method.name != "tapo" else r for r in runs]
    assert without_ablations(Results(slow))[-4].verdict == "does not hold"


@pytest.mark.parametrize(
    ("seconds", "measured"),
    [
        ((110, 120, 130), "1.20 [0.95, 1.45], 3 seeds"),
        ((110, 0, 120, 130), "1.20 [0.95, 1.45], 3 seeds"),  # one was not measured
        ((120,), "1.20 (one seed)"),
    ],
)
def test_the_time_of_self_imitation_is_told_with_its_interval(seconds, measured):
    runs = []
    for seed, taken in enumerate(seconds):
        runs += [dataclasses.replace(found("tapo", seed), seconds=100.0)]
        runs += [dataclasses.replace(found("imitation", seed), seconds=taken)]
    (claim,) = (claim for claim in claims(Results(runs), "base") if "times the time" in claim.text)
    assert claim.measured == f"seconds of training, imitation over tapo: {measured}"
    assert claim.verdict == "undecided"


@pytest.mark.parametrize(
    ("tool", "harm", "decided"),
    [
        (0.4, 0.005, ["holds", "holds"]),
        (0.1, 0.005, ["does not hold", "holds"]),
        (0.4, 0.05, ["holds", "does not hold"]),
    ],
)
def test_mastery_is_what_the_tool_gives(tool, harm, decided):
    runs = []
    for seed in range(4):
        runs += [
            found(None, seed, accuracy=0.5, tool_gain=0.1),
            found("imitation", seed, accuracy=0.9, tool_gain=0.1 + tool, call_harm=harm, schema_harm=0.0),
        ]
    told = without_ablations(Results(runs))[-2:]
    assert [claim.verdict for claim in told] == decided
    points = f"{100 * tool - 20:+.1f}"
    assert told[0].measured.endswith(f": {points} [{points}, {points}] points, {100 * tool / 0.4:.0f} % of it in all")


def test_mastery_compares_what_one_seed_gained():
    runs = [found(None, seed, accuracy=0.5, tool_gain=0.1) for seed in (1, 2)]
    runs += [found("imitation", 1, accuracy=0.6), found("imitation", 2, accuracy=0.9, tool_gain=0.5)]
    (half,) = (claim for claim in claims(Results(runs), "base") if "is the tool's" in claim.text)
    assert "+20.0" in half.measured and "100 % of it in all" in half.measured


def test_what_looking_gives_is_what_an_answer_at_once_lacks():
    runs = []
    for seed in range(3):
        runs.append(found(None, seed, accuracy=0.8, look_gain=0.1))
        runs.append(found("imitation", seed, accuracy=0.9 + 0.01 * seed, look_gain=0.2))
    (claim,) = (claim for claim in claims(Results(runs), "base") if "looking over an answer at once" in claim.text)
    assert claim.verdict == "holds" and "+4.5 [" in claim.measured and "91 % of it in all" in claim.measured


def test_where_only_the_target_shows_the_answer_the_gain_is_of_right_answers_there():
    runs = []
    for seed in range(3):
        runs.append(found(None, seed, no_cue=0.2, no_cue_look_gain=0.0))
        runs.append(found("imitation", seed, accuracy=0.5, no_cue=0.9, no_cue_look_gain=0.6))
    (claim,) = (claim for claim in claims(Results(runs), "base") if "where only the target shows" in claim.text)
    assert claim.verdict == "holds" and "+25.0 [" in claim.measured and "86 % of it in all" in claim.measured


def test_the_bars_of_mastery_add_up_on_both_sides_of_zero():
    parts = {"alone": 0.5, "gain": 0.3, "harm": -0.1}
    drawn = ET.fromstring(figures.stacks("a title", {"one": parts, "two": {**parts, "gain": 0.0}}))
    bars = [box for box in drawn.iter("{http://www.w3.org/2000/svg}rect") if box.get("height") == "16"]
    assert len(bars) == 6
    alone, gain, lost = ((float(box.get("x")), float(box.get("width"))) for box in bars[:3])
    assert gain[0] == pytest.approx(alone[0] + alone[1], abs=0.2)  # on top of each other
    assert lost[0] + lost[1] == pytest.approx(alone[0], abs=0.2)  # from zero to the left
    assert alone[1] / gain[1] == pytest.approx(5 / 3, abs=0.02)
    assert figures.stacks("a title", {}) == ""


def test_one_seed_decides_nothing():
    results = Results([found(None, 0, faithful=0.9), found("outcome", 0, faithful=0.0, faithful_given_correct=0.0)])
    assert verdicts(results)["Rewarding the"] == "undecided"


def test_turn_credit_is_compared_by_the_episodes_it_takes():
    slow, fast = (0.0,) * 5 + (1.0,) * 5, (1.0,) * 10
    results = Results(
        [found("tapo", seed, slow) for seed in range(3)] + [found("tapo-turn", seed, fast) for seed in range(3)]
    )
    (claim,) = [claim for claim in claims(results, "base") if claim.text.startswith("Turn")]
    assert claim.verdict == "holds" and "500 / 1000, 500 / 1000, 500 / 1000" in claim.measured
    never = Results([*results.found, found("tapo", 3, (0.0,) * 5), found("tapo-turn", 3, fast)])
    (claim,) = [claim for claim in claims(never, "base") if claim.text.startswith("Turn")]
    assert claim.verdict == "undecided" and "500 / never" in claim.measured


def test_figures_are_whole_pictures_that_name_every_row():
    series = {name: [(1.0, 0.2, 0.1, 0.3), (2.0, 0.8, 0.7, 1.2)] for name in ("a<b", "c")}
    for svg in (
        figures.curves("Over & out", "steps", series, {"c": "red"}),
        figures.dots("Dots", {"a<b": ([0.1, 0.2], 0.15, -9, 9)}, {}),
    ):
        texts = [text.text for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
        assert "a<b" in texts
    assert figures.curves("empty", "steps", {"a": []}, {}) == "" == figures.dots("empty", {}, {})


def test_the_page_holds_every_run_and_is_one_file(tmp_path):
    values = {measure.key: 0.25 for measure in MEASURES}
    runs = [found(name, seed, (0.5, 0.6), **values) for name in (None, "outcome") for seed in (0, 1)]
    runs += [found("tapo", seed, (0.5, 0.6), **values) for seed in (0, 1, 2, 5, 6, 8)]
    written = page.write(tmp_path, Results(runs), [BASE], METHODS, {"preset": "tiny"})
    text = written.read_text()
    assert re.findall(r"- \*\*(.*?)\*\*", text) == ["outcome", "tapo"]
    assert "| the start | 0, 1 |" in text and "| tapo | 0-2, 5, 6, 8 | 25.0 % |" in text
    assert "| 0 | 1 | 2 | 5 | 6 | 8 |" in text
    assert f"| outcome | {' | '.join(['25.0 / 25.0'] * 2 + ['–'] * 4)} |" in text
    for name in re.findall(r"\]\((.*?\.svg)\)", text):
        assert (tmp_path / name).exists()
    html = (tmp_path / page.HTML).read_text()
    assert html.count("<svg") == text.count(".svg)") > 0 and "src=" not in html and "href=" not in html
    numbers = json.loads((tmp_path / NUMBERS).read_text())["settings"]["base"]
    assert numbers["methods"]["tapo"]["means"]["accuracy"] == {"mean": 0.25, "ci95": [0.25, 0.25]}
    assert [run["seed"] for run in numbers["methods"]["start"]["runs"]] == [0, 1]


def test_updates_that_were_not_judged_are_no_zero_in_a_curve(tmp_path):
    gaps = (0.5, math.nan, 0.5) + (math.nan,) * 7 + (0.5,)
    runs = [found("tapo", 0, gaps), found("tapo", 1, (0.5,) * 11), found("outcome", 0, (math.nan,) * 11)]
    page.write(tmp_path, Results(runs), [BASE], METHODS, {})
    record = json.loads((tmp_path / NUMBERS).read_text(), parse_constant=lambda name: pytest.fail(name))
    assert record["settings"]["base"]["methods"]["tapo"]["runs"][0]["history"]["faithful"][:3] == [0.5, None, 0.5]
    read = read_numbers(tmp_path / NUMBERS, [BASE], METHODS, {})
    svgs = []
    for place, each in (("read", read), ("made", runs)):
        (tmp_path / place).mkdir()
        page.write(tmp_path / place, Results(each), [BASE], METHODS, {})
        svgs.append((tmp_path / place / "base-faithful.svg").read_text())
    assert svgs[0] == svgs[1] and "outcome" not in svgs[0]
    lines = re.findall(r'<polyline points="([^"]*)"', svgs[0])
    heights = {pair.partition(",")[2] for line in lines for pair in line.split()}
    assert len(heights) == 1, "half of the height, all the way"


def test_the_page_shows_only_claims_that_were_measured(tmp_path):
    runs = [found("imitation", seed, (0.5, 0.6), no_cue=0.95) for seed in (0, 1)]
    written = page.write(tmp_path, Results(runs), [BASE], METHODS, {"preset": "tiny"})
    for text in (written.read_text(), (tmp_path / page.HTML).read_text()):
        assert "answers come from what was seen" in text and "TACO's policy" not in text
        assert "not measured" not in text
    kept = json.loads((tmp_path / NUMBERS).read_text())["settings"]["base"]["claims"]
    assert {"holds", "not measured"} <= {claim["verdict"] for claim in kept}


def test_a_part_is_needed_if_the_policy_is_worse_without_it():
    def results(lost: float, spread: float) -> Results:
        runs = [found("imitation", seed, no_cue=0.97) for seed in range(3)]
        shifts = (-spread, 0.0, spread)
        return Results([*runs, *(found("imitation-cold", i, no_cue=0.97 - lost + s) for i, s in enumerate(shifts))])

    def verdict(found: Results) -> str:
        return next(c.verdict for c in claims(found, "base") if "temperature 1" in c.text)

    assert verdict(results(0.2, 0.01)) == "holds"
    assert verdict(results(0.01, 0.1)) == "undecided"
    assert verdict(results(-0.02, 0.001)) == "does not hold"
    assert verdict(Results([found("imitation", 0, no_cue=0.9)])) == "not measured"


def test_an_ablation_changes_one_part_and_is_compared_only_if_named():
    names = [row.name for row in (*METHODS, *ABLATIONS)]
    assert len(set(names)) == len(names)
    for row in ABLATIONS:
        changed = {name for name in row.options if row.options[name] != IMITATION[name]}
        assert changed and (len(changed) == 1 or row.name in ("imitation-none", "imitation-drawn"))
        assert row.options.keys() == IMITATION.keys()


def test_the_numbers_of_a_study_are_read_as_they_were(tmp_path):
    mine = Run(Setting("elsewhere", "of one's own"), 3, MINE)
    runs = [found("tapo", 0, (0.5,) * 5 + (1.0,) * 5, accuracy=0.25), found("outcome", 1, (0.0,) * 5), found(None, 0)]
    runs.append(dataclasses.replace(runs[0], run=mine))
    settings = [BASE, mine.setting]
    page.write(tmp_path, Results(runs), settings, [*METHODS, MINE], {"steps": 60})
    again = read_numbers(tmp_path / NUMBERS, SETTINGS, METHODS, {"steps": 60})
    assert len(again) == len(runs)
    by_name = {(r.run.setting.name, r.run.method.name if r.run.method else None): r for r in again}
    for run in runs:
        read = by_name[run.run.setting.name, run.run.method.name if run.run.method else None]
        assert (read.run.seed, read.values, read.learned, read.start) == (
            run.run.seed,
            run.values,
            run.learned,
            run.start,
        )
        assert {name: tuple(row) for name, row in read.history.items()} == {
            name: tuple(row) for name, row in run.history.items()
        }
    assert by_name["base", "tapo"].run.method is BY_NAME["tapo"]
    for content, said in (
        ("{}", "cannot be read"),
        ('{"schema": 1}', "^[^{]*has schema 1, not 2"),
        ('{"schema": 2, "facts": {"steps": 6}}', "lacks something .*settings"),
        ((tmp_path / NUMBERS).read_text(), "is of a study with steps 60, not 6"),
    ):
        (tmp_path / "other.json").write_text(content)
        with pytest.raises(ConfigError, match=said):
            read_numbers(tmp_path / "other.json", SETTINGS, METHODS, {"steps": 6})


def test_runs_of_a_seed_are_joined_only_where_they_began_alike():
    mine, theirs = [found("tapo", 0), found(None, 0)], [found("outcome", 0), found("tapo", 0), found("taco", 1)]
    both = joined(mine, Path("x.json"), theirs)
    assert both == [*mine, theirs[0], theirs[2]]
    for start in ("other", ""):
        unlike = [dataclasses.replace(one, start=start) for one in theirs[:1]]
        with pytest.raises(ConfigError, match="x.json: its runs of seed 0 began with other weights"):
            joined(mine, Path("x.json"), unlike)
    unnoted = [dataclasses.replace(one, start="") for one in mine]
    assert joined(unnoted, Path("x.json"), unnoted) == unnoted
    with pytest.raises(ConfigError, match="not noted with which"):
        joined(unnoted, Path("x.json"), [dataclasses.replace(theirs[0], start="")])


def test_methods_are_found_by_name_and_by_path():
    assert [method.name for method in find("method", METHODS, ["tapo", f"{__name__}:MINE"])] == ["tapo", "mine"]
    assert len(find("method", METHODS, [])) == len(METHODS)
    for names, said in (
        (["tapa"], "method 'tapa'"),
        ([f"{__name__}:BASE"], "is a Setting; it must be a Method"),
        (["tapo", "tapo"], "have the same name"),
        (["nowhere:METHOD"], "cannot import the method"),
    ):
        with pytest.raises(ConfigError, match=said):
            find("method", METHODS, names)


def test_a_page_of_several_settings_counts_the_seeds_on_which_a_method_is_above_tapo(tmp_path):
    names = {"tapo": (0.5, 0.9, 0.4), "imitation": (0.75, 0.9, 0.3)}
    runs = [found(name, seed, no_cue=value) for name, values in names.items() for seed, value in enumerate(values)]
    hard = dataclasses.replace(BASE, name="hard")
    one = dataclasses.replace(found("imitation", 3, no_cue=0.7), run=Run(hard, 3, BY_NAME["imitation"]))
    methods = [BY_NAME["tapo"], BY_NAME["imitation"]]
    assert "All settings" not in page.write(tmp_path, Results(runs), [BASE, hard], methods, {}).read_text()
    text = page.write(tmp_path, Results([*runs, one]), [BASE, hard], methods, {}).read_text()
    assert "| base | tapo | 3 | 60.0 % | 40.0 % | – | – |" in text
    assert "| base | imitation | 3 | 65.0 % | 30.0 % | +5.0 [-39.8, +49.8] points | 1 / 1 / 1 |" in text
    assert "| hard | imitation | 1 | 70.0 % | 70.0 % | – | – |" in text
    assert text.index("All settings") < text.index("## base")
    assert "<h2>All settings: cue-free accuracy</h2>" in (tmp_path / "study.html").read_text()


def test_settings_outside_base_are_taken_together_for_seeds_that_have_all_of_them(tmp_path):
    others = [dataclasses.replace(BASE, name=name) for name in ("hard", "harder")]
    values = {"tapo": ((0.5, 0.7, 0.2), (0.5, 0.5)), "imitation": ((0.6, 0.7, 0.9), (0.8, 0.4))}
    runs = [
        dataclasses.replace(found(name, seed, no_cue=value), run=Run(setting, seed, BY_NAME[name]))
        for name, of_settings in values.items()
        for setting, of_seeds in zip(others, of_settings, strict=True)
        for seed, value in enumerate(of_seeds)
    ]
    base = [found(name, 0, no_cue=0.9) for name in values]
    methods = [BY_NAME[name] for name in values]
    text = page.write(tmp_path, Results([*base, *runs]), [BASE, *others], methods, {}).read_text()
    gains = Estimate.of([(0.1 + 0.3) / 2, (0.0 - 0.1) / 2])  # of two seeds, as the third has one setting alone
    assert gains.mean == pytest.approx(0.075)
    span = f"+7.5 [{100 * gains.low:+.1f}, {100 * gains.high:+.1f}] points"
    assert f"| all but base | imitation | 2 | 62.5 % | 40.0 % | {span} | 2 / 1 / 1 |" in text
    assert "| all but base | tapo | 2 | 55.0 % | 50.0 % | – | – |" in text


def test_names_fit_beside_a_figure_however_long_they_are():
    name = "a-method-of-ones-own-with-a-long-name"
    drawn = [
        figures.curves("t", "episodes", {name: [(0, 0.5, 0.5, 0.5), (9, 0.6, 0.6, 0.6)]}, {}),
        figures.dots("t", {name: ([0.5], 0.5, 0.4, 0.6)}, {}),
        figures.stacks("t", {name: {"a": 0.5, "b": -0.1}}),
    ]
    for svg in drawn:
        (text,) = [one for one in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text") if one.text == name]
        room = float(text.attrib["x"]) if "text-anchor" in text.attrib else figures.WIDTH - float(text.attrib["x"])
        assert room >= 6.5 * len(name)  # a letter of 13 pixels is about half as wide
