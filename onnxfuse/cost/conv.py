"""Convolutions.

MACs = output elements x (input channels of a group x taps), i.e. x the elements of one output channel's weight; a
transposed convolution scatters each *input* element, so its input size counts. Taps on padding count: the definition of
torchvision's `_ops` figures and of PyTorch's FlopCounterMode. The bias is 1 FLOP an output element, no MAC.
"""

from __future__ import annotations

from onnxfuse.cost.activation import activation
from onnxfuse.cost.registry import Call, Cost, op, prod
from onnxfuse.facts.expr import Dim


def _bias(call: Call, index: int) -> Dim:
    return call.out_size() if call.has(index) else 0


@op("Conv", kind="conv")
def conv(call: Call) -> Cost:
    """x (N, C, D…), w (M, C/group, k…), bias (M) -> (N, M, D'…)."""
    return call.cost(macs=call.out_size() * prod(call.shape(1)[1:]), arith=_bias(call, 2))


@op("ConvInteger", kind="conv")
def conv_integer(call: Call) -> Cost:
    """x, w, x_zero, w_zero."""
    return call.cost(macs=call.out_size() * prod(call.shape(1)[1:]))


@op("QLinearConv", kind="conv")
@op("QLinearConv", kind="conv", domain="com.microsoft")
def qlinear_conv(call: Call) -> Cost:
    """x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias."""
    return call.cost(macs=call.out_size() * prod(call.shape(3)[1:]), arith=_bias(call, 8))


@op("ConvTranspose", kind="conv")
@op("ConvTransposeWithDynamicPads", kind="conv", domain="com.microsoft")
def conv_transpose(call: Call) -> Cost:
    """x (N, C, D…), w (C, M/group, k…), bias (M); with dynamic pads the bias is input 3."""
    bias = 3 if call.node.domain else 2
    return call.cost(macs=call.size(0) * prod(call.shape(1)[1:]), arith=_bias(call, bias))


@op("FusedConv", "NhwcFusedConv", "NhwcConv", kind="conv", domain="com.microsoft")
def fused_conv(call: Call) -> Cost:
    """act(conv(x, w) + bias + residual): inputs x, w, bias, residual; attribute `activation`."""
    n = call.out_size()
    flops, special = activation(call.attr("activation", ""), n)
    residual = n if call.has(3) else 0
    return call.cost(macs=n * prod(call.shape(1)[1:]), arith=_bias(call, 2) + residual + flops, transcendentals=special)


@op("DeformConv", kind="conv")
def deform_conv(call: Call) -> Cost:
    """x, w, offset, bias, mask: a convolution of samples interpolated between 2^d neighbours, 4 FLOPs each."""
    taps, spatial = call.shape(1)[2:], call.out_shape()[2:]
    samples = prod(call.shape(0)[:2]) * prod(spatial) * prod(taps)
    macs = call.out_size() * prod(call.shape(1)[1:])
    return call.cost(macs=macs, arith=_bias(call, 3) + 4 * 2 ** len(spatial) * samples)


@op("CausalConvWithState", kind="conv")
@op("CausalConvWithState", kind="conv", domain="com.microsoft")
def causal_conv(call: Call) -> Cost:
    """x (B, C, L), w (C, 1, k), bias, past state -> (B, C, L), present state: a depthwise convolution."""
    n = call.out_size()
    flops, special = activation(call.attr("activation", "none"), n)
    return call.cost(macs=n * prod(call.shape(1)[1:]), arith=_bias(call, 2) + flops, transcendentals=special)
