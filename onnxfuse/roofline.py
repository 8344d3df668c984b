"""Where a node stands on a device's roofline: its time, what bounds it, and the annotated rows and totals of a model.

The model is Williams, Waterman and Patterson's (CACM 52(4), 2009) with a launch cost: time = max(compute, bytes /
bandwidth) + launch. A device may tell two things more. With `caches`, so many bytes of the activations that a
node moves go at the bandwidth of a cache, as the node before it has just written them; weights were last touched a
whole run ago and come from memory. With `efficiency`, what the runtime's kernel reaches of that time. Both belong to a
node alone; for nodes that run as one kernel `merged_seconds` has a rule under which fewer bytes never cost more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import compress
from operator import not_
from pathlib import Path
from typing import NamedTuple

from onnxfuse import devices, ir
from onnxfuse.cost import Cost, kind
from onnxfuse.cost.activation import steps
from onnxfuse.cost.quantity import Branch
from onnxfuse.cost.registry import FORMULAS, FREE, Number
from onnxfuse.devices import Device
from onnxfuse.errors import UsageError
from onnxfuse.facts import Facts, expr
from onnxfuse.facts.expr import Dim
from onnxfuse.memory import peaks
from onnxfuse.weights import FLOATS, stored

# One special function takes the time of 16 fp32 FLOPs: 16 results a clock and SM from the special function units
# against 128 FMA lanes (CUDA C++ Programming Guide, throughput of native arithmetic instructions, 8.x and 9.0). A
# vectorised CPU library needs about as many operations for the polynomial of an exp.
TRANSCENDENTAL_FLOPS = 16

# FLOP rates by TensorProto.DataType; every other type runs at the fp32 rate.
_RATES = {1: "fp32", 2: "int8", 3: "int8", 10: "fp16", 11: "fp64", 16: "bf16", **dict.fromkeys(range(17, 21), "fp8")}


@dataclass(frozen=True, slots=True)
class BranchRow:
    """One branch of an If of which the data decide which one runs: what one execution of it does.

    node: the If's name, or its first output; name: "then_branch" or "else_branch"; reason: why a count is unknown or
    only a lower bound, None where all are known.
    """

    node: str
    name: str
    flops: Number
    macs: Number
    transcendentals: Number
    bytes_read: Number
    bytes_written: Number
    bytes: Number
    reason: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One node, annotated. Counts are ints, expressions over the model's symbols, or None where unknown.

    bytes in bytes, seconds in seconds, intensity in FLOPs per byte: estimates, which need numbers (None where there are
    none). bound: "compute", "memory", "overhead"; None for what is free or has no time.
    weight_traffic: how many of `bytes` are weights. fused: what the node does to its result beside its operator, in
        order: an "Add" of another value, an activation.
    reason: why a count is unknown or only a lower bound, as the end of a sentence that starts with the operator; None
        where none is.
    branches: those in the node and its bodies of which the data decide which one runs. A count of the node has the
        larger one of two.
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
    weight_traffic: Number = 0
    fused: tuple[str, ...] = ()
    reason: str | None = None
    branches: tuple[BranchRow, ...] = ()

    @property
    def known(self) -> bool:
        """Whether every count is known, as a number or an expression."""
        return not (
            self.reason is not None
            or self.flops is None
            or self.macs is None
            or self.transcendentals is None
            or self.bytes_read is None
            or self.bytes_written is None
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the rows. With `coverage` below 1 they are lower bounds: of an unknown node only that counts which is
    known. Otherwise they are upper bounds where data decide which branch of an If runs (see `Row.branches`).

    Counts may be expressions over the model's symbols. seconds: None as soon as a row of known cost has none. bound:
        the bound under which most of the time is spent.
    params: elements of the floating initializers, and of the integer ones that DequantizeLinear or a quantized operator
        reads as weights; weight_bytes: bytes of all initializers. Each counts once, however many nodes read it (see
        `weights`).
    weight_traffic, activation_traffic: the two parts of `bytes`. Weights are what no caller can change: initializers
        (one that is an input too is none), constants, and what is computed from such alone. Each node reads its own.
    peak_activation_bytes: largest sum of live node outputs in file order, views sharing their input's memory;
        peak_activation_bytes_in_place: the same where a node may write over an input that dies with it (see `memory`).
    coverage: share of the nodes whose cost is known; unknown: the operators of the others ("domain::Operator"), and
        reasons: why, by operator.
    """

    flops: Number
    macs: Number
    transcendentals: Number
    bytes_read: Number
    bytes_written: Number
    bytes: Number
    weight_traffic: Number
    activation_traffic: Number
    intensity: float | None
    seconds: float | None
    bound: str | None
    params: Number
    weight_bytes: Number
    peak_activation_bytes: Number
    peak_activation_bytes_in_place: Number
    coverage: float
    unknown: tuple[str, ...]
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution(Totals):
    """The totals of a model as a target executes it; `seconds` is the time of its kernels.

    kernels: how many it launches; one may do several nodes, and a node that only renames memory needs none.
    """

    kernels: int


