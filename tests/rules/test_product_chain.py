"""Products of products: with and without biases, MatMul and Gemm, and where two stay two."""

from __future__ import annotations

import examples
import onnx
import pytest
from support import graph, ops, optimized, with_weights

RULE = "product_chain"


def made(body: str, inputs: str, outputs: str, *, target: str = "ort-cpu", opset: int = 17) -> list[str]:
    """Operators of what the rule makes of a graph with random constants for all inputs but x…"""
    m = with_weights(graph(body, inputs=inputs, outputs=outputs, opset=opset))
    return examples.made(m, target, rule=RULE, dims=[{"N": size} for size in (0, 1, 3)])


X, W = "float[N,3,6] x", "float[6,6] w, float[6,4] v"
Y = "float[N,3,4] y"


@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda", "portable"])
def test_two_products(target: str) -> None:
    assert made("m = MatMul(x, w) y = MatMul(m, v)", f"{X}, {W}", Y, target=target) == ["MatMul"]


@pytest.mark.parametrize("bias", ["float[6] b", "float[1] b", "float b", "float[1,6] b"])
@pytest.mark.parametrize("added", ["Add(m, b)", "Add(b, m)"])
def test_a_bias_goes_through_the_second(bias: str, added: str) -> None:
    assert made(f"m = MatMul(x, w) a = {added} y = MatMul(a, v)", f"{X}, {W}, {bias}", Y) == ["MatMul", "Add"]


def test_three_with_biases_are_one_product() -> None:
    body = "m = MatMul(x, w) a = Add(m, b) n = MatMul(a, u) c = Add(n, b) o = MatMul(c, v) y = Add(o, d)"
    found = made(body, f"{X}, {W}, float[6,6] u, float[6] b, float[4] d", Y)
    assert found == ["MatMul", "Add"]


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize(
    "body",
    [
        "m = Gemm(x, w, b) y = Gemm(m, v, c)",
        "m = Gemm <alpha = 2.0, beta = -0.5> (x, w, b) y = Gemm <alpha = 0.25, beta = 3.0> (m, v, c)",
        "m = Gemm <transB = 1> (x, w, b) y = MatMul(m, v)",
        "m = MatMul(x, w) y = Gemm(m, v, c)",
        "m = MatMul(x, w) a = Add(b, m) y = Gemm <beta = 2.0> (a, v, c)",
    ],
)
def test_gemm(body: str, opset: int) -> None:
    assert made(body, f"float[N,6] x, {W}, float[6] b, float[1,4] c", "float[N,4] y", opset=opset) == ["Gemm"]


def test_gemm_without_a_bias() -> None:
    assert made("m = Gemm(x, w) y = Gemm(m, v)", f"float[N,6] x, {W}", "float[N,4] y") == ["Gemm"]


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("m = MatMul(x, w) y = MatMul(m, v)", f"{X}, float[6,2] w, float[2,4] v"),
        ("m = MatMul(x, w) a = Add(m, b) y = MatMul(a, v)", f"{X}, {W}, float[3,1] b"),
        ("m = MatMul(x, w) a = Add(m, b) y = MatMul(a, v)", f"{X}, {W}, float[2,1,1,6] b"),
        ("m = MatMul(x, w) r = Relu(m) y = MatMul(r, v)", f"{X}, {W}"),
        ("m = MatMul(x, xw) y = MatMul(m, v)", f"{X}, float[6,6] xw, float[6,4] v"),
        ("m = MatMul(x, w) y = MatMul(m, v)", f"{X}, float[1,6,6] w, float[6,4] v"),
        ("m = MatMul(x, w) y = MatMul(v, m)", f"{X}, float[6,6] w, float[6,3] v"),
    ],
)
def test_near_misses_stay(body: str, inputs: str) -> None:
    shape = "N,6,6" if "(v, m)" in body else "2,N,3,4" if "2,1,1,6" in inputs else "N,3,4"
    m = with_weights(graph(body, inputs=inputs, outputs=f"float[{shape}] y"))
    assert ops(optimized(m, rules=[RULE], target="ort-cpu").model) == ops(m)


@pytest.mark.parametrize("body", ["m = Gemm(x, w, b) y = Gemm(m, v)", "m = Gemm <transA = 1> (x, w) y = Gemm(m, v)"])
def test_biases_along_rows_and_transposed_values_stay(body: str) -> None:
    m = with_weights(graph(body, inputs=f"float[6,6] x, {W}, float[6,1] b", outputs="float[6,4] y"))
    assert ops(optimized(m, rules=[RULE], target="ort-cpu").model) == ["Gemm", "Gemm"]


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_dtypes(dtype: str) -> None:
    found = made("m = MatMul(x, w) y = MatMul(m, v)", f"{X}, {W}".replace("float", dtype), Y.replace("float", dtype))
    assert found == (["MatMul"] if dtype == "double" else ["MatMul", "MatMul"])


def test_a_matrix_between_that_is_read_elsewhere_stays() -> None:
    m = with_weights(
        graph("m = MatMul(x, w) y = MatMul(m, v) z = Relu(m)", inputs=f"{X}, {W}", outputs=f"{Y}, float[N,3,6] z")
    )
    assert ops(optimized(m, rules=[RULE], target="ort-cpu").model) == ops(m)


def test_matrices_that_overflow_stay() -> None:
    m = with_weights(graph("m = MatMul(x, w) y = MatMul(m, v)", inputs=f"{X}, {W}", outputs=Y))
    for t in m.graph.initializer:
        t.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(t) * 1e25, t.name))
    assert ops(optimized(m, rules=[RULE], target="ort-cpu").model) == ["MatMul", "MatMul"]
