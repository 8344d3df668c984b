"""Sigmoid and SiLU from their parts, and near misses that stay."""

from __future__ import annotations

from functools import partial

import examples
import numpy as np
import onnx
import pytest
from norms import of_dtype
from support import assert_same, ops, optimized, parse, run

NEGATED = ["n = Neg(x)", "n = Mul(x, minus)", "n = Mul(minus, x)"]
QUOTIENTS = {
    "y = Div(one, a)": ["Sigmoid"],
    "y = Reciprocal(a)": ["Sigmoid"],
    "y = Div(x, a)": ["Sigmoid", "Mul"],
}


def model(body: str, shape: str = "N,5") -> onnx.ModelProto:
    return parse(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{shape}] x) => (float[{shape}] y) '
        f"<float one = {{1}}, float two = {{2}}, float minus = {{-1}}> {{ {body} }}"
    )


made = partial(examples.made, rule="sigmoid", scales=[1, 10])


@pytest.mark.parametrize("negated", NEGATED)
@pytest.mark.parametrize("total", ["a = Add(e, one)", "a = Add(one, e)"])
@pytest.mark.parametrize("quotient", QUOTIENTS)
def test_every_spelling(negated: str, total: str, quotient: str) -> None:
    m = model(f"{negated} e = Exp(n) {total} {quotient}")
    for target in ("ort-cpu", "ort-cuda"):
        assert made(m, target) == QUOTIENTS[quotient]


@pytest.mark.parametrize(
    "body",
    [
        "e = Exp(x) a = Add(e, one) y = Div(one, a)",
        "n = Neg(x) e = Exp(n) a = Add(e, two) y = Div(one, a)",
        "n = Neg(x) e = Exp(n) a = Sub(one, e) b = Add(a, two) y = Div(x, b)",
        "n = Neg(x) e = Exp(n) a = Add(e, one) y = Div(two, a)",
        "n = Neg(x) e = Exp(n) a = Add(e, one) y = Div(a, x)",
        "z = Abs(x) n = Neg(x) e = Exp(n) a = Add(e, one) y = Div(z, a)",
        "n = Mul(x, two) e = Exp(n) a = Add(e, one) y = Div(x, a)",
    ],
)
def test_near_misses_stay(body: str) -> None:
    m = model(body)
    assert made(m) == ops(m)


def test_a_value_that_is_needed_elsewhere() -> None:
    m = model("n = Neg(x) e = Exp(n) a = Add(e, one) y = Div(x, a)", "2,5")
    m.graph.output.append(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [2, 5]))
    assert made(m) == ops(m)


def test_double_stays() -> None:
    m = of_dtype(model("n = Neg(x) e = Exp(n) a = Add(e, one) y = Div(x, a)"), onnx.TensorProto.DOUBLE)
    assert made(m) == ops(m)


@pytest.mark.parametrize("quotient", QUOTIENTS)
def test_special_values(quotient: str) -> None:
    m = model(f"n = Neg(x) e = Exp(n) a = Add(e, one) {quotient}", "N,1")
    fused = optimized(m, rules=["sigmoid"], target="ort-cpu").model
    assert "Exp" not in ops(fused)
    x = np.array([np.nan, np.inf, -np.inf, 0, 1e37, -1e37, 1e-41, 30, -30, 89, -89], np.float32)
    x = np.repeat(x, 3).reshape(-1, 1)
    np.testing.assert_allclose(run(fused, {"x": x})[0], run(m, {"x": x})[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reader", ["y = Log(s)", "y = Reciprocal(s)", "t = Mul(s, two) y = Div(one, t)"])
def test_how_small_it_is_counts_for_some_readers(reader: str) -> None:
    m = model(f"n = Neg(x) e = Exp(n) a = Add(e, one) s = Div(one, a) {reader}")
    result = optimized(m, rules=["sigmoid"], target="ort-cpu", verify=False)
    assert "Sigmoid" not in ops(result.model)
    assert_same(m, result.model, {"x": np.array([[-19, -30, -60, 0, 5]], np.float32)})
