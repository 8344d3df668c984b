"""The forward pass over the nodes of one scope: the main graph, a subgraph body or the body of a local function."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto as T

from onnxfuse.facts.call import FOLDS, RULES, Call, Result, Rule, Unclear
from onnxfuse.facts.contents import INTEGER_LIMIT, LONGEST, Read, content, count, fitted
from onnxfuse.facts.expr import Dim, Expr, symbol
from onnxfuse.facts.likeness import Interned, likeness
from onnxfuse.facts.value import UNKNOWN, Shape, Value
from onnxfuse.ir import Graph, Node, Program, ValueType

MOST_CALLS = 20_000  # of local functions; functions that call each other twice make 2^depth of them
MOST_ELEMENTS = 1 << 63
DEEPEST = 64  # local functions within functions; more can only be a cycle
# What a node that contradicts itself ends in; TypeError where its elements are of another kind than it takes.
INCONSISTENT = (Unclear, ArithmeticError, LookupError, TypeError, ValueError)

_FROM_NOTHING = frozenset({"Shape", "Size", "Constant"})  # folds that need no known elements
_FROM_SOME = frozenset({"Concat"})

Control = Callable[["Engine", "Facts", int, Node, Sequence[Value]], list[Value]]
CONTROL: dict[str, Control] = {}


@dataclass(slots=True)
class Facts:
    """Facts of one scope.

    values: every value name of this scope: inputs, initializers, node outputs.
    bodies: by (node index, attribute name) the facts of a subgraph; by (node index, "") those of a local function's
        body, whose `nodes` have the call's attributes in place.
    nodes: the nodes of this scope, in order.
    trips: by node index, how often the body of a Loop or Scan runs, where known.
    alike: by node index the first node of the scope that means the same: same operator, attributes and facts of inputs
        and outputs. Nodes without such a one before them, and nodes with bodies, are left out.
    outer: the enclosing scope, None for the main graph and for functions.
    opsets: opset version by domain.
    assumed: of the main graph: some shapes may hold for a cost only (see `infer`).
    """

    nodes: tuple[Node, ...]
    opsets: Mapping[str, int]
    values: dict[str, Value] = field(default_factory=dict)
    bodies: dict[tuple[int, str], Facts] = field(default_factory=dict)
    trips: dict[int, Dim] = field(default_factory=dict)
    alike: dict[int, int] = field(default_factory=dict)
    outer: Facts | None = None
    assumed: bool = False

    def __getitem__(self, name: str) -> Value:
        """Facts of a value of this scope or of an enclosing one; UNKNOWN where there is none."""
        value = self.values.get(name)
        if value is not None:
            return value
        return UNKNOWN if self.outer is None else self.outer[name]


class Engine:
    """State of one pass over a program: its functions, how to read a tensor, and the symbol names in use."""

    def __init__(self, program: Program, read: Read, taken: set[str], general: bool) -> None:
        self.functions = program.functions
        self.overridable, self.general = program.overridable, general
        self.content = partial(content, read=read)
        self.taken = taken
        self.depth = self.calls = self.named = 0
        self.assumed = False  # whether a value was taken to be the larger one of two
        self._interned = Interned()
        self._tensors: dict[Hashable, Value] = {}  # small initializers by type and bytes

    def name_dim(self, wish: str) -> str:
        """A symbol name that no other dimension of the model has."""
        self.named += 1
        name, n = wish, 1
        while name in self.taken:
            n += 1
            name = f"{wish}#{n}"
        self.taken.add(name)
        return name

    def initializer(self, tensor: onnx.TensorProto | onnx.SparseTensorProto, constant: bool) -> Value:
        """Facts of an initializer; a sparse one has its dense shape and no elements."""
        if isinstance(tensor, onnx.SparseTensorProto):
            return Value(tensor.values.data_type, tuple(tensor.dims), None, constant)
        dtype, dims = tensor.data_type, tuple(tensor.dims)
        raw = tensor.raw_data if math.prod(dims) <= INTEGER_LIMIT else b""
        key = (dtype, dims, constant, raw) if raw and tensor.data_location != T.EXTERNAL else None
        value = self._tensors.get(key)
        if value is None:
            value = self._interned(Value(dtype, dims, self.content(tensor), constant))
            if key is not None:
                self._tensors[key] = value
        return value

    def graph(self, graph: Graph, inputs: Mapping[str, Value], opsets: Mapping[str, int], outer: Facts | None) -> Facts:
        """Facts of a graph or of a subgraph body whose inputs have these facts."""
        facts = Facts(graph.nodes, opsets, outer=outer)
        facts.values.update({name: self._interned(inputs.get(name, UNKNOWN)) for name in graph.inputs})
        for name, tensor in graph.initializers.items():
            fixed = outer is not None or name not in self.overridable
            if fixed or not self.general:
                facts.values[name] = self.initializer(tensor, fixed)
        self.run(facts, graph.declared)
        return facts

    def run(self, facts: Facts, declared: Mapping[str, ValueType]) -> None:
        """Fills in the outputs of all nodes of the scope, in order."""
        values, outer, opsets = facts.values, facts.outer, facts.opsets
        newest = onnx.defs.onnx_opset_version()
        seen: dict[Hashable, tuple[int, list[Value]]] = {}
        for i, node in enumerate(facts.nodes):
            inputs = []
            for name in node.inputs:
                v = values.get(name)
                inputs.append(v if v is not None else UNKNOWN if outer is None else outer[name])
            domain = node.domain
            op = f"{domain}:{node.op_type}" if domain else node.op_type
            rule = RULES.get(op)
            if self.functions and (domain, node.op_type, node.overload) in self.functions:
                results = self._control(CONTROL["function"], facts, i, inputs, declared)
            elif rule is not None:
                key = likeness(node, inputs)
                first = None if key is None else seen.get(key)
                if first is not None:
                    facts.alike[i], results = first
                else:
                    named = self.named
                    version = opsets.get(domain, 1 if domain else newest)
                    call = Call(node, inputs, version, self.name_dim, self.content, not self.general)
                    results = self._apply(rule, op, call)
                    if key is not None and named == self.named:  # a symbol of its own makes a node unlike all others
                        seen[key] = i, results
            elif op in CONTROL:
                results = self._control(CONTROL[op], facts, i, inputs, declared)
            else:
                results = self._hints(node, declared)
            for k, name in enumerate(node.outputs):
                if name:
                    values[name] = results[k] if k < len(results) else UNKNOWN

    def _control(
        self, control: Control, facts: Facts, i: int, inputs: Sequence[Value], declared: Mapping[str, ValueType]
    ) -> list[Value]:
        try:
            return control(self, facts, i, facts.nodes[i], inputs)
        except INCONSISTENT:
            return self._hints(facts.nodes[i], declared)

    def _hints(self, node: Node, declared: Mapping[str, ValueType]) -> list[Value]:
        return [self.hint(name, declared[name]) if name in declared else UNKNOWN for name in node.outputs]

    def hint(self, name: str, declared: ValueType) -> Value:
        """What is declared of a value that nothing computes; a symbol is not believed."""
        if declared.dims is None:
            return Value(declared.dtype)
        dims = (
            d if isinstance(d, int) else symbol(self.name_dim(f"{name}.{a}"), 0) for a, d in enumerate(declared.dims)
        )
        return Value(declared.dtype, tuple(dims))

    def _apply(self, rule: Rule, op: str, call: Call) -> list[Value]:
        try:
            result: Result = rule.shape(call)
        except INCONSISTENT:
            result = [None]
        shapes: Sequence[Shape | None] = result if isinstance(result, list) else (result,)
        constant = not rule.random and (bool(call.inputs) or op == "Constant")
        known, unknown = 0, 0
        for v, name in zip(call.inputs, call.node.inputs, strict=True):
            if name:
                constant = constant and v.constant
                if v.data is None:
                    unknown += 1
                else:
                    known += 1
        folded: Sequence[np.ndarray] = ()
        if (not unknown or op in _FROM_NOTHING or (known and op in _FROM_SOME)) and op in FOLDS:
            folded = self._fold(op, call, shapes)
        out = []
        for k in range(len(call.node.outputs)):
            dtype = rule.dtypes[k if k < len(rule.dtypes) else -1]
            if not isinstance(dtype, int):
                try:
                    dtype = dtype(call)
                except INCONSISTENT:
                    dtype = 0
            shape = shapes[k] if k < len(shapes) else None
            if shape and (not call.inputs or shape is not call.inputs[0].shape):
                shape = _settled(call, k, shape)
            elements = fitted(folded[k], dtype, shape) if k < len(folded) else None
            out.append(self._interned(Value(dtype, shape, elements, constant)))
        return out

    def _fold(self, op: str, call: Call, shapes: Sequence[Shape | None]) -> Sequence[np.ndarray]:
        """The elements of the first outputs, as far as they are few and known."""
        for shape in shapes:
            if shape is None or any(isinstance(d, Expr) for d in shape) or count(shape) > INTEGER_LIMIT:
                return ()
        try:
            found = FOLDS[op](call)
        except INCONSISTENT:
            return ()
        return found if isinstance(found, list) else (found,)


def _settled(call: Call, output: int, shape: Shape) -> Shape | None:
    """The shape; None where a dim is negative, or with more elements than 64 bits can count, which no runtime has.

    An expression that has grown beyond use becomes a symbol.
    """
    long, elements = False, 1
    for d in shape:
        if isinstance(d, Expr):
            long = long or d.length > LONGEST
        elif d < 0:
            return None
        else:
            elements *= d
    if elements >= MOST_ELEMENTS:
        return None
    if not long:
        return shape
    return tuple(
        call.fresh(output, axis) if isinstance(d, Expr) and d.length > LONGEST else d for axis, d in enumerate(shape)
    )
