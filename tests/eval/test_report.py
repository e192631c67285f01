"""The report page: what it shows, that it stands alone, and that nothing a model wrote becomes markup."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from eval_samples import episodes, failing_trajectory, make_run, markup, trajectory

from codev_env.scoring.metrics import summarize
from codev_env.trajectory import Trajectory, read_trajectories
from codev_env.types import Answer, Code, Execution, Invalid, Step, StepScore
from codev_eval.report import report
from codev_eval.report.cli import title_of
from codev_eval.report.page import pair
from codev_eval.report.report import ReportError, write_report, write_run_report
from codev_eval.report.results import metrics_section
from codev_eval.report.training import seconds_of

EVIL = (
    "</script></style></textarea><script>alert(1)</script><img src=x onerror=alert(2)>"
    "\"' onload=alert(3) x='$title{{}}&lt;"
)


class Page(HTMLParser):
    """The elements of a page, with their attributes and the text inside."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attrs
            for name, attrs in self.elements
            if name == tag and all(attrs.get(key.replace("_", "-")) == value for key, value in wanted.items())
        ]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page(run) -> str:
    return write_run_report(run).read_text("utf-8")


def test_the_page_is_in_the_run_folder_and_needs_nothing_else(run, page):
    assert (run / "report.html").is_file()
    assert not list(run.glob(".report*"))
    links = [value for _, attrs in Page(page).elements for key, value in attrs.items() if key in ("src", "href")]
    assert links and all(value is not None and value.startswith(("data:image/", "#")) for value in links)
    assert "@import" not in page and "url(" not in page and "http://" not in page and "https://" not in page


def test_it_shows_before_and_after_with_intervals(run, page):
    summary = json.loads((run / "summary.json").read_text())
    text = " ".join("".join(Page(page).text).split())
    for part in ("before", "after"):
        low, high = summary[part]["ci95"]["faithful"]
        assert f"{100 * summary[part]['faithful']:.1f} %[{100 * low:.1f} %, {100 * high:.1f} %]" in text
    assert "Accuracy" in text and "Tool calls" in text and "16 held-out episodes" in text


def test_it_shows_curves_seconds_and_facts(page):
    text = "".join(Page(page).text)
    assert len(re.findall(r'<figure class="curve">', page)) == 8
    assert text.index("Faithful-tool rate") < text.index("More curves") < text.index("update: grad norm")
    assert "cold start 2 min 21 s" in text and "5 min 45 s in all" in text
    assert "training: rollouts 1 min 45 s" in text and "training: the rest 15.0 s" in text
    assert "A toy model of a million weights" in text and "prompts16" in text and '"lr": 0.0002' in text


def test_the_phases_of_a_run_add_up_to_its_time():
    rows = [{"seconds/rollouts": 5, "seconds/engine_idle": 2, "seconds/update": 3, "seconds/push": 1}] * 2
    spent = seconds_of({"evaluation before": 4, "training": 17, "total": 30}, rows)
    assert spent.total == "30.0 s"
    assert {phase.name: phase.duration for phase in spent.phases} == {
        "evaluation before": "4.0 s",
        "training: rollouts": "10.0 s",
        "training: update": "4.0 s",
        "training: push": "2.0 s",
        "training: the rest": "1.0 s",
        "the rest": "9.0 s",
    }


def test_episodes_are_the_first_ones_side_by_side(page):
    found = Page(page)
    assert len(found.all("section", **{"class": "task"})) == report.RUN_TASKS
    assert [attrs["data-run"] for attrs in found.all("article")] == ["before", "after"] * report.RUN_TASKS
    assert "The first 12 of 16 tasks" in page


def test_every_image_is_stored_once_and_used(page):
    found = Page(page)
    stored = [attrs["id"] for attrs in found.all("image")]
    # An element with an id of its own is a second name of an image: before and after show the same scenes.
    names = stored + [attrs["id"] for attrs in found.all("use") if "id" in attrs]
    used = [(attrs["href"] or "")[1:] for attrs in found.all("use")]
    assert set(names) == set(used) and len(names) == len(set(names)) > len(stored)
    uris = [attrs["href"] for attrs in found.all("image")]
    assert len(uris) == len(set(uris))
    assert len(used) > len(stored) >= report.RUN_TASKS


def test_filters_know_each_episode(run, page):
    articles = Page(page).all("article", data_run="after")
    after = read_trajectories(run / "after")[: report.RUN_TASKS]
    assert [attrs["data-correct"] for attrs in articles] == [str(int(t.is_correct)) for t in after]
    assert [attrs["data-faithful"] for attrs in articles] == [str(int(t.is_faithful)) for t in after]
    assert [attrs["data-category"] for attrs in articles] == [t.category for t in after]


