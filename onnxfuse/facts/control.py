"""Facts across If, Loop, Scan, FlexAttention and calls of local functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import TensorProto as T

from onnxfuse.facts.call import Unclear, array, normal_axis, prod, same_dim
from onnxfuse.facts.expr import Dim, dmax, provably_nonnegative, symbol
from onnxfuse.facts.scope import CONTROL, DEEPEST, MOST_CALLS, Control, Engine, Facts
from onnxfuse.facts.value import UNKNOWN, Shape, Value
from onnxfuse.ir import Attribute, Graph, Node, Ref


def control(name: str) -> Callable[[Control], Control]:
    """Registers what carries facts across an operator with a body."""

    def register(function: Control) -> Control:
        CONTROL[name] = function
        return function

    return register


def _body(node: Node, name: str) -> Graph:
    graph = node.attrs.get(name)
    if not isinstance(graph, Graph):
        raise Unclear
    return graph


def _truth(value: Value) -> bool | None:
    """The value of a one-element bool, where known."""
    return None if value.data is None or value.data.size != 1 else bool(value.data.reshape(-1)[0])


def unify(engine: Engine, name: str, a: Value, b: Value) -> Value:
    """What holds for a value that is either `a` or `b`; dims that differ become symbols `<name>.<axis>`."""
    shape: Shape | None = None
    if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
        shape = tuple(
            d if d == e else symbol(engine.name_dim(f"{name}.{axis}"), 0)
            for axis, (d, e) in enumerate(zip(a.shape, b.shape, strict=True))
        )
    same = a.dtype == b.dtype and a.shape == b.shape and _same_elements(a.data, b.data)
    return Value(a.dtype if a.dtype == b.dtype else 0, shape, a.data if same else None)


def _same_elements(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Floats bit by bit: 0 and −0 are two."""
    if a is None or b is None or a.dtype != b.dtype:
        return False
    return bool(np.all(a == b)) if a.dtype == object else a.tobytes() == b.tobytes()


@control("If")
def _if(engine: Engine, facts: Facts, i: int, node: Node, inputs: Sequence[Value]) -> list[Value]:
    results: dict[str, list[Value]] = {}
    for name in ("then_branch", "else_branch"):
        graph = _body(node, name)
        branch = facts.bodies[i, name] = engine.graph(graph, {}, facts.opsets, facts)
        results[name] = [branch[output] for output in graph.outputs]
    chosen = _truth(inputs[0])
    if chosen is not None:
        return results["then_branch" if chosen else "else_branch"]
    pairs = zip(node.outputs, results["then_branch"], results["else_branch"], strict=False)
    if engine.general:
        return [unify(engine, name, a, b) for name, a, b in pairs]
    return [_larger(engine, name, a, b) for name, a, b in pairs]


def _larger(engine: Engine, name: str, a: Value, b: Value) -> Value:
    """What a cost takes a value to be that is either of two: of the larger size on each axis. Of two ranks, or of a
    known shape and an unknown one, it is the one with more elements, as far as that is known. Of two sequences it is
    the longer one.
    """
    if a.items is not None and b.items is not None:
        engine.assumed = True
        pairs = zip(a.items, b.items, strict=False)
        rest = max(a.items, b.items, key=len)[min(len(a.items), len(b.items)) :]
        return Value(items=(*(_larger(engine, name, x, y) for x, y in pairs), *rest))
    both = unify(engine, name, a, b)
    if a.shape == b.shape:
        return both
    engine.assumed = True
    if not (a.dtype and b.dtype):
        both = replace(both, dtype=a.dtype or b.dtype)
    if a.shape is None or b.shape is None:
        return replace(both, shape=b.shape if a.shape is None else a.shape)
    if len(a.shape) == len(b.shape):
        return replace(both, shape=tuple(map(dmax, a.shape, b.shape)))
    more = prod(a.shape) - prod(b.shape)
    if provably_nonnegative(more):
        return replace(both, shape=a.shape)
    return replace(both, shape=b.shape if provably_nonnegative(-more) else None)


def _invariant(graph: Graph, source: str, result: str) -> bool:
    """Does the body hand this carried value on as it came, perhaps through Identity?"""
    passed = {n.outputs[0]: n.inputs[0] for n in graph.nodes if n.op_type == "Identity" and n.inputs and n.outputs}
    for _ in range(len(passed) + 1):
        if result == source:
            return True
        result = passed.get(result, "")
    return False


