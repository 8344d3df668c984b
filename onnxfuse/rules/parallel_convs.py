"""Convolutions, scales and identities of one value that are added become one convolution.

A convolution reads its input at offsets from the place that it writes. Σᵢ (wᵢ ∗ x + bᵢ) = (Σᵢ wᵢ) ∗ x + Σᵢ bᵢ, where
every wᵢ is written at its own offsets into a kernel that covers them all: a 1x1 kernel without padding is the middle of
a 3x3 one with padding 1. BatchNormalization at inference is s·x + t a channel, a 1x1 depthwise convolution, and x
itself is one with s = 1, t = 0. A convolution in groups is one in fewer groups whose other weights are 0.

Conditions: constant weights; nobody else reads what a convolution makes; equal strides; the same size of the result
for every size of the input, which says that pads and kernel agree; and no more multiplications than before. The
training form of RepVGG and MobileOne becomes the form that their authors deploy. Measured on repvgg_a0, onnxruntime
1.32, one thread of AVX-512: 1.2x. NaN stays NaN; where the wider kernel has a 0, NaN and infinities give NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._window import Window, added, batchnorm, of_conv, of_scale

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
ROOTS = ("Add", "Sum")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,4,4] x) => (float[1,1,4,4] y)
<float[1,1,3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[1,1,1,1] v = {10}, float[1] b = {2}, float[1] s = {3},
 float[1] t = {5}, float[1] m = {4}, float[1] u = {4}>
{
  c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
  d = Conv (x, v)
  n = BatchNormalization <epsilon = 0.0> (x, s, t, m, u)
  cd = Add (c, d)
  y = Add (n, cd)
}
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,4,4] x) => (float[1,1,4,4] y)
<float[1,1,3,3] w = {1, 2, 3, 4, 16.5, 6, 7, 8, 9}, float[1] b = {1}>
{ y = Conv <dilations = [1, 1], group = 1, kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [1, 1]> (x, w, b) }
"""
_MOST_TERMS = 64  # a sum of thousands would be looked through at each of its nodes


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    terms = _terms(node, scope)
    convs = [c for t in terms if is_op(c := scope.editor.producer(t), "Conv")]
    sources = {id(c.inputs[0]): c.inputs[0] for c in convs if c is not None}
    for x in sources.values():
        windows, rest = _windows(x, terms, scope)
        if len(windows) < 2:
            continue
        total, left = windows[0][1], []
        for tensor, window in windows[1:]:
            both = added(total, window)
            if both is not None and both.macs <= total.macs + window.macs:
                total = both
            else:
                left.append(tensor)
        if len(left) == len(windows) - 1:
            continue
        weight, bias = total.rounded()
        build = Build(scope, next(c for c in convs if c is not None and c.inputs[0] is x))
        rest += left
        sums = [n for n in scope.editor.consumers(node.outputs[0]) if is_op(n, "Add", "Sum")]
        beside = [*rest, *(t for n in sums for t in n.inputs)]
        if any(is_op(scope.editor.producer(t), "Conv") and scope.editor.is_output(t) for t in beside):
            # onnxruntime 1.32 fuses the Add with either convolution, and then misses the output of the other.
            raise NotLegal("the sum of a convolution and of one that is a graph output may not load")
        last = node.outputs[0]
        constants = [build.constant(weight), *([build.constant(bias)] if bias.any() else [])]
        made = build("Conv", x, *constants, out=None if rest else last, **total.attrs)
        for i, tensor in enumerate(rest):
            made = build("Add", made, tensor, out=last if i == len(rest) - 1 else None)
        return build.rewrite()
    return None


def _terms(node: gs.Node, scope: Scope) -> list[gs.Tensor]:
    """What a sum of sums adds up, in order; a sum that others read too is a term, as is what is left after many."""
    terms: list[gs.Tensor] = []
    todo = list(reversed(node.inputs))
    while todo:
        tensor = todo.pop()
        maker = scope.editor.producer(tensor) if len(terms) + len(todo) < _MOST_TERMS else None
        if is_op(maker, "Add", "Sum") and maker is not None and scope.editor.only_use(tensor) is not None:
            todo += reversed(maker.inputs)
        else:
            terms.append(tensor)
    return terms


def _windows(
    x: gs.Tensor, terms: list[gs.Tensor], scope: Scope
) -> tuple[list[tuple[gs.Tensor, Window]], list[gs.Tensor]]:
    """The terms that are convolutions, scales or copies of x, the largest window first, and the others."""
    convs, scales, rest = [], [], []
    for tensor in terms:
        maker = scope.editor.producer(tensor)
        reads = maker is not None and bool(maker.inputs) and maker.inputs[0] is x
        if reads and is_op(maker, "Conv") and maker is not None and scope.editor.only_use(tensor) is not None:
            convs.append((tensor, of_conv(maker, scope)))
        elif tensor is x or (reads and is_op(maker, "BatchNormalization")):
            scales.append((tensor, maker))
        else:
            rest.append(tensor)
    if not convs:
        return [], terms
    convs.sort(key=lambda c: -c[1].macs)
    like = convs[0][1]
    for tensor, maker in scales:
        if tensor is x:
            scale, shift = np.ones(len(like.bias)), np.zeros(len(like.bias))
        elif maker is not None:
            scale, shift = batchnorm(maker, scope)
        convs.append((tensor, of_scale(x, scale, shift, like)))
    return convs, rest
