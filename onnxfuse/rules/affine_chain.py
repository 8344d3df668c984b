"""Scales and shifts by constants behind one another are one scale and one shift.

(x·a + b)·c + d = x·(a·c) + (b·c + d), for Mul, Add, Sub, Div, Neg and BatchNormalization with a number or one constant
along the same axis: at most one Mul and one Add are left, one BatchNormalization (mean 0, variance 1, ε 0) where one
was among them, and nothing where x comes back. The constants are computed in double precision and rounded once; sums
in which large constants cancel are left alone (x + 1.5·2²³ − 1.5·2²³ rounds to integers), and so is what a GELU or a
normalization ends with, which runtimes know as a whole. A constant above 1000 is not taken behind a factor: x − t is
exact where x is near t. NaN and infinities give what they gave; an overflow between
two of the nodes may vanish, and one may appear only where the result is near the largest number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._affine import AFFINE, chain, dtype_of, rounded, write
from onnxfuse.rules._smallness import tells_zeros_apart

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
ROOTS = AFFINE
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x) => (float[2,3] y) <float a = {2}, float[3] b = {1, 2, 3}, float c = {4}, float d = {5}>
{ h = Mul(x, a)  i = Add(b, h)  j = Div(i, c)  y = Sub(d, j) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x) => (float[2,3] y) <float a = {-0.5}, float[3] b = {4.75, 4.5, 4.25}> { m = Mul(x, a)  y = Add(m, b) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    found = chain(node, scope)
    if found is None or len(found[2]) < 2:
        return None
    x, affine, nodes = found
    if not affine.shifts and any(is_op(n, "Add", "Sub") for n in nodes) and tells_zeros_apart(node.outputs[0], scope):
        raise NotLegal("the sign of a zero counts where it is divided by")
    build = Build(scope, node)
    if not affine.scales and not affine.shifts:
        return build.rewrite((node.outputs[0], x))
    if any(is_op(n, "BatchNormalization") for n in nodes):
        norm = next(n for n in nodes if is_op(n, "BatchNormalization"))
        size = norm_size(norm, scope)
        given = [*affine.along(1, size), np.zeros(size), np.ones(size)]
        constants = [build.constant(rounded(a, dtype_of(x, scope))) for a in given]
        build("BatchNormalization", x, *constants, out=node.outputs[0], epsilon=0.0)
        return build.rewrite()
    if affine.scales + affine.shifts >= len(nodes):
        return None
    write(build, x, affine, scope, node.outputs[0])
    return build.rewrite()


def norm_size(norm: gs.Node, scope: Scope) -> int:
    """Channels of a BatchNormalization."""
    scale = scope.constant(norm.inputs[1])
    return 0 if scale is None else scale.size
