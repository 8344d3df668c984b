"""A convolution of concatenated channels becomes a sum of convolutions: nothing is concatenated.

w ∗ [a; b] = w₁ ∗ a + w₂ ∗ b, w₁ and w₂ being the input channels of w that meet a and b. The multiplications stay the
same; the copies that Concat makes go. onnxruntime adds the sum inside of the second convolution, so that on the CPU it
executes as many nodes as before.

Measured on the CPU (1.32, one thread of AVX-512, processor time, medians of paired ratios): squeezenet1_1 1.02x to
1.03x, layout_cdla 1.01x. NaN and infinities come out as before, but for sums of opposite infinities.

Conditions: two values along the channels, of whole blocks of them, one group, constant weights, nobody else reads the
concatenation, one value at least is in the runtime's blocked layout already, and the images' sizes are known: else the
runtime does not see that the two terms have one shape, and adds them in a node of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, Rewrite, Scope, is_op
from onnxfuse.rules._blocked import is_blocked

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
ROOTS = ("Conv",)
_BLOCK = 16  # channels of the largest block of onnxruntime's layout
_ONES = ", ".join(["1"] * 16)
BEFORE = f"""
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,64,64] x) => (float[1,1,64,64] y)
<float[16,1,1,1] u = {{{_ONES}}}, float[16,1,1,1] v = {{{_ONES}}}, float[1,32,1,1] w = {{{_ONES}, {_ONES}}}>
{{ a = Conv (x, u)  b = Conv (x, v)  c = Concat <axis = 1> (a, b)  y = Conv (c, w) }}
"""
AFTER = f"""
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,64,64] x) => (float[1,1,64,64] y)
<float[16,1,1,1] u = {{{_ONES}}}, float[16,1,1,1] v = {{{_ONES}}}, float[1,16,1,1] w = {{{_ONES}}},
 float[1,16,1,1] z = {{{_ONES}}}>
{{ a = Conv (x, u)  b = Conv (x, v)  c = Conv (a, w)  d = Conv (b, z)  y = Add (d, c) }}
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None."""
    concat = scope.editor.producer(node.inputs[0]) if len(node.inputs) > 1 else None
    if concat is None or not is_op(concat, "Concat") or len(concat.inputs) != 2 or node.attrs.get("group", 1) != 1:
        return None
    if scope.editor.use_count(concat.outputs[0]) != 1 or concat.inputs[0] is concat.inputs[1]:
        return None
    weight = scope.constant(node.inputs[1])
    shapes = [scope.value(t).shape for t in concat.inputs]
    if weight is None or weight.dtype != np.float32 or any(s is None for s in shapes):
        return None
    rank = weight.ndim
    channels = [c for s in shapes if s is not None and len(s) == rank and isinstance(c := s[1], int)]
    if concat.attrs.get("axis", 1) not in (1, 1 - rank) or len(channels) != 2 or sum(channels) != weight.shape[1]:
        return None
    if any(c % _BLOCK for c in channels) or not all(isinstance(d, int) for s in shapes if s is not None for d in s[2:]):
        return None
    if not any(is_blocked(t, scope) for t in concat.inputs):
        return None
    build = Build(scope, node)
    split = channels[0]
    parts = [np.ascontiguousarray(part) for part in (weight[:, :split], weight[:, split:])]
    first = build("Conv", concat.inputs[0], build.constant(parts[0]), *node.inputs[2:], **node.attrs)
    second = build("Conv", concat.inputs[1], build.constant(parts[1]), **node.attrs)
    build("Add", second, first, out=node.outputs[0])
    return build.rewrite()
