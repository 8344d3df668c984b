"""Where a node stands on a device's roofline: its time, what bounds it, and the annotated rows and totals of a model.

The model is Williams, Waterman and Patterson's (CACM 52(4), 2009) with a launch cost: time = max(compute, bytes /
bandwidth) + launch. Bytes always move at memory bandwidth. Small tensors do live in the last-level cache, but a rate
that depends on the size of a node's traffic would make a fused node, whose working set is larger, look slower than
the nodes that it replaces; with one rate, fewer bytes never cost more. Times of cache-resident nodes are upper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

from onnxfuse import ir
from onnxfuse.cost import Cost, kind
from onnxfuse.cost.registry import FREE, Number, bytes_of, bytes_or_none, elements
from onnxfuse.devices import Device
from onnxfuse.facts import Facts
from onnxfuse.facts.expr import Dim
from onnxfuse.facts.value import UNKNOWN, Value
from onnxfuse.memory import peak_activation_bytes

# One special function takes the time of 16 fp32 FLOPs: 16 results a clock and SM from the special function units
# against 128 FMA lanes (CUDA C++ Programming Guide, throughput of native arithmetic instructions, 8.x and 9.0). A
# vectorised CPU library needs about as many operations for the polynomial of an exp.
TRANSCENDENTAL_FLOPS = 16

# FLOP rates by TensorProto.DataType; every other type runs at the fp32 rate.
_RATES = {1: "fp32", 2: "int8", 3: "int8", 10: "fp16", 11: "fp64", 16: "bf16", **dict.fromkeys(range(17, 21), "fp8")}
_FLOATS = frozenset({1, 10, 11, 16, 17, 18, 19, 20, 23, 24, 27, 28})


@dataclass(frozen=True, slots=True)
class Row:
    """One node, annotated. Numbers are ints, expressions over the model's symbols, or None where unknown.

    bytes in bytes, seconds in seconds (None when unknown or symbolic), intensity in FLOPs per byte.
    bound: "compute", "memory", "overhead"; None for what is free, unknown or symbolic.
    """

    name: str
    op_type: str
    domain: str
    scope: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: str
    flops: Number
    macs: Number
    transcendentals: Number
    bytes_read: Number
    bytes_written: Number
    bytes: Number
    intensity: float | None
    seconds: float | None
    bound: str | None

    @property
    def known(self) -> bool:
        """Whether every count is known, as a number or an expression."""
        return None not in (self.flops, self.macs, self.transcendentals, self.bytes_read, self.bytes_written)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the rows. With `coverage` below 1 they are lower bounds: an unknown node adds nothing.

    seconds: None as soon as a cost is symbolic. bound: the bound under which most of the time is spent.
    params: elements of the floating initializers; weight_bytes: bytes of all initializers. Floating tensors (not
        scalars) in Constant nodes count as initializers, since some exporters keep all weights there.
    peak_activation_bytes: largest sum of live node outputs in file order, views sharing their input's memory, without
        in-place reuse; None when a size is symbolic.
    coverage: share of the nodes whose cost is known; unknown: the operators of the others.
    """

    flops: Number
    macs: Number
    transcendentals: Number
    bytes_read: Number
    bytes_written: Number
    bytes: Number
    intensity: float | None
    seconds: float | None
    bound: str | None
    params: Number
    weight_bytes: Number
    peak_activation_bytes: Number
    coverage: float
    unknown: tuple[str, ...]


def peak(device: Device, dtype: str, matrix: bool) -> float:
    """FLOP/s of multiply-accumulates. fp32 uses TF32 units where there are any.

    Source: onnxruntime's CUDA provider option `use_tf32` is on by default.
    """
    return device.peak("tf32" if matrix and dtype == "fp32" and "tf32" in device.matrix else dtype, matrix)


def ridge(device: Device, dtype: str = "fp32", matrix: bool = True) -> float:
    """FLOP/byte above which the device computes longer than it moves."""
    return peak(device, dtype, matrix) / device.bandwidth


def seconds(cost: Cost, device: Device, *, dtype: str = "fp32", matrix: bool = True) -> float | None:
    """Estimated time of one kernel: max(compute, bytes / bandwidth) + launch; 0 for a free view.

    matrix: whether the MACs run on the matrix units. None where a count is unknown or symbolic.
    """
    return place(cost, device, dtype, matrix)[0]


def bound(cost: Cost, device: Device, *, dtype: str = "fp32", matrix: bool = True) -> str | None:
    """The largest part of the time: "compute", "memory" or "overhead" (launch); None when free, unknown or symbolic."""
    return place(cost, device, dtype, matrix)[1]


def place(cost: Cost, device: Device, dtype: str, matrix: bool) -> tuple[float | None, str | None]:
    """(seconds, bound) of one kernel."""
    if cost == FREE:
        return 0.0, None
    macs, arith, special, moved = cost.macs, cost.arith, cost.transcendentals, cost.bytes
    if not (isinstance(macs, int) and isinstance(arith, int) and isinstance(special, int) and isinstance(moved, int)):
        return None, None
    one_mac, one_flop, one_special = _seconds_of_one(device, dtype, matrix)
    compute = macs * one_mac + arith * one_flop + special * one_special
    memory = moved / device.bandwidth
    time = max(compute, memory)
    if device.launch > time:
        return time + device.launch, "overhead"
    return time + device.launch, "compute" if compute > memory else "memory"


