"""Nothing that programs are given leads, attribute by attribute, to a module, foreign memory or the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import reach


@pytest.mark.integration
def test_nothing_leads_out() -> None:
    script = Path(__file__).with_name("reach.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert lines[:-1] == [], done.stderr[-2000:]
    assert int(lines[-1]) > 10_000


def test_the_search_finds_what_it_looks_for() -> None:
    class Leaky:
        def __init__(self) -> None:
            self.inner = {"module": [os.path.join]}
            self.array_class = (np.ndarray,)
            self.make = type

    found, _count = reach.crawl({"leaky": Leaky(), "reader": open, "frame": sys._getframe()})
    assert [line.split(" is ")[0] for line in found] == ["reader", "frame", "leaky.make", "leaky.array_class[0]"]