def _fixpoint(
    engine: Engine,
    facts: Facts,
    graph: Graph,
    fixed: Mapping[str, Value],
    carried: dict[str, Value],
    results: list[str],
) -> tuple[Facts, dict[str, Value]]:
    """Facts of a body that hold in every iteration, and the carried inputs they hold for.

    `carried` are the facts on entry by body input, `results` the body outputs that feed them back. What changes from
    one iteration to the next becomes a symbol, at last an unknown rank; that ends because each dim changes only once.
    """
    held = {
        name: value if _invariant(graph, name, result) else replace(value, data=None, constant=False, items=None)
        for (name, value), result in zip(carried.items(), results, strict=True)
    }
    mark = set(engine.taken)
    general: dict[tuple[str, int], Dim] = {}  # the symbols for what changes

    def widened(name: str, before: Shape | None, after: Shape | None) -> Shape | None:
        if before is None or after is None or len(before) != len(after):
            return None
        out: list[Dim] = []
        for axis, (d, e) in enumerate(zip(before, after, strict=True)):
            key = name, axis
            if d != e and key not in general:
                unique = engine.name_dim(f"{name}.{axis}")
                mark.add(unique)
                general[key] = symbol(unique, 0)
            out.append(general.get(key, d))
        return tuple(out)

    while True:
        body = engine.graph(graph, {**fixed, **held}, facts.opsets, facts)
        wider = {
            name: replace(value, shape=widened(name, value.shape, body[result].shape))
            for (name, value), result in zip(held.items(), results, strict=True)
        }
        if all(wider[name].shape == value.shape for name, value in held.items()):
            return body, held
        held = wider
        engine.taken.clear()
        engine.taken.update(mark)


def _after(engine: Engine, name: str, entry: Value, held: Value, result: Value, trips: Dim | None) -> Value:
    """A carried value after the last iteration."""
    if held.data is not None:  # no iteration changes it
        return entry
    if trips == 0:
        return entry
    if trips is not None and provably_nonnegative(trips - 1):
        return replace(result, data=None, constant=False)
    return replace(unify(engine, name, entry, result), data=None)


@control("Loop")
def _loop(engine: Engine, facts: Facts, i: int, node: Node, inputs: Sequence[Value]) -> list[Value]:
    graph = _body(node, "body")
    formal = list(graph.inputs)
    count = len(inputs) - 2
    if count < 0 or len(formal) != count + 2 or len(graph.outputs) < count + 1:
        raise Unclear
    limit, condition = inputs[0], inputs[1]
    entry_condition = True if not node.inputs[1] else _truth(condition)
    known_true = array([True], ()) if entry_condition and _invariant(graph, formal[1], graph.outputs[0]) else None
    fixed = {formal[0]: Value(T.INT64, ()), formal[1]: Value(T.BOOL, (), known_true)}
    carried = dict(zip(formal[2:], inputs[2:], strict=True))
    body, held = _fixpoint(engine, facts, graph, fixed, carried, list(graph.outputs[1 : count + 1]))
    facts.bodies[i, "body"] = body

    trips: Dim | None = None
    if entry_condition is False:
        trips = 0
    elif entry_condition and _truth(body[graph.outputs[0]]) and limit.data is not None:
        trips = dmax(limit.data.reshape(-1)[0], 0)
    if trips is not None:
        facts.trips[i] = trips
    names = [*node.outputs, *[""] * len(graph.outputs)]
    out = [
        _after(engine, names[k], inputs[k + 2], held[name], body[graph.outputs[k + 1]], trips)
        for k, name in enumerate(carried)
    ]
    length = trips
    for k in range(count, len(graph.outputs) - 1):
        value = body[graph.outputs[k + 1]]
        if length is None:  # all scan outputs have the same length
            length = symbol(engine.name_dim(f"{names[k]}.0"), 0)
        out.append(Value(value.dtype, None if value.shape is None else (length, *value.shape)))
    return out


