"""A sum whose layer normalization is all that reads it is written as Sum: norm(x + z) = norm(sum(x, z)).

onnxruntime makes SkipLayerNormalization of Add and LayerNormalization, whose kernel for the CPU takes much longer than
both of them; with Sum, which computes the same, they stay two nodes. A bias that is added to x or z before goes into
SkipLayerNormalization too, and is a node of its own then.

It does so for two values of the same shape, with three axes, in float32, also where it makes the LayerNormalization of
its parts itself. Its kernel takes the last axis for the normalized one, whichever it is: only that is looked at. Where
the sum ends what it may fuse to Attention or EmbedLayerNormalization, it stays.

Measured (onnxruntime 1.32, CPU, one thread, processor time, medians of paired ratios): 1.05x for [1,4,64], 2.3x for
[1,48,64], 2.7x for [1,16,256], 4.3x for [1,48,256], 6.9x for [1,128,768] and [4,128,768], 6.2x for [1,512,1024]; with a
bias 0.98x, 2.0x, 2.4x, 3.7x, 5.6x, 5.5x and 5.0x; with [1,4,8] 0.91x, so that little stays. Before an RMS norm, which
onnxruntime does not fuse with Add, 1.00x: not made. Whole models: encoders with a norm behind each sum 1.2x to 1.3x,
a BERT of two layers 1.03x, with one such norm at the end 1.02x to 1.08x. Each sum is the same; NaN stays NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._known import same_dims
from onnxfuse.rules._norm import layer
from onnxfuse.targets import MICROSOFT

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3  # behind attention, whose Softmax comes first; before matmul_add_as_gemm, which asks what the runtime fuses
MEASURED = ("ort-cpu",)
ROOTS = ("LayerNormalization", "Div")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,128,4] x, float[N,128,4] z) => (float[N,128,4] y) <float[4] w = {1, 2, 3, 4}, float[4] b = {1, -1, 1, -1}>
{ a = Add(x, z)  y = LayerNormalization(a, w, b) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,128,4] x, float[N,128,4] z) => (float[N,128,4] y) <float[4] w = {1, 2, 3, 4}, float[4] b = {1, -1, 1, -1}>
{ a = Sum(x, z)  y = LayerNormalization(a, w, b) }
"""
_RANK = 3
_LEAST_OPSET = 8  # of the Sum that onnxruntime has
_FEWEST = 512  # elements of a sequence from which on two nodes take less time …
_TOKENS = 16  # … which has at least so many tokens where their number is free
_PROJECTION = ("Add", "MatMul", "Reshape", "Transpose", "MatMul", "Softmax")
_QUERY_KEY_VALUE = 3


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    if scope.opset < _LEAST_OPSET or scope.target.name not in MEASURED:
        return None
    total = _summed(node, scope)
    if total is None:
        return None
    shapes = [scope.value(t).shape for t in total.inputs]
    shape = shapes[0]
    if shape is None or len(shape) != _RANK or not same_dims(*shapes):
        return None
    if scope.value(total.outputs[0]).dtype != TensorProto.FLOAT:
        return None
    tokens, size = (d if isinstance(d, int) else least for d, least in zip(shape[1:], (_TOKENS, 1), strict=True))
    if tokens * size < _FEWEST:
        raise NotLegal("for so few elements the runtime's SkipLayerNormalization is as fast")
    if _ends_attention(total, scope) or _ends_embedding(total, node, scope):
        raise NotLegal("the runtime may fuse the sum to Attention or EmbedLayerNormalization")
    build = Build(scope, total)
    build("Sum", *total.inputs, out=total.outputs[0])
    return build.rewrite()


def _summed(node: gs.Node, scope: Scope) -> gs.Node | None:
    """The Add that makes what the node normalizes over the last axis and nobody else reads."""
    editor = scope.editor
    if is_op(node, "LayerNormalization"):
        x, whole = node.inputs[0], editor.only_use(node.inputs[0]) is node
        rank = len(scope.value(x).shape or ())
        last = node.attrs.get("axis", -1) in (-1, rank - 1)
    else:
        norm = layer(node, scope)
        if norm is None:
            return None
        x = norm.x
        whole = not editor.is_output(x) and all(is_op(n, "ReduceMean", "Sub") for n in editor.consumers(x))
        last = norm.axes == (len(scope.value(x).shape or ()) - 1,)
    total = editor.producer(x)
    if not (whole and last) or total is None or not is_op(total, "Add"):
        return None
    return total if editor.owner(total) is editor.owner(node) else None


def _ends_attention(total: gs.Node, scope: Scope) -> bool:
    """Whether the sum adds the projection of an attention with a mask as BERT and DistilBERT write it.

    The runtime fuses it in old opsets, and looks for an Add behind it.
    """
    tensor = total.inputs[0]
    for op_type in _PROJECTION:
        node = scope.editor.producer(tensor)
        if node is None or not is_op(node, op_type):
            return False
        tensor = node.inputs[0]
    scores = scope.editor.producer(tensor)
    if scores is None or not is_op(scores, "Add"):
        return is_op(scores, "Where")
    factors = (n for t in scores.inputs if is_op(n := scope.editor.producer(t), "Mul") and n is not None)
    return any(is_op(scope.editor.producer(t), "Sub") for n in factors for t in n.inputs)


def _ends_embedding(total: gs.Node, node: gs.Node, scope: Scope) -> bool:
    """Whether the sum adds rows of a table, and what may be an attention reads its normalization."""
    if not any(is_op(scope.editor.producer(t), "Gather") for t in total.inputs):
        return False
    out = node.outputs[0]
    while (only := scope.editor.only_use(out)) is not None and is_op(only, "Mul", "Add"):  # scale and shift
        out = only.outputs[0]
    readers = scope.editor.consumers(out)
    return (
        any(n.op == "Attention" and n.domain == MICROSOFT for n in readers)
        or sum(is_op(n, "MatMul") for n in readers) >= _QUERY_KEY_VALUE
    )
