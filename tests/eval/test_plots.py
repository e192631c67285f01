"""Plots: axes that cover the data, marks at the right place, and no crash on odd data."""

from __future__ import annotations

import math
import re

import pytest
from eval_samples import markup
from hypothesis import given
from hypothesis import strategies as st

from codev_eval.report import formats, plots

finite = st.floats(-1e9, 1e9)


@given(finite, finite)
def test_ticks_cover_the_range_with_round_steps(a, b):
    low, high = min(a, b), max(a, b)
    ticks = plots.nice_ticks(low, high)
    slack = 1e-9 * max(abs(low), abs(high), 1)
    assert ticks[0] <= low + slack and ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= 12 or math.isclose(low, high, rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(0.0, 5e-324), (-5e-324, 5e-324), (1.0, 1.0 + 2**-52), (1e9, 1e9 + 1e-7)])
def test_values_that_hardly_differ_have_different_ticks(low, high):
    ticks = plots.nice_ticks(low, high)
    assert ticks[0] <= low and ticks[-1] >= high
    assert 2 <= len(set(ticks)) == len(ticks) <= 12


def test_a_curve_ends_where_its_values_end():
    svg = markup("plots", "curve", plots.curve("Faithful", [0, 1], [0.0, 1.0], share=True))
    raw = re.search(r'class="raw" points="([^"]+)"', svg)
    assert raw is not None
    (x0, y0), (x1, y1) = (tuple(map(float, point.split(","))) for point in raw[1].split())
    assert (x0, y0) == (plots.LEFT, plots.HEIGHT - plots.BOTTOM)
    assert (x1, y1) == (plots.WIDTH - plots.RIGHT, plots.TOP)
    assert "Faithful: from 0 % at step 0 to 100 % at step 1" in svg


def test_values_that_are_not_finite_are_left_out():
    svg = markup("plots", "curve", plots.curve("kl", [0, 1, 2], [1.0, math.nan, 3.0]))
    assert "nan" not in svg and svg.count(",") > 2
    assert plots.curve("kl", [0], [math.inf]) is None


@given(st.lists(finite, min_size=1, max_size=40), st.booleans())
def test_every_curve_can_be_drawn(values, share):
    svg = markup("plots", "curve", plots.curve("x", range(len(values)), values, share=share))
    assert "nan" not in svg and "inf" not in svg


def test_intervals_lie_on_the_axis():
    svg = markup("plots", "intervals", plots.intervals([("before", 0.0, (0.0, 0.5)), ("after", 1.0, None)], top=1.0))
    centres = [float(x) for x in re.findall(r'cx="([\d.]+)"', svg)]
    ends = [float(x) for x in re.findall(r'class="interval" x1="([\d.]+)" x2="([\d.]+)"', svg)[0]]
    assert centres == [6.0, 234.0] and ends == [6.0, 120.0]


def test_phases_show_seconds_and_shares():
    html = markup("plots", "phases", plots.phases({"rollout": 90.0, "<b>": 30.0}))
    assert "1 min 30 s" in html and "75.0 %" in html and "<b>30.0 s</b>" in html and "&lt;b&gt;" in html
    assert plots.phases({"rollout": 0.0}) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.012, "12 ms"), (8.44, "8.4 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (59.99, "1 min 00 s")],
)
def test_durations(seconds, text):
    assert formats.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1200.4, "1200"), (0.25, "0.25"), (0.000012, "1.2e-05"), (3, "3")]
)
def test_short_numbers(value, text):
    assert formats.short(value) == text
