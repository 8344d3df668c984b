"""Chains of Relu, Min, Max and Clip: against numpy's minimum and maximum, in every order."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from support import ops, optimized, parse, run

STEPS = {
    "Relu({})": lambda v: np.maximum(v, 0),
    "Max({}, m3)": lambda v: np.maximum(v, -3),
    "Max(zero, {})": lambda v: np.maximum(v, 0),
    "Min({}, six)": lambda v: np.minimum(v, 6),
    "Min(m1, {})": lambda v: np.minimum(v, -1),
    "Clip({}, m3, m1)": lambda v: np.minimum(np.maximum(v, -3), -1),
    "Clip({}, one, six)": lambda v: np.minimum(np.maximum(v, 1), 6),
}
CONSTANTS = "<float m3 = {-3}, float m1 = {-1}, float zero = {0}, float one = {1}, float six = {6}, \
float[4] per = {0,1,2,3}>"
DATA = np.array([[np.nan, -np.inf, np.inf, -9], [-2, -0.5, 0.5, 9], [3, 1, 6, -3]], np.float32)


def model(body: str, opset: int = 17, extra: str = "") -> onnx.ModelProto:
    return parse(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,4] x) => (float[N,4] y{extra}) {CONSTANTS} '
        f"{{ {body} }}"
    )


def made(m: onnx.ModelProto, rules: tuple[str, ...] = ("limits",)) -> list[str]:
    result = optimized(m, rules=list(rules), target="ort-cpu").model
    np.testing.assert_array_equal(run(result, {"x": DATA})[0], run(m, {"x": DATA})[0])
    return ops(result)


@pytest.mark.parametrize("pair", list(product(STEPS, repeat=2)))
def test_two_limits(pair: tuple[str, str]) -> None:
    first, second = pair
    m = model(f"r = {first.format('x')} y = {second.format('r')}")
    result = optimized(m, rules=["limits"], target="ort-cpu").model
    with np.errstate(invalid="ignore"):
        expected = STEPS[second](STEPS[first](DATA))
    np.testing.assert_array_equal(run(result, {"x": DATA})[0], expected)
    both = "Clip" in first + second or ("Min" in first) != ("Min" in second)
    if both:
        assert ops(result) == ["Clip"]


def test_relu6_and_relu() -> None:
    assert made(model("r = Relu(x) y = Min(r, six)")) == ["Clip"]
    assert made(model("r = Min(x, six) y = Relu(r)", 10)) == ["Clip"]
    assert made(model("r = Relu(x) s = Max(r, m3) y = Relu(s)")) == ["Relu"]


def test_clip_attributes_before_opset_11() -> None:
    m = model("r = Clip <min = 0.0, max = 6.0> (x) y = Min(r, one)", 9)
    result = optimized(m, rules=["limits"], target="ort-cpu").model
    assert ops(result) == ["Clip"]
    assert {a.name: a.f for a in result.graph.node[0].attribute} == {"min": 0, "max": 1}


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu(x)",
        "y = Clip(x, zero, six)",
        "y = Clip(x, zero)",  # holds +∞ at the widest number, which Relu would let through
        "r = Max(x, per) y = Min(r, six)",
        "y = Min(x, six)",
    ],
)
def test_what_stays(body: str) -> None:
    m = model(body)
    assert made(m) == ops(m)


def test_a_clip_without_a_bound_still_holds_infinities() -> None:
    m = model("r = Relu(x) y = Clip(r, zero)")
    assert made(m)[-1] == "Clip"


def test_shared_values_stay_readable() -> None:
    m = model("r = Relu(x) y = Min(r, six)", extra=", float[N,4] r")
    assert "Relu" in made(m)


def test_integers_stay() -> None:
    m = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (int32[N] x) => (int32[N] y) <int32 zero = {0}, int32 six = {6}> '
        "{ r = Max(x, zero) y = Min(r, six) }"
    )
    assert ops(optimized(m, rules=["limits"], target="ort-cpu").model) == ["Max", "Min"]


def test_a_clip_of_old_opsets_has_no_bounds_for_float16() -> None:
    m = parse("""<ir_version: 8, opset_import: ["" : 10]> g (float16[N,4] x) => (float16[N,4] y)
    { r = Clip(x)  y = Clip(r) }""")
    result = optimized(m, rules=["limits"], target="ort-cpu", verify=False).model
    data = {"x": np.array([[np.inf, -np.inf, 6e4, np.nan]], np.float16)}
    np.testing.assert_array_equal(run(result, data)[0], run(m, data)[0])


@pytest.mark.parametrize(("opset", "expected"), [(11, ["Relu", "Clip"]), (14, ["Clip"])])
def test_double_where_the_runtime_has_clip_for_it(opset: int, expected: list[str]) -> None:
    """onnxruntime 1.32 does not load a Relu right before a Clip in double."""
    m = parse(f"""<ir_version: 8, opset_import: ["" : {opset}]> g (double[N,4] x) => (double[N,4] y)
    <double low = {{-1}}, double high = {{2}}> {{ r = Relu(x)  i = Identity(r)  y = Clip(i, low, high) }}""")
    result = optimized(m, target="ort-cpu", exclude=["redundant_copy"] if opset == 11 else [], verify=False).model
    assert [op for op in ops(result) if op != "Identity"] == expected
    if opset > 11:
        data = {"x": DATA.astype(np.float64)}
        np.testing.assert_array_equal(run(result, data)[0], run(m, data)[0])


def test_no_relu_in_double_before_a_clip_that_cannot_join() -> None:
    """Its upper limit may be set by the caller, so the two stay two, and onnxruntime loads only the Max of them."""
    m = parse("""<ir_version: 10, opset_import: ["" : 17]> g (double[N,4] x, double high) => (double[N,4] y)
    <double zero = {0}, double high = {6}> { r = Max(x, zero)  y = Clip(r, zero, high) }""")
    result = optimized(m, target="ort-cpu", verify=False).model
    data = {"x": DATA.astype(np.float64)}
    np.testing.assert_array_equal(run(result, data, plain=False)[0], run(m, data)[0])
