"""Control flow. If costs its larger branch (the taken one, where the condition is known), Loop and Scan their body as
often as it runs (not once, as XLA has it), and move the loop-carried state once on top. The trip count may be an
expression; where it is not known, neither is the cost.
"""

from __future__ import annotations

from onnxfuse.cost.quantity import Branch
from onnxfuse.cost.registry import Call, Cost, Number, bytes_of, bytes_or_none, op
from onnxfuse.facts.expr import Dim, dmax


def larger(a: Cost, b: Cost) -> Cost:
    """What either of two executions does at most: FLOPs, MACs, special functions, bytes and bytes read are the larger
    ones of both, each for itself, and the bytes written are the rest of the bytes.

    Of an unknown count and a known one it is the latter, which is a lower bound then.
    """
    macs, flops = _max(a.macs, b.macs), _max(a.flops, b.flops)
    read, moved = _max(a.bytes_read, b.bytes_read), _max(a.bytes, b.bytes)
    return Cost(
        macs,
        None if flops is None or macs is None else flops - 2 * macs,
        _max(a.transcendentals, b.transcendentals),
        read,
        None if moved is None or read is None else moved - read,
        _max(a.weight_traffic, b.weight_traffic),
        a.why or b.why,
        least=not (a.known and b.known),
    )


def _max(a: Number, b: Number) -> Number:
    if a is None or b is None:
        return b if a is None else a
    return dmax(a, b)


def _truth(call: Call) -> bool | None:
    """The condition of an If, where it is known."""
    data = call.input(0).data
    return bool(data.item()) if data is not None and data.size == 1 and isinstance(data.item(), (bool, int)) else None


def branches(call: Call) -> tuple[Branch, ...]:
    """The branches of which the data decide which one runs: those of the node, then those inside its bodies."""
    bodies, own = dict(call.bodies), []
    if call.node.op_type == "If" and not call.node.domain:
        truth = _truth(call)
        if truth is None:
            label = call.node.name or next(filter(None, call.node.outputs), "")
            own = [Branch(label, name, body) for name, body in bodies.items()]
        else:
            bodies.pop("else_branch" if truth else "then_branch", None)
    return (*own, *(branch for body in bodies.values() for branch in body.branches))


@op("If", kind="control")
def if_(call: Call) -> Cost:
    """Inputs: condition."""
    truth = _truth(call)
    if truth is not None:
        return call.body("then_branch" if truth else "else_branch")
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
