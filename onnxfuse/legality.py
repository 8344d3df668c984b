"""Whether a rewrite may be made, whatever its rule: which nodes die with it, and whether their values are missed."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto, defs

from onnxfuse import quantized
from onnxfuse.facts import Facts, Value, provably_equal
from onnxfuse.graph import Editor
from onnxfuse.misfused import check_scales
from onnxfuse.patterns import CROWD, NotLegal, Rewrite, is_op
from onnxfuse.surroundings import Surroundings

_LEAST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
_WINDOWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A legal rewrite: the nodes that nothing needs afterwards, producers first, and what the new ones make.

    known, bound: facts of the new nodes' values for every binding, and at the assumed one.
    """

    dead: list[gs.Node]
    known: Facts
    bound: Facts


def lost(found: Rewrite, editor: Editor) -> list[gs.Tensor]:
    """The values that are made otherwise or by nobody any more."""
    replaced = [t for n in found.new for t in n.outputs if editor.producer(t) is not None]
    return [*replaced, *(old for old, _ in found.same), *(t for n in found.unread for t in n.outputs)]


def check(found: Rewrite, values: Sequence[gs.Tensor], place: Surroundings) -> Change:
    """What a rewrite, by which these values are `lost`, does to the graph. Raises NotLegal."""
    _check_unread(found.unread, place)
    read = {id(t) for n in found.new for t in n.inputs} | {id(other) for _, other in found.same}
    dead = _dead(values, read, place)
    place.know(other for _, other in found.same)
    for old, other in found.same:
        _check_same(old, other, dead, place, found.alike)
    if found.new:
        quantized.check(dead, place.scope.editor)
    elif any(type(other) is gs.Constant for _, other in found.same):
        quantized.check((n for n in dead if n.op == "DequantizeLinear"), place.scope.editor)
    known, bound = place.extended(found.new)
    for tensor in (t for n in found.new for t in n.outputs if place.scope.editor.producer(t) is not None):
        _check_like(place.scope.value(tensor), known[tensor.name], tensor.name, found.alike)
    for node in found.new:
        _check_node(node, known, place)
    if any(is_op(n, *_WINDOWS) and 0 in (known[n.inputs[0].name].shape or ()) for n in found.new):
        raise NotLegal("a window would look at a value without elements, which runtimes refuse")
    check_scales(found, dead, known, place)
    return Change(dead, known, bound)


def _check_node(node: gs.Node, known: Facts, place: Surroundings) -> None:
    """Raises NotLegal where an operator does not take a value of this dtype, as Slice no 8-bit float, where float32
    does not hold an attribute, and where the model itself says what the operator is.
    """
    if node.domain:
        place.check_foreign(node.domain, node.op)
    if node.op == "Relu" and known[node.inputs[0].name].dtype == TensorProto.DOUBLE:
        raise NotLegal("onnxruntime does not load a Relu in double that a Clip may come to stand behind")
    for value in node.attrs.values():
        if isinstance(value, float) and math.isfinite(value) and value and not _LEAST <= abs(value) <= _LARGEST:
            raise NotLegal(f"an attribute would be {value:g}, which float32 does not hold")
    accepted = _accepted(node.op, node.domain or "", place.scope.opset)
    for i, tensor in enumerate(node.inputs if accepted else ()):
        dtype = known[tensor.name].dtype if tensor.name else 0
        taken = accepted[min(i, len(accepted) - 1)]
        if dtype and taken and dtype not in taken:
            raise NotLegal(f"{node.op} takes no {TensorProto.DataType.Name(dtype).lower()}")


@cache
def _accepted(op_type: str, domain: str, opset: int) -> list[frozenset[int]]:
    """The dtypes of tensors that an operator takes in each input, the last one standing for all that follow; [] where
    it is not known.
    """
    if not defs.has(op_type, opset, domain):
        return []
    names = {f"tensor({name.lower()})": number for name, number in TensorProto.DataType.items()}
    inputs = defs.get_schema(op_type, opset, domain).inputs
    return [frozenset(names[t] for t in parameter.types if t in names) for parameter in inputs]


