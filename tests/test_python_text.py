"""Texts that hold Python are parsed by many threads at once."""

import sys
import threading

import pytest

from codev_env.python_text import literal, parse

PROGRAM = "\n".join(f"crops = [image.crop((20, {i}, 90, 60)) for x in range(3) if x]" for i in range(60))


class Garbage:
    """Its end runs Python code, in which the interpreter may go on with another thread."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sum(x for x in range(300))


def test_threads_that_parse_at_once_do_not_disturb_each_other():
    failed = []

    def work(depth: int) -> None:
        if depth:
            return work(depth - 1)
        for _ in range(60):
            for _ in range(50):
                Garbage()
            try:
                parse(PROGRAM)
                literal(f"[{', '.join('[(1, [2, 3])]' for _ in range(60))}]")
            except Exception as error:
                failed.append(error)

    ordinary = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(7 * number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(ordinary)
    assert not failed


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
