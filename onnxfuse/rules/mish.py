"""Mish without softplus and tanh: one exponential and a division, which the CPU computes three times as fast.

mish(x) = x·tanh(log(1 + eˣ)), and with e = eˣ and n = e·(e + 2),
tanh(log(1 + e)) = ((1 + e)² - 1)/((1 + e)² + 1) = n/(n + 2).

From x = 9 on the quotient is 1 in float32, so the exponential is taken of min(x, 20) and n stays finite. Nothing is
subtracted: the relative error is some roundings for every x (2.5e-7 over [-20, 100], against 4.1e-7 of the parts in
onnxruntime). NaN and infinities give what they gave.

Measured (onnxruntime 1.32, CPU, one thread, [1,64,56,56], processor time, medians of paired ratios): 3.1x against the
three parts and the operator Mish of opset 18, which is expanded to them; 2.5x between two 1x1 convolutions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._elementwise import scalar

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
MEASURED = ("ort-cpu",)
ROOTS = ("Mul", "Mish")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) { s = Softplus(x)  t = Tanh(s)  y = Mul(x, t) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float limit = {20}, float two = {2}>
{ m = Min(x, limit)  e = Exp(m)  f = Add(e, two)  n = Mul(e, f)  d = Add(n, two)  q = Div(n, d)  y = Mul(x, q) }
"""
_LEAST_OPSET = 8  # Min broadcasts
_LIMIT = 20


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    x = node.inputs[0] if is_op(node, "Mish") else _argument(node, scope)
    if x is None or scope.opset < _LEAST_OPSET or scope.target.name not in MEASURED:
        return None
    if scope.value(x).dtype != TensorProto.FLOAT:
        raise NotLegal("Mish is computed otherwise in float32 only")
    build = Build(scope, node)
    two = build.constant(np.float32(2))
    power = build("Exp", build("Min", x, build.constant(np.float32(_LIMIT))))
    n = build("Mul", power, build("Add", power, two))
    build("Mul", x, build("Div", n, build("Add", n, two)), out=node.outputs[0])
    return build.rewrite()


def _argument(node: gs.Node, scope: Scope) -> gs.Tensor | None:
    """x where the product is x·tanh(softplus(x))."""
    for x, gate in (node.inputs, node.inputs[::-1]):
        tanh = scope.editor.producer(gate)
        inner = scope.editor.producer(tanh.inputs[0]) if tanh is not None and is_op(tanh, "Tanh") else None
        if inner is not None and _softplus_argument(inner, scope) is x:
            return x
    return None


def _softplus_argument(node: gs.Node, scope: Scope) -> gs.Tensor | None:
    """x where the node makes log(1 + eˣ)."""
    if is_op(node, "Softplus"):
        return node.inputs[0]
    total = scope.editor.producer(node.inputs[0]) if is_op(node, "Log") else None
    if total is None or not is_op(total, "Add"):
        return None
    for power, one in (total.inputs, total.inputs[::-1]):
        exp = scope.editor.producer(power)
        if exp is not None and is_op(exp, "Exp") and scalar(one, power, scope) == 1:
            return exp.inputs[0]
    return None
