"""A rotary embedding in its parts becomes one operator: x·cos(c) + [-x₂, x₁]·sin(c) = RotaryEmbedding(x, cos f, sin f).

x: [batch, heads, steps, 2·n] with the halves x₁ and x₂, and the angles c = [f, f] over the last axis, f: [steps, n],
the same for every sequence and head; so both halves of cos(c) and of sin(c) are one table. That is how transformers
writes it (`rotate_half`). Row t of the tables is that of step t: the operator starts at position 0. Not made where the
products are read elsewhere.

Only float32. The products and sums are those that were computed, NaN and infinities included.

Measured (onnxruntime 1.32, CPU, one thread, medians of paired ratios of processor time), tables included: 1.65x on
[1, 8, 128, 32], 3.1x on [1, 32, 512, 64], 1.2x on [1, 8, 16, 32].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._known import same_dims
from onnxfuse.rules._layout import Loop, origins, whole
from onnxfuse.targets import MICROSOFT

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2  # before attention, which reads it
MEASURED = ("ort-cpu",)
ROOTS = ("Add",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,3,4] x, float[1,1,3,2] f) => (float[N,2,3,4] y)
<int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}, int64[1] last = {3}>
{ c = Concat <axis = 3> (f, f)  cos = Cos (c)  sin = Sin (c)
  a = Slice (x, zero, two, last)  b = Slice (x, two, four, last)  n = Neg (b)  r = Concat <axis = 3> (n, a)
  xc = Mul (x, cos)  rs = Mul (r, sin)  y = Add (xc, rs) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[N,2,3,4] x, float[1,1,3,2] f) => (float[N,2,3,4] y)
<int64[2] rows = {-1, 2}, int64[1] zero = {0}>
{ cf = Cos (f)  ct = Reshape (cf, rows)  sf = Sin (f)  st = Reshape (sf, rows)
  y = com.microsoft.RotaryEmbedding (x, zero, ct, st) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    kernel = scope.target.kernels.get((MICROSOFT, "RotaryEmbedding"))
    turns = _turns(node, scope) if kernel is not None else None
    if kernel is None or turns is None:
        return None
    x, angles = turns
    if scope.value(x).dtype not in kernel.dtypes:
        raise NotLegal("the rotary embedding is run in float32 only")
    (size,) = (scope.value(angles).shape or (None,))[-1:]
    assert isinstance(size, int)  # half of a known size
    build = Build(scope, node)
    rows = build.constant(np.array([-1, size], np.int64))
    tables = [build("Reshape", build(op_type, angles), rows) for op_type in ("Cos", "Sin")]
    first = build.constant(np.zeros(1, np.int64))
    build("RotaryEmbedding", x, first, *tables, out=node.outputs[0], domain=MICROSOFT)
    return build.rewrite()


def _turns(add: gs.Node, scope: Scope) -> tuple[gs.Tensor, gs.Tensor] | None:
    """x and the angles f of which the sum is the rotary embedding."""
    products = [scope.editor.producer(t) if scope.editor.only_use(t) is add else None for t in add.inputs]
    for straight, turned in (products, products[::-1]):
        if straight is None or turned is None or not (is_op(straight, "Mul") and is_op(turned, "Mul")):
            return None
        for x, cos in (straight.inputs, straight.inputs[::-1]):
            for half, sin in (turned.inputs, turned.inputs[::-1]):
                if not _is_rotated(half, x, scope):
                    continue
                angles = _angles(cos, "Cos", x, scope)
                if angles is not None and _angles(sin, "Sin", x, scope) is angles:
                    return x, angles
                raise NotLegal("the angles are not surely the same in both halves and for all sequences and heads")
    return None


def _is_rotated(tensor: gs.Tensor, x: gs.Tensor, scope: Scope) -> bool:
    """Whether a value is [-x₂, x₁] over the last of four axes."""
    concat, shape = scope.editor.producer(tensor), scope.value(x).shape
    if concat is None or not is_op(concat, "Concat") or len(concat.inputs) != 2 or shape is None or len(shape) != 4:
        return False
    neg, size = scope.editor.producer(concat.inputs[0]), shape[3]
    if concat.attrs.get("axis", 1) not in (3, -1) or neg is None or not is_op(neg, "Neg") or not isinstance(size, int):
        return False
    parts = [(neg.inputs[0], size // 2), (concat.inputs[1], 0)]
    return size % 2 == 0 and all(_is_half(t, x, first, size // 2, scope) for t, first in parts)


def _is_half(tensor: gs.Tensor, x: gs.Tensor, first: int, count: int, scope: Scope) -> bool:
    """Whether a value is so many elements of the last axis of x."""
    found = [o for o in origins(tensor, scope) if o.tensor is x]
    return bool(found) and found[0].factor == 1 and found[0].layout == whole(found[0].shape).part(3, first, count)


def _angles(table: gs.Tensor, function: str, x: gs.Tensor, scope: Scope) -> gs.Tensor | None:
    """f where the table is a function of [f, f], of the steps and the size of x, and spread over all else."""
    wanted, found = scope.value(x).shape, origins(table, scope)
    node = scope.editor.producer(found[-1].tensor) if found else None
    concat = None if node is None or not is_op(node, function) else scope.editor.producer(node.inputs[0])
    if wanted is None or concat is None or not is_op(concat, "Concat") or found[-1].factor != 1:
        return None
    shape, layout = found[-1].shape, found[-1].layout
    if concat.attrs.get("axis", 1) not in (len(shape) - 1, -1):
        return None
    if len(concat.inputs) != 2 or concat.inputs[0] is not concat.inputs[1]:
        return None
    long = [Loop(i, d) for i, d in enumerate(shape) if d != 1]
    if len(long) != 2 or layout.axes != ((),) * (len(layout.axes) - 2) + ((long[0],), (long[1],)):
        return None
    return concat.inputs[0] if same_dims((long[0].size, long[1].size), wanted[2:]) else None
