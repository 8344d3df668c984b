"""Which of many rewrites spoil a result: found with few trials, without knowing what they do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

_MOST = 64  # checks: enough for five guilty rewrites of a thousand, and an end where the model itself is too rough


def find_guilty(
    items: Sequence[int],
    verifies: Callable[[frozenset[int]], bool],
    suspects: Collection[int] = (),
    most: int = _MOST,
) -> frozenset[int]:
    """Return the items to roll back so that the rest verifies. All items together are known to fail.

    verifies(kept) applies exactly those rewrites and returns whether the result verifies. suspects: items to try
    first. A failing set is cut down to a smallest one that still fails (binary search for its last member, then for the
    one before, in the spirit of QuickXplain, Junker 2004). Of it the last rewrite goes, the guilty one where it fails
    alone. This is repeated until the rest verifies: about k·log2(n) checks for k rewrites that fail alone, two or three
    for a suspect. Returns all items where `most` checks did not do.
    """
    kept = [i for i in items if i not in suspects] + [i for i in items if i in suspects]
    known: dict[frozenset[int], bool] = {}

    def passes(chosen: list[int]) -> bool:
        key = frozenset(chosen)
        if key not in known:
            known[key] = verifies(key)
        return known[key]

    while kept and len(known) < most:
        needed: list[int] = []  # members of the failing set found so far; needed + rest always fails
        rest = kept
        while (not needed or passes(needed)) and rest and len(known) < most:
            low, high = 0, len(rest)  # lengths of a prefix of rest that, with needed, passes and fails
            probe = sum(i not in suspects for i in rest)
            while high - low > 1:
                middle = probe if low < probe < high else (low + high) // 2
                if passes([*needed, *rest[:middle]]):
                    low = middle
                else:
                    high = middle
            needed.append(rest[high - 1])
            rest = rest[: high - 1]
        kept = [i for i in kept if i != needed[0]]
        if passes(kept):
            return frozenset(items) - frozenset(kept)
    return frozenset(items)
