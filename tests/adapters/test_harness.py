"""An agent as a model of VLMEvalKit and lmms-eval gives the answers that an evaluation of this project gives."""

from __future__ import annotations

import io
import re
import sys
import types
from abc import ABC, abstractmethod

import pytest
from PIL import Image

from codev_agents.writing import answer_turn, crop_turn
from codev_env.adapters.harness import ToolModel, VLMEvalKitModel, lmms_model
from codev_env.dialects import get_dialect
from codev_env.errors import ContextFull, TaskError
from codev_env.scoring import is_correct
from codev_env.tasks import load_tasks

DIALECT = get_dialect("codev")
PROMPT = "{question}\n{choices}"


class Guesser:
    """Crops, then answers with a letter that follows from the question and from the number of images it has seen."""

    name = "guesser"

    def reset(self, env):
        self.images = 0

    def act(self, observation):
        self.images += len(observation["images"])
        if self.images == 1:
            self.letter = "ABCD"[len(re.sub(r"\W", "", observation["text"])) % 2]
            return crop_turn(DIALECT, (0, 0, 40, 40))
        return answer_turn(DIALECT, self.letter, True)


@pytest.fixture(scope="module")
def questions():
    tasks = load_tasks("synthetic", "test", scenes="vstar")
    return [tasks[n] for n in range(6)]


@pytest.fixture(scope="module")
def ours(questions):
    """The answers of the environment itself."""
    found = []
    for task in questions:
        bare = type(task)(task.task_id, task.images, prompt_of(task), "")
        model = ToolModel(Guesser)
        assert model.answer(bare.question, bare.images) == model.answer(bare.question, bare.images)
        found.append(model.answer(bare.question, bare.images))
    return found


def prompt_of(task) -> str:
    return PROMPT.format(
        question=task.question, choices="\n".join(f"{x}. {c}" for x, c in zip("ABCD", task.choices, strict=False))
    )


def test_vlmevalkit_gets_the_same_answers(questions, ours, tmp_path):
    model = VLMEvalKitModel(Guesser)
    model.set_dump_image(lambda line: None)
    found = []
    for number, task in enumerate(questions):
        path = tmp_path / f"{number}.png"
        task.image.save(path)
        message = [{"type": "image", "value": str(path)}, {"type": "text", "value": prompt_of(task)}]
        found.append(model.generate(message=message, dataset="VStarBench"))
    assert found == ours and set(found) <= set("ABCD")
    assert [is_correct(t, a) for t, a in zip(questions, found, strict=True)].count(True) > 0
    assert not model.use_custom_prompt("VStarBench") and model.INTERLEAVE


def test_vlmevalkit_refuses_what_it_does_not_know():
    with pytest.raises(TaskError, match="type 'video'"):
        VLMEvalKitModel(Guesser).generate([{"type": "video", "value": "a.mp4"}])
    with pytest.raises(TaskError, match="without an image"):
        VLMEvalKitModel(Guesser).generate("What is it?")


class Reader:
    """Answers with the size of the image and the colour of its corner."""

    name = "reader"

    def reset(self, env):
        pass

    def act(self, observation):
        image = observation["images"][0]
        return answer_turn(DIALECT, f"{image.shape[:2]} {image[0, 0].tolist()}", True)


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.new("RGB", (60, 40), "red").save(file, "PNG", exif=exif)
    return Image.open(file)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Image.new("RGBA", (40, 40), (0, 0, 0, 0)), "(40, 40) [255, 255, 255]"),
        (lambda: Image.new("I;16", (40, 40), 20 * 257), "(40, 40) [20, 20, 20]"),
        (turned, "(60, 40) [255, 0, 0]"),
        (lambda: Image.new("L", (14, 14), 7), "(28, 28) [7, 7, 7]"),
    ],
)
def test_images_in_memory_are_read_as_their_files_are(make, expected, tmp_path):
    image = make()
    image.save(tmp_path / "a.png", exif=image.getexif())
    answers = [ToolModel(Reader).answer("?", [given]) for given in (str(tmp_path / "a.png"), image, make())]
    assert answers == [expected] * 3


def test_an_image_in_memory_that_cannot_be_read_is_refused():
    with pytest.raises(TaskError, match="an image: .*floating point"):
        ToolModel(Reader).answer("?", [Image.new("F", (40, 40))])


class Request:
    """The part of `lmms_eval.api.instance.Instance` that models read."""

    def __init__(self, *args):
        self.args = args