def peak(device: Device, dtype: str, matrix: bool) -> float:
    """FLOP/s of multiply-accumulates. fp32 uses TF32 units where there are any.

    Source: onnxruntime's CUDA provider option `use_tf32` is on by default.
    """
    return device.peak("tf32" if matrix and dtype == "fp32" and "tf32" in device.matrix else dtype, matrix)


def ridge(device: Device, dtype: str = "fp32", matrix: bool = True) -> float:
    """FLOP/byte above which the device computes longer than it moves."""
    return peak(device, dtype, matrix) / device.bandwidth


class Units(NamedTuple):
    """What a node's arithmetic runs on: dtype of the rates, matrix units or plain lanes, and the kind of work."""

    dtype: str = "fp32"
    matrix: bool = True
    work: str = ""


def seconds(cost: Cost, device: Device, *, dtype: str = "fp32", matrix: bool = True, work: str = "") -> float | None:
    """Estimated time of one kernel: max(compute, bytes / bandwidth) / efficiency + launch; 0 for a free view.

    matrix: whether the MACs run on the matrix units; work: see `work`. None where a count is unknown or symbolic.
    """
    return place(cost, device, Units(dtype, matrix, work))[0]


def bound(cost: Cost, device: Device, *, dtype: str = "fp32", matrix: bool = True, work: str = "") -> str | None:
    """The largest part of the time: "compute", "memory" or "overhead" (launch); None when free, unknown or symbolic."""
    return place(cost, device, Units(dtype, matrix, work))[1]


def place(cost: Cost, device: Device, on: Units) -> tuple[float | None, str | None]:
    """(seconds, bound) of one kernel."""
    if cost == FREE:
        return 0.0, None
    parts = _parts(cost, device, on)
    if parts is None:
        return None, None
    compute, memory = parts
    time = max(compute, memory)
    if device.launch > time:
        return time + device.launch, "overhead"
    return time + device.launch, "compute" if compute > memory else "memory"


def merged_seconds(cost: Cost, parts: Sequence[tuple[Cost, Units]], device: Device, on: Units) -> float | None:
    """Estimated time of one kernel that does the work of several nodes; `cost` has the bytes over its boundary.

    It is what one node of that cost would take on the units of the leading one, and never more than its nodes together
    on theirs: what a cache gave between them is not lost, and fewer bytes never cost more.
    None where a count is unknown or symbolic.
    """
    whole = _parts(cost, device, on)
    alone = [_parts(part, device, units) for part, units in parts]
    if whole is None or None in alone:
        return None
    return min(max(whole), math.fsum(max(part) for part in alone if part)) + device.launch


