"""The guilty rewrites are found whatever they are: single ones, several, and pairs that fail only together."""

from __future__ import annotations

import pytest

from onnxfuse.verification.bisection import find_guilty


class Oracle:
    """Fails where all members of one of the faults are kept; counts its questions."""

    def __init__(self, *faults: set[int]):
        self.faults, self.asked = faults, 0

    def __call__(self, kept: frozenset[int]) -> bool:
        self.asked += 1
        return not any(fault <= kept for fault in self.faults)


@pytest.mark.parametrize("fault", range(20))
def test_guilty_finds_the_one(fault):
    oracle = Oracle({fault})
    assert find_guilty(range(20), oracle) == {fault}
    assert oracle.asked <= 7  # 5 bisections of 20, it alone, the rest


def test_guilty_finds_several():
    oracle = Oracle({3}, {500}, {501}, {999})
    assert find_guilty(range(1000), oracle) == {3, 500, 501, 999}
    assert oracle.asked <= 4 * 12


def test_guilty_takes_one_of_a_pair_back():
    assert find_guilty(range(50), Oracle({7, 31})) in ({7}, {31})
    assert find_guilty(range(50), Oracle({2, 30, 44})) in ({2}, {30}, {44})
    back = find_guilty(range(50), Oracle({7, 31}, {12}, {13, 31}))
    assert back == {12, 31} or len(back) == 3  # any answer leaves a verifying rest
    assert Oracle({7, 31}, {12}, {13, 31})(frozenset(range(50)) - back)


def test_guilty_at_the_ends():
    assert find_guilty(range(0), Oracle()) == frozenset()
    assert find_guilty(range(3), lambda kept: False) == {0, 1, 2}
    assert find_guilty(range(3), Oracle({0}, {1}, {2})) == {0, 1, 2}


def test_the_search_ends():
    oracle = Oracle(*({i, i + 1} for i in range(500)))  # every second one has to go
    assert find_guilty(range(500), oracle, most=40) == frozenset(range(500))
    assert 40 <= oracle.asked <= 40 + 10  # a bisection that has begun is ended


@pytest.mark.parametrize("fault", [0, 7, 499])
def test_a_suspect_that_is_guilty_is_found_at_once(fault: int) -> None:
    oracle = Oracle({fault})
    assert find_guilty(range(500), oracle, suspects={fault}) == {fault}
    assert oracle.asked <= 3  # without it, it alone, the empty set


def test_suspects_that_are_innocent_cost_one_check() -> None:
    oracle = Oracle({17})
    assert find_guilty(range(500), oracle, suspects={3, 4}) == {17}
    assert oracle.asked <= 1 + 9 + 2


def test_a_guilty_pair_of_a_suspect_and_another() -> None:
    oracle = Oracle({2, 40})
    assert find_guilty(range(50), oracle, suspects={2}) == {2}