@control("Scan")
def _scan(engine: Engine, facts: Facts, i: int, node: Node, inputs: Sequence[Value]) -> list[Value]:
    graph = _body(node, "body")
    batched = facts.opsets.get("", 9) < 9  # Scan-8: a leading input with lengths, a batch axis before all others
    values = list(inputs[1:] if batched else inputs)
    scanned = node.attrs.get("num_scan_inputs")
    formal = list(graph.inputs)
    if not isinstance(scanned, int) or len(formal) != len(values) or not 0 < scanned <= len(values):
        raise Unclear
    states = len(values) - scanned
    batch: Shape = ()
    if batched:
        shapes = [v.shape for v in values if v.shape]
        batch = (same_dim(s[0] for s in shapes),)
        values = [v if not v.shape else Value(v.dtype, v.shape[1:]) for v in values]
    axes = node.attrs.get("scan_input_axes") or (0,) * scanned
    lengths, fixed = [], {}
    for name, value, axis in zip(formal[states:], values[states:], axes, strict=True):
        shape = value.shape
        if shape is None:
            fixed[name] = Value(value.dtype)
            continue
        at = normal_axis(axis, len(shape))
        lengths.append(shape[at])
        fixed[name] = Value(value.dtype, (*shape[:at], *shape[at + 1 :]))
    trips = same_dim(lengths) if lengths else None
    if trips is not None:
        facts.trips[i] = trips
    carried = dict(zip(formal[:states], values[:states], strict=True))
    body, held = _fixpoint(engine, facts, graph, fixed, carried, list(graph.outputs[:states]))
    facts.bodies[i, "body"] = body

    out = []
    for k, (name, entry) in enumerate(carried.items()):
        after = _after(engine, node.outputs[k], entry, held[name], body[graph.outputs[k]], trips)
        out.append(after if not batch or after.shape is None else Value(after.dtype, (*batch, *after.shape)))
    stacked = len(graph.outputs) - states
    out_axes = node.attrs.get("scan_output_axes") or (0,) * stacked
    for result, axis in zip(graph.outputs[states:], out_axes, strict=True):
        value = body[result]
        if value.shape is None or trips is None:
            out.append(Value(value.dtype))
            continue
        at = normal_axis(axis, len(value.shape) + 1)
        out.append(Value(value.dtype, (*batch, *value.shape[:at], trips, *value.shape[at:])))
    return out


@control("ai.onnx.preview:FlexAttention")
def _flex_attention(engine: Engine, facts: Facts, i: int, node: Node, inputs: Sequence[Value]) -> list[Value]:
    """q (B, Hq, Sq, D), k (B, Hkv, Skv, D), v (B, Hkv, Skv, Dv); its graphs see scores of (B, Hq, Sq, Skv)."""
    q, k, v = (value.shape for value in inputs)
    if q is None or v is None or len(q) != 4 or len(v) != 4:
        raise Unclear
    precision = node.attrs.get("softmax_precision") or (T.DOUBLE if inputs[0].dtype == T.DOUBLE else T.FLOAT)
    if isinstance(precision, int) and k is not None and len(k) == 4:
        scores = Value(precision, (*q[:3], k[2]))
        for name in ("score_mod", "prob_mod"):
            graph = node.attrs.get(name)
            if isinstance(graph, Graph) and len(graph.inputs) == 1:
                facts.bodies[i, name] = engine.graph(graph, dict.fromkeys(graph.inputs, scores), facts.opsets, facts)
    return [Value(inputs[0].dtype, (*q[:3], v[3]))]


# Local functions -----------------------------------------------------------------------------------------------------


def _refers(value: Attribute) -> bool:
    if isinstance(value, Graph):
        return any(_refers(v) for n in value.nodes for v in n.attrs.values())
    return isinstance(value, Ref)


def _given(value: Attribute, attrs: Mapping[str, Attribute]) -> Attribute:
    if isinstance(value, Ref):
        return attrs.get(value.name)
    return replace(value, nodes=bound(value.nodes, attrs)) if isinstance(value, Graph) else value


def bound(nodes: Sequence[Node], attrs: Mapping[str, Attribute]) -> tuple[Node, ...]:
    """The nodes of a function body with a call's attributes in place of references; those it leaves out disappear."""
    out = []
    for node in nodes:
        if any(map(_refers, node.attrs.values())):
            given = {name: _given(value, attrs) for name, value in node.attrs.items()}
            node = replace(node, attrs={name: value for name, value in given.items() if value is not None})
        out.append(node)
    return tuple(out)


@control("function")
def _call_function(engine: Engine, facts: Facts, i: int, node: Node, inputs: Sequence[Value]) -> list[Value]:
    function = engine.functions[node.domain, node.op_type, node.overload]
    engine.calls += 1
    if engine.depth >= DEEPEST or engine.calls > MOST_CALLS:
        raise Unclear
    body = Facts(bound(function.nodes, {**function.defaults, **node.attrs}), function.opsets)
    for k, name in enumerate(function.inputs):
        body.values[name] = inputs[k] if k < len(inputs) else UNKNOWN
    engine.depth += 1
    try:
        engine.run(body, {})
    finally:
        engine.depth -= 1
    facts.bodies[i, ""] = body
    return [body[name] for name in function.outputs]