def _stand_in(monkeypatch):
    """The library's base class, as its source publishes it, where the library is not installed."""

    class lmms(ABC):  # noqa: N801
        def __init__(self):
            self._rank, self._world_size, self.task_dict = 0, 1, {}

        @abstractmethod
        def loglikelihood(self, requests): ...

        @abstractmethod
        def generate_until(self, requests): ...

        @abstractmethod
        def generate_until_multi_round(self, requests): ...

    module = types.ModuleType("lmms_eval.api.model")
    module.lmms = lmms
    for name in ("lmms_eval", "lmms_eval.api"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "lmms_eval.api.model", module)


def test_lmms_eval_gets_the_same_answers(questions, ours, monkeypatch):
    try:
        import lmms_eval.api.model  # noqa: F401
    except ImportError:
        _stand_in(monkeypatch)
    model = lmms_model(Guesser)
    model.task_dict = {"vstar": {"test": [{"image": task.image} for task in questions]}}
    requests = [
        Request(prompt_of(task), {"until": ["\n"]}, lambda doc: [doc["image"], None], n, "vstar", "test")
        for n, task in enumerate(questions)
    ]
    assert model.generate_until(requests) == ours
    with pytest.raises(NotImplementedError, match="no likelihood"):
        model.loglikelihood([])


def test_lmms_eval_evaluates_the_stand_ins_to_our_accuracy(questions, ours, tmp_path):
    """The library's own evaluator, from a file of generated tasks to its table of results."""
    evaluator = pytest.importorskip("lmms_eval.evaluator")
    datasets = pytest.importorskip("datasets")
    from lmms_eval.api.task import ConfigurableTask

    features = {"number": datasets.Value("int64"), "image": datasets.Image(), "prompt": datasets.Value("string")}
    rows = [{"number": n, "image": task.image, "prompt": prompt_of(task)} for n, task in enumerate(questions)]
    file = tmp_path / "rows.parquet"
    datasets.Dataset.from_list(rows, features=datasets.Features(features)).to_parquet(file)
    task = ConfigurableTask(
        config={
            "task": "stand_ins",
            "dataset_path": "parquet",
            "dataset_kwargs": {"data_files": {"test": str(file)}, "cache_dir": str(tmp_path / "cache")},
            "test_split": "test",
            "output_type": "generate_until",
            "generation_kwargs": {"until": ["\n\n"]},
            "doc_to_visual": lambda row: [row["image"]],
            "doc_to_text": lambda row: row["prompt"],
            "doc_to_target": "number",
            "process_results": lambda row, answers: {"right": float(is_correct(questions[row["number"]], answers[0]))},
            "metric_list": [{"metric": "right", "aggregation": "mean", "higher_is_better": True}],
        }
    )
    model = lmms_model(Guesser)
    model.task_dict["stand_ins"] = task.dataset
    found = evaluator.evaluate(lm=model, task_dict={"stand_ins": task}, bootstrap_iters=0)
    assert [sample["resps"] for sample in found["samples"]["stand_ins"]] == [[[answer]] for answer in ours]
    right = [is_correct(question, answer) for question, answer in zip(questions, ours, strict=True)]
    assert found["results"]["stand_ins"]["right,none"] == pytest.approx(sum(right) / len(right)) and any(right)


def test_an_episode_without_an_answer_gives_the_last_text():
    class Silent(Guesser):
        def act(self, observation):
            return "I am still looking."

    task = load_tasks("synthetic", "test", scenes="toy")[0]
    assert ToolModel(Silent, max_turns=2).answer("?", [task.image]) == "I am still looking."


class Forgetful(Guesser):
    """Looks until its context is full."""

    def __init__(self, turns):
        self.turns = turns

    def reset(self, env):
        self.left = self.turns

    def act(self, observation):
        if not self.left:
            raise ContextFull("the conversation is too long")
        self.left -= 1
        return crop_turn(DIALECT, (0, 0, 40 + self.left, 40))


def test_an_episode_that_fills_the_context_ends_as_one_that_runs_out_of_turns(questions):
    image = questions[0].images[0]
    full, out = ToolModel(lambda: Forgetful(2)), ToolModel(lambda: Forgetful(2), max_turns=2)
    assert full.answer("What is it?", [image]) == out.answer("What is it?", [image]) != ""
    with pytest.raises(ContextFull):
        ToolModel(lambda: Forgetful(0)).answer("What is it?", [image])
