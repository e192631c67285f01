"""The newer benchmarks: answers as their own scripts read them, and totals as their authors report them."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from official_vectors import BLINK, MME, PROMPT, REGIONS, TIRBENCH
from PIL import Image

from codev_env.errors import ConfigError
from codev_env.scoring import Score, aggregate, get_scorer
from codev_env.scoring.letters import o3bench_letter
from codev_env.types import Task

PIXEL = Image.new("RGB", (1, 1))
OFFICIAL = get_scorer("official")


def task(bench: str, answer: str, choices=(), category: str = "", task_id: str = "t", **meta) -> Task:
    return Task(task_id, (PIXEL,), "?", answer, choices, category=category, meta={"bench": bench, **meta})


def tir(category: str, answer: str, side: int = 2, **meta) -> Task:
    return task("tirbench", answer, (), category, prompt=PROMPT, meta_data={"difficulty": side}, **meta)


@pytest.mark.parametrize(("category", "gold", "text", "points"), TIRBENCH)
def test_tirbench_counts_as_its_script(category, gold, text, points):
    pytest.importorskip("math_verify")
    score = OFFICIAL(tir(category, gold), text)
    assert math.isclose(score.points, points, abs_tol=1e-6)
    assert score.correct == (points == 1)


def test_tirbench_reads_letters_of_options():
    asked = task("tirbench", "green", ("red", "green"), "color", prompt="Which?\nA. red\nB. green")
    assert [OFFICIAL(asked, text).correct for text in ("B", "green", "red", "A")] == [True, True, False, False]
    assert OFFICIAL(asked, "<answer>B</answer>").extracted == "green"


@pytest.mark.parametrize(
    ("image", "answer", "points"),
    [
        ("data/ocr/60.jpg", "it says mobi", 1),
        ("data/ocr/160.jpg", "it says mobi", 1),
        ("data/ocr/62.jpg", "Buenos aires", 1),
        ("data/ocr/62.jpg", "the published one", 0),
        ("data/ocr/61.jpg", "the published one", 1),
    ],
)
def test_two_right_answers_of_tirbench_are_corrected(image, answer, points):
    assert OFFICIAL(tir("ocr", "the published one", image_1=image), answer).points == points


def test_a_larger_jigsaw_and_one_without_its_size():
    order = "2, 1, 3, 4, 5, 6, 7, 8, 9"
    assert OFFICIAL(tir("jigsaw", order, side=3), "1, 2, 3, 4, 5, 6, 7, 8, 9").points == pytest.approx(7 / 9)
    assert OFFICIAL(tir("jigsaw", order, side=2), order).points == 0
    assert OFFICIAL(task("tirbench", order, (), "jigsaw"), order).points == 0


@pytest.mark.parametrize("category", ["spot_difference", "word_search", "jigsaw"])
def test_a_number_of_thousands_of_digits_gets_no_points(category):
    pytest.importorskip("math_verify")
    gold = "3, 1, 4, 2"
    score = OFFICIAL(tir(category, gold), f"3, 1, 4, {'9' * 5000}" if category != "word_search" else f"3, {'1' * 5000}")
    assert (score.correct, score.points) == (False, 0.0)


@pytest.mark.parametrize(("text", "letter"), MME)
def test_mme_realworld_reads_a_letter(text, letter):
    for right in REGIONS:
        score = OFFICIAL(task("mme-realworld-lite", right, REGIONS), text)
        assert score.correct == (bool(letter) and REGIONS["ABCDE".index(letter)] == right)


@pytest.mark.parametrize(("text", "read"), BLINK)
def test_blink_reads_a_letter_or_asks(text, read):
    asked = []

    def judge(task: Task, answer: str) -> Score:
        asked.append(answer)
        return Score(True, answer, "llm")

    for letter, right in zip("AB", REGIONS, strict=False):
        score = get_scorer("official", judge=judge)(task("blink", right, REGIONS[:2]), text)
        assert score.correct == (read in (None, f"({letter})"))
    assert len(asked) == (2 if read is None else 0)


@pytest.mark.parametrize(
    ("text", "correct"),
    [("B", True), (" b ", True), ("<answer>B</answer>", True), ("(B)", False), ("B.", False), ("Upper left", False)],
)
def test_treebench_compares_the_whole_answer(text, correct):
    assert OFFICIAL(task("treebench", "Upper left", REGIONS), text).correct == correct


@pytest.mark.parametrize(
    ("text", "asks"),
    [("B", False), ("\\boxed{A} or \\boxed{B}", False), ("<answer>B</answer>", False), ("(B)", True), ("b", True)],
)
def test_o3bench_asks_a_model_unless_the_letter_stands_alone(text, asks):
    asked = []
    scorer = get_scorer("official", judge=lambda task, answer: asked.append(answer) or Score(True))
    assert scorer(task("o3bench", "Upper left", REGIONS), text).correct
    assert bool(asked) == asks


@pytest.mark.parametrize("text", ["\\boxed{" * 60_000, "}" + "\\boxed{" * 60_000])
def test_o3bench_looks_for_the_ends_of_boxes_once(text):
    began = time.process_time()
    assert o3bench_letter(task("o3bench", "Upper left", REGIONS), text) is None
    assert time.process_time() - began < 2


@pytest.mark.parametrize("bench", ["charxiv", "visualprobe", "zoombench", "zoombench-crop"])
def test_benchmarks_of_models_alone(bench):
    asked = task(bench, "white")
    assert get_scorer("official", judge=lambda task, answer: Score(answer == "pale"))(asked, "pale").correct
    score = OFFICIAL(asked, "white")
    assert score.correct and "ask" in score.why and "LLM" in score.why


@pytest.mark.parametrize("name", ["lmms"])
@pytest.mark.parametrize("bench", ["tirbench", "treebench", "blink", "charxiv"])
def test_others_do_not_pretend_to_know_them(name, bench):
    with pytest.raises(ConfigError, match="it knows vstar, hrbench4k, hrbench8k, mathvista"):
        get_scorer(name)(task(bench, "a", ("a", "b")), "A")


@pytest.mark.parametrize("category", ["color", "ocr", "jigsaw", "spot_difference", "word_search", "math"])
@given(text=st.text(max_size=40) | st.text("ABCD0123456789, []*-.", max_size=40))
def test_any_text_gets_points(category, text):
    pytest.importorskip("math_verify")
    gold = {"color": "B", "ocr": "x", "math": "A1"}.get(category, "3, 1, 4, 2")
    score = OFFICIAL(tir(category, gold), text)
    assert 0 <= score.points <= 1 and score.correct == (score.points == 1)


# Answer files: rows of (category, right answer, answer), and the totals that the authors' scripts print for them.


def totals(bench: str, tasks, answers) -> dict[str, float]:
    return aggregate(bench, [(asked, OFFICIAL(asked, text)) for asked, text in zip(tasks, answers, strict=True)])


def test_an_answer_file_of_tirbench():
    tasks = [
        tir("jigsaw", "3, 1, 4, 2"),
        tir("jigsaw", "1, 2, 3, 4"),
        tir("spot_difference", "1, 4, 9"),
        tir("ocr", "a"),
    ]
    found = totals("tirbench", tasks, ["3, 1, 2, 4", "1, 2, 3, 4", "1, 4", "b"])
    # (1/2 + 1 + 2/3 + 0) / 4, as the script's `correct / total`.
    assert found == pytest.approx({"overall": 13 / 24, "jigsaw": 0.75, "spot_difference": 2 / 3, "ocr": 0.0})


def test_an_answer_file_of_blink_is_a_mean_of_means():
    rows = [("Counting", "A"), ("Counting", "A"), ("Counting", "B"), ("Jigsaw", "A")]
    tasks = [task("blink", REGIONS[0], REGIONS[:2], category) for category, _ in rows]
    found = totals("blink", tasks, [answer for _, answer in rows])
    assert found == pytest.approx({"overall": (2 / 3 + 1) / 2, "Counting": 2 / 3, "Jigsaw": 1.0})


def test_an_answer_file_of_treebench():
    rows = [("Perception/OCR", "B"), ("Perception/OCR", "A"), ("Reasoning/Ordering", "b")]
    tasks = [task("treebench", REGIONS[1], REGIONS, category) for category, _ in rows]
    found = totals("treebench", tasks, [answer for _, answer in rows])
    assert found == pytest.approx({"overall": 2 / 3, "Perception/OCR": 0.5, "Reasoning/Ordering": 1.0})


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_an_answer_file_of_mme_realworld_lite(form):
    rows = [
        ("Perception", "Remote Sensing", "color/attribute", "B"),
        ("Perception", "Remote Sensing", "position", "A"),
        ("Perception", "Monitoring", "", "B"),
        ("Reasoning", "Monitoring", "", "upper left"),
    ]
    tasks = [
        task("mme-realworld-lite", REGIONS[1], REGIONS, f"{first}/{second}", **{"l2-category": third})
        if form == "tsv"
        else task(
            "mme-realworld-lite", REGIONS[1], REGIONS, second, f"mme-realworld-lite-{first.lower()[:6]}/x/{number}"
        )
        for number, (first, second, third, _) in enumerate(rows)
    ]
    found = totals("mme-realworld-lite", tasks, [answer for *_, answer in rows])
    expected = {
        "overall": 0.75,
        "Perception": 2 / 3,
        "Perception/Remote Sensing": 0.5,
        "Perception/Monitoring": 1.0,
        "Reasoning": 1.0,
        "Reasoning/Monitoring": 1.0,
    }
    details = {"Perception/Remote Sensing/color/attribute": 1.0, "Perception/Remote Sensing/position": 0.0}
    assert found == pytest.approx(expected | (details if form == "tsv" else {}))


def test_an_answer_file_of_o3bench_visualprobe_and_charxiv():
    tasks = [task("o3bench", REGIONS[1], REGIONS, category) for category in ("chart", "chart", "map")]
    assert totals("o3bench", tasks, ["B", "A", "B"]) == pytest.approx({"overall": 2 / 3, "chart": 0.5, "map": 1.0})
    tasks = [task("visualprobe", "white", (), "visual_probe_hard") for _ in range(4)]
    found = totals("visualprobe", tasks, ["white", "White.", "red", ""])
    assert found == {"overall": 0.5, "visual_probe_hard": 0.5}
    tasks = [task("charxiv", "7", (), kind, qa_source=source) for kind, source in (("4", 1), ("1", 3), ("4", 3))]
    found = totals("charxiv", tasks, ["7", "8", "7"])
    assert found == pytest.approx(
        {
            "overall": 2 / 3,
            "answer_type/Number-in-General": 1.0,
            "answer_type/Text-in-Chart": 0.0,
            "source/GPT-Sourced": 1.0,
            "source/Completely Human": 0.5,
        }
    )
