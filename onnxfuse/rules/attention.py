"""Attention in its parts becomes one operator, which neither writes the scores nor moves the heads around.

softmax(s·q·kᵀ + m)·v = Attention(x, [Wq Wk Wv], [bq bk bv], m) with scale s, where q = x·Wq + bq, k and v are the heads
of projections of one x by constant weights: in one product or in three, the heads taken out by any Reshape, Transpose,
Split, Gather and Slice, with batch or tokens first. The columns of the weights are put in the order that the operator
knows; one matrix in that order stays it. Factors at q, at kᵀ and behind them are one s > 0; m is [batch or 1, heads or
1, steps, keys], no other shape. Else, where the target has it, it is MultiHeadAttention(q, k, v), heads side by side.

Only float32, and only where no value between is read elsewhere. Padding masks [batch, 1, 1, keys] stay as they are:
onnxruntime fuses BERT's by itself. NaN, infinities, rows masked with -inf (NaN) and with the lowest number (the mean
of v) give what they gave in onnxruntime, and so does a batch or a sequence of length 0; a product that overflows before
s is applied may overflow in one order only.

Measured (onnxruntime 1.32, CPU, one thread, medians of paired ratios of processor time) for Attention: 1.05x on
[1, 197, 768] with 12 heads, 1.15x on [8, 197, 384], 1.03x on [1, 128, 768] with a mask; but 0.56x on 16 sequences of 1
token and 0.96x on 256 of 8, which the operator multiplies by the weights one by one. Whole models: vit_b_16, whose
Transposes fall away too, 1.02x, a BERT of two layers 1.015x, and 0.99x for the windows of swin_t, 49 tokens each,
though alone they take 1.00x to 1.14x: many sequences of fewer than 64 stay. Where the length is free, it is made: a
BERT takes 1.0x of before for 32 sequences of 8 tokens and 0.8x for 16 of 1. MultiHeadAttention is slower there with a
mask (0.95x) and no faster without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope
from onnxfuse.rules._attention import Core, Sizes, check_private, core, heads, joined, mask_input, token_axes
from onnxfuse.rules._known import same_dims
from onnxfuse.rules._layout import origins
from onnxfuse.rules._projection import projection, side_by_side
from onnxfuse.targets import MICROSOFT

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
MEASURED = ("ort-cpu",)
ROOTS = ("Softmax",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,2] x) => (float[1,3,4] y)
<float[2,12] w = {1, 0, 2, 1, 0, 1, 1, -1, 1, 2, 3, 4, 0, 1, -1, 1, 1, 0, 2, 1, 4, 3, 2, 1},
 float[12] b = {1, 2, 0, 1, 0, 1, 2, 1, 1, 0, 1, 2}, int64[3] parts = {4, 4, 4}, int64[4] apart = {0, 0, 2, 2},
 int64[3] together = {0, 0, 4}, float scale = {0.5}>
{ xw = MatMul (x, w)  qkv = Add (xw, b)  q, k, v = Split <axis = 2> (qkv, parts)
  qs = Reshape (q, apart)  qh = Transpose <perm = [0, 2, 1, 3]> (qs)
  ks = Reshape (k, apart)  kh = Transpose <perm = [0, 2, 3, 1]> (ks)
  vs = Reshape (v, apart)  vh = Transpose <perm = [0, 2, 1, 3]> (vs)
  qk = MatMul (qh, kh)  scores = Mul (qk, scale)  p = Softmax <axis = -1> (scores)
  ph = MatMul (p, vh)  ps = Transpose <perm = [0, 2, 1, 3]> (ph)  y = Reshape (ps, together) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,3,2] x) => (float[1,3,4] y)
<float[2,12] w = {1, 0, 2, 1, 0, 1, 1, -1, 1, 2, 3, 4, 0, 1, -1, 1, 1, 0, 2, 1, 4, 3, 2, 1},
 float[12] b = {1, 2, 0, 1, 0, 1, 2, 1, 1, 0, 1, 2}>
{ y = com.microsoft.Attention <num_heads = 2, scale = 0.5> (x, w, b) }
"""
_FEWEST_STEPS = 64  # of one of many sequences, whose products with the weights are apart


@dataclass(frozen=True, slots=True, eq=False)
class _Operands:
    """Inputs before the mask and attributes of the operator, factors of the scores and of v, sizes of q, k and v."""

    inputs: tuple[gs.Tensor | None, ...]
    attrs: dict[str, Any]
    factor: float
    value_factor: float
    sizes: tuple[Sizes, Sizes, Sizes]


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    kernels = [scope.target.kernels.get((MICROSOFT, name)) for name in ("Attention", "MultiHeadAttention")]
    found = core(node, scope) if any(kernels) else None
    if found is None:
        return None
    packed, separate = (k is not None and scope.value(found.result).dtype in k.dtypes for k in kernels)
    if packed:
        try:
            return _packed(found, scope)
        except NotLegal:
            if not separate:
                raise
    if separate:
        return _separate(found, scope)
    raise NotLegal("the operator takes no values of this dtype")


