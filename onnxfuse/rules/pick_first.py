"""What is thrown away is not computed: Gather and Slice go in front of the work whose result they take a part of.

An operator that treats the places of an axis alike gives (f(x))[i] = f(x[i]): elementwise operators, LayerNormalization
and Softmax over other axes, the rows of a matrix product (A·B)[i] = A[i]·B, Transpose with the axis renamed, Reshape
that keeps the axis. Of operands that broadcast along the axis nothing is taken. A classifier that reads the first token
so computes the last block's MLP for one token instead of all.

Conditions: known indices along one axis, and no other reader of the whole. Measured on vit_b_16, onnxruntime 1.32, one
thread of AVX-512: what follows the last block's keys and values takes 3 ms instead of 30 ms, of about 500 ms. What is
taken is computed as before, NaN included.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.facts import Dim
from onnxfuse.patterns import Build, Rewrite, Scope, is_op
from onnxfuse.rules._known import FLOATING, perm_of, same_dims
from onnxfuse.rules._norm import ends_norm
from onnxfuse.rules._pick import Pick, is_scalar, read, write

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
ROOTS = ("Gather", "Slice")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,8,4] x, float[2,1,4] r) => (float[2,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, int64 i = {0}>
{ m = MatMul(x, w)  a = Add(m, r)  e = Relu(a)  y = Gather <axis = 1> (e, i) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,8,4] x, float[2,1,4] r) => (float[2,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, int64[1] i = {0}, int64[1] one = {1}>
{ t = Gather <axis = 1> (x, i)  m = MatMul(t, w)  a = Add(m, r)  e = Relu(a)  y = Squeeze(e, one) }
"""
UNARY = frozenset(
    ("Abs", "Cast", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
     "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Softplus",
     "Softsign", "Sqrt", "Tanh", "ThresholdedRelu")
)  # fmt: skip
BROADCAST = frozenset(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Where", "PRelu"))
VIEWS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten"))


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    whole = node.inputs[0] if node.inputs else None
    maker = scope.editor.producer(whole) if whole is not None else None
    if whole is None or maker is None or scope.value(whole).dtype not in FLOATING:
        return None
    pick = read(node, scope)
    if pick is None:
        return None
    if scope.editor.only_use(whole) is None:
        return _same(node, whole, pick, scope)
    build = Build(scope, maker)
    if _early(whole, pick, pick.axis, build, scope) is None:
        return None
    last = build.nodes[-1].outputs
    if not pick.scalar:
        list.__setitem__(last, 0, node.outputs[0])
        return build.rewrite()
    made = last[0]
    if scope.opset < 13:
        build("Squeeze", made, out=node.outputs[0], axes=[pick.axis])
    else:
        build("Squeeze", made, build.constant(np.array([pick.axis], np.int64)), out=node.outputs[0])
    return build.rewrite()


def _same(node: gs.Node, whole: gs.Tensor, pick: Pick, scope: Scope) -> Rewrite | None:
    """That another node takes the same already."""
    editor = scope.editor
    for other in editor.consumers(whole):
        if other is node or not is_op(other, node.op) or editor.owner(other) is not editor.owner(node):
            continue
        if other.inputs[0] is whole and read(other, scope) == pick and is_scalar(other, scope) == pick.scalar:
            return Rewrite((), ((node.outputs[0], other.outputs[0]),))
    return None


def _early(tensor: gs.Tensor, pick: Pick, axis: int, build: Build, scope: Scope) -> gs.Tensor | None:
    """The part of a value computed from parts of what it is computed from; None where nothing is known of that."""
    node, shape = scope.editor.producer(tensor), scope.value(tensor).shape
    if node is None or shape is None or node.outputs[0] is not tensor or any(t.name for t in node.outputs[1:]):
        return None
    if node.op in VIEWS and is_op(node, node.op):
        return _view(node, pick, axis, build, scope)
    inputs = _parts(node, axis, shape, scope)
    if inputs is None:
        return None
    taken = [t if a is None else write(build, scope, t, pick, a) for t, a in zip(node.inputs, inputs, strict=True)]
    return build(node.op, *(t if t.name else None for t in taken), **node.attrs)


def _parts(node: gs.Node, axis: int, shape: Sequence[Dim], scope: Scope) -> list[int | None] | None:
    """The axis of every input of which a part is taken, None for an input of which all is; None where that won't do."""
    rank = len(shape)
    rest: list[int | None] = [None] * (len(node.inputs) - 1)
    if not is_op(node, node.op):
        return None
    if node.op in UNARY:
        return [axis, *rest]
    if node.op in BROADCAST:
        if any(ends_norm(t, scope) for t in (node.outputs[0], *node.inputs)):
            return None  # runtimes know its pieces as one
        found = [_aligned(t, axis, shape, scope) for t in node.inputs]
        return None if -1 in found else [None if a == _ALL else a for a in found]
    match node.op:
        case "LayerNormalization" | "Softmax" | "LogSoftmax":
            first = node.attrs.get("axis", -1 if node.op == "LayerNormalization" or scope.opset >= 13 else 1) % rank
            free = axis < first or (axis > first and scope.opset >= 13 and node.op != "LayerNormalization")
            ranks = [len(own) if (own := scope.value(t).shape) is not None else rank for t in node.inputs[1:] if t.name]
            free = free and max(ranks, default=0) <= rank - first
            return [axis, *rest] if free else None
        case "Transpose":
            perm = perm_of(node, scope)
            return [perm[axis]] if perm else None
        case "MatMul":
            return _product(node, axis, shape, scope)
        case "Gemm" if axis == 0:
            found = [_aligned(t, 0, shape, scope) for t in node.inputs[2:]]
            if -1 in found:
                return None
            return [1 if node.attrs.get("transA", 0) else 0, None, *(None if a == _ALL else a for a in found)]
    return None


_ALL = -2  # an operand that broadcasts along the axis


def _aligned(tensor: gs.Tensor, axis: int, shape: Sequence[Dim], scope: Scope) -> int:
    """The axis of an operand that meets an axis of the result; _ALL where it broadcasts along it, −1 if not known."""
    if not tensor.name:
        return _ALL
    own = scope.value(tensor).shape
    if own is None:
        return -1
    at = axis - (len(shape) - len(own))
    if at < 0 or (own[at] == 1 and shape[axis] != 1):
        return _ALL
    return at if same_dims([own[at]], [shape[axis]]) else -1


def _product(node: gs.Node, axis: int, shape: Sequence[Dim], scope: Scope) -> list[int | None] | None:
    ranks = [len(own) if (own := scope.value(t).shape) is not None else 0 for t in node.inputs]
    if min(ranks) < 2:
        return None
    if axis == len(shape) - 2:
        return [ranks[0] - 2, None]
    if axis == len(shape) - 1:
        return [None, ranks[1] - 1]
    found = [_aligned(t, axis, shape, scope) for t in node.inputs]
    return None if -1 in found else [None if a == _ALL else a for a in found]


def _view(node: gs.Node, pick: Pick, axis: int, build: Build, scope: Scope) -> gs.Tensor | None:
    """Through a view, if there is work to go in front of before it."""
    outer, inner = (scope.value(t).shape for t in (node.outputs[0], node.inputs[0]))
    if outer is None or inner is None or scope.editor.only_use(node.inputs[0]) is None:
        return None
    count = pick.count(outer[axis])
    target = None if count is None else _target([*outer[:axis], count, *outer[axis + 1 :]])
    if target is None:
        return None
    at = _kept(outer, axis, inner)
    if at is None:
        part = _rows(node, pick, axis, outer, build, scope)
    else:
        part = _early(node.inputs[0], pick, at, build, scope)
    return None if part is None else build("Reshape", part, build.constant(target))


def _kept(outer: Sequence[Dim], axis: int, inner: Sequence[Dim]) -> int | None:
    """Where an axis of a reshaped value stood before; None where it was merged or split."""
    ahead = prod(outer[:axis])
    for at, dim in enumerate(inner):
        if same_dims([dim, prod(inner[:at])], [outer[axis], ahead]):
            return at
    return None


def _target(shape: Sequence[Dim]) -> np.ndarray | None:
    """Constants that make Reshape give a shape without zeros and with one free dimension at most."""
    target = [d if isinstance(d, int) else -1 for d in shape]
    return np.array(target, np.int64) if target.count(-1) < 2 and 0 not in target else None


def _rows(node: gs.Node, pick: Pick, axis: int, outer: Sequence[Dim], build: Build, scope: Scope) -> gs.Tensor | None:
    """Through a Gemm for which leading axes were made one, of which `node` makes several again."""
    gemm = scope.editor.producer(node.inputs[0])
    if gemm is None or not is_op(gemm, "Gemm") or gemm.attrs.get("transA", 0) or axis >= len(outer) - 1:
        return None
    merge = scope.editor.producer(gemm.inputs[0])
    if merge is None or not is_op(merge, "Reshape") or scope.editor.only_use(gemm.inputs[0]) is None:
        return None
    inner, flat = (scope.value(t).shape for t in (merge.inputs[0], gemm.inputs[0]))
    if inner is None or flat is None or not isinstance(flat[1], int) or flat[1] < 1:
        return None
    cell = prod(inner[len(outer) - 1 :])  # what stands at one place of the leading axes is one row
    if not same_dims([*inner[: len(outer) - 1], cell], [*outer[:-1], flat[1]]):
        return None
    if any(_aligned(t, 0, [2, outer[-1]], scope) != _ALL for t in gemm.inputs[2:]):
        return None
    part = write(build, scope, merge.inputs[0], pick, axis)
    part = build("Reshape", part, build.constant(np.array([-1, flat[1]], np.int64)))
    return build("Gemm", part, *(t if t.name else None for t in gemm.inputs[1:]), **gemm.attrs)
