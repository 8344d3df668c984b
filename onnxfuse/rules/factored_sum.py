"""x + x·g with a smaller g is one product: the 1 is added to g.

x + x·g = x·(g + 1), where g has one element for many of x: the gate of a squeeze-and-excite block with a shortcut. The
sum over all of x disappears, a sum over g comes. NaN of x or g stays NaN; for x = ±∞ and g ≤ 0 the sum was NaN (∞ − ∞,
∞·0), and the product may be ±∞.

Measured on ppocrv4_det (8 such blocks), onnxruntime 1.32, one thread of AVX-512: 1.02x of the whole model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from onnxfuse.patterns import Build, Rewrite, Scope, is_op
from onnxfuse.rules._known import same_dims

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
ROOTS = ("Add",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,8,8] x, float[1,2,1,1] g) => (float[1,2,8,8] y) { m = Mul(x, g)  y = Add(x, m) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,8,8] x, float[1,2,1,1] g) => (float[1,2,8,8] y) <float one = {1}> { h = Add(g, one)  y = Mul(x, h) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    for x, product in (node.inputs, node.inputs[::-1]):
        mul = scope.editor.producer(product)
        if mul is None or not is_op(mul, "Mul") or x is product or all(t is not x for t in mul.inputs):
            continue
        gate = mul.inputs[1] if mul.inputs[0] is x else mul.inputs[0]
        value = scope.value(x)
        if same_dims(scope.value(gate).shape, value.shape) or value.dtype not in (
            TensorProto.FLOAT,
            TensorProto.DOUBLE,
        ):
            return None
        if not same_dims(value.shape, scope.value(product).shape) or scope.editor.only_use(product) is None:
            return None
        build = Build(scope, mul)
        one = build.constant(np.array(1, helper.tensor_dtype_to_np_dtype(value.dtype)))
        build("Mul", x, build("Add", gate, one), out=node.outputs[0])
        return build.rewrite()
    return None