def _packed(found: Core, scope: Scope) -> Rewrite:
    """Attention over x itself."""
    parts = [projection(t, scope, transposed=t is found.k) for t in (found.q, found.k, found.v)]
    q, k, v = (p.heads for p in parts)
    axes = token_axes(q)
    if len({id(p.x) for p in parts}) > 1 or {token_axes(k), token_axes(v)} != {axes}:
        raise NotLegal("q, k and v are not made of the same tokens")
    batch, _, steps, _ = q.sizes
    if isinstance(steps, int) and steps < _FEWEST_STEPS and batch != 1 and scope.target.name in MEASURED:
        raise NotLegal(f"sequences of {steps} tokens would be multiplied by the weights one by one")
    build = Build(scope, found.nodes[0])
    x = parts[0].x if axes == (0, 1) else build("Transpose", parts[0].x, perm=[1, 0, 2])
    weight, bias = side_by_side(build, parts, scope)
    widths = [len(p.columns) for p in parts]
    attrs = {"qkv_hidden_sizes": widths} if len(set(widths)) > 1 else {}
    factor = found.factor * q.origin.factor * k.origin.factor
    operands = _Operands((x, weight, bias, None, None), attrs, factor, v.origin.factor, (q.sizes, k.sizes, v.sizes))
    return _made(build, "Attention", operands, found, [n for p in parts for n in p.nodes], scope)


def _separate(found: Core, scope: Scope) -> Rewrite:
    """MultiHeadAttention over q, k and v, heads side by side."""
    build = Build(scope, found.nodes[0])
    parts = [_tokens(build, t, scope, transposed=t is found.k) for t in (found.q, found.k, found.v)]
    (q, q_factor, a), (k, k_factor, b), (v, v_factor, c) = parts
    operands = _Operands((q, k, v, None, None), {}, found.factor * q_factor * k_factor, v_factor, (a, b, c))
    return _made(build, "MultiHeadAttention", operands, found, [], scope)


def _tokens(build: Build, tensor: gs.Tensor, scope: Scope, *, transposed: bool) -> tuple[gs.Tensor, float, Sizes]:
    """Heads side by side, [batch, steps, heads·size]: a value that is there, or a new one; a factor, and the sizes."""
    for origin in origins(tensor, scope):
        of = heads(origin, transposed=transposed)
        axes, columns = (None, None) if of is None else (token_axes(of), of.columns())
        if of is None or axes is None or columns is None:
            continue
        if len(columns) == origin.shape[2] and np.array_equal(columns, np.arange(len(columns))):
            found = origin.tensor if axes == (0, 1) else build("Transpose", origin.tensor, perm=[1, 0, 2])
            return found, origin.factor, of.sizes
    shape = scope.value(tensor).shape
    if shape is None or len(shape) != 4:
        raise NotLegal(f"'{tensor.name}' is not surely heads of tokens")
    batch, count, steps, size = (*shape[:2], *(shape[:1:-1] if transposed else shape[2:]))
    if not isinstance(count, int) or not isinstance(size, int) or not count * size:
        raise NotLegal(f"the number of heads of '{tensor.name}' is not known")
    apart = build("Transpose", tensor, perm=[0, 3, 1, 2] if transposed else [0, 2, 1, 3])
    return (
        build("Reshape", apart, build.constant(np.array([0, 0, count * size], np.int64))),
        1.0,
        (batch, count, steps, size),
    )


def _made(
    build: Build, op_type: str, operands: _Operands, found: Core, others: Sequence[gs.Node], scope: Scope
) -> Rewrite:
    """The operator in the place of the core, of these other nodes, and of the views that join the heads."""
    q, k, v = operands.sizes
    if not same_dims((*q[:2], q[3]), (*k[:2], k[3])) or not same_dims((*k[:3],), (*v[:3],)):
        raise NotLegal("q, k and v are not surely of the same sequences and heads")
    batch, count, steps, size = *q[:3], v[3]
    if not isinstance(count, int) or not isinstance(size, int):
        raise NotLegal("the number of heads is not known")
    if not 0 < np.float32(operands.factor) < np.inf or operands.value_factor != 1:  # 0 would mean 1/√size
        raise NotLegal(f"the scores are multiplied by {operands.factor}, v by {operands.value_factor}")
    end = joined(found, (batch, count, steps, size), scope)
    check_private([*found.nodes, *end.nodes, *{id(n): n for n in others}.values()], end.tensor, scope)
    if found.mask is not None and not scope.target.kernels[MICROSOFT, op_type].masks:
        raise NotLegal(f"{op_type} would lose its mask in the next step")
    mask = mask_input(build, found, (batch, count, steps, k[2]), scope)
    inputs = [*operands.inputs, mask] if mask is not None else [t for t in operands.inputs if t is not None]
    attrs = operands.attrs | {"num_heads": count, "scale": operands.factor}
    direct = end.tensor if not (end.swapped or end.flat) else None
    y = build(op_type, *inputs, out=direct, domain=MICROSOFT, **attrs)
    if end.swapped:
        y = build("Transpose", y, out=None if end.flat else end.tensor, perm=[1, 0, 2])
    if end.flat:
        build("Reshape", y, build.constant(np.array([-1, count * size], np.int64)), out=end.tensor)
    return build.rewrite()