def _parts(cost: Cost, device: Device, on: Units) -> tuple[float, float] | None:
    """Seconds of computing and of moving."""
    macs, arith, special, moved = cost.macs, cost.arith, cost.transcendentals, cost.bytes
    if not (isinstance(macs, int) and isinstance(arith, int) and isinstance(special, int) and isinstance(moved, int)):
        return None
    one_mac, one_flop, one_special = _seconds_of_one(device, on.dtype, on.matrix)
    compute = macs * one_mac + arith * one_flop + special * one_special
    weights = cost.weight_traffic if isinstance(cost.weight_traffic, int) else 0
    memory, left = weights / device.bandwidth, float(moved - weights)
    for size, rate in device.caches:
        near = min(left, size)
        memory, left = memory + near / rate, left - near
    memory += left / device.bandwidth
    efficiency = device.efficiency.get(on.work, 1.0)
    return compute / efficiency, memory / efficiency


@cache
def _seconds_of_one(device: Device, dtype: str, matrix: bool) -> tuple[float, float, float]:
    """Seconds of one multiply-accumulate, of one other FLOP and of one special function."""
    special = TRANSCENDENTAL_FLOPS / device.peak("fp32", matrix=False)
    return 2 / peak(device, dtype, matrix), 1 / device.peak(dtype, matrix=False), special


def units(node: ir.Node, facts: Facts) -> Units:
    """What a node's arithmetic runs on.

    The dtype is that of the first floating output; a node without one counts as int8 when it reads 8-bit integers. A
    convolution over one channel at a time (depthwise) has no inner product to feed matrix units with.
    """
    dtype = next((d for name in node.outputs if (d := facts[name].dtype) in FLOATS), 0)
    if not dtype and node.inputs and facts[node.inputs[0]].dtype in (2, 3):
        dtype = 3
    kind_of_work = work(node, facts)
    return Units(_RATES.get(dtype, "fp32"), kind_of_work != DEPTHWISE, kind_of_work)


DEPTHWISE, FEW_CHANNELS = "DepthwiseConv", "FewChannelConv"
_FEW = 4  # input channels of the first layer of an image network: grey, RGB, RGBA
_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "NhwcFusedConv", "NhwcConv"})


def work(node: ir.Node, facts: Facts) -> str:
    """The kind of work of a node, the key of a device's efficiencies: its operator, in whatever domain and layout.

    Of convolutions "Conv", but "DepthwiseConv" over one channel at a time and "FewChannelConv" over at most four.
    """
    if node.op_type not in _CONVOLUTIONS:
        return node.op_type
    weight = facts[node.inputs[1]].shape if len(node.inputs) > 1 else None
    channels = weight[1] if weight is not None and len(weight) > 1 else None
    if node.attrs.get("group", 1) != 1:
        return DEPTHWISE if channels == 1 else "Conv"
    return FEW_CHANNELS if isinstance(channels, int) and channels <= _FEW else "Conv"


def find_device(name: str | Path | Device) -> Device:
    """The device of that name or file (`devices.find`), all of whose efficiencies are of known kinds of work.

    Raises UsageError.
    """
    device = devices.find(name)
    known = {DEPTHWISE, FEW_CHANNELS, *(op_type for _, op_type in FORMULAS)}
    for key in device.efficiency:
        if key not in known:
            close = "".join(f"; did you mean '{other}'?" for other in get_close_matches(key, sorted(known), 1))
            raise UsageError(f"device '{device.name}': unknown operator '{key}' in [efficiency]{close}")
    return device


def rows(facts: Facts, costs: Sequence[Cost], device: Device, scope: str = "") -> tuple[Row, ...]:
    """The annotated nodes of one graph, in file order; `costs` has one Cost a node."""
    found: list[Row] = []
    for i, (node, cost) in enumerate(zip(facts.nodes, costs, strict=True)):
        first = facts.alike.get(i)
        if first is not None and costs[first] is cost:
            like = found[first]
            figures = like.flops, like.bytes, like.intensity, like.seconds, like.bound
        else:
            flops, moved = cost.flops, cost.bytes
            figures = flops, moved, _ratio(flops, moved), *place(cost, device, units(node, facts))
        found.append(_row(node, cost, scope, *figures))
    return tuple(found)


