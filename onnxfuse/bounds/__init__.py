"""Which values the integer inputs of a model may take, as far as its graph shows it.

The values of each integer input are followed from node to node until an operator uses them as indices, lengths or
sizes: through views, casts, parts and added constants, into bodies and local functions. What is not understood bounds
nothing. A bound serves to draw data that the model accepts; no rewrite relies on one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import onnx
from onnx import TensorProto

from onnxfuse import ir
from onnxfuse.bounds.call import NOTHING, Attributes, Call, Origin, Seen
from onnxfuse.bounds.ranges import Bounds, Dim, Range, Ranges
from onnxfuse.bounds.uses import DIVISIONS, USES
from onnxfuse.bounds.values import SAME_SHAPE, constant, distinct, element, passed

__all__ = ["Bounds", "Range", "Ranges", "of"]

_WHOLE = (TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8, TensorProto.UINT16, TensorProto.BOOL)
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
_FEW = 9  # floats that may be scales are fewer
_MOST_NODES = 500_000  # functions that call functions can be as many as one likes
_DEEPEST = 16
_ALWAYS = {"Constant", "Transpose", *SAME_SHAPE, *ir.WITH_BODIES}  # looked at also where they read no input

_Values = MutableMapping[str, Seen]


def of(model: onnx.ModelProto, inputs: Iterable[tuple[str, tuple[Dim, ...] | None, int]]) -> Bounds:
    """What the consumers of each integer or boolean input ask for, and of a few floats, which may be scales.

    inputs: name, dims, and ONNX dtype.
    """
    values, floats = {}, set()
    for name, dims, dtype in inputs:
        few = dtype in _FLOATS and dims in ((), *((n,) for n in range(1, _FEW)))
        values[name] = Seen(dims, (Origin(name),) if few or dtype in _WHOLE else ())
        floats |= {name} if few else set()
    named = {t for seen in values.values() for d in seen.dims or () for t in _terms(d)}
    walk = _Walk({(ir.domain(f.domain), f.name, f.overload): f for f in model.functions}, named, floats)
    if not any(seen.origins for seen in values.values()):
        return {}
    walk.graph(model.graph, values, {}, 0)
    return {name: tuple(uses) for name, uses in walk.found.items()}


@dataclass(slots=True, eq=False)
class _Walk:
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    named: set[str]  # the keys of free dimensions; what the file calls others says no size
    floats: set[str]  # inputs
    found: dict[str, dict[Ranges, None]] = field(default_factory=dict)
    nodes: int = 0

    def graph(self, graph: onnx.GraphProto, values: _Values, given: Attributes, depth: int) -> list[Seen]:
        """Walk a graph with what is known of its inputs and of the values around it; gives its outputs."""
        for tensor in graph.initializer:
            values[tensor.name] = Seen(tuple(tensor.dims), (), tensor)
        declared = {v.name: v for v in graph.value_info}
        return self.body(graph.node, [v.name for v in graph.output], values, declared, given, depth)

    def body(
        self,
        nodes: Iterable[onnx.NodeProto],
        outputs: Iterable[str],
        values: _Values,
        declared: Mapping[str, onnx.ValueInfoProto],
        given: Attributes,
        depth: int,
    ) -> list[Seen]:
        for node in nodes:
            self.nodes += 1
            if self.nodes > _MOST_NODES:
                break
            known = [values.get(name) for name in node.input]
            followed = any(seen is not None and seen.origins for seen in known)
            if not followed and node.op_type not in _ALWAYS:
                continue
            for i, name in enumerate(node.input):
                seen = known[i] or NOTHING
                if seen.dims is None and name in declared:
                    known[i] = replace(seen, dims=self.declared(declared[name]))
            call = Call(node, [seen or NOTHING for seen in known], given)
            made = self.node(call, values, followed, depth)
            values.update(zip(node.output, made, strict=False))
        return [values.get(name, NOTHING) for name in outputs]

    def declared(self, info: onnx.ValueInfoProto) -> tuple[Dim, ...] | None:
        """The dims that the file declares of a value."""
        dims = ir.read_type(info).dims
        return None if dims is None else tuple(d if self.named.issuperset(_terms(d)) else None for d in dims)

    def node(self, call: Call, values: _Values, followed: bool, depth: int) -> Sequence[Seen]:
        """Note what a node asks of the inputs, and give what is known of its outputs."""
        op, key = call.node.op_type, (ir.domain(call.node.domain), call.node.op_type)
        if op == "Constant":
            return [constant(call)]
        if followed and key in USES:
            with suppress(ArithmeticError, LookupError, TypeError, ValueError):  # a malformed node asks nothing
                for i, ranges in USES[key](call):
                    self.note(call.seen(i).origins, ranges, division=op in DIVISIONS)
        if op in ir.WITH_BODIES and not key[0]:
            return self.bodies(call, values, depth) if depth < _DEEPEST else []
        if function := self.functions.get((*key, call.node.overload)):
            return self.function(function, call, depth) if followed and depth < _DEEPEST else []
        return [passed(call)] * call.outputs if call.inputs and not key[0] else []

    def note(self, origins: Iterable[Origin], ranges: Ranges, *, division: bool) -> None:
        """Ranges that a use asks of values; a division asks none of floats."""
        for origin in origins:
            if division and origin.input in self.floats:
                continue
            if ranges and (origin.whole or len(ranges) == 1):
                asked = tuple(r.shifted(origin.least, origin.most) for r in ranges)
                self.found.setdefault(origin.input, {})[asked] = None

    def bodies(self, call: Call, values: _Values, depth: int) -> list[Seen]:
        """The bodies of a control-flow node, in which the values around are seen. A Loop is walked once."""
        op, made = call.node.op_type, [NOTHING] * call.outputs
        taken = list(call.inputs)
        if op == "Loop":
            taken = [NOTHING, *taken[1:]]
        elif op == "Scan":
            scanned = call.attr("num_scan_inputs", 0)
            first = len(taken) - scanned if isinstance(scanned, int) else 0
            taken = [seen if i < first else element(seen) for i, seen in enumerate(taken)]
        for attribute in call.node.attribute:
            if not attribute.HasField("g"):
                continue
            inner: _Values = ChainMap({}, values)
            for port, seen in zip(attribute.g.input, taken, strict=False):
                inner[port.name] = seen
            given = self.graph(attribute.g, inner, call.given, depth + 1)
            for i, seen in enumerate(given[1:] if op == "Loop" else given):
                if i < len(made) and op != "SequenceMap":
                    made[i] = replace(seen, origins=distinct(made[i].origins + seen.origins), tensor=None)
        return made

    def function(self, function: onnx.FunctionProto, call: Call, depth: int) -> list[Seen]:
        given = {a.name: a for a in function.attribute_proto}
        for a in call.node.attribute:
            value = call.given.get(a.ref_attr_name) if a.ref_attr_name else a
            if value is not None:
                given[a.name] = value
        values: _Values = dict(zip(function.input, call.inputs, strict=False))
        return self.body(function.node, function.output, values, {}, given, depth + 1)


def _terms(dim: Dim) -> list[str]:
    """The keys in a dim."""
    return [t for t in ir.summands(dim) if isinstance(t, str)] if isinstance(dim, str) else []
