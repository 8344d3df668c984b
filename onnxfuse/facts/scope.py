"""The forward pass over the nodes of one scope: the main graph, a subgraph body or the body of a local function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

from onnxfuse.facts.call import FOLDS, RULES, Call, Result, Rule, Unclear, array
from onnxfuse.facts.expr import Dim, Expr, symbol
from onnxfuse.facts.value import UNKNOWN, Shape, Value
from onnxfuse.ir import Graph, Node, Program, ValueType

INTEGER_LIMIT, FLOAT_LIMIT = 1024, 64  # no larger tensor is read or computed
LONGEST = 600  # characters of the expressions that are followed
MOST_CALLS = 20_000  # of local functions; functions that call each other twice make 2^depth of them
DEEPEST = 64  # local functions within functions; more can only be a cycle
# What a node that contradicts itself ends in; TypeError where its elements are of another kind than it takes.
INCONSISTENT = (Unclear, ArithmeticError, LookupError, TypeError, ValueError)

_RANGES: dict[int, tuple[int, int]] = {
    T.INT8: (-(2**7), 2**7 - 1), T.INT16: (-(2**15), 2**15 - 1), T.INT32: (-(2**31), 2**31 - 1),
    T.INT64: (-(2**63), 2**63 - 1), T.UINT8: (0, 2**8 - 1), T.UINT16: (0, 2**16 - 1), T.UINT32: (0, 2**32 - 1),
    T.UINT64: (0, 2**64 - 1), T.BOOL: (0, 1),
}  # fmt: skip
_FLOATS = frozenset({T.FLOAT, T.DOUBLE, T.FLOAT16})
_FROM_NOTHING = frozenset({"Shape", "Size", "Constant"})  # folds that need no known elements
_FROM_SOME = frozenset({"Concat"})

Read = Callable[[onnx.TensorProto], np.ndarray | None]
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
    outer: the enclosing scope, None for the main graph and for functions.
    opsets: opset version by domain.
    """

    nodes: tuple[Node, ...]
    opsets: Mapping[str, int]
    values: dict[str, Value] = field(default_factory=dict)
    bodies: dict[tuple[int, str], Facts] = field(default_factory=dict)
    trips: dict[int, Dim] = field(default_factory=dict)
    outer: Facts | None = None

    def __getitem__(self, name: str) -> Value:
        """Facts of a value of this scope or of an enclosing one; UNKNOWN where there is none."""
        scope: Facts | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return UNKNOWN


class Engine:
    """State of one pass over a program: its functions, how to read a tensor, and the symbol names in use."""

    def __init__(self, program: Program, read: Read, taken: set[str], general: bool) -> None:
        self.functions = program.functions
        self.overridable, self.general = program.overridable, general
        self.read = read
        self.taken = taken
        self.depth = self.calls = 0

    def name_dim(self, wish: str) -> str:
        """A symbol name that no other dimension of the model has."""
        name, n = wish, 1
        while name in self.taken:
            n += 1
            name = f"{wish}#{n}"
        self.taken.add(name)
        return name

    def content(self, tensor: onnx.TensorProto) -> np.ndarray | None:
        """Elements of a small numeric tensor: an object array of ints or bools, or a float array; None otherwise."""
        dtype = tensor.data_type
        count = math.prod(tensor.dims)
        if count > (INTEGER_LIMIT if dtype in _RANGES else FLOAT_LIMIT if dtype in _FLOATS else -1):
            return None
        data = self.read(tensor) if count else np.zeros(0, helper.tensor_dtype_to_np_dtype(dtype))
        if data is None or data.size != count:
            return None
        data = data.reshape(tuple(tensor.dims))
        return data.astype(object) if dtype in _RANGES else data

    def initializer(self, tensor: onnx.TensorProto | onnx.SparseTensorProto, constant: bool) -> Value:
        """Facts of an initializer; a sparse one has its dense shape and no elements."""
        if isinstance(tensor, onnx.SparseTensorProto):
            return Value(tensor.values.data_type, tuple(tensor.dims), None, constant)
        return Value(tensor.data_type, tuple(tensor.dims), self.content(tensor), constant)

    def graph(self, graph: Graph, inputs: Mapping[str, Value], opsets: Mapping[str, int], outer: Facts | None) -> Facts:
        """Facts of a graph or of a subgraph body whose inputs have these facts."""
        facts = Facts(graph.nodes, opsets, outer=outer)
        facts.values.update({name: inputs.get(name, UNKNOWN) for name in graph.inputs})
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
                call = Call(node, inputs, opsets.get(domain, 1 if domain else newest), self.name_dim, self.content)
                results = self._apply(rule, op, call)
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
        data = None
        if (not unknown or op in _FROM_NOTHING or (known and op in _FROM_SOME)) and op in FOLDS:
            data = self._fold(op, call, shapes[0])
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
            out.append(Value(dtype, shape, None if data is None or k else _fitted(data, dtype, shape), constant))
        return out

    def _fold(self, op: str, call: Call, shape: Shape | None) -> np.ndarray | None:
        if shape is None or any(isinstance(d, Expr) for d in shape) or _count(shape) > INTEGER_LIMIT:
            return None
        try:
            return FOLDS[op](call)
        except INCONSISTENT:
            return None


def _settled(call: Call, output: int, shape: Shape) -> Shape | None:
    """The shape; None where a dim is negative. An expression that has grown beyond use becomes a symbol."""
    long = False
    for d in shape:
        if isinstance(d, Expr):
            long = long or d.length > LONGEST
        elif d < 0:
            return None
    if not long:
        return shape
    return tuple(
        call.fresh(output, axis) if isinstance(d, Expr) and d.length > LONGEST else d for axis, d in enumerate(shape)
    )


def _count(shape: Shape) -> int:
    """Number of elements of a shape without symbols."""
    return math.prod(d for d in shape if isinstance(d, int))


def _fitted(data: np.ndarray, dtype: int, shape: Shape | None) -> np.ndarray | None:
    """The elements in the form `Value.data` promises; None where they overflow or do not fit the shape."""
    if shape is None or data.size != _count(shape):
        return None
    data = data.reshape(tuple(d for d in shape if isinstance(d, int)))
    if dtype in _RANGES:
        low, high = _RANGES[dtype]
        elements = data.reshape(-1).tolist()
        if not all(d.length <= LONGEST if isinstance(d, Expr) else low <= d <= high for d in elements):
            return None
        return array([bool(d) for d in elements] if dtype == T.BOOL else elements, data.shape)
    if dtype not in _FLOATS or data.size > FLOAT_LIMIT:
        return None
    if data.dtype == object and not any(isinstance(d, Expr) for d in data.reshape(-1)):
        return data.astype(helper.tensor_dtype_to_np_dtype(dtype))
    return data
