"""Shapes of matrix products, einsum, recurrent layers, attention and other linear algebra."""

from __future__ import annotations

from onnx import TensorProto as T

from onnxfuse.facts.call import SAME, Call, Result, Unclear, broadcast, like, normal_axis, rule, same_dim
from onnxfuse.facts.expr import Dim, floor_div
from onnxfuse.facts.value import Shape


def product_shape(a: Shape, b: Shape) -> Shape:
    """numpy.matmul: 1-D operands lose their axis, leading axes broadcast. Unclear where the inner dims differ."""
    if not a or not b:
        raise Unclear
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    same_dim((a[-1], b[-2] if len(b) > 1 else b[0]))
    return (*broadcast((a[:-2], b[:-2])), *rows, *columns)


@rule("MatMul")
def _matmul(c: Call) -> Result:
    return product_shape(c.shape(0), c.shape(1))


@rule("MatMulInteger com.microsoft:MatMulInteger16", T.INT32)
def _matmul_integer(c: Call) -> Result:
    return product_shape(c.shape(0), c.shape(1))


@rule("com.microsoft:MatMulIntegerToFloat", like(2))
def _matmul_integer_to_float(c: Call) -> Result:
    return product_shape(c.shape(0), c.shape(1))


@rule("com.microsoft:DynamicQuantizeMatMul")
def _dynamic_quantize_matmul(c: Call) -> Result:
    return product_shape(c.shape(0), c.shape(1))


@rule("QLinearMatMul", like(7))
def _qlinear_matmul(c: Call) -> Result:
    return product_shape(c.shape(0), c.shape(3))


@rule("com.microsoft:MatMulNBits com.microsoft:MatMulBnb4")
def _matmul_packed(c: Call) -> Result:
    x = c.shape(0)
    columns = c.attr("N", 0)
    if not x or columns < 1:
        raise Unclear
    return (*x[:-1], columns)


def _swap(shape: Shape) -> Shape:
    return shape if len(shape) < 2 else (*shape[:-2], shape[-1], shape[-2])


def _batch_last(shape: Shape) -> Shape:
    """`transBatch`: the first axis stands just before the last one."""
    return shape if len(shape) < 3 else (*shape[1:-1], shape[0], shape[-1])


@rule("com.microsoft:FusedMatMul com.microsoft:TransposeMatMul com.microsoft:FusedMatMulActivation")
def _fused_matmul(c: Call) -> Result:
    operands = []
    for i, side in enumerate("AB"):
        shape = c.shape(i)
        if c.attr(f"transBatch{side}", 0):
            shape = _batch_last(shape)
        operands.append(_swap(shape) if c.attr(f"trans{side}", 0) else shape)
    return product_shape(operands[0], operands[1])


@rule("Gemm com.microsoft:FusedGemm com.microsoft:GemmFastGelu com.microsoft:GemmFloat8")
def _gemm(c: Call) -> Result:
    a, b = c.shape(0), c.shape(1)
    if len(a) != 2 or len(b) != 2:
        raise Unclear
    (m, k), (k2, n) = a[:: -1 if c.attr("transA", 0) else 1], b[:: -1 if c.attr("transB", 0) else 1]
    same_dim((k, k2))
    return (m, n)


@rule("com.microsoft:QGemm", SAME)
def _quantized_gemm(c: Call) -> Result:
    a, b = c.shape(0), c.shape(3)
    return (a[c.attr("transA", 0)], b[1 - c.attr("transB", 0)])


def einsum_labels(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Labels of each operand and of the result; the axes under an ellipsis are "0", "1", … counted from its end.

    Raises ValueError where the equation does not fit the ranks.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"einsum '{equation}' has {len(terms)} operands, not {len(ranks)}")
    operands: list[list[str]] = []
    for term, rank in zip(terms, ranks, strict=True):
        head, dots, tail = term.partition("...")
        hidden = rank - len(head) - len(tail)
        if hidden < 0 or (hidden and not dots):
            raise ValueError(f"einsum '{equation}': '{term}' does not fit rank {rank}")
        operands.append([*head, *(str(i) for i in range(hidden - 1, -1, -1)), *tail])
    widest = max((sum(label.isdigit() for label in labels) for labels in operands), default=0)
    ellipsis = [str(i) for i in range(widest - 1, -1, -1)]
    if arrow:
        head, dots, tail = right.partition("...")
        return operands, [*head, *(ellipsis if dots else []), *tail]
    every = [label for labels in operands for label in labels if not label.isdigit()]
    return operands, [*ellipsis, *sorted(label for label in set(every) if every.count(label) == 1)]