@cache
def _seconds_of_one(device: Device, dtype: str, matrix: bool) -> tuple[float, float, float]:
    """Seconds of one multiply-accumulate, of one other FLOP and of one special function."""
    special = TRANSCENDENTAL_FLOPS / device.peak("fp32", matrix=False)
    return 2 / peak(device, dtype, matrix), 1 / device.peak(dtype, matrix=False), special


def units(node: ir.Node, facts: Facts) -> tuple[str, bool]:
    """(dtype, matrix) of a node for `seconds`: where its arithmetic runs.

    The dtype is that of the first floating output; a node without one counts as int8 when it reads 8-bit integers. A
    convolution over one channel at a time (depthwise) has no inner product to feed matrix units with.
    """
    dtype = next((d for name in node.outputs if (d := facts[name].dtype) in _FLOATS), 0)
    if not dtype and node.inputs and facts[node.inputs[0]].dtype in (2, 3):
        dtype = 3
    depthwise = False
    if node.op_type in ("Conv", "FusedConv") and node.attrs.get("group", 1) != 1 and len(node.inputs) > 1:
        weight = facts[node.inputs[1]].shape
        depthwise = weight is not None and len(weight) > 1 and weight[1] == 1
    return _RATES.get(dtype, "fp32"), not depthwise


def rows(facts: Facts, costs: Sequence[Cost], device: Device, scope: str = "") -> tuple[Row, ...]:
    """The annotated nodes of one graph, in file order; `costs` has one Cost a node."""
    return tuple(_row(node, facts, cost, device, scope) for node, cost in zip(facts.nodes, costs, strict=True))


def _row(node: ir.Node, facts: Facts, cost: Cost, device: Device, scope: str) -> Row:
    flops, moved = cost.flops, cost.bytes
    return Row(
        node.name,
        node.op_type,
        node.domain,
        scope,
        node.inputs,
        node.outputs,
        kind(node),
        flops,
        cost.macs,
        cost.transcendentals,
        cost.bytes_read,
        cost.bytes_written,
        moved,
        _ratio(flops, moved),
        *place(cost, device, *units(node, facts)),
    )


def _ratio(flops: Number, moved: Number) -> float | None:
    return flops / moved if isinstance(flops, int) and isinstance(moved, int) and moved else None


def totals(annotated: Sequence[Row], program: ir.Program, facts: Facts) -> Totals:
    """Sums over the main graph's rows, and what the model holds in memory; `facts` are the main graph's."""
    flops = _sum(row.flops for row in annotated)
    read, written = _sum(row.bytes_read for row in annotated), _sum(row.bytes_written for row in annotated)
    moved = read + written
    symbolic = any(row.known and row.seconds is None for row in annotated)
    weights = list(_weights(program.graph, facts))
    unknown = dict.fromkeys(f"{row.domain or 'ai.onnx'}::{row.op_type}" for row in annotated if not row.known)
    return Totals(
        flops,
        _sum(row.macs for row in annotated),
        _sum(row.transcendentals for row in annotated),
        read,
        written,
        moved,
        _ratio(flops, moved),
        None if symbolic else math.fsum(row.seconds or 0.0 for row in annotated),
        None if symbolic else _main_bound(annotated),
        _sum(bytes_or_none(partial(elements, value)) for value in weights if value.dtype in _FLOATS),
        _sum(bytes_or_none(partial(bytes_of, value)) for value in weights),
        peak_activation_bytes(program, facts, program.graph.outputs),
        sum(row.known for row in annotated) / len(annotated) if annotated else 1.0,
        tuple(unknown),
    )


def _sum(counts: Iterable[Number]) -> Dim:
    total: Dim = 0
    for count in counts:
        if count is not None:
            total = total + count
    return total


def _main_bound(annotated: Sequence[Row]) -> str | None:
    spent: dict[str, float] = {}
    for row in annotated:
        if row.bound is not None and row.seconds is not None:
            spent[row.bound] = spent.get(row.bound, 0.0) + row.seconds
    return max(spent, key=spent.__getitem__) if spent else None


def _weights(graph: ir.Graph, facts: Facts) -> Iterator[Value]:
    """Weights of a graph and of the bodies in it: initializers, and floating tensors in Constant nodes."""
    yield from (facts[name] for name in graph.initializers)
    for node in graph.nodes:
        if node.op_type == "Constant" and not node.domain:
            value = facts[node.outputs[0]] if node.outputs else UNKNOWN
            if value.shape and value.dtype in _FLOATS:
                yield value
    for (i, attribute), inner in facts.bodies.items():
        body = graph.nodes[i].attrs.get(attribute)
        if isinstance(body, ir.Graph):
            yield from _weights(body, inner)
