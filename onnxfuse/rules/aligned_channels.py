"""Channels between convolutions are rounded up where onnxruntime then runs what is around them in blocks of channels.

Further output channels of the first convolution, with weights 0, change nothing if the last one multiplies them by 0:
w₂ ∗ f(w₁ ∗ x) = [w₂ 0] ∗ f([w₁; 0] ∗ x), where f is depthwise convolutions, which get channels too, activations that
are finite at 0, and pools. onnxruntime's CPU provider has its fast kernels for values in blocks of 16 channels, or 8
without AVX-512 (NCHWc); it brings a value into blocks only if its channels are a multiple of 4, and runs other
depthwise convolutions some times slower. A convolution that reads less than a block reads single channels, of a copy.

Conditions: constant weights, nobody else reads a value between, and what was measured to pay (onnxruntime 1.32, one
thread of AVX-512):
- 16 channels or more to a multiple of 4, with a depthwise convolution between: shufflenet_v2_x1_0 (58 channels → 60 in
  four places) 1.09x; three residual blocks 1x1, 3x3 depthwise, 1x1 of 58, 122 and 34 channels 1.4x, 1.3x and 1.65x.
  Without a depthwise convolution it does not pay (0.81x … 1.04x).
- 9 to 15 channels to 16, of which both block sizes compute 16 anyway, where a 1x1 convolution reads them: 48 → 12 → 96
  channels, 1x1, of 80x80 to 7x7 elements 1.11x to 1.14x, with 3x3 depthwise between 1.12x to 1.29x. Before a 3x3
  convolution it does not pay (0.88x, 0.94x), nor below 8 channels (0.97x … 1.03x).

NaN stays NaN, and an infinity in x gives NaN, as 0·∞ is, also where an activation would have limited it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._blocked import BLOCK, HALF_BLOCK

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
MEASURED = ("ort-cpu",)
ROOTS = ("Conv",)
ALIGNMENT = 4  # channels: onnxruntime's NchwcTransformer
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,4,4] x) => (float[1,1,4,4] y)
<float[18,1,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18},
 float[18] b = {1,1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2,2},
 float[18,1,1,1] d = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18},
 float[1,18,1,1] v = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18}>
{ c = Conv (x, w, b)  r = Relu (c)  e = Conv <group = 18> (r, d)  y = Conv (e, v) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,4,4] x) => (float[1,1,4,4] y)
<float[20,1,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,0,0},
 float[20] b = {1,1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2,2,0,0},
 float[20,1,1,1] d = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,0,0},
 float[1,20,1,1] v = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,0,0}>
{ c = Conv (x, w, b)  r = Relu (c)  e = Conv <group = 20> (r, d)  y = Conv (e, v) }
"""
_BETWEEN = frozenset(
    ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Clip", "MaxPool", "AveragePool")
)


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    if scope.target.name not in MEASURED or node.attrs.get("group", 1) != 1:
        return None
    shape = scope.value(node.inputs[1]).shape
    channels = shape[0] if shape is not None and len(shape) == 4 else 0
    if not isinstance(channels, int) or not (
        HALF_BLOCK < channels < BLOCK or (channels > BLOCK and channels % ALIGNMENT)
    ):
        return None
    chain = _chain(node, channels, scope)
    if chain is None:
        return None
    more = -channels % (ALIGNMENT if channels > BLOCK else BLOCK)
    value, build = node.inputs[0], Build(scope, node)
    for step in chain:
        inputs: list[gs.Tensor | None] = [value, *(t if t.name else None for t in step.inputs[1:])]
        attrs, last = dict(step.attrs), step is chain[-1]
        if is_op(step, "Conv"):
            inputs[1] = build.constant(_padded(step.inputs[1], 1 if last else 0, more, scope))
            if not last and len(inputs) > 2 and inputs[2] is not None:
                inputs[2] = build.constant(_padded(inputs[2], 0, more, scope))
            if attrs.get("group", 1) != 1:
                attrs["group"] = channels + more
        value = build(step.op, *inputs, out=step.outputs[0] if last else None, **attrs)
    return build.rewrite()


def _chain(node: gs.Node, channels: int, scope: Scope) -> list[gs.Node] | None:
    """The nodes from one convolution to the next that mixes channels; None where it does not pay for these."""
    chain, depthwise = [node], False
    while True:
        step = scope.editor.only_use(chain[-1].outputs[0])
        if step is None or step.inputs[0] is not chain[-1].outputs[0] or any(t.name for t in step.outputs[1:]):
            return None
        chain.append(step)
        if is_op(step, "Conv"):
            weight = scope.value(step.inputs[1]).shape
            if step.attrs.get("group", 1) == 1:
                pays = depthwise if channels > BLOCK else weight is not None and weight[2:] == (1, 1)
                return chain if pays else None
            if step.attrs["group"] != channels or weight is None or weight[0] != channels:
                return None
            depthwise = True
        elif not is_op(step, *_BETWEEN):
            return None


def _padded(tensor: gs.Tensor, axis: int, more: int, scope: Scope) -> np.ndarray:
    """The elements of a weight with zeros behind along an axis. Raises NotLegal."""
    array = scope.constant(tensor)
    if array is None or array.dtype != np.float32:
        raise NotLegal(f"'{tensor.name}' is not a constant of float32")
    return np.pad(array, [(0, more if i == axis else 0) for i in range(array.ndim)])
