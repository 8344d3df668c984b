"""How much faster one of two models is, from runs that were timed in turns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of A over time of B: the median over neighbouring turns, and its 95 % interval; None of too few runs."""

    median: float
    ci95: tuple[float, float] | None


def paired(a: np.ndarray, b: np.ndarray) -> Ratio:
    """Median of A/B over turns A B B A, with an interval.

    A B and B A are taken together because the second place in a pair may be the better one, and because a steady drift
    cancels so.
    """
    whole = len(a) - len(a) % 2 or 1
    turns = a[:whole].reshape(-1, min(2, whole)).sum(1) / b[:whole].reshape(-1, min(2, whole)).sum(1)
    return Ratio(float(np.median(turns)), interval(turns))


def interval(values: np.ndarray) -> tuple[float, float] | None:
    """A 95 % interval for the median from the order statistics; None of fewer than 6 values, which have none.

    The k-th smallest and the k-th largest of n values hold the median between them unless fewer than k values lie on
    one side of it: with probability 1 - 2·P(Binomial(n, 1/2) < k), whatever the distribution (Conover, Practical
    Nonparametric Statistics, 1999, section 3.2). k is the largest for which that is at least 95 %. A percentile
    bootstrap of so few values holds it less often than it says.
    """
    n, k, below = len(values), 0, 0.0
    while True:
        below += math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2))
        if below > 0.025:
            break
        k += 1
    ordered = np.sort(values).tolist()
    return (ordered[k - 1], ordered[n - k]) if k else None
