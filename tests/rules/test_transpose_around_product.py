"""Transposes of rows around matrix products, and what else they may do."""

from __future__ import annotations

import examples
import onnx
import pytest
from support import graph, with_weights

SWAP = "Transpose <perm = [1, 0, 2]>"


def made(m: onnx.ModelProto, target: str = "ort-cpu", least: int = 0) -> list[str]:
    sizes = [{"N": 2, "M": 3}, {"N": 1, "M": 1}, {"N": least, "M": 2}]
    return [op for op in examples.made(m, target, rule="transpose_around_product", dims=sizes) if op != "Constant"]


def rows(body: str, *, bias: str = "float[4] b", first: str = SWAP, last: str = SWAP, n: str = "3") -> onnx.ModelProto:
    """x [N, 3, 2] with tokens and batch exchanged, as rows, through a Gemm, and back."""
    text = f"""there = Constant <value_ints = [-1, 2]> () back = Constant <value_ints = [{n}, -1, 4]> ()
        t = {first} (x) f = Reshape (t, there) {body} a = Reshape (m, back) y = {last} (a)"""
    inputs = f"float[N,3,2] x, float[2,4] w, float[4,2] u, {bias}"
    return with_weights(graph(text, inputs=inputs, outputs="float[N,3,4] y"))


@pytest.mark.parametrize(
    "body",
    [
        "m = Gemm (f, w, b)",
        "m = Gemm (f, w)",
        "m = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (f, u, b)",
    ],
)
@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda", "portable"])
def test_gemm(body: str, target: str) -> None:
    assert made(rows(body), target) == ["Reshape", "Gemm", "Reshape"]


@pytest.mark.parametrize(("bias", "fused"), [("float[1,4] b", True), ("float[1] b", True), ("float[6,1] b", False)])
def test_a_bias_of_rows_stays(bias: str, fused: bool) -> None:
    m = rows("m = Gemm (f, w, b)", bias=bias)
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    m.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 2
    assert ("Transpose" not in made(m)) == fused


def test_rows_that_are_cut_otherwise_stay() -> None:
    """6 rows of 2 sequences, cut as if there were 3 of 2 tokens."""
    m = rows("m = Gemm (f, w, b)", n="2")
    for value in (m.graph.input[0], m.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    m.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3
    m.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2
    assert made(m).count("Transpose") == 2


def test_two_free_axes_stay() -> None:
    text = f"""t = {SWAP} (x) s = Shape (t) n2 = Constant <value_ints = [0, 1]> () lead = Gather (s, n2)
        four = Constant <value_ints = [4]> () back = Concat <axis = 0> (lead, four)
        there = Constant <value_ints = [-1, 2]> () f = Reshape (t, there)
        m = Gemm (f, w) a = Reshape (m, back) y = {SWAP} (a)"""
    m = with_weights(graph(text, inputs="float[N,M,2] x, float[2,4] w", outputs="float[N,M,4] y"))
    assert made(m, least=1).count("Transpose") == 2


MATMUL = {
    "alone": "m = MatMul (t, w)",
    "bias": "p = MatMul (t, w) m = Add (p, b)",
    "bias first": "p = MatMul (t, w) m = Add (b, p)",
}


@pytest.mark.parametrize("kind", MATMUL)
@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda", "portable"])
def test_matmul(kind: str, target: str) -> None:
    text = f"t = {SWAP} (x) {MATMUL[kind]} y = {SWAP} (m)"
    m = with_weights(graph(text, inputs="float[N,M,2] x, float[2,4] w, float[4] b", outputs="float[N,M,4] y"))
    assert made(m, target) == ["MatMul", "Add"][: 1 + ("bias" in kind)]


@pytest.mark.parametrize(
    ("perm", "back"),
    [("[0, 2, 1, 3]", "[0, 2, 1, 3]"), ("[2, 0, 1, 3]", "[1, 2, 0, 3]"), ("[1, 2, 0, 3]", "[2, 0, 1, 3]")],
)
def test_more_axes(perm: str, back: str) -> None:
    text = f"t = Transpose <perm = {perm}> (x) m = MatMul (t, w) y = Transpose <perm = {back}> (m)"
    m = with_weights(graph(text, inputs="float[N,3,5,2] x, float[2,4] w", outputs="float[N,3,5,4] y"))
    assert made(m) == ["MatMul"]


@pytest.mark.parametrize(
    ("text", "y"),
    [
        (f"t = {SWAP} (x) p = MatMul (t, w) m = Add (p, c) y = {SWAP} (m)", "N,3,4"),  # numbers of the rows
        (f"t = {SWAP} (x) m = MatMul (t, w) y = Transpose <perm = [1, 2, 0]> (m)", "N,4,3"),
        ("t = Transpose <perm = [1, 2, 0]> (z) m = MatMul (t, w) y = Transpose <perm = [2, 0, 1]> (m)", "4,3,5"),
        (f"t = {SWAP} (x) m = MatMul (v, t) y = {SWAP} (m)", "N,4,2"),  # of the columns
        (f"t = {SWAP} (x) m = MatMul (t, w) n = Neg (m) a = {SWAP} (m) y = Add (a, n)", "N,3,4"),
    ],
)
def test_near_misses_stay(text: str, y: str) -> None:
    inputs = "float[N,3,2] x, float[2,3,5] z, float[2,4] w, float[4,1] v, float[3,1,1] c"
    if "Add (a, n)" in text or "(v, t)" in text:
        inputs = inputs.replace("float[N,3,2] x", "float[3,3,2] x").replace("float[4,1] v", "float[4,3] v")
        y = y.replace("N", "3")
    m = with_weights(graph(text, inputs=inputs, outputs=f"float[{y}] y"))
    assert "Transpose" in made(m)
