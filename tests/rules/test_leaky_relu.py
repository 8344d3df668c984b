"""LeakyRelu from Max and Min, and what is none."""

from __future__ import annotations

from functools import partial

import examples
import numpy as np
import onnx
import pytest
from support import ops, optimized, parse, run

CONSTANTS = "<float a = {0.25}, float two = {2}, float four = {4}, float minus = {-0.5}, float zero = {0}, \
float[4] per = {0.1, 0.2, 0.3, 0.4}>"


def model(body: str, opset: int = 17) -> onnx.ModelProto:
    return parse(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,4] x) => (float[N,4] y) {CONSTANTS} {{ {body} }}'
    )


made = partial(examples.made, rule="leaky_relu")


@pytest.mark.parametrize(
    "body",
    [
        "t = Mul(x, a) y = Max(x, t)",
        "t = Mul(a, x) y = Max(t, x)",
        "t = Div(x, four) y = Max(t, x)",
        "t = Mul(x, two) y = Min(x, t)",
    ],
)
@pytest.mark.parametrize("opset", [8, 17])
def test_spellings(body: str, opset: int) -> None:
    assert made(model(body, opset)) == ["LeakyRelu"]


@pytest.mark.parametrize(
    "body",
    [
        "t = Mul(x, a) y = Min(x, t)",
        "t = Mul(x, two) y = Max(x, t)",
        "t = Mul(x, minus) y = Max(x, t)",
        "t = Mul(x, zero) y = Max(x, t)",
        "t = Mul(x, per) y = Max(x, t)",
        "t = Div(a, x) y = Max(x, t)",
        "t = Add(x, a) y = Max(x, t)",
    ],
)
def test_near_misses_stay(body: str) -> None:
    m = model(body)
    assert made(m) == ops(m)


def test_special_values() -> None:
    m = model("t = Mul(x, a) y = Max(x, t)")
    x = np.array([[np.nan, np.inf, -np.inf, -0.0]], np.float32)
    fused = optimized(m, rules=["leaky_relu"], target="ort-cpu").model
    np.testing.assert_array_equal(run(fused, {"x": x})[0], run(m, {"x": x})[0])


@pytest.mark.parametrize(("op", "factor", "x"), [("Min", 1e30, -1e-35), ("Max", 1e-30, -np.inf)])
def test_a_factor_that_float32_does_not_hold(op: str, factor: float, x: float) -> None:
    """Twice of it is 10⁶⁰ or 10⁻⁶⁰."""
    m = parse(f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) <float a = {{{factor}}}>
    {{ t = Mul(x, a) u = Mul(t, a) y = {op}(x, u) }}""")
    result = optimized(m, target="ort-cpu", verify=False)
    feeds = {"x": np.array([x], np.float32)}
    np.testing.assert_array_equal(run(result.model, feeds)[0], run(m, feeds)[0])
