"""A judge that cannot be had: tried again, then an error or a masked score; never a score of 0."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

import pytest
from fake_judge_server import (
    FakeJudgeServer,
    Reply,
    completion,
    data_of,
    fails,
    good,
    pictures_of,
    says,
    verdict,
)
from judged import OPEN_TASK, TASK, crop, decoded, judge_of, step_of

from codev_env.errors import ConfigError, JudgeError
from codev_env.judges import MaskingJudge, VLMJudge, get_judge
from codev_env.judges.cache import VerdictCache
from codev_env.judges.client import LONGEST_ASKED_PAUSE_S, Asker, asked_pause
from codev_env.judges.options import JudgeStats
from codev_env.judges.rubrics import Verdict, read_verdict
from codev_env.threads import until_given_up

STEP = step_of(crop())
GOOD = {"why": "a mug", "clear": True, "score": 1}

FAILURES = {
    "429": fails(429),
    "429 with retry-after": fails(429, retry_after="0"),
    "408": fails(408),
    "409": fails(409),
    "500": fails(500),
    "503": fails(503),
    "cut": lambda request: Reply(completion(verdict(request)), cut=True),
    "nothing": lambda request: Reply(b"", cut=True),
    "an empty body": lambda request: Reply(b""),
    "not JSON": lambda request: Reply(b"<html>busy</html>"),
    "not JSON of another type": lambda request: Reply(b"busy", headers={"content-type": "text/plain"}),
    "half a JSON": lambda request: Reply(b'{"choices": ['),
    "JSON of another kind": lambda request: Reply([1]),
    "null": lambda request: Reply(None),
    "no choices": lambda request: Reply({"choices": []}),
    "choices that are none": lambda request: Reply({"choices": None}),
    "no message": lambda request: Reply({"choices": [{}]}),
    "a choice that is text": lambda request: Reply({"choices": ["yes"]}),
    "no content": says(None),
    "empty content": says(""),
    "text": says("The picture shows a mug, so 1."),
    "content in parts": lambda request: Reply({"choices": [{"message": {"content": [verdict(request)]}}]}),
    "huge": says('{"a": "' + "x" * 5_000_000),
    "deep": says('{"a":' * 3000),
    "another level": lambda request: good(request, score=0.3),
    "a level above all": lambda request: good(request, score=2),
    "a negative level": lambda request: good(request, score=-0.5),
    "a level as text": lambda request: good(request, score="1"),
    "a level that is a truth": lambda request: good(request, score=True),
    "a level that is no number": lambda request: good(request, score=float("nan")),
    "a level that is null": lambda request: good(request, score=None),
    "clear as text": lambda request: good(request, clear="true"),
    "clear as a number": lambda request: good(request, clear=1),
    "why that is no text": lambda request: good(request, why=None),
    "more than asked": lambda request: good(request, extra=1),
    "less than asked": lambda request: Reply(completion(json.dumps({"check": data_of(request)["check"], "score": 1}))),
    "another check number": lambda request: good(request, check=data_of(request)["check"] + 1),
    "a check number as text": lambda request: good(request, check=str(data_of(request)["check"])),
    "a check number with a point": lambda request: good(request, check=float(data_of(request)["check"])),
    "two verdicts": lambda request: Reply(completion(verdict(request, score=0) + verdict(request))),
    "a list": lambda request: Reply(completion("[" + verdict(request, score=1) + ", 5]{}")),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_tried_again_then_an_error_or_masked(failure):
    with FakeJudgeServer(failure, failure, good) as server:
        judge = judge_of(server)
        assert judge.score(TASK, STEP, ()).value == 1.0
        stats = judge.stats()
        assert (stats.calls, stats.retries, stats.failures) == (3, 2, 0)
    with FakeJudgeServer(failure) as server:
        judge = judge_of(server, retries=1)
        with pytest.raises(JudgeError, match=r"no verdict from 'toy' at http.* in 2 tries; the last: ") as caught:
            judge.score(TASK, STEP, ())
        assert len(str(caught.value)) < 700
        assert len(server.requests) == 2 and judge.stats().failures == 1
    with FakeJudgeServer(failure) as server, pytest.warns(RuntimeWarning, match="must not be trained on"):
        score = judge_of(server, retries=0, on_error="mask").score(TASK, STEP, ())
    assert (score.value, score.faithful, score.failed) == (None, False, True)


def test_a_slow_server():
    def slow(request):
        return good(request, delay_s=30)

    with FakeJudgeServer(slow, good) as server:
        assert judge_of(server, timeout_s=2).score(TASK, STEP, ()).value == 1.0
        assert len(server.requests) == 2
    with FakeJudgeServer(slow) as server, pytest.raises(JudgeError, match=r"no reply within 0.2 s.*timeout_s"):
        judge_of(server, timeout_s=0.2, retries=1).score(TASK, STEP, ())


def test_no_server():
    with FakeJudgeServer() as server:
        pass
    with pytest.raises(JudgeError, match="Cannot connect to host"):
        judge_of(server, retries=1).score(TASK, STEP, ())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_is_refused_is_not_tried_again(status):
    with FakeJudgeServer(fails(status)) as server:
        with pytest.raises(JudgeError, match=f"refuses: .*status {status}"):
            judge_of(server).score(TASK, STEP, ())
        # A server that does not know structured output says 400 or 422: asked once more without.
        assert len(server.requests) == (2 if status in (400, 422) else 1)


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    "around", ["{}", "```json\n{}\n```", "Here it is: {} Done.", '<think>{{"score": 0}}</think>{}']
)
def test_a_server_without_structured_output(status, around):
    def answer(request):
        if "response_format" in request:
            return fails(status)(request)
        return Reply(completion(around.format(verdict(request, score=0.5))))

    with FakeJudgeServer(answer) as server:
        judge = judge_of(server)
        for i in range(3):
            assert judge.score(TASK, step_of(crop(i)), ()).value == 0.5
        assert len(server.requests) == 4, "it is not asked for structured output again"
        assert judge.stats().retries == 0


def test_the_pause_that_a_server_asks_for(monkeypatch):
    assert asked_pause({"retry-after": "2"}) == 2.0
    assert asked_pause({"retry-after": "2", "retry-after-ms": "500"}) == 0.5
    assert asked_pause({"retry-after": "100000"}) == LONGEST_ASKED_PAUSE_S
    assert asked_pause({"retry-after": "-1"}) == asked_pause({"retry-after": formatdate(0)}) == 0.0
    assert asked_pause({"retry-after": formatdate(time.time() + 1e6)}) == LONGEST_ASKED_PAUSE_S
    for nonsense in ("", "soon", "nan"):
        assert asked_pause({"retry-after": nonsense}) is None
    assert asked_pause({}) is None
    # Heeded instead of our own pause, which would outlast the test.
    monkeypatch.setattr("codev_env.judges.client.FIRST_PAUSE_S", 1e6)
    monkeypatch.setattr("codev_env.judges.client.LONGEST_PAUSE_S", 1e6)
    with FakeJudgeServer(fails(429, retry_after="0"), fails(503, retry_after_ms="1"), good) as server:
        assert judge_of(server).score(TASK, STEP, ()).value == 1.0


def test_an_error_sent_as_a_success_is_named_and_paused_for(monkeypatch):
    """Gateways pass on the error of the server behind them with status 200."""

    def limited(request):
        return Reply({"error": {"code": 429, "message": "limit of a-secret-key reached"}})

    with FakeJudgeServer(limited) as server, pytest.raises(JudgeError, match="limit of .* reached") as caught:
        judge_of(server, retries=0, max_cost=1.0, prompt_price=1.0, completion_price=1.0).score(TASK, STEP, ())
    assert "a-secret-key" not in str(caught.value)
    monkeypatch.setattr("codev_env.judges.client.FIRST_PAUSE_S", 0.4)
    with FakeJudgeServer(limited, good) as server:
        judge, started = judge_of(server), time.monotonic()
        assert judge.score(TASK, STEP, ()).value == 1.0
        assert time.monotonic() - started >= 0.2


def test_one_failure_fails_the_batch_or_only_its_own_step():
    def answer(request):
        return good(request, score=3 if decoded(pictures_of(request)[0]).width == 61 else 1)

    items = [(TASK, step_of(crop(i, 61 if i == 3 else 60)), ()) for i in range(6)]
    with FakeJudgeServer(answer) as server:
        with pytest.raises(JudgeError, match="in 2 tries"):
            judge_of(server, retries=1).score_batch(items)
        with pytest.warns(RuntimeWarning):
            scores = judge_of(server, retries=1, on_error="mask").score_batch(items)
    assert [score.failed for score in scores] == [False, False, False, True, False, False]
    assert [score.value for score in scores] == [1.0, 1.0, 1.0, None, 1.0, 1.0]


def test_masked_failures_are_warned_of_once():
    with FakeJudgeServer(fails(404)) as server, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        judge = judge_of(server, on_error="mask")
        scores = [judge.score(TASK, step_of(crop(i)), ()) for i in range(3)]
        assert all(score.failed for score in scores) and judge.stats().failures == 3
    assert len([w for w in caught if "refuses" in str(w.message)]) == 1


def test_a_masked_failure_keeps_what_was_asked_for():
    with FakeJudgeServer(says("no")) as server:
        inner = judge_of(server, retries=1, prompt_price=1.0, completion_price=1.0)
        masked, own = MaskingJudge(inner), judge_of(server, retries=1, on_error="mask")
        spent = masked.score(TASK, STEP, ()).usage
        assert (spent.requests, spent.prompt_tokens, spent.completion_tokens) == (2, 200, 20) and spent.cost > 0
        with pytest.warns(RuntimeWarning, match="no score"):
            assert own.score(TASK, STEP, ()).usage.requests == 2


def test_the_key_is_not_in_errors():
    def tell(request):
        return Reply({"error": {"message": "wrong key a-secret-key"}}, 401)

    with FakeJudgeServer(tell) as server, pytest.raises(JudgeError) as caught:
        judge_of(server).score(TASK, STEP, ())
    assert "a-secret-key" not in str(caught.value) and "***" in str(caught.value)


# ---- many at once


def test_hundreds_of_calls_within_the_cap():
    with FakeJudgeServer(lambda request: good(request, delay_s=0.01)) as server:
        judge = judge_of(server, concurrency=100)
        items = [(TASK, step_of(crop(i % 200, 60 + i // 200)), ()) for i in range(300)]
        scores = judge.score_batch(items)
        assert {score.value for score in scores} == {1.0} and len(scores) == 300
        assert len(server.requests) == judge.stats().calls == 300
        assert 1 < server.most <= 100


def test_the_cap_holds_for_all_threads():
    with FakeJudgeServer(lambda request: good(request, delay_s=0.05)) as server:
        judge = judge_of(server, concurrency=3)
        with ThreadPoolExecutor(16) as pool:
            scores = list(pool.map(lambda i: judge.score(TASK, step_of(crop(i)), ()), range(24)))
        assert {score.value for score in scores} == {1.0}
        assert server.most == 3 and len(server.requests) == 24


def test_the_same_question_at_the_same_time_is_asked_once():
    with FakeJudgeServer(lambda request: good(request, delay_s=0.5)) as server:
        judge = judge_of(server)
        scores = judge.score_batch([(TASK, step_of(crop(i % 2), crop(5)), ()) for i in range(20)])
        assert len(scores) == 20 and len(server.requests) == 3
        stats = judge.stats()
        assert (stats.calls, stats.coalesced, stats.hits) == (3, 37, 0)
        assert (stats.prompt_tokens, stats.completion_tokens, stats.waited_s > 0) == (300, 30, True)


def test_another_question_is_another_request():
    with FakeJudgeServer(lambda request: good(request, delay_s=0.2)) as server:
        judge_of(server).score_batch([(TASK, STEP, ()), (OPEN_TASK, STEP, ())])
        assert len(server.requests) == 2


def test_a_caller_that_gives_up_does_not_take_the_verdict_from_another():
    async def both(judge):
        first = asyncio.create_task(judge.ascore(TASK, STEP, ()))
        second = asyncio.create_task(judge.ascore(TASK, STEP, ()))
        while not server.requests:
            await asyncio.sleep(0.01)
        first.cancel()
        score = await second
        assert first.cancelled()
        return score

    with FakeJudgeServer(lambda request: good(request, delay_s=0.3)) as server:
        assert asyncio.run(both(judge_of(server))).value == 1.0
        assert len(server.requests) == 1


def test_what_nobody_waits_for_is_given_up():
    async def leave(judge):
        task = asyncio.create_task(judge.ascore(TASK, STEP, ()))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return (await judge.ascore(TASK, step_of(crop(9)), ())).value

    with FakeJudgeServer(lambda request: good(request, delay_s=60), good) as server:
        # The only slot is free again at once.
        assert asyncio.run(leave(judge_of(server, concurrency=1))) == 1.0


def test_a_thread_that_is_given_up_waits_for_no_verdict_and_takes_none_from_another(tmp_path):
    answers, given_up = threading.Event(), threading.Event()

    def late(request):
        while not judge.stats().coalesced:
            time.sleep(0.01)
        given_up.set()
        answers.wait(60)
        return good(request)

    with FakeJudgeServer(late) as server, ThreadPoolExecutor(1) as pool:
        judge = judge_of(server, cache=tmp_path)
        other = pool.submit(judge.score, TASK, STEP, ())
        with pytest.raises(JudgeError, match="nobody waits"):
            until_given_up(given_up, judge.score, TASK, STEP, ())
        with pytest.raises(JudgeError, match="nobody waits"):
            until_given_up(given_up, judge.score, TASK, step_of(crop(9)), ())
        assert not other.done()
        answers.set()
        assert other.result(60).value == 1.0
        assert len(server.requests) == 1 and judge.stats().calls == 1
        assert judge.score(TASK, STEP, ()).value == 1.0 and judge.stats().hits == 1


def test_a_thread_that_is_given_up_begins_no_request(monkeypatch):
    given_up = threading.Event()
    given_up.set()
    with FakeJudgeServer(good) as server:
        judge = judge_of(server)
        monkeypatch.setattr(Asker, "submit", lambda *_: pytest.fail("a request began"))
        with pytest.raises(JudgeError, match="nobody waits"):
            until_given_up(given_up, judge.score, TASK, STEP, ())


# ---- budgets


def test_a_budget_of_calls():
    with FakeJudgeServer() as server:
        judge = judge_of(server, max_calls=3)
        for i in range(3):
            judge.score(TASK, step_of(crop(i)), ())
        with pytest.raises(JudgeError, match="max_calls=3 is used up"):
            judge.score(TASK, step_of(crop(3)), ())
        masking = judge_of(server, max_calls=0, on_error="mask")
        with pytest.warns(RuntimeWarning, match="max_calls=0"):
            assert masking.score(TASK, STEP, ()).failed
        assert len(server.requests) == 3
        assert judge.score(TASK, step_of(), ()).value == 0.0, "what needs no request has no price"


def test_what_the_judge_has_counted_on_other_machines_is_part_of_its_counters_and_budgets():
    with FakeJudgeServer() as server:
        judge = judge_of(server, max_calls=3)
        judge.count(JudgeStats(calls=1, failures=2, cost=0.5))
        judge.score(TASK, STEP, ())
        judge.count(JudgeStats(calls=1))
        stats = judge.stats()
        assert (stats.calls, stats.failures, stats.cost) == (3, 2, 0.5)
        with pytest.raises(JudgeError, match="max_calls=3 is used up"):
            judge.score(TASK, step_of(crop(1)), ())
        judge.close()
        assert judge.stats() == JudgeStats()


def test_tries_count_too():
    with FakeJudgeServer(fails(500)) as server:
        with pytest.raises(JudgeError, match="max_calls=2 is used up"):
            judge_of(server, max_calls=2).score(TASK, STEP, ())
        assert len(server.requests) == 2


def test_a_budget_of_cost():
    prices = {"prompt_price": 10_000.0, "completion_price": 100_000.0}  # 100 and 10 tokens: 1 + 1 each.
    with FakeJudgeServer() as server:
        judge = judge_of(server, max_cost=3.5, **prices)
        judge.score_batch([(TASK, step_of(crop(0)), ()), (TASK, step_of(crop(1)), ())])
        assert judge.stats().cost == pytest.approx(4.0)
        with pytest.raises(JudgeError, match=r"max_cost=3.5 is used up \(spent: 4 in 2 requests\)"):
            judge.score(TASK, step_of(crop(2)), ())


@pytest.mark.parametrize("usage", [None, "many", {"prompt_tokens": -1, "completion_tokens": 1}, {"prompt_tokens": 1}])
def test_a_cost_that_cannot_be_counted(usage):
    def answer(request):
        return Reply({**completion(verdict(request), None), "usage": usage})

    with FakeJudgeServer(answer) as server:
        assert judge_of(server).score(TASK, STEP, ()).value == 1.0
        with pytest.raises(JudgeError, match="does not report the tokens"):
            judge_of(server, max_cost=1.0, prompt_price=1.0, completion_price=1.0).score(TASK, STEP, ())


# ---- the cache


def test_verdicts_are_kept_by_what_was_asked(tmp_path):
    with FakeJudgeServer() as server:
        first = judge_of(server, cache=tmp_path / "kept").score(TASK, STEP, ())
        again = judge_of(server, cache=str(tmp_path / "kept"))
        assert again.score(TASK, STEP, ()) == first
        assert (again.stats().hits, again.stats().calls) == (1, 0)
        assert len(server.requests) == 1
        again.score(OPEN_TASK, STEP, ())
        again.score(TASK, step_of(crop(1)), ())
        changes = [{"temperature": 0.5}, {"image_side": 512}, {"rubric": "calculation"}]
        for change in changes:
            judge_of(server, cache=tmp_path / "kept", **change).score(TASK, STEP, ())
        VLMJudge("other", server.url, cache=tmp_path / "kept").score(TASK, STEP, ())
        assert len(server.requests) == 7


def test_failures_are_not_kept(tmp_path):
    with FakeJudgeServer(says("no"), good) as server:
        with pytest.raises(JudgeError):
            judge_of(server, cache=tmp_path, retries=0).score(TASK, STEP, ())
        assert judge_of(server, cache=tmp_path, retries=0).score(TASK, STEP, ()).value == 1.0


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"\xff\xfe", b'{"score": 0.3, "clear": true, "why": ""}', b'{"score": 1}', b"[" * 100_000],
)
def test_a_spoilt_entry_is_asked_again_and_mended(tmp_path, content):
    with FakeJudgeServer() as server:
        judge = judge_of(server, cache=tmp_path)
        judge.score(TASK, STEP, ())
        [path] = tmp_path.rglob("*.json")
        path.write_bytes(content)
        assert judge.score(TASK, STEP, ()).value == 1.0
        assert len(server.requests) == 2
        assert json.loads(path.read_bytes())["score"] == 1.0


def test_a_disk_that_cannot_be_written_costs_requests_and_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    with FakeJudgeServer() as server, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        judge = judge_of(server, cache=tmp_path / "file" / "cache")
        assert [judge.score(TASK, step_of(crop(i)), ()).value for i in (0, 1, 0)] == [1.0] * 3
        assert len(server.requests) == 3
    assert len([w for w in caught if "goes on without" in str(w.message)]) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    cache, verdict = VerdictCache(tmp_path), Verdict(1.0, True, "x")

    def write_to_full_disk(path, text, encoding):
        path.touch()
        with open("/dev/full", "w") as file:
            file.write(text)

    monkeypatch.setattr("pathlib.Path.write_text", write_to_full_disk)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.put("ab" * 24, verdict)
    monkeypatch.undo()
    assert cache.get("ab" * 24) is None and not [path for path in tmp_path.rglob("*") if path.is_file()]


WRITER = """
import sys
from codev_env.judges.cache import VerdictCache
from codev_env.judges.rubrics import Verdict
cache = VerdictCache(sys.argv[1])
i = 0
while True:
    cache.put(f"{i % 50:048x}", Verdict(1.0, True, "x" * 300))
    i += 1
    if i == 50: print("ready", flush=True)
