"""A Slice of a Slice becomes one: x[a:b][c:d] = x[a + c : a + d].

Along different axes the ranges stand side by side. Along the same axis the length must be known, and the result is the
range of numbers that is left of 0 … length − 1, counted out; only forward ones. Unknown starts, ends or steps stay.
The values are the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.facts.expr import LARGEST
from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._known import given, ints

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
ROOTS = ("Slice",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,20,6] x) => (float[N,5,4] y)
<int64[1] a = {-17}, int64[1] b = {100}, int64[1] axis = {1}, int64[1] step = {2},
 int64[2] c = {1, 1}, int64[2] d = {6, 5}, int64[2] axes = {-2, 2}>
{ p = Slice(x, a, b, axis, step)  q = Slice(p, c, d, axes)  y = Relu(q) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,20,6] x) => (float[N,5,4] y)
<int64[2] a = {5, 1}, int64[2] b = {15, 5}, int64[2] axes = {1, 2}, int64[2] steps = {2, 1}>
{ q = Slice(x, a, b, axes, steps)  y = Relu(q) }
"""
Cut = tuple[int, int, int]


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    inner = scope.editor.producer(node.inputs[0])
    if inner is None or not is_op(inner, "Slice") or scope.opset < 10:
        return None
    shape = scope.value(inner.inputs[0]).shape
    first, second = _cuts(inner, scope), _cuts(node, scope)
    if shape is None or first is None or second is None:
        return None
    both: dict[int, Cut] = dict(first)
    for axis, cut in second.items():
        if axis not in first:
            both[axis] = cut
            continue
        length = shape[axis]
        if not isinstance(length, int):
            raise NotLegal(f"the length of axis {axis}, {length}, is not known")
        left = range(length)[slice(*first[axis])][slice(*cut)]
        if not left:
            raise NotLegal("nothing is left")
        both[axis] = left.start, left.stop, left.step
    both = {axis: cut for axis, cut in both.items() if not (cut[0] == 0 and cut[1] >= LARGEST and cut[2] == 1)}
    if not both:
        return None
    build = Build(scope, node)
    axes = sorted(both)
    starts, ends, steps = (build.constant(np.array([both[a][k] for a in axes], np.int64)) for k in range(3))
    build("Slice", inner.inputs[0], starts, ends, build.constant(np.array(axes, np.int64)), steps, out=node.outputs[0])
    return build.rewrite(alike=True)


def _cuts(node: gs.Node, scope: Scope) -> dict[int, Cut] | None:
    """Start, end and step by axis; None where one is not known or runs backwards."""
    shape = scope.value(node.inputs[0]).shape
    starts, ends = ints(given(node, 1), scope), ints(given(node, 2), scope)
    if shape is None or starts is None or ends is None:
        return None
    axes = list(range(len(starts))) if given(node, 3) is None else ints(given(node, 3), scope)
    steps = [1] * len(starts) if given(node, 4) is None else ints(given(node, 4), scope)
    if axes is None or steps is None or min(steps, default=1) < 1 or not len(axes) == len(starts) == len(steps):
        return None
    return {a % len(shape): cut for a, *cut in zip(axes, starts, ends, steps, strict=True)}  # type: ignore[misc]
