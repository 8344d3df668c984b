"""PRelu whose slopes are all equal is LeakyRelu, which onnxruntime runs inside the convolution before it.

prelu(x) = x where x ≥ 0, s·x elsewhere = leakyrelu(x) with alpha = s, for every channel if there is one s. The result
is the same bit for bit: alpha is a float32 attribute, and so a float32 or float16 slope exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 1
ROOTS = ("PRelu",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float[2,1,1] s = {0.25, 0.25}> { y = PRelu(x, s) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) { y = LeakyRelu <alpha = 0.25> (x) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    if len(node.inputs) != 2:
        return None
    slope = scope.constant(node.inputs[1])
    if slope is None or not slope.size or slope.dtype not in (np.float32, np.float16):
        return None
    alpha = slope.flat[0]
    if not (slope == alpha).all() or not np.isfinite(alpha):
        return None
    shape = scope.value(node.inputs[0]).shape
    wide = [i for i in range(-slope.ndim, 0) if slope.shape[i] != 1]
    if slope.ndim and (shape is None or len(shape) < slope.ndim or any(shape[i] != slope.shape[i] for i in wide)):
        raise NotLegal("the slopes may be more than what they are of")  # runtimes broadcast then
    build = Build(scope, node)
    build("LeakyRelu", node.inputs[0], out=node.outputs[0], alpha=float(alpha))
    return build.rewrite()
