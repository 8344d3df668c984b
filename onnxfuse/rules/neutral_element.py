"""Arithmetic that changes nothing goes: x·1 = x, x/1 = x, x + 0 = x, x − 0 = x, x¹ = x, −(−x) = x.

The constant may have any shape that does not widen x, and stand on either side where the operator commutes. NaN and
infinities stay. x + 0 turns −0 into 0, and without it −0 stays: equal numbers, which differ in the sign of 1/x alone;
the addition stays where something near divides by it. Integers are as exact as floats; each of these nodes copies the
whole tensor. A scale of ones and a shift of zeros behind a normalization in parts stay: runtimes know it by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._known import same_dims
from onnxfuse.rules._norm import ends_norm
from onnxfuse.rules._smallness import tells_zeros_apart

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
ROOTS = ("Mul", "Div", "Add", "Sub", "Pow", "Neg")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3] x) => (float[N,3] y) <float one = {1}, float[3] zero = {0, 0, 0}, float[1] two = {1}>
{ a = Abs(x)  b = Mul(one, a)  c = Add(b, zero)  d = Div(c, two)  e = Sub(d, zero)  f = Pow(e, one)  h = Neg(f)
  i = Neg(h)  y = Sqrt(i) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3] x) => (float[N,3] y) { a = Abs(x)  y = Sqrt(a) }
"""
_NEUTRAL = {"Mul": 1, "Div": 1, "Pow": 1, "Add": 0, "Sub": 0}
_COMMUTES = ("Mul", "Add")


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    y = node.outputs[0]
    if node.op == "Neg":
        inner = scope.editor.producer(node.inputs[0])
        return Rewrite(same=((y, inner.inputs[0]),), alike=True) if inner is not None and is_op(inner, "Neg") else None
    if len(node.inputs) != 2:
        return None
    for index in (1, 0) if node.op in _COMMUTES else (1,):
        x, c = node.inputs[1 - index], node.inputs[index]
        if not scope.value(x).constant and _is_all(c, _NEUTRAL[node.op], scope):
            if ends_norm(x, scope):
                raise NotLegal("a runtime may know the normalization by its scale and shift")
            return _without(node, x, c, scope)
    return None


def _is_all(c: gs.Tensor, number: int, scope: Scope) -> bool:
    """Whether a tensor is a constant with nothing but this number in it. A large one is not even read."""
    value = scope.value(c)
    if not value.constant or value.shape is None or sum(d != 1 for d in value.shape) > 1:
        return False
    array = scope.constant(c)
    return array is not None and array.size > 0 and array.dtype.kind in "fiuV" and bool(np.all(array == number))


def _without(node: gs.Node, x: gs.Tensor, c: gs.Tensor, scope: Scope) -> Rewrite:
    before, after, constant = scope.value(x), scope.value(node.outputs[0]), scope.value(c)
    fits = constant.shape == () or same_dims(before.shape, after.shape)
    if not fits and before.shape is not None and constant.shape is not None:
        fits = len(constant.shape) <= len(before.shape) and all(d == 1 for d in constant.shape)
    if not fits or not before.dtype or before.dtype != after.dtype:
        raise NotLegal("the constant widens the value, or may do so")
    if _loses_a_sign(node, c, scope) and tells_zeros_apart(node.outputs[0], scope):
        raise NotLegal("the sign of a zero counts where it is divided by")
    return Rewrite(same=((node.outputs[0], x),), alike=True)


def _loses_a_sign(node: gs.Node, c: gs.Tensor, scope: Scope) -> bool:
    """Whether −0 becomes 0: in −0 + 0 and −0 − (−0)."""
    array = scope.constant(c) if node.op in ("Add", "Sub") else None
    return array is not None and bool(np.any(np.signbit(array.astype(np.float64)) == (node.op == "Sub")))
