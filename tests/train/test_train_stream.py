"""Rollouts that run ahead of the trainer: how many, how old, what is dropped, and what happens when something fails."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from codev_agents.rollout.engine import Completion, EngineError, Prompt, Sampling
from codev_agents.rollout.groups import EndedGroup, StreamOptions, TakenGroups
from codev_agents.rollout.runner import RolloutRunner
from codev_agents.rollout.selection import PlayedGroup
from codev_agents.rollout.stream import RolloutStream
from codev_env.dialects import get_dialect
from codev_env.threads import is_given_up
from codev_env.types import Answer, Code
from codev_train.learn.resample import has_signal
from codev_train.run.environments import make_env

LONG_S = 60.0  # a wait that only a broken implementation sits through
HELD_S = 5.0  # the longest time for which an engine is held where nobody lets it go on before
SAMPLING = Sampling(1.0, 64)


class Writer:
    """An engine whose every turn is an answer; `before` may hold it up. Its weights have a version."""

    def __init__(self, processor: Any) -> None:
        self.processor, self.version = processor, 0
        self.text = get_dialect("codev").write(Answer("7"))
        self.before: Callable[[int], Any] = lambda number: None
        self.asked = 0
        # Of its own, as `vllm-server` has: the loop's are few on a small machine, and the choice of tasks needs one.
        self._threads = ThreadPoolExecutor(16)

    def new_seed(self) -> int:
        return 0

    async def complete(self, prompt: Prompt, sampling, seed, decoding) -> Completion:
        self.asked += 1
        version = self.version
        with decoding:
            await asyncio.get_running_loop().run_in_executor(self._threads, self.before, self.asked)
            ids = [*self.processor.encode(self.text), self.processor.eos_id]
            half = len(ids) // 2
            versions = [version] * half + [self.version] * (len(ids) - half)
            return Completion(ids, [-0.5] * len(ids), prompt.ids, "stop", versions)

    def generate(self, prompts, sampling) -> list[Completion]:
        raise AssertionError("an asynchronous engine is asked one by one")

    def sleep(self) -> None: ...

    def seed(self, seed: int) -> None: ...

    def sync(self, model: Any) -> dict[str, float]:
        self.version += 1
        return {}


class Stage:
    """Makes streams and ends them."""

    def __init__(self, policy, env_options) -> None:
        self.engine = Writer(policy.processor)
        self.runner = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor)
        self.streams: list[RolloutStream] = []
        self.drawn: list[int] = []

    def tasks(self, batch: int) -> Sequence[int]:
        self.drawn.append(batch)
        return [2 * batch, 2 * batch + 1]

    def stream(self, staleness: int = 1, used=(), start: int = 0, **options: Any) -> RolloutStream:
        own = {name: options.pop(name) for name in ("keep", "save", "saved", "planned") if name in options}
        chosen = StreamOptions(2, 2, staleness, **options)
        made = RolloutStream(self.runner, self.engine, SAMPLING, self.tasks, chosen, used, start, **own)
        self.streams.append(made)
        return made.__enter__()

    def update(self, stream: RolloutStream) -> None:
        with stream.updating():
            self.engine.sync(None)


@pytest.fixture
def stage(policy, env_options) -> Iterator[Stage]:
    made = Stage(policy, env_options)
    yield made
    for stream in made.streams:
        stream.close()
        assert not stream._thread.is_alive()
    made.runner.close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def indices(taken: TakenGroups) -> list[int]:
    return [rollout.trajectory.index for rollout in taken.rollouts]


@pytest.mark.parametrize("staleness", [1, 2, 3])
def test_no_more_groups_are_begun_than_can_be_used_in_time(stage, staleness):
    stream = stage.stream(staleness)
    for update in range(4):
        wanted = 2 * (update + staleness + 1)
        until(lambda wanted=wanted: stage.engine.asked == 2 * wanted)
        taken = stream.take()
        assert taken.numbers == [2 * update, 2 * update + 1] and taken.dropped == 0
        assert indices(taken) == [2 * update] * 2 + [2 * update + 1] * 2
        assert [rollout.group for rollout in taken.rollouts] == [0, 0, 1, 1]
        stage.update(stream)


def test_images_of_groups_that_were_trained_on_are_forgotten(stage, monkeypatch):
    """An upper bound of the memory for pixels counts those of the updates ahead."""
    blocks, process = weakref.WeakSet(), stage.runner.processor.image

    def noting(image: Any) -> Any:
        block = process(image)
        blocks.add(block)
        return block

    monkeypatch.setattr(stage.runner.processor, "image", noting)
    stage.engine.text = get_dialect("codev").write(Code("show(image.crop((0, 0, 40, 40)))"))
    stream = stage.stream(1, last=6)
    for _ in range(6):
        stage.update(stream)
        held = [block for rollout in stream.take().rollouts for block in rollout.tokens.images]
        assert held
    del held
    gc.collect()
    assert len(blocks) <= 4, "at most the first images of the groups of two updates"


def test_nothing_is_played_for_updates_after_the_last(stage):
    stage.engine.version = 5
    stream = stage.stream(3, first=5, last=7)
    for _ in range(2):
        assert len(stream.take().rollouts) == 4
        stage.update(stream)
    assert stage.engine.asked == 8


def test_the_end_does_not_wait_for_the_choice_of_tasks(stage):
    """`candidates` asks servers, which may all be gone, and resets environments, whose nodes may be."""
    begun = threading.Event()

    def tasks(batch: int) -> Sequence[int]:
        begun.set()
        until(is_given_up)
        raise EngineError("given up")

    stage.tasks = tasks
    stream = stage.stream()
    assert begun.wait(LONG_S)
    started = time.monotonic()
    stream.close()
    assert time.monotonic() - started < LONG_S / 2


def test_groups_are_taken_as_they_complete(stage):
    held = threading.Event()
    stage.engine.before = lambda number: number > 1 or held.wait(HELD_S)
    stream = stage.stream(1)
    until(lambda: stage.engine.asked == 8)
    taken = stream.take()
    assert len(taken.rollouts) == 4 and len(set(taken.numbers)) == 2
    slow = ({0, 1, 2, 3} - set(taken.numbers)) - set(stream.take().numbers)
    held.set()
    assert len(slow) <= 1


def test_a_group_that_is_too_old_is_dropped_counted_and_replaced(stage):
    held = threading.Event()
    stage.engine.before = lambda number: number > 1 or held.wait(LONG_S)
    stream = stage.stream(1)
    seen = []
    for _ in range(2):  # the group of the held episode cannot be used any more after these
        seen += stream.take().numbers
        stage.update(stream)
    (slow,) = set(range(4)) - set(seen)
    held.set()
    until(lambda: stream._state.dropped == 1 and len(stream._state.ready) == 4)
    taken = stream.take()
    assert taken.dropped == 1 and slow in taken.numbers
    assert len(taken.rollouts) == 4 and slow // 1 not in {number for number in indices(taken)}
    assert [group.index for group in taken.played if group.index == slow] == [slow]
    rest = stream.take()
    assert rest.dropped == 0 and len(set(seen + taken.numbers + rest.numbers)) == len(
        seen + taken.numbers + rest.numbers
    )


def test_a_half_made_episode_survives_an_update_with_the_versions_of_its_tokens(stage):
    held, stage.engine.before = threading.Event(), lambda number: held.wait(LONG_S)
    stream = stage.stream(1)
    until(lambda: stage.engine.asked == 8)
    stage.update(stream)  # in flight: it does not wait
    held.set()
    taken = stream.take()
    for rollout in taken.rollouts:
        versions = [v for v in rollout.tokens.versions if v >= 0]
        assert set(versions) == {0, 1} and versions == sorted(versions)
        assert rollout.trajectory.meta["versions"] == [[0, 1]] and rollout.tokens.oldest == 0


def test_without_in_flight_an_update_waits_for_the_episodes_and_none_has_two_versions(stage):
    released, updated = threading.Event(), threading.Event()
    stage.engine.before = lambda number: released.wait(LONG_S)
    stream = stage.stream(2, in_flight=False)
    until(lambda: stage.engine.asked == 12)

    def update() -> None:
        stage.update(stream)
        updated.set()

    thread = threading.Thread(target=update)
    thread.start()
    until(lambda: stream.held)
    assert not updated.wait(0.2)
    released.set()
    thread.join(LONG_S)
    assert updated.is_set()
    for _ in range(3):
        taken = stream.take()
        assert all(len({v for v in r.tokens.versions if v >= 0}) == 1 for r in taken.rollouts)
        stage.update(stream)


def test_without_in_flight_an_update_waits_for_the_choice_of_tasks(stage, monkeypatch):
    """It may ask the engine for guesses."""
    choosing, chosen, updated = threading.Event(), threading.Event(), threading.Event()
    tasks = stage.tasks

    def slow(batch: int) -> Sequence[int]:
        choosing.set()
        assert chosen.wait(LONG_S)
        return tasks(batch)

    monkeypatch.setattr(stage, "tasks", slow)
    stream = stage.stream(1, in_flight=False)
    assert choosing.wait(LONG_S)
    thread = threading.Thread(target=lambda: (stage.update(stream), updated.set()))
    thread.start()
    until(lambda: stream.held)
    assert not updated.wait(0.2)
    chosen.set()
    thread.join(LONG_S)
    assert updated.is_set()


def test_episodes_go_on_while_tasks_are_chosen(stage, monkeypatch):
    """Guesses of a large policy about many candidates take longer than a turn."""
    choosing, chosen, held = threading.Event(), threading.Event(), threading.Event()
    tasks = stage.tasks

    def slow(batch: int) -> Sequence[int]:
        if batch == 2:
            choosing.set()
            assert chosen.wait(LONG_S)
        return tasks(batch)

    monkeypatch.setattr(stage, "tasks", slow)
    stage.engine.before = lambda number: number == 1 or held.wait(LONG_S)
    stream = stage.stream(1)
    until(lambda: stage.engine.asked == 8)
    stage.update(stream)
    assert choosing.wait(LONG_S)  # by the seat of the episode that is not held
    held.set()
    until(lambda: len(stream._state.ready) == 4)
    assert stage.drawn == [0, 1]
    chosen.set()
    assert [stream.take().numbers for _ in range(3)][2] == [4, 5]


def test_an_engine_that_guesses_is_not_idle(stage, monkeypatch):
    """`async/idle_engine` is the share of the time in which the engine has no request."""
    read: list[float] = []

    def generate(prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion]:
        for _ in range(2):
            now = time.perf_counter()
            until(lambda now=now: time.perf_counter() > now)
            read.append(stage.runner.idle_s)
        return [Completion([stage.engine.processor.eos_id], [0.0], prompt.ids) for prompt in prompts]

    def tasks(batch: int) -> Sequence[int]:
        stage.runner.guesses(stage.engine, [0, 1], SAMPLING.max_tokens)
        return [0, 1]

    monkeypatch.setattr(stage.engine, "generate", generate)
    stage.tasks = tasks
    stage.stream(1, last=1).take()
    assert read[0] == read[1]


def test_an_error_of_the_choice_of_tasks_reaches_the_trainer(stage):
    def tasks(batch: int) -> Sequence[int]:
        raise ZeroDivisionError("told to fail")

    stage.tasks = tasks
    with pytest.raises(ZeroDivisionError, match="told to fail"):
        stage.stream(1).take()


def test_an_error_of_an_episode_ends_the_choice_of_tasks(stage, monkeypatch):
    choosing, ended = threading.Event(), threading.Event()
    tasks = stage.tasks

    def slow(batch: int) -> Sequence[int]:
        if batch == 1:
            choosing.set()
            until(is_given_up)
            ended.set()
        return tasks(batch)

    def fail(number: int) -> None:
        assert choosing.wait(LONG_S)
        raise ZeroDivisionError("told to fail")

    monkeypatch.setattr(stage, "tasks", slow)
    stage.engine.before = fail
    with pytest.raises(ZeroDivisionError, match="told to fail"):
        stage.stream(1).take()
    assert ended.is_set()


def test_an_error_reaches_the_trainer_with_its_traceback(stage):
    def fail(number: int) -> None:
        if number == 6:
            raise ZeroDivisionError("told to fail")

    stage.engine.before = fail
    stream = stage.stream(1)
    with pytest.raises(ZeroDivisionError, match="told to fail") as found:
        for _ in range(3):
            stream.take()
            stage.update(stream)
    assert "fail" in [frame.name for frame in traceback.extract_tb(found.value.__traceback__)]
    with pytest.raises(ZeroDivisionError):
        stream.take()


def test_an_error_reaches_an_update_that_waits_for_episodes(stage):
    held = threading.Event()

    def fail(number: int) -> None:
        assert held.wait(LONG_S)
        raise ZeroDivisionError("told to fail")

    stage.engine.before = fail
    stream = stage.stream(1, in_flight=False)
    until(lambda: stage.engine.asked == 8)
    threading.Timer(0.1, held.set).start()
    with pytest.raises(ZeroDivisionError), stream.updating():
        raise AssertionError("the weights must not be replaced")


def test_closing_gives_up_what_is_under_way(stage):
    held = threading.Event()
    stage.engine.before = lambda number: held.wait(HELD_S)
    stream = stage.stream(1)
    until(lambda: stage.engine.asked == 8)
    stream.close()
    held.set()
    with pytest.raises(RuntimeError, match="closed"):
        stream.take()


def test_a_resumed_stream_begins_with_the_groups_that_were_not_used(stage):
    stage.engine.version = 2
    stream = stage.stream(1, used=[3, 4, 6], start=2, first=2)
    assert stream.take().numbers == [2, 5]
    stage.update(stream)
    assert stream.take().numbers == [7, 8]


def test_a_group_is_ready_when_it_is_saved(stage):
    """A slow disk holds up neither the other episodes nor the thread that samples."""
    saved, disk = [], threading.Event()

    def save(group: EndedGroup) -> None:
        saved.append(group)
        assert disk.wait(LONG_S)

    stream = stage.stream(1, save=save)
    until(lambda: len(saved) == 4)
    assert stage.engine.asked == 8 and not stream._state.ready
    disk.set()
    taken = stream.take()
    assert set(taken.trained) == set(taken.numbers) < {group.number for group in saved}
    assert all(group.wanted and group.versions == (0, 0) and group.outcome.episodes == 2 for group in saved)


def test_saved_groups_are_taken_and_not_played_again(stage):
    saved: list[EndedGroup] = []
    first = stage.stream(1, save=saved.append)
    until(lambda: len(saved) == 4)
    first.close()
    stage.engine.asked = 0
    kept = [group for group in saved if group.number != 1]
    stream = stage.stream(1, saved=kept)
    assert stream.take().numbers == [0, 2] and stage.engine.asked in (0, 1, 2)
    until(lambda: stage.engine.asked == 2)
    assert sorted(stream.take().numbers) == [1, 3]
    stage.update(stream)
    assert sorted(stream.take().numbers) == [4, 5]


def test_updates_are_made_again_with_the_groups_that_they_had(stage):
    saved: list[EndedGroup] = []
    first = stage.stream(2, save=saved.append)
    until(lambda: len(saved) == 6)
    first.close()
    stage.engine.asked = 0
    stream = stage.stream(2, saved=saved, planned=[[5, 2], [0, 4]])
    assert [stream.take().trained for _ in range(3)] == [[5, 2], [0, 4], [1, 3]] and not stage.engine.asked


def test_the_work_grows_with_the_groups_that_wait_and_not_with_their_square(stage):
    looks = []

    class Watched(EndedGroup):
        @property
        def oldest(self) -> int | None:
            looks.append(self)
            return super().oldest

        def __eq__(self, other: object) -> bool:
            looks.append(self)
            return self is other

        __hash__ = object.__hash__

    count = 200
    saved = [Watched(n, PlayedGroup(n, 0, 2), (n % 2, n % 2), True, list) for n in range(2 * count)]
    options = StreamOptions(count, 2, 0, last=0)
    stream = RolloutStream(stage.runner, stage.engine, SAMPLING, stage.tasks, options, saved=saved)
    taken = stream.take()
    assert taken.trained == list(range(0, 2 * count, 2)) and taken.ready == count and not taken.dropped
    assert len(looks) < 20 * count


def test_a_saved_group_that_is_too_old_is_dropped(stage):
    saved: list[EndedGroup] = []
    first = stage.stream(1, save=saved.append, last=2)
    until(lambda: len(saved) == 4)
    first.close()
    stage.engine.version = 2
    stream = stage.stream(1, saved=saved, first=2)
    taken = stream.take()
    assert taken.dropped == 4 and set(taken.numbers) == {*range(4), *taken.trained} and min(taken.trained) == 4


def test_a_saved_group_that_is_not_wanted_is_no_longer_played_nor_trained_on(stage):
    saved: list[EndedGroup] = []
    first = stage.stream(1, save=saved.append, keep=has_signal, spare=1)
    until(lambda: len(saved) >= 2)
    first.close()
    unwanted = [group.number for group in saved if not group.wanted]
    assert len(unwanted) == 2
    stream = stage.stream(1, saved=[group for group in saved if not group.wanted])
    taken = stream.take()
    assert set(unwanted) == set(taken.numbers) - set(taken.trained) and len(taken.played) == 4


def test_an_error_of_saving_reaches_the_trainer(stage):
    def save(group: EndedGroup) -> None:
        raise ZeroDivisionError("told to fail")

    with pytest.raises(ZeroDivisionError):
        stage.stream(1, save=save).take()


def test_groups_without_signal_give_way_to_others_up_to_a_bound(stage):
    """All answers are equal, so no group has a signal; the last ones fill up."""
    stream = stage.stream(1, keep=has_signal, spare=1, last=2)
    for _ in range(2):
        taken = stream.take()
        assert len(taken.rollouts) == 4 and len(taken.played) == len(taken.numbers) >= 2
        stage.update(stream)
    assert 8 <= stage.engine.asked <= 2 * (4 + 4)


def test_too_many_tasks_that_are_too_long_end_the_search(policy, env_options):
    stage = Stage(policy, env_options)
    stage.tasks = lambda batch: [0, 1]  # type: ignore[method-assign]
    stage.runner.max_length = 80
    stream = stage.stream(1)
    taken = stream.take()
    stream.close()
    assert not taken.rollouts and len(taken.skipped) >= 34
    assert all(group.episodes == 0 for group in taken.played)
    stage.runner.close()


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_stream_that_is_closed_replaces_no_weights(stage, in_flight):
    """Whoever waits to replace them when it is closed does not wait for ever."""
    held, found = threading.Event(), []
    stage.engine.before = lambda number: held.wait(HELD_S)
    stream = stage.stream(1, in_flight=in_flight)
    until(lambda: stage.engine.asked == 8)

    def update() -> None:
        try:
            stage.update(stream)
        except RuntimeError as error:
            found.append(str(error))

    thread = threading.Thread(target=update, daemon=True)
    if not in_flight:
        thread.start()
        until(lambda: stream.held)
    stream.close()
    held.set()
    if in_flight:
        thread.start()
    thread.join(LONG_S)
    assert found == ["the stream of rollouts is closed"] and stage.engine.version == 0


def test_a_group_that_is_saved_slowly_is_taken_before_younger_ones(stage):
    """Groups that have ended are taken in the order in which they were drawn, whichever file is written first."""
    saved: list[int] = []
    disk = {number: threading.Event() for number in range(4)}

    def save(group: EndedGroup) -> None:
        saved.append(group.number)
        assert disk[group.number].wait(LONG_S)

    stream = stage.stream(1, save=save)
    until(lambda: len(saved) == 4)
    for number in (2, 3, 1):
        disk[number].set()
    until(lambda: len(stream._state.ready) == 3)
    threading.Timer(0.2, disk[0].set).start()
    assert stream.take().trained == [0, 1] and stream.take().trained == [2, 3]
