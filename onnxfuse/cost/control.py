"""Control flow. If costs its larger branch (the taken one, where the condition is known), Loop and Scan their body as
often as it runs (not once, as XLA has it), and move the loop-carried state once on top. The trip count may be an
expression; where it is not known, neither is the cost.
"""

from __future__ import annotations

from onnxfuse.cost.registry import Call, Cost, Number, bytes_of, bytes_or_none, op
from onnxfuse.facts.expr import Dim, dmax


def _max(a: Number, b: Number) -> Number:
    return None if a is None or b is None else dmax(a, b)


def larger(a: Cost, b: Cost) -> Cost:
    """The one with more FLOPs, then more bytes; the upper bound of both, field by field, where that is not decided."""
    ranks = (a.flops, a.bytes), (b.flops, b.bytes)
    if all(isinstance(number, int) for rank in ranks for number in rank):
        return a if ranks[0] >= ranks[1] else b
    return Cost(
        _max(a.macs, b.macs),
        _max(a.arith, b.arith),
        _max(a.transcendentals, b.transcendentals),
        _max(a.bytes_read, b.bytes_read),
        _max(a.bytes_written, b.bytes_written),
    )


@op("If", kind="control")
def if_(call: Call) -> Cost:
    """Inputs: condition."""
    condition = call.input(0).data
    if condition is not None and condition.size == 1 and isinstance(condition.item(), (bool, int)):
        return call.body("then_branch" if condition.item() else "else_branch")
    return larger(call.body("then_branch"), call.body("else_branch"))


def _state(call: Call, inputs: range, outputs: range) -> Cost:
    """Traffic of the loop-carried values, at their initial and final sizes."""

    def read() -> Dim:
        return call.read(*inputs) if len(inputs) else 0

    def written() -> Dim:
        total: Dim = 0
        for i in outputs:
            total = total + (bytes_of(call.outputs[i]) if call.gives(i) else 0)
        return total

    return Cost(bytes_read=bytes_or_none(read), bytes_written=bytes_or_none(written))


@op("Loop", kind="control")
def loop(call: Call) -> Cost:
    """Inputs: trip count, condition, state…; outputs: state…, scan outputs…"""
    carried = len(call.node.inputs) - 2
    return call.body("body").scaled(call.trips) + _state(call, range(2, 2 + carried), range(carried))


@op("Scan", kind="control")
def scan(call: Call) -> Cost:
    """Inputs: state…, scanned tensors…; outputs: state…, scan outputs…; opset 8 has a leading sequence_lens."""
    first = 1 if call.opset < 9 else 0
    carried = len(call.node.inputs) - first - call.attr("num_scan_inputs", 1)
    return call.body("body").scaled(call.trips) + _state(call, range(first, first + carried), range(carried))


@op("SequenceMap", kind="control")
def sequence_map(call: Call) -> Cost:
    """The body once for each element of the sequence."""
    return call.body("body").scaled(call.trips)
