"""Activations that another operator carries in an attribute (FusedConv, FusedGemm, CausalConvWithState …).

Counts an element are those of the operator of the same name (elementwise.py).
"""

from __future__ import annotations

from onnxfuse.cost.registry import Unknown
from onnxfuse.facts.expr import Dim

_COUNTS = {  # name -> (FLOPs, transcendentals) an element
    "": (0, 0), "none": (0, 0), "identity": (0, 0),
    "relu": (1, 0), "leakyrelu": (2, 0), "clip": (2, 0), "hardsigmoid": (4, 0), "hardswish": (5, 0),
    "sigmoid": (0, 1), "tanh": (0, 1), "silu": (1, 1), "swish": (1, 1), "gelu": (4, 1), "elu": (1, 1),
    "softplus": (1, 2),
}  # fmt: skip


def activation(name: str, n: Dim) -> tuple[Dim, Dim]:
    """(FLOPs, transcendentals) of an activation over n elements. Raises Unknown for a name not in the table."""
    counts = _COUNTS.get(name.lower()) if isinstance(name, str) else None
    if counts is None:
        raise Unknown
    return counts[0] * n, counts[1] * n
