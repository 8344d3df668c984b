"""The splice: what differs between a view and its messages is written back, in place."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx import numpy_helper

from onnxfuse import ir
from onnxfuse.bridge.attributes import arrange, write_attributes
from onnxfuse.bridge.read import WEIGHTS_ARE_INPUTS_BELOW, Stored, bodies, metadata, stored, walk
from onnxfuse.errors import ModelError


def splice(graph: gs.Graph, proto: onnx.ModelProto) -> None:
    """Writes the edits of a view back into the proto it was made of, in place.

    Nodes, attributes and metadata that differ are rewritten; new constants become initializers of the main graph, and
    those that lost their last use are removed, as are the declared types of values that are gone. The interface stays.
    Raises ModelError where `proto` is not what `graph` is a view of.
    """
    if graph.proto is not proto.graph:
        raise ModelError("the graph is a view of another model: make a new view of this one before editing it")
    scopes = list(walk(graph))
    gone = _write_constants(scopes, proto)
    for g in reversed(scopes):  # bodies first: one that moved to another node is copied there as it is then
        gone[id(g)] |= _write_nodes(g)
    for g in scopes:
        for inner in (b for node in g.nodes for b in bodies(node)) if gone[id(g)] else ():
            gone[id(inner)] |= gone[id(g)]
        _write_types(g, gone[id(g)])


def _write_constants(scopes: list[gs.Graph], proto: onnx.ModelProto) -> dict[int, set[str]]:
    """Adds new constants to the main graph, drops those without a use; gives the names that are gone by id(graph)."""
    live = {id(t): t for g in scopes for t in g.outputs}
    for g in scopes:
        for node in g.nodes:
            for t in node.inputs:
                if type(t) is gs.Constant:
                    live[id(t)] = t
    present = {id(g) for g in scopes}
    for t in live.values():
        if type(t) is gs.Constant:
            if id(getattr(t, "home", None)) not in present:
                _add_initializer(t, scopes[0], proto)
            elif stored(t) is None:
                raise ModelError(f"constant '{t.name}' was given other values in place: make a new constant instead")
    gone: dict[int, set[str]] = {}
    for g in scopes:
        dead = [t for t in g.constants if t.droppable and id(t) not in live]
        names = gone[id(g)] = {t.name for t in dead}
        if dead:
            messages = {id(stored(t)) for t in dead}
            g.constants = [t for t in g.constants if not (t.droppable and id(t) not in live)]
            for field in (g.proto.initializer, g.proto.sparse_initializer):
                arrange(field, [m for m in field if id(m) not in messages])
            arrange(g.proto.input, [v for v in g.proto.input if v.name not in names])  # IR < 4 only
    return gone


def _add_initializer(t: gs.Constant, main: gs.Graph, proto: onnx.ModelProto) -> None:
    old = stored(t)
    if isinstance(old, onnx.SparseTensorProto):
        new = main.proto.sparse_initializer.add()
        new.CopyFrom(old)
    else:
        new = main.proto.initializer.add()
        new.CopyFrom(numpy_helper.from_array(t._values, t.name) if old is None else old)
    t._values, t.home, t.droppable = Stored(new), main, True
    main.constants.append(t)
    if proto.ir_version < WEIGHTS_ARE_INPUTS_BELOW:
        info = main.proto.input.add(name=t.name)
        _fill_type(info, t._values.dtype, t._values.shape)


def _write_nodes(graph: gs.Graph) -> set[str]:
    """Brings the node list up to date; gives the names that no node of this graph makes any more."""
    field = graph.proto.node
    before = list(field)
    here = {id(p) for p in before}
    gone: set[str] = set()
    for node in graph.nodes:
        p = vars(node).get("proto")
        if p is None or id(p) not in here:  # new, or from another graph
            node.proto = field.add()
            if p is not None:
                node.proto.CopyFrom(p)
        outputs = [t.name for t in node.outputs]
        if list(node.proto.output) != outputs:
            gone.update(node.proto.output)
            node.proto.output[:] = outputs
        _write_node(node)
    wanted = [node.proto for node in graph.nodes]
    if len(before) != len(wanted) or any(a is not b for a, b in zip(before, wanted, strict=True)):
        kept = {id(p) for p in wanted}
        gone.update(name for p in before if id(p) not in kept for name in p.output)
        arrange(field, wanted)
    return gone - {t.name for n in graph.nodes for t in n.outputs} if gone else gone


def _write_node(node: gs.Node) -> None:
    p = node.proto
    if p.op_type != node.op:
        p.op_type = node.op
    if p.name != node.name:
        p.name = node.name
    if ir.domain(p.domain) != ir.domain(node.domain or ""):
        p.domain = node.domain
    inputs = [t.name for t in node.inputs]
    if list(p.input) != inputs:
        p.input[:] = inputs
    if node.attrs or p.attribute:
        write_attributes(node)
    if "metadata" in vars(node) and metadata(node) != {e.key: e.value for e in p.metadata_props}:
        del p.metadata_props[:]
        for key, value in node.metadata.items():
            p.metadata_props.add(key=key, value=value)


def _write_types(graph: gs.Graph, gone: set[str]) -> None:
    """Drops what is declared of values that are gone, and declares new and retyped ones whose dtype is known."""
    proto = graph.proto
    made = {t.name: t for node in graph.nodes for t in node.outputs if t.name}
    if gone:
        lost = gone - made.keys() - {t.name for t in (*graph.inputs, *graph.constants)}
        arrange(proto.value_info, [v for v in proto.value_info if v.name not in lost])
        arrange(proto.quantization_annotation, [q for q in proto.quantization_annotation if q.tensor_name not in lost])
    changed = [t for t in made.values() if (t.dtype, t.shape) != getattr(t, "declared", (None, None))]
    if not changed:
        return
    infos = {v.name: v for v in proto.value_info}
    interface = {v.name for v in proto.output}
    for t in changed:
        t.declared = (t.dtype, t.shape)
        info = infos.pop(t.name, None)
        if t.name in interface:
            continue
        if t.dtype is None:
            arrange(proto.value_info, [v for v in proto.value_info if v is not info])
        else:
            _fill_type(proto.value_info.add(name=t.name) if info is None else info, t.dtype, t.shape)


def _fill_type(info: onnx.ValueInfoProto, dtype: int, shape: Any) -> None:
    info.ClearField("type")
    tensor = info.type.tensor_type
    tensor.elem_type = dtype
    if shape is not None:
        tensor.shape.SetInParent()
        for dim in shape:
            entry = tensor.shape.dim.add()
            if isinstance(dim, str):
                entry.dim_param = dim
            elif isinstance(dim, int):
                entry.dim_value = dim
