"""Mixtures of experts: every token goes through its k experts, so MACs = tokens · k · the weights of one expert.

No more experts are read than tokens choose: min(experts, tokens · k). Routing is a softmax over the experts, the
combination a weighted sum of k rows. Packed weights are dequantized once for each expert that is read, 2 FLOPs each.
"""

from __future__ import annotations

from onnxfuse.cost.activation import activation
from onnxfuse.cost.registry import Call, Cost, Unknown, bytes_of, op, prod
from onnxfuse.facts.expr import Dim, dmin

_MS = "com.microsoft"
_GATED = {"swiglu": (2, 1), "geglu": (9, 1)}  # FLOPs, special functions an element of act(gate) · up


def _experts(call: Call, inner: Dim, weights: Dim, biases: Dim, tables: tuple[int, ...], fc3: int) -> Cost:
    """inner: width between the products; weights, biases: elements of one expert; tables: inputs with an axis of
    experts; fc3: the input whose product the activation is multiplied by, where it is connected.
    """
    x, experts, k = call.shape(0, 2, 3), call.shape(1, 2)[1], call.attr("k", 1)
    if not isinstance(k, int) or k < 1:
        raise Unknown("its number of experts a token is not known")
    tokens = prod(x[:-1])
    chosen, touched = tokens * k, dmin(experts, tokens * k)
    name = str(call.attr("activation_type", "swiglu" if call.node.op_type == "MoEPacked" else "relu"))
    flops, special = activation(name, 1) if name not in _GATED else _GATED[name]
    if name not in _GATED and call.has(fc3):
        flops = flops + 1
    scores = tokens * experts
    arith = 4 * scores - 2 * tokens + chosen * (inner * flops + biases) + (2 * chosen - tokens) * x[-1]
    if call.node.op_type != "MoE":
        arith = arith + 2 * touched * weights
    read: Dim = 0
    for i in range(len(call.node.inputs)):
        if call.has(i):
            size = bytes_of(call.input(i))
            read = read + (size // experts * touched if i in tables else size)
    return call.cost(chosen * weights, arith, chosen * inner * special + scores, read=read)


def _one(call: Call, i: int) -> Dim:
    """Elements of one expert in input i (experts, …); 0 where it is absent."""
    return prod(call.shape(i)[1:]) if call.has(i) else 0


@op("MoE", kind="matmul", domain=_MS)
def moe(call: Call) -> Cost:
    """x (…, H), router (tokens, E), fc1 (E, ·, H), bias, fc2 (E, H, I), bias, fc3 (E, I, H), bias."""
    tables = (2, 3, 4, 5, 6, 7)
    inner = _one(call, 4) // call.shape(0, 2, 3)[-1]
    weights, biases = sum(_one(call, i) for i in (2, 4, 6)), sum(_one(call, i) for i in (3, 5, 7))
    return _experts(call, inner, weights, biases, tables, 6)


@op("QMoE", kind="matmul", domain=_MS)
def qmoe(call: Call) -> Cost:
    """x (…, H), router (tokens, E), then packed weight (E, rows, …), scales, bias of fc1 (2), fc2 (5) and fc3 (8)."""
    hidden, rows = call.shape(0, 2, 3)[-1], call.shape(2, 3)[1]
    gated = str(call.attr("activation_type", "relu")) in _GATED and not call.has(8)
    inner = rows // 2 if gated else rows
    weights = hidden * (rows + inner + (inner if call.has(8) else 0))
    biases = sum(_one(call, i) for i in (4, 7, 10))
    return _experts(call, inner, weights, biases, tuple(i for i in range(2, 20) if i != 14), 8)


@op("MoEPacked", kind="matmul", domain=_MS)
def moe_packed(call: Call) -> Cost:
    """x (…, H), router, packed gate (E, I, …), up, down (E, H, …), mixing weights."""
    hidden, inner = call.shape(0, 2, 3)[-1], call.shape(2, 3)[1]
    return _experts(call, inner, hidden * inner * (3 if call.has(3) else 2), 0, (2, 3, 4), 3)


@op("MoEGroupRouter", kind="matmul", domain=_MS)
def moe_group_router(call: Call) -> Cost:
    """log σ(logits) of the top_k experts: logits (…, E), bias (E); with a projection (E, W) in input 2 the
    first is x (tokens, W).

    A sum of the group_topk best of each group ranks the groups.
    """
    x, experts = call.shape(0), call.shape(1, 1)[0]
    tokens, top = prod(x[:-1]), call.attr("top_k", 1)
    groups = call.attr("n_group", 1) * (call.attr("group_topk", 2) - 1)
    macs = tokens * call.size(2) if call.has(2) else 0
    return call.cost(macs, tokens * (experts + groups), tokens * (experts + top))
