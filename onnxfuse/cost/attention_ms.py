"""Attention of com.microsoft over packed tokens, caches and selected positions; counts as in attention.py.

Where lengths are in the data, the cost is an upper bound: every sequence as long as the longest one may be. Of a cache
or a table of pages only what those lengths can reach is read, and only the new rows are written.
"""

from __future__ import annotations

from dataclasses import replace

from onnxfuse.cost.attention import attended
from onnxfuse.cost.registry import Call, Cost, Unknown, bytes_of, op, prod
from onnxfuse.facts.expr import Dim, dmin
from onnxfuse.facts.value import Value

_MS = "com.microsoft"


def _heads(call: Call) -> int:
    heads = call.attr("num_heads", 0)
    if not isinstance(heads, int) or heads < 1:
        raise Unknown("its num_heads is missing")
    return heads


def _projected(call: Call, weights: tuple[int, ...], bias: int, past: int, mask: tuple[int, ...]) -> Cost:
    """Self-attention that projects x (B, S, C) to q, k, v by `weights` of (C, ·) itself; past is (2, B, H, P, D)."""
    x, heads = call.shape(0, 3), _heads(call)
    width: Dim = 0
    for i in weights:
        width = width + call.shape(i, 2)[1]
    hidden = call.attr("qkv_hidden_sizes", None) or (width // 3,) * 3
    tokens = x[0] * x[1]
    skv = x[1] + (call.shape(past, 5)[3] if call.has(past) else 0)
    masked = any(map(call.has, mask)) or bool(call.attr("unidirectional", 0))
    extra = tokens * width if call.has(bias) else 0
    macs = tokens * x[2] * width + tokens * skv * (hidden[0] + hidden[2])
    return attended(call, macs, heads * tokens * skv, masked=masked, extra=extra)


@op("Attention", kind="attention", domain=_MS)
def attention(call: Call) -> Cost:
    """x (B, S, C), w (C, 3·H·D), bias, mask, past (2, B, H, P, D), attention bias."""
    return _projected(call, (1,), 2, 4, (3, 5))


@op("QAttention", kind="attention", domain=_MS)
def qattention(call: Call) -> Cost:
    """x, w, bias, their scales, mask (5), zero points (6, 7), past (8): the projection is scaled, 1 FLOP an element."""
    arith = call.shape(0, 3)[0] * call.shape(0)[1] * call.shape(1, 2)[1]
    arith = arith + (call.size(0) if call.has(6) else 0) + (call.size(1) if call.has(7) else 0)
    return _projected(call, (1,), 2, 8, (5,)) + Cost(arith=arith)


@op("QOrderedAttention", kind="attention", domain=_MS)
def qordered_attention(call: Call) -> Cost:
    """x, its scale, scales of q, k, v, weights (5, 6, 7), their scales, biases (11 …), mask (17), past (18), bias (19).

    The projections and the result are scaled, 1 FLOP an element.
    """
    width = prod(call.shape(0, 3)[:2]) * (call.shape(5, 2)[1] + call.shape(6, 2)[1] + call.shape(7, 2)[1])
    return _projected(call, (5, 6, 7), 11, 18, (17, 19)) + Cost(arith=width + call.out_size())


@op("DecoderMaskedSelfAttention", kind="attention", domain=_MS)
def decoder_masked_self_attention(call: Call) -> Cost:
    """x (B, 1, C), w (C, 3·H·D), bias, mask, past, attention bias … -> y, present (2, B, H, T, D); T is its length."""
    x, w, heads = call.shape(0, 3), call.shape(1, 2), _heads(call)
    scores = x[0] * heads * call.out_shape(1, 5)[3]
    macs = x[0] * x[2] * w[1] + scores // heads * (w[1] // 3) * 2
    return attended(call, macs, scores, masked=call.has(3) or call.has(5), extra=x[0] * w[1])


@op("DecoderMaskedMultiHeadAttention", kind="attention", domain=_MS)
def decoder_masked_multi_head_attention(call: Call) -> Cost:
    """q (B, 1, H·D) or packed, k, v, mask, attention bias, past k, past v …, bias (10) -> y, present k (B, H, T, D).

    k and v of rank 4 are the cache of a cross attention.
    """
    q, heads = call.shape(0, 3), _heads(call)
    if call.has(1) and len(call.shape(1)) == 4:
        length = call.shape(1)[2]
    elif call.gives(1):
        length = call.out_shape(1, 4)[2]
    else:
        length = 1 + (call.shape(5, 4)[2] if call.has(5) else 0)
    dv = call.out_shape(0, 3)[2] // heads
    d = q[2] // heads if call.has(1) else (q[2] // heads - dv) // 2
    scores = q[0] * heads * length
    extra = q[0] * call.size(10) if call.has(10) else 0
    return attended(call, scores * (d + dv), scores, masked=call.has(3) or call.has(4), extra=extra)


@op("DecoderAttention", kind="attention", domain=_MS)
def decoder_attention(call: Call) -> Cost:
    """q (S, B, C), k (T, B, C), wq (C, C), wkv (C, 2·C), bias, mask, caches. With a cache, flags in the data decide."""
    if call.has(6) or call.has(7):
        raise Unknown("flags in the data say what it does with its cache")
    q, k, heads = call.shape(0, 3), call.shape(1, 3), _heads(call)
    scores = q[1] * heads * q[0] * k[0]
    macs = call.size(0) * q[2] + call.size(1) * 2 * q[2] + scores // heads * q[2] * 2
    extra = call.size(0) + 2 * call.size(1)
    return attended(call, macs, scores, masked=call.has(5), extra=extra)


@op("PackedAttention", kind="attention", domain=_MS)
def packed_attention(call: Call) -> Cost:
    """x (tokens, C), w (C, 3·H·D), bias, token offset (B, S), lengths, attention bias: at most S keys a token."""
    x, w, heads = call.shape(0, 2), call.shape(1, 2), _heads(call)
    hidden = call.attr("qkv_hidden_sizes", None) or (w[1] // 3,) * 3
    pairs = x[0] * call.shape(3, 2)[1]
    macs = call.size(0) * w[1] + pairs * (hidden[0] + hidden[2])
    return attended(call, macs, pairs * heads, masked=call.has(5), extra=x[0] * w[1])


@op("PackedMultiHeadAttention", kind="attention", domain=_MS)
def packed_multi_head_attention(call: Call) -> Cost:
    """q (tokens, H·D) or (tokens, H, 3, D), k, v, bias, token offset (B, S), lengths, attention bias.

    At most S keys a token.
    """
    q, heads = call.shape(0, 2, 4), _heads(call)
    width = q[1] + call.shape(2, 2)[1] if len(q) == 2 else 2 * heads * q[3]
    pairs = q[0] * call.shape(4, 2)[1]
    extra = q[0] * call.size(3) if call.has(3) else 0
    return attended(call, pairs * width, pairs * heads, masked=call.has(6), extra=extra)


def _cached(call: Call, scores: Dim, cache: tuple[int, ...], reach: Dim, rotary: int) -> Cost:
    """q (…, Hq·D), alone or packed with k and v; no more of a cache is read than `reach` rows.

    rotary: the input with cosines, which turn q and the new k.
    """
    q, heads, kv_heads = call.shape(0), _heads(call), call.attr("kv_num_heads", 0)
    if not q or not isinstance(kv_heads, int) or kv_heads < 1:
        raise Unknown("its kv_num_heads is missing")
    width = call.out_shape(0, len(q))[-1]
    d = q[-1] // heads if call.has(1) else q[-1] // (heads + 2 * kv_heads)
    tokens = prod(q[:-1])
    dtype = call.input(cache[0]).dtype if call.has(cache[0]) else call.input(0).dtype
    reached, new = bytes_of(Value(dtype, (reach, kv_heads, d))), bytes_of(Value(dtype, (tokens, kv_heads, d)))
    read: Dim = 0
    for i in range(len(call.node.inputs)):
        if call.has(i):
            read = read + (dmin(bytes_of(call.input(i)), reached) if i in cache else bytes_of(call.input(i)))
    turned = 3 * tokens * (heads + kv_heads) * d if call.attr("do_rotary", 0) and call.has(rotary) else 0
    cost = attended(call, scores * d + scores // heads * width, scores, masked=True, extra=turned)
    written = bytes_of(call.output()) + new * sum(map(call.gives, (1, 2)))
    return replace(cost, bytes_read=read, bytes_written=written)


def _scores(call: Call, keys: Dim) -> Dim:
    """Scores of every query token and head with this many keys."""
    return prod(call.shape(0)[:-1]) * _heads(call) * keys


def _selected(call: Call, i: int) -> Dim:
    """Scores with the selected positions (…, count) in input i and, if asked for, a local window."""
    keys = call.shape(i, 2)[1]
    if call.attr("attention_mode", "selected_only") == "local_plus_selected":
        keys = keys + max(call.attr("local_window_size", 0), 0)
    return _scores(call, keys)


@op("PagedAttention", kind="attention", domain=_MS)
def paged_attention(call: Call) -> Cost:
    """q (tokens, ·), k, v, pages of k and v (pages, page, Hkv, D), offsets, lengths, table (B, pages a sequence) …

    A sequence is as long as its row of the table allows.
    """
    table, page = call.shape(7, 2), call.shape(3, 4)[1]
    return _cached(call, _scores(call, table[1] * page), (3, 4), prod(table) * page, 8)


@op("SparsePagedAttention", kind="attention", domain=_MS)
def sparse_paged_attention(call: Call) -> Cost:
    """As PagedAttention, over the selected positions (tokens, count) in input 9."""
    return _cached(call, _selected(call, 9), (3, 4), prod(call.shape(7, 2)) * call.shape(3, 4)[1], 14)


@op("DynamicSparseAttention", kind="attention", domain=_MS)
def dynamic_sparse_attention(call: Call) -> Cost:
    """q (B, S, ·), k, v, caches (B, Hkv, T, D) in 3 and 4, auxiliary ones, selected positions (B·S, count) in 7 …"""
    cache = call.shape(3, 4) if call.has(3) else call.shape(0, 3)
    return _cached(call, _selected(call, 7), (3, 4), cache[0] * cache[-2], 11)


@op("SparseAttention", kind="attention", domain=_MS)
def sparse_attention(call: Call) -> Cost:
    """q (B, S, ·), k, v, caches (B, Hkv, T, D), block rows and columns (layouts, blocks) in 5 and 6, total length (7).

    A head has no more scores than its layout has blocks, nor than a dense one.
    """
    batch, steps = call.shape(0, 3)[:2]
    total = call.input(7).data
    length = call.shape(3, 4)[2] if total is None or total.size != 1 else total.item()
    blocks = call.shape(6, 2)[1] * call.attr("sparse_block_size", 1) ** 2
    return _cached(call, batch * _heads(call) * dmin(steps * length, blocks), (3, 4), batch * length, 9)
