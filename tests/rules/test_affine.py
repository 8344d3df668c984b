"""Scales and shifts by constants: into the weights before and behind, into one another, into the blocked layout."""

from __future__ import annotations

import examples
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from support import assert_same, graph, ops, optimized, random_feeds, with_weights

RNG = np.random.default_rng(7)
PREVIOUS, NEXT, CHAIN, LOWER = "affine_into_previous", "affine_into_next", "affine_chain", "affine_as_batchnorm"


def array(*shape: int, low: float = 0.5) -> np.ndarray:
    """Random constants away from 0."""
    return (RNG.uniform(low, 2, shape) * RNG.choice([-1, 1], shape)).astype(np.float32)


def built(
    body: str, x: str = "float[2,4,6,6] x", y: str = "y", opset: int = 17, kind: str = "float", **constants: np.ndarray
) -> onnx.ModelProto:
    """A model of these nodes with these initializers."""
    outputs = ", ".join(f"{kind} {name}" for name in y.split())
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g ({x}) => ({outputs}) {{ {body} }}')
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    for name, data in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(data), name))
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)  # gives the outputs their shapes
    onnx.checker.check_model(model)
    return model


def made(model: onnx.ModelProto, rule: str, dims: dict[str, int] | None = None, target: str = "ort-cpu") -> list[str]:
    return examples.made(model, target, rule=rule, dims=[dims or {}])


NORM = {"s": array(4), "t": array(4), "m": array(4), "v": np.abs(array(4))}
W, B = array(4, 4, 3, 3), array(4)
C = array(4, 1, 1)


@pytest.mark.parametrize("opset", [9, 13, 14, 17])
def test_batchnorm_goes_into_the_convolution_before_it(opset: int) -> None:
    body = "c = Conv <pads = [1, 1, 1, 1]> (x, w) y = BatchNormalization(c, s, t, m, v)"
    assert made(built(body, opset=opset, w=W, **NORM), PREVIOUS) == ["Conv"]


