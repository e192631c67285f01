"""Agreement of two raters: kappa by hand, its bounds, and intervals over groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codev_eval.bench import kappa


def test_kappa_by_hand():
    # Observed 35/50 = 0.7; chance 25·30/50² + 25·20/50² = 0.5; kappa = (0.7 - 0.5) / (1 - 0.5).
    counts = np.array([[20.0, 5.0], [10.0, 15.0]])
    assert kappa.accuracy(counts) == pytest.approx(0.7)
    assert kappa.kappa(counts) == pytest.approx(0.4)
    # Two levels are one step apart, so that weights change nothing.
    assert kappa.kappa(counts, linear=True) == pytest.approx(0.4)


def test_weighted_kappa_by_hand():
    counts = np.array([[4.0, 1.0, 0.0], [1.0, 2.0, 1.0], [1.0, 0.0, 2.0]])
    # Rows 5, 4, 3; columns 6, 3, 3; n = 12. Observed Σw = 1 + 1 + 1 + 2·1 = 5.
    # Expected Σw = (5·3 + 2·5·3 + 4·6 + 4·3 + 2·3·6 + 3·3) / 12 = 126 / 12.
    assert kappa.kappa(counts, linear=True) == pytest.approx(1 - 5 / (126 / 12))
    # Unweighted: 8/12 observed; (5·6 + 4·3 + 3·3) / 144 = 51/144 by chance.
    assert kappa.kappa(counts) == pytest.approx((8 / 12 - 51 / 144) / (1 - 51 / 144))


@pytest.mark.parametrize(
    ("counts", "expected"), [([[5, 0], [0, 5]], 1.0), ([[0, 5], [5, 0]], -1.0), ([[9, 9], [9, 9]], 0)]
)
def test_kappa_of_full_opposite_and_chance_agreement(counts, expected):
    assert kappa.kappa(np.array(counts, float)) == pytest.approx(expected)


def test_kappa_is_not_defined_without_variety():
    assert math.isnan(kappa.kappa(np.array([[7.0, 0.0], [0.0, 0.0]])))
    assert math.isnan(kappa.accuracy(np.zeros((2, 2))))
    assert kappa.bootstrap(np.array([[[7.0, 0.0], [0.0, 0.0]]] * 5), kappa.kappa, 0) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40), st.booleans())
def test_kappa_is_symmetric_and_at_most_one(pairs, linear):
    counts = np.zeros((4, 4))
    for pair in pairs:
        counts[pair] += 1
    value = kappa.kappa(counts, linear)
    np.testing.assert_allclose(value, kappa.kappa(counts.T, linear))
    assert math.isnan(value) or value <= 1 + 1e-12
    if all(a == b for a, b in pairs):
        assert math.isnan(value) or value == pytest.approx(1)


def test_intervals_resample_groups():
    alike = np.array([[[5.0, 5.0], [5.0, 5.0]]] * 20)
    assert kappa.bootstrap(alike, kappa.accuracy, 0) is None, "all groups are equal"
    apart = np.array([[[5.0, 0.0], [0.0, 5.0]], [[0.0, 5.0], [5.0, 0.0]]] * 10)
    low, high = kappa.bootstrap(apart, kappa.accuracy, 0)
    # The share of 20 groups of which half agree fully: 0.5 ± 1.96 · 0.5 / √20 = 0.5 ± 0.22.
    assert low == pytest.approx(0.28, abs=0.06) and high == pytest.approx(0.72, abs=0.06)
    assert kappa.bootstrap(apart[:1], kappa.accuracy, 0) is None
