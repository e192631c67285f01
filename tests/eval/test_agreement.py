"""`codev judge agreement`: kappa by hand, known judges on known crops, failures that count as failures."""

from __future__ import annotations

import json
import signal
import threading
import time

import numpy as np
import pytest
from fake_judge_server import FakeJudgeServer, fails, good
from PIL import Image

from codev_env.errors import ConfigError, JudgeError
from codev_env.judges import GroundTruthJudge, NoisyJudge, get_judge
from codev_env.judges.rubrics import LEVELS
from codev_env.tasks import load_tasks
from codev_env.trajectory import read_trajectories
from codev_env.types import Code, Execution, Step, StepScore, Task
from codev_eval.agreement.cli import AgreementError, main
from codev_eval.agreement.crops import CLAIM, KINDS, programs
from codev_eval.agreement.judging import JudgedCrop, judge_scenes
from codev_eval.agreement.table import summarize, text_table

IMAGE = Image.new("RGB", (400, 300), "grey")


# ---- statistics


def crop(kind, right, judge) -> JudgedCrop:
    return JudgedCrop(kind, StepScore(right[0], "", right[1]), StepScore(judge[0], "", judge[1]))


def test_a_summary_by_hand():
    scenes = [
        ("a", [crop("exact", (1.0, True), (0.75, True)), crop("half", (0.4, False), (0.5, False))]),
        ("b", [crop("exact", (1.0, True), (0.0, False)), crop("whole", (-0.5, False), (0.25, True))]),
        ("c", [JudgedCrop("whole", StepScore(-0.5), None, "judge", "timeout")]),
    ]
    found = summarize(scenes)
    assert (found["n_scenes"], found["n_crops"]) == (3, 4)
    assert found["faithful"]["matrix"] == [[1, 1], [1, 1]]
    assert (found["faithful"]["accuracy"], found["faithful"]["kappa"]) == (0.5, 0.0)
    assert found["score"]["accuracy"] == 0.25, "0.4 and 0.5 are the same level"
    assert found["score"]["mean_abs_difference"] == pytest.approx((0.25 + 0.1 + 1 + 0.75) / 4)
    assert found["score"]["matrix"][0] == [0, 0, 1, 0, 0, 0] and found["score"]["matrix"][5] == [0, 1, 0, 0, 1, 0]
    exact = found["kinds"]["exact"]
    assert exact["faithful"] == {"agree": 1, "too_high": 0, "too_low": 1}
    assert exact["score"] == {"agree": 0, "too_high": 0, "too_low": 2}
    assert (exact["reference_mean"], exact["judge_mean"]) == (1.0, 0.375)
    assert found["kinds"]["whole"]["n"] == 1 and found["kinds"]["whole"]["failed"] == 1
    assert found["failures"]["total"] == found["failures"]["judge"] == 1
    assert found["failures"]["first"][0]["reason"] == "timeout"
    json.dumps(found, allow_nan=False)


# ---- the noisy judge


def shown(seed: int = 0, **changes) -> Step:
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Step("", Code(""), Execution(images=(Image.fromarray(pixels),), **changes))


class Fixed:
    name = "fixed"

    def __init__(self, score: StepScore) -> None:
        self.fixed = score

    def score(self, task, step, history) -> StepScore:
        return self.fixed


TASK = Task("t", (IMAGE,), "?", "a", targets=((100, 100, 140, 130),))


@pytest.mark.parametrize("right", [StepScore(0.75, "x", True), StepScore(0.1, "x", False), StepScore(-0.5, "x", False)])
def test_noise_is_wrong_in_both_and_at_its_rate(right):
    judge = NoisyJudge(Fixed(right), 0.3)
    scores = [judge.score(TASK, shown(seed), ()) for seed in range(1000)]
    wrong = [score for score in scores if score != right]
    # 1000 draws: 0.3 ± 4 standard deviations of 0.0145.
    assert 0.24 < len(wrong) / 1000 < 0.36
    assert {score.faithful for score in wrong} == {not right.faithful}
    nearest = {0.75: 0.75, 0.1: 0.0, -0.5: 0.0}[right.value]
    assert {score.value for score in wrong} == set(LEVELS) - {nearest}


