"""A sum before a layer normalization: what becomes Sum, what the runtime makes of it, and what stays."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import examples
import numpy as np
import onnx
import pytest
from examples import example
from norms import of_dtype
from onnx import numpy_helper
from support import graph, ops, optimized, with_weights
from test_executed_graph import executed

RULE = "sum_before_layer_norm"
made = partial(examples.made, rule=RULE, dims=({"N": 1, "M": 1, "S": 40}, {"N": 3, "M": 3, "S": 2}))
NORM = "y = LayerNormalization (a, v, b)"
SHAPE = "N,48,16"
BIAS = "float[16,16] w, float[16] c"
CONSTANTS = {
    "two": np.float32(2), "eps": np.float32(1e-5), "one": np.float32(1), "low": np.float32(-10000),
    "split": np.array([0, 0, 4, 4]), "join": np.array([0, 0, 16]),
}  # fmt: skip
TYPES = "float two, float eps, float one, float low, int64[4] split, int64[3] join"


def parts(x: str, y: str) -> str:
    """The normalization of x as the runtime knows it."""
    return f"""{y}m = ReduceMean <axes = [-1]> ({x}) {y}d = Sub ({x}, {y}m) {y}s = Pow ({y}d, two)
    {y}v = ReduceMean <axes = [-1]> ({y}s) {y}e = Add ({y}v, eps) {y}r = Sqrt ({y}e) {y}n = Div ({y}d, {y}r)
    {y}o = Mul ({y}n, v) {y} = Add ({y}o, b)"""


def network(
    body: str, shape: str = SHAPE, *, z: str = "", more: str = "", opset: int = 17, out: str = "float[A,B,C] y"
) -> onnx.ModelProto:
    """A graph of x0, and of x1, of the shape `z` where it is another, over the weights v and b and these."""
    size = shape.rsplit(",", 1)[-1]
    inputs = f"float[{shape}] x0, float[{z or shape}] x1, float[{size}] v, float[{size}] b, {TYPES}"
    model = with_weights(graph(body, inputs=f"{inputs}, {more}".rstrip(", "), outputs=out, opset=opset))
    for tensor in model.graph.initializer:
        if tensor.name in CONSTANTS:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(CONSTANTS[tensor.name]), tensor.name))
    return model


def kernels(model: onnx.ModelProto, folder: Path) -> tuple[int, int]:
    """Nodes that the runtime executes without and with the rule."""
    onnx.save(model, folder / "before.onnx")
    onnx.save(optimized(model, rules=[RULE], target="ort-cpu").model, folder / "after.onnx")
    return executed(folder / "before.onnx"), executed(folder / "after.onnx")


@pytest.mark.parametrize("shape", [SHAPE, "1,48,16", "N,S,32", "N,S,64", "N,1,512"])
def test_the_operator(shape: str) -> None:
    assert made(network(f"a = Add (x0, x1) {NORM}", shape)) == ["Sum", "LayerNormalization"]


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_its_parts(opset: int) -> None:
    model = network(f"a = Add (x0, x1) {parts('a', 'y')}", opset=opset)
    assert made(model) == ["Sum", *ops(model)[1:]]


@pytest.mark.parametrize("norm", [NORM, parts("a", "y")], ids=["operator", "parts"])
def test_the_runtime_fuses_the_add_and_leaves_the_sum(norm: str, tmp_path: Path) -> None:
    assert kernels(network(f"a = Add (x0, x1) {norm}"), tmp_path) == (1, 2)


def test_a_bias_before_the_sum_is_a_node_of_its_own(tmp_path: Path) -> None:
    model = network(f"p = MatMul (x0, w) h = Add (p, c) a = Add (h, x1) {NORM}", more=BIAS)
    assert made(model) == ["MatMul", "Add", "Sum", "LayerNormalization"]
    assert kernels(model, tmp_path) == (2, 4)


def test_what_was_left_to_the_runtime_is_made_in_the_same_run() -> None:
    """A bias that SkipLayerNormalization would take goes into a Gemm, however far from the sum its chain begins."""
    gelu = "k = Div (h, two) f = Erf (k) i = Add (f, one) j = Mul (h, i) g = Mul (j, low)"
    text = f"p = MatMul (x0, w) h = Add (p, c) {gelu} t = MatMul (g, w) l = Add (t, c) a = Add (l, x1) {NORM}"
    rules = ["matmul_add_as_gemm", RULE]
    result = optimized(network(text, more=BIAS), rules=rules, target="ort-cpu").model
    expected = ["Reshape", "Gemm", "Div", "Erf", "Add", "Mul", "Mul", "Gemm", "Reshape", "Sum", "LayerNormalization"]
    assert ops(result) == expected
    assert not optimized(result, rules=rules, target="ort-cpu").fusions


@pytest.mark.parametrize(
    ("body", "shape", "z"),
    [
        (f"a = Add (x0, x1) {NORM}", SHAPE, "1,48,16"),
        (f"a = Add (x0, x1) {NORM}", SHAPE, "M,48,16"),
        (f"a = Add (x0, b) {NORM}", SHAPE, ""),
        (f"a = Add (x0, x1) {NORM}", "480,16", ""),
        (f"a = Add (x0, x1) {NORM}", "N,2,24,16", ""),
        ("a = Add (x0, x1) y = LayerNormalization <axis = 1> (a, v, b)", SHAPE, ""),
        (f"a = Add (x0, x1) {NORM.replace('y', 'l', 1)} y = Mul (l, a)", SHAPE, ""),
        (f"a = Add (x0, x1) k = Exp (a) {parts('a', 'l')} y = Mul (l, k)", SHAPE, ""),
        (f"a = Mul (x0, x1) {NORM}", SHAPE, ""),
        (f"a = Add (x0, x1) {NORM}", "N,4,16", ""),
    ],
    ids=["one row", "other batch", "bias", "two axes", "four axes", "other axes", "other reader", "reader of the parts",
         "product", "few"],
)  # fmt: skip
def test_what_stays(body: str, shape: str, z: str) -> None:
    rank = shape.count(",") + 1
    model = network(body, shape, z=z, out=f"float[{','.join('ABCD'[:rank])}] y")
    assert made(model) == ops(model)


def test_a_sum_that_is_an_output_other_dtypes_opsets_and_targets_stay() -> None:
    seen = network(f"a = Add (x0, x1) {NORM}", out=f"float[A,B,C] y, float[{SHAPE}] a")
    assert made(seen) == ops(seen)
    seen = network(f"a = Add (x0, x1) {parts('a', 'y')}", out=f"float[A,B,C] y, float[{SHAPE}] a")
    assert made(seen) == ops(seen)
    model = network(f"a = Add (x0, x1) {NORM}")
    for target in ("ort-cuda", "portable"):
        assert made(model, target) == ops(model)
    old = network(f"a = Add (x0, x1) {parts('a', 'y')}", opset=7)
    assert made(old) == ops(old)
    for dtype in (onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE):
        other = of_dtype(example(RULE, "BEFORE"), dtype)
        assert made(other) == ops(other)


def test_an_rms_norm_stays() -> None:
    model = network(
        "a = Add (x0, x1) s = Pow (a, two) q = ReduceMean <axes = [-1]> (s) e = Add (q, eps) r = Sqrt (e)"
        " n = Div (a, r) y = Mul (n, v)"
    )
    assert made(model) == ops(model)


def attention(masked: str, total: str) -> onnx.ModelProto:
    """BERT's attention between two normalizations, in opset 12."""
    heads = " ".join(
        f"{t}m = MatMul (k0, {t}w) {t}a = Add ({t}m, {t}c) {t}r = Reshape ({t}a, split)"
        f" {t} = Transpose <perm = [{perm}]> ({t}r)"
        for t, perm in (("hq", "0,2,1,3"), ("hk", "0,2,3,1"), ("hv", "0,2,1,3"))
    )
    body = f"""a0 = Add (x0, x1) {parts("a0", "k0")} {heads} qk = MatMul (hq, hk) scaled = Div (qk, two) {masked}
    p = Softmax <axis = 3> (scores) pv = MatMul (p, hv) pt = Transpose <perm = [0,2,1,3]> (pv)
    pr = Reshape (pt, join) om = MatMul (pr, w) h = Add (om, c) {total} {parts("a", "y")}"""
    kind = "bool" if "Where" in masked else "int64"
    inputs = f"{kind}[{'1,1,48' if kind == 'bool' else 'N'},48] xmask, float[1,1,48,48] xfar"
    weights = "".join(f", float[16,16] {t}w, float[16] {t}c" for t in ("hq", "hk", "hv"))
    return network(body, more=f"{BIAS}{weights}, {inputs}", opset=12)


