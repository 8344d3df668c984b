"""HardSwish from its parts: every order and spelling, and near misses that stay."""

from __future__ import annotations

from functools import partial

import examples
import numpy as np
import onnx
import pytest
from support import ops, optimized, parse, run

CONSTANTS = "<float three = {3}, float zero = {0}, float six = {6}, float sixth = {0.16666667}, float half = {0.5}, \
float one = {1}, float[1] three1 = {3}, float[1,1] six2 = {6}, float off = {0.1667}, float[2] per = {3, 4}>"
CLIP = "a = Add(x, three) c = Clip(a, zero, six)"


def model(body: str, opset: int = 17, shape: str = "N,2,3,2", extra: str = "") -> onnx.ModelProto:
    return parse(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[{shape}] x) => (float[{shape}] y{extra}) {CONSTANTS} '
        f"{{ {body} }}"
    )


made = partial(examples.made, rule="hard_swish")


SPELLINGS = [
    f"{CLIP} m = Mul(x, c) y = Div(m, six)",
    f"{CLIP} m = Mul(c, x) y = Div(m, six2)",
    f"{CLIP} m = Mul(c, x) y = Mul(m, sixth)",
    f"{CLIP} m = Mul(x, c) y = Mul(sixth, m)",
    f"{CLIP} d = Div(c, six) y = Mul(x, d)",
    f"{CLIP} d = Mul(sixth, c) y = Mul(d, x)",
    f"{CLIP} d = Div(x, six) y = Mul(d, c)",
    f"{CLIP} d = Mul(x, sixth) y = Mul(c, d)",
    "a = Add(three1, x) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
    "a = Add(x, three) r = Relu(a) c = Min(r, six) m = Mul(x, c) y = Div(m, six)",
    "a = Add(x, three) r = Max(a, zero) c = Min(six, r) m = Mul(x, c) y = Div(m, six)",
    "a = Add(x, three) r = Min(a, six) c = Max(zero, r) m = Mul(x, c) y = Div(m, six)",
    "a = Add(x, three) r = Relu(a) c = Clip(r, , six) m = Mul(x, c) y = Div(m, six)",
    "a = Div(x, six) b = Add(a, half) c = Clip(b, zero, one) y = Mul(x, c)",
    "g = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul(x, g)",
    "g = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul(g, x)",
]


@pytest.mark.parametrize("body", SPELLINGS)
def test_every_spelling_becomes_hard_swish(body: str) -> None:
    assert made(model(body)) == ["HardSwish"]


@pytest.mark.parametrize("body", SPELLINGS)
def test_before_opset_14_it_is_hard_sigmoid_times_x(body: str) -> None:
    assert made(model(body, 13)) == ["HardSigmoid", "Mul"]


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_clip_with_attributes(opset: int) -> None:
    body = "a = Add(x, three) c = Clip <min = 0.0, max = 6.0> (a) m = Mul(x, c) y = Div(m, six)"
    assert made(model(body, opset)) == ["HardSigmoid", "Mul"]


def test_constants_in_nodes() -> None:
    body = "t = Constant <value_float = 3.0> () a = Add(x, t) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)"
    assert made(model(body))[-1] == "HardSwish"


NEAR_MISSES = [
    f"{CLIP} y = Mul(x, c)",  # the division is missing
    f"{CLIP} m = Mul(x, c) y = Mul(m, six)",
    f"{CLIP} m = Mul(x, c) y = Mul(m, off)",  # not 1/6
    f"{CLIP} m = Mul(a, c) y = Div(m, six)",  # (x + 3) times the gate
    "a = Add(x, six) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
    "a = Sub(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
    "a = Sub(three, x) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
    "a = Add(x, three) c = Clip(a, half, six) m = Mul(x, c) y = Div(m, six)",
    "a = Add(x, three) c = Clip(a, zero, three) m = Mul(x, c) y = Div(m, six)",
    "a = Add(x, three) c = Clip(a, six, zero) m = Mul(x, c) y = Div(m, six)",  # limits the wrong way round
    "a = Add(x, three) c = Clip(a, zero) m = Mul(x, c) y = Div(m, six)",
    "a = Add(x, per) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",  # a constant of the last axis
    "g = HardSigmoid <alpha = 0.2, beta = 0.5> (x) y = Mul(x, g)",
    "g = HardSigmoid (x) y = Mul(x, g)",
]


@pytest.mark.parametrize("body", NEAR_MISSES)
def test_near_misses_stay(body: str) -> None:
    m = model(body)
    assert made(m) == ops(m)


def test_hard_sigmoid_times_x_stays_before_opset_14() -> None:
    m = model("g = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul(x, g)", 13)
    assert made(m) == ops(m)


def test_a_constant_that_a_caller_may_change_stays() -> None:
    m = model(SPELLINGS[0])
    m.graph.input.append(onnx.helper.make_tensor_value_info("six", onnx.TensorProto.FLOAT, []))
    assert made(m) == ops(m)


def test_a_constant_that_adds_an_axis_stays() -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[1,4] y) {CONSTANTS} '
    m = parse(text + f"{{ {CLIP} m = Mul(x, c) y = Div(m, six2) }}")
    assert made(m) == ops(m)


def test_other_readers_keep_what_they_read() -> None:
    m = model(f"{CLIP} m = Mul(x, c) y = Div(m, six)", extra=", float[N,2,3,2] c")
    assert sorted(made(m)) == ["Add", "Clip", "HardSwish"]


@pytest.mark.parametrize("opset", [12, 17])
def test_nan_and_infinities(opset: int) -> None:
    m = model(SPELLINGS[0], opset, shape="6")
    fused = optimized(m, rules=["hard_swish"], target="ort-cpu").model
    assert len(fused.graph.node) < 4
    x = np.array([np.nan, np.inf, -np.inf, -3, 3, 1e37], np.float32)
    np.testing.assert_allclose(run(fused, {"x": x})[0], run(m, {"x": x})[0], rtol=1e-6)


def of_dtype(name: str) -> onnx.ModelProto:
    m = parse(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({name}[2,3] x, {name} three, {name} zero, {name} six) => '
        f"({name}[2,3] y) {{ {SPELLINGS[0]} }}"
    )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(m.graph.input[0].type.tensor_type.elem_type)
    del m.graph.input[1:]
    m.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(v, dtype), n) for n, v in (("three", 3), ("zero", 0), ("six", 6))
    )
    return m


def test_float16_is_recovered_and_double_stays() -> None:
    assert made(of_dtype("float16")) == ["HardSwish"]
    assert made(of_dtype("double")) == ["Add", "Clip", "Mul", "Div"]


def test_a_division_of_the_number_stays() -> None:
    m = model(f"{CLIP} m = Mul(x, c) y = Div(six, m)")
    assert not optimized(m, rules=["hard_swish"], target="ort-cpu").fusions
