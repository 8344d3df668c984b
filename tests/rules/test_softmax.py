"""Softmax from its parts, and near misses that stay."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from norms import made, model, of_dtype
from support import ops, optimized, random_feeds, run

HEAD = "m = ReduceMax <axes = [-1]> (x); d = Sub(x, m); e_ = Exp(d)"
PARTS = f"{HEAD}; t = Sum(e_); y = Div(e_, t)"


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


@pytest.mark.parametrize("opset", [11, 12, 13, 17])
@pytest.mark.parametrize("tail", ["y = Div(e_, t)", "i = Reciprocal(t); y = Mul(i, e_)"])
def test_over_the_last_axis(opset: int, tail: str) -> None:
    m = model(f"{HEAD}; t = Sum(e_); {tail}", opset)
    for target in ("ort-cpu", "ort-cuda"):
        assert made(m, "softmax", target) == ["Softmax"]
    fused = optimized(m, rules=["softmax"], target="ort-cpu").model
    x = random_feeds(m)["x"]
    np.testing.assert_allclose(run(fused, {"x": x})[0], softmax(x, -1), rtol=1e-5)


def test_over_another_axis() -> None:
    body = "m = ReduceMax <axes = [1]> (x); d = Sub(x, m); e_ = Exp(d); t = ReduceSum{}; y = Div(e_, t)"
    m = model("k = Constant <value_ints = [1]> ();" + body.format("(e_, k)"))
    assert [op for op in made(m, "softmax") if op != "Constant"] == ["Softmax"]
    fused = optimized(m, rules=["softmax"], target="ort-cpu").model
    x = random_feeds(m)["x"]
    np.testing.assert_allclose(run(fused, {"x": x})[0], softmax(x, 1), rtol=1e-5)
    old = model(body.format(" <axes = [1]> (e_)"), 12)
    assert made(old, "softmax") == ops(old)  # Softmax ran over all axes from there on


NEAR_MISSES = {
    "without the maximum": "e_ = Exp(x); t = Sum(e_); y = Div(e_, t)",
    "another maximum": "m = ReduceMax <axes = [1]> (x); d = Sub(x, m); e_ = Exp(d); t = Sum(e_); y = Div(e_, t)",
    "the minimum": "m = ReduceMin <axes = [-1]> (x); d = Sub(x, m); e_ = Exp(d); t = Sum(e_); y = Div(e_, t)",
    "maximum minus x": "m = ReduceMax <axes = [-1]> (x); d = Sub(m, x); e_ = Exp(d); t = Sum(e_); y = Div(e_, t)",
    "the mean": f"{HEAD}; t = Mean(e_); y = Div(e_, t)",
    "two axes": "m = ReduceMax <axes = [1, 2]> (x); d = Sub(x, m); e_ = Exp(d); t = ReduceSum(e_, both);y = Div(e_, t)",
    "of the logarithm": f"{HEAD}; t = Sum(d); y = Div(e_, t)",
    "the sum over it": f"{HEAD}; t = Sum(e_); y = Div(t, e_)",
    "another divisor": f"{HEAD}; t = Sum(e_); k = Add(t, one); y = Div(e_, k)",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay(name: str) -> None:
    m = model(NEAR_MISSES[name])
    assert made(m, "softmax") == ops(m)


@pytest.mark.parametrize("name", ["m", "d", "e_", "t"])
@pytest.mark.parametrize("exported", [True, False])
def test_a_value_that_is_needed_elsewhere(name: str, exported: bool) -> None:
    m = model(PARTS, shape="2,3,4")
    if not exported:
        m.graph.node.append(onnx.helper.make_node("Abs", [name], ["seen"]))
    size = 4 if name in ("d", "e_") else 1
    shown = name if exported else "seen"
    m.graph.output.append(onnx.helper.make_tensor_value_info(shown, onnx.TensorProto.FLOAT, [2, 3, size]))
    assert made(m, "softmax") == ops(m)


def test_double_is_recovered_and_float16_stays() -> None:
    assert made(of_dtype(model(PARTS), onnx.TensorProto.DOUBLE), "softmax") == ["Softmax"]
    half = of_dtype(model(PARTS), onnx.TensorProto.FLOAT16)
    assert made(half, "softmax") == ops(half)


def test_special_values() -> None:
    m = model(PARTS, shape="7,4")
    fused = optimized(m, rules=["softmax"], target="ort-cpu").model
    assert ops(fused) == ["Softmax"]
    x = np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32)
    x[0, 1], x[1, 2], x[2, 3], x[3], x[4], x[5, 0] = np.nan, np.inf, -np.inf, -np.inf, 1e38, -1e38
    np.testing.assert_allclose(run(fused, {"x": x})[0], run(m, {"x": x})[0], rtol=1e-5)
