"""A Transpose whose result is flattened for a product with a constant goes into that constant: (x·P)·W = x·(P·W).

P orders the columns of each row of the flattened value, so W gets its rows in the order of x. It is how networks of
TensorFlow end, whose dense layers were trained on channels last. The first axis, the rows, stays in front; nobody else
reads the transposed or the flattened value. The sums have the same terms in another order; NaN and infinities stay.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, check_size, is_op
from onnxfuse.rules._known import perm_of, same_dims

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
ROOTS = ("MatMul", "Gemm")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,1,2] x) => (float[N,1] y) <float[4,1] w = {1, 2, 3, 4}>
{ t = Transpose <perm = [0, 2, 3, 1]> (x)  f = Flatten (t)  y = MatMul (f, w) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,1,2] x) => (float[N,1] y) <float[4,1] w = {1, 3, 2, 4}> { f = Flatten (x)  y = MatMul (f, w) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    editor, flat = scope.editor, node.inputs[0]
    view = editor.producer(flat)
    if view is None or not is_op(view, "Flatten", "Reshape") or editor.only_use(flat) is None:
        return None
    moved = editor.producer(view.inputs[0])
    if moved is None or not is_op(moved, "Transpose") or editor.only_use(view.inputs[0]) is None:
        return None
    perm = perm_of(moved, scope)
    if perm is None or perm[0] != 0:
        return None
    x, weight = moved.inputs[0], node.inputs[1]
    shape, columns = scope.value(x).shape, scope.value(weight).shape
    if shape is None or node.attrs.get("transA", 0) or columns is None or len(columns) != 2:
        return None
    lengths = [d for d in shape[1:] if isinstance(d, int)]
    if len(lengths) < len(shape) - 1 or not same_dims(scope.value(flat).shape, (shape[0], prod(lengths))):
        raise NotLegal(f"it is not known that '{flat.name}' has a row for each of '{x.name}'")
    check_size(*(d for d in columns if isinstance(d, int)))
    stored = scope.constant(weight)
    if stored is None:
        raise NotLegal(f"'{weight.name}' is not constant")
    axis = 1 if node.attrs.get("transB", 0) else 0
    behind = [p - 1 for p in perm[1:]]
    order = np.arange(prod(lengths)).reshape([lengths[p] for p in behind]).transpose(np.argsort(behind)).reshape(-1)
    build = Build(scope, node)
    rows = build("Flatten", x)
    build(node.op, rows, build.constant(stored.take(order, axis)), *node.inputs[2:], out=node.outputs[0], **node.attrs)
    return build.rewrite()
