"""Views of a view become one: reshape(reshape(x, s), t) = reshape(x, t).

Reshape, Squeeze, Unsqueeze and Flatten keep the elements and their order, so only the last shape counts. It is written
anew for the first input: numbers, 0 for a dimension that the input has at the same place, at most one −1. (What the
old target says cannot be taken over: its 0 copies a dimension of the shape between.) A chain that leads back to the
input's own shape disappears. Two Unsqueeze in a row stay: they cost nothing, and onnxruntime looks for them in front of
an attention mask. The values are the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._known import same_dims
from onnxfuse.rules._target_shape import reshape_target

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
ROOTS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,3,4] x) => (float[N,6,4] y)
<int64[1] one = {1}, int64[4] s = {0, 3, 2, 4}, int64[3] t = {0, 6, 4}>
{ a = Reshape(x, s)  b = Unsqueeze(a, one)  c = Flatten <axis = 1> (b)  d = Reshape(c, t)  y = Relu(d) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,3,4] x) => (float[N,6,4] y) <int64[3] s = {0, 6, 4}> { d = Reshape(x, s)  y = Relu(d) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    inner = scope.editor.producer(node.inputs[0]) if node.inputs else None
    if inner is None or not is_op(inner, *ROOTS):
        return None
    if is_op(node, "Unsqueeze") and is_op(inner, "Unsqueeze"):
        return None
    source = inner.inputs[0]
    shape, wanted = scope.value(source).shape, scope.value(node.outputs[0]).shape
    if shape is None or wanted is None:
        return None
    if same_dims(shape, wanted) and not scope.editor.is_output(node.outputs[0]):
        return Rewrite(same=((node.outputs[0], source),))
    target = reshape_target(shape, wanted)
    if target is None:
        raise NotLegal(f"the target {list(wanted)} of an input {list(shape)} is no constant")
    build = Build(scope, node)
    build("Reshape", source, build.constant(np.array(target, np.int64)), out=node.outputs[0])
    return build.rewrite()
