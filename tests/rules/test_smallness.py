"""Who looks at how small a value is, or at the sign of a zero: there a Sigmoid in parts, and x + 0, stay."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support import assert_same, graph, ops, optimized

PARTS = "n = Neg(x) e = Exp(n) one = Constant <value_float = 1.0> () t = Add(e, one) s = Div(one, t)"
NUMBERS = " ".join(
    f"{name} = Constant <value_float = {number}> ()"
    for name, number in {"tiny": "1e-12", "half": "0.5", "two": "2.0", "low": "-1.0", "tenth": "0.1"}.items()
)
# Of e⁻¹⁹ … e⁻³⁰, which onnxruntime's Sigmoid gives as 0.
TELL_SMALLNESS = [
    "d = ReduceSum(s) y = Div(s, d)", "d = ReduceL2(s) y = Div(s, d)", "d = ReduceMax(s) y = Div(s, d)",
    "c = Clip(s, tiny, two) y = Log(c)", "c = Add(s, tiny) y = Log(c)", "c = Max(s, tiny) y = Log(c)",
    "c = Clip(s, , two) y = Log(c)", "c = Relu(s) y = Log(c)", "c = Tanh(s) y = Reciprocal(c)",
    "c = Sqrt(s) y = Reciprocal(c)",
    "y = Pow(s, low)", "c = Pow(s, half) y = Log(c)", "c = Ceil(s) y = Mul(c, two)", "y = Sign(s)",
    "c = Cast <to = 9> (s) y = Cast <to = 1> (c)", "c = Greater(s, tiny) y = Cast <to = 1> (c)",
    "c = ArgMax <axis = 1, keepdims = 1> (s) d = Cast <to = 1> (c) y = Mul(x, d)",
    "c = MatMul(s, s) y = Log(c)", "c = Transpose(s) d = Mul(c, two) y = Log(d)",
]  # fmt: skip
HIDE_SMALLNESS = [
    "y = Mul(x, s)", "c = Add(s, half) y = Log(c)", "c = Clip(s, tenth, two) y = Log(c)", "y = Softmax(s)",
    "c = Exp(s) y = Log(c)", "c = Mul(x, s) d = Conv(c, w) y = Log(d)", "c = Greater(s, half) y = Cast <to = 1> (c)",
    "c = Sub(s, half) y = Relu(c)", "y = Div(s, two)", "c = MatMul(s, v) y = Log(c)",
]  # fmt: skip


def model(body: str, head: str, shape: str = "1,3,3", opset: int = 17) -> onnx.ModelProto:
    more = "w = Constant <value = float[1,3,1] {1, 2, 3}> () v = Constant <value = float[3,1] {1, 2, 3}> ()"
    body = f"{NUMBERS} {more} {head} {body}"
    m = graph(body, inputs=f"float[{shape}] x", outputs="float[a,b,c] y", opset=opset, ir=9)
    del m.graph.output[0].type.tensor_type.shape.dim[:]
    m.graph.output[0].type.tensor_type.ClearField("shape")
    return m


@pytest.mark.parametrize("body", TELL_SMALLNESS)
def test_a_sigmoid_that_is_divided_by_or_compared_stays_in_parts(body: str) -> None:
    m = model(body, PARTS)
    result = optimized(m, rules=["sigmoid"], target="ort-cpu", verify=False)
    assert "Sigmoid" not in ops(result.model)
    assert_same(m, result.model, {"x": -np.linspace(19, 30, 9, dtype=np.float32).reshape(1, 3, 3)})


@pytest.mark.parametrize("body", HIDE_SMALLNESS)
def test_elsewhere_it_is_recovered(body: str) -> None:
    m = model(body, PARTS)
    result = optimized(m, rules=["sigmoid"], target="ort-cpu", verify=False)
    assert "Sigmoid" in ops(result.model)
    assert_same(m, result.model, {"x": np.linspace(-4, 5, 9, dtype=np.float32).reshape(1, 3, 3)})


THREE = """three = Constant <value_float = 3.0> () zero = Constant <value_float = 0.0> ()
  six = Constant <value_float = 6.0> () p = Add(x, three) q = Clip(p, zero, six)"""
TANH = """cube = Constant <value_float = 3.0> () k = Constant <value_float = 0.044715> ()
  r = Constant <value_float = 0.7978846> () one = Constant <value_float = 1.0> () p = Pow(x, cube) q = Mul(p, k)
  i = Add(x, q) z = Mul(i, r) t = Tanh(z) g = Add(t, one) h = Mul(x, half) s = Mul(h, g)"""


@pytest.mark.parametrize(
    ("rule", "parts", "low", "high"),
    [
        ("hard_sigmoid", f"{THREE} s = Div(q, six)", -3 + 2e-7, -3 + 4e-7),
        ("hard_swish", f"{THREE} m = Mul(x, q) s = Div(m, six)", -3 + 2e-7, -3 + 4e-7),
        ("gelu", TANH, -4.9, -3),
    ],
)
@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("reader", ["y = Reciprocal(s)", "a = Abs(s) y = Log(a)"])
def test_curves_that_come_near_zero_stay_in_parts(
    rule: str, parts: str, low: float, high: float, opset: int, reader: str
) -> None:
    """Where x is near −3 it is exact that x + 3 is small, and x/6 + 1/2 is rounded to 6·10⁻⁸."""
    m = model(reader, parts, opset=opset)
    result = optimized(m, target="ort-cpu", verify=False)
    assert rule not in {f.rule for f in result.fusions}
    assert_same(m, result.model, {"x": np.linspace(low, high, 9, dtype=np.float32).reshape(1, 3, 3)})
    kept = model("y = Softmax(s)", parts, opset=opset)
    assert rule in {f.rule for f in optimized(kept, target="ort-cpu", verify=False).fusions}


SUM = "zero = Constant <value_float = 0.0> () a = Add(x, zero)"


@pytest.mark.parametrize(
    "between",
    [
        "b = LeakyRelu(a)", "b = Tanh(a)", "b = Floor(a)", "b = Round(a)", "b = Sin(a)", "b = Elu(a)", "b = Relu(a)",
        "b = Clip(a, low, two)", "c = ReduceMax(a) b = Transpose(c)", "b = Pow(a, two)", "b = Where(yes, a, two)",
        "b = If(yes) <then_branch = t () => (float[1,1,2] p) { p = Sin(a) }, "
        "else_branch = f () => (float[1,1,2] q) { q = Cos(a) }>",
    ],
)  # fmt: skip
def test_the_sign_of_a_zero_goes_through(between: str) -> None:
    """1/(−0) is −∞, and 1/0 is ∞."""
    m = model(f"yes = Constant <value = bool {{1}}> () {between} c1 = Div(two, b) y = Clip(c1, low, two)", SUM, "1,1,2")
    result = optimized(m, rules=["neutral_element"], target="ort-cpu", verify=False)
    assert not result.fusions
    assert_same(m, result.model, {"x": np.array([[[-0.0, -0.0]]], np.float32)})


@pytest.mark.parametrize(
    "behind",
    ["c = Abs(a) b = Add(c, tiny)", "b = Exp(a)", "b = Add(a, half)", "c = Less(a, two) b = Cast <to = 1> (c)"],
)
def test_the_sign_of_a_zero_ends(behind: str) -> None:
    m = model(f"{behind} y = Div(two, b)", SUM, "1,1,2")
    result = optimized(m, rules=["neutral_element"], target="ort-cpu", verify=False)
    assert len(result.fusions) == 1
    assert_same(m, result.model, {"x": np.array([[[-0.0, 0.75]]], np.float32)})


def test_a_value_of_very_many_readers_is_taken_to_be_looked_at() -> None:
    body = " ".join(f"r{i} = Sin({f'r{i - 1}' if i else 'a'})" for i in range(300))
    m = model(f"{body} y = Exp(r299)", SUM, "1,1,2")
    assert not optimized(m, rules=["neutral_element"], target="ort-cpu", verify=False).fusions
