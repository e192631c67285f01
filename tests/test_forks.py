"""A process that is forked while other threads work waits for none of them: they do not exist in it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import contextmanager
from functools import cached_property

import pytest

from codev_env.adapters import episodes
from codev_env.envs import pool
from codev_env.judges.account import Account
from codev_env.lazy import LazyProperty
from codev_env.locks import ForkLock
from codev_env.provenance.collage import Collage
from codev_env.provenance.kept import kept
from codev_env.provenance.tracker import Tracker
from codev_env.tasks.readers.table import TsvTable

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_child(work: Callable[[], object]) -> int:
    """Run a function in a forked process; returns 0 if it ends well, within 20 s."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


@contextmanager
def a_thread_in(work: Callable[[Callable[[], None]], object]):
    """Run a function in a thread, up to the call of what it is given, until the block ends."""
    there, end = threading.Event(), threading.Event()

    def pause() -> None:
        there.set()
        end.wait()

    thread = threading.Thread(target=work, args=(pause,))
    thread.start()
    there.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


class Reader:
    """Has a property that may take long."""

    def __init__(self, pause: Callable[[], None] = lambda: None) -> None:
        self.pause, self.read = pause, 0

    @LazyProperty
    def value(self) -> int:
        """Computed once."""
        self.pause()
        self.read += 1
        return self.read


def test_a_lazy_property_is_computed_once_for_each_object():
    one, other = Reader(), Reader()
    assert (one.value, one.value, other.value) == (1, 1, 1)
    assert isinstance(Reader.value, LazyProperty) and Reader.value.__doc__ == "Computed once."


def test_no_object_waits_for_the_property_of_another():
    with a_thread_in(lambda pause: Reader(pause).value):
        assert Reader().value == 1
        assert in_child(lambda: Reader().value) == 0


@pytest.mark.parametrize("kind", [Account, Collage, Tracker, TsvTable])
def test_what_the_threads_of_an_environment_read_has_no_lock(kind):
    assert not [name for name, value in vars(kind).items() if isinstance(value, cached_property)]


def test_a_child_makes_what_a_thread_was_making():
    @kept(lambda size, pause: size)
    def make(size: int, pause: Callable[[], None]) -> int:
        pause()
        return size

    with a_thread_in(lambda pause: make(1, pause)):
        assert in_child(lambda: make(2, int)) == 0


@pytest.mark.parametrize("module", [pool, episodes])
def test_a_lock_that_a_thread_holds_is_free_in_a_child(module):
    def hold(pause: Callable[[], None]) -> None:
        with module._lock:
            pause()

    with a_thread_in(hold):
        assert in_child(lambda: module._lock.acquire(timeout=0) or os._exit(1)) == 0


def test_a_child_forked_under_a_lock_ends_its_block_and_can_lock_again():
    lock = ForkLock()

    def again() -> None:
        lock.release()
        assert lock.acquire(timeout=0)

    with lock:
        assert in_child(again) == 0
        assert not lock.acquire(timeout=0)
    assert lock.acquire(timeout=0)
