"""Shapes of com.microsoft's attention and state operators: the result, and caches (B, H, T, D) that go on."""

from __future__ import annotations

from onnx import TensorProto as T

from onnxfuse.facts.call import SAME, Call, Result, Unclear, like, rule
from onnxfuse.facts.expr import Dim, dmax, floor_div
from onnxfuse.facts.value import Shape


def _heads(c: Call, name: str = "num_heads") -> int:
    heads = c.attr(name, 0)
    if heads < 1:
        raise Unclear
    return heads


def _grown(c: Call, past: int, axis: int, steps: Dim) -> Shape:
    """The cache in input `past` after `steps` more; a buffer that past and present share keeps its shape."""
    cache = c.shape(past)
    if c.attr("past_present_share_buffer", 0):
        return cache
    return (*cache[:axis], cache[axis] + steps, *cache[axis + 1 :])


def _projecting(c: Call, width: Dim, value_width: Dim, past: int) -> Result:
    """y (B, S, Dv) and present (2, B, H, T, D) of attention that projects x (B, S, C) itself."""
    batch, steps, _ = c.shape(0)
    heads = _heads(c)
    present = _grown(c, past, 3, steps) if c.has(past) else (2, batch, heads, steps, floor_div(width, heads))
    return [(batch, steps, value_width), present]


@rule("com.microsoft:Attention", SAME)
def _attention(c: Call) -> Result:
    sizes = c.attr_ints("qkv_hidden_sizes")
    width: Dim = floor_div(c.shape(1)[1], 3)
    return _projecting(c, sizes[0] if sizes else width, sizes[2] if sizes else width, 4)


@rule("com.microsoft:QAttention", like(3))
def _quantized_attention(c: Call) -> Result:
    width = floor_div(c.shape(1)[1], 3)
    return _projecting(c, width, width, 8)


@rule("com.microsoft:QOrderedAttention", SAME)
def _qordered_attention(c: Call) -> Result:
    return (*c.shape(0)[:2], c.shape(7)[1])


@rule("com.microsoft:LongformerAttention com.microsoft:QOrderedLongformerAttention", SAME)
def _longformer(c: Call) -> Result:
    return c.shape(0)


@rule("com.microsoft:DecoderMaskedSelfAttention", SAME)
def _decoder_self(c: Call) -> Result:
    x = c.shape(0)
    return [(*x[:2], floor_div(c.shape(1)[1], 3)), _grown(c, 4, 3, x[1])]


@rule("com.microsoft:DecoderAttention", SAME)
def _decoder(c: Call) -> Result:
    return [c.shape(0), None, None]


@rule("com.microsoft:MultiHeadAttention", SAME)
def _multi_head_attention(c: Call) -> Result:
    q, heads = c.shape(0), c.attr("num_heads", 0)
    if len(q) == 5:  # packed [batch, steps, heads, 3, size]
        return [(q[0], q[1], q[2] * q[4])]
    k = c.shape(1)
    if len(k) == 5:  # k and v packed [batch, steps, heads, 2, size]
        return [(q[0], q[1], k[2] * k[4])]
    v = c.shape(2)
    y = (q[0], q[1], v[2] if len(v) == 3 else v[1] * v[3])
    if len(v) == 4 or heads < 1:
        return [y, k if len(k) == 4 else None, v if len(v) == 4 else None]
    if c.has(6) and c.has(7):
        return [y, _grown(c, 6, 2, k[1]), _grown(c, 7, 2, k[1])]
    return [y, *((q[0], heads, k[1], floor_div(one[2], heads)) for one in (k, v))]


@rule("com.microsoft:DecoderMaskedMultiHeadAttention", SAME)
def _decoder_multi_head(c: Call) -> Result:
    q = c.shape(0)
    if not c.has(1):  # packed q, k, v of one width
        width: Dim = floor_div(q[2], 3)
    else:
        v = c.shape(2)
        width = v[2] if len(v) == 3 else v[1] * v[3]
    caches = [_grown(c, i, 2, q[1]) if c.has(i) else None for i in (5, 6)]
    return [(q[0], q[1], width), *caches]


