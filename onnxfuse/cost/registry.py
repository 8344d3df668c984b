"""What a node costs, and the table of formulas.

A formula sees one call of an operator (`Call`: shapes, dtypes, attributes) and returns its `Cost`. It lives in its
family's file and is entered with `@op`. Conventions, the same for every operator:

- a multiply-accumulate is 1 MAC = 2 FLOPs; every other addition, multiplication, comparison of floats … is 1 FLOP of
  `arith`; exp, log, sqrt, sin, tanh, erf, pow, sigmoid … are counted apart, 1 a call, as XLA's HloCostAnalysis does;
- taps on padding count, as in all published tables of convolutional networks;
- a node reads each distinct input once, at its own size (not the broadcast one), and writes its connected outputs;
- an element takes the bits of its dtype: sub-byte types are packed, and a tensor's bytes are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from onnxfuse import ir
from onnxfuse.errors import UsageError
from onnxfuse.facts.expr import Dim, ceil_div
from onnxfuse.facts.value import UNKNOWN, Shape, Value

Number = Dim | None  # None: unknown, never 0

# Bits of an element by TensorProto.DataType; strings (8) and what is no tensor (0) have no fixed size.
BITS: Mapping[int, int] = {
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16,
    17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6,
}  # fmt: skip


class Unknown(Exception):
    """A formula asked for a fact that is not known; the cost of the node is unknown."""


def _plus(a: Number, b: Number) -> Number:
    return None if a is None or b is None else a + b


def _times(a: Number, n: Number) -> Number:
    if isinstance(a, int) and a == 0:
        return 0
    return None if a is None or n is None else a * n


@dataclass(frozen=True, slots=True)
class Cost:
    """What a node does: operations and bytes moved. Each field is an int, an expression over the model's symbols, or
    None where unknown.

    macs: multiply-accumulates; arith: FLOPs beside 2·macs; transcendentals: calls of special functions.
    bytes_read, bytes_written: traffic of the node taken alone.
    """

    macs: Number = 0
    arith: Number = 0
    transcendentals: Number = 0
    bytes_read: Number = 0
    bytes_written: Number = 0

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
        )

    def scaled(self, n: Number) -> Cost:
        """The cost of n executions; n None = not known how often."""
        return Cost(
            _times(self.macs, n),
            _times(self.arith, n),
            _times(self.transcendentals, n),
            _times(self.bytes_read, n),
            _times(self.bytes_written, n),
        )


FREE = Cost()


@lru_cache(maxsize=1 << 14)
def prod(shape: Shape) -> Dim:
    """Product of dims; 1 for a scalar. Remembered, as the nodes of a model share few shapes."""
    return math.prod(shape)


def elements(value: Value) -> Dim:
    """Number of elements. Raises Unknown."""
    if value.shape is None:
        raise Unknown
    return prod(value.shape)


def bytes_of(*values: Value) -> Dim:
    """Bytes of dense tensors: elements x bits / 8, each rounded up. Raises Unknown for a string or a sequence."""
    return _bytes(tuple([(value.dtype, value.shape) for value in values]))


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


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call as a formula sees it; an absent optional input or output is the unknown Value.

    bodies: cost of one execution of each graph attribute; trips: how often a Loop or Scan executes it.
    """

    node: ir.Node
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    opset: int
    bodies: Mapping[str, Cost] = field(default_factory=dict)
    trips: Number = None

    def has(self, i: int) -> bool:
        """Whether input i is connected."""
        names = self.node.inputs
        return i < len(names) and names[i] != ""

    def gives(self, i: int) -> bool:
        """Whether output i is connected."""
        names = self.node.outputs
        return i < len(names) and names[i] != ""

    def attr(self, name: str, default: Any) -> Any:
        """An attribute, or the default where the node does not have it."""
        return self.node.attrs.get(name, default)

    def input(self, i: int) -> Value:
        """Facts of input i; unknown where it is absent."""
        return self.inputs[i] if i < len(self.inputs) else UNKNOWN

    def shape(self, i: int, *ranks: int) -> Shape:
        """Dims of input i. Raises Unknown, also where it has none of the given ranks."""
        shape = self.input(i).shape
        if shape is None or (ranks and len(shape) not in ranks):
            raise Unknown
        return shape

    def output(self, i: int = 0) -> Value:
        """Facts of output i; unknown where it is absent."""
        return self.outputs[i] if i < len(self.outputs) else UNKNOWN

    def out_shape(self, i: int = 0, *ranks: int) -> Shape:
        """Dims of output i. Raises Unknown, also where it has none of the given ranks."""
        shape = self.output(i).shape
        if shape is None or (ranks and len(shape) not in ranks):
            raise Unknown
        return shape

    def size(self, i: int) -> Dim:
        """Elements of input i. Raises Unknown."""
        return prod(self.shape(i))

    def out_size(self, i: int = 0) -> Dim:
        """Elements of output i. Raises Unknown."""
        return prod(self.out_shape(i))

    def axis(self, default: int, rank: int) -> int:
        """The attribute `axis`, counted from the front. Raises Unknown when out of range."""
        axis = self.attr("axis", default)
        if not isinstance(axis, int) or not -rank <= axis <= rank:
            raise Unknown
        return axis + rank if axis < 0 else axis

    def body(self, name: str) -> Cost:
        """The cost of one execution of a graph attribute. Raises Unknown."""
        if name not in self.bodies:
            raise Unknown
        return self.bodies[name]

    def read(self, *indices: int) -> Dim:
        """Bytes of the distinct connected inputs: all of them, or those at the given positions. Raises Unknown."""
        if not indices and "" not in self.node.inputs and len(set(self.node.inputs)) == len(self.inputs):
            return bytes_of(*self.inputs)  # by far the most frequent case
        pairs = list(zip(self.node.inputs, self.inputs, strict=True))
        distinct = dict([pairs[i] for i in indices if i < len(pairs)] if indices else pairs)
        distinct.pop("", None)
        return bytes_of(*distinct.values())

    def written(self) -> Dim:
        """Bytes of the connected outputs. Raises Unknown."""
        if "" not in self.node.outputs:
            return bytes_of(*self.outputs)
        return bytes_of(*[value for name, value in zip(self.node.outputs, self.outputs, strict=True) if name])

    def cost(
        self, macs: Dim = 0, arith: Dim = 0, transcendentals: Dim = 0, *, read: Number = None, written: Number = None
    ) -> Cost:
        """A Cost whose bytes are the node's inputs and outputs, unless said otherwise."""
        return Cost(
            macs,
            arith,
            transcendentals,
            bytes_or_none(self.read) if read is None else read,
            bytes_or_none(self.written) if written is None else written,
        )


