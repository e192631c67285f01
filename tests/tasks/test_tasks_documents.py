"""Generated documents: exact boxes of words, answers that follow from the page, difficulty."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codev_env.errors import ConfigError, TaskError
from codev_env.scoring import is_correct
from codev_env.tasks import SceneTaskSet, load_tasks
from codev_env.tasks.generators import documents
from codev_env.tasks.generators.documents import CATEGORIES, DocumentOptions
from codev_env.tasks.generators.lettering import lettering
from codev_env.tasks.generators.words import WORDS

SMALL = DocumentOptions(sizes=((900, 700), (600, 900)), font=(12, 15), paragraphs=(4, 8), measure=(16, 20))


def pixels(task) -> np.ndarray:
    return np.asarray(task.image)


def page_of(task) -> dict[int, dict[int, list[str]]]:
    """Put the words of the metadata back into paragraphs and lines."""
    page = defaultdict(lambda: defaultdict(list))
    for item in task.meta["objects"]:
        assert item["word"] == len(page[item["paragraph"]][item["line"]])
        page[item["paragraph"]][item["line"]].append(item["text"])
    return page


def named(page, opening: str):
    """Return the lines of the only paragraph that begins with two words."""
    (lines,) = [lines for lines in page.values() if " ".join(lines[0][:2]) == opening]
    return lines


def solve(question: str, page) -> str:
    """Answer a question from the words alone, by other means than the generator's."""
    ordinals = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
    if m := re.fullmatch(r'What is the (\w+) word on line (\d+) of the paragraph that begins with "(.+)"\?', question):
        line = named(page, m[3])[int(m[2]) - 1]
        if m[1] in ordinals:
            return line[ordinals.index(m[1])]
        ranked = sorted(line, key=len, reverse=m[1] == "longest")
        assert len(ranked[0]) != len(ranked[1])
        return ranked[0]
    if m := re.fullmatch(r'How many words are on line (\d+) of the paragraph that begins with "(.+)"\?', question):
        return str(len(named(page, m[2])[int(m[1]) - 1]))
    if m := re.fullmatch(r'How many lines does the paragraph that begins with "(.+)" have\?', question):
        return str(len(named(page, m[1])))
    where = r'(?:the paragraph that begins with "(.+)"|the paragraphs of this page)'
    tail = r", with or without a capital letter\?"
    if m := re.fullmatch(rf'How many times does the word "(\w+)" occur in {where}{tail}', question):
        paragraphs = [named(page, m[2])] if m[2] else page.values()
        return str(sum(word.lower() == m[1] for lines in paragraphs for line in lines.values() for word in line))
    m = re.search(r'the word "(\w+)"\?', question)
    holders = [
        (lines, number)
        for lines in page.values()
        for number, line in lines.items()
        for word in line
        if word.lower() == m[1]
    ]
    ((lines, number),) = holders
    if question.startswith("On which line"):
        return str(number + 1)
    return lines[0][0] if question.startswith("What is the first word of the paragraph") else lines[len(lines) - 1][-1]


@pytest.mark.parametrize("category", CATEGORIES)
def test_answers_follow_from_the_page(category):
    kinds = Counter()
    for task in SceneTaskSet(SMALL.only(category), "train", size=60):
        page = page_of(task)
        assert solve(task.question, page) == task.answer
        assert is_correct(task, task.answer) and not is_correct(task, "nothing of the kind")
        assert task.category == category
        assert task.targets == tuple(tuple(task.meta["objects"][i]["box"]) for i in task.meta["targets"])
        evidence = [task.meta["objects"][i]["text"].lower() for i in task.meta["targets"]]
        if task.meta["answer_type"] == "text":
            assert task.answer.lower() in evidence
        if category == "counting":
            assert len(evidence) == int(task.answer)
        kinds[" ".join(task.question.split()[:4])] += 1
    assert len(kinds) > 1


def test_words_are_words():
    assert len(set(WORDS)) == len(WORDS) and all(re.fullmatch("[a-z]{3,8}", word) for word in WORDS)
    for task in SceneTaskSet(SMALL, "train", size=10):
        assert {item["text"].lower() for item in task.meta["objects"]} <= set(WORDS)


def test_boxes_hold_the_ink_of_a_word_and_nothing_else():
    for task in SceneTaskSet(dataclasses.replace(SMALL, pictures=0), "train", size=12):
        image = pixels(task)
        ink = (image != image[0, 0]).any(2)
        for item in task.meta["objects"]:
            x1, y1, x2, y2 = item["box"]
            word = ink[y1:y2, x1:x2]
            assert word[0].any() and word[-1].any() and word[:, 0].any() and word[:, -1].any()
            assert np.array_equal(word, np.asarray(lettering(item["text"], task.meta["font"]).mask) > 0)
            # Clear all around, except to the right, where punctuation may follow.
            assert not ink[y1 - 1, x1:x2].any() and not ink[y2, x1:x2].any() and not ink[y1:y2, x1 - 1].any()


