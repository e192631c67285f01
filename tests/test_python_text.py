"""Texts that hold Python are parsed by many threads at once."""

import ast
import gc
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from codev_env.python_text import literal, parse

PROGRAM = "\n".join(f"crops = [image.crop((20, {i}, 90, 60)) for x in range(3) if x]" for i in range(60))
LITERAL = f"[{', '.join('[(1, [2, 3])]' for _ in range(300))}]"


class Garbage:
    """Runs something at its end, which comes while the garbage collector works."""

    def __init__(self, end: Callable[[], object]) -> None:
        self.me, self.end = self, end

    def __del__(self) -> None:
        self.end()


@pytest.fixture
def collections_come() -> Iterator[Callable[[int], None]]:
    """A function that has the garbage collector work after so many new objects."""
    ordinary = gc.get_threshold()

    def come(after: int) -> None:
        gc.collect(0)
        gc.set_threshold(gc.get_count()[0] + after)

    yield come
    gc.set_threshold(*ordinary)


def test_threads_that_parse_at_once_do_not_disturb_each_other():
    failed = []

    def work(depth: int) -> None:
        if depth:
            return work(depth - 1)
        for _ in range(20):
            for _ in range(50):
                Garbage(lambda: time.sleep(0))
            try:
                parse(PROGRAM)
                literal(LITERAL)
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(7 * number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize("other", [ast.parse, parse], ids=["without lock", "with lock"])
@pytest.mark.parametrize(("read", "text"), [(parse, PROGRAM), (literal, LITERAL)], ids=["parse", "literal"])
def test_what_is_parsed_in_between_does_not_disturb(read, text, other, collections_come):
    ended = []

    def end() -> None:
        other("x = 1")
        ended.append(True)

    for after in range(100, 1100, 50):
        collections_come(after)
        Garbage(end)
        assert read(text)
    assert len(ended) == 20


@pytest.mark.parametrize("text", ["x = (", "\0", "(" * 5000, "-" * 100_000 + "1"])
def test_what_cannot_be_parsed_is_a_value_error(text):
    for read in (parse, literal):
        with pytest.raises(ValueError):
            read(text)


@pytest.mark.parametrize("text", ["{[]: 1}", "f(2)", "image"])
def test_what_is_no_literal_is_a_value_error(text):
    with pytest.raises(ValueError):
        literal(text)
    parse(text)
