"""The view: gs objects made directly from the messages of a model, each pinned to its own."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto as A
from onnx_graphsurgeon.ir.tensor import LazyValues
from onnx_graphsurgeon.util.misc import SynchronizedList

from onnxfuse import ir

_new = list.__new__
_UNTYPED = ir.ValueType(0, None)
FIELDS = {A.INT: "i", A.FLOAT: "f", A.INTS: "ints", A.FLOATS: "floats"}
WEIGHTS_ARE_INPUTS_BELOW = 4  # IR version: before it, every initializer also had to be listed as a graph input


class Stored(LazyValues):  # type: ignore[misc]
    """A constant's values as they lie in the model, dense or sparse; `Model.array` reads them."""

    def __init__(self, tensor: onnx.TensorProto | onnx.SparseTensorProto) -> None:
        self.tensor = tensor
        self.shape = tuple(tensor.dims)
        self.dtype = tensor.values.data_type if isinstance(tensor, onnx.SparseTensorProto) else tensor.data_type

    def load(self) -> np.ndarray:
        """Never: decoding through gs changes what is written back for a third of the dtypes."""
        raise TypeError("the values of a stored constant are read with Model.array")


def stored(constant: gs.Constant) -> onnx.TensorProto | onnx.SparseTensorProto | None:
    """The message that holds a constant's values; None for a new one, whose `values` are a numpy array."""
    values = constant._values
    return values.tensor if isinstance(values, Stored) else None


def bodies(node: gs.Node) -> list[gs.Graph]:
    """The graphs in a node's attributes: branches of an If, the body of a Loop or Scan."""
    found = []
    for value in node.attrs.values():
        if isinstance(value, gs.Graph):
            found.append(value)
        elif isinstance(value, list):
            found += [g for g in value if isinstance(g, gs.Graph)]
    return found


def walk(graph: gs.Graph) -> Iterator[gs.Graph]:
    """The graph and all bodies in it, each before those inside it."""
    todo = [graph]
    while todo:
        current = todo.pop()
        yield current
        for node in current.nodes:
            todo += bodies(node)


def release(graph: gs.Graph, removed: Iterable[gs.Node] = ()) -> None:
    """Takes a view apart that is needed no more, and nodes that were removed from it.

    Nodes and tensors refer to each other: without this it takes a collection of all objects there are to free them.
    """
    for nodes in ([n for g in walk(graph) for n in g.nodes], removed):
        for node in nodes:
            for tensor in (*node.__dict__.get("inputs", ()), *node.__dict__.get("outputs", ())):
                tensor.__dict__.clear()
            node.__dict__.clear()


def metadata(node: gs.Node) -> dict[str, str]:
    """A node's metadata_props, as they are or as they will be written."""
    if "metadata" in vars(node):
        return dict(node.metadata)
    return {e.key: e.value for e in node.proto.metadata_props} if "proto" in vars(node) else {}


def value_names(graph: gs.Graph) -> set[str]:
    """Every value name that occurs anywhere in the graph or its bodies, used or not."""
    names: set[str] = set()
    for g in walk(graph):
        names.update(v.name for v in (*g.proto.input, *g.proto.output, *g.proto.value_info, *g.proto.initializer))
        names.update(s.values.name for s in g.proto.sparse_initializer)
        for node in g.nodes:
            names.update(t.name for t in (*node.inputs, *node.outputs))
    return names


def view(proto: onnx.ModelProto) -> gs.Graph:
    """The editable view of a model's main graph and its bodies, for `Editor` and `splice`; `proto` is left as it is.

    It belongs to this very proto object: once the graph in it was replaced, a view has to be made anew.
    """
    opset = ir.opsets(proto.opset_import).get("")
    collecting = gc.isenabled()
    gc.disable()  # nothing made here is garbage; looking for some takes a third of the time on 100,000 nodes
    try:
        graph = _view_graph(proto.graph, (), opset, proto.ir_version < WEIGHTS_ARE_INPUTS_BELOW)
    finally:
        if collecting:
            gc.enable()
    graph.import_domains = list(proto.opset_import)
    graph.producer_name, graph.producer_version = proto.producer_name, proto.producer_version
    graph.ir_version = proto.ir_version
    for g in walk(graph):
        quantization = {e.value for q in g.proto.quantization_annotation for e in q.quant_parameter_tensor_names}
        for t in g.constants:  # one that nothing uses, or that is used in a place gs does not see, is not ours to drop
            t.droppable = bool(t.outputs) and t.name not in quantization and not proto.training_info
    return graph


