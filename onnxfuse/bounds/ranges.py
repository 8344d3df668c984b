"""Whole numbers that the elements of an input may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

SOME = 9  # sizes that nothing bounds are below it

Dim = int | str | None  # a size, the key of a free dimension (or a sum of keys), or unknown


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` up to `high`, without `high`; low_of, high_of: a dimension whose size is added to each."""

    low: int
    high: int
    low_of: str | None = None
    high_of: str | None = None

    def shifted(self, least: int, most: int) -> Range:
        """The range of x where x plus any number from `least` to `most` has to be in this one."""
        return replace(self, low=self.low - least, high=self.high - most)


Ranges = tuple[Range, ...]  # one for all elements, or one for each; empty where nothing is known
Bounds = Mapping[str, tuple[Ranges, ...]]  # input → what each of its consumers asks for


def position(size: Dim, *, negative: bool = True) -> Ranges:
    """Of an index into an axis of that size; negative: whether -1 is the last."""
    if isinstance(size, int):
        return (Range(-size if negative else 0, size),)
    return () if size is None else (Range(0, 0, high_of=size),)


def up_to(size: Dim, least: int = 1) -> Ranges:
    """From `least` to the size, with it."""
    if isinstance(size, int):
        return (Range(least, size + 1),)
    return () if size is None else (Range(least, 1, high_of=size),)


def exactly(size: Dim) -> Ranges:
    """The size itself."""
    if isinstance(size, int):
        return (Range(size, size + 1),)
    return () if size is None else (Range(0, 1, size, size),)


def each(parts: Sequence[Ranges]) -> Ranges:
    """One range for each element; empty where one of them is unknown."""
    return tuple(r for part in parts for r in part) if all(parts) else ()
