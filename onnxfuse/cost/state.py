"""Recurrent state of linear attention and state-space models. A state is a Dk x Dv matrix a head, touched every step.

Updating it and reading it is 1 MAC an element each; a delta rule reads it once more, a decay multiplies it, 1 FLOP.
"""

from __future__ import annotations

from onnxfuse.cost.attention import heads_of
from onnxfuse.cost.registry import Call, Cost, Unknown, op, prod
from onnxfuse.facts.expr import Dim, dmax

_MS = "com.microsoft"


@op("LinearAttention", kind="attention")
@op("LinearAttention", kind="attention", domain=_MS)
def linear_attention(call: Call) -> Cost:
    """q, k, v (B, S, H·D): each step updates a D x Dv state of its key head and each query head reads it; a delta rule
    also reads it by the key first.
    """
    b, heads, s, d = heads_of(call.shape(0), call.attr("q_num_heads", 0))
    kv_heads = call.attr("kv_num_heads", 0)
    dv = heads_of(call.shape(2), kv_heads)[3]
    passes = 2 if call.attr("update_rule", "gated_delta") in ("delta", "gated_delta") else 1
    return call.cost(macs=b * s * d * dv * (heads + passes * kv_heads))


@op("GatedDeltaNet", kind="attention", domain=_MS)
def gated_delta_net(call: Call) -> Cost:
    """q (T, Hq, D), k (T, Hk, D), v (T, Hv, Dv), or q, k, v packed in (T, ·) with the state (B, Hv, Dv, D) in input 6.

    A softplus or sigmoid that makes the decay is 3 FLOPs and 2 special functions an element of it (the exp of its use
    is 1 more), a sigmoid of beta 1; qk_l2_norm is 3 FLOPs an element of q and k.
    """
    q = call.shape(0)
    if call.has(6):
        _, heads, dv, d = call.shape(6, 4)
    else:
        _, heads, dv = call.shape(2, 3)
        d = q[-1]
    tokens = q[0]
    if len(q) == 3:
        q_heads, k_heads = q[1], call.shape(1, 3)[1]
    else:  # 2·Hq·D of q and k, then Hv·Dv of v
        q_heads = k_heads = (call.shape(0, 2)[1] - heads * dv) // (2 * d)
    rule = call.attr("update_rule", "gated_delta")
    state = tokens * heads * dv * d
    arith: Dim = state if rule in ("gated", "gated_delta") else 0
    special: Dim = 0
    if call.has(4):
        special = call.size(4)
        if call.attr("gate_activation", "none") != "none":
            arith, special = arith + 3 * call.size(4), special + 2 * call.size(4)
    if call.has(5) and call.attr("beta_activation", "none") == "sigmoid":
        special = special + call.size(5)
    if call.attr("qk_l2_norm", 0):
        vectors = tokens * (q_heads + k_heads)
        arith, special = arith + 3 * d * vectors, special + vectors
    passes = 2 if rule in ("delta", "gated_delta") else 1
    macs = tokens * dv * d * (dmax(q_heads, heads) + passes * heads)
    return call.cost(macs, arith, special)


@op("Mamba2Verify", kind="attention", domain=_MS)
def mamba2_verify(call: Call) -> Cost:
    """projection (R, ·), conv state (slots, C, 3), state (slots, H, N, P), conv weight (C, 4) …, to y (R, H·P).

    A token: a depthwise convolution of 4 taps with SiLU; dt = max(softplus(p + bias), least); the state decays by
    exp(A·dt) and takes dt·x·B; it is read by C, D·x is added; the gate's SiLU multiplies, and an RMS norm ends it.
    """
    rows, channels = call.shape(0, 2)[0], call.shape(1, 3)[1]
    _, heads, n, p = call.shape(2, 4)
    inner, state = heads * p, heads * n * p
    macs = rows * (4 * channels + 2 * state + inner)
    groups = call.attr("n_groups", 1)
    arith = rows * (2 * channels + state + 4 * heads + inner + 2 * inner + 4 * inner + 2 * groups)
    special = rows * (channels + 3 * heads + inner + groups)
    return call.cost(macs, arith, special)


@op("LinearAttentionGate", kind="elementwise", domain=_MS)
def linear_attention_gate(call: Call) -> Cost:
    """decay = scale · softplus(a + bias) (3 FLOPs, 2 special functions), beta = sigmoid(b)."""
    n = call.size(0)
    return call.cost(arith=3 * n, transcendentals=2 * n + (call.size(3) if call.has(3) else 0))


@op("AttnLSTM", kind="rnn", domain=_MS)
def attn_lstm(call: Call) -> Cost:
    """An LSTM whose every step attends to a memory (B, M, depth) by Bahdanau: tanh of query and key, a product with v.

    x (S, B, I), w (D, 4·H, I), r (D, 4·H, H), …, peepholes (7), query layer (D, H, A), memory layer (D, depth, A),
    v (D, A), memory (11), …, attention layer (D, depth + H, A').
    """
    if not all(map(call.has, (8, 9, 10, 11))):
        raise Unknown("an input that it needs is missing")
    x, w, r = call.shape(0, 3), call.shape(1, 3), call.shape(2, 3)
    memory, a = call.shape(11, 3), call.shape(8, 3)[2]
    hidden, steps = r[2], memory[1]
    cells = r[0] * x[0] * x[1]
    layer = prod(call.shape(13, 3)[1:]) if call.has(13) else 0
    a_step = hidden * a + steps * (a + memory[2]) + layer
    keys = r[0] * prod(memory) * a
    peepholes = 3 * hidden if call.has(7) else 0
    macs = cells * (4 * hidden * (w[2] + hidden) + peepholes + a_step) + keys
    arith = cells * (12 * hidden + steps * a + 4 * steps - 2)
    return call.cost(macs, arith, cells * (5 * hidden + steps * a + steps))
