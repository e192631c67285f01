"""What the vision-language judge asks, what it makes of a verdict, and how it is made by name."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import fields, replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from fake_judge_server import FakeJudgeServer, data_of, fails, good, pictures_of, says
from judged import IMAGE, OPEN_TASK, TASK, crop, decoded, judge_of, step_of
from PIL import Image

from codev_env.errors import ConfigError, JudgeError
from codev_env.judges import GroundTruthJudge, MaskingJudge, VLMJudge, get_judge
from codev_env.judges.ground_truth import RED_LINE
from codev_env.judges.options import VLMOptions
from codev_env.judges.rubrics import INSTRUCTIONS, LEVELS
from codev_env.types import Region, StepScore

PLACED = Region(
    ((0, 0), (60, 0), (60, 40), (0, 40)), (0, 0, 60, 40), orientation="rot0", scale=1.0, original_share=1.0, how="probe"
)


def levels(*scores: float):
    """Answers with one score after the other, `clear` from 0.75 on."""
    return [lambda request, score=score: good(request, score=score, clear=score >= 0.75) for score in scores]


def test_what_is_sent_and_what_comes_of_it():
    with FakeJudgeServer() as server:
        score = judge_of(server).score(TASK, step_of(crop()), ())
    assert score == StepScore(1.0, "1: a mug", faithful=True)
    [request] = server.requests
    assert request["messages"][0] == {"role": "system", "content": INSTRUCTIONS["search"]}
    assert len(request["messages"]) == 2
    data = data_of(request)
    assert 100_000 <= data.pop("check") < 1_000_000
    assert data == {"question": "What colour is the mug?\n(A) blue\n(B) red", "pictures": 1}
    [url] = pictures_of(request)
    assert np.array_equal(np.asarray(decoded(url)), np.asarray(crop())), "small pictures are sent without loss"
    assert (request["model"], request["temperature"], request["max_completion_tokens"]) == ("toy", 0.0, 1024)
    schema = request["response_format"]["json_schema"]
    assert schema["strict"] and schema["schema"]["properties"]["score"]["enum"] == list(LEVELS)
    assert server.keys == {"bearer a-secret-key"}


@pytest.mark.parametrize("level", LEVELS)
def test_levels(level):
    with FakeJudgeServer(*levels(level)) as server:
        assert judge_of(server).score(TASK, step_of(crop()), ()).value == level


@pytest.mark.parametrize(
    ("clear", "score", "faithful"), [(True, 1, True), (True, 0.75, True), (True, 0.5, False), (False, 1, False)]
)
def test_faithful_is_a_strict_yes(clear, score, faithful):
    with FakeJudgeServer(lambda request: good(request, clear=clear, score=score)) as server:
        assert judge_of(server).score(TASK, step_of(crop()), ()).faithful is faithful


def test_each_picture_is_judged_alone_and_the_value_is_their_mean():
    by_size = {60: (1, True), 61: (0.25, False), 62: (0, False)}

    def answer(request):
        [url] = pictures_of(request)
        score, clear = by_size[decoded(url).width]
        return good(request, score=score, clear=clear)

    with FakeJudgeServer(answer) as server:
        score = judge_of(server).score(TASK, step_of(crop(0, 60), crop(1, 61), crop(2, 62)), ())
    assert score.value == pytest.approx((1 + 0.25 + 0) / 3) and score.faithful
    assert len(server.requests) == 3


def test_together_is_one_request():
    with FakeJudgeServer(*levels(0.75)) as server:
        score = judge_of(server, images="together").score(TASK, step_of(crop(0), crop(1), crop(2)), ())
    assert score == StepScore(0.75, "0.75: a mug", faithful=True)
    [request] = server.requests
    assert len(pictures_of(request)) == 3 and data_of(request)["pictures"] == 3


@pytest.mark.parametrize("images", ["each", "together"])
def test_many_pictures_do_not_pay(images):
    with FakeJudgeServer() as server:
        score = judge_of(server, max_images=2, images=images).score(TASK, step_of(*map(crop, range(8))), ())
    assert score.value == 2 / 8 and "beyond max_images" in score.why
    assert sum(len(pictures_of(request)) for request in server.requests) == 2


def test_settled_without_a_request():
    with FakeJudgeServer() as server:
        judge = judge_of(server)
        assert judge.score(TASK, step_of(), ()) == StepScore(0.0, "no image")
        assert judge.score(TASK, step_of(stdout="I see a red mug"), ()).value == 0.0
        failed = judge.score(TASK, step_of(crop(), error="NameError: x", stop="error"), ())
        assert failed == StepScore(RED_LINE, "avoidable error (error)")
        assert judge.score(TASK, step_of(IMAGE.copy()), ()) == StepScore(RED_LINE, "no-op: shown before")
        again = judge.score(TASK, step_of(crop(), regions=(PLACED,)), (step_of(crop()),))
        assert again == StepScore(RED_LINE, "no-op: shown before")
        assert server.requests == []
        assert judge.score(TASK, step_of(crop(), crop(9)), (step_of(crop()),)).value == (RED_LINE + 1) / 2
        assert judge.score(TASK, step_of(crop(20)), (step_of(crop()),)).value == 1.0
        assert len(server.requests) == 2


def test_the_first_look_at_a_frame_that_was_not_shown_is_judged():
    class Frames(list):
        """Frames of a video, of which only the first may be decoded."""

        def __getitem__(self, index):
            assert index == slice(None, 1)
            return super().__getitem__(index)

        def __iter__(self):
            raise AssertionError("the whole video is decoded")

    hidden = IMAGE.transpose(Image.Transpose.ROTATE_180)
    video = replace(TASK, images=Frames([IMAGE, hidden]), shown=1, times=(0.0, 1.0))
    with FakeJudgeServer() as server:
        judge = judge_of(server)
        first = step_of(hidden.copy())
        assert judge.score(video, first, ()).value != RED_LINE and len(server.requests) == 1
        assert judge.score(video, step_of(hidden.copy()), (first,)).why == "no-op: shown before"
        assert judge.score(video, step_of(IMAGE.copy()), ()).why == "no-op: shown before"
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("region", "sent"),
    [
        (Region(), True),
        (PLACED, True),
        (Region(how="match"), True),
        (Region(how="probe"), False),
        (Region(PLACED.polygon, PLACED.box, scale=1.0, original_share=0.24, how="probe"), False),
        (Region(PLACED.polygon, PLACED.box, scale=1.0, original_share=0.25, how="probe"), True),
    ],
)
def test_drawn_pictures_are_not_sent(region, sent):
    with FakeJudgeServer() as server:
        score = judge_of(server).score(TASK, step_of(crop(), regions=(region,)), ())
        assert (score.value, score.faithful, len(server.requests)) == (float(sent), sent, int(sent))
        assert judge_of(server, only_original=False).score(TASK, step_of(crop(), regions=(region,)), ()).value == 1.0


def test_large_pictures_are_shrunk_and_tiny_ones_enlarged_as_the_policy_sees_them():
    big, tiny = IMAGE.resize((1500, 600)), crop(0, 14, 7)
    with FakeJudgeServer() as server:
        judge_of(server, image_side=1000).score(TASK, step_of(big, tiny), ())
    sizes = sorted(decoded(url).size for request in server.requests for url in pictures_of(request))
    assert sizes == [(56, 28), (1000, 400)]


def test_the_rubric_for_calculations_shows_what_was_printed():
    with FakeJudgeServer(*levels(1)) as server:
        judge = judge_of(server, rubric="calculation", max_images=1)
        score = judge.score(OPEN_TASK, step_of(crop(), crop(1), stdout="3 + 4 = 7"), ())
        assert score == StepScore(1.0, "1: a mug"), "a calculation shows no target, whatever the reply says"
        assert judge.score(OPEN_TASK, step_of(stdout=" \n"), ()) == StepScore(0.0, "no output")
        judge.score(OPEN_TASK, step_of(stdout="x" * 5000), ())
    first, second = server.requests
    assert first["messages"][0]["content"] == INSTRUCTIONS["calculation"]
    assert data_of(first)["printed"] == "3 + 4 = 7" and len(pictures_of(first)) == 1
    assert data_of(second)["printed"] == "x" * 4000 + " …"


def test_auto_takes_the_rubric_for_calculations_only_where_text_can_be_all_there_is():
    with FakeJudgeServer() as server:
        judge = judge_of(server, rubric="auto")
        judge.score(OPEN_TASK, step_of(stdout="7"), ())
        judge.score(OPEN_TASK, step_of(crop(), stdout="7"), ())
        assert judge.score(TASK, step_of(stdout="red"), ()).value == 0.0
    asked = [request["messages"][0]["content"] for request in server.requests]
    assert asked == [INSTRUCTIONS["calculation"], INSTRUCTIONS["search"]]


def test_by_name():
    with FakeJudgeServer() as server:
        judge = get_judge(f"{server.url}#toy")
        assert isinstance(judge, VLMJudge)
        assert judge.score(TASK, step_of(crop()), ()).value == 1.0
        assert judge.ping() == f"{server.url} serves toy"
        options = {"name": "vlm", "model": "toy", "base_url": server.url, "retries": 1, "rubric": "auto"}
        chosen = get_judge(json.loads(json.dumps(options)))
        assert chosen is get_judge(options) and chosen is not judge, "equal options share connections and limits"
        assert chosen.options.retries == 1
        with pytest.raises(JudgeError, match="no model 'other'; it serves: toy"):
            get_judge(f"{server.url}#other").ping()
    with pytest.raises(JudgeError, match="cannot be reached"):
        judge.ping()
    with FakeJudgeServer(says("x")) as server:
        assert get_judge(f"{server.url}#alias").ping() == f"{server.url} answers for alias, which it does not list"
        assert len(server.requests) == 1
    with FakeJudgeServer(fails(404)) as server, pytest.raises(JudgeError, match="no model 'alias'.*status 404"):
        get_judge(f"{server.url}#alias").ping()
    with FakeJudgeServer(models=None) as server:
        assert "does not list its models" in VLMJudge("toy", server.url).ping()


@pytest.mark.parametrize(
    ("judge", "problem"),
    [
        ("vlm", "name the model"),
        ("http://localhost:1/v1", "names no model"),
        ("http://localhost:1/v1#", "names no model"),
        ("vlmm", "Did you mean 'vlm'"),
        ({"name": "vlmm", "model": "m"}, "unknown judge"),
        ({"name": 3}, "unknown judge"),
        ({"model": "m", "retry": 3}, "Did you mean 'retries'"),
        ({"model": "m", "api_key": "sk"}, "api_key_env"),
        ({"model": "m", "rubric": "find"}, "option rubric"),
        ({"model": "m", "images": "all"}, "option images"),
        ({"model": "m", "on_error": "zero"}, "option on_error"),
        ({"model": "m", "concurrency": 0}, "concurrency is 0"),
        ({"model": "m", "retries": 1.5}, "retries is 1.5"),
        ({"model": "m", "max_images": True}, "max_images is True"),
        ({"model": "m", "timeout_s": 0}, "timeout_s is 0"),
        ({"model": "m", "timeout_s": None}, "timeout_s is None"),
        ({"model": "m", "max_cost": float("nan")}, "max_cost is nan"),
        ({"model": "m", "max_cost": 1.0}, "prompt_price"),
        ({"model": "m", "only_original": "no"}, "only_original is 'no'"),
        ({"name": "ground_truth", "model": "m"}, "option of judge 'ground_truth'"),
        ({"name": "auto", "on_error": "zero"}, "on_error"),
        (3, "judge is a int"),
    ],
)
def test_judges_that_cannot_be(judge, problem):
    with pytest.raises(ConfigError, match=problem) as caught:
        get_judge(judge)
    assert "sk" not in str(caught.value).split()


def test_the_documentation_shows_the_prompts_and_options():
    page = " ".join((Path(__file__).parents[2] / "docs/judges.md").read_text(encoding="utf-8").split())
    for instructions in INSTRUCTIONS.values():
        for paragraph in instructions.split("\n\n"):
            assert " ".join(paragraph.split()) in page
    for field in fields(VLMOptions):
        assert f"`{field.name}`" in page


def test_any_judge_can_mask_its_failures():
    judge = get_judge({"name": "ground_truth", "on_error": "mask"})
    assert isinstance(judge, MaskingJudge) and judge.name == "ground_truth"
    score = judge.score(OPEN_TASK, step_of(crop()), ())
    assert (score.value, score.failed) == (None, True) and "no target boxes" in score.why
    assert isinstance(get_judge({"name": "ground_truth"}), GroundTruthJudge)
    assert judge.score(TASK, step_of(), ()) == GroundTruthJudge().score(TASK, step_of(), ())


def test_the_key_stays_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("JUDGE_KEY", "key-of-the-environment")
    with FakeJudgeServer() as server:
        judge = judge_of(server, cache=tmp_path, api_key_env="JUDGE_KEY")
        judge.score(TASK, step_of(crop()), ())
        copied = pickle.dumps(judge)
        assert b"a-secret-key" not in copied and "a-secret-key" not in repr(judge)
        assert copy.deepcopy(judge) is judge
        assert all(b"secret" not in path.read_bytes() for path in tmp_path.rglob("*.json"))
        pickle.loads(copied).score(TASK, step_of(crop(5)), ())
    assert server.keys == {"bearer a-secret-key", "bearer key-of-the-environment"}


CODE = "<code>show(image.crop(({0}, 20, {0} + 80, 120)))</code>"


def test_in_an_environment():
    with FakeJudgeServer(*levels(0.75)) as server:
        judge = {"name": "vlm", "model": "toy", "base_url": server.url}
        env = gym.make("codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy", judge=judge)
        env.reset(seed=0)
        info = env.step(CODE.format(10))[4]
        assert info["is_faithful"] and info["reward_terms"]["tool"] == pytest.approx(0.5 * 0.75)
        info = env.step("<answer>A</answer>")[4]
        assert len(server.requests) == 1, "answers are not judged"
        assert gym.spec(env.spec.id).id == env.spec.id and json.loads(env.spec.to_json())["kwargs"]["judge"] == judge
        again = pickle.loads(pickle.dumps(env.unwrapped))
        again.reset(seed=0)
        again.step(CODE.format(20))
        assert len(server.requests) == 2
        env.close()


def test_a_vector_environment_asks_for_all_at_once():
    with FakeJudgeServer(lambda request: good(request, delay_s=0.5)) as server:
        envs = gym.make_vec(
            "codev_env:CodeV-VStar-v0", num_envs=6, data="synthetic", scenes="toy", judge=f"{server.url}#toy"
        )
        envs.reset(seed=0)
        infos = envs.step([CODE.format(10 + i) for i in range(5)] + ["nothing"])[4]
        envs.close()
    assert infos["is_faithful"].tolist() == [True] * 5 + [False]
    assert server.most == 5


def test_a_failed_judge_ends_the_episode_or_is_masked():
    with FakeJudgeServer(lambda request: good(request, score=2)) as server:
        options = {"name": "vlm", "model": "toy", "base_url": server.url, "retries": 1}
        env = gym.make("codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy", judge=options)
        env.reset(seed=0)
        with pytest.raises(JudgeError, match="in 2 tries"):
            env.step(CODE.format(10))
        with pytest.raises(gym.error.ResetNeeded):
            env.step(CODE.format(10))
        masked = gym.make(
            "codev_env:CodeV-VStar-v0", data="synthetic", scenes="toy", judge={**options, "on_error": "mask"}
        )
        masked.reset(seed=0)
        with pytest.warns(RuntimeWarning, match="must not be trained on"):
            info = masked.step(CODE.format(10))[4]
        assert info["reward_terms"]["tool"] == 0.0 and masked.unwrapped.episode.judge_failed
        [step] = masked.unwrapped.episode.steps
        assert step.score is not None and step.score.value is None


def test_a_batch_must_be_answered_whole():
    class Short:
        name = "short"

        def score(self, task, step, history):
            raise AssertionError

        def score_batch(self, items):
            return [StepScore(1.0)] * (len(items) - 1)

    envs = gym.make_vec("codev_env:CodeV-VStar-v0", num_envs=2, data="synthetic", scenes="toy", judge=Short())
    envs.reset(seed=0)
    with pytest.raises(JudgeError, match="returned 1 scores for a batch of 2"):
        envs.step([CODE.format(10), CODE.format(20)])
    envs.close()


def test_scored_pictures_may_have_any_mode_of_an_execution():
    with FakeJudgeServer() as server:
        assert judge_of(server).score(TASK, step_of(Image.new("L", (30, 30), 9)), ()).value == 1.0


def test_options_may_be_json():
    judge = get_judge('{"name": "vlm", "model": "m", "base_url": "http://localhost:1/v1", "on_error": "mask"}')
    assert (judge.name, judge.options.on_error) == ("vlm", "mask")
    for text in ("{", '{"name": "vlm"'):
        with pytest.raises(ConfigError, match="is not JSON"):
            get_judge(text)


@pytest.mark.parametrize("judge", [GroundTruthJudge(), VLMJudge("toy", "http://127.0.0.1:9/v1", retries=0)])
@pytest.mark.parametrize(("mode", "shown"), [("P", "RGB"), ("LA", "RGBA"), ("CMYK", "RGB"), ("L", "L")])
def test_an_image_of_any_mode_is_known_again_when_it_is_shown_as_it_is(judge, mode, shown):
    """Programs get it in a plain mode; no request is sent for it."""
    image = IMAGE.convert(mode)
    corners = ((0, 0), (400, 0), (400, 300), (0, 300))
    whole = Region(corners, (0, 0, 400, 300), orientation="rot0", scale=1.0, original_share=1.0, how="probe")
    step = step_of(image.convert(shown), regions=(whole,))
    score = judge.score(replace(TASK, images=(image,)), step, ())
    assert score.value == RED_LINE and "no-op" in score.why