def test_an_episode_shows_code_output_crops_rewards_and_answers(tmp_path):
    played = trajectory(1, looks=True, right=False)
    html = write_report(tmp_path, [played], summarize([played]), "one episode").read_text("utf-8")
    text = "".join(Page(html).text)
    assert "zoom on the green disc" in text and "size (672, 672)" in text
    box = played.turns[0].crop_boxes[0]
    assert box is not None
    x1, y1, x2, y2 = box
    line = f'<rect class="line" x="{x1}" y="{y1}" width="{x2 - x1}" height="{y2 - y1}"/>'
    assert html.count(line) == 1
    assert f"({x1}, {y1}) – ({x2}, {y2})" in text and "% of the image" in text
    assert "tool +0.50" in text and "format +0.30" in text and f"sum {played.total_reward:+.2f}" in text
    assert f"Answer {played.final_answer} · right is {played.answer}" in text
    assert "the crop covers 100 % of target 0" in text


def test_failures_of_the_model_are_shown(tmp_path):
    played = failing_trajectory(2)
    html = write_report(tmp_path, [played], summarize([played]), "failed").read_text("utf-8")
    text = "".join(Page(html).text)
    assert "never closed" in text and "Returned no image" in text
    assert "Write <code> or <answer>." in text and "No answer (max_turns)" in text


def test_a_crop_of_unknown_source_says_so(tmp_path):
    played = trajectory(1, looks=True, right=True)
    turn = dataclasses.replace(played.turns[0], crop_boxes=(None,))
    html = write_report(tmp_path, [dataclasses.replace(played, turns=(turn,))], {"n": 1}, "x").read_text("utf-8")
    assert "source unknown" in html and not Page(html).all("g", **{"class": "mark crop"})


def evil_trajectory() -> Trajectory:
    base = trajectory(1, looks=True, right=True)
    texts = {"task_id", "category", "question", "answer", "stop_reason", "final_answer", "agent"}
    code = Step(
        EVIL + "<code>" + EVIL,
        Code(EVIL),
        Execution(EVIL, base.turns[0].images, EVIL, "error"),
        score=StepScore(None, EVIL),
        observation=EVIL,
        images=base.turns[0].images,
        crop_boxes=base.turns[0].crop_boxes,
        reward_terms={EVIL: 1.0},
    )
    turns = (code, Step(EVIL, Invalid(EVIL), observation=EVIL), Step(EVIL, Answer(EVIL)))
    return dataclasses.replace(base, choices=(EVIL, "b"), turns=turns, **dict.fromkeys(texts, EVIL))


def check_harmless(html: str) -> None:
    found = Page(html)
    assert len(found.all("script")) == 1 and len(found.all("style")) == 1
    assert not found.all("img") and not found.all("textarea")
    allowed = {"details", "summary", "section", "article", "svg", "image", "use", "rect", "g", "text"}
    assert allowed <= {tag for tag, _ in found.elements}
    assert not [key for _, attrs in found.elements for key in attrs if key.startswith("on")]
    assert "onerror=alert(2)" in "".join(found.text)


def test_nothing_a_model_wrote_becomes_markup(tmp_path):
    other = dataclasses.replace(evil_trajectory(), category="b")
    metrics = {**summarize([other]), EVIL: 1.0}
    html = write_report(tmp_path, [evil_trajectory(), other], metrics, EVIL).read_text("utf-8")
    check_harmless(html)


def test_nothing_in_a_run_folder_becomes_markup(tmp_path):
    run = make_run(tmp_path, count=2)
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"name": EVIL, "about": EVIL, "options": {EVIL: EVIL}, EVIL: EVIL, "seconds": {EVIL: 3.0}}
    (run / "summary.json").write_text(json.dumps(summary))
    (run / "history.jsonl").write_text(json.dumps({"step": 0, "reward": 1.0, EVIL: 1.0}) + "\n")
    check_harmless(write_run_report(run).read_text("utf-8"))


def test_lone_surrogates_and_long_texts_do_not_break_the_page(tmp_path):
    base = trajectory(0, looks=True, right=True)
    ran = base.turns[0].execution
    assert ran is not None
    turn = dataclasses.replace(base.turns[0], execution=dataclasses.replace(ran, stdout="\ud800" + "y" * 100_000))
    html = write_report(tmp_path, [dataclasses.replace(base, turns=(turn,))], {"n": 1}, "x").read_text("utf-8")
    assert "more characters" in html and len(html) < 100_000


@pytest.mark.parametrize("missing", ["history.jsonl", "after", "before", "both"])
def test_a_run_that_did_not_get_far_still_has_a_report(tmp_path, missing):
    run = make_run(tmp_path, count=2)
    summary = json.loads((run / "summary.json").read_text())
    if missing == "history.jsonl":
        (run / missing).unlink()
    for part in ("before", "after"):
        if missing in (part, "both"):
            del summary[part]
            (run / part / "trajectories.jsonl").unlink()
    (run / "summary.json").write_text(json.dumps(summary))
    html = write_run_report(run).read_text("utf-8")
    shown = {attrs["data-run"] for attrs in Page(html).all("article")}
    assert shown == {"before", "after"} - ({"before", "after"} if missing == "both" else {missing})