def test_noise_follows_from_content_and_seed():
    def scores(judge, task=TASK):
        return [judge.score(task, shown(seed), ()).value for seed in range(50)]

    judge = NoisyJudge(Fixed(StepScore(1.0, "", True)), 0.5)
    again = NoisyJudge(Fixed(StepScore(1.0, "", True)), 0.5)
    assert scores(judge) == scores(judge) == scores(again)
    assert scores(judge) != scores(NoisyJudge(Fixed(StepScore(1.0, "", True)), 0.5, seed=1))
    assert scores(judge) != scores(judge, Task("t", (IMAGE,), "another question", "a"))


def test_noise_leaves_alone_what_shows_nothing():
    failed = StepScore(None, "masked", failed=True)
    assert NoisyJudge(Fixed(failed), 1.0).score(TASK, shown(), ()) == failed
    error = StepScore(-0.5, "error")
    assert NoisyJudge(Fixed(error), 1.0).score(TASK, shown(error="ValueError", stop="error"), ()) == error
    assert NoisyJudge(Fixed(error), 1.0).score(TASK, Step("", Code(""), Execution()), ()) == error


def test_noisy_by_name():
    judge = get_judge("noisy:0.2")
    assert isinstance(judge, NoisyJudge) and (judge.rate, judge.seed) == (0.2, 0)
    assert isinstance(judge.inner, GroundTruthJudge)
    assert get_judge("noisy:1:7").seed == 7
    for numbers in ("", "x", "1.5", "-1", "nan", "0.1:x", "1.2.3", "0.1:-1"):
        with pytest.raises(ConfigError, match="write noisy:RATE"):
            get_judge(f"noisy:{numbers}")
    with pytest.raises(ConfigError, match="rate"):
        NoisyJudge(rate=2)
    with pytest.raises(ConfigError, match="seed"):
        NoisyJudge(seed=-1)


# ---- the crops


def boxes_of(code: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, part.split(")")[0].split(", "))) for part in code.split("crop((")[1:]]


@pytest.mark.parametrize("scenes", ["toy", "vstar", "counting", "sums", "charts", "documents"])
def test_crops_are_what_their_kind_says(scenes):
    tasks = load_tasks("synthetic", "test", scenes={"preset": scenes, "size": 3})
    seen = set()
    for index in range(3):
        task = tasks[index]
        for kind, code in programs(task, np.random.default_rng(index)).items():
            seen.add(kind)
            for box in boxes_of(code):
                assert 0 <= box[0] < box[2] <= task.image.width and 0 <= box[1] < box[3] <= task.image.height
            covered = [inside(target, box) for box in boxes_of(code) for target in task.targets]
            if kind in ("exact", "off-centre", "second", "enhanced", "turned", "mirrored", "shrunk", "big", "montage"):
                assert max(covered) == 1, kind
            if kind in ("near miss", "other object", "background", "written"):
                assert max(covered) == 0, kind
            if kind == "half":
                assert inside(task.targets[0], boxes_of(code)[0]) == pytest.approx(0.5, abs=0.05)
    assert {"exact", "half", "whole", "marked", "near miss", "other object"} <= seen <= set(KINDS)


def inside(target, box) -> float:
    """Share of a target that a box holds."""
    width = max(0, min(target[2], box[2]) - max(target[0], box[0]))
    height = max(0, min(target[3], box[3]) - max(target[1], box[1]))
    return width * height / ((target[2] - target[0]) * (target[3] - target[1]))


# ---- the study


def run(tmp_path, *options: str):
    out = tmp_path / "out"
    code = main(["agreement", "--scenes", "toy", "--out", str(out), *options])
    return code, json.loads((out / "agreement.json").read_text())


