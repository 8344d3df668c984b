"""Products with a bias on rows: chains of them with activations, the views around, and what stays as it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import examples
import onnx
import pytest
from support import graph, ops, optimized, parse, with_weights

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from executed import executed

RULE = "matmul_add_as_gemm"
MLP = "m = MatMul(x, w) a = Add(m, b) {} n = MatMul(g, v) y0 = Add(c, n) y = Neg(y0)"
WEIGHTS = "float[4,8] w, float[8] b, float[8,4] v, float[4] c"
NUMBERS = (
    "float s2 = {1.4142135}, float one = {1}, float half = {0.5}, float[1] half1 = {0.5}, float inv = {0.70710677}"
)
GELU = "d = Div(a, s2) e = Erf(d) p = Add(e, one) q = Mul(a, p) g = Mul(q, half)"
SPELLINGS = (
    GELU,
    "d = Mul(a, inv) e = Erf(d) p = Add(one, e) h = Mul(half1, a) g = Mul(h, p)",
    "d = Div(a, s2) e = Erf(d) p = Add(e, one) h = Mul(p, half) g = Mul(h, a)",
)


def model(
    body: str, *, x: str = "N,3,4", out: str = "N,3,4", opset: int = 17, weights: str = WEIGHTS, more: str = ""
) -> onnx.ModelProto:
    """A model with random weights, and the numbers of a GELU as constants; more: other constants."""
    return with_weights(
        parse(
            f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]> g (float[{x}] x, {weights})'
            f" => (float[{out}] y) <{NUMBERS}{more}> {{ {body} }}"
        )
    )


def made(m: onnx.ModelProto, target: str = "ort-cpu", name: str = "N") -> list[str]:
    return examples.made(m, target, rule=RULE, dims=[{name: size} for size in (0, 1, 2, 5)])


@pytest.mark.parametrize("gelu", SPELLINGS)
def test_gelu_in_parts_between_two_products(gelu: str) -> None:
    result = made(model(MLP.format(gelu), x="N,16,4", out="N,16,4"))
    assert result[:2] == ["Reshape", "Gemm"] and result[-3:] == ["Gemm", "Reshape", "Neg"]
    assert sorted(result[2:-3]) == sorted(re.findall(r"(\w+)\(", gelu))


@pytest.mark.parametrize("op", ["Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Elu", "Softplus", "HardSwish"])
def test_activations_of_one_node(op: str) -> None:
    assert made(model(MLP.format(f"g = {op}(a)"))) == ["Reshape", "Gemm", op, "Gemm", "Reshape", "Neg"]


@pytest.mark.parametrize(("gelu", "opset"), [("Gelu", 20), ("com.microsoft.Gelu", 17)])
def test_gelu_of_one_node(gelu: str, opset: int) -> None:
    m = model(MLP.format(f"g = {gelu}(a)"), x="N,16,4", out="N,16,4", opset=opset)
    assert made(m) == ["Reshape", "Gemm", gelu.replace(".Gelu", "::Gelu"), "Gemm", "Reshape", "Neg"]


def test_silu_in_parts() -> None:
    m = model(MLP.format("s = Sigmoid(a) g = Mul(s, a)"))
    assert made(m) == ["Reshape", "Gemm", "Sigmoid", "Mul", "Gemm", "Reshape", "Neg"]


@pytest.mark.parametrize("shape", ["N,3,4", "2,N,4", "N,2,3,4", "2,N,1,4", "N,1,4"])
def test_one_free_dimension_anywhere(shape: str) -> None:
    assert made(model(MLP.format("g = Relu(a)"), x=shape, out=shape))[:2] == ["Reshape", "Gemm"]


@pytest.mark.parametrize("bias", ["float[8] b", "float[1] b", "float b", "float[1,8] b"])
def test_forms_of_the_bias(bias: str) -> None:
    m = model(MLP.format("g = Relu(a)"), weights=WEIGHTS.replace("float[8] b", bias))
    assert made(m) == ["Reshape", "Gemm", "Relu", "Gemm", "Reshape", "Neg"]


def test_three_products() -> None:
    body = "m = MatMul(x, w) a = Add(m, b) g = Relu(a) n = MatMul(g, v) e = Add(c, n) f = Tanh(e)"
    m = model(f"{body} o = MatMul(f, w) z = Add(o, b) y = Neg(z)", out="N,3,8")
    assert made(m) == ["Reshape", "Gemm", "Relu", "Gemm", "Tanh", "Gemm", "Reshape", "Neg"]


def test_the_last_product_of_a_gelu_block_may_have_no_bias() -> None:
    m = model(f"m = MatMul(x, w) a = Add(m, b) {GELU} n = MatMul(g, v) y = Neg(n)", x="N,16,4", out="N,16,4")
    assert made(m) == ["Reshape", "Gemm", "Div", "Erf", "Add", "Mul", "Mul", "MatMul", "Reshape", "Neg"]


@pytest.mark.parametrize(
    ("x", "view", "left"), [("N,6,2", "Reshape(x, s)", ["Reshape", "Gemm"]), ("N,4", "Unsqueeze(x, axis)", ["Gemm"])]
)
def test_views_around_take_the_rows(x: str, view: str, left: list[str]) -> None:
    """What is reshaped on both sides needs no more Reshapes; a matrix in front needs none."""
    body = f"z = {view} m = MatMul(z, w) a = Add(m, b) r = Reshape(a, t) y = Neg(r)"
    m = model(body, x=x, out="M,4,2", more=", int64[3] s = {-1, 3, 4}, int64[3] t = {-1, 4, 2}, int64[1] axis = {1}")
    assert made(m) == [*left, "Reshape", "Neg"]


def test_an_activation_goes_with_the_view_behind_it() -> None:
    m = model("m = MatMul(x, w) a = Add(m, b) r = Relu(a) y = Flatten<axis = 2>(r)", out="M,8")
    assert made(m) == ["Reshape", "Gemm", "Relu"]


@pytest.mark.parametrize(
    ("body", "out"),
    [
        ("m = MatMul(x, w) a = Add(m, b) y = Neg(a)", "N,3,8"),
        (f"m = MatMul(x, w) a = Add(m, b) {GELU} y = Neg(g)", "N,3,8"),
        ("m = MatMul(x, w) a = Add(m, b) g = Relu(a) n = MatMul(g, v) y = Neg(n)", "N,3,4"),
    ],
)
def test_not_where_more_nodes_are_executed(body: str, out: str) -> None:
    m = model(body, out=out)
    assert made(m) == ops(m)


@pytest.mark.parametrize("shape", ["2,3,4", "N,M,4", "N,4", "N,0,4"])
def test_not_for_known_sizes_for_two_free_ones_and_for_matrices(shape: str) -> None:
    m = model(MLP.format("g = Relu(a)"), x=shape, out=shape)
    assert ops(optimized(m, rules=[RULE], target="ort-cpu").model) == ops(m)


@pytest.mark.parametrize(
    "weights",
    [
        WEIGHTS.replace("float[8] b", "float[3,8] b"),
        WEIGHTS.replace("float[8] b", "float[3,1] b"),
        WEIGHTS.replace("float[8] b", "float[1,1,8] b"),
        WEIGHTS.replace("float[4,8] w", "float[1,4,8] w"),
        WEIGHTS.replace("float[8] b", "float[8] xb"),
        WEIGHTS.replace("float[4,8] w", "float[4,8] xw"),
    ],
)
def test_not_for_other_constants(weights: str) -> None:
    body = MLP.format("g = Relu(a)")
    body = body.replace("Add(m, b)", "Add(m, xb)") if " xb" in weights else body
    body = body.replace("(x, w)", "(x, xw)") if " xw" in weights else body
    m = model(body, weights=weights)
    assert made(m) == ops(m)


def test_not_for_doubles() -> None:
    m = with_weights(
        graph(
            MLP.format("g = Relu(a)"),
            inputs=f"double[N,3,4] x, {WEIGHTS.replace('float', 'double')}",
            outputs="double[N,3,4] y",
        )
    )
    assert made(m) == ops(m)


def test_not_for_a_gelu_with_tanh() -> None:
    m = model(MLP.format('g = Gelu <approximate = "tanh"> (a)'), opset=20)
    assert made(m) == ops(m)


@pytest.mark.parametrize("seen", ["a", "e", "q"])
def test_not_where_a_value_between_is_an_output(seen: str) -> None:
    m = model(MLP.format(GELU))
    m.graph.output.append(onnx.helper.make_tensor_value_info(seen, onnx.TensorProto.FLOAT, ["N", 3, 8]))
    assert made(m) == ops(m)


def test_not_for_queries_keys_and_values() -> None:
    parts = " ".join(f"{k}m = MatMul(x, w) {k}a = Add({k}m, b) {k}r = Flatten<axis = 2>({k}a)" for k in "qkv")
    m = model(f"{parts} s = Add(qr, kr) y = Add(s, vr)", out="M,8")
    assert made(m) == ops(m)


def test_not_for_the_projection_of_an_attention() -> None:
    m = model(
        "s = Softmax(x) t = MatMul(s, x) u = Transpose <perm = [0, 2, 1, 3]> (t) z = Reshape(u, k)"
        " m = MatMul(z, w) a = Add(m, b) y = Flatten <axis = 2> (a)",
        x="N,2,2,2",
        out="M,8",
        more=", int64[3] k = {0, 2, 4}",
    )
    assert made(m) == ops(m)


def test_not_where_the_bias_goes_into_a_normalization(tmp_path: Path) -> None:
    """The runtime adds it, and the shortcut, in SkipLayerNormalization."""
    body = f"m = MatMul(x, w) a = Add(m, b) {GELU} n = MatMul(g, v) y0 = Add(c, n) s = Add(y0, x)"
    m = model(f"{body} y = LayerNormalization(s, u)", weights=f"{WEIGHTS}, float[4] u")
    assert made(m) == ops(m)
    onnx.save(m, tmp_path / "m.onnx")
    assert executed(tmp_path / "m.onnx") == 4


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_only_where_it_was_measured(target: str) -> None:
    m = model(MLP.format("g = Relu(a)"))
    assert made(m, target) == ops(m)


@pytest.mark.parametrize("bias", ["float[1] b", "float b", "float[1,8] b"])
def test_the_bias_has_one_number_a_column(bias: str) -> None:
    m = model(MLP.format("g = Relu(a)"), weights=WEIGHTS.replace("float[8] b", bias))
    result = optimized(m, target="ort-cpu", rules=[RULE]).model
    shapes = {t.name: list(t.dims) for t in result.graph.initializer}
    assert [shapes[n.input[2]] for n in result.graph.node if n.op_type == "Gemm"] == [[8], [4]]
