"""Windows: (taps − 1) FLOPs an output element, +1 for the division of an average; the input is read once."""

from __future__ import annotations

import math

from onnxfuse.cost.activation import fused
from onnxfuse.cost.registry import NCHWC, NHWC, Call, Cost, Unknown, op
from onnxfuse.facts.expr import Dim


def _taps(call: Call) -> int:
    kernel = call.attr("kernel_shape", None)
    if not kernel:
        raise Unknown("its kernel_shape is missing")
    return math.prod(kernel)


@op("MaxPool", kind="pool")
@op("NhwcMaxPool", "MaxpoolWithMask", kind="pool", domain="com.microsoft")
@op("MaxPool", kind="pool", domain=NCHWC)
@op("MaxPool", kind="pool", domain=NHWC)
def max_pool(call: Call) -> Cost:
    """Also writes the indices, where they are connected."""
    return call.cost(arith=(_taps(call) - 1) * call.out_size()) + fused(call)


@op("AveragePool", kind="pool")
@op("QLinearAveragePool", kind="pool", domain="com.microsoft")
@op("AveragePool", kind="pool", domain=NCHWC)
@op("AveragePool", "QLinearAveragePool", kind="pool", domain=NHWC)
def average_pool(call: Call) -> Cost:
    """taps − 1 additions, one division."""
    return call.cost(arith=_taps(call) * call.out_size()) + fused(call)


@op("LpPool", kind="pool")
@op("LpPool", kind="pool", domain=NHWC)
def lp_pool(call: Call) -> Cost:
    """taps of |x| or x², taps − 1 additions, and the root; for p > 2 the powers are special functions."""
    taps, out, p = _taps(call), call.out_size(), call.attr("p", 2)
    if p in (1, 2):
        return call.cost(arith=(2 * taps - 1) * out, transcendentals=out if p == 2 else 0)
    return call.cost(arith=(taps - 1) * out, transcendentals=(taps + 1) * out)


@op("LRN", kind="pool")
@op("LRN", kind="pool", domain=NHWC)
def lrn(call: Call) -> Cost:
    """x / (bias + α/size · Σ x²)^β over `size` channels: squares, sum, ·, +, ÷, and one power an element."""
    n: Dim = call.out_size()
    return call.cost(arith=(2 * call.attr("size", 1) + 2) * n, transcendentals=n)
