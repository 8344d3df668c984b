"""Reductions: in − out FLOPs, +out for the division of a mean, +in for the squares or absolute values of a norm."""

from __future__ import annotations

from onnxfuse.cost.registry import NCHWC, NHWC, Call, Cost, op
from onnxfuse.facts.expr import Dim, dmax

_PLAIN = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin", "GlobalMaxPool")


@op(*_PLAIN, kind="reduction")
@op("ReduceSumInteger", kind="reduction", domain="com.microsoft")
@op("GlobalMaxPool", kind="reduction", domain=NCHWC)
@op("GlobalMaxPool", kind="reduction", domain=NHWC)
def reduce(call: Call) -> Cost:
    """in − out."""
    return call.cost(arith=_joined(call))


def _joined(call: Call) -> Dim:
    """in − out, how often two are made one; 0 where nothing is reduced to the neutral element."""
    return dmax(call.size(0) - call.out_size(), 0)


@op("ReduceMean", "GlobalAveragePool", kind="reduction")
@op("QLinearGlobalAveragePool", "QLinearReduceMean", kind="reduction", domain="com.microsoft")
@op("GlobalAveragePool", kind="reduction", domain=NCHWC)
@op("GlobalAveragePool", kind="reduction", domain=NHWC)
def reduce_mean(call: Call) -> Cost:
    """in − out additions, out divisions."""
    return call.cost(arith=call.size(0))


@op("ReduceL1", "ReduceSumSquare", kind="reduction")
def reduce_mapped(call: Call) -> Cost:
    """One square or absolute value an element first."""
    return call.cost(arith=call.size(0) + _joined(call))


@op("ReduceL2", kind="reduction")
def reduce_l2(call: Call) -> Cost:
    """Squares, sum, square root."""
    return call.cost(arith=call.size(0) + _joined(call), transcendentals=call.out_size())


@op("ReduceLogSum", kind="reduction")
def reduce_log_sum(call: Call) -> Cost:
    """Sum, log."""
    return call.cost(arith=_joined(call), transcendentals=call.out_size())


@op("ReduceLogSumExp", kind="reduction")
def reduce_log_sum_exp(call: Call) -> Cost:
    """exp, sum, log."""
    return call.cost(arith=_joined(call), transcendentals=call.size(0) + call.out_size())


@op("GlobalLpPool", kind="reduction")
@op("GlobalLpPool", kind="reduction", domain=NHWC)
def global_lp_pool(call: Call) -> Cost:
    """p = 1 is a sum of absolute values, p = 2 (the default) a norm, any other p takes a power an element."""
    n, out, p = call.size(0), call.out_size(), call.attr("p", 2)
    if p in (1, 2):
        return call.cost(arith=n + _joined(call), transcendentals=out if p == 2 else 0)
    return call.cost(arith=_joined(call), transcendentals=n + out)


@op("CumSum", "CumProd", kind="reduction")
def cumulate(call: Call) -> Cost:
    """length − 1 operations a row; where the axis is not known, one an element is the upper bound."""
    shape, n = call.shape(0), call.size(0)
    axis = call.input(1).data
    if axis is None or axis.size != 1 or not -len(shape) <= axis.item() < len(shape):
        return call.cost(arith=n)
    length = shape[axis.item()]
    return call.cost(arith=0 if isinstance(length, int) and length == 0 else dmax(n - n // length, 0))
