"""Activations that a fused convolution can end with, and their parameters as `com.microsoft.FusedConv` takes them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import NotLegal, Scope, is_op
from onnxfuse.targets import MICROSOFT, FusedKernel, Target

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid")
FLOAT32_MAX = float(np.finfo(np.float32).max)


def activation_attributes(node: gs.Node, scope: Scope) -> dict[str, object]:
    """`activation` and `activation_params` of FusedConv for an activation node. Raises NotLegal."""
    match node.op:
        case "LeakyRelu":
            params = [float(node.attrs.get("alpha", 0.01))]
        case "HardSigmoid":
            params = [float(node.attrs.get("alpha", 0.2)), float(node.attrs.get("beta", 0.5))]
        case "Clip":
            params = _clip_bounds(node, scope)
        case _:
            params = []
    return {"activation": node.op} | ({"activation_params": params} if params else {})


def _clip_bounds(node: gs.Node, scope: Scope) -> list[float]:
    if scope.opset < 11:
        low, high = (float(node.attrs.get(k, d)) for k, d in (("min", -FLOAT32_MAX), ("max", FLOAT32_MAX)))
    else:
        low, high = (_bound(node, i, d, scope) for i, d in ((1, -FLOAT32_MAX), (2, FLOAT32_MAX)))
    if math.isnan(low) or math.isnan(high) or low > high:
        raise NotLegal(f"Clip has the bounds {low} and {high}")
    return [low, high]


def _bound(node: gs.Node, index: int, default: float, scope: Scope) -> float:
    if index >= len(node.inputs) or not node.inputs[index].name:
        return default
    value = scope.value(node.inputs[index])
    if not value.constant or value.data is None or value.data.size != 1:
        raise NotLegal(f"the Clip bound '{node.inputs[index].name}' is not a constant")
    return float(value.data.item())


def check_kernel(kernel: FusedKernel, conv: gs.Node, activation: gs.Node, scope: Scope) -> None:
    """Raises NotLegal unless the target's FusedConv takes this convolution's dtype and this activation."""
    dtype = scope.value(conv.inputs[0]).dtype
    if dtype not in kernel.dtypes:
        raise NotLegal(f"{scope.target.name} has no FusedConv kernel for {dtype_name(dtype)}")
    if activation.op not in kernel.activations:
        raise NotLegal(f"the FusedConv kernel of {scope.target.name} cannot end with {activation.op}")


def dtype_name(dtype: int) -> str:
    """The ONNX name of a dtype number, for messages."""
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(dtype)).lower() if dtype else "an unknown dtype"


def is_plain_conv(node: gs.Node | None) -> bool:
    """Whether a node is an ai.onnx Conv with one connected output."""
    return is_op(node, "Conv") and node is not None and len(node.outputs) == 1 and len(node.inputs) >= 2


def fused_kernel(target: Target) -> FusedKernel | None:
    """The target's FusedConv kernel, if it has one that should be used."""
    return target.kernels.get((MICROSOFT, "FusedConv"))