def test_without_the_targets_only_their_boxes_change(monkeypatch):
    real = documents.write_text
    for number in range(6):
        seed = np.random.SeedSequence(number)
        task = SMALL.draw("t", seed)

        def write(image, text, size, pen, color, targets=task.targets):
            box = real(image.copy(), text, size, pen, color)
            return box if box in targets else real(image, text, size, pen, color)

        with monkeypatch.context() as patch:
            patch.setattr(documents, "write_text", write)
            changed = (pixels(task) != pixels(SMALL.draw("t", seed))).any(2)
        assert changed.any()
        for x1, y1, x2, y2 in task.targets:
            assert changed[y1:y2, x1:x2].any()
            changed[y1:y2, x1:x2] = False
        assert not changed.any()


def shares(options, size: int) -> list[float]:
    tasks = SceneTaskSet(options, "test", size=size)
    return [
        max((x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in task.targets) / (task.image.width * task.image.height)
        for task in tasks
    ]


def test_targets_shrink_with_difficulty():
    means = [np.mean(shares(DocumentOptions().at_difficulty(d), 5)) for d in (0, 0.25, 0.5, 0.75, 1)]
    assert all(a > b for a, b in zip(means, means[1:], strict=False))


def test_targets_are_below_a_hundredth_of_a_percent_at_the_hardest_level():
    hardest = DocumentOptions().at_difficulty(1.0)
    assert max(shares(hardest, 8)) < 0.0001
    # Whatever the task: the largest word on the smallest page.
    boxes = [lettering(form, hardest.font[1]).mask.size for word in WORDS for form in (word, word.capitalize())]
    area = min(width * height for width, height in hardest.sizes)
    assert max(width * height for width, height in boxes) / area < 0.0001
    assert max(shares(load_tasks("synthetic", "test", scenes="mvtool").options, 5)) < 0.0001


def test_options_survive_json_and_pickle():
    given_options = json.loads(json.dumps(dataclasses.asdict(SMALL)))
    assert DocumentOptions().with_overrides(given_options) == SMALL
    assert pickle.loads(pickle.dumps(SMALL)) == SMALL
    tasks = load_tasks("synthetic", "val", scenes={"preset": "documents", "difficulty": 0.5, "font": [30, 30]})
    assert tasks.options == dataclasses.replace(DocumentOptions().at_difficulty(0.5), font=(30, 30))


def test_splits_and_seeds_differ():
    pages = {
        json.dumps(SceneTaskSet(SMALL, split, seed=seed)[index].meta["objects"])
        for split in ("train", "val", "test")
        for seed in (0, 1)
        for index in range(4)
    }
    assert len(pages) == 24


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"font": (5, 8)}, "'font' is"),
        ({"font": (180, 200)}, "small enough for 2 paragraphs"),
        ({"measure": (2, 20)}, "'measure' is"),
        ({"lines": (0, 3)}, "'lines' is"),
        ({"contrast": (0.0, 1.0)}, "'contrast' is"),
        ({"categories": ("spelling",)}, "one or more of recognition, counting, paragraph"),
        ({"pictures": 2}, "a probability"),
        ({"sizes": ()}, "pairs"),
    ],
)
def test_bad_options_are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(SMALL, **changes)


@pytest.mark.parametrize("difficulty", [-0.1, 1.1, "hard", True, float("nan")])
def test_bad_difficulty(difficulty):
    with pytest.raises(ConfigError, match=r"difficulty is .* from 0 \(easiest\) to 1"):
        load_tasks("synthetic", "val", scenes={"preset": "documents", "difficulty": difficulty})


def test_a_page_without_a_question_says_what_to_do(monkeypatch):
    monkeypatch.setattr(documents, "_ask_word", lambda *args: None)
    monkeypatch.setattr(documents, "_ATTEMPTS", 2)
    with pytest.raises(TaskError, match="no question of category 'recognition'"):
        SMALL.only("recognition").draw("t", np.random.SeedSequence(0))


@settings(max_examples=25, deadline=None)
@given(
    size=st.tuples(st.integers(500, 1200), st.integers(500, 1200)),
    font=st.integers(9, 16),
    lines=st.tuples(st.integers(2, 4), st.integers(4, 6)),
    measure=st.tuples(st.integers(14, 16), st.integers(16, 20)),
    seed=st.integers(0, 2**40),
)
def test_any_legal_page_can_be_written(size, font, lines, measure, seed):
    options = dataclasses.replace(SMALL, sizes=(size,), font=(font, font), lines=lines, measure=measure)
    task = options.draw("t", np.random.SeedSequence(seed))
    assert task.image.size == size
    assert solve(task.question, page_of(task)) == task.answer
    for item in task.meta["objects"]:
        x1, y1, x2, y2 = item["box"]
        assert 0 <= x1 < x2 <= size[0] and 0 <= y1 < y2 <= size[1]
