"""Convolutions of one value that leave blocks of channels half empty become one convolution, whose result is split.

[w₁; w₂] ∗ x = [w₁ ∗ x; w₂ ∗ x]: output channels are computed apart from each other. onnxruntime's CPU provider computes
them in blocks of 16 (8 without AVX-512), so that the heads of a detector with 4 and 2 channels cost two blocks, and
together one.

Transposes behind all of them become one too, [t(w₁ ∗ x); t(w₂ ∗ x)] = t([w₁; w₂] ∗ x) along the moved axis: two kernels
less and x read once, which is why it is also made on other targets where that pays by the roofline.

Conditions: the same kernel, strides, dilations and pads, one group, constant weights; on ort-cpu blocks saved, and
readers that run on no blocks, which the parts of a Split are not in: nothing that it fuses with a convolution.
Measured with onnxruntime 1.32, one thread of AVX-512, with a 1x1 convolution before and Transposes behind: 4 + 2
channels of 8 to 64 1.20x to 1.36x, 3x3 1.54x and 1.66x; 36 + 9 of 256, 3x3 1.21x; 24 + 24 of 64 1.09x, 3x3 1.29x;
3 + 12 of 256 1.06x. Without a block saved 0.94x to 1.01x, and three Gemm or MatMul as one 0.94x to 1.07x: not made.
Each element is computed as before; NaN stays NaN.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, check_size, is_op
from onnxfuse.rules._blocked import BLOCK, TAKE
from onnxfuse.rules._known import given, perm_of

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
MEASURED = ("ort-cpu",)
ROOTS = ("Conv",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,4,4] x) => (float[1,1,4,4] a, float[1,2,4,4] b)
<float[1,2,1,1] w = {1, 2}, float[1] c = {5}, float[2,2,1,1] v = {3, 4, 6, 7}> { a = Conv (x, w, c)  b = Conv (x, v) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,4,4] x) => (float[1,1,4,4] a, float[1,2,4,4] b)
<float[3,2,1,1] w = {1, 2, 3, 4, 6, 7}, float[3] c = {5, 0, 0}, int64[2] s = {1, 2}>
{ t = Conv (x, w, c)  a, b = Split <axis = 1> (t, s) }
"""
_MOST = 16  # siblings
_SPLIT = 8  # multiplications that take as long as to copy one element of the result
_SIZES_ARE_INPUT = 13


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    x, on_blocks = node.inputs[0], scope.target.name in MEASURED
    like = _shape(node, scope) if 1 < scope.editor.use_count(x) <= _MOST else None
    if like is None or node.attrs.get("group", 1) != 1:
        return None
    siblings = [n for n in scope.editor.consumers(x) if _is_like(n, node, like, scope)]
    if len(siblings) < 2 or siblings[0] is not node:
        return None
    outs = [shape[0] for n in siblings if (shape := _shape(n, scope))]
    saved = sum(-(-n // BLOCK) for n in outs) - -(-sum(outs) // BLOCK)
    if on_blocks and (saved * BLOCK * prod(like[1:]) < _SPLIT * sum(outs) or not saved):
        raise NotLegal("together they fill as many blocks of channels, or too little work is saved for a copy")
    perm = _moved(siblings, scope)
    if not on_blocks and perm is None:
        return None
    check_size(sum(outs), *like[1:])
    weights, biases = [_stored(n.inputs[1], scope) for n in siblings], [given(n, 2) for n in siblings]
    build = Build(scope, node)
    inputs = [x, build.constant(np.concatenate(weights))]
    if any(b is not None for b in biases):
        parts = [np.zeros(n, np.float32) if b is None else _stored(b, scope) for n, b in zip(outs, biases, strict=True)]
        inputs.append(build.constant(np.concatenate(parts)))
    whole, axis, results = build("Conv", *inputs, **node.attrs), 1, [n.outputs[0] for n in siblings]
    if perm is not None:
        whole, axis = build("Transpose", whole, perm=perm), perm.index(1)
        results = [n.outputs[0] for t in results for n in scope.editor.consumers(t)]
    attrs: dict[str, Any] = {"axis": axis}
    if scope.opset < _SIZES_ARE_INPUT:
        attrs["split"], sizes = outs, []
    else:
        sizes = [build.constant(np.array(outs, np.int64))]
    build.nodes.append(scope.editor.node("Split", [whole, *sizes], results, attrs=attrs, name=node.name))
    return build.rewrite()


def _moved(siblings: list[gs.Node], scope: Scope) -> list[int] | None:
    """The permutation of the Transposes behind all of them that nobody passes by; None where there are none."""
    perms = []
    for node in siblings:
        reader = scope.editor.only_use(node.outputs[0])
        perms.append(perm_of(reader, scope) if reader is not None and is_op(reader, "Transpose") else None)
    return perms[0] if all(p == perms[0] for p in perms) else None


def _is_like(node: gs.Node, first: gs.Node, shape: tuple[int, ...], scope: Scope) -> bool:
    """Whether a reader of the value is such a convolution, and what reads it in turn runs on no blocks."""
    if not is_op(node, "Conv") or node.inputs[0] is not first.inputs[0] or node.attrs != first.attrs:
        return False
    readers = scope.editor.consumers(node.outputs[0])
    return (_shape(node, scope) or ())[1:] == shape[1:] and not any(is_op(n, *TAKE) for n in readers)


def _shape(conv: gs.Node, scope: Scope) -> tuple[int, ...] | None:
    """Shape of the weights of a convolution of images in float32; None where it is not known."""
    weight = scope.value(conv.inputs[1])
    if weight.shape is None or len(weight.shape) != 4 or weight.dtype != TensorProto.FLOAT:
        return None
    dims = tuple(d for d in weight.shape if isinstance(d, int))
    return dims if len(dims) == 4 else None


def _stored(tensor: gs.Tensor, scope: Scope) -> np.ndarray:
    array = scope.constant(tensor)
    if array is None:
        raise NotLegal(f"'{tensor.name}' is not constant")
    return array
