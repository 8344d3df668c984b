"""The quantities of a cost: operations and bytes, as integers, as expressions over the model's symbols, or unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache

from onnxfuse.facts.expr import Dim, ceil_div
from onnxfuse.facts.value import Shape, Value

Number = Dim | None  # None: unknown, never 0

# Bits of an element by TensorProto.DataType; strings (8) and what is no tensor (0) have no fixed size.
BITS: Mapping[int, int] = {
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16,
    17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6,
}  # fmt: skip


class Unknown(Exception):
    """A formula asked for a fact that is not known; the cost of the node is unknown.

    Its text says which fact, as `Cost.why` has it; without one it is a shape or a type (see `Call.missing`).
    """


def _plus(a: Number, b: Number) -> Number:
    return None if a is None or b is None else a + b


def _times(a: Number, n: Number) -> Number:
    if isinstance(a, int) and a == 0:
        return 0
    return None if a is None or n is None else a * n


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of an If whose condition depends on the data.

    node: the If's name, or its first output; name: "then_branch" or "else_branch"; cost: of one execution.
    """

    node: str
    name: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class Cost:
    """What a node does: operations and bytes moved. Each field is an int, an expression over the model's symbols, or
    None where unknown.

    macs: multiply-accumulates; arith: FLOPs beside 2·macs; transcendentals: calls of special functions.
    bytes_read, bytes_written: traffic of the node taken alone. weight_traffic: those of them that are weights, i.e.
        constants and what is computed from constants alone; a share of the bytes, so that equality leaves it out.
    why: why a field is unknown or too low, as the end of a sentence that starts with the operator's name; else "".
    least: the fields are lower bounds, as a part of a body is unknown.
    branches: those of which the data decide which one runs, in the node and in its bodies.
    """

    macs: Number = 0
    arith: Number = 0
    transcendentals: Number = 0
    bytes_read: Number = 0
    bytes_written: Number = 0
    weight_traffic: Number = field(default=0, compare=False)
    why: str = field(default="", compare=False)
    least: bool = field(default=False, compare=False)
    branches: tuple[Branch, ...] = field(default=(), compare=False)

    @property
    def known(self) -> bool:
        """Whether every field is known, as a number or an expression."""
        counts = self.macs, self.arith, self.transcendentals, self.bytes_read, self.bytes_written
        return not self.least and None not in counts

    @property
    def flops(self) -> Number:
        """2·macs + arith."""
        return _plus(_times(self.macs, 2), self.arith)

    @property
    def bytes(self) -> Number:
        """bytes_read + bytes_written."""
        return _plus(self.bytes_read, self.bytes_written)

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte; None where unknown, symbolic, or nothing is moved."""
        flops, moved = self.flops, self.bytes
        return flops / moved if isinstance(flops, int) and isinstance(moved, int) and moved else None

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            _plus(self.macs, other.macs),
            _plus(self.arith, other.arith),
            _plus(self.transcendentals, other.transcendentals),
            _plus(self.bytes_read, other.bytes_read),
            _plus(self.bytes_written, other.bytes_written),
            _plus(self.weight_traffic, other.weight_traffic),
            self.why or other.why,
            self.least or other.least,
        )

    def scaled(self, n: Number) -> Cost:
        """The cost of n executions; n None = not known how often."""
        return Cost(
            _times(self.macs, n),
            _times(self.arith, n),
            _times(self.transcendentals, n),
            _times(self.bytes_read, n),
            _times(self.bytes_written, n),
            _times(self.weight_traffic, n),
            self.why if n is not None else self.why or "its trip count is not known",
            self.least,
        )


def of_counts(counts: Sequence[Number], why: str = "") -> Cost:
    """A cost of its counts, in the order of `COUNTS`."""
    macs, arith, transcendentals, bytes_read, bytes_written, weight_traffic = counts
    return Cost(macs, arith, transcendentals, bytes_read, bytes_written, weight_traffic, why)


FREE = Cost()
COUNTS = tuple(f.name for f in fields(Cost))[:6]  # the fields that are numbers


@lru_cache(maxsize=1 << 14)
def prod(shape: Shape) -> Dim:
    """Product of dims; 1 for a scalar. Raises Unknown where it grows beyond use. Remembered, as the nodes of a model
    share few shapes.
    """
    try:
        return math.prod(shape)
    except OverflowError:
        raise Unknown from None


def elements(value: Value) -> Dim:
    """Number of elements. Raises Unknown."""
    if value.shape is None:
        raise Unknown
    return prod(value.shape)


def bytes_of(*values: Value) -> Dim:
    """Bytes of dense tensors: elements x bits / 8, each rounded up; of a sequence those of its tensors, where it lists
    them. Raises Unknown, also for strings.
    """
    total = _bytes(tuple([(value.dtype, value.shape) for value in values if value.items is None]))
    for value in values:
        if value.items:
            total = total + bytes_of(*value.items)
    return total


@lru_cache(maxsize=1 << 14)
def _bytes(types: tuple[tuple[int, Shape | None], ...]) -> Dim:
    total: Dim = 0
    for dtype, shape in types:
        bits = BITS.get(dtype)
        if bits is None or shape is None:
            raise Unknown
        n = prod(shape)
        total = total + (n * (bits >> 3) if bits & 7 == 0 else ceil_div(n * bits, 8))
    return total


def bytes_or_none(count: Callable[[], Dim]) -> Number:
    """A count of bytes, None where it is unknown."""
    try:
        return count()
    except Unknown:
        return None
