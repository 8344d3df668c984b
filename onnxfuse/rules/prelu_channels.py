"""A PRelu between two convolutions is lowered to depthwise convolutions, on channels rounded up to whole blocks.

Further output channels of the first convolution, with weights and bias 0, are 0 behind PRelu and pools, and change
nothing if the next convolution multiplies them by 0: w₂ ∗ f(w₁ ∗ x) = [w₂ 0] ∗ f([w₁; 0] ∗ x). The PRelu becomes
x + (1-s)·relu(-x), as prelu_depthwise writes it where the channels need no rounding.

onnxruntime's CPU provider computes whole blocks of channels anyway, but brings depthwise convolutions into its layout
only where the channels are a multiple of 4, and pools only whole blocks. More channels alone would cost time: both
steps are one rewrite. Measured on the MTCNN P-Net (1.32, one thread, AVX-512, best of 4 profiles): with its 10 channels
padded to 16 by hand the nodes take 2.12 ms, with depthwise convolutions of 10 channels 2.43 and 2.66 ms, as it is
3.18 ms. (That file is so small that it may not grow by the 4,152 bytes.) Conditions: constant weights and slopes, one
group, nobody else reads a value between. NaN stays NaN, and an infinity in x gives NaN, since 0·∞ is NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Build, Rewrite, Scope, is_op
from onnxfuse.rules._prelu import as_depthwise, slopes_of

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
MEASURED = ("ort-cpu",)
ROOTS = ("PRelu",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,4,4] x) => (float[1,1,3,3] y)
<float[18,1,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18},
 float[18] b = {1,1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2,2},
 float[18,1,1] s = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}, float[1,18,1,1] v = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}>
{ c = Conv (x, w, b)  p = PRelu (c, s)  m = MaxPool <kernel_shape = [2, 2]> (p)  y = Conv (m, v) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,4,4] x) => (float[1,1,3,3] y)
<float[20,1,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,0,0},
 float[20] b = {1,1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2,2,0,0},
 float[20,1,1,1] m1 = {-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1},
 float[20,1,1,1] s1 = {0,-1,-2,-3,-4,-5,-6,-7,-8,0,-1,-2,-3,-4,-5,-6,-7,-8,1,1},
 float[1,20,1,1] v = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,0,0}>
{ c = Conv (x, w, b)
  n = Conv <kernel_shape = [1, 1], group = 20> (c, m1)
  r = Relu (n)
  q = Conv <kernel_shape = [1, 1], group = 20> (r, s1)
  p = Add (c, q)
  m = MaxPool <kernel_shape = [2, 2]> (p)
  y = Conv (m, v) }
"""
_ALIGNMENT = 4  # channels: onnxruntime's NchwcTransformer
_BLOCK = 16  # channels of the largest block
_LONGEST = 3  # pools in a row


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    if scope.target.name not in MEASURED or len(node.inputs) != 2:
        return None
    chain = _chain(node, scope)
    if chain is None:
        return None
    first, last = chain[0], chain[-1]
    bias = _bias(first, scope)
    before, behind = scope.constant(first.inputs[1]), scope.constant(last.inputs[1])
    if bias is None or before is None or behind is None or before.ndim != 4 or behind.ndim != 4:
        return None
    channels = before.shape[0]
    more = -channels % (_BLOCK if channels < _BLOCK else _ALIGNMENT)
    if not channels % _ALIGNMENT or {before.dtype, behind.dtype} != {np.dtype(np.float32)}:
        return None
    slopes = slopes_of(node, channels, scope)
    build = Build(scope, first)
    rest: list[gs.Tensor | None] = [build.constant(_padded(before, 0, more))]
    if bias.size:
        rest.append(build.constant(_padded(bias, 0, more)))
    value = build("Conv", first.inputs[0], *rest, **first.attrs)
    value = as_depthwise(build, value, _padded(slopes, 0, more))
    for pool in chain[2:-1]:
        value = build(pool.op, value, **pool.attrs)
    build("Conv", value, build.constant(_padded(behind, 1, more)), *last.inputs[2:], out=last.outputs[0], **last.attrs)
    return build.rewrite()


def _chain(node: gs.Node, scope: Scope) -> list[gs.Node] | None:
    """A convolution, the PRelu, pools, and the next convolution; None where something else stands between."""
    editor = scope.editor
    first = editor.producer(node.inputs[0])
    if first is None or not _is_plain(first, scope) or editor.only_use(first.outputs[0]) is not node:
        return None
    chain = [first, node]
    for _ in range(_LONGEST):
        step = editor.only_use(chain[-1].outputs[0])
        if step is None or step.inputs[0] is not chain[-1].outputs[0] or any(t.name for t in step.outputs[1:]):
            return None
        chain.append(step)
        if is_op(step, "Conv"):
            return chain if _is_plain(step, scope) else None
        if not is_op(step, "MaxPool", "AveragePool"):
            return None
    return None


def _is_plain(node: gs.Node, scope: Scope) -> bool:
    """Whether a node is a convolution of float32 in one group."""
    return (
        is_op(node, "Conv")
        and node.attrs.get("group", 1) == 1
        and scope.value(node.inputs[0]).dtype == TensorProto.FLOAT
    )


def _bias(conv: gs.Node, scope: Scope) -> np.ndarray | None:
    """The bias of a convolution, empty where it has none; None where it is not constant."""
    if len(conv.inputs) < 3 or not conv.inputs[2].name:
        return np.zeros(0, np.float32)
    return scope.constant(conv.inputs[2])


def _padded(array: np.ndarray, axis: int, more: int) -> np.ndarray:
    """The array with zeros behind along an axis."""
    return np.pad(array, [(0, more if i == axis else 0) for i in range(array.ndim)])
