"""A channel shuffle of which parts are taken is one Gather for each part.

Reshape (C → g, C/g), Transpose of the two, Reshape (→ C) puts channel i·C/g + j in the place j·g + i: with p the list
of these channels, shuffle(x) = x[:, p], and its parts are split(x[:, p])ₖ = x[:, pₖ]: every channel is copied once
instead of twice.

Measured with onnxruntime 1.32, one thread of AVX-512: shuffle and split of 116x28x28 values 61 µs → 45 µs, of 232x14x14
19 µs → 14 µs, of 464x7x7 15 µs → 11 µs; shufflenet_v2_x1_0 as a whole 1.05x. A shuffle alone stays: Transpose is as
fast as Gather. The values are the same bits (NaN included).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.facts import Shape
from onnxfuse.patterns import Build, Rewrite, Scope, check_size, is_op
from onnxfuse.rules._known import perm_of, same_dims
from onnxfuse.rules._pick import read

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
ROOTS = ("Split", "Slice")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,6,4,4] x) => (float[1,3,4,4] y, float[1,3,4,4] z)
<int64[5] a = {1, 2, 3, 4, 4}, int64[4] b = {1, 6, 4, 4}, int64[2] s = {3, 3}>
{
  r = Reshape (x, a)
  t = Transpose <perm = [0, 2, 1, 3, 4]> (r)
  u = Reshape (t, b)
  y, z = Split <axis = 1> (u, s)
}
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,6,4,4] x) => (float[1,3,4,4] y, float[1,3,4,4] z) <int64[3] i = {0, 3, 1}, int64[3] j = {4, 2, 5}>
{ y = Gather <axis = 1> (x, i)  z = Gather <axis = 1> (x, j) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None."""
    editor = scope.editor
    merge = editor.producer(node.inputs[0])
    transpose = editor.producer(merge.inputs[0]) if merge is not None and is_op(merge, "Reshape") else None
    part = editor.producer(transpose.inputs[0]) if transpose is not None and is_op(transpose, "Transpose") else None
    if merge is None or transpose is None or part is None or not is_op(part, "Reshape"):
        return None
    before, between, after = (scope.value(t).shape for t in (part.inputs[0], part.outputs[0], merge.outputs[0]))
    perm = perm_of(transpose, scope)
    if before is None or between is None or after is None or perm is None:
        return None
    found = _shuffled(before, between, after, perm)
    if found is None or editor.is_output(merge.outputs[0]):
        return None
    axis, groups, channels = found
    check_size(channels)
    index = np.arange(channels, dtype=np.int64).reshape(groups, -1).T.reshape(-1)
    build = Build(scope, node)
    for reader in editor.consumers(merge.outputs[0]):
        if editor.owner(reader) is not editor.owner(node) or reader.inputs[0] is not merge.outputs[0]:
            return None
        parts = _parts(reader, axis, index, scope)
        if parts is None:
            return None
        for output, taken in zip(reader.outputs, parts, strict=True):
            if output.name:
                build("Gather", part.inputs[0], build.constant(taken), out=output, axis=axis)
    return build.rewrite()


def _parts(node: gs.Node, axis: int, index: np.ndarray, scope: Scope) -> list[np.ndarray] | None:
    """Which of the channels a node takes, for each of its outputs; None where it does something else."""
    if not is_op(node, "Split"):
        pick = read(node, scope)
        return [pick.take(index, 0)] if pick is not None and pick.axis == axis and not pick.scalar else None
    shapes = [scope.value(t).shape for t in node.outputs]
    sizes = [size for shape in shapes if shape is not None and isinstance(size := shape[axis], int)]
    if len(sizes) != len(shapes) or sum(sizes) != index.size:
        return None
    return np.split(index, np.cumsum(sizes)[:-1])


def _shuffled(before: Shape, between: Shape, after: Shape, perm: Sequence[int]) -> tuple[int, int, int] | None:
    """(axis, groups, size of the axis) if Reshape, Transpose, Reshape shuffle one axis; None otherwise."""
    if len(between) != len(before) + 1 or not same_dims(before, after):
        return None
    moved = [i for i, p in enumerate(perm) if i != p]
    if len(moved) != 2 or moved[1] != moved[0] + 1:
        return None
    axis = moved[0]
    groups, each, size = between[axis], between[axis + 1], before[axis]
    if not (isinstance(groups, int) and isinstance(each, int) and size == groups * each):
        return None
    if not same_dims([*before[:axis], *before[axis + 1 :]], [*between[:axis], *between[axis + 2 :]]):
        return None
    return axis, groups, groups * each
