"""Gates and parallel residual streams of com.microsoft, most of them with an RMS normalization inside.

An RMS normalization is 4 FLOPs an element and 2 and a square root a row (norm.py), 3 an element without a scale.
"""

from __future__ import annotations

from onnxfuse.cost.activation import swiglu_counts
from onnxfuse.cost.registry import Call, Cost, Unknown, bytes_of, op, prod
from onnxfuse.facts.expr import Dim
from onnxfuse.facts.value import Value

_MS = "com.microsoft"


@op("SwiGLU", kind="elementwise", domain=_MS)
def swiglu(call: Call) -> Cost:
    """clamp(g) · sigmoid(alpha · g) · (clamp(u) + beta): gate and up, or both halves in one input."""
    flops, special = swiglu_counts(call)
    n = call.out_size()
    return call.cost(arith=flops * n, transcendentals=special * n)


@op("GatedAdd", kind="elementwise", domain=_MS)
def gated_add(call: Call) -> Cost:
    """x + y · gate, a gate a row; with a weight (K, 1) the gate is sigmoid(gate · weight)."""
    macs = call.size(2) if call.has(3) else 0
    rows = prod(call.shape(0)[:-1]) if call.has(3) else 0
    return call.cost(macs=macs, arith=2 * call.out_size(), transcendentals=rows)


@op("BranchwiseRMSNorm", kind="norm", domain=_MS)
def branchwise_rms_norm(call: Call) -> Cost:
    """x (…, C, H), or (…, C·H) with the attribute num_branches, scale: rows of H."""
    n, rows = call.size(0), prod(call.shape(0)[:-1]) * _branches(call, 1)
    return call.cost(arith=(4 if call.has(1) else 3) * n + 2 * rows, transcendentals=rows)


def _branches(call: Call, grouped: int) -> int:
    branches = call.attr("num_branches", 0) or grouped
    if not isinstance(branches, int) or branches < 1:
        raise Unknown("its number of branches is not known")
    return branches


@op("GatedRMSNorm", kind="norm", domain=_MS)
def gated_rms_norm(call: Call) -> Cost:
    """x (…, groups·C), scale (C), gate as x: RMSNorm(x) · silu(gate), or · sigmoid(gate)."""
    n = call.size(0)
    rows = n // call.shape(1, 1)[0]
    flops = 5 if call.attr("activation", "silu") == "sigmoid" else 6
    return call.cost(arith=flops * n + 2 * rows, transcendentals=n + rows)


@op("RMSNormRotary", kind="norm", domain=_MS)
def rms_norm_rotary(call: Call) -> Cost:
    """x (B, S, heads, stride), of which a slice as wide as scale is normalized and its first part turned."""
    x, width = call.shape(0, 4), call.shape(1, 1)[0]
    rows = prod(x[:3])
    part = call.attr("rotary_embedding_dim", 0)
    read = bytes_of(Value(call.input(0).dtype, (rows, width))) + call.read(*range(1, len(call.node.inputs)))
    return call.cost(arith=rows * (4 * width + 2 + 3 * part), transcendentals=rows, read=read)


@op("EngramGate", kind="norm", domain=_MS)
def engram_gate(call: Call) -> Cost:
    """key, query (B, S, C, H), value (B, S, H) -> value · σ(±√|RMSNorm(key) · RMSNorm(query)|/√H) and its RMSNorm."""
    n = call.size(0)
    rows = prod(call.shape(0, 4)[:3])
    norms = 3 if call.gives(1) else 2
    arith = norms * (4 * n + 2 * rows) + 4 * rows + n
    return call.cost(macs=n, arith=arith, transcendentals=(norms + 2) * rows)


@op("HyperConnectionPreMix", kind="reduction", domain=_MS)
def hyper_connection_pre_mix(call: Call) -> Cost:
    """Sum over the C streams of x (…, C·H) by their gates, times a scale."""
    scaled = call.out_size() if call.attr("reduction_scale", 1.0) != 1 else 0
    return call.cost(macs=call.size(0), arith=scaled)


@op("HyperConnectionPostMix", kind="elementwise", domain=_MS)
def hyper_connection_post_mix(call: Call) -> Cost:
    """streams (…, C·H), output of a block (…, H), its gates, stream mix (…, C, C): streams · mix + gate · output."""
    n = call.size(0)
    return call.cost(macs=n + (n * call.shape(3)[-1] if call.has(3) and call.shape(3) else 0))


@op("HyperConnectionLowRankMix", kind="matmul", domain=_MS)
def hyper_connection_low_rank_mix(call: Call) -> Cost:
    """streams (…, C·H), norm scale, down (C·H, R), up (R, C·H), inject (C·H, C), previous output and gate.

    RMSNorm of each stream, SiLU of the rank R, a sigmoid gate an element, the sum over the streams, C gates a row.
    """
    n, rows, branches = call.size(0), prod(call.shape(0)[:-1]), _branches(call, 0)
    rank = call.shape(2, 2)[1]
    macs = n * (2 * rank + 1 + branches) + (n if call.has(5) else 0)
    gates = rows * branches
    scaled = call.out_size() if call.attr("reduction_scale", 1.0) != 1 else 0
    silu = rows * rank
    adjusted = (call.attr("gate_mul", 1.0) != 1) + (call.attr("gate_div", 1.0) != 1)
    arith = 4 * n + 2 * gates + (1 + (call.attr("silu_alpha", 1.0) != 1)) * silu + scaled + adjusted * gates
    return call.cost(macs, arith, n + silu + 2 * gates)


@op("GatedRelativePositionBias", kind="attention", domain=_MS)
def gated_relative_position_bias(call: Call) -> Cost:
    """query (B, S, H·D), its bias, relative positions (1, H, S, S), w (D, G), bias, eco -> (B, H, S, S).

    σ of two sums of G/2 of (query + bias)·w + bias; u · (r · eco − 1) + 2 gates the positions.
    """
    out, (_, gates) = call.out_shape(0, 4), call.shape(3, 2)
    rows: Dim = prod(out[:3])
    arith = call.size(0) + rows * (gates + gates - 2 + 4) + prod(out)
    return call.cost(macs=rows * call.size(3), arith=arith, transcendentals=2 * rows)


@op("RelativePositionBias", kind="gather", domain=_MS)
def relative_position_bias(call: Call) -> Cost:
    """table (buckets, H) -> (1, H, S, S): a logarithm finds the bucket of a pair."""
    out = call.out_shape(0, 4)
    return call.cost(transcendentals=out[2] * out[3])
