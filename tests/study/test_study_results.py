"""What a study makes of its numbers: means over seeds, pairs, claims, figures, the page."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import pytest

from codev_env.errors import ConfigError
from codev_eval.study import figures, page
from codev_eval.study.claims import claims
from codev_eval.study.jobs import Run
from codev_eval.study.methods import METHODS, SETTINGS, Method, find
from codev_eval.study.results import MEASURES, Estimate, Found, Results

BASE = SETTINGS[0]
BY_NAME = {method.name: method for method in METHODS}
MINE = Method("mine", "as one likes")


def found(name: str | None, seed: int, faithful_rows: tuple[float, ...] = (), **values: float) -> Found:
    method = BY_NAME[name] if name else None
    history = [{"step": i + 1, "faithful": value, "accuracy": 0.5} for i, value in enumerate(faithful_rows)]
    return Found(Run(BASE, seed, method), values, history, 100, 60.0)


def test_the_interval_is_students():
    estimate = Estimate.of([1.0, 2.0, 3.0])
    half = 4.303 / math.sqrt(3)
    assert (estimate.mean, estimate.n) == (2.0, 3)
    assert (estimate.low, estimate.high) == pytest.approx((2 - half, 2 + half), abs=1e-3)
    assert Estimate.of([]) is None
    alone = Estimate.of([0.5])
    assert (alone.mean, alone.low, alone.high) == (0.5, -math.inf, math.inf)


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
    assert found("tapo", 0, (0.0, 1.0, 1.0, 1.0, 1.0, 1.0)).learned_after() == 600
    assert found("tapo", 0, (0.9, 0.9, 0.9, 0.9, 0.9)).learned_after() == 500
    assert found("tapo", 0, (1.0, 1.0, 1.0, 1.0, 0.0)).learned_after() == math.inf


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
    assert told["Paying for"] == told["Turn credit"] == "not measured"


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
    runs = [found(name, seed, (0.5, 0.6), **values) for name in (None, "outcome", "tapo") for seed in (0, 1)]
    written = page.write(tmp_path, Results(runs), [BASE], METHODS, {"preset": "tiny"})
    text = written.read_text()
    assert re.findall(r"- \*\*(.*?)\*\*", text) == ["outcome", "tapo"]
    assert "| the start | 2 |" in text and "| tapo | 2 | 25.0 % |" in text
    for name in re.findall(r"\]\((.*?\.svg)\)", text):
        assert (tmp_path / name).exists()
    html = (tmp_path / page.HTML).read_text()
    assert html.count("<svg") == text.count(".svg)") > 0 and "src=" not in html and "href=" not in html
    numbers = json.loads((tmp_path / page.NUMBERS).read_text())["settings"]["base"]
    assert numbers["methods"]["tapo"]["means"]["accuracy"] == {"mean": 0.25, "ci95": [0.25, 0.25]}
    assert [run["seed"] for run in numbers["methods"]["start"]["runs"]] == [0, 1]


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
