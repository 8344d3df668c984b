"""HardSwish recovered from its parts: additions, limits and factors as the exporters write them.

With a·x + b under limits 0 and h, and a factor k,  k·x·clip(a·x + b, 0, h) = k·h·x·clip(a/h·x + b/h, 0, 1), which is
hardswish(x) = x·clip(x/6 + 1/2, 0, 1) where k·h = 1, a/h = 1/6 and b/h = 1/2: x·clip(x + 3, 0, 6)/6, wherever the
division stands, with Clip, Relu and Min, or Min and Max, or HardSigmoid.

The constants are those up to their own rounding. Before opset 14, which brought HardSwish, the result is
x·HardSigmoid(x) with alpha 1/6 and beta 1/2. onnxruntime runs either form behind a convolution in the same kernel
(Conv[HardSwish] in its blocked layout), where the four parts leave that layout: measured 1.5x on the CPU for 1x1
convolution, HardSwish, depthwise convolution over [1,32,56,56]. NaN stays NaN and infinities give what they gave. Where
something divides by the result, digits around x = −3 count, and the parts stay. Only float32 and float16: onnxruntime
has no kernel of HardSigmoid for double on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._elementwise import affine, limits, multiples, same
from onnxfuse.rules._smallness import SMALLNESS, tells_smallness

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 1
ROOTS = ("Mul", "Div")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float three = {3}, float zero = {0}, float six = {6}>
{ a = Add(x, three)  c = Clip(a, zero, six)  m = Mul(x, c)  y = Div(m, six) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,3] x) => (float[1,2,3,3] y) { y = HardSwish(x) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    x = _argument(node, scope)
    if x is None:
        return None
    y, dtype = node.outputs[0], scope.value(x).dtype
    if dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        raise NotLegal("HardSwish is run for float32 and float16 only")
    if tells_smallness(y, scope):
        raise NotLegal(SMALLNESS)
    build = Build(scope, node)
    if scope.supports("HardSwish"):
        build("HardSwish", x, out=y)
        return build.rewrite()
    if any(is_op(scope.editor.producer(t), "HardSigmoid") for t in node.inputs):
        return None  # nothing better
    build("Mul", x, build("HardSigmoid", x, alpha=1 / 6, beta=0.5), out=y)
    return build.rewrite()


def _argument(node: gs.Node, scope: Scope) -> gs.Tensor | None:
    """x where the node makes hardswish(x)."""
    for outer, product in multiples(node.outputs[0], scope):
        mul = scope.editor.producer(product)
        if mul is None or not is_op(mul, "Mul") or len(mul.inputs) != 2:
            continue
        for left, right in (mul.inputs, mul.inputs[::-1]):
            for k1, x in multiples(left, scope):
                for k2, gate in multiples(right, scope):
                    if _is_gate(gate, x, outer * k1 * k2, scope):
                        return x
    return None


def _is_gate(gate: gs.Tensor, x: gs.Tensor, factor: float, scope: Scope) -> bool:
    """Whether factor·gate = clip(x/6 + 1/2, 0, 1)."""
    node = scope.editor.producer(gate)
    if node is None:
        return False
    if is_op(node, "HardSigmoid"):
        slope, shift = float(node.attrs.get("alpha", 0.2)), float(node.attrs.get("beta", 0.5))
        return node.inputs[0] is x and same(factor, 1) and same(slope, 1 / 6) and same(shift, 0.5)
    limited = limits(gate, scope)
    if limited is None:
        return False
    inside, low, high = limited
    line = affine(inside, x, scope)
    return (
        line is not None
        and low == 0
        and high > 0
        and same(factor * high, 1)
        and same(line[0] / high, 1 / 6)
        and same(line[1] / high, 0.5)
    )