"""


def test_processes_that_are_killed_leave_only_whole_entries(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    cache = VerdictCache(tmp_path)
    assert all(cache.get(f"{i:048x}") == Verdict(1.0, True, "x" * 300) for i in range(50))


# ---- processes and threads


def _score_in_child(judge, queue) -> None:
    queue.put(judge.score(TASK, step_of(crop(3)), ()).value)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_judge_works_on_both_sides_of_a_fork():
    with FakeJudgeServer() as server:
        judge = judge_of(server)
        judge.score(TASK, STEP, ())
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_score_in_child, args=(judge, queue))
        child.start()
        assert queue.get(timeout=60) == 1.0
        child.join(60)
        assert child.exitcode == 0
        assert judge.score(TASK, step_of(crop(4)), ()).value == 1.0
        assert len(server.requests) == 3


def test_a_judge_that_is_dropped_or_closed_ends_its_thread():
    def threads():
        return [thread for thread in threading.enumerate() if thread.name == "codev-judge"]

    gc.collect()
    before = len(threads())
    with FakeJudgeServer() as server:
        judge = judge_of(server)
        judge.score(TASK, STEP, ())
        assert len(threads()) == before + 1
        judge.close()
        assert len(threads()) == before
        assert judge.score(TASK, STEP, ()).value == 1.0
        del judge
        gc.collect()
        assert len(threads()) == before


def test_an_interpreter_ends_while_a_judge_is_alive():
    program = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from judged import TASK, crop, step_of\n"
        "from codev_env.judges import get_judge\n"
        "judge = get_judge(sys.argv[1] + '#toy')\n"
        "print(judge.score(TASK, step_of(crop()), ()).value)\n"
    )
    with FakeJudgeServer() as server:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program, server.url, *sys.path],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1.0\n", "")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=r"pip install 'codev-env\[eval\]'"):
        VLMJudge("toy")


def test_replies_read_by_hand():
    text = json.dumps({**GOOD, "check": 7})
    assert read_verdict(text, 7) == Verdict(1.0, True, "a mug")
    assert read_verdict(text, 8) is None
    assert read_verdict("<think>{}</think> " + text, 7) == Verdict(1.0, True, "a mug")
    assert read_verdict(json.dumps({**GOOD, "check": 7, "why": "a\n b" + "x" * 999}), 7).why == "a b" + "x" * 297
    assert read_verdict("}{ {" + text, 7) is None or read_verdict("}{ {" + text, 7).score == 1.0
    assert read_verdict(None, 7) is None


@pytest.mark.parametrize(
    "options",
    [
        {"name": "ground_truth", "view_pixels": "big"},
        {"name": "ground_truth", "view_pixels": float("nan")},
        {"name": "auto", "view_pixels": [1]},
        {"name": "auto", "detail_power": [1]},
        {"name": "auto", "detail_margin": {}},
        {"model": "m", "base_url": "localhost:8000/v1"},
        {"model": "m", "base_url": 5},
        {"model": "m", "cache": 5},
        {"model": "m", "cache": ""},
        {"model": "m", "api_key_env": None},
    ],
)
def test_options_of_a_wrong_kind_are_named(options):
    """JSON may hold anything."""
    (name,) = options.keys() - {"name", "model"}
    with pytest.raises(ConfigError, match=f"{name} is .*; it must be"):
        get_judge(options)


def test_blanks_around_a_key_are_left_out(monkeypatch):
    """A secret that was written to a file often ends with a line break, which no header may hold."""
    monkeypatch.setenv("JUDGE_KEY", "key-of-a-file\n")
    with FakeJudgeServer() as server:
        judge = VLMJudge("toy", server.url, api_key_env="JUDGE_KEY")
        assert judge.score(TASK, step_of(crop()), ()).value == 1
    assert server.keys == {"bearer key-of-a-file"}


def test_a_key_that_cannot_be_sent_is_named_and_not_shown():
    with FakeJudgeServer() as server:
        judge = VLMJudge("toy", server.url, "sécret-key")
        with pytest.raises(ConfigError, match="cannot be sent: correct api_key") as found:
            judge.ping()
    assert "cret" not in str(found.value) and not server.requests
