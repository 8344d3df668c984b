"""An operator that gives what it was given goes: f(x) = x.

Identity; Dropout at inference; Cast and CastLike to the same type; Reshape, Expand, Slice, Pad, Tile, Squeeze,
Unsqueeze and Flatten where nothing changes; a Transpose that keeps the order; Concat, Split, Sum, Max, Min and Mean of
one. Shapes must be surely equal, in every binding of the free dims: a full-range Slice starts at 0 in steps of 1, and
gives the input's shape or ends where exporters write "the end". The values are the same bits (NaN included). What
makes the shape [1] of it stays: onnxruntime's fusion of a GELU of a scalar and constants of shape [1] gives a scalar.

In onnxruntime these are copies of the whole tensor, but for views: a full-range Slice, a Concat of one, a Pad by zero,
an Expand or Tile to the same shape take the time of a copy (measured on a tensor of 64 MB).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxfuse.facts.contents import FLOATS
from onnxfuse.facts.expr import LARGEST
from onnxfuse.patterns import NotLegal, Rewrite, Scope
from onnxfuse.rules._known import given, ints, listed, perm_of, same_dims

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
_ONE = ("Concat", "Split", "Sum", "Max", "Min", "Mean")
_SAME_SHAPE = ("Reshape", "Expand", "Squeeze", "Unsqueeze", "Flatten")
ROOTS = ("Identity", "Dropout", "Cast", "CastLike", "Transpose", "Slice", "Pad", "Tile", *_SAME_SHAPE, *_ONE)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4,6] x) => (float[N,4,6] y)
<int64[1] zero = {0}, int64[1] end = {9223372036854775807}, int64[3] shape = {0, 4, -1}, int64[3] ones = {1, 1, 1}>
{ a = Relu(x)  b = Slice(a, zero, end, zero)  c = Reshape(b, shape)  d = Tile(c, ones)  e = Concat <axis = 0> (d)
  f = Cast <to = 1> (e)  h = Transpose <perm = [0, 1, 2]> (f)  i = Dropout(h)  j = Identity(i)  y = Neg(j) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4,6] x) => (float[N,4,6] y) { a = Relu(x)  y = Neg(a) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    if not node.inputs or not node.inputs[0].name or not _keeps(node, scope):
        return None
    if any(t.name and (scope.editor.use_count(t) or scope.editor.is_output(t)) for t in node.outputs[1:]):
        raise NotLegal("another output of it is needed")
    source, result = node.inputs[0], node.outputs[0]
    if type(source).__name__ == "Constant" and scope.editor.is_output(result):
        return None
    return Rewrite(same=((result, source),), alike=True)


def _keeps(node: gs.Node, scope: Scope) -> bool:
    source, result = scope.value(node.inputs[0]), scope.value(node.outputs[0])
    if node.op == "Identity":
        return True
    if node.op in _ONE:
        return len(node.inputs) == 1 and len(node.outputs) == 1 and bool(source.dtype)
    if node.op == "Dropout":
        return _infers(node, scope)
    if node.op in ("Cast", "CastLike"):
        return bool(source.dtype) and source.dtype == result.dtype
    if node.op == "Transpose":
        perm = perm_of(node, scope)
        return perm is not None and perm == sorted(perm)
    if node.op == "Slice":
        starts, ends = listed(node, "starts", 1, scope), listed(node, "ends", 2, scope)
        steps = ints(given(node, 4), scope) if given(node, 4) is not None else []
        if starts is None or any(starts) or steps is None or not set(steps) <= {1}:
            return False
        return same_dims(source.shape, result.shape) or (ends is not None and min(ends, default=LARGEST) >= LARGEST)
    if not same_dims(source.shape, result.shape):
        return False
    if node.op == "Pad":
        pads = listed(node, "pads", 1, scope) or (list(node.attrs["paddings"]) if "paddings" in node.attrs else None)
        return pads is not None and not any(pads)  # equal shapes may also come from pads that cancel
    if node.op == "Tile":
        repeats = ints(given(node, 1), scope)
        return repeats is not None and set(repeats) <= {1}
    if source.shape == (1,) and source.dtype in FLOATS:
        raise NotLegal("onnxruntime's fusions give a scalar for what a scalar and a [1] make, which it puts right")
    return True


def _infers(node: gs.Node, scope: Scope) -> bool:
    if scope.opset < 12:
        return True
    training = given(node, 2)
    if training is None:
        return True
    array = scope.constant(training)
    return array is not None and not array.any()