@pytest.mark.parametrize(
    ("op", "constant"),
    [
        ("Mul(c, k)", array()), ("Mul(k, c)", array(1)), ("Mul(k, c)", C), ("Mul(c, k)", C[None]), ("Add(k, c)", C),
        ("Add(c, k)", array(1, 1, 1, 1)), ("Sub(c, k)", C), ("Sub(k, c)", C), ("Div(c, k)", C), ("Div(c, k)", array()),
        ("Neg(c)", None), ("Mul(c, k)", np.zeros((), np.float32)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_constants_behind_a_convolution_go_into_it(
    op: str, constant: np.ndarray | None, bias: bool, group: int
) -> None:
    constants = {"w": W[:, : 4 // group]} | ({"b": B} if bias else {}) | ({} if constant is None else {"k": constant})
    body = f"c = Conv <group = {group}, pads = [1, 1, 1, 1]> (x, w{', b' if bias else ''}) y = {op}"
    assert made(built(body, **constants), PREVIOUS) == ["Conv"]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_batchnorm_goes_into_a_transposed_convolution(group: int, bias: bool) -> None:
    body = f"c = ConvTranspose <group = {group}, strides = [2, 2]> (x, w{', b' if bias else ''})"
    constants = {"w": array(4, 4 // group, 2, 2)} | ({"b": B} if bias else {}) | NORM
    assert made(built(f"{body} y = BatchNormalization(c, s, t, m, v)", **constants), PREVIOUS) == ["ConvTranspose"]


def test_a_constant_node_and_several_operations_are_composed() -> None:
    body = """c = Conv(x, w, b) k = Constant <value_float = 3.0> () h = Mul(c, k) i = Add(q, h)
        y = BatchNormalization(i, s, t, m, v)"""
    assert made(built(body, w=W, b=B, q=C, **NORM), PREVIOUS) == ["Conv"]


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("bias", [None, array(5), array(1, 5), array(1), array(3, 5)])
@pytest.mark.parametrize("op", ["Mul(g, k)", "Sub(k, g)"])
def test_constants_behind_gemm(trans: int, bias: np.ndarray | None, op: str) -> None:
    weight = array(5, 4) if trans else array(4, 5)
    args = "x, w" if bias is None else "x, w, b"
    body = f"g = Gemm <alpha = 0.5, beta = 3.0, transB = {trans}> ({args}) y = {op}"
    constants = {"w": weight, "k": array(5)} | ({} if bias is None else {"b": bias})
    model = built(body, "float[3,4] x", **constants)
    if bias is not None and bias.shape == (3, 5):  # goes along the rows
        assert made(model, PREVIOUS)[0] == "Gemm"
    else:
        assert made(model, PREVIOUS) == ["Gemm"]


@pytest.mark.parametrize(
    ("op", "after"),
    [
        ("y = Mul(c, k)", ["MatMul"]),
        ("a = Add(c, b) y = Mul(a, k)", ["MatMul", "Add"]),
        ("y = Add(c, k)", ["MatMul", "Add"]),
    ],
)
def test_constants_behind_matmul(op: str, after: list[str]) -> None:
    assert made(built(f"c = MatMul(x, w) {op}", "float[2,3,4] x", w=array(4, 5), b=array(5), k=array(5)), PREVIOUS) == (
        after
    )


def test_channels_last_exports_scale_behind_the_transpose() -> None:
    body = """h = Transpose <perm = [0, 3, 1, 2]> (x) c = Conv(h, w) i = Transpose <perm = [0, 2, 3, 1]> (c)
        j = Sub(i, m) k = Mul(j, s) y = Add(k, t)"""
    model = built(body, "float[2,6,6,4] x", w=W, **NORM)
    assert made(model, PREVIOUS) == ["Transpose", "Conv", "Transpose"]


@pytest.mark.parametrize(
    "mover",
    [
        "AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (c)", "GlobalAveragePool(c)",
        "MaxPool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (c)",
    ],
)  # fmt: skip
def test_a_positive_scale_and_a_shift_pass_pooling(mover: str) -> None:
    body = f"c = Conv(x, w) p = {mover} q = Mul(p, k) y = Add(q, t)"
    model = built(body, w=W, k=np.abs(C), t=C)
    assert made(model, PREVIOUS) == ["Conv", mover.partition(" ")[0].partition("(")[0]]


@pytest.mark.parametrize(
    ("between", "behind"),
    [
        ("MaxPool <kernel_shape = [2, 2]> (c)", "Mul(p, minus)"),
        ("AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1], count_include_pad = 1> (c)", "Add(p, k)"),
        ("Relu(c)", "Mul(p, minus)"), ("Relu(c)", "Add(p, k)"), ("Sigmoid(c)", "Mul(p, k)"),
    ],
)  # fmt: skip
def test_what_does_not_commute_stays(between: str, behind: str) -> None:
    model = built(f"c = Conv(x, w) p = {between} y = {behind}", w=W, k=np.abs(C), minus=-np.abs(C))
    assert len(made(model, PREVIOUS)) == 3


def test_a_constant_of_the_width_is_no_constant_of_the_channels() -> None:
    model = built("c = Conv <pads = [1, 1, 1, 1]> (x, w) y = Mul(c, k)", "float[2,4,4,4] x", w=W, k=array(4))
    assert made(model, PREVIOUS) == ["Conv", "Mul"]
    model = built("c = Conv <pads = [1, 1, 1, 1]> (x, w) y = Mul(c, k)", "float[4,4,6,6] x", w=W, k=array(4, 1, 1, 1))
    assert made(model, PREVIOUS) == ["Conv", "Mul"]


def test_a_constant_that_widens_the_result_stays() -> None:
    one = built("c = Conv(x, w) y = Mul(c, k)", w=array(1, 4, 3, 3), k=C)
    assert made(one, PREVIOUS) == ["Conv", "Mul"]
    deep = built("c = Conv(x, w) y = Mul(c, k)", w=W, k=array(1, 1, 1, 1, 1))
    assert made(deep, PREVIOUS) == ["Conv", "Mul"]


def test_weights_that_callers_may_override_stay() -> None:
    model = built("c = Conv(x, w) y = Mul(c, k)", "float[2,4,6,6] x, float[4,4,3,3] w", w=W, k=C)
    assert made(model, PREVIOUS) == ["Conv", "Mul"]
    model = built("c = Conv(x, w) y = Mul(c, k)", "float[2,4,6,6] x, float[4,1,1] k", w=W, k=C)
    assert made(model, PREVIOUS) == ["Conv", "Mul"]


def test_constants_that_would_overflow_stay() -> None:
    model = built("c = Conv(x, w) y = Mul(c, k)", w=W * np.float32(1e30), k=np.float32(1e30))
    assert not optimized(model, rules=[PREVIOUS], target="ort-cpu", verify=False).fusions
    model = built("c = Conv(x, w) y = Mul(c, k)", w=W * np.float32(1e-30), k=np.float32(1e-14))
    assert not optimized(model, rules=[PREVIOUS], target="ort-cpu", verify=False).fusions


def test_half_precision_stays() -> None:
    half = {"w": W.astype(np.float16), "k": C.astype(np.float16)}
    model = built("h = Mul(x, k) c = Conv(h, w) y = Mul(c, k)", "float16[1,4,6,6] x", kind="float16", **half)
    assert not optimized(model, rules=[PREVIOUS, NEXT], target="ort-cpu").fusions


def test_training_mode_stays() -> None:
    body = "c = Conv(x, w) y, p, q = BatchNormalization <training_mode = 1> (c, s, t, m, v)"
    result = optimized(built(body, w=W, **NORM), rules=[PREVIOUS, NEXT, CHAIN], target="ort-cpu")
    assert not result.fusions and any("training mode" in r.reason for r in result.refused)


def test_free_sizes() -> None:
    body = "c = Conv <pads = [1, 1, 1, 1]> (x, w) h = Mul(c, k) a = Add(h, t) y = Conv(a, v)"
    model = built(body, "float[N,4,H,W] x", w=W, k=C, t=C, v=W)
    for dims in ({"N": 1, "H": 5, "W": 7}, {"N": 3, "H": 4, "W": 4}):
        assert made(model, PREVIOUS, dims) == ["Conv", "Conv"]
        assert made(model, NEXT, dims) == ["Conv", "Conv"]


# --- in front of a linear operator ---


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("first", ["BatchNormalization(x, s, t, m, v)", "Sub(k, x)", "Div(x, k)", "Add(k, x)"])
def test_constants_in_front_of_an_unpadded_convolution(group: int, bias: bool, first: str) -> None:
    constants = {"w": W[:, : 4 // group], "k": C} | ({"b": B} if bias else {}) | NORM
    used = {n: a for n, a in constants.items() if n in "wb" or f"{n}" in first.replace("(", ",").replace(")", ",")}
    model = built(f"a = {first} y = Conv <group = {group}> (a, w{', b' if bias else ''})", **used)
    assert made(model, NEXT) == ["Conv"]


def test_in_front_of_a_padded_convolution_only_the_scale_goes() -> None:
    body = "h = Mul(x, k) a = Add(h, t) y = Conv <pads = [1, 1, 1, 1]> (a, w, b)"
    assert made(built(body, w=W, b=B, k=C, t=C), NEXT) == ["Add", "Conv"]
    assert made(built('h = Mul(x, k) y = Conv <auto_pad = "SAME_UPPER"> (h, w)', w=W, k=C), NEXT) == ["Conv"]
    assert made(built('h = Add(x, k) y = Conv <auto_pad = "SAME_UPPER"> (h, w)', w=W, k=C), NEXT) == ["Add", "Conv"]


def test_in_front_of_a_transposed_convolution() -> None:
    for group in (1, 2):
        constants = {"w": array(4, 3, 2, 2), "k": C}
        body = f"h = Mul(x, k) y = ConvTranspose <group = {group}, strides = [2, 2]> (h, w)"
        assert made(built(body, **constants), NEXT) == ["ConvTranspose"]
        assert made(built(body.replace("Mul", "Add"), **constants), NEXT) == ["Add", "ConvTranspose"]


def test_every_reader_takes_the_constants() -> None:
    body = "h = Mul(x, k) a = Add(h, t) y = Conv(a, w, b) z = Conv(a, v)"
    assert made(built(body, y="y z", w=W, v=W[:, :, :1], b=B, k=C, t=C), NEXT) == ["Conv", "Conv"]
    assert made(built(f"{body} u = Sigmoid(a)", y="y z u", w=W, v=W, b=B, k=C, t=C), NEXT) == (
        ["Mul", "Add", "Conv", "Conv", "Sigmoid"]
    )


def test_a_squeeze_and_excitation_block_takes_the_scale() -> None:
    body = """r = Relu(x) h = Mul(r, k) a = Add(h, t) p = GlobalAveragePool(a) q = Conv(p, u) g = Sigmoid(q)
        m = Mul(a, g) y = Conv <pads = [1, 1, 1, 1]> (m, w)"""
    model = built(body, w=W, u=array(4, 4, 1, 1), k=np.float32(1.5), t=np.float32(0.25))
    after = made(model, NEXT)
    assert sorted(after) == sorted(["Relu", "Add", "GlobalAveragePool", "Conv", "Sigmoid", "Mul", "Conv"])


def test_a_part_of_a_concatenation() -> None:
    body = "r = Relu(x) h = Mul(x, k) c = Concat <axis = 1> (r, h, r) y = Conv(c, w)"
    assert made(built(body, w=array(3, 12, 3, 3), k=C), NEXT) == ["Relu", "Concat", "Conv"]
    assert made(built(body.replace("axis = 1", "axis = 2"), w=array(3, 4, 3, 3), k=C), NEXT).count("Mul") == 1
    assert made(built(body.replace("Concat <axis = 1> (r, h, r)", "Concat <axis = 1> (h, r, h)"),
                      w=array(3, 12, 3, 3), k=C), NEXT).count("Mul") == 1  # fmt: skip


@pytest.mark.parametrize("trans", [0, 1])
def test_in_front_of_gemm(trans: int) -> None:
    weight = array(5, 4) if trans else array(4, 5)
    body = f"h = Mul(x, k) a = Add(h, t) y = Gemm <alpha = 0.5, beta = 3.0, transB = {trans}> (a, w, b)"
    assert made(built(body, "float[3,4] x", w=weight, b=array(5), k=array(4), t=array(1, 4)), NEXT) == ["Gemm"]
    turned = f"h = Mul(x, k) y = Gemm <transA = 1, transB = {trans}> (h, w, b)"
    assert made(built(turned, "float[4,3] x", w=weight, b=array(5), k=array(4, 1)), NEXT) == ["Mul", "Gemm"]


def test_in_front_of_matmul() -> None:
    body = "h = Mul(x, k) a = Add(h, t) m = MatMul(a, w) y = Add(b, m)"
    model = built(body, "float[2,3,4] x", w=array(4, 5), b=array(5), k=array(4), t=array(4))
    assert made(model, NEXT) == ["MatMul", "Add"]
    rows = built("h = Mul(x, k) y = MatMul(h, w)", "float[2,4,4] x", w=array(4, 5), k=array(4, 1))
    assert made(rows, NEXT) == ["Mul", "MatMul"]


def test_a_reshape_may_keep_the_channels() -> None:
    body = "h = Mul(x, k) r = Flatten(h) y = MatMul(r, w)"
    assert made(built(body, "float[3,4,1,1] x", w=array(4, 5), k=C), NEXT) == ["Flatten", "MatMul"]
    assert made(built(body, "float[3,4,2,1] x", w=array(8, 5), k=C), NEXT) == ["Mul", "Flatten", "MatMul"]


GELU = """d = Div(x, r) e = Erf(d) a = Add(e, one) m = Mul(x, a) h = Mul(m, half) y = MatMul(h, w)"""
GELU_HALF_FIRST = "d = Div(x, r) e = Erf(d) a = Add(e, one) h = Mul(x, half) m = Mul(h, a) y = MatMul(m, w)"
GELU_HALF_ERF = "d = Div(x, r) e = Erf(d) a = Add(e, one) h = Mul(half, a) m = Mul(x, h) y = MatMul(m, w)"
LAYER_NORM = """u = ReduceMean <axes = [-1]> (x) d = Sub(x, u) q = Mul(d, d) v = ReduceMean <axes = [-1]> (q)
    e = Add(v, eps) s = Sqrt(e) n = Div(d, s) h = Mul(n, k) a = Add(h, t) y = MatMul(a, w)"""


@pytest.mark.parametrize("body", [GELU, GELU_HALF_FIRST, GELU_HALF_ERF, LAYER_NORM])
def test_what_the_runtime_knows_as_a_whole_stays(body: str) -> None:
    constants = {
        "w": array(4, 4), "k": array(4), "t": array(4), "r": np.float32(1.4142135), "one": np.float32(1),
        "half": np.float32(0.5), "eps": np.float32(1e-5),
    }  # fmt: skip
    used = {n: a for n, a in constants.items() if f", {n})" in body or f"({n}," in body}
    model = built(body, "float[2,3,4] x", **used)
    assert not optimized(model, rules=[NEXT, CHAIN, PREVIOUS], target="ort-cpu").fusions


# --- into one another ---


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("a = Mul(x, s) y = Mul(s, a)", ["Mul"]),
        ("a = Add(x, c) y = Sub(a, s)", ["Add"]),
        ("a = Neg(x) y = Neg(a)", []),
        ("a = Add(x, c) b = Mul(a, s) d = Add(b, c) y = Div(d, c)", ["Mul", "Add"]),
        ("a = Add(x, c) y = Mul(a, s)", ["Add", "Mul"]),
        ("a = Sub(c, x) y = Sub(c, a)", []),
        ("a = Mul(x, c) y = Add(a, w)", ["Mul", "Add"]),
        ("a = Mul(x, c) b = Add(a, w) y = Mul(b, w)", ["Mul", "Add", "Mul"]),
        ("a = BatchNormalization(x, n, n, n, v) b = Mul(a, c) y = Add(b, s)", ["BatchNormalization"]),
        ("b = Mul(x, c) y = BatchNormalization(b, n, n, n, v)", ["BatchNormalization"]),
    ],
)
def test_chains(body: str, after: list[str]) -> None:
    constants = {"s": np.float32(3), "c": C, "w": array(6), "n": array(4), "v": np.abs(array(4))}
    body = f"r = Relu(x) {body.replace('x', 'r').replace('y =', 'z =')} y = Relu(z)"
    assert made(built(body, **constants), CHAIN) == ["Relu", *after, "Relu"]


def test_rounding_by_a_large_constant_stays() -> None:
    magic = np.float32(1.5 * 2**23)
    model = built("a = Add(x, k) y = Sub(a, k)", k=magic)
    assert made(model, CHAIN) == ["Add", "Sub"]


# --- the blocked layout ---


def blocked(reader: str = "Conv <group = 8, pads = [1, 1, 1, 1]> (a, v)", act: str = "HardSwish(c)") -> list[str]:
    body = f"c = Conv(x, w) h = {act} a = Add(h, t) y = {reader}"
    constants = {"w": array(8, 8, 1, 1), "t": np.float32(0.5)} | ({"v": array(8, 1, 3, 3)} if "v" in reader else {})
    return made(built(body, "float[N,8,6,6] x", **constants), LOWER)


def test_a_lone_addition_between_convolutions_is_a_batchnorm() -> None:
    assert blocked() == ["Conv", "HardSwish", "BatchNormalization", "Conv"]


def test_elsewhere_it_stays_an_addition() -> None:
    assert "Add" in blocked("Softmax(a)")
    assert "Add" in blocked(act="Erf(c)")


def test_gates_keep_the_layout() -> None:
    for gate in ("Sigmoid", "HardSigmoid"):
        body = f"c = Conv(x, w) g = {gate}(c) h = Mul(c, g) a = Add(h, t) y = Conv <group = 8> (a, v)"
        model = built(body, "float[N,8,6,6] x", w=array(8, 8, 1, 1), v=array(8, 1, 3, 3), t=np.float32(0.5))
        assert made(model, LOWER).count("BatchNormalization") == 1
        assert "Add" in made(model, LOWER, target="ort-cuda")


def test_all_rules_together_are_idempotent() -> None:
    body = """c = Conv <group = 8> (x, w) m = Mul(c, k) a = Add(m, t) h = HardSwish(a) i = Mul(h, k) j = Add(i, t)
        d = Conv <group = 8, pads = [1, 1, 1, 1]> (j, v) y = Relu(d)"""
    model = built(
        body, "float[1,8,6,6] x", w=array(8, 1, 1, 1), v=array(8, 1, 3, 3), k=np.float32(1.5), t=np.float32(0.5)
    )
    once = optimized(model, target="ort-cpu")
    assert ops(once.model) == ["Conv", "HardSwish", "BatchNormalization", "Conv", "Relu"]
    assert not optimized(once.model, target="ort-cpu").fusions
    assert_same(model, once.model, random_feeds(model))


def test_weights_of_an_old_file_format_stay_among_its_inputs() -> None:
    """Before IR version 4 every initializer is listed as an input too; the new weights are, and no caller sees them."""
    model = with_weights(
        graph("c = Conv(x, w) y = Mul(c, s)", inputs="float[1,3,8,8] x, float[4,3,3,3] w, float[4,1,1] s",
              outputs="float[1,4,6,6] y", opset=9, ir=3)
    )  # fmt: skip
    for t in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)))
    result = optimized(model, target="ort-cpu")
    assert ops(result.model) == ["Conv"] and not result.rolled_back
    names = [t.name for t in result.model.graph.initializer]
    assert [v.name for v in result.model.graph.input] == ["x", *names]
    onnx.checker.check_model(result.model, full_check=True)
    assert_same(model, result.model, random_feeds(model))


def test_constants_for_any_number_of_channels_are_not_made() -> None:
    """A file may declare what no memory holds."""
    huge = 2**40
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,{huge},1] x, float[1,{huge},1] z)'
        f" => (float[1,{2 * huge},1] y) <float c = {{3}}>"
        " { m = Mul(x, c)  j = Concat <axis = 1> (m, z)  y = Mul(j, c) }"
    )
    for target in ("ort-cpu", "ort-cuda", "portable"):
        assert optimized(model, target=target, verify=False).after.bytes > huge  # type: ignore[operator]


# --- constants so large that the digits of what is near them are lost ---

MAGIC = np.float32(1.5 * 2**23)  # x + MAGIC − MAGIC is x rounded to a whole number
FAR = np.array([5e6 - 8, 5e6 - 3, 5e6 + 1, 5e6 + 7], np.float32)


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv(x, w) a = Add(c, M) y = Sub(a, M)",
        "c = Conv(x, w, z) a = Add(c, M) y = Sub(a, M)",
        "c = Conv(x, w, b) y = Sub(c, M)",
        "a = Add(x, M) b1 = Sub(a, M) q = Mul(b1, s) y = Conv(q, w)",
        "p = Mul(x, r) a = Add(p, M) b1 = Sub(a, M) q = Mul(b1, s) y = Conv(q, w)",
        "p = Mul(x, r) a = Add(p, M) b1 = Sub(a, M) y = Mul(b1, s)",
    ],
)
def test_rounding_to_whole_numbers_stays(body: str) -> None:
    constants = {"w": array(4, 4, 1, 1), "z": array(4), "M": MAGIC, "s": np.float32(0.1), "r": np.float32(10)}
    model = built(body, b=np.full(4, MAGIC), **constants)
    result = optimized(model, target="ort-cpu", verify=False)
    assert_same(model, result.model, {"x": RNG.uniform(-9, 9, (2, 4, 6, 6)).astype(np.float32)})