def bytes_or_none(count: Callable[[], Dim]) -> Number:
    """A count of bytes, None where it is unknown."""
    try:
        return count()
    except Unknown:
        return None


Formula = Callable[[Call], Cost]
F = TypeVar("F", bound=Formula)


@dataclass(frozen=True, slots=True)
class Entry:
    """A formula and the class of the operator: conv, matmul, elementwise, view …"""

    formula: Formula
    kind: str


FORMULAS: dict[tuple[str, str], Entry] = {}  # (domain, operator) -> formula; filled when the family files are imported


def op(*names: str, kind: str, domain: str = "") -> Callable[[F], F]:
    """Enter a formula for these operators. Raises UsageError where one of them has a formula already."""

    def enter(formula: F) -> F:
        for name in names:
            if (domain, name) in FORMULAS:
                raise UsageError(f"operator {domain or 'ai.onnx'}::{name} has a cost formula already; register it once")
            FORMULAS[domain, name] = Entry(formula, kind)
        return formula

    return enter


def register(domain: str, op_type: str, kind: str = "custom") -> Callable[[F], F]:
    """Teach onnxfuse the cost of a custom operator: `@register("my.domain", "MyOp") def cost(call: Call) -> Cost`.

    Raises UsageError where the operator has a formula already.
    """
    return op(op_type, domain=ir.domain(domain), kind=kind)
