"""Attention: B·Hq·Sq·Skv·(D + Dv) MACs for q·kᵀ and scores·v, Skv counting the past.

Each score costs a scaling, 4 FLOPs of softmax and an exp, a mask 1 more, a soft cap 2 and a tanh. Scores are not
written, as the operator is fused: bytes are the inputs and the outputs. A rotary embedding is 3 FLOPs a rotated element
(two multiplications, one addition), no MACs.
"""

from __future__ import annotations

from onnxfuse.cost.registry import Call, Cost, Unknown, op, prod
from onnxfuse.facts.expr import Dim
from onnxfuse.facts.value import Shape


def _cost(call: Call, macs: Dim, scores: Dim, *, masked: bool, extra: Dim = 0) -> Cost:
    capped = 1 if call.attr("softcap", 0.0) else 0
    return call.cost(macs=macs, arith=(5 + masked + 2 * capped) * scores + extra, transcendentals=(1 + capped) * scores)


def _heads(shape: Shape, heads: int) -> tuple[Dim, Dim, Dim, Dim]:
    """(batch, heads, sequence, head size) of (B, H, S, D) or (B, S, H·D)."""
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) != 3 or not heads:
        raise Unknown
    return shape[0], heads, shape[1], shape[2] // heads


@op("Attention", kind="attention")
def attention(call: Call) -> Cost:
    """q, k, v, mask, past k, past v, lengths -> y, present k, present v, scores."""
    b, heads, sq, d = _heads(call.shape(0), call.attr("q_num_heads", 0))
    kv_heads = call.attr("kv_num_heads", 0)
    skv = _heads(call.shape(1), kv_heads)[2]
    dv = _heads(call.shape(2), kv_heads)[3]
    if call.has(4):
        skv = skv + call.shape(4, 4)[2]
    scores = b * heads * sq * skv
    return _cost(call, scores * (d + dv), scores, masked=call.has(3) or bool(call.attr("is_causal", 0)))


@op("FlexAttention", kind="attention", domain="ai.onnx.preview")
def flex_attention(call: Call) -> Cost:
    """q (B, Hq, Sq, D), k (B, Hkv, Skv, D), v (B, Hkv, Skv, Dv); what a graph does to the scores is not known."""
    if "score_mod" in call.node.attrs or "prob_mod" in call.node.attrs:
        raise Unknown
    b, heads, sq, d = call.shape(0, 4)
    scores = b * heads * sq * call.shape(1, 4)[2]
    return _cost(call, scores * (d + call.shape(2, 4)[3]), scores, masked=False)


@op("MultiHeadAttention", kind="attention", domain="com.microsoft")
def multi_head_attention(call: Call) -> Cost:
    """q (B, S, H·D), or packed (B, S, H, 3, D); k (B, L, H·D), (B, L, H, 2, D) packed with v, or (B, H, L, D).

    Further inputs: bias of q, k, v, key padding mask, attention bias, past k, past v.
    """
    heads = call.attr("num_heads", 0)
    q = call.shape(0)
    if not heads:
        raise Unknown
    if len(q) == 5:
        b, sq, d = q[0], q[1], q[4]
        skv, dv = sq, d
    else:
        b, _, sq, d = _heads(q, heads)
        k = call.shape(1)
        if len(k) == 5:
            skv, dv = k[1], k[4]
        else:
            skv = _heads(k, heads)[2]
            dv = _heads(call.shape(2), heads)[3]
    if call.has(6):
        skv = skv + call.shape(6, 4)[2]
    scores = b * heads * sq * skv
    masked = call.has(4) or call.has(5) or bool(call.attr("unidirectional", 0))
    extra = sum(call.size(i) for i in range(3) if call.has(i)) if call.has(3) else 0
    return _cost(call, scores * (d + dv), scores, masked=masked, extra=extra)


@op("Attention", kind="attention", domain="com.microsoft")
def attention_ms(call: Call) -> Cost:
    """x (B, S, C), w (C, 3·H·D), bias, mask, past (2, B, H, P, D), attention bias: projects q, k, v itself."""
    x, w, heads = call.shape(0), call.shape(1), call.attr("num_heads", 0)
    if len(x) != 3 or len(w) != 2 or not heads:
        raise Unknown
    hidden = call.attr("qkv_hidden_sizes", None) or (w[1] // 3, w[1] // 3, w[1] // 3)
    skv = x[1] + (call.shape(4, 5)[3] if call.has(4) else 0)
    scores = x[0] * heads * x[1] * skv
    macs = x[0] * x[1] * x[2] * w[1] + x[0] * x[1] * skv * (hidden[0] + hidden[2])
    masked = call.has(3) or call.has(5) or bool(call.attr("unidirectional", 0))
    return _cost(call, macs, scores, masked=masked, extra=x[0] * x[1] * w[1] if call.has(2) else 0)


@op("GroupQueryAttention", kind="attention", domain="com.microsoft")
def group_query_attention(call: Call) -> Cost:
    """q (B, S, Hq·D), k, v (B, S, Hkv·D), or all packed in q; past and present k are (B, Hkv, T, D). Causal."""
    q, heads, kv_heads = call.shape(0), call.attr("num_heads", 0), call.attr("kv_num_heads", 0)
    if len(q) != 3 or not heads or not kv_heads:
        raise Unknown
    d = q[2] // heads if call.has(1) else q[2] // (heads + 2 * kv_heads)
    total = call.out_shape(1, 4)[2]
    scores = q[0] * heads * q[1] * total
    rotated = 3 * q[0] * q[1] * (heads + kv_heads) * d if call.attr("do_rotary", 0) else 0
    return _cost(call, 2 * scores * d, scores, masked=True, extra=rotated)


@op("RotaryEmbedding", kind="attention")
@op("RotaryEmbedding", kind="attention", domain="com.microsoft")
def rotary_embedding(call: Call) -> Cost:
    """x (B, H, S, D) or (B, S, H·D); only the first `rotary_embedding_dim` (default all) of each head turn."""
    shape, part, heads = call.shape(0), call.attr("rotary_embedding_dim", 0), call.attr("num_heads", 0)
    if not part:
        return call.cost(arith=3 * prod(shape))
    if len(shape) == 4:
        return call.cost(arith=3 * prod(shape[:3]) * part)
    if not heads:
        raise Unknown
    return call.cost(arith=3 * prod(shape[:2]) * heads * part)


@op("LinearAttention", kind="attention")
@op("LinearAttention", kind="attention", domain="com.microsoft")
def linear_attention(call: Call) -> Cost:
    """q, k, v (B, S, H·D): each step updates a D x Dv state of its key head and each query head reads it; a delta rule
    also reads it by the key first.
    """
    b, heads, s, d = _heads(call.shape(0), call.attr("q_num_heads", 0))
    kv_heads = call.attr("kv_num_heads", 0)
    dv = _heads(call.shape(2), kv_heads)[3]
    passes = 2 if call.attr("update_rule", "gated_delta") in ("delta", "gated_delta") else 1
    return call.cost(macs=b * s * d * dv * (heads + passes * kv_heads))
