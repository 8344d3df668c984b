"""A Transpose that only moves axes of length 1 becomes a view: transpose([N, 1, C] → [N, C, 1]) = reshape.

The elements lie in memory by the axes that are longer than 1; where these keep their order, nothing moves. In
onnxruntime such a Transpose still copies the whole tensor, and a Reshape takes no time (measured on 64 MB). Only where
the shape can be written as a constant target: see `view_chain`. The values are the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope
from onnxfuse.rules._known import perm_of
from onnxfuse.rules._target_shape import reshape_target

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
ROOTS = ("Transpose",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,1,5,4] x) => (float[N,5,4,1] y) { y = Transpose <perm = [0, 2, 3, 1]> (x) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,1,5,4] x) => (float[N,5,4,1] y) <int64[4] s = {0, 5, 4, 1}> { y = Reshape(x, s) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    shape, perm = scope.value(node.inputs[0]).shape, perm_of(node, scope)
    if shape is None or perm is None or perm == sorted(perm):
        return None
    long = [axis for axis in perm if shape[axis] != 1]
    if long != sorted(long):
        return None
    target = reshape_target(shape, [shape[axis] for axis in perm])
    if target is None:
        raise NotLegal(f"the target of an input {list(shape)} is no constant")
    build = Build(scope, node)
    build("Reshape", node.inputs[0], build.constant(np.array(target, np.int64)), out=node.outputs[0])
    return build.rewrite()