def test_a_perfect_judge_agrees_fully(tmp_path, capsys):
    code, record = run(tmp_path, "--judge", "ground_truth", "--n", "2")
    assert code == 0
    for part in ("faithful", "score"):
        assert (record[part]["accuracy"], record[part]["kappa"]) == (1.0, 1.0)
        assert record[part]["ci95"]["kappa"] is None, "judgements that are all alike tell no interval"
    assert record["score"]["mean_abs_difference"] == 0.0
    assert record["score"]["weighted_kappa"] == 1.0
    assert record["failures"]["total"] == 0
    for kind, row in record["kinds"].items():
        assert row["faithful"]["agree"] == row["score"]["agree"] == row["n"] == 2, kind
    table = capsys.readouterr().out
    assert (tmp_path / "out" / "agreement.txt").read_text().strip() in table
    assert "faithful: kappa               1.000\n" in table
    trajectories = read_trajectories(tmp_path / "out")
    assert [len(t.turns) for t in trajectories] == [len(t.meta["crops"]) for t in trajectories]
    turn = trajectories[0].turns[0]
    assert trajectories[0].meta["crops"][0]["kind"] == "exact"
    assert (turn.score_value, turn.faithful, len(turn.images)) == (1.0, True, 1)
    sheet = Image.open(tmp_path / "out" / "sheet.png")
    assert sheet.width > 1000 and sheet.height > 200


@pytest.mark.integration
def test_the_reference_agrees_with_how_simple_crops_are_made(tmp_path):
    _, record = run(tmp_path, "--judge", "ground_truth", "--n", "4")
    for kind in ("exact", "off-centre", "half", "shrunk", "big", "whole", "marked", "near miss", "other object"):
        row = record["kinds"][kind]
        assert row["reference_faithful"] == (row["n"] if row["faithful_by_kind"] else 0), kind


@pytest.mark.integration
def test_a_noisy_judge_agrees_at_its_rate(tmp_path):
    code, record = run(tmp_path, "--judge", "noisy:0.2", "--n", "12")
    assert code == 0
    for part in ("faithful", "score"):
        low, high = record[part]["ci95"]["accuracy"]
        assert low <= record[part]["accuracy"] <= high
        # About 180 crops: 0.8 ± 4 standard deviations of 0.03.
        assert 0.68 < record[part]["accuracy"] < 0.92
        assert record[part]["kappa"] < record[part]["accuracy"]
    assert 0 < record["score"]["mean_abs_difference"] < 0.3


@pytest.mark.integration
def test_results_do_not_depend_on_workers_and_follow_the_seed(tmp_path):
    options = ("--judge", "noisy:0.3", "--n", "3", "--overwrite")
    records = [
        run(tmp_path, *options, "--workers", workers, "--calls", calls, "--seed", seed)[1]
        for workers, calls, seed in (("1", "1", "0"), ("3", "8", "0"), ("2", "4", "1"))
    ]
    assert records[0] == records[1]
    assert records[0]["score"]["matrix"] != records[2]["score"]["matrix"]


class Failing(GroundTruthJudge):
    """Fails for wide images in three ways, else agrees."""

    name = "failing"

    def score(self, task, step, history):
        size = step.execution.images[0].size
        if size == task.image.size:
            raise JudgeError("the server is away")
        if size == (480, 320):
            raise RuntimeError("a defect")
        if size[0] < 30:
            return StepScore(None, "masked", failed=True)
        return super().score(task, step, history)


class AlwaysFailing:
    name = "never"

    def score(self, task, step, history):
        raise JudgeError("the server is away")


class NotAJudge:
    pass


def test_failures_are_counted_and_never_scored(tmp_path, capsys):
    code, record = run(tmp_path, "--judge", f"{__name__}:Failing", "--n", "2")
    assert code == 1
    failures = record["failures"]
    assert failures["total"] == failures["judge"] == 8, "whole, marked, written and shrunk of two scenes"
    assert {f["kind"] for f in failures["first"]} == {"whole", "marked", "written", "shrunk"}
    assert record["faithful"]["accuracy"] == record["score"]["accuracy"] == 1.0
    assert record["kinds"]["whole"]["n"] == 0 and record["kinds"]["whole"]["failed"] == 2
    printed = capsys.readouterr()
    assert "8 crops could not be judged and are not counted" in printed.err
    assert "whole: the server is away" in printed.err and "written: RuntimeError: a defect" in printed.err
    assert "shrunk: no score (masked)" in printed.err
    assert "all 2 failed" in printed.out
    trajectories = read_trajectories(tmp_path / "out")
    assert sum(turn.judge_failed for t in trajectories for turn in t.turns) == 8
    assert {turn.score_value for t in trajectories for turn in t.turns if turn.judge_failed} == {None}


