"""x·1, x/1, x + 0, x − 0, x¹, −(−x)."""

from __future__ import annotations

import examples
import numpy as np
import onnx
import pytest
from support import assert_same, graph, ops, optimized, random_feeds, run

RULE = "neutral_element"


def made(body: str, x: str = "float[2,3] x", y: str = "float[2,3] y", opset: int = 17) -> list[str]:
    model = graph(f"r = Neg(x) {body} y = Neg(z)", inputs=x, outputs=y, opset=opset)
    return [op for op in examples.made(model, rule=RULE)[1:-1] if op != "Constant"]


@pytest.mark.parametrize(
    "op", ["Mul(r, one)", "Mul(one, r)", "Div(r, one)", "Pow(r, one)", "Add(r, zero)", "Sub(r, zero)"]
)
@pytest.mark.parametrize("dtype", ["float", "double", "float16", "int64"])
@pytest.mark.parametrize("shape", ["", "[1]", "[3]", "[1,1]", "[2,3]"])
def test_neutral_constants_go(op: str, dtype: str, shape: str) -> None:
    count = {"": 1, "[1]": 1, "[3]": 3, "[1,1]": 1, "[2,3]": 6}[shape]
    name = "one" if "one" in op else "zero"
    one = "15360" if dtype == "float16" else "1"  # the text holds the bits of a float16
    values = ", ".join([one if name == "one" else "0"] * count)
    text = f"{name} = Constant <value = {dtype}{shape} {{{values}}}> () z = {op}"
    expected = [op.partition("(")[0]] if shape == "[2,3]" else []  # a large constant is not read
    assert made(text, f"{dtype}[2,3] x", f"{dtype}[2,3] y") == expected


@pytest.mark.parametrize(
    "op",
    ["Div(one, r)", "Sub(zero, r)", "Pow(one, r)", "Mul(r, zero)", "Add(r, one)", "Div(r, two)"],
)
def test_others_stay(op: str) -> None:
    constants = {"one": 1, "zero": 0, "two": 2}
    text = "".join(f"{n} = Constant <value = float {{{v}}}> () " for n, v in constants.items() if n in op)
    assert made(f"{text} z = {op}") == [op.partition("(")[0]]


def test_a_constant_that_widens_stays() -> None:
    text = "one = Constant <value = float[3] {1, 1, 1}> () z = Mul(r, one)"
    assert made(text, "float[2,1] x", "float[2,3] y") == ["Mul"]
    text = "one = Constant <value = float[1,1,1] {1}> () z = Mul(r, one)"
    assert made(text, "float[2,3] x", "float[1,2,3] y") == ["Mul"]
    text = "one = Constant <value = float[3] {1, 1, 1}> () z = Mul(r, one)"
    model = graph(f"r = Neg(x) {text} y = Neg(z)", inputs="float[2,M] x", outputs="float[2,3] y")
    result = optimized(model, rules=[RULE], target="ort-cpu")
    assert "Mul" in ops(result.model)
    for m in (1, 3):
        assert_same(model, result.model, random_feeds(model, 0, {"M": m}))


def test_the_sign_of_zero_counts_for_a_divisor() -> None:
    zero = "zero = Constant <value = float {0}> ()"
    assert made(f"{zero} a = Add(r, zero) z = Reciprocal(a)") == ["Add", "Reciprocal"]
    assert made(f"{zero} a = Sub(r, zero) z = Reciprocal(a)") == ["Reciprocal"]
    minus = "zero = Constant <value = float {-0.0}> ()"
    assert made(f"{minus} a = Add(r, zero) z = Reciprocal(a)") == ["Reciprocal"]
    assert made(f"{minus} a = Sub(r, zero) z = Reciprocal(a)") == ["Sub", "Reciprocal"]


def test_not_a_number_and_infinities_stay() -> None:
    model = graph(
        "one = Constant <value = float {1}> () r = Abs(x) z = Mul(r, one) y = Abs(z)",
        inputs="float[4] x", outputs="float[4] y",
    )  # fmt: skip
    result = optimized(model, rules=[RULE], target="ort-cpu")
    assert ops(result.model)[-2:] == ["Abs", "Abs"]
    x = {"x": np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)}
    np.testing.assert_array_equal(run(model, x)[0], run(result.model, x)[0])


def test_a_graph_input_as_output_keeps_both_names() -> None:
    model = graph("one = Constant <value = float {1}> () y = Mul(x, one)", inputs="float[4] x", outputs="float[4] y")
    result = optimized(model, rules=[RULE], target="ort-cpu")
    assert [o.name for o in result.model.graph.output] == ["y"] and isinstance(result.model, onnx.ModelProto)
    assert_same(model, result.model, random_feeds(model))


@pytest.mark.parametrize("between", ["", "b = Mul(a, two)", "b = Identity(a)", "b = Sqrt(a)"])
def test_the_sign_of_a_zero_reaches_a_division(between: str) -> None:
    last = "b" if between else "a"
    body = f"zero = Constant <value_float = 0.0> () two = Constant <value_float = 2.0> () a = Add(x, zero) {between}"
    model = graph(f"{body} c = Reciprocal({last}) y = Atan(c)", inputs="float[2] x", outputs="float[2] y")
    result = optimized(model, target="ort-cpu", verify=False)
    feeds = {"x": np.array([-0.0, 0.0], np.float32)}
    np.testing.assert_allclose(run(result.model, feeds)[0], run(model, feeds)[0])
