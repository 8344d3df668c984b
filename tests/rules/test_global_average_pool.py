"""ReduceMean over the spatial axes behind a convolution, its spellings by opset, and what stays."""

from __future__ import annotations

from functools import partial

import examples
import onnx
import pytest
from support import ops, optimized, parse

WEIGHTS = "<float[8,3,1,1] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5}, \
int64[2] axes = {-1, 2}, int64[1] one = {3}>"


def model(body: str, opset: int = 17, out: str = "N,8,1,1") -> onnx.ModelProto:
    return parse(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,3,H,W] x) => (float[{out}] y) {WEIGHTS} {{ {body} }}'
    )


made = partial(examples.made, rule="global_average_pool", dims=[{"N": 2, "H": 1, "W": 1}, {"N": 2, "H": 5, "W": 4}])


@pytest.mark.parametrize(
    ("axes", "opset"), [("2, 3", 7), ("3, 2", 9), ("2, 3", 11), ("-1, -2", 11), ("2, -1", 13), ("-2, 3", 17)]
)
def test_axes_as_attribute(axes: str, opset: int) -> None:
    m = model(f"c = Conv(x, w) y = ReduceMean <axes = [{axes}], keepdims = 1> (c)", opset)
    assert made(m) == ["Conv", "GlobalAveragePool"]


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "HardSwish"])
def test_axes_as_input_behind_an_activation(activation: str) -> None:
    m = model(f"c = Conv(x, w) r = {activation}(c) y = ReduceMean(r, axes)", 20)
    assert made(m) == ["Conv", activation, "GlobalAveragePool"]


def test_behind_silu() -> None:
    m = model("c = Conv(x, w) g = Sigmoid(c) r = Mul(c, g) y = ReduceMean(r, axes)", 20)
    assert made(m)[-1] == "GlobalAveragePool"


@pytest.mark.parametrize(
    ("body", "opset", "out"),
    [
        ("c = Conv(x, w) y = ReduceMean <axes = [2, 3], keepdims = 0> (c)", 17, "N,8"),
        ("c = Conv(x, w) y = ReduceMean <axes = [3]> (c)", 17, "N,8,H,1"),
        ("c = Conv(x, w) y = ReduceMean <axes = [1, 2, 3]> (c)", 17, "N,1,1,1"),
        ("c = Conv(x, w) y = ReduceMean(c)", 20, "1,1,1,1"),
        ("c = Conv(x, w) y = ReduceMean(c, one)", 20, "N,8,H,1"),
        ("c = Conv(x, w) y = ReduceMax <axes = [2, 3]> (c)", 17, "N,8,1,1"),
        ("y = ReduceMean <axes = [2, 3]> (x)", 17, "N,3,1,1"),
        ("c = Conv(x, w) e = Elu(c) y = ReduceMean <axes = [2, 3]> (e)", 17, "N,8,1,1"),
    ],
)
def test_near_misses_stay(body: str, opset: int, out: str) -> None:
    m = model(body, opset, out)
    assert made(m) == ops(m)


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_only_where_it_was_measured(target: str) -> None:
    m = model("c = Conv(x, w) y = ReduceMean <axes = [2, 3]> (c)")
    assert ops(optimized(m, rules=["global_average_pool"], target=target).model) == ops(m)
