"""FLOPs and bytes of every node: one formula an operator, one file a family, all entered in `registry`.

A node without a formula, or with a shape that is not known, has None where a number is not known, never 0. A call of a
model-local function (a fused node carries one) does the operations of its body and moves the bytes of its boundary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onnxfuse import ir
from onnxfuse.cost import (
    attention,  # noqa: F401  # each import enters its formulas
    attention_ms,  # noqa: F401
    control,
    conv,  # noqa: F401
    convert,  # noqa: F401
    elementwise,  # noqa: F401
    experts,  # noqa: F401
    gating,  # noqa: F401
    matmul,  # noqa: F401
    move,  # noqa: F401
    norm,  # noqa: F401
    packed,  # noqa: F401
    pool,  # noqa: F401
    reduce,  # noqa: F401
    resample,  # noqa: F401
    rnn,  # noqa: F401
    search,  # noqa: F401
    signal,  # noqa: F401
    state,  # noqa: F401
    tabular,  # noqa: F401
    training,  # noqa: F401
)
from onnxfuse.cost.quantity import COUNTS, of_counts
from onnxfuse.cost.reasons import reason
from onnxfuse.cost.registry import FORMULAS, FREE, Call, Cost, Unknown, bytes_or_none, op, register
from onnxfuse.errors import UsageError
from onnxfuse.facts import Facts, expr
from onnxfuse.facts.scope import INCONSISTENT

__all__ = ["Call", "Cost", "costs", "has_formula", "kind", "node_cost", "op", "reason", "register", "total"]

_BEYOND = 1 << 256  # loops within loops, each of 2^63 rounds
_UNKNOWN = of_counts([None] * len(COUNTS))


def has_formula(domain: str, op_type: str) -> bool:
    """Whether the operator's cost is known."""
    return (ir.domain(domain), op_type) in FORMULAS


def kind(node: ir.Node) -> str:
    """Class of an operator: "conv", "matmul", "rnn", "attention", "elementwise", "norm", "pool", "reduction",
    "resample", "copy", "gather", "scatter", "generate", "random", "convert", "sort", "spectral", "linalg", "loss",
    "tree", "training", "view", "shape", "constant", "control"; "custom" for one without a formula, a local function
    included.
    """
    entry = FORMULAS.get((node.domain, node.op_type))
    return entry.kind if entry else "custom"


def total(parts: Iterable[Cost]) -> Cost:
    """Sum of costs; a field is unknown as soon as one of them is."""
    result = FREE
    for cost in parts:
        result = result + cost
    return result


def costs(facts: Facts) -> tuple[Cost, ...]:
    """The cost of every node of a scope, in order; nodes that are alike share one."""
    found: list[Cost] = []
    for i in range(len(facts.nodes)):
        first = facts.alike.get(i)
        found.append(node_cost(i, facts) if first is None else found[first])
    return tuple(found)


def node_cost(index: int, facts: Facts) -> Cost:
    """The cost of node `index` of a scope; what is not known is None, and `why` says why.

    Raises UsageError where a registered formula returns something else than a Cost.
    """
    node = facts.nodes[index]
    values = tuple(facts[name] for name in node.inputs)
    outputs = tuple(facts[name] for name in node.outputs)
    call = Call(node, values, outputs, facts.opsets.get(node.domain, 1))
    entry = FORMULAS.get((node.domain, node.op_type))
    try:
        if entry is None:
            cost = _boundary(call, facts.bodies.get((index, "")))
        else:
            if facts.bodies:
                bodies = {
                    name: _inside(facts.bodies[index, name])
                    for name, _ in ir.subgraphs(node)
                    if (index, name) in facts.bodies
                }
                call = Call(node, values, outputs, call.opset, bodies, facts.trips.get(index))
            cost = entry.formula(call)
    except Unknown as error:
        cost = replace(_UNKNOWN, bytes_written=bytes_or_none(call.written), why=str(error))
    except OverflowError:
        cost = replace(_UNKNOWN, bytes_written=bytes_or_none(call.written), why="its expressions grow beyond use")
    except INCONSISTENT as error:
        why = f"its formula does not fit its attributes and shapes ({type(error).__name__})"
        cost = replace(_UNKNOWN, bytes_written=bytes_or_none(call.written), why=why)
    if not isinstance(cost, Cost):
        name = f"{node.domain or 'ai.onnx'}::{node.op_type}"
        raise UsageError(f"the cost formula of {name} returns {type(cost).__name__}, not a Cost; return call.cost(…)")
    if any(isinstance(n, int) and n >= _BEYOND for n in (cost.macs, cost.arith, cost.bytes_read, cost.bytes_written)):
        return replace(_UNKNOWN, why="is more than can be counted")
    if call.bodies:
        cost = replace(cost, branches=control.branches(call))
    return cost if cost.known or cost.why else replace(cost, why=call.missing())


def _inside(body: Facts) -> Cost:
    """The cost of one execution of a body: a lower bound where a node of it is unknown, which `why` names. What
    no known node does is unknown, not 0.
    """
    prices = costs(body)
    found = tuple(branch for cost in prices for branch in cost.branches)
    first = next((i for i, cost in enumerate(prices) if not cost.known), None)
    if first is None:
        return replace(total(prices), branches=found)
    why = f"holds {body.nodes[first].op_type}: {prices[first].why}"
    known = {name: [n for cost in prices if (n := getattr(cost, name)) is not None] for name in COUNTS}
    sums = {name: expr.total(counts) if counts else None for name, counts in known.items()}
    if sums["macs"] in (None, 0) and sums["arith"] in (None, 0) and len(known["arith"]) < len(prices):
        sums["macs"] = sums["arith"] = None  # never 0
    for name, counts in known.items():
        if name not in ("macs", "arith") and sums[name] == 0 and len(counts) < len(prices):
            sums[name] = None
    return replace(of_counts([*sums.values()], why), least=True, branches=found)


def _boundary(call: Call, body: Facts | None) -> Cost:
    """The operations of a local function's body, the bytes of its boundary; without a body the former are unknown."""
    if body is None:
        inside = replace(_UNKNOWN, why=reason(call.node.domain, call.node.op_type) or "has no cost formula")
    else:
        inside = _inside(body)
    read, written = bytes_or_none(call.read), bytes_or_none(call.written)
    weights = call.weight_traffic(read, written)
    counts = inside.macs, inside.arith, inside.transcendentals, read, written, weights
    return Cost(*counts, inside.why, inside.least, inside.branches)
