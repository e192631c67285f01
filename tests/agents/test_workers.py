"""Threads of rollouts: limits hold whatever else happens, and nothing waits for a call that never returns."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from codev_agents.rollout import workers as rollout_workers
from codev_agents.rollout.workers import LateCall, LiveValues, StepTimeout, Workers, all_or_none


@pytest.fixture(autouse=True)
def little_grace(monkeypatch):
    monkeypatch.setattr(rollout_workers, "_GRACE_S", 0.5)


@pytest.fixture
def never():
    """A call that returns when the test has ended."""
    end = threading.Event()
    yield end.wait
    end.set()


def run(work, seconds=20.0):
    """Run a coroutine of new workers and close them; fails if that takes longer."""
    done = threading.Event()
    found = []

    def target():
        workers = Workers(2)
        found.append(asyncio.run(work(workers)))
        workers.close()
        done.set()

    threading.Thread(target=target, daemon=True).start()
    assert done.wait(seconds), "something waits for a call that never returns"
    return found[0]


def test_a_result_and_an_error_come_back():
    async def work(workers):
        with pytest.raises(ZeroDivisionError):
            await workers.compute(lambda: 1 / 0, limit=5)
        return [await workers.compute(int, "3", limit=limit) for limit in (0, 5)]

    assert run(work) == [3, 3]


def test_closing_waits_for_a_late_call_that_ends():
    ended = []

    async def work(workers):
        with pytest.raises(StepTimeout):
            await workers.compute(lambda: (time.sleep(0.3), ended.append(1)), limit=0.1)
        assert not ended

    run(work)
    assert ended and not [t for t in threading.enumerate() if t.name.startswith("codev-rollout")]


def test_closing_does_not_wait_for_a_call_that_never_returns(never):
    async def work(workers):
        with pytest.raises(StepTimeout) as timeout:
            await workers.compute(never, limit=0.1)
        return timeout.value.job

    assert not run(work).done()


def test_an_error_beside_a_call_that_never_returns_is_raised_within_its_limit(never):
    async def fail():
        await asyncio.sleep(0.05)
        raise ValueError("beside")

    async def work(workers):
        with pytest.raises(ValueError, match="beside"):
            await all_or_none([workers.compute(never, limit=0.3), fail()])

    run(work)


def test_a_cancelled_call_without_a_limit_is_waited_for():
    ended = []

    async def work(workers):
        task = asyncio.ensure_future(workers.compute(lambda: (time.sleep(0.3), ended.append(1))))
        await asyncio.sleep(0.05)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await task
        return list(ended)

    assert run(work) == [1]


def test_a_process_ends_with_a_call_under_way():
    code = (
        "import asyncio, threading\n"
        "from codev_agents.rollout.workers import StepTimeout, Workers\n"
        "async def main(workers):\n"
        "    try:\n"
        "        await workers.wait(threading.Event().wait, limit=0.1)\n"
        "    except StepTimeout:\n"
        "        print('late')\n"
        "from codev_agents.rollout import workers as module\n"
        "module._GRACE_S = 0.1\n"
        "workers = Workers(1)\n"
        "asyncio.run(main(workers))\n"
        "workers.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["late"], done.stderr


def test_a_cancelled_call_that_is_late_stays_cancelled(never):
    async def work(workers):
        task = asyncio.ensure_future(workers.compute(never, limit=0.2))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(LateCall) as late:
            await task
        assert task.cancelled()
        return late.value.job

    assert not run(work).done()


def test_an_error_beside_a_late_call_reaches_who_would_play_on(never):
    """Episodes take a timeout for their end and go on with the next; not so after another one's error."""
    played_on = []

    async def seat(workers):
        try:
            await workers.compute(never, limit=0.2)
        except StepTimeout:
            played_on.append(1)

    async def fail():
        await asyncio.sleep(0.05)
        raise ValueError("beside")

    async def work(workers):
        with pytest.raises(ValueError, match="beside"):
            await all_or_none([seat(workers), fail()])

    run(work)
    assert not played_on


def test_live_values_are_made_once_and_live_as_long_as_somebody_has_them():
    class Value:
        pass

    def make() -> Value:
        made.append(None)
        assert goes_on.wait(20)
        return Value()

    values, made, goes_on = LiveValues(), [], threading.Event()
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(values.get, "key", make) for _ in range(4)]
        goes_on.set()
        found = [future.result() for future in asked]
    assert len(made) == len(set(found)) == 1 and values.get("key", make) is found[0]
    del asked, found
    gc.collect()
    with pytest.raises(ZeroDivisionError):
        values.get("key", lambda: 1 // 0)
    assert isinstance(values.get("key", make), Value) and len(made) == 2