@pytest.mark.parametrize("body", ["c = Gemm(x, w) a = Add(c, M) y = Sub(a, M)", "c = Gemm(x, w, b) y = Sub(c, M)"])
def test_rounding_to_whole_numbers_behind_gemm_stays(body: str) -> None:
    model = built(body, "float[3,4] x", w=array(4, 4), M=MAGIC, b=np.full(4, MAGIC))
    result = optimized(model, target="ort-cpu", verify=False)
    assert_same(model, result.model, {"x": RNG.uniform(-9, 9, (3, 4)).astype(np.float32)})


@pytest.mark.parametrize(
    "body",
    [
        "d = Sub(x, t) y = MatMul(d, w)",
        "d = Sub(x, t) y = Gemm(d, w, v)",
        "d = Sub(x, t) e = Mul(d, v) f = Mul(e, v) y = Relu(f)",
        "d = Gemm(x, i, far) y = Gemm(d, w, v)",
    ],
)
def test_what_is_near_a_large_constant_keeps_its_digits(body: str) -> None:
    """x − 5·10⁶ is exact there; x·w − 5·10⁶·w is rounded to halves."""
    eye = np.eye(4, dtype=np.float32)
    far = np.full(4, np.float32(-5e6))
    model = built(body, "float[2,4] x", t=np.float32(5e6), w=array(4, 4), v=array(4), i=eye, far=far)
    result = optimized(model, target="ort-cpu", verify=False)
    assert_same(model, result.model, {"x": np.stack([FAR, FAR[::-1]])})


def test_a_batchnorm_of_a_tiny_variance_goes_in_whatever_its_shift() -> None:
    """Its kernel adds the same constant, here 20·1/√10⁻⁵ = 6325."""
    norm = {"s": np.ones(4), "t": np.zeros(4), "m": np.full(4, -20), "v": np.zeros(4)}
    norm = {name: data.astype(np.float32) for name, data in norm.items()}
    model = built("c = Conv(x, w) y = BatchNormalization(c, s, t, m, v)", w=W, **norm)
    assert made(model, PREVIOUS) == ["Conv"]
