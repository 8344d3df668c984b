"""A non-decreasing function of each element goes behind the MaxPool that reads it, where fewer elements are left.

f(max(a, b)) = max(f(a), f(b)) for every f that never falls: LeakyRelu and Elu with alpha >= 0, Clip, Sigmoid, Tanh and
their like. The exceptions are those of `relu_maxpool`: a window wholly in padding, and the Indices output. Each f here
gives NaN for NaN alone, so MaxPool meets NaN where it met it; of a window of nothing but NaN or -inf, MaxPool makes the
lowest finite number, then or before.
Relu is `relu_maxpool`'s, and what the runtime fuses into the convolution in front stays there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._pool import covered_maxima

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
ROOTS = ("MaxPool", "GlobalMaxPool")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,4,4] x) => (float[1,3,2,2] y)
{ a = LeakyRelu <alpha = 0.1> (x)  y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,4,4] x) => (float[1,3,2,2] y)
{ p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)  y = LeakyRelu <alpha = 0.1> (p) }
"""
_ALPHA = {"Celu": 1.0, "Elu": 1.0, "HardSigmoid": 0.2, "LeakyRelu": 0.01}  # where there is a slope, its default
_RISING = (*_ALPHA, "Clip", "Erf", "Exp", "Sigmoid", "Softplus", "Tanh")


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    function = scope.editor.producer(node.inputs[0])
    if function is None or not is_op(function, *_RISING):
        return None
    alpha = function.attrs.get("alpha", _ALPHA.get(function.op, 1.0))
    if alpha < 0 or (alpha == 0 and function.op != "Elu"):  # a slope of 0 gives NaN for an infinity
        raise NotLegal(f"{function.op} falls somewhere, or has a slope of 0: its alpha is {alpha:g}")
    scope.sole_consumer(function)
    if is_op(node, "MaxPool"):
        covered_maxima(node, scope, function.op)
    build = Build(scope, function)
    pooled = build(node.op, function.inputs[0], **node.attrs)
    build(function.op, pooled, *function.inputs[1:], out=node.outputs[0], **function.attrs)
    return build.rewrite()
