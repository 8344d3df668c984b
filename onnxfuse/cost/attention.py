"""Attention: B·Hq·Sq·Skv·(D + Dv) MACs for q·kᵀ and scores·v, Skv counting the past.

Each score costs a scaling, 4 FLOPs of softmax and an exp, a mask 1 more, a soft cap 2 and a tanh. Scores are not
written, as the operator is fused: bytes are the inputs and the outputs. A rotary embedding is 3 FLOPs a rotated element
(two multiplications, one addition), no MACs.
"""

from __future__ import annotations

from onnxfuse.cost.registry import Call, Cost, Unknown, op, prod
from onnxfuse.facts.expr import Dim
from onnxfuse.facts.value import Shape


def attended(call: Call, macs: Dim, scores: Dim, *, masked: bool, extra: Dim = 0) -> Cost:
    """MACs of both products, FLOPs of the scores and `extra` ones. Raises Unknown."""
    capped = 1 if call.attr("softcap", 0.0) else 0
    return call.cost(macs=macs, arith=(5 + masked + 2 * capped) * scores + extra, transcendentals=(1 + capped) * scores)


def heads_of(shape: Shape, heads: int) -> tuple[Dim, Dim, Dim, Dim]:
    """(batch, heads, sequence, head size) of (B, H, S, D) or (B, S, H·D)."""
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) != 3 or not heads:
        raise Unknown("its number of heads is missing")
    return shape[0], heads, shape[1], shape[2] // heads


@op("Attention", kind="attention")
def attention(call: Call) -> Cost:
    """q, k, v, mask, past k, past v, lengths -> y, present k, present v, scores."""
    b, heads, sq, d = heads_of(call.shape(0), call.attr("q_num_heads", 0))
    kv_heads = call.attr("kv_num_heads", 0)
    skv = heads_of(call.shape(1), kv_heads)[2]
    dv = heads_of(call.shape(2), kv_heads)[3]
    if call.has(4):
        skv = skv + call.shape(4, 4)[2]
    scores = b * heads * sq * skv
    return attended(call, scores * (d + dv), scores, masked=call.has(3) or bool(call.attr("is_causal", 0)))


@op("FlexAttention", kind="attention", domain="ai.onnx.preview")
def flex_attention(call: Call) -> Cost:
    """q (B, Hq, Sq, D), k (B, Hkv, Skv, D), v (B, Hkv, Skv, Dv).

    The graphs that change scores and probabilities are fused too: their operations count, their bytes do not.
    """
    b, heads, sq, d = call.shape(0, 4)
    scores = b * heads * sq * call.shape(1, 4)[2]
    cost = attended(call, scores * (d + call.shape(2, 4)[3]), scores, masked=False)
    for name in ("score_mod", "prob_mod"):
        if name in call.node.attrs:
            body = call.body(name)
            cost = cost + Cost(body.macs, body.arith, body.transcendentals, why=body.why)
    return cost


@op("MultiHeadAttention", kind="attention", domain="com.microsoft")
def multi_head_attention(call: Call) -> Cost:
    """q (B, S, H·D), or packed (B, S, H, 3, D); k (B, L, H·D), (B, L, H, 2, D) packed with v, or (B, H, L, D).

    Further inputs: bias of q, k, v, key padding mask, attention bias, past k, past v.
    """
    heads = call.attr("num_heads", 0)
    q = call.shape(0)
    if not heads:
        raise Unknown("its num_heads is missing")
    if len(q) == 5:
        b, sq, d = q[0], q[1], q[4]
        skv, dv = sq, d
    else:
        b, _, sq, d = heads_of(q, heads)
        k = call.shape(1)
        if len(k) == 5:
            skv, dv = k[1], k[4]
        else:
            skv = heads_of(k, heads)[2]
            dv = heads_of(call.shape(2), heads)[3]
    if call.has(6):
        skv = skv + call.shape(6, 4)[2]
    scores = b * heads * sq * skv
    masked = call.has(4) or call.has(5) or bool(call.attr("unidirectional", 0))
    extra = sum(call.size(i) for i in range(3) if call.has(i)) if call.has(3) else 0
    return attended(call, scores * (d + dv), scores, masked=masked, extra=extra)


@op("GroupQueryAttention", kind="attention", domain="com.microsoft")
def group_query_attention(call: Call) -> Cost:
    """q (B, S, Hq·D), k, v (B, S, Hkv·D), or all packed in q; past and present k are (B, Hkv, T, D). Causal."""
    q, heads, kv_heads = call.shape(0), call.attr("num_heads", 0), call.attr("kv_num_heads", 0)
    if len(q) != 3 or not heads or not kv_heads:
        raise Unknown("its num_heads or kv_num_heads is missing")
    d = q[2] // heads if call.has(1) else q[2] // (heads + 2 * kv_heads)
    total = call.out_shape(1, 4)[2]
    scores = q[0] * heads * q[1] * total
    rotated = 3 * q[0] * q[1] * (heads + kv_heads) * d if call.attr("do_rotary", 0) else 0
    return attended(call, 2 * scores * d, scores, masked=True, extra=rotated)


@op("RotaryEmbedding", kind="attention")
@op("RotaryEmbedding", "MRotaryEmbedding", kind="attention", domain="com.microsoft")
def rotary_embedding(call: Call) -> Cost:
    """x (B, H, S, D) or (B, S, H·D); only the first `rotary_embedding_dim` (default all) of each head turn."""
    shape, part, heads = call.shape(0), call.attr("rotary_embedding_dim", 0), call.attr("num_heads", 0)
    if not part:
        return call.cost(arith=3 * prod(shape))
    if len(shape) == 4:
        return call.cost(arith=3 * prod(shape[:3]) * part)
    if not heads:
        raise Unknown("its num_heads is missing")
    return call.cost(arith=3 * prod(shape[:2]) * heads * part)


@op("GemmaRotaryEmbedding", kind="attention", domain="com.microsoft")
def gemma_rotary_embedding(call: Call) -> Cost:
    """angles (B, S, D), q, q rotated by half, k, k rotated by half: x · cos + rotated · sin."""
    return call.cost(arith=3 * (call.size(1) + call.size(3)), transcendentals=2 * call.size(0))