@rule("Einsum")
def _einsum(c: Call) -> Result:
    shapes = [c.shape(i) for i in range(len(c.inputs))]
    operands, result = einsum_labels(c.text("equation", ""), [len(s) for s in shapes])
    sizes: dict[str, Dim] = {}
    for shape, labels in zip(shapes, operands, strict=True):
        for d, label in zip(shape, labels, strict=True):
            sizes[label] = broadcast(((sizes.get(label, 1),), (d,)))[0]
    return tuple(sizes[label] for label in result)


@rule("Det")
def _det(c: Call) -> Result:
    return c.shape(0)[:-2]


# Recurrent -----------------------------------------------------------------------------------------------------------


@rule("LSTM GRU RNN com.microsoft:DynamicQuantizeLSTM com.microsoft:AttnLSTM")
def _recurrent(c: Call) -> Result:
    x = c.shape(0)
    if len(x) != 3:
        raise Unclear
    hidden: Dim = c.attr("hidden_size", 0)
    if hidden == 0:
        r = c.shape(2)
        hidden = r[1] if c.node.op_type == "DynamicQuantizeLSTM" else r[-1]
    directions = 2 if c.text("direction", "forward").lower() == "bidirectional" else 1
    if c.attr("layout", 0):
        batch, steps, _ = x
        state: Shape = (batch, directions, hidden)
        return [(batch, steps, directions, hidden), state, state]
    steps, batch, _ = x
    state = (directions, batch, hidden)
    return [(steps, directions, batch, hidden), state, state]


# Attention -----------------------------------------------------------------------------------------------------------


@rule("Attention", like(0), like(1), like(2), like(0))
def _attention(c: Call) -> Result:
    """Inputs Q, K, V, mask, past key, past value; outputs Y, present key, present value, scores (ONNX Attention-23)."""
    q, k, v = c.shape(0), c.shape(1), c.shape(2)
    if len(q) == 3:
        heads, kv_heads = c.attr("q_num_heads", 0), c.attr("kv_num_heads", 0)
        if heads < 1 or kv_heads < 1:
            raise Unclear
        batch, queries, _ = q
        keys, key_size, value_size = k[1], floor_div(k[2], kv_heads), floor_div(v[2], kv_heads)
        y: Shape = (batch, queries, value_size * heads)
        q_heads: Dim = heads
        k_heads: Dim = kv_heads
    else:
        batch, q_heads, queries, _ = q
        _, k_heads, keys, key_size = k
        value_size = v[3]
        y = (batch, q_heads, queries, value_size)
    total = keys + c.shape(4)[2] if c.has(4) else keys
    return [y, (batch, k_heads, total, key_size), (batch, k_heads, total, value_size), (batch, q_heads, queries, total)]


@rule("LinearAttention com.microsoft:LinearAttention", like(0), like(0))
def _linear_attention(c: Call) -> Result:
    """Packed q [B, T, Hq·Dk], k [B, T, Hkv·Dk], v [B, T, Hkv·Dv]; state [B, Hkv, Dk, Dv] (LinearAttention-27)."""
    (batch, steps, _), k, v = c.shape(0), c.shape(1), c.shape(2)
    heads, kv_heads = c.attr("q_num_heads", 0), c.attr("kv_num_heads", 0)
    if heads < 1 or kv_heads < 1:
        raise Unclear
    key_size, value_size = floor_div(k[2], kv_heads), floor_div(v[2], kv_heads)
    return [(batch, steps, value_size * heads), (batch, kv_heads, key_size, value_size)]


@rule("CausalConvWithState", like(0), like(0))
def _causal_conv(c: Call) -> Result:
    x = c.shape(0)
    return [x, (*x[:2], c.shape(1)[-1] - 1)]


@rule("RotaryEmbedding com.microsoft:RotaryEmbedding com.microsoft:MRotaryEmbedding")
def _rotary(c: Call) -> Result:
    return c.shape(0)


# Transforms ----------------------------------------------------------------------------------------------------------


@rule("DFT")
def _dft(c: Call) -> Result:
    x = c.shape(0)
    at = c.attr("axis", 1)
    if c.version >= 20:
        at = c.ints(2)[0] if c.has(2) else -2
    axis = normal_axis(at, len(x))
    out = list(x)
    if c.has(1):
        out[axis] = c.dims(1)[0]
    one_sided, inverse = c.attr("onesided", 0), c.attr("inverse", 0)
    if one_sided and inverse:
        out[-1] = 1
        if not c.has(1):
            out[axis] = (x[axis] - 1) * 2
    else:
        out[-1] = 2
        if one_sided:
            out[axis] = floor_div(out[axis], 2) + 1
    return tuple(out)


@rule("STFT")
def _stft(c: Call) -> Result:
    x = c.shape(0)
    (step,) = c.dims(1)
    length = c.dims(3)[0] if c.has(3) else c.shape(2)[0]
    bins = floor_div(length, 2) + 1 if c.attr("onesided", 1) else length
    return (x[0], floor_div(x[1] - length, step) + 1, bins, 2)
