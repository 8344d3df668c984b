"""Transposes around element-wise operators cancel: transpose(f(transpose(x, p), transpose(y, p)), p⁻¹) = f(x, y).

An element-wise operator computes each element by itself, so it may be done in another order of the axes, if all its
inputs are brought into that order. Looked at is the whole tree of element-wise operators above a Transpose: each value
that comes in is the result of the opposite Transpose, or a constant, which is permuted ahead of time (one of fewer axes
is aligned with the last ones first). Values that others read stay; then it does not pay. Each element is computed as
before, NaN included.

onnxruntime moves Transposes itself on the CPU, which sums that are computed twice keep it from: two blocks of a
ConvNeXt took 15 nodes instead of 12 and 1.10x to 1.13x as long, so that there nothing is computed twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._known import perm_of

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
_UNARY = (
    "Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu", "Selu", "Softplus", "Softsign", "Exp",
    "Log", "Sqrt", "Neg", "Abs", "Erf", "Reciprocal", "Floor", "Ceil", "Cast", "Clip", "Gelu", "Mish", "Not",
)  # fmt: skip
_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "PRelu")
_MOST = 32  # operators of a tree
_ONCE = ("ort-cpu",)  # targets that move Transposes themselves
ROOTS = ("Transpose",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,3,4] x, float[N,2,3,4] z) => (float[N,2,3,4] y)
<float[2] c = {2, 3}>
{ a = Transpose <perm = [0, 2, 3, 1]> (x)  b = Relu(a)  d = Mul(b, c)  e = Transpose <perm = [0, 2, 3, 1]> (z)
  f = Add(d, e)  y = Transpose <perm = [0, 3, 1, 2]> (f) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,3,4] x, float[N,2,3,4] z) => (float[N,2,3,4] y)
<float[1,2,1,1] c = {2, 3}>
{ b = Relu(x)  d = Mul(b, c)  y = Add(d, z) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    perm, top = perm_of(node, scope), scope.editor.producer(node.inputs[0])
    if perm is None or top is None or not is_op(top, *_UNARY, *_BINARY) or not _lead(top, scope):
        return None
    tree = _tree(top, scope, perm)
    if tree is None:
        return None
    if scope.target.name in _ONCE:
        _check_once(tree, node, scope)
    build, made = Build(scope, node), dict[int, "gs.Tensor"]()
    for n in tree:
        inputs = []
        for i, t in enumerate(n.inputs):
            inputs.append(made[id(t)] if id(t) in made else _input(n, i, scope, perm, build))
        last = n is top
        made[id(n.outputs[0])] = build(n.op, *inputs, out=node.outputs[0] if last else None, **n.attrs)
    return build.rewrite()


def _lead(node: gs.Node, scope: Scope) -> bool:
    """Whether some way up through element-wise operators ends at a Transpose: the quick look before the whole tree."""
    for _ in range(_MOST):
        above = [p for t in node.inputs if (p := scope.editor.producer(t)) is not None]
        if any(is_op(p, "Transpose") for p in above):
            return True
        node = next((p for p in above if is_op(p, *_UNARY, *_BINARY)), None)
        if node is None:
            return False
    return False


def _tree(top: gs.Node, scope: Scope, perm: list[int]) -> list[gs.Node] | None:
    """The element-wise operators, producers first; None where a value that comes in is in another order."""
    found: dict[int, gs.Node] = {}
    todo = [(top, False)]
    while todo:
        node, ready = todo.pop()
        if ready:
            found[id(node)] = node
            continue
        if id(node) in found:
            continue
        if (
            len(found) + len(todo) > _MOST
            or len(node.outputs) != 1
            or "axis" in node.attrs
            or "broadcast" in node.attrs
        ):
            return None
        todo.append((node, True))
        for i, t in enumerate(node.inputs):
            maker = scope.editor.producer(t)
            if not t.name or _parameter(node, i) or scope.constant(t) is not None:
                continue
            if maker is None:
                return None
            if is_op(maker, "Transpose"):
                other = perm_of(maker, scope)
                if other is None or len(other) != len(perm) or [other[k] for k in perm] != sorted(perm):
                    return None
            elif is_op(maker, *_UNARY, *_BINARY):
                shape = scope.value(t).shape
                if shape is None or len(shape) != len(perm):
                    return None
                todo.append((maker, False))
            else:
                return None
    return list(found.values())


def _check_once(tree: list[gs.Node], node: gs.Node, scope: Scope) -> None:
    """Raises NotLegal where somebody besides the tree and the Transpose behind it reads a value of the tree."""
    inside = {id(n) for n in (*tree, node)}
    for tensor in (n.outputs[0] for n in tree):
        if scope.editor.is_output(tensor) or any(id(n) not in inside for n in scope.editor.consumers(tensor)):
            raise NotLegal(f"'{tensor.name}' has other readers and would be computed twice")


def _parameter(node: gs.Node, index: int) -> bool:
    """Whether an input is no tensor of elements: the bounds of a Clip."""
    return node.op == "Clip" and index > 0


def _input(node: gs.Node, index: int, scope: Scope, perm: list[int], build: Build) -> gs.Tensor | None:
    tensor = node.inputs[index]
    if not tensor.name:
        return None
    if _parameter(node, index):
        return tensor
    maker = scope.editor.producer(tensor)
    if maker is not None and is_op(maker, "Transpose") and scope.constant(tensor) is None:
        return maker.inputs[0]
    array = scope.constant(tensor)
    assert array is not None  # looked at before
    if array.ndim > len(perm):
        raise NotLegal(f"the constant '{tensor.name}' has more axes than the value")
    if array.size == 1 and array.ndim <= len(perm):
        return tensor
    return build.constant(
        np.ascontiguousarray(array.reshape((1,) * (len(perm) - array.ndim) + array.shape).transpose(perm))
    )
