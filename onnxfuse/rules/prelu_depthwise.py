"""PRelu behind a convolution becomes two depthwise convolutions, which stay in the blocked layout of the CPU.

prelu(x) = x where x ≥ 0, s·x elsewhere = x + (1-s)·relu(-x), a channel with the slope s. The products with -1 and 1-s
are 1x1 convolutions of one channel each. Rounding moves the result by a unit in the last place of x; NaN stays NaN, +∞
stays, and -∞ gives NaN instead of s·(-∞).

onnxruntime runs PRelu outside of its blocked layout (NCHWc), so that the values are reordered before and behind it;
of the new nodes it makes Conv[Relu] and a convolution that adds the sum. Measured with one Relu more on the CPU
(1.32, one thread, AVX-512, processor time, medians of paired ratios, a convolution before and pooling or a convolution
behind): 1.56x with 32 channels of 46x46, 1.41x with 64 of 21x21, 1.44x with 16 of 116x116, 1.20x with 32 of 114x114,
1.20x with 128 of 3x3, 1.15x to 1.33x with 8, 12, 24, 40 and 72. With 10 channels, which onnxruntime keeps out of the
layout, it was 1.07x to 1.16x, and is not made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxfuse.patterns import Build, Rewrite, Scope, is_op
from onnxfuse.rules._blocked import is_blocked
from onnxfuse.rules._prelu import as_depthwise, slopes_of

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
MEASURED = ("ort-cpu",)
ROOTS = ("PRelu",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,3,3] x) => (float[1,16,3,3] z)
<float[16,1,1,1] w = {1,-1,2,-2,3,-3,4,-4,5,-5,6,-6,7,-7,8,-8},
 float[16,1,1] s = {1,2,3,4,5,6,7,8,-1,-2,-3,-4,-5,-6,-7,0.5}>
{ c = Conv <kernel_shape = [1, 1]> (x, w)  y = PRelu(c, s)  z = MaxPool <kernel_shape = [1, 1]> (y) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,3,3] x) => (float[1,16,3,3] z)
<float[16,1,1,1] w = {1,-1,2,-2,3,-3,4,-4,5,-5,6,-6,7,-7,8,-8},
 float[16,1,1,1] m = {-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1},
 float[16,1,1,1] t = {0,-1,-2,-3,-4,-5,-6,-7,2,3,4,5,6,7,8,0.5}>
{ c = Conv <kernel_shape = [1, 1]> (x, w)
  n = Conv <kernel_shape = [1, 1], group = 16> (c, m)
  r = Relu(n)
  q = Conv <kernel_shape = [1, 1], group = 16> (r, t)
  y = Add(c, q)
  z = MaxPool <kernel_shape = [1, 1]> (y) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    if len(node.inputs) != 2 or scope.target.name not in MEASURED:
        return None
    x, y = node.inputs[0], node.outputs[0]
    shape = scope.value(x).shape
    if not is_blocked(x, scope) or shape is None:
        return None
    if not any(is_op(n, "Conv", "MaxPool", "AveragePool", "GlobalAveragePool") for n in scope.editor.consumers(y)):
        return None
    channels = shape[1]
    slopes = slopes_of(node, channels if isinstance(channels, int) else 0, scope)
    build = Build(scope, node)
    as_depthwise(build, x, slopes, y)
    return build.rewrite()
