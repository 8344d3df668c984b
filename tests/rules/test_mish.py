"""Mish in its spellings, its limits, and what is no Mish."""

from __future__ import annotations

from functools import partial

import examples
import numpy as np
import onnx
import pytest
from support import graph, ops, optimized, parse, run

MADE = ["Min", "Exp", "Add", "Mul", "Add", "Div", "Mul"]
ONE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2,3] x) => (float[N,2,3] y) <float one = {1}, float two = {2}>"""


made = partial(examples.made, rule="mish", scales=[1, 10])


def model(body: str, opset: int = 17, dtype: str = "float") -> onnx.ModelProto:
    return graph(body, inputs=f"{dtype}[N,2,3] x", outputs=f"{dtype}[N,2,3] y", opset=opset)


@pytest.mark.parametrize("opset", [8, 11, 17, 22])
@pytest.mark.parametrize("product", ["Mul(x, t)", "Mul(t, x)"])
def test_parts(opset: int, product: str) -> None:
    assert made(model(f"s = Softplus(x) t = Tanh(s) y = {product}", opset)) == MADE


def test_operator() -> None:
    assert made(model("y = Mish(x)", 18)) == MADE


@pytest.mark.parametrize("total", ["Add(e, one)", "Add(one, e)"])
def test_softplus_in_parts(total: str) -> None:
    assert made(parse(f"{ONE} {{ e = Exp(x) a = {total} s = Log(a) t = Tanh(s) y = Mul(x, t) }}")) == MADE


@pytest.mark.parametrize(
    "body",
    [
        "s = Softplus(x) t = Tanh(s) y = Mul(s, t)",
        "s = Softplus(x) t = Sigmoid(s) y = Mul(x, t)",
        "s = Softplus(x) t = Tanh(s) y = Add(x, t)",
        "e = Exp(x) a = Add(e, two) s = Log(a) t = Tanh(s) y = Mul(x, t)",
        "t = Tanh(x) y = Mul(x, t)",
    ],
)
def test_near_misses_stay(body: str) -> None:
    m = parse(f"{ONE} {{ {body} }}")
    assert made(m) == ops(m)


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_only_where_it_was_measured(target: str) -> None:
    assert made(model("s = Softplus(x) t = Tanh(s) y = Mul(x, t)"), target) == ["Softplus", "Tanh", "Mul"]


def test_wide_and_special_values() -> None:
    m = graph("s = Softplus(x) t = Tanh(s) y = Mul(x, t)", inputs="float[N] x", outputs="float[N] y")
    fused = optimized(m, rules=["mish"], target="ort-cpu").model
    assert ops(fused) == MADE
    x = np.array([np.nan, np.inf, -np.inf, 0, 19, 20, 21, 44, 88, 89, 1e38, -20, -87, -1e38], np.float32)
    wide = x[3:].astype(np.float64)
    expected = [np.nan, np.inf, np.nan, *(wide * np.tanh(np.logaddexp(0, wide)))]  # -inf·0 is NaN, as in the parts
    np.testing.assert_allclose(run(fused, {"x": x})[0], expected, rtol=1e-6, atol=1e-35)
    line = np.linspace(-30, 30, 4001, dtype=np.float32)
    exact = line.astype(np.float64) * np.tanh(np.logaddexp(0, line.astype(np.float64)))
    np.testing.assert_allclose(run(fused, {"x": line})[0], exact, rtol=1e-6)
