"""Optimizer steps of ai.onnx.preview.training: FLOPs for each optimized element.

Inputs: learning rate, step, then the same number of parameters, gradients and states.
"""

from __future__ import annotations

from onnxfuse.cost.registry import Call, Cost, op
from onnxfuse.facts.expr import Dim

TRAINING = "ai.onnx.preview.training"
_STEPS = {"Adam": (4, 12, 1), "Adagrad": (3, 6, 1), "Momentum": (3, 4, 0)}  # tensors, FLOPs, square roots an element


@op(*_STEPS, kind="training", domain=TRAINING)
def step(call: Call) -> Cost:
    """Parameters are the first of the tensor groups."""
    groups, flops, roots = _STEPS[call.node.op_type]
    n: Dim = 0
    for i in range((len(call.node.inputs) - 2) // groups):
        n = n + call.size(2 + i)
    return call.cost(arith=flops * n, transcendentals=roots * n)
