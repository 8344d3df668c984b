"""What a target executes: nodes grouped into kernels, and the seconds that they take on a device.

A group moves only what crosses its boundary: values made and used inside it are neither written nor read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial

from onnxfuse import ir
from onnxfuse.cost import Cost, costs
from onnxfuse.cost.registry import FREE, bytes_of, bytes_or_none
from onnxfuse.devices import Device
from onnxfuse.facts import Facts
from onnxfuse.facts.value import Value
from onnxfuse.roofline import Execution, Row, Units, merged_seconds, place, rows, totals, units
from onnxfuse.targets import Target


@dataclass(frozen=True, slots=True)
class Piece:
    """One node as the planner sees it: operator, value names, cost, and how the roofline is to take it."""

    label: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    cost: Cost
    dtype: str
    matrix: bool
    work: str = ""

    @property
    def units(self) -> Units:
        """What its arithmetic runs on."""
        return Units(self.dtype, self.matrix, self.work)


def label(node: ir.Node) -> str:
    """How a node is called in reports: its name, or its operator and first output where it has none."""
    return node.name or f"{node.op_type}({node.outputs[0] if node.outputs else ''})"


def piece(node: ir.Node, facts: Facts, cost: Cost) -> Piece:
    """A node of a graph as a piece."""
    return Piece(label(node), node.op_type, node.inputs, node.outputs, cost, *units(node, facts))


def graph_pieces(facts: Facts, prices: Sequence[Cost]) -> list[Piece]:
    """The nodes of a graph as pieces, in order; `prices` has one Cost a node."""
    found: list[Piece] = []
    for i, (node, cost) in enumerate(zip(facts.nodes, prices, strict=True)):
        first = facts.alike.get(i)
        if first is None:
            found.append(piece(node, facts, cost))
            continue
        like = found[first]
        found.append(
            Piece(label(node), node.op_type, node.inputs, node.outputs, cost, like.dtype, like.matrix, like.work)
        )
    return found


def value_bytes(value: Value) -> int | None:
    """Bytes of a value, None where unknown or symbolic."""
    size = bytes_or_none(partial(bytes_of, value))
    return size if isinstance(size, int) else None


Bytes = Callable[[str], int | None]


def sizes(facts: Facts) -> Bytes:
    """The bytes of the values of a graph, by name; many values are one object, whose size is worked out once."""
    size = cache(value_bytes)
    return lambda name: size(facts[name])


def merged(pieces: Sequence[Piece], nbytes: Bytes, kept: Collection[str] = ()) -> Cost:
    """The cost of nodes executed as one kernel: their operations, and the bytes over their boundary.

    nbytes gives a value's size. A value made inside is not read again; it is written only if it is in `kept`, because
    somebody outside needs it. An outer value that several of the nodes read counts once. Unknown stays unknown.
    """
    total = FREE
    made = {name for p in pieces for name in p.outputs if name}
    seen: set[str] = set()
    saved_read: int | None = 0
    saved_written: int | None = 0
    last = set(pieces[-1].outputs)
    for piece in pieces:
        total = total + piece.cost
        for name in set(piece.inputs):
            if name and (name in made or name in seen):
                saved_read = _add(saved_read, nbytes(name))
            seen.add(name)
        for name in piece.outputs:
            if name and name not in last and name not in kept:
                saved_written = _add(saved_written, nbytes(name))
    read = _less(total.bytes_read, saved_read)
    written = _less(total.bytes_written, saved_written)
    return replace(total, bytes_read=read, bytes_written=written, weight_traffic=None)


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _less(a: object, b: int | None) -> int | None:
    return a - b if isinstance(a, int) and b is not None else None


def kernels(pieces: Sequence[Piece], target: Target, inner: Collection[str]) -> list[list[Piece]]:
    """The pieces, in execution order, grouped as the target's runtime executes them.

    inner: names of values with exactly one use that nobody outside can see; only over such may the runtime fuse.
    """
    groups: list[list[Piece]] = []
    ends: dict[str, list[Piece]] = {}
    for piece in pieces:
        group = next((ends[n] for n in piece.inputs if n in ends and _joins(ends[n], piece, target)), None)
        if group is None:
            group = []
            groups.append(group)
        group.append(piece)
        for name in piece.outputs:
            if name in inner:
                ends[name] = group
    return groups


def _joins(group: list[Piece], piece: Piece, target: Target) -> bool:
    chain = (*(p.op_type for p in group), piece.op_type)
    return group[0].dtype in target.chains.get(chain, ()) and group[-1].outputs[0] in piece.inputs


def piece_seconds(cost: Cost, pieces: Sequence[Piece], device: Device) -> float | None:
    """Roofline seconds of a cost that stands for these pieces; the first with MACs decides dtype and units."""
    lead = next((p for p in pieces if p.cost.macs), pieces[0])
    if len(pieces) == 1:
        return place(cost, device, lead.units)[0]
    return merged_seconds(cost, [(p.cost, p.units) for p in pieces], device, lead.units)


def run_seconds(
    pieces: Sequence[Piece], target: Target, device: Device, nbytes: Bytes, inner: Collection[str]
) -> float | None:
    """Seconds that the target needs for these nodes, one kernel after the other; None if any cost is unknown."""
    total = 0.0
    for group in kernels(pieces, target, inner) if target.chains else ([p] for p in pieces):
        time = piece_seconds(merged(group, nbytes) if len(group) > 1 else group[0].cost, group, device)
        if time is None:
            return None
        total += time
    return total


def graph_run(
    facts: Facts,
    annotated: Sequence[Row],
    prices: Sequence[Cost],
    exported: Collection[str],
    target: Target,
    device: Device,
) -> tuple[float, int]:
    """Seconds and kernels of a whole graph as the target executes it; a node of unknown cost is a kernel of no time.

    annotated, prices: rows and costs of its nodes. exported: names that must exist outside, which the runtime cannot
    fuse away. A local function runs as its nodes, one by one, unless functions are kernels on the target.
    """
    inlined = inlined_bodies(facts, target)
    times = [row.seconds for body in inlined.values() for row in executed_rows(body, target, device)]
    left = [i for i in range(len(annotated)) if i not in inlined]
    if target.chains:
        reads = Counter(name for node in facts.nodes for name in node.inputs)
        inner = {name for name, count in reads.items() if count == 1}.difference(exported)
        every, nbytes = graph_pieces(facts, prices), sizes(facts)
        for group in kernels([every[i] for i in left], target, inner):
            cost = merged(group, nbytes) if len(group) > 1 else group[0].cost
            times.append(piece_seconds(cost, group, device))
    else:
        times += [annotated[i].seconds for i in left]
    return sum(time or 0.0 for time in times), sum(time != 0 for time in times)


def inlined_bodies(facts: Facts, target: Target) -> dict[int, Facts]:
    """The function calls of a graph, by node index, that the target runs as the nodes of their bodies."""
    return {} if target.functions_are_kernels else {i: body for (i, name), body in facts.bodies.items() if not name}


def executed_rows(facts: Facts, target: Target, device: Device) -> tuple[Row, ...]:
    """The rows of a graph's nodes, with those of its body in the place of a function that the target inlines."""
    inlined = inlined_bodies(facts, target)
    found: list[Row] = []
    for i, row in enumerate(rows(facts, costs(facts), device)):
        found += executed_rows(inlined[i], target, device) if i in inlined else [row]
    return tuple(found)


def run_totals(
    program: ir.Program, facts: Facts, prices: tuple[Cost, ...], target: Target, device: Device
) -> Execution:
    """Totals of a model as the target executes it: functions inlined, and the kernels that it makes."""
    graph = program.graph
    exported = {*graph.outputs, *ir.captured(graph)}
    every = rows(facts, prices, device)
    run = executed_rows(facts, target, device) if inlined_bodies(facts, target) else every
    sums = totals(run, program, facts)
    seconds, launched = graph_run(facts, every, prices, exported, target, device)
    counts = {field.name: getattr(sums, field.name) for field in fields(sums)}
    return Execution(**counts | {"seconds": seconds}, kernels=launched)
