"""The process in which `math-verify` runs: one request a line, stopped by the kernel at its limits. A script.

It imports nothing of the project, so that it starts fast and its limits hold for all it does.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import resource
import signal
import sys
from typing import IO, Any

MEMORY = 2 << 30  # bytes of address space


def main() -> None:
    """Answer requests `{"gold": text, "answers": [text, …], "cpu_s": seconds}` until the input ends.

    With `"fallback": true` texts are parsed as the package does by default, which also reads parts of a text.
    Replies are two lines: `{"gold": bool}` once the right answer is parsed, and `{"read": bool, "same": bool}`: whether
    all answers are parsed, and equal to it.
    """
    # The parsers print to both; replies go where nothing else does.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    logging.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    try:
        package = importlib.import_module("math_verify")
    except ImportError as error:
        _reply(replies, {"error": str(error)})
        return
    _reply(replies, {})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
        fallback = "first_match" if request.get("fallback") else "no_fallback"
        gold = package.parse(request["gold"], fallback_mode=fallback, parsing_timeout=0)
        _reply(replies, {"gold": bool(gold)})
        if gold:
            answers = [package.parse(a, fallback_mode=fallback, parsing_timeout=0) for a in request["answers"]]
            same = all(answer and package.verify(gold, answer, timeout_seconds=0) for answer in answers)
            _reply(replies, {"read": all(answers), "same": same})
        signal.setitimer(signal.ITIMER_PROF, 0)


def _reply(replies: IO[str], data: dict[str, Any]) -> None:
    replies.write(json.dumps(data) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
