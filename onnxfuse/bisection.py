"""Which of many rewrites spoil a result: found with few trials, knowing nothing of what they do."""

from __future__ import annotations

from collections.abc import Callable

_MOST = 64  # checks: enough for five guilty rewrites of a thousand, and an end where the model itself is too rough


def find_guilty(n: int, build_and_check: Callable[[frozenset[int]], bool], most: int = _MOST) -> frozenset[int]:
    """The rewrites, of 0 … n-1, to roll back so that the rest verifies; empty where all together verify.

    build_and_check(kept) applies exactly those rewrites and tells whether the result verifies. A failing set is cut
    down to a smallest one that still fails (binary search for its last member, then for the one before, in the spirit
    of QuickXplain, Junker 2004); of it the last rewrite goes, the guilty one where it fails alone. Then again, until
    the rest verifies: about k·log2(n) checks for k rewrites that fail alone. All n where even the empty set fails,
    or where `most` checks did not do.
    """
    kept, checks = list(range(n)), 0

    def verifies(chosen: list[int]) -> bool:
        nonlocal checks
        checks += 1
        return build_and_check(frozenset(chosen))

    if verifies(kept):
        return frozenset()
    if not verifies([]):
        return frozenset(kept)
    while checks < most:
        needed: list[int] = []  # members of the failing set found so far; needed + rest always fails
        rest = kept
        while (not needed or verifies(needed)) and checks < most:
            passes, fails = 0, len(rest)  # lengths of a prefix of rest that, with needed, passes and fails
            while fails - passes > 1:
                middle = (passes + fails) // 2
                if verifies([*needed, *rest[:middle]]):
                    passes = middle
                else:
                    fails = middle
            needed.append(rest[fails - 1])
            rest = rest[: fails - 1]
        kept = [i for i in kept if i != needed[0]]
        if verifies(kept):
            return frozenset(range(n)) - frozenset(kept)
    return frozenset(range(n))
