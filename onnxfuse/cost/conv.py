"""Convolutions.

MACs = output elements x (input channels of a group x taps), i.e. x the elements of one output channel's weight; a
transposed convolution scatters each *input* element, so its input size counts. Taps on padding count: the definition of
torchvision's `_ops` figures and of PyTorch's FlopCounterMode. The bias is 1 FLOP an output element, no MAC.
"""

from __future__ import annotations

from onnxfuse.cost.activation import fused
from onnxfuse.cost.registry import NCHWC, NHWC, Call, Cost, Unknown, bytes_of, op, prod
from onnxfuse.facts.expr import Dim, dmin
from onnxfuse.facts.value import Value


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
@op("QLinearConv", kind="conv", domain=NHWC)
def qlinear_conv(call: Call) -> Cost:
    """x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias."""
    return call.cost(macs=call.out_size() * prod(call.shape(3)[1:]), arith=_bias(call, 8))


@op("ConvTranspose", kind="conv")
@op("ConvTransposeWithDynamicPads", kind="conv", domain="com.microsoft")
@op("ConvTranspose", kind="conv", domain=NHWC)
def conv_transpose(call: Call) -> Cost:
    """x (N, C, D…), w (C, M/group, k…), bias (M); with dynamic pads the bias is input 3."""
    bias = 3 if call.node.op_type == "ConvTransposeWithDynamicPads" else 2
    return call.cost(macs=call.size(0) * prod(call.shape(1)[1:]), arith=_bias(call, bias)) + fused(call)


@op("QLinearConvTranspose", kind="conv", domain=NHWC)
def qlinear_conv_transpose(call: Call) -> Cost:
    """As QLinearConv: w is input 3, the bias input 8."""
    return call.cost(macs=call.size(0) * prod(call.shape(3)[1:]), arith=_bias(call, 8))


@op("FusedConv", "NhwcFusedConv", "NhwcConv", kind="conv", domain="com.microsoft")
@op("Conv", kind="conv", domain=NCHWC)
@op("Conv", kind="conv", domain=NHWC)
def fused_conv(call: Call) -> Cost:
    """act(conv(x, w) + bias + residual): inputs x, w, bias, residual; attribute `activation`."""
    n = call.out_size()
    residual = n if call.has(3) else 0
    return call.cost(macs=n * prod(call.shape(1)[1:]), arith=_bias(call, 2) + residual) + fused(call)


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
    return call.cost(macs=call.out_size() * prod(call.shape(1)[1:]), arith=_bias(call, 2)) + fused(call)


@op("VarlenCausalConvWithState", kind="conv", domain="com.microsoft")
def varlen_causal_conv(call: Call) -> Cost:
    """x (tokens, C), w (C, 1, k), lengths, bias, state; kernels that change from token to token are not counted."""
    if call.has(6):
        raise Unknown("kernels that change from token to token are not counted")
    return call.cost(macs=call.out_size() * prod(call.shape(1)[1:]), arith=_bias(call, 3)) + fused(call)


@op("WordConvEmbedding", kind="conv", domain="com.microsoft")
def word_conv_embedding(call: Call) -> Cost:
    """characters (words, L), w (filters, 1, window, size), bias, table (characters, size) -> (words, filters).

    tanh(conv + bias) at every position of a word, and the largest of them; words are as long as L, an upper bound.
    """
    (words, length), w, size = call.shape(0, 2), call.shape(1, 4), call.shape(3, 2)[1]
    positions = length - w[2] + 1
    n = words * positions * w[0]
    table = call.input(3)
    rows = dmin(bytes_of(table), words * length * bytes_of(Value(table.dtype, (size,))))
    return call.cost(n * prod(w[1:]), 2 * n - words * w[0], n, read=call.read(0, 1, 2) + rows)
