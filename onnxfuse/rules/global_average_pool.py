"""The mean over all spatial axes of an image is GlobalAveragePool, which stays in the blocked layout of the CPU.

reduce_mean(x, axes = every axis from 2 on, keepdims) = globalaveragepool(x): one number a channel, as [N,C,1,1].

onnxruntime's CPU provider runs GlobalAveragePool in the layout NCHWc of the convolutions, and reorders the values
before ReduceMean. Measured on EfficientNet-B0 with its 17 of them (1.32, one thread, best of 4 profiles): the means
take 0.37 ms for 0.44 ms, and reordering 1.30 ms for 1.43 ms, of 17 ms; the whole model's ratio, 0.95 to 1.09 from run
to run, is within the noise. A value that is not in that layout would be reordered for the pooling, so it must come from
a convolution. NaN and infinities give what they gave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope
from onnxfuse.rules._blocked import is_blocked

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
MEASURED = ("ort-cpu",)
ROOTS = ("ReduceMean",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,3,3] x) => (float[1,4,1,1] y) <float[4,1,1,1] w = {1, 2, 3, 4}>
{ c = Conv(x, w)  r = Relu(c)  y = ReduceMean <axes = [2, 3]> (r) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,3,3] x) => (float[1,4,1,1] y) <float[4,1,1,1] w = {1, 2, 3, 4}>
{ c = Conv(x, w)  r = Relu(c)  y = GlobalAveragePool(r) }
"""
_IMAGE = 4  # axes of a batch of images


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    axes = node.attrs.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1].name:
        given = scope.constant(node.inputs[1])
        axes = None if given is None else given.reshape(-1).tolist()
    x = node.inputs[0]
    shape = scope.value(x).shape
    if axes is None or shape is None or len(shape) != _IMAGE or sorted(a % _IMAGE for a in axes) != [2, 3]:
        return None
    if scope.target.name not in MEASURED:
        return None  # the same kernel, or as long
    if not node.attrs.get("keepdims", 1):
        raise NotLegal("the mean drops its axes")
    if not is_blocked(x, scope):
        raise NotLegal("what is averaged does not come from a convolution, in the blocked layout")
    build = Build(scope, node)
    build("GlobalAveragePool", x, out=node.outputs[0])
    return build.rewrite()
