"""The computed target of a Reshape or Expand becomes a constant: reshape(x, s) = reshape(x, [0, −1, 768]).

Exporters compute the target with Shape, Gather, Mul and Concat. Where all its dimensions are known but for those that
equal the input's at the same place (0 in a Reshape, 1 in an Expand) and for one more (−1), it is a constant in every
binding of the free dims, and the whole computation goes. Not where a dimension may be 0: there 0 and −1 mean something
else. Values are the same bits; the target is not computed in every run. On all targets whatever the price says, since a
Reshape of a constant never does more (onnxruntime, swin_t: 1,126 fewer nodes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._known import MEASURED as MEASURED
from onnxfuse.rules._known import ints
from onnxfuse.rules._target_shape import expand_target, reshape_target

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
ROOTS = ("Reshape", "Expand")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,5,4,6] x) => (float[N,4,30] y)
<int64[1] four = {4}, int64[1] thirty = {30}>
{ n = Shape <start = 0, end = 1> (x)  r = Concat <axis = 0> (n, four, thirty)  y = Reshape(x, r) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,5,4,6] x) => (float[N,4,30] y) <int64[3] r = {0, 4, 30}> { y = Reshape(x, r) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    if len(node.inputs) != 2 or scope.constant(node.inputs[1]) is not None or ints(node.inputs[1], scope) is not None:
        return None  # what is known in full is folded
    data = scope.value(node.inputs[1]).data
    shape, wanted = scope.value(node.inputs[0]).shape, scope.value(node.outputs[0]).shape
    if shape is None or wanted is None or data is None:
        return None
    target = (reshape_target if is_op(node, "Reshape") else expand_target)(shape, wanted)
    if target is None:
        raise NotLegal(f"the target {list(wanted)} of an input {list(shape)} is no constant")
    kept = len(target) == len(shape) and all(t in (0, -1, d) for t, d in zip(target, shape, strict=True))
    if is_op(node, "Reshape") and kept:
        return Rewrite(same=((node.outputs[0], node.inputs[0]),), alike=True)  # where all others stay, −1 stays as well
    build = Build(scope, node)
    build(node.op, node.inputs[0], build.constant(np.array(target, np.int64)), out=node.outputs[0])
    return build.rewrite()
