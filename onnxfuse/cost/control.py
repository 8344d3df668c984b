"""Control flow. If costs its larger branch (the taken one, where the condition is known), Loop and Scan their body as
often as it runs (not once, as XLA has it), and move the loop-carried state once on top. The trip count may be an
expression; where it is not known, neither is the cost.
"""

from __future__ import annotations

from onnxfuse.cost.quantity import COUNTS, of_counts
from onnxfuse.cost.registry import Call, Cost, Number, bytes_of, bytes_or_none, op
from onnxfuse.facts.expr import Dim, Expr, dmax, provably_nonnegative


def larger(a: Cost, b: Cost) -> Cost:
    """The one with more FLOPs, then more bytes.

    Where the symbols decide which that is, a count is the larger one of both if it grows with what decides, and
    unknown otherwise. Where FLOPs or bytes are unknown, a count is the larger one of both.
    """
    for first, second in ((a.flops, b.flops), (a.bytes, b.bytes)):
        if first is None or second is None:
            return of_counts([_max(getattr(a, name), getattr(b, name)) for name in COUNTS], a.why or b.why)
        if first != second:
            lead = first - second
            break
    else:
        return a
    if provably_nonnegative(lead - 1):
        return a
    if provably_nonnegative(-lead - 1):
        return b
    counts = [_max(getattr(a, name), getattr(b, name), lead) for name in COUNTS]
    return of_counts(counts, "the sizes decide which branch is the larger one" if None in counts else "")


def _max(a: Number, b: Number, lead: Dim | None = None) -> Number:
    """The larger one; with `lead` only if both differ by a positive multiple of it, or not at all."""
    if a is None or b is None:
        return None
    difference = a - b
    if isinstance(lead, Expr) and difference != 0:
        k, n = (difference.terms[0][1] if isinstance(difference, Expr) else 0), lead.terms[0][1]
        if k * n <= 0 or difference * n != lead * k:
            return None
    return dmax(a, b)


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