BERT = """u = Unsqueeze <axes = [1]> (xmask) t = Unsqueeze <axes = [2]> (u) f = Cast <to = 1> (t) i = Sub (one, f)
far = Mul (i, low) scores = Add (scaled, far)"""


@pytest.mark.parametrize(
    ("masked", "total", "expected"),
    [
        (BERT, "a = Add (h, k0)", (5, 6)),  # only the sum before the first norm is another
        (BERT, "a = Add (k0, h)", (26, 29)),  # it does not look there
        ("scores = Identity (scaled)", "a = Add (h, k0)", (20, 23)),
        ("t = Mul (scaled, one) f = Mul (xfar, low) scores = Add (t, f)", "a = Add (h, k0)", (22, 25)),
        ("scores = Where (xmask, scaled, low)", "a = Add (h, k0)", (21, 22)),  # as in DistilBERT
    ],
    ids=["BERT's", "summands the other way round", "no mask", "another mask", "Where"],
)
def test_the_runtime_still_fuses_attention(masked: str, total: str, expected: tuple[int, int], tmp_path: Path) -> None:
    assert kernels(attention(masked, total), tmp_path) == expected


@pytest.mark.parametrize("attends", [True, False])
def test_a_sum_of_embeddings_before_an_attention_stays(attends: bool) -> None:
    third = "MatMul (l, e)" if attends else "Identity (l)"
    body = f"""g = Gather (e, xid) a = Add (g, x1) l = LayerNormalization (a, v, b) k = MatMul (l, w) q = MatMul (l, f)
    o = {third} s = Sum (k, q, o) y = Add (s, x0)"""
    model = network(body, more="float[16,16] w, float[16,16] e, float[16,16] f, int64[N,48] xid")
    assert made(model)[1] == ("Add" if attends else "Sum")
