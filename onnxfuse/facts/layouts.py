"""Shapes of the operators that onnxruntime makes for other layouts: channels last (NHWC), blocks of channels (NCHWc).

A tensor in NCHWc keeps the shape (N, C, H, W), C rounded up to whole blocks. How many channels a block has depends on
the CPU; the weights of the convolution that reads it say how many there are in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxfuse.facts import elementwise, movement, reduction, resample, window  # noqa: F401  # their rules are reused
from onnxfuse.facts.call import RULES, Call, Result, Rule, ShapeFunction, Unclear, rule
from onnxfuse.facts.control import control
from onnxfuse.facts.expr import Dim
from onnxfuse.facts.scope import Engine, Facts
from onnxfuse.facts.value import Shape, Value
from onnxfuse.ir import Node

_NHWC, _NCHWC = "com.ms.internal.nhwc", "com.microsoft.nchwc"


def channels_first(function: ShapeFunction) -> ShapeFunction:
    """The shape function for an input 0 (N, D…, C): it sees (N, C, D…), and its results of that rank are moved back."""

    def shape(c: Call) -> Result:
        x = c.shape(0)
        if len(x) < 3:
            raise Unclear
        result = function(replace(c, inputs=[replace(c.inputs[0], shape=(x[0], x[-1], *x[1:-1])), *c.inputs[1:]]))
        return [
            (s[0], *s[2:], s[1]) if s is not None and len(s) == len(x) else s
            for s in (result if isinstance(result, list) else [result])
        ]

    return shape


for _name in [
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "InstanceNormalization", "LRN", "LpPool", "MaxPool", "MaxUnpool", "QLinearConv", "SpaceToDepth",
]:  # fmt: skip
    RULES[f"{_NHWC}:{_name}"] = Rule(channels_first(RULES[_name].shape), RULES[_name].dtypes, False)
RULES["com.microsoft:NhwcMaxPool"] = RULES[f"{_NHWC}:MaxPool"]
RULES[f"{_NHWC}:Resize"] = RULES["Resize"]  # its sizes and scales are in the order of the axes
for _name in ["Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Upsample"]:
    RULES[f"{_NCHWC}:{_name}"] = RULES[_name]


@rule(f"{_NHWC}:GridSample")
def _grid_sample(c: Call) -> Result:
    return (c.shape(0)[0], *c.shape(1)[1:-1], c.shape(0)[-1])


@rule("com.microsoft:NhwcConv com.microsoft:NhwcFusedConv")
def _nhwc_conv(c: Call) -> Result:
    return channels_first(RULES["Conv"].shape)(c)


@rule(f"com.microsoft:QLinearAveragePool {_NHWC}:QLinearAveragePool")
def _quantized_pool(c: Call) -> Result:
    pool = RULES["AveragePool"].shape
    return channels_first(pool)(c) if c.attr("channels_last", 0) or c.node.domain == _NHWC else pool(c)


@rule(f"{_NHWC}:QLinearConvTranspose", lambda c: c.value(7).dtype)
def _quantized_conv_transpose(c: Call) -> Result:
    return channels_first(RULES["ConvTranspose"].shape)(replace(c, inputs=[c.inputs[0], c.value(3)]))


@rule(f"{_NCHWC}:ReorderOutput")
def _reorder_output(c: Call) -> Result:
    n, _, *spatial = c.shape(0)
    channels = c.attr("channels", 0)
    if channels < 1:
        raise Unclear
    return (n, *spatial, channels) if c.attr("channels_last", 0) else (n, channels, *spatial)


@control(f"{_NCHWC}:ReorderInput")
def _reorder_input(_engine: Engine, facts: Facts, i: int, node: Node, inputs: Sequence[Value]) -> list[Value]:
    """Only a convolution's input is padded to whole blocks, to what its weights (M, C/group, …) take."""
    x = inputs[0].shape
    if x is None or len(x) < 3:
        raise Unclear
    last = node.attrs.get("channels_last", 0)
    channels: Dim = x[-1] if last else x[1]
    for reader in facts.nodes[i + 1 :]:
        if reader.domain == _NCHWC and reader.op_type == "Conv" and reader.inputs[0] == node.outputs[0]:
            weights = facts[reader.inputs[1]].shape
            group = reader.attrs.get("group", 1)
            channels = channels if weights is None or len(weights) < 2 else weights[1] * group
            break
    spatial: Shape = x[1:-1] if last else x[2:]
    return [Value(inputs[0].dtype, (x[0], channels, *spatial))]
