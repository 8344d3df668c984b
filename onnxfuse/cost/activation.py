"""Activations that another operator carries in an attribute (FusedConv, FusedGemm, CausalConvWithState …).

Counts an element are those of the operator of the same name (elementwise.py).
"""

from __future__ import annotations

from onnxfuse import ir
from onnxfuse.cost.registry import FREE, Call, Cost, Unknown
from onnxfuse.facts.expr import Dim

_COUNTS = {  # name -> (FLOPs, transcendentals) an element
    "": (0, 0), "none": (0, 0), "identity": (0, 0),
    "relu": (1, 0), "leakyrelu": (2, 0), "clip": (2, 0), "hardsigmoid": (4, 0), "hardswish": (5, 0),
    "sigmoid": (0, 1), "tanh": (0, 1), "silu": (1, 1), "swish": (1, 1), "gelu": (4, 1), "elu": (1, 1),
    "softplus": (1, 2), "relu2": (2, 0), "relu_squared": (2, 0),
}  # fmt: skip

_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "NhwcFusedConv"})  # input 3 is a residual


def activation(name: str, n: Dim) -> tuple[Dim, Dim]:
    """(FLOPs, transcendentals) of an activation over n elements. Raises Unknown for a name not in the table."""
    counts = _COUNTS.get(name.lower()) if isinstance(name, str) else None
    if counts is None:
        raise Unknown(f"its activation {name!r} has no formula")
    return counts[0] * n, counts[1] * n


def steps(node: ir.Node) -> tuple[str, ...]:
    """What a node of one of onnxruntime's own operators does to its result, in order: "Add" of a residual, activation.

    ("Add", "Relu") for a convolution with both, () for none.
    """
    if not node.domain:
        return ()
    residual = node.op_type in _CONVOLUTIONS and len(node.inputs) > 3 and node.inputs[3] != ""
    name = node.attrs.get("activation", "")
    named = isinstance(name, str) and name.lower() not in ("", "none", "identity")
    return (*(("Add",) if residual else ()), *((name,) if named else ()))


def fused(call: Call) -> Cost:
    """The operations of the activation in the attribute `activation` over output 0. Raises Unknown."""
    name = call.attr("activation", "")
    if not name:
        return FREE
    flops, special = activation(name, call.out_size())
    return Cost(arith=flops, transcendentals=special)


def swiglu_counts(call: Call) -> tuple[int, int]:
    """(FLOPs, sigmoids) an output element of clamp(g) · sigmoid(alpha · g) · (clamp(u) + beta)."""
    limit, alpha, beta = call.attr("limit", 0.0), call.attr("activation_alpha", 1.0), call.attr("activation_beta", 0.0)
    return 2 + 3 * (limit > 0) + (alpha != 1) + (beta != 0), 1
