"""HardSigmoid recovered from its parts.

With a factor k and limits 0 and h where k·h = 1,  k·clip(a·x + b, 0, h) = clip(k·a·x + k·b, 0, 1), which is
hardsigmoid(x) = max(0, min(1, alpha·x + beta)) with alpha = k·a, beta = k·b: clip(x + 3, 0, 6)/6 has alpha = 1/6 and
beta = 1/2, clip(0.2·x + 0.5, 0, 1) is the operator's default.

A value that others read as well is not looked through: it is computed anyway, and x·hardsigmoid(x) must keep its x.
Where something divides by the result, and with constants above 1000, the parts stay: x + 3 is exact where x is near −3.
onnxruntime on the CPU runs HardSigmoid inside the convolution before it, in its blocked layout; the parts leave that.
Only float32 and float16: onnxruntime has no kernel of HardSigmoid for double on the CPU. NaN stays NaN and infinities
give what they gave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope
from onnxfuse.rules._elementwise import limits, multiples, same, single_affine
from onnxfuse.rules._smallness import SMALLNESS, tells_smallness

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 1
ROOTS = ("Clip", "Min", "Max", "Mul", "Div")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float three = {3}, float zero = {0}, float six = {6}>
{ a = Add(x, three)  c = Clip(a, zero, six)  y = Div(c, six) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) { y = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    for factor, limited in multiples(node.outputs[0], scope):
        found = limits(limited, scope)
        if found is None:
            continue
        inside, low, high = found
        if low != 0 or not same(factor * high, 1):
            return None
        x, slope, shift = single_affine(inside, scope)
        if slope <= 0 or (x is inside and limited is node.outputs[0]):
            return None  # limits alone
        if scope.value(x).dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            raise NotLegal("HardSigmoid is run for float32 and float16 only")
        if tells_smallness(node.outputs[0], scope):
            raise NotLegal(SMALLNESS)
        build = Build(scope, node)
        build("HardSigmoid", x, out=node.outputs[0], alpha=factor * slope, beta=factor * shift)
        return build.rewrite()
    return None