def _view_graph(
    proto: onnx.GraphProto, outer: tuple[dict[str, Any], ...], opset: int | None, weights_are_inputs: bool = False
) -> gs.Graph:
    graph = gs.Graph(name=proto.name, doc_string=proto.doc_string, opset=opset)
    graph.proto = proto
    local: dict[str, Any] = {t.name: _constant(t.name, t) for t in proto.initializer}
    local |= {s.values.name: _constant(s.values.name, s) for s in proto.sparse_initializer}
    for info in proto.input:
        if not (weights_are_inputs and info.name in local):
            local[info.name] = _variable(info.name, info)
            graph.inputs.append(local[info.name])
    graph.constants = [t for t in local.values() if type(t) is gs.Constant]
    for t in graph.constants:
        t.home = graph

    declared = {v.name: v for v in (*proto.value_info, *proto.output)}
    for p in proto.node:  # all names of this scope before any use: a body must not take an outer value of the same name
        for name in p.output:
            if name and name not in local:
                local[name] = _variable(name, declared.get(name))
    scopes = (local, *outer)

    def find(name: str) -> gs.Tensor:
        for scope in scopes:
            if name in scope:
                return scope[name]
        if name:
            return local.setdefault(name, _variable(name, declared.get(name)))
        return gs.Variable.empty()

    for p in proto.node:
        attrs = {a.name: _view_attribute(a, scopes, opset) for a in p.attribute}
        node = _make(gs.Node, op=p.op_type, name=p.name, attrs=attrs, domain=ir.domain(p.domain), proto=p)
        list.extend(node.inputs, map(find, p.input))
        list.extend(node.outputs, map(find, p.output))
        _link(node)
        graph.nodes.append(node)
    graph.outputs = [find(v.name) for v in proto.output]
    return graph


def _list(owner: Any, field: str) -> Any:
    made: Any = _new(SynchronizedList)
    made.parent_obj, made.field_name = owner, field
    return made


def _make(cls: type, **fields: Any) -> Any:
    """A gs object with its fields as its constructor sets them, which takes four times as long."""
    made: Any = object.__new__(cls)
    fields["inputs"], fields["outputs"] = _list(made, "outputs"), _list(made, "inputs")
    made.__dict__.update(fields)  # gs's own way of setting one goes through checks of its name
    return made


def _constant(name: str, tensor: onnx.TensorProto | onnx.SparseTensorProto) -> gs.Constant:
    return _make(gs.Constant, name=name, _values=Stored(tensor), data_location=None, _export_dtype=None)


def _link(node: gs.Node) -> None:
    """Enters a node at the tensors it lists, going around gs's synchronized lists (their removals are quadratic)."""
    for t in node.inputs:
        list.append(t.outputs, node)
    for t in node.outputs:
        list.append(t.inputs, node)


def _variable(name: str, info: onnx.ValueInfoProto | None) -> gs.Variable:
    kind = _UNTYPED if info is None else ir.read_type(info)
    declared = (kind.dtype or None, kind.dims)
    return _make(gs.Variable, name=name, dtype=declared[0], shape=declared[1], type="tensor_type", declared=declared)


def _view_attribute(a: A, scopes: tuple[dict[str, Any], ...], opset: int | None) -> Any:
    if a.ref_attr_name:
        return a
    match a.type:
        case A.INT | A.FLOAT:
            return getattr(a, FIELDS[a.type])
        case A.INTS | A.FLOATS:
            return list(getattr(a, FIELDS[a.type]))
        case A.STRING:
            return text(a.s)
        case A.STRINGS:
            return [text(s) for s in a.strings]
        case A.TENSOR:
            return _constant(a.t.name, a.t)
        case A.GRAPH:
            return _view_graph(a.g, scopes, opset)
        case A.GRAPHS:
            return [_view_graph(g, scopes, opset) for g in a.graphs]
    return a


def text(raw: bytes) -> str | bytes:
    """A string attribute's value, as bytes where it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
