"""What comes after onnxfuse: `onnxruntime.quantization`, and the operators that it breaks.

Tried with onnxruntime 1.32, quantize_dynamic and quantize_static in both formats (docs/quantization.md): it removes
local functions, so that the result does not load; it fails on FusedConv; and of an Attention it makes a QAttention
without the mask, which is wrong without a word. It leaves the other fused operators as they are.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import onnx

from onnxfuse import ir
from onnxfuse.errors import UsageError
from onnxfuse.targets import MICROSOFT, ONNXFUSE, Target

STEPS = ("quantize",)
_ATTENTION, _MASK = (MICROSOFT, "Attention"), 5  # index of the input


def variant(target: Target, then: str | None) -> Target:
    """The target without what the next step breaks; the target itself where there is none. Raises UsageError."""
    if then is None:
        return target
    if then not in STEPS:
        raise UsageError(f"unknown next step '{then}'; known: {', '.join(STEPS)}")
    kernels = {key: kernel for key, kernel in target.kernels.items() if key != (MICROSOFT, "FusedConv")}
    if _ATTENTION in kernels:
        kernels[_ATTENTION] = replace(kernels[_ATTENTION], masks=False)
    return replace(target, kernels=kernels, functions=None)


def takes(proto: onnx.ModelProto) -> bool:
    """Is a model free of the operators of which the quantizer makes something wrong, or nothing at all?"""
    nodes = ir.messages(chain(proto.graph.node, *(f.node for f in proto.functions)))
    return not proto.functions and not any(map(_is_broken, nodes))


def _is_broken(node: onnx.NodeProto) -> bool:
    key = ir.domain(node.domain), node.op_type
    masked = key == _ATTENTION and any(node.input[_MASK : _MASK + 1])
    return masked or key == (MICROSOFT, "FusedConv") or key[0] == ONNXFUSE