@pytest.mark.parametrize(("content", "says"), [(None, "cannot read"), ("{", "is not JSON"), ("[1]", "holds list")])
def test_a_folder_without_a_summary_is_told(tmp_path, content, says):
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(ReportError, match=says) as caught:
        write_run_report(tmp_path)
    assert "summary.json" in str(caught.value) and not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"_step": 5, "loss": 0.1}, "it has none of before, after, seconds, options"),
        ({"before": 3, "after": {}}, "before is no object"),
        ({"before": {"accuracy": 0.5}, "seconds": [1, 2]}, "seconds is no object"),
        ({"after": {"accuracy": 0.5, "ci95": [0.1, 0.2]}}, "ci95 of after has no intervals"),
        ({"after": {"accuracy": 0.5, "ci95": {"accuracy": 3}}}, "ci95 of after has no intervals"),
    ],
)
def test_a_summary_of_another_program_is_told(tmp_path, content, says):
    (tmp_path / "summary.json").write_text(json.dumps(content))
    with pytest.raises(ReportError, match="is not what `codev train` writes") as caught:
        write_run_report(tmp_path)
    assert says in str(caught.value) and not (tmp_path / "report.html").exists()


def test_an_undefined_metric_is_a_dash_not_a_zero():
    wrong = summarize([trajectory(i, looks=True, right=False) for i in range(2)])
    right = summarize([trajectory(i, looks=True, right=True) for i in range(2)])
    html = markup("results", "results", metrics_section([("before", wrong), ("after", right)]))
    row = re.search(r"<tr><th[^>]*>Faithful, given correct.*?</tr>", html, re.DOTALL)
    assert row is not None
    assert [value for value in re.findall(r"<b>(.*?)</b>", row[0])] == ["–", "100 %"]


def test_a_task_sampled_twice_is_shown_twice():
    played = [trajectory(0, looks=True, right=True), trajectory(0, looks=False, right=True)]
    assert [len(runs) for runs in pair({"before": played, "after": played[:1]})] == [2, 1]


def test_samples_of_two_runs_are_paired_by_their_numbers():
    made = trajectory(0, looks=True, right=True)
    first, second = (dataclasses.replace(made, meta={"eval": {"bench": "b", "sample": n}}) for n in (0, 1))
    assert pair({"a": [second], "b": [first, second]}) == [[("a", second), ("b", second)], [("b", first)]]


def test_many_episodes_stay_small(tmp_path):
    played = episodes(True, 120)
    size = write_report(tmp_path, played, summarize(played), "many").stat().st_size
    assert size < 120 * 20_000


def test_samples_of_a_task_are_not_counted_as_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "EVAL_EPISODES", 5)
    for samples, count, says in [
        (2, 2, "All 4 samples of 2 tasks,"),
        (1, 2, "All 2 tasks,"),
        (1, 1, "1 task,"),
        (3, 2, "The first 5 of 6 samples of 2 tasks,"),
        (1, 6, "The first 5 of 6 tasks,"),
    ]:
        played = [
            dataclasses.replace(trajectory(index, looks=True, right=True), meta={"eval": {"sample": sample}})
            for index in range(count)
            for sample in range(samples)
        ]
        page = write_report(tmp_path, played, {"n": len(played)}, "x").read_text("utf-8")
        assert f'<p class="note">{says} in the order' in page


def test_an_image_says_how_many_boxes_it_has(tmp_path):
    page = write_report(tmp_path, [trajectory(0, looks=True, right=True)], {"n": 1}, "x").read_text("utf-8")
    assert 'aria-label="Input image with 1 target box and 1 crop box"' in page
    without = trajectory(0, looks=True, right=True, tool=False)
    page = write_report(tmp_path, [without], {"n": 1}, "x").read_text("utf-8")
    assert 'aria-label="Input image with 1 target box and 0 crop boxes"' in page


def test_the_settings_name_what_decides_the_tasks(tmp_path):
    record = {
        "benches": {"vstar": {"n": 1}},
        "max_turns": 4,
        "tasks": {"scenes": {"preset": "toy", "cue_p": 0}, "wrap": ["jpeg:3"], "subset": None, "only": None},
    }
    page = write_report(tmp_path, [], record, "x").read_text("utf-8")
    for name, value in (("max turns", "4"), ("scenes", "preset toy cue_p 0"), ("wrap", "jpeg:3")):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page
    assert "<dt>subset</dt>" not in page


@pytest.mark.parametrize(
    ("model", "title"),
    [
        ("http://localhost:8000/v1#my-model", "my-model on vstar"),
        ("http://localhost:8000/v1#Qwen/Qwen3-VL-4B", "Qwen3-VL-4B on vstar"),
        ("runs/tiny/model/", "model on vstar"),
        ("scripted:oracle", "scripted:oracle on vstar"),
    ],
)
def test_the_title_of_an_evaluation_names_the_model_alone(model, title):
    assert title_of({"model": model, "benches": {"vstar": {}}}) == title
