"""BatchNormalization behind a convolution goes into its weights.

BatchNormalization at inference is y = s·(conv(x, w) + b − m) + t a channel, with s = scale / √(var + ε), t = B. A
convolution is linear in its weights, so y = conv(x, s·w) + s·(b − m) + t: one node, whatever the padding.

The new weights are computed in double precision and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 1
ROOTS = ("BatchNormalization",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,3,3] x) => (float[1,1,3,3] y)
<float[1,1,1,1] w = {2}, float[1] b = {1}, float[1] s = {3}, float[1] t = {5}, float[1] m = {4}, float[1] v = {4}>
{ c = Conv(x, w, b)  y = BatchNormalization <epsilon = 0.0> (c, s, t, m, v) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,3,3] x) => (float[1,1,3,3] y) <float[1,1,1,1] w = {3}, float[1] b = {0.5}> { y = Conv(x, w, b) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    conv = scope.editor.producer(node.inputs[0]) if node.inputs else None
    if conv is None or not is_op(conv, "Conv") or node.inputs[0] is not conv.outputs[0]:
        return None
    if node.attrs.get("training_mode", 0) or any(t.name for t in node.outputs[1:]):
        raise NotLegal("BatchNormalization is in training mode")
    given = [scope.constant(t) for t in (conv.inputs[1], *node.inputs[1:5])]
    bias = scope.constant(conv.inputs[2]) if len(conv.inputs) > 2 and conv.inputs[2].name else np.zeros(1, np.float32)
    if bias is None or any(a is None for a in given):
        raise NotLegal("a weight of the convolution or of BatchNormalization is not constant")
    weight, scale, shift, mean, variance = (a for a in given if a is not None)
    if weight.dtype not in (np.float32, np.float64) or weight.shape[0] != scale.size:
        raise NotLegal(f"weights of dtype {weight.dtype}")
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + node.attrs.get("epsilon", 1e-5))
    new_weight = (weight * factor.reshape(-1, *[1] * (weight.ndim - 1))).astype(weight.dtype)
    new_bias = ((bias - mean.astype(np.float64)) * factor + shift).astype(weight.dtype)
    if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
        raise NotLegal("the weights would not be finite")
    build = Build(scope, conv)
    build(
        "Conv", conv.inputs[0], build.constant(new_weight), build.constant(new_bias), out=node.outputs[0], **conv.attrs
    )
    return build.rewrite()
