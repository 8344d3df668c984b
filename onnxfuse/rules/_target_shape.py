"""Shape inputs of Reshape and Expand as constants, where free dims allow it."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.facts import Dim, provably_equal


def _same(a: Dim, b: Dim) -> bool:
    return a == b or (not isinstance(a, int) and not isinstance(b, int) and provably_equal(a, b))


def reshape_target(given: Sequence[Dim], wanted: Sequence[Dim]) -> list[int] | None:
    """Constants that make Reshape (allowzero=0) give `wanted` of `given`: numbers, 0 = as in the input, one −1.

    None where there is no such, or a dimension may be 0, which a 0 in the target does not mean. Numbers that follow a
    free first dimension and are as in the input are written as 0, too: onnxruntime looks for [0, 0, heads, size] when
    it fuses attention.
    """
    target: list[int] = []
    rest = -1
    leading = bool(given and wanted) and not isinstance(wanted[0], int)
    for axis, dim in enumerate(wanted):
        leading = leading and axis < len(given) and _same(dim, given[axis])
        if isinstance(dim, int):
            if dim < 1:
                return None
            target.append(0 if leading else dim)
        elif axis < len(given) and _same(dim, given[axis]):
            target.append(0)
        elif rest < 0:
            rest = axis
            target.append(-1)
        else:
            return None
    if rest >= 0 and 0 in target:
        return None  # what −1 stands for is found by a division by the others, which fails where a free one is 0
    return target


def expand_target(given: Sequence[Dim], wanted: Sequence[Dim]) -> list[int] | None:
    """Constants that make Expand give `wanted` of `given`: numbers, 1 = as in the input. None where none do."""
    padded = [1] * (len(wanted) - len(given)) + list(given)
    if len(padded) != len(wanted):
        return None
    target = []
    for dim, old in zip(wanted, padded, strict=True):
        if _same(dim, old):
            target.append(1)
        elif isinstance(dim, int):
            target.append(dim)
        else:
            return None
    return target
