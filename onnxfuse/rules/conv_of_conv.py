"""Two convolutions with nothing between become one: v ∗ (w ∗ x + b) + c = (v∗w) ∗ x + (Σv·b + c).

An output reads the value between at s₂·i + d₂·j − p₂, and that reads x at s₁ times this + d₁·l − p₁: one window of
stride s₁·s₂ and pads s₁·p₂ + p₁ whose taps stand at s₁·d₂·j + d₁·l, on one grid where along every axis one of the two
windows has one tap. The result has the fewer groups of the two, where they divide the others.

The second convolution may not pad, for the value between is 0 there and w ∗ x + b is not; but where w is 1x1 without
strides, and b = 0, it is. Conditions: constant weights, no other reader, no more multiplications, and less time as the
roofline sees it: a depthwise convolution or few channels between are cheaper as they are. The weights are computed in
double precision and rounded once. A bias above 1000 stays between them, as x − t is exact where x is near t. NaN stays
NaN; an infinity gives one or NaN; an overflow of the value between may vanish.

Measured (onnxruntime 1.32, CPU, one thread, the pair between two other convolutions): 1x1 and 1x1 of 64 channels 1.5x,
1x1 and 3x3 1.1x, 3x3 to 128 channels and 1x1 to 64 2.1x.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._affine import check_near, summed
from onnxfuse.rules._window import Window, in_groups, of_conv

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
ROOTS = ("Conv",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,4,4] x) => (float[1,1,4,4] y)
<float[2,2,1,1] w = {1, 2, 3, 4}, float[1,2,1,1] v = {5, 6}, float[2] b = {7, 8}, float[1] c = {9}>
{ m = Conv (x, w, b)  y = Conv (m, v, c) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,4,4] x) => (float[1,1,4,4] y) <float[1,2,1,1] w = {23, 34}, float[1] c = {92}>
{ y = Conv <dilations = [1, 1], group = 1, kernel_shape = [1, 1], pads = [0, 0, 0, 0], strides = [1, 1]> (x, w, c) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    inner = scope.editor.producer(node.inputs[0])
    if inner is None or not is_op(inner, "Conv") or scope.editor.only_use(node.inputs[0]) is None:
        return None
    window = composed(of_conv(inner, scope), of_conv(node, scope))
    weight, bias = window.rounded()
    build = Build(scope, inner)
    constants = [build.constant(a) for a in ((weight, bias) if window.biased else (weight,))]
    build("Conv", window.x, *constants, out=node.outputs[0], **window.attrs)
    return build.rewrite()


def composed(first: Window, then: Window) -> Window:
    """`then` of `first` as one window. Raises NotLegal."""
    if first.dtype != then.dtype or len(first.taps) != len(then.taps):
        raise NotLegal("the weights are of two kinds")
    pointwise = all(k == 1 for k in first.taps) and not any(first.pads) and all(s == 1 for s in first.strides)
    if any(then.pads) and not (pointwise and not first.bias.any()):
        raise NotLegal("the second convolution pads what is not 0 there")
    if any(a > 1 and b > 1 for a, b in zip(first.taps, then.taps, strict=True)):
        raise NotLegal("both windows have several taps along an axis")
    axes = range(len(first.taps))
    group = min(first.group, then.group)
    if first.group % group or then.group % group:
        raise NotLegal("outputs would read channels that they did not, and NaN times 0 is NaN")
    channels = first.weight.shape[1] * first.group // group
    macs = len(then.bias) * channels * prod(first.taps) * prod(then.taps)
    if macs > then.macs + first.macs * prod(then.strides):
        raise NotLegal("one convolution would multiply more")
    check_near(first.bias)
    inner, outer = (in_groups(w.weight, w.group, group) for w in (first, then))
    return Window(
        first.x,
        first.dtype,
        _product(inner, outer, group),
        summed(then.bias, _through(outer, first.bias, group)),
        group,
        tuple(a * b for a, b in zip(first.strides, then.strides, strict=True)),
        tuple(p + first.strides[i % len(axes)] * q for i, (p, q) in enumerate(zip(first.pads, then.pads, strict=True))),
        tuple(first.dilations[i] if then.taps[i] == 1 else first.strides[i] * then.dilations[i] for i in axes),
        first.biased or then.biased,
    )


def _product(inner: np.ndarray, outer: np.ndarray, group: int) -> np.ndarray:
    """The weight of both, [outs, ins of a group, …]; along every axis one of them has one tap."""
    between, ins, n = outer.shape[1], inner.shape[1], inner.ndim - 2
    left = np.moveaxis(outer.reshape(group, -1, *outer.shape[1:]), 2, -1)  # [group, outs, taps …, between]
    right = inner.reshape(group, between, -1)
    both = (left.reshape(group, -1, between) @ right).reshape(-1, *outer.shape[2:], ins, *inner.shape[2:])
    pairs = [axis for i in range(n) for axis in (1 + i, 2 + n + i)]
    taps = [a * b for a, b in zip(outer.shape[2:], inner.shape[2:], strict=True)]
    result: np.ndarray = both.transpose(0, 1 + n, *pairs).reshape(-1, ins, *taps)
    return result


def _through(outer: np.ndarray, bias: np.ndarray, group: int) -> np.ndarray:
    """What the second convolution makes of the first one's bias, where it pads nothing."""
    summed = outer.reshape(group, -1, outer.shape[1], int(np.prod(outer.shape[2:]))).sum(-1)
    result: np.ndarray = np.einsum("goc,gc->go", summed, bias.reshape(group, -1)).reshape(-1)
    return result