def test_a_study_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(AgreementError, match="15 of 15 crops could not be judged.*the server is away"):
        run(tmp_path, "--judge", f"{__name__}:AlwaysFailing", "--n", "1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
def test_a_study_stops_early_when_most_crops_fail(tmp_path):
    with pytest.raises(AgreementError, match="30 of 30 crops could not be judged"):
        run(tmp_path, "--judge", f"{__name__}:AlwaysFailing", "--n", "1000000")


def test_a_reference_that_fails_is_told_apart(tmp_path):
    code, record = run(tmp_path, "--judge", "ground_truth", "--against", f"{__name__}:Failing", "--n", "1")
    assert code == 1
    assert (record["failures"]["reference"], record["failures"]["judge"]) == (4, 0)


def test_json_is_the_record(tmp_path, capsys):
    _, record = run(tmp_path, "--judge", "ground_truth", "--n", "1", "--json")
    assert json.loads(capsys.readouterr().out) == record


def test_results_are_not_overwritten_unless_asked(tmp_path):
    run(tmp_path, "--judge", "ground_truth", "--n", "1")
    with pytest.raises(ConfigError, match="already holds agreement.json"):
        run(tmp_path, "--judge", "ground_truth", "--n", "1")
    _, record = run(tmp_path, "--judge", "noisy:1", "--n", "1", "--overwrite")
    assert record["faithful"]["accuracy"] == 0.0
    assert len(read_trajectories(tmp_path / "out")) == 1


def test_files_of_the_user_stay(tmp_path):
    mine = tmp_path / "out" / "images" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    for options in ((), ("--overwrite",)):
        with pytest.raises(ConfigError, match="already holds images, which is of no study"):
            run(tmp_path, "--judge", "ground_truth", "--n", "1", *options)
    mine.rename(tmp_path / "mine.txt")
    mine.parent.rmdir()
    run(tmp_path, "--judge", "ground_truth", "--n", "1")
    (tmp_path / "mine.txt").rename(mine)
    before = set(mine.parent.iterdir())
    run(tmp_path, "--judge", "ground_truth", "--n", "1", "--seed", "1", "--overwrite")
    assert mine.read_text() == "mine" and before & set(mine.parent.iterdir()) == {mine}


def test_several_kinds_of_scenes(tmp_path):
    _, record = run(tmp_path, "--judge", "ground_truth", "--n", "1", "--scenes", "toy", "tiny")
    assert record["scenes"] == ["toy", "tiny"] and record["n_scenes"] == 2


def test_a_judge_behind_a_server(tmp_path):
    pytest.importorskip("openai")
    with FakeJudgeServer(lambda request: good(request, score=1, clear=True)) as server:
        code, record = run(tmp_path, "--judge", f"{server.url}#toy", "--n", "1")
        assert code == 0
        text = json.dumps(server.requests)
    assert record["kinds"]["exact"]["faithful"]["agree"] == 1
    assert record["kinds"]["half"]["faithful"] == {"agree": 0, "too_high": 1, "too_low": 0}
    assert record["faithful"]["matrix"][1][0] == 0, "it never says no"
    assert CLAIM not in text and "crop(" not in text, "the judge sees images and the question only"


def test_a_server_that_fails_is_a_failure(tmp_path):
    pytest.importorskip("openai")
    with FakeJudgeServer(fails(400)) as server, pytest.raises(AgreementError, match="14 of 15 crops"):
        run(tmp_path, "--judge", f"{server.url}#toy", "--n", "1")


def test_an_interrupt_waits_for_no_verdict():
    pytest.importorskip("openai")
    begun, answers = threading.Semaphore(0), threading.Event()

    def late(request):
        begun.release()
        return good(request, delay_s=60)

    class Stuck:
        name = "stuck"

        def score(self, task, step, history):
            begun.release()
            answers.wait(60)
            return StepScore(1.0, "", True)

    def press() -> None:
        begun.acquire()
        begun.acquire()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    tasks = load_tasks("synthetic", "test", scenes={"preset": "toy", "size": 1})
    try:
        with FakeJudgeServer(late) as server:
            for judge in (get_judge(f"{server.url}#toy"), Stuck()):
                threading.Thread(target=press, daemon=True).start()
                started = time.monotonic()
                with pytest.raises(KeyboardInterrupt):
                    list(judge_scenes(tasks, judge, GroundTruthJudge(), workers=1, calls=2))
                assert time.monotonic() - started < 30
                asking = [thread for thread in threading.enumerate() if thread.name.startswith("codev-judge")]
                assert asking and all(thread.daemon for thread in asking)  # the process ends without them
            assert len(server.requests) == 2
    finally:
        answers.set()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--judge", "ground_trut"), "Did you mean 'ground_truth'"),
        (("--judge", "ground_truth", "--against", "x"), "unknown judge"),
        (("--judge", "noisy:2"), "write noisy:RATE"),
        (("--judge", "no_such_module:x"), "cannot import the judge"),
        (("--judge", f"{__name__}:NotAJudge"), "NotAJudge; it must be"),
        (("--judge", "http://localhost:1/v1"), "names no model"),
        (("--judge", "none"), "--judge 'none' scores nothing"),
        (("--judge", "ground_truth", "--against", "none"), "--against 'none' scores nothing"),
        (("--judge", "ground_truth", "--n", "0"), "--n is 0"),
        (("--judge", "ground_truth", "--calls", "0"), "--calls is 0"),
        (("--judge", "ground_truth", "--scenes", "vstr"), "Did you mean 'vstar'"),
    ],
)
def test_options_that_cannot_be_used(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        main(["agreement", "--scenes", "toy", "--n", "1", "--out", str(tmp_path / "out"), *options])
    assert list(tmp_path.iterdir()) == []


def test_out_may_not_be_a_file(tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        run(tmp_path, "--judge", "ground_truth", "--n", "1")


def test_usage(capsys):
    assert main([]) == 2 and main(["--help"]) == 0
    assert "agreement" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="Did you mean 'agreement'"):
        main(["agrement"])


def test_ping(capsys):
    with FakeJudgeServer() as server:
        assert main(["ping", f"{server.url}#toy"]) == 0
        assert capsys.readouterr().out == f"{server.url} serves toy\n"
        with pytest.raises(JudgeError, match="has no model 'other'; it serves: toy"):
            main(["ping", f"{server.url}#other"])
    assert main(["ping", "ground_truth"]) == 0
    assert "needs no server" in capsys.readouterr().out


def test_a_server_that_cannot_be_reached_is_reported_before_the_study(tmp_path):
    with FakeJudgeServer() as server:
        pass
    with pytest.raises(JudgeError, match=r"cannot be reached: .*Cannot connect"):
        main(["agreement", "--n", "1", "--out", str(tmp_path / "out"), "--judge", f"{server.url}#toy"])
    assert list(tmp_path.iterdir()) == []


def test_a_judge_or_what_makes_one():
    assert isinstance(get_judge(f"{__name__}:Failing"), Failing)
    assert get_judge("codev_env.judges:GroundTruthJudge").name == "ground_truth"


def test_tasks_without_targets_are_refused():
    class Blind:
        name, source = "blind", "generated"

        def __len__(self) -> int:
            return 1

        def __getitem__(self, index):
            return Task("t", (IMAGE,), "?", "a")

    with pytest.raises(ConfigError, match="no targets"):
        list(judge_scenes(Blind(), GroundTruthJudge(), GroundTruthJudge()))


def test_the_table_shows_what_is_not_defined():
    record = {
        "judge": "a",
        "against": "b",
        "scenes": ["toy"],
        **summarize([("a", [crop("exact", (1, True), (1, True))])]),
    }
    assert record["faithful"]["kappa"] is None and record["faithful"]["ci95"]["kappa"] is None
    assert "faithful: kappa                   –" in text_table(record)


def test_the_working_folder_takes_the_results(tmp_path, monkeypatch):
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    assert main(["agreement", "--judge", "ground_truth", "--n", "1", "--out", "."]) == 0
    assert (place / "agreement.json").is_file() and list(tmp_path.iterdir()) == [place]
