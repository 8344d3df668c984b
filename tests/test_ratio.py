"""The ratio of two models' times, and the interval around it."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfuse.ratio import Ratio, interval, paired


def test_the_ratio_is_paired() -> None:
    """A shared slow-down of single pairs leaves the ratio as it is; the place in a pair cancels."""
    load = np.array([1.0, 1, 50, 50, 2, 2, 7, 7, 1, 3, 4, 4])
    assert paired(2 * load, load) == Ratio(2.0, (2.0, 2.0))
    second_is_faster = np.array([1.0, 0.5, 1, 0.5])
    assert paired(second_is_faster, second_is_faster[::-1]).median == 1.0
    assert paired(np.array([3.0]), np.array([2.0])).median == 1.5
    assert paired(np.array([3.0, 3, 3]), np.array([2.0, 2, 2])).median == 1.5


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (5, None),  # the outermost values miss the median with probability 2/32 > 0.05 …
        (6, (1.0, 6.0)),  # … 2/64
        (8, (1.0, 8.0)),  # the second ones with 2·(1 + 8)/256 > 0.05
        (9, (2.0, 8.0)),  # 2·(1 + 9)/512 < 0.05
        (50, (18.0, 33.0)),  # P(Binomial(50, 1/2) <= 17) = 0.0164, P(… <= 18) = 0.0325
    ],
)
def test_an_interval_needs_six_values(values: int, expected: tuple[float, float] | None) -> None:
    assert interval(np.random.default_rng(0).permutation(np.arange(1.0, values + 1))) == expected


@pytest.mark.parametrize("turns", [6, 7, 10, 40])
def test_the_interval_covers_the_true_ratio(turns: int) -> None:
    """Intervals for the median of log-normal ratios around 1.2 hold it in 95 % of all cases or more: of 1,000 in 936,
    which is two standard deviations less than 950.
    """
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        a = np.repeat(1.2 * np.exp(0.1 * rng.standard_normal(turns)), 2)
        low, high = paired(a, np.ones(2 * turns)).ci95
        hits += low <= 1.2 <= high
    assert 936 <= hits < 1000
