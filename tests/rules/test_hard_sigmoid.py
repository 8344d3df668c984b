"""HardSigmoid from its parts, in the exporters' spellings, and near misses that stay."""

from __future__ import annotations

from functools import partial

import examples
import numpy as np
import onnx
import pytest
from support import assert_same, ops, optimized, parse, run

CONSTANTS = "<float three = {3}, float zero = {0}, float six = {6}, float one = {1}, float sixth = {0.16666667}, \
float fifth = {0.2}, float half = {0.5}, float minus = {-0.2}, float[2] per = {3, 4}, float[1] five = {5}>"
CLIP = "a = Add(x, three) c = Clip(a, zero, six)"


def model(body: str, opset: int = 17, extra: str = "") -> onnx.ModelProto:
    return parse(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,3,2] x) => (float[N,3,2] y{extra}) {CONSTANTS} '
        f"{{ {body} }}"
    )


made = partial(examples.made, rule="hard_sigmoid")


@pytest.mark.parametrize(
    ("body", "alpha", "beta"),
    [
        (f"{CLIP} y = Div(c, six)", 1 / 6, 0.5),
        (f"{CLIP} y = Mul(sixth, c)", 1 / 6, 0.5),
        ("a = Add(x, three) r = Relu(a) c = Min(r, six) y = Div(c, six)", 1 / 6, 0.5),
        ("m = Mul(x, fifth) a = Add(m, half) y = Clip(a, zero, one)", 0.2, 0.5),
        ("m = Mul(fifth, x) a = Add(half, m) r = Max(a, zero) y = Min(r, one)", 0.2, 0.5),
        ("m = Div(x, five) a = Sub(m, half) y = Clip(a, zero, one)", 0.2, -0.5),
        ("c = Clip(x, zero, six) y = Div(c, six)", 1 / 6, 0),
        ("a = Add(x, half) y = Clip(a, zero, one)", 1, 0.5),
    ],
)
@pytest.mark.parametrize("opset", [11, 17, 22])
def test_spellings(body: str, alpha: float, beta: float, opset: int) -> None:
    m = model(body, opset)
    assert made(m) == ["HardSigmoid"]
    (node,) = optimized(m, rules=["hard_sigmoid"], target="ort-cpu").model.graph.node
    attrs = {a.name: a.f for a in node.attribute}
    assert attrs == pytest.approx({"alpha": alpha, "beta": beta}, rel=1e-6)


def test_clip_with_attributes() -> None:
    assert made(model("a = Add(x, three) c = Clip <min = 0.0, max = 6.0> (a) y = Div(c, six)", 9)) == ["HardSigmoid"]


@pytest.mark.parametrize(
    "body",
    [
        "y = Clip(x, zero, one)",
        "r = Relu(x) y = Min(r, one)",
        f"{CLIP} y = Div(c, three)",
        f"{CLIP} y = Div(six, c)",
        "a = Add(x, three) c = Clip(a, one, six) y = Div(c, six)",
        "a = Add(x, three) c = Clip(a, zero) y = Div(c, six)",
        "a = Mul(x, minus) b = Add(a, half) y = Clip(b, zero, one)",
        "a = Sub(half, x) y = Clip(a, zero, one)",
    ],
)
def test_near_misses_stay(body: str) -> None:
    m = model(body)
    if "Div(six, c)" in body:
        assert not optimized(m, rules=["hard_sigmoid"], target="ort-cpu").fusions
    else:
        assert made(m) == ops(m)


def test_what_others_read_is_not_looked_through() -> None:
    m = model("s = Mul(x, fifth) a = Add(s, half) c = Clip(a, zero, one) y = Mul(s, c)")
    result = optimized(m, rules=["hard_sigmoid"], target="ort-cpu").model
    assert ops(result) == ["Mul", "HardSigmoid", "Mul"]
    assert result.graph.node[1].input[0] == result.graph.node[0].output[0]


def test_a_constant_of_an_axis_stays_outside() -> None:
    assert made(model("a = Add(x, per) c = Clip(a, zero, six) y = Div(c, six)")) == ["Add", "HardSigmoid"]


def test_a_shared_inner_value_stays() -> None:
    m = model(f"{CLIP} y = Div(c, six)", extra=", float[N,3,2] a")
    assert sorted(made(m)) == ["Add", "HardSigmoid"]


def test_nan_and_infinities() -> None:
    m = model(f"{CLIP} y = Div(c, six)")
    x = np.array([np.nan, np.inf, -np.inf, -3, 3, 0], np.float32).reshape(1, 3, 2)
    fused = optimized(m, rules=["hard_sigmoid"], target="ort-cpu").model
    np.testing.assert_allclose(run(fused, {"x": x})[0], run(m, {"x": x})[0], atol=1e-7)


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("b = Add(x, magic) a = Sub(b, magic) y = Clip(a, zero, one)", -2, 3),  # x rounded to a whole number
        ("a = Sub(x, third) b = Mul(a, steep) y = Clip(b, zero, one)", 0.3333330, 0.3333335),  # exact near 1/3
        ("a = Mul(x, steep) b = Sub(a, magic) y = Clip(b, zero, one)", 2.0971515, 2.0971523),
    ],
)
def test_constants_that_cost_digits_stay(body: str, low: float, high: float) -> None:
    m = parse(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[64] x) => (float[64] y)
        <float zero = {{0}}, float one = {{1}}, float third = {{0.33333334}}, float steep = {{6000000}},
        float magic = {{12582912}}> {{ {body} }}"""
    )
    result = optimized(m, target="ort-cpu", verify=False)
    assert_same(m, result.model, {"x": np.linspace(low, high, 64, dtype=np.float32)})


@pytest.mark.parametrize(
    ("body", "x"),
    [
        ("t = Mul(x, a) u = Mul(t, a) y = Clip(u, zero, one)", 0.0),
        ("t = Mul(x, b) u = Mul(t, b) c = Clip(u, zero, most) d = Mul(c, b) y = Mul(d, e)", 1e38),
    ],
)
def test_slopes_that_float32_does_not_hold(body: str, x: float) -> None:
    m = parse(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y)
        <float zero = {{0}}, float one = {{1}}, float a = {{1e30}}, float b = {{1e-30}}, float most = {{1e38}},
        float e = {{1e-8}}> {{ {body} }}"""
    )
    result = optimized(m, target="ort-cpu", verify=False)
    feeds = {"x": np.array([x], np.float32)}
    np.testing.assert_array_equal(run(result.model, feeds)[0], run(m, feeds)[0])
