"""A convolution of concatenated channels becomes a sum of convolutions: nothing is concatenated.

w ∗ [a; b] = w₁ ∗ a + w₂ ∗ b, w₁ and w₂ being the input channels of w that meet a and b. The multiplications stay the
same; the copies that Concat makes go. onnxruntime adds the sum inside of the second convolution, so that on the CPU it
executes as many nodes as before, and fewer where one value comes from outside of its blocked layout.

Measured on the CPU (1.32, one thread of AVX-512, processor time, medians of paired ratios): squeezenet1_1 1.02x to
1.03x, layout_cdla 1.01x; with a value from outside, as ConvTranspose makes it, 1.04x to 1.07x. NaN and infinities come
out as before, but for sums of opposite infinities.

Conditions: two values along the channels, of whole blocks of them, one group, constant weights, nobody else reads the
concatenation, one value at least is in the runtime's blocked layout already, and the images' sizes are known: else the
runtime does not see that the two terms have one shape, and adds them in a node of its own. So it does where it lost the
name of a free batch, as at a Resize (0.99x to 1.00x), which is therefore followed up to the inputs of the graph.
LeakyRelu, Clip, factors, biases and another sum it executes in a convolution, but not behind a sum: before them it is
made with a value from outside alone, where one to three nodes more still take less time (1.01x to 1.05x).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.facts import Dim
from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._blocked import TAKE, is_blocked

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
ROOTS = ("Conv",)
_BLOCK = 16  # channels of the largest block of onnxruntime's layout
_FURTHEST = 512  # nodes between a value and the inputs of the graph
_JOIN = ("Add", "Sub", "Mul", "Div", "Sum", "Concat")
_HAND_ON = (  # operators behind which the runtime still has the name of the batch
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
    "InstanceNormalization", "Identity", "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish",
    "Tanh", "Elu", "Softplus", "Gelu", "Mish", "Exp", "Min", "Pad", "Slice", "Split", "DepthToSpace", *_JOIN,
)  # fmt: skip
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
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
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
    batches = [s[0] for s in shapes if s is not None]
    if not all(isinstance(d, int) for d in batches) and not all(_names(t, batches[0], scope) for t in concat.inputs):
        raise NotLegal("the runtime may not know that both terms have the same batch")
    apart = any(not is_op(scope.editor.producer(t), *TAKE) for t in concat.inputs)
    if not apart and _ends_conv(scope.editor.only_use(node.outputs[0]), scope):
        raise NotLegal("the runtime executes what follows in a convolution, but not behind a sum of two")
    build = Build(scope, node)
    split = channels[0]
    parts = [np.ascontiguousarray(part) for part in (weight[:, :split], weight[:, split:])]
    first = build("Conv", concat.inputs[0], build.constant(parts[0]), *node.inputs[2:], **node.attrs)
    second = build("Conv", concat.inputs[1], build.constant(parts[1]), **node.attrs)
    build("Add", second, first, out=node.outputs[0])
    return build.rewrite()


def _names(tensor: gs.Tensor, batch: Dim, scope: Scope) -> bool:
    """Whether the runtime knows the batch of a value by its name: all inputs of the graph hand it on, on every way."""
    seen: set[int] = set()
    todo = [tensor]
    while todo:
        value = todo.pop()
        node, shape = scope.editor.producer(value), scope.value(value).shape
        if not shape or shape[0] != batch:
            return False
        if node is None:
            if not value.shape or not isinstance(value.shape[0], str):
                return False
        elif id(node) not in seen:
            if len(seen) == _FURTHEST or not is_op(node, *_HAND_ON):
                return False
            seen.add(id(node))
            todo += [t for t in node.inputs if not scope.value(t).constant] if is_op(node, *_JOIN) else node.inputs[:1]
    return True


def _ends_conv(reader: gs.Node | None, scope: Scope) -> bool:
    """Whether the runtime executes what alone reads a convolution inside of it, but not behind a sum."""
    if is_op(reader, "Mul") and reader is not None:
        return any(scope.value(t).constant for t in reader.inputs)
    return is_op(reader, "LeakyRelu", "Clip", "BatchNormalization", "Add", "Sum")
