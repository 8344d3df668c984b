"""Which of many rewrites spoil a result: found with few trials, knowing nothing of what they do."""

from __future__ import annotations

from collections.abc import Callable


def find_guilty(n: int, build_and_check: Callable[[frozenset[int]], bool]) -> frozenset[int]:
    """The rewrites, of 0 … n-1, to roll back so that the rest verifies; empty where all together verify.

    build_and_check(kept) applies exactly those rewrites and tells whether the result verifies. A failing set is cut
    down to a smallest one that still fails (binary search for its last member, then for the one before, in the spirit
    of QuickXplain, Junker 2004); of it the last rewrite goes, the guilty one where it fails alone. Then again, until
    the rest verifies: about k·log2(n) checks for k rewrites that fail alone. All n where even the empty set fails.
    """
    kept = list(range(n))
    if build_and_check(frozenset(kept)):
        return frozenset()
    if not build_and_check(frozenset()):
        return frozenset(kept)
    while True:
        needed: list[int] = []  # members of the failing set found so far; needed + rest always fails
        rest = kept
        while not needed or build_and_check(frozenset(needed)):
            passes, fails = 0, len(rest)  # lengths of a prefix of rest that, with needed, passes and fails
            while fails - passes > 1:
                middle = (passes + fails) // 2
                if build_and_check(frozenset([*needed, *rest[:middle]])):
                    passes = middle
                else:
                    fails = middle
            needed.append(rest[fails - 1])
            rest = rest[: fails - 1]
        kept = [i for i in kept if i != needed[0]]
        if build_and_check(frozenset(kept)):
            return frozenset(range(n)) - frozenset(kept)
