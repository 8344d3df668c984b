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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from onnx import TensorProto as T

from onnxfuse import ir
from onnxfuse.cost.quantity import BITS, FREE, Cost, Number, Unknown, bytes_of, bytes_or_none, elements, prod
from onnxfuse.cost.reasons import STRINGS
from onnxfuse.errors import UsageError
from onnxfuse.facts.expr import Dim, dmin
from onnxfuse.facts.value import UNKNOWN, Shape, Value

__all__ = [
    "FORMULAS", "FREE", "NCHWC", "NHWC", "Call", "Cost", "Number", "Unknown", "bytes_of", "bytes_or_none", "elements",
    "op", "prod", "register",
]  # fmt: skip


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
        if shape is None:
            raise Unknown
        if ranks and len(shape) not in ranks:
            raise Unknown(f"its input {i} has the rank {len(shape)}")
        return shape

    def output(self, i: int = 0) -> Value:
        """Facts of output i; unknown where it is absent."""
        return self.outputs[i] if i < len(self.outputs) else UNKNOWN

    def out_shape(self, i: int = 0, *ranks: int) -> Shape:
        """Dims of output i. Raises Unknown, also where it has none of the given ranks."""
        shape = self.output(i).shape
        if shape is None:
            raise Unknown
        if ranks and len(shape) not in ranks:
            raise Unknown(f"its output {i} has the rank {len(shape)}")
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
            raise Unknown("its axis is out of range")
        return axis + rank if axis < 0 else axis

    def body(self, name: str) -> Cost:
        """The cost of one execution of a graph attribute. Raises Unknown."""
        if name not in self.bodies:
            raise Unknown("the sizes that its body works on are not known")
        return self.bodies[name]

    def read(self, *indices: int) -> Dim:
        """Bytes of the distinct connected inputs: all of them, or those at the given positions. Raises Unknown."""
        if not indices and "" not in self.node.inputs and len(set(self.node.inputs)) == len(self.inputs):
            return bytes_of(*self.inputs)  # by far the most frequent case
        pairs = list(zip(self.node.inputs, self.inputs, strict=True))
        distinct = dict([pairs[i] for i in indices if i < len(pairs)] if indices else pairs)
        distinct.pop("", None)
        return bytes_of(*distinct.values())

    def missing(self) -> str:
        """What of the connected values is not known, as `Cost.why` has it."""
        inputs, outputs = (
            [value for name, value in zip(names, values, strict=True) if name and value.items is None]
            for names, values in ((self.node.inputs, self.inputs), (self.node.outputs, self.outputs))
        )
        if any(value.dtype == T.STRING for value in (*inputs, *outputs)):
            return STRINGS
        if any(value.shape is None for value in inputs):
            return "the shape of an input is not known"
        if any(value.shape is None for value in outputs):
            return "the shape of its output is not known"
        if any(value.dtype not in BITS for value in (*inputs, *outputs)):
            return "the type of an input or output is not known"
        return "its shapes do not fit its formula"

    def written(self) -> Dim:
        """Bytes of the connected outputs. Raises Unknown."""
        if "" not in self.node.outputs:
            return bytes_of(*self.outputs)
        return bytes_of(*[value for name, value in zip(self.node.outputs, self.outputs, strict=True) if name])

    def cost(
        self, macs: Dim = 0, arith: Dim = 0, transcendentals: Dim = 0, *, read: Number = None, written: Number = None
    ) -> Cost:
        """A Cost whose bytes are the node's inputs and outputs, unless said otherwise."""
        read = bytes_or_none(self.read) if read is None else read
        written = bytes_or_none(self.written) if written is None else written
        return Cost(macs, arith, transcendentals, read, written, self.weight_traffic(read, written))

    def weight_traffic(self, read: Number, written: Number) -> Number:
        """How many of these bytes are weights.

        Of a node whose outputs are constant, all. Of another, what is read beyond its other inputs: a node that reads
        less than its inputs (Gather) is taken to read the others whole.
        """
        if not any(value.constant for value in self.inputs):
            return 0
        if read is None:
            return None
        if all(value.constant for name, value in zip(self.node.outputs, self.outputs, strict=True) if name):
            return None if written is None else read + written
        others = dict(zip(self.node.inputs, self.inputs, strict=True))
        others = {name: value for name, value in others.items() if name and not value.constant}
        whole = bytes_or_none(lambda: bytes_of(*others.values()))
        return None if whole is None else read - dmin(whole, read)


NHWC = "com.ms.internal.nhwc"  # onnxruntime's names for operators after it has moved the channels to the end …
NCHWC = "com.microsoft.nchwc"  # … and for those on blocks of channels; padded channels are computed, so they count

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
