from __future__ import annotations

import numpy as np
import pytest

from onnxfuse import ir
from onnxfuse.cost import Cost
from onnxfuse.cost.registry import FORMULAS, Call
from onnxfuse.facts import evaluate, symbol
from onnxfuse.facts.value import Value

# x 2x3x4 = 24 elements -> 2x3 = 6
X, Y = "f32 2 3 4", "f32 2 3"


@pytest.mark.parametrize(
    ("op", "arith", "special"),
    [
        ("ReduceSum", 18, 0), ("ReduceMax", 18, 0), ("ReduceMin", 18, 0), ("ReduceProd", 18, 0),  # 24 − 6
        ("ReduceMean", 24, 0),  # + 6 divisions
        ("ReduceL1", 42, 0), ("ReduceSumSquare", 42, 0),  # + 24 for |x| or x²
        ("ReduceL2", 42, 6),  # and 6 roots
        ("ReduceLogSum", 18, 6),
        ("ReduceLogSumExp", 18, 30),  # 24 exp, 6 log
    ],
)  # fmt: skip
def test_reduce(price, op, arith, special):
    assert price(op, [X], [Y]) == Cost(0, arith, special, 96, 24)
    # axes as an input of one int64: 8 bytes more
    assert price(op, [X, "i64 1"], [Y]) == Cost(0, arith, special, 104, 24)


def test_nothing_is_reduced_to_the_neutral_element(price):
    """An axis that the data make 0 long: no addition; n elements take n − 1."""
    n = symbol("n", low=0)
    call = Call(ir.Node("ReduceSum", "", "", ("x",), ("y",), {}), (Value(1, (n,)),), (Value(1, ()),), 21)
    arith = FORMULAS["", "ReduceSum"].formula(call).arith
    assert [evaluate(arith, {"n": size}) for size in (0, 1, 5)] == [0, 0, 4]


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_arg(price, op):
    assert price(op, [X], ["i64 2 3 1"]) == Cost(0, 18, 0, 96, 48)


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        # 1x2x5x5 = 50 -> 1x2x1x1 = 2
        ("GlobalAveragePool", {}, Cost(0, 50, 0, 200, 8)),
        ("GlobalMaxPool", {}, Cost(0, 48, 0, 200, 8)),
        ("GlobalLpPool", {}, Cost(0, 98, 2, 200, 8)),
        ("GlobalLpPool", {"p": 1}, Cost(0, 98, 0, 200, 8)),
        ("GlobalLpPool", {"p": 3}, Cost(0, 48, 52, 200, 8)),
    ],
)
def test_global_pool(price, op, attrs, expected):
    assert price(op, ["f32 1 2 5 5"], ["f32 1 2 1 1"], attrs) == expected


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
def test_cumulate(op):
    # 2x3x4 along the last axis: 3 operations a row of 4, 6 rows = 18; along the first: 24 − 24/2 = 12
    x, node = Value(1, (2, 3, 4)), ir.Node(op, "", "", ("x", "axis"), ("y",), {})
    for axis, arith in ((-1, 18), (0, 12)):
        axis_value = Value(7, (), np.array(axis, object))
        assert FORMULAS["", op].formula(Call(node, (x, axis_value), (x,), 21)) == Cost(0, arith, 0, 104, 96)
    # not known along which axis: one an element at most
    assert FORMULAS["", op].formula(Call(node, (x, Value(7, ())), (x,), 21)) == Cost(0, 24, 0, 104, 96)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "expected"),
    [
        # 3x3 stride 2: 8 FLOPs for each of 1x2x3x3 = 18; the input of 98 is read once
        ("MaxPool", ["f32 1 2 7 7"], ["f32 1 2 3 3"], {"kernel_shape": (3, 3)}, Cost(0, 144, 0, 392, 72)),
        # with the indices: 18 · 8 bytes more
        (
            "MaxPool",
            ["f32 1 2 7 7"],
            ["f32 1 2 3 3", "i64 1 2 3 3"],
            {"kernel_shape": (3, 3)},
            Cost(0, 144, 0, 392, 216),
        ),
        ("AveragePool", ["f32 1 2 7 7"], ["f32 1 2 3 3"], {"kernel_shape": (3, 3)}, Cost(0, 162, 0, 392, 72)),
        # 3-D 2x2x2: 8 · 8 = 64 for 1x1x2x2x2
        ("AveragePool", ["f32 1 1 4 4 4"], ["f32 1 1 2 2 2"], {"kernel_shape": (2, 2, 2)}, Cost(0, 64, 0, 256, 32)),
        # 9 squares + 8 additions, a root
        ("LpPool", ["f32 1 2 7 7"], ["f32 1 2 3 3"], {"kernel_shape": (3, 3)}, Cost(0, 306, 18, 392, 72)),
        ("LpPool", ["f32 1 2 7 7"], ["f32 1 2 3 3"], {"kernel_shape": (3, 3), "p": 1}, Cost(0, 306, 0, 392, 72)),
        # 5 squares, 4 additions, ·, +, ÷ = 2·5 + 2, a power
        ("LRN", ["f32 1 2 7 7"], ["f32 1 2 7 7"], {"size": 5}, Cost(0, 1176, 98, 392, 392)),
    ],
)
def test_pool(price, op, inputs, outputs, attrs, expected):
    assert price(op, inputs, outputs, attrs) == expected
