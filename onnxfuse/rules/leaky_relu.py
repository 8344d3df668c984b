"""LeakyRelu recovered from a maximum or minimum, which runtimes do not run inside a convolution.

leakyrelu(x) = x where x ≥ 0, a·x elsewhere = max(x, a·x) for 0 < a ≤ 1, = min(x, a·x) for a ≥ 1. NaN stays NaN and
infinities give what they gave; a = 0 stays, since 0·∞ is NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from onnxfuse.patterns import Build, Rewrite, Scope
from onnxfuse.rules._elementwise import multiples

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 1
ROOTS = ("Max", "Min")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float a = {0.25}> { t = Mul(x, a)  y = Max(x, t) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) { y = LeakyRelu <alpha = 0.25> (x) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    if len(node.inputs) != 2:
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        if scope.value(x).dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            continue
        for alpha, t in multiples(other, scope):
            if t is x and other is not x and (0 < alpha <= 1 if node.op == "Max" else alpha >= 1):
                build = Build(scope, node)
                build("LeakyRelu", x, out=node.outputs[0], alpha=alpha)
                return build.rewrite()
    return None
