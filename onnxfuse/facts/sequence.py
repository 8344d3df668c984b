"""Sequences and optionals. Where all tensors of a sequence are known, its Value lists them; an optional is its content.

A sequence that comes from a model's input or grows in a loop has no list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onnx import TensorProto as T

from onnxfuse.facts.call import Unclear, array, normal_axis, same_dim
from onnxfuse.facts.control import control, unify
from onnxfuse.facts.expr import Dim
from onnxfuse.facts.scope import Engine, Facts
from onnxfuse.facts.value import Value
from onnxfuse.ir import Graph, Node

LONGEST = 256  # no longer list is kept

Function = Callable[[Engine, Node, Sequence[Value]], Value]


def _operator(names: str) -> Callable[[Function], Function]:
    """Registers what gives the only output."""

    def register(function: Function) -> Function:
        for name in names.split():
            control(name)(lambda engine, _facts, _i, node, inputs: [function(engine, node, inputs)])
        return function

    return register


def _items(value: Value) -> tuple[Value, ...]:
    if value.items is None:
        raise Unclear
    return value.items


def _attr(node: Node, name: str, default: int) -> int:
    value = node.attrs.get(name, default)
    if not isinstance(value, int):
        raise Unclear
    return value


def _list(items: Sequence[Value]) -> Value:
    """A sequence of tensors, whose elements nobody asks for."""
    if len(items) > LONGEST:
        raise Unclear
    return Value(items=tuple(replace(item, data=None) for item in items))


def _position(inputs: Sequence[Value], i: int, default: int) -> int:
    if i >= len(inputs):
        return default
    data = inputs[i].data
    if data is None or data.size != 1 or not isinstance(data.item(), int):
        raise Unclear
    return int(data.item())


def _common(engine: Engine, name: str, items: Sequence[Value]) -> Value:
    """What holds for each of the items."""
    if not items:
        raise Unclear
    common = replace(items[0], data=None, constant=False)
    for item in items[1:]:
        common = unify(engine, name, common, replace(item, data=None))
    return common


@_operator("SequenceEmpty")
def _empty(_engine: Engine, _node: Node, _inputs: Sequence[Value]) -> Value:
    return _list(())


@_operator("SequenceConstruct")
def _construct(_engine: Engine, _node: Node, inputs: Sequence[Value]) -> Value:
    return _list(inputs)


@_operator("SequenceInsert")
def _insert(_engine: Engine, _node: Node, inputs: Sequence[Value]) -> Value:
    items = list(_items(inputs[0]))
    at = _position(inputs, 2, len(items))
    if not -len(items) <= at <= len(items):
        raise Unclear
    items.insert(at, inputs[1])
    return _list(items)


@_operator("SequenceErase")
def _erase(_engine: Engine, _node: Node, inputs: Sequence[Value]) -> Value:
    items = list(_items(inputs[0]))
    del items[normal_axis(_position(inputs, 1, -1), len(items))]
    return _list(items)


@_operator("SequenceAt")
def _at(engine: Engine, node: Node, inputs: Sequence[Value]) -> Value:
    items = _items(inputs[0])
    if inputs[1].data is None:
        return _common(engine, node.outputs[0], items)
    return items[normal_axis(_position(inputs, 1, 0), len(items))]


@_operator("SequenceLength")
def _length(_engine: Engine, _node: Node, inputs: Sequence[Value]) -> Value:
    items = inputs[0].items
    return Value(T.INT64, (), None if items is None else array([len(items)], ()))


@_operator("SplitToSequence")
def _split(_engine: Engine, node: Node, inputs: Sequence[Value]) -> Value:
    x = inputs[0]
    if x.shape is None:
        raise Unclear
    axis = normal_axis(_attr(node, "axis", 0), len(x.shape))
    whole = x.shape[axis]
    sizes: Sequence[Dim]
    keep = True
    if len(node.inputs) > 1 and node.inputs[1]:
        data = inputs[1].data
        if data is None:
            raise Unclear
        sizes = data.reshape(-1).tolist()
        if data.shape == ():  # parts of one size, a smaller one last
            (size,) = sizes
            if not isinstance(whole, int) or not isinstance(size, int) or size < 1 or whole > size * LONGEST:
                raise Unclear
            sizes = [min(size, whole - start) for start in range(0, whole, size)]
    elif isinstance(whole, int):
        sizes, keep = [1] * min(whole, LONGEST + 1), bool(_attr(node, "keepdims", 1))
    else:
        raise Unclear
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    return _list([Value(x.dtype, (*before, size, *after) if keep else (*before, *after)) for size in sizes])


@_operator("ConcatFromSequence")
def _concat(_engine: Engine, node: Node, inputs: Sequence[Value]) -> Value:
    shapes = [item.shape for item in _items(inputs[0]) if item.shape is not None]
    if not shapes or len(shapes) < len(_items(inputs[0])):
        raise Unclear
    new = bool(_attr(node, "new_axis", 0))
    rank = len(shapes[0])
    axis = normal_axis(_attr(node, "axis", rank + new), rank + new)
    along: Dim = len(shapes)
    if not new:
        along = 0
        for shape in shapes:
            along = along + shape[axis]
    out = [same_dim(shape[k] for shape in shapes) for k in range(rank) if new or k != axis]
    out.insert(axis, along)
    return Value(_items(inputs[0])[0].dtype, tuple(out))


@_operator("Optional OptionalGetElement")
def _content(_engine: Engine, _node: Node, inputs: Sequence[Value]) -> Value:
    if not inputs or (inputs[0].dtype == 0 and inputs[0].items is None):
        raise Unclear
    return inputs[0]


@control("SequenceMap")
def _map(engine: Engine, facts: Facts, i: int, node: Node, inputs: Sequence[Value]) -> list[Value]:
    """Facts of the body hold for every element, so elements of several shapes are unclear; a further input is a
    sequence as long as the first, or a tensor.
    """
    graph = node.attrs.get("body")
    if not isinstance(graph, Graph):
        raise Unclear
    count = len(_items(inputs[0]))
    if any(len({item.shape for item in value.items or ()}) > 1 for value in inputs):
        raise Unclear
    values = {
        name: value if value.items is None else _common(engine, name, value.items)
        for name, value in zip(graph.inputs, inputs, strict=True)
    }
    body = facts.bodies[i, "body"] = engine.graph(graph, values, facts.opsets, facts)
    facts.trips[i] = count
    return [_list([body[name]] * count) for name in graph.outputs]