def _check_unread(nodes: Sequence[gs.Node], place: Surroundings) -> None:
    """Raises NotLegal where somebody reads a value of these nodes after all."""
    editor = place.scope.editor
    for t in (t for n in nodes for t in n.outputs if t.name):
        if editor.use_count(t) or editor.is_output(t) or t.name in place.scope.pinned:
            raise NotLegal(f"'{t.name}' is needed")


def _dead(values: Sequence[gs.Tensor], read: Collection[int], place: Surroundings) -> list[gs.Node]:
    """The nodes that nothing needs once these values are made otherwise, producers first. Raises NotLegal.

    read: ids of the values that the new way reads.
    """
    editor, pinned, replaced = place.scope.editor, place.scope.pinned, {id(t) for t in values}
    dead: dict[int, gs.Node] = {}

    def needed(tensor: gs.Tensor) -> bool:
        if not tensor.name or id(tensor) in replaced:
            return False
        if id(tensor) in read or editor.is_output(tensor) or tensor.name in pinned:
            return True
        return editor.use_count(tensor) > CROWD or any(id(n) not in dead for n, _ in editor.uses(tensor))

    todo = [editor.producer(t) for t in values]
    roots = {id(n) for n in todo}
    while todo:
        node = todo.pop()
        if node is None or id(node) in dead or id(node) not in place.records:
            continue
        if any(needed(t) for t in node.outputs):
            if id(node) in roots:
                raise NotLegal(f"another output of {place.label(node)} is needed")
            continue
        dead[id(node)] = node
        todo += [editor.producer(t) for t in node.inputs]
    if any(i not in dead for i in roots):
        raise NotLegal("a value stands in an outer graph")
    return _in_order(dead, editor)


def _in_order(nodes: dict[int, gs.Node], editor: Editor) -> list[gs.Node]:
    """The nodes, each behind those whose values it reads."""
    done: dict[int, gs.Node] = {}
    for start in reversed(nodes.values()):
        todo = [(start, False)]
        while todo:
            node, ready = todo.pop()
            if id(node) in done:
                continue
            if ready:
                done[id(node)] = node
                continue
            todo.append((node, True))
            makers = (editor.producer(t) for t in node.inputs)
            todo += [(m, False) for m in makers if m is not None and id(m) in nodes and id(m) not in done]
    return list(done.values())


def _check_same(old: gs.Tensor, other: gs.Tensor, dead: Sequence[gs.Node], place: Surroundings, alike: bool) -> None:
    """Raises NotLegal where `other` cannot stand for `old`."""
    editor, pinned = place.scope.editor, place.scope.pinned
    _check_like(place.scope.value(old), place.scope.value(other), old.name, alike)
    if old.name in pinned:
        raise NotLegal(f"the value '{old.name}' is named by the model's annotations")
    if not editor.is_output(old):
        return
    maker = editor.producer(other)
    if maker is None or editor.is_output(other) or other.name in pinned:
        raise NotLegal(f"'{old.name}' is a graph output, and '{other.name}' cannot take its name")
    if id(maker) not in place.records or any(maker is n for n in dead):
        raise NotLegal(f"'{old.name}' is a graph output, and '{other.name}' is made in another graph")


def _check_like(old: Value, new: Value, name: str, alike: bool) -> None:
    """Raises NotLegal where two values that should be one are known to differ, or are not known to agree.

    alike: what is not known is no reason, as the rule has shown that they agree.
    """
    if old.dtype != new.dtype and old.dtype and new.dtype:
        raise NotLegal(f"'{name}' would be of another dtype")
    if old.shape is not None and new.shape is not None:
        if len(old.shape) != len(new.shape):
            raise NotLegal(f"'{name}' would be of another rank")
        dims = [(a, b) for a, b in zip(old.shape, new.shape, strict=True) if a is not b]
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in dims):
            raise NotLegal(f"'{name}' would be of another shape")
        if alike or (old.dtype and new.dtype and all(provably_equal(a, b) for a, b in dims)):
            return
    if not alike:
        raise NotLegal(f"'{name}' may be of another dtype or shape, as not all of them is known")