@rule("com.microsoft:GroupQueryAttention", SAME, like(3), like(4))
def _group_query_attention(c: Call) -> Result:
    """The caches are as long as the total length says, at least as long as they were."""
    q, heads, kv_heads = c.shape(0), _heads(c), _heads(c, "kv_num_heads")
    size = floor_div(q[2], heads if c.has(1) else heads + 2 * kv_heads)
    y = (q[0], q[1], size * heads)
    total = c.value(6).data
    caches: list[Shape | None] = []
    for i in (3, 4):
        past = c.value(i).shape if c.has(i) else (q[0], kv_heads, 0, size)
        if past is None or len(past) != 4:
            caches.append(None)
            continue
        length: Dim = c.fresh(i - 2, 2)
        if total is not None and total.size == 1 and total.dtype == object:
            length = dmax(past[2], total.item())
        caches.append((past[0], past[1], length, past[3]))
    return [y, *caches]


@rule("com.microsoft:SparseAttention", SAME)
def _sparse(c: Call) -> Result:
    return [_query(c), c.value(3).shape, c.value(4).shape]


@rule("com.microsoft:PagedAttention com.microsoft:SparsePagedAttention", SAME, like(3), like(4))
def _paged(c: Call) -> Result:
    return [_query(c), c.value(3).shape, c.value(4).shape]


@rule("com.microsoft:DynamicSparseAttention", SAME, like(3), like(4), T.INT32)
def _dynamic_sparse(c: Call) -> Result:
    return [_query(c)]


def _query(c: Call) -> Shape:
    """The shape of q without the k and v that may be packed into it."""
    q, heads = c.shape(0), _heads(c)
    if c.has(1):
        return q
    return (*q[:-1], floor_div(q[-1], heads + 2 * _heads(c, "kv_num_heads")) * heads)


@rule("com.microsoft:PackedAttention", SAME)
def _packed(c: Call) -> Result:
    sizes = c.attr_ints("qkv_hidden_sizes")
    return (c.shape(0)[0], sizes[2] if sizes else floor_div(c.shape(1)[1], 3))


@rule("com.microsoft:PackedMultiHeadAttention", SAME)
def _packed_multi_head(c: Call) -> Result:
    q = c.shape(0)
    return (q[0], q[1] * q[3]) if len(q) == 4 else (q[0], c.shape(2)[1])


@rule("com.microsoft:GatedRelativePositionBias")
def _gated_bias(c: Call) -> Result:
    _, heads, rows, columns = c.shape(2)
    return (c.shape(6)[0] if c.has(6) else c.shape(0)[0], heads, rows, columns)


@rule("com.microsoft:RelativePositionBias")
def _relative_bias(c: Call) -> Result:
    heads = c.shape(0)[1]
    (rows,), (columns,) = c.dims(1), c.dims(2)
    return (1, heads, rows, columns)


@rule("com.microsoft:GatedDeltaNet", SAME, like(6))
def _gated_delta_net(c: Call) -> Result:
    q = c.shape(0)
    if c.has(6):
        _, heads, value_size, size = c.shape(6)
    else:
        _, heads, value_size = c.shape(2)
        size = q[-1]
    queries = q[1] if len(q) == 3 else floor_div(q[1] - heads * value_size, size * 2)
    return [(q[0], dmax(queries, heads), value_size), c.value(6).shape]


@rule("com.microsoft:Mamba2Verify", SAME, SAME, T.FLOAT, SAME, T.FLOAT)
def _mamba(c: Call) -> Result:
    rows, conv, state = c.shape(0)[0], c.shape(1), c.shape(2)
    inner = state[1] * state[3]
    return [(rows, inner), conv, state, (rows, conv[1]), (rows, inner)]
