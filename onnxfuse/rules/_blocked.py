"""What onnxruntime's CPU provider keeps in its blocked layout NCHWc, in which a block of channels lies together.

Source: onnxruntime's nchwc_transformer.cc. Convolutions of float32 images with constant weights make it, and operators
that need no other order keep it; around any other operator the values are reordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from onnxfuse.patterns import Scope, is_op

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

_KEEP = (
    "Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "BatchNormalization",
    "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
)  # fmt: skip
_JOIN = ("Add", "Sum", "Mul")  # where all inputs have it
TAKE = ("Conv", "Concat", "Resize", "Upsample", *_KEEP, *_JOIN)  # operators that may run on it
BLOCK = 16  # channels of the largest block, with AVX-512 …
HALF_BLOCK = 8  # … and of the smallest
_DEEPEST = 6


def is_blocked(tensor: gs.Tensor, scope: Scope, depth: int = _DEEPEST) -> bool:
    """Whether a value surely is made in the blocked layout; False where that is not seen within some steps."""
    node, value = scope.editor.producer(tensor), scope.value(tensor)
    if node is None or not depth or value.dtype != TensorProto.FLOAT or value.shape is None or len(value.shape) != 4:
        return False
    if is_op(node, "Conv"):
        return fills_blocks(node, scope)
    if is_op(node, *_KEEP):
        return is_blocked(node.inputs[0], scope, depth - 1)
    return is_op(node, *_JOIN) and all(
        scope.value(t).shape == value.shape and is_blocked(t, scope, depth - 1) for t in node.inputs
    )


def fills_blocks(conv: gs.Node, scope: Scope) -> bool:
    """Whether a convolution runs in the blocked layout. Channels that are no multiple of 4 were seen to leave it."""
    weight = scope.value(conv.inputs[1])
    if not weight.constant or weight.shape is None or len(weight.shape) != 4 or weight.dtype != TensorProto.FLOAT:
        return False
    out, group = weight.shape[0], conv.attrs.get("group", 1)
    return isinstance(out, int) and out % 4 == 0 and group in (1, out)