def formula_rows(annotated: Sequence[Row], costs: Sequence[Cost]) -> tuple[Row, ...]:
    """The rows with the counts of these costs, which are formulas, and the estimates that they have."""
    seen: dict[int, tuple[Number, Number]] = {}  # nodes that are alike share one cost
    found = []
    for row, cost in zip(annotated, costs, strict=True):
        sums = seen.get(id(cost))
        if sums is None:
            sums = seen[id(cost)] = cost.flops, cost.bytes
        found.append(_row(row, cost, row.scope, *sums, row.intensity, row.seconds, row.bound))
    return tuple(found)


def _row(
    of: ir.Node | Row,
    cost: Cost,
    scope: str,
    flops: Number,
    moved: Number,
    intensity: float | None,
    seconds: float | None,
    bound: str | None,
) -> Row:
    return Row(
        of.name,
        of.op_type,
        of.domain,
        scope,
        of.inputs,
        of.outputs,
        of.kind if isinstance(of, Row) else kind(of),
        flops,
        cost.macs,
        cost.transcendentals,
        cost.bytes_read,
        cost.bytes_written,
        moved,
        intensity,
        seconds,
        bound,
        cost.weight_traffic,
        of.fused if isinstance(of, Row) else steps(of),
        None if cost.known else cost.why,
        tuple([_branch_row(branch) for branch in cost.branches]),
    )


def _branch_row(branch: Branch) -> BranchRow:
    cost = branch.cost
    counts = cost.flops, cost.macs, cost.transcendentals, cost.bytes_read, cost.bytes_written, cost.bytes
    return BranchRow(branch.node, branch.name, *counts, None if cost.known else cost.why)


def _ratio(flops: Number, moved: Number) -> float | None:
    return flops / moved if isinstance(flops, int) and isinstance(moved, int) and moved else None


def totals(annotated: Sequence[Row], program: ir.Program, facts: Facts) -> Totals:
    """Sums over the main graph's rows, and what the model holds in memory; `facts` are the main graph's."""
    flops = _sum([row.flops for row in annotated])
    read, written = _sum([row.bytes_read for row in annotated]), _sum([row.bytes_written for row in annotated])
    moved, of_weights = read + written, _sum([row.weight_traffic for row in annotated])
    known = [row.known for row in annotated]
    symbolic = any(row.seconds is None for row in compress(annotated, known))
    unknown: dict[str, dict[str, None]] = {}
    for row in compress(annotated, map(not_, known)):
        unknown.setdefault(f"{row.domain or 'ai.onnx'}::{row.op_type}", {})[row.reason or ""] = None
    return Totals(
        flops,
        _sum([row.macs for row in annotated]),
        _sum([row.transcendentals for row in annotated]),
        read,
        written,
        moved,
        of_weights,
        moved - of_weights,
        _ratio(flops, moved),
        None if symbolic else math.fsum(row.seconds or 0.0 for row in annotated),
        None if symbolic else _main_bound(annotated),
        *stored(program.graph, facts),
        *peaks(program, facts, program.graph.outputs),
        sum(known) / len(known) if known else 1.0,
        tuple(unknown),
        {name: "; ".join(reasons) for name, reasons in unknown.items()},
    )


def _sum(counts: Iterable[Number]) -> Dim:
    return expr.total(count for count in counts if count is not None)


def _main_bound(annotated: Sequence[Row]) -> str | None:
    spent: dict[str, float] = {}
    for row in annotated:
        if row.bound is not None and row.seconds is not None:
            spent[row.bound] = spent.get(row.bound, 0.0) + row.seconds
    return max(spent, key=spent.__getitem__) if spent else None
