"""Transposes before a flattened product: every order of the axes, against the product of the moved value."""

from __future__ import annotations

from math import prod

import examples
import onnx
import pytest
from support import graph, ops, optimized, with_weights

PRODUCTS = {
    "y = MatMul (f, w)": "float[K,5] w",
    "y = Gemm (f, w, b)": "float[K,5] w, float[5] b",
    "y = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (f, w, b)": "float[5,K] w, float[5] b",
}
VIEWS = ("f = Flatten (t)", "f = Reshape (t, s)", "f = Reshape (t, minus)")


def model(
    product: str = "y = MatMul (f, w)",
    view: str = VIEWS[0],
    perm: str = "0,2,3,1",
    shape: str = "N,3,4,2",
) -> onnx.ModelProto:
    count = prod(int(d) for d in shape.split(",")[1:])
    weights = PRODUCTS[product].replace("K", str(count))
    body = (
        f"s = Constant <value_ints = [0, -1]> () minus = Constant <value_ints = [-1, {count}]> () "
        f"t = Transpose <perm = [{perm}]> (x) {view} {product}"
    )
    return with_weights(graph(body, inputs=f"float[{shape}] x, {weights}", outputs="float[N,5] y"))


def made(m: onnx.ModelProto) -> list[str]:
    found = examples.made(m, "ort-cuda", rule="transpose_into_product", dims=[{"N": 1}, {"N": 3}])
    return [op for op in found if op != "Constant"]


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("view", VIEWS)
def test_products_and_views(product: str, view: str) -> None:
    assert made(model(product, view)) == ["Flatten", product.split("= ")[1].split(" ")[0]]


@pytest.mark.parametrize(
    ("perm", "shape"), [("0,3,1,2", "N,3,4,2"), ("0,2,1", "N,3,7"), ("0,4,2,1,3", "N,2,3,2,4"), ("0,3,2,1", "2,2,3,4")]
)
def test_orders(perm: str, shape: str) -> None:
    assert made(model(perm=perm, shape=shape)) == ["Flatten", "MatMul"]


BODY = "t = Transpose <perm = [0,2,3,1]> (x) f = Flatten (t) y = MatMul (f, w)"


@pytest.mark.parametrize(
    ("body", "count", "also"),
    [
        (BODY.replace("[0,2,3,1]", "[3,2,0,1]"), 24, ""),  # moves the rows
        (BODY.replace("Flatten (t)", "Flatten <axis = 2> (t)"), 6, ""),  # not a row for each
        (BODY + " k = Relu (t)", 24, ", float[2,4,2,3] k"),
        (BODY + " k = Relu (f)", 24, ", float[2,24] k"),
    ],
)
def test_what_stays(body: str, count: int, also: str) -> None:
    m = with_weights(graph(body, inputs=f"float[2,3,4,2] x, float[{count},5] w", outputs=f"float[P,5] y{also}"))
    result = optimized(m, rules=["transpose_into_product"], target="ort-cuda").model
    assert result.SerializeToString() == m.SerializeToString()


def test_weights_that_a_caller_can_change_stay() -> None:
    m = model()
    m.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [24, 5]))
    result = optimized(m, rules=["transpose_into_product"], target="ort-cuda")
    assert "Transpose" in ops(result.model)
    assert any("not constant" in r.reason for r in result.refused)
