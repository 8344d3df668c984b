"""Relu, Min, Max and Clip one after the other are one Clip, or one Relu, which runtimes run inside a convolution.

clip(x, a, b) = min(max(x, a), b), and limits of limits are limits again: clip(clip(x, a, b), c, d) =
clip(x, clip(a, c, d), clip(b, c, d)), also where the ranges do not meet. max(x, 0) = relu(x). NaN stays NaN; a 0
at a limit of 0 may have another sign.

A Clip without a bound holds infinities at the widest finite number, and so it takes no part with a side that Min or Max
left open: only a chain with two finite bounds becomes a Clip, and only one that lets +∞ through becomes a Relu.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._elementwise import limits

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 1
ROOTS = ("Min", "Max", "Clip", "Relu")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float zero = {0}, float six = {6}> { r = Max(x, zero)  y = Min(r, six) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float zero = {0}, float six = {6}> { y = Clip(x, zero, six) }
"""
_DTYPES: dict[int, type[np.floating[Any]]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.DOUBLE: np.float64,
}
_CLIP_TAKES_DOUBLE = 12  # in onnxruntime
_CLIP_TAKES_INPUTS = 11


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    found = limits(node.outputs[0], scope)
    if found is None:
        return None
    x, low, high = found
    if node.inputs[0] is x and is_op(node, "Clip", "Relu"):
        return None  # it is one already
    dtype = _DTYPES.get(scope.value(x).dtype)
    if dtype is None or (dtype is np.float64 and scope.opset < _CLIP_TAKES_DOUBLE):
        raise NotLegal("onnxruntime has no Clip for this dtype")
    build = Build(scope, node)
    if low == 0 and high == math.inf:
        build("Relu", x, out=node.outputs[0])
    elif not (math.isfinite(low) and math.isfinite(high)):
        return None
    elif scope.opset < _CLIP_TAKES_INPUTS:
        build("Clip", x, out=node.outputs[0], min=low, max=high)
    else:
        build("Clip", x, build.constant(dtype(low)), build.constant(dtype(high)), out=node.outputs[0])
    return build.rewrite()
