"""A Transpose of a Transpose becomes one, or none: transpose(transpose(x, p), q) = transpose(x, p[q]).

Axis i of the result is axis q[i] of the value between, which is axis p[q[i]] of x. Where that is i for every axis, x
itself stands for the result. Each Transpose that goes saves a pass over the tensor. The values are the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxfuse.patterns import Build, Rewrite, Scope, is_op
from onnxfuse.rules._known import perm_of

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
ROOTS = ("Transpose",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,3] x) => (float[3,N,2] y)
{ a = Transpose <perm = [1, 2, 0]> (x)  b = Transpose <perm = [1, 2, 0]> (a)  y = Relu(b) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,3] x) => (float[3,N,2] y) { b = Transpose <perm = [2, 0, 1]> (x)  y = Relu(b) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    inner = scope.editor.producer(node.inputs[0])
    if inner is None or not is_op(inner, "Transpose"):
        return None
    first, second = perm_of(inner, scope), perm_of(node, scope)
    if first is None or second is None or len(first) != len(second):
        return None
    perm = [first[i] for i in second]
    source, result = inner.inputs[0], node.outputs[0]
    if perm == sorted(perm) and not scope.editor.is_output(result):
        return Rewrite(same=((result, source),))
    build = Build(scope, node)
    if perm == sorted(perm):
        build("Identity", source, out=result)
    else:
        build("Transpose", source, out=result, perm=perm)
    return build.rewrite()
