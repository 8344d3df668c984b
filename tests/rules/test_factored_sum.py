"""x + x·g: every order of the operands, and gates that are no smaller than x."""

from __future__ import annotations

import onnx
import pytest
from support import assert_same, graph, ops, optimized, random_feeds


def model(body: str, gate: str = "N,4,1,1", dtype: str = "float", outputs: str = "") -> onnx.ModelProto:
    return graph(
        body,
        inputs=f"{dtype}[N,4,H,W] x, {dtype}[{gate}] g",
        outputs=f"{dtype}[N,4,H,W] y{outputs}",
    )


def made(m: onnx.ModelProto) -> list[str]:
    result = optimized(
        m,
        rules=["factored_sum"],
        target="ort-cpu",
        dims={"N": 1, "H": 32, "W": 32} if m.graph.input[0].type.tensor_type.shape.dim[0].dim_param else {},
    )
    for size in (1, 5):
        assert_same(m, result.model, random_feeds(m, dims={"N": 2, "H": size, "W": 6}))
    return ops(result.model)


@pytest.mark.parametrize("product", ["Mul (x, g)", "Mul (g, x)"])
@pytest.mark.parametrize("total", ["Add (x, m)", "Add (m, x)"])
@pytest.mark.parametrize("gate", ["N,4,1,1", "4,1,1", "1", "N,1,H,W"])
def test_every_order_and_gate(product: str, total: str, gate: str) -> None:
    assert made(model(f"m = {product} y = {total}", gate)) == ["Add", "Mul"]


@pytest.mark.parametrize(
    ("body", "gate"),
    [
        ("m = Mul (x, g) y = Add (x, m)", "N,4,H,W"),  # no smaller: nothing is saved
        ("m = Mul (x, x) y = Add (x, m)", "N,4,1,1"),
        ("m = Mul (x, g) y = Add (m, m)", "N,4,1,1"),
        ("m = Mul (x, g) y = Add (g, m)", "N,4,1,1"),
        ("m = Mul (x, g) z = Add (x, m) y = Sub (z, m)", "N,4,1,1"),  # the product has another reader
        ("m = Mul (x, g) y = Sub (x, m)", "N,4,1,1"),
    ],
)
def test_what_stays(body: str, gate: str) -> None:
    m = model(body, gate)
    assert made(m) == ops(m)


def test_a_product_that_grows_x_stays() -> None:
    m = graph("m = Mul (x, g) y = Add (x, m)", inputs="float[1,4,8,1] x, float[1,4,1,8] g", outputs="float[1,4,8,8] y")
    assert made(m) == ops(m)


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_dtypes_in_which_it_rounds_or_overflows_stay(dtype: str) -> None:
    m = model("m = Mul (x, g) y = Add (x, m)", dtype=dtype)
    assert made(m) == ops(m)
    assert made(model("m = Mul (x, g) y = Add (x, m)", dtype="double")) == ["Add", "Mul"]
