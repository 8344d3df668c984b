"""Root mean square normalization: every spelling, what the runtime makes of it, and near misses that stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from norms import W, made, model, normalized, of_dtype
from support import graph, ops, optimized, parse, random_feeds, run
from test_executed_graph import executed

HEAD = "s = Mul(x, x); v = Mean(s); a = Add(v, e); r = Sqrt(a)"
KNOWN = "s = Pow(x, two); v = Mean(s); a = Add(v, e); r = Sqrt(a); q = Div(x, r); y = Mul(q, w)"
SPELLINGS = {
    "square as a product": f"{HEAD}; q = Div(x, r); y = Mul(q, w)",
    "integer exponent": KNOWN.replace("Pow(x, two)", "Pow(x, whole)"),
    "reciprocal": f"{HEAD}; i = Reciprocal(r); q = Mul(x, i); y = Mul(w, q)",
    "one over the root": f"{HEAD}; i = Div(one, r); q = Mul(i, x); y = Mul(q, w3)",
    "power": "s = Pow(x, two); v = Mean(s); a = Add(e, v); i = Pow(a, minus); q = Mul(x, i); y = Mul(q, w)",
    "sum": "s = Mul(x, x); t = Sum(s); v = Div(t, n); a = Add(v, e2); r = Sqrt(a); q = Div(x, r); y = Mul(q, w)",
}


@pytest.mark.parametrize("name", [*SPELLINGS, "known"])
def test_every_spelling_becomes_the_operator(name: str) -> None:
    m = model(SPELLINGS.get(name, KNOWN), 23)
    assert made(m, "rms_norm") == ["RMSNormalization"]
    fused = optimized(m, rules=["rms_norm"], target="ort-cpu").model
    x = random_feeds(m)["x"]
    expected = normalized(x, (-1,), centred=False) * W
    np.testing.assert_allclose(run(fused, {"x": x})[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [12, 17, 20])
@pytest.mark.parametrize("name", SPELLINGS)
def test_before_opset_23_the_runtime_makes_one_node_of_it(name: str, opset: int, tmp_path: Path) -> None:
    m = model(SPELLINGS[name], opset)
    assert made(m, "rms_norm") == ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]
    onnx.save(optimized(m, rules=["rms_norm"], target="ort-cpu").model, tmp_path / "fused.onnx")
    assert executed(tmp_path / "fused.onnx") == 1


def test_what_the_runtime_knows_stays_before_opset_23() -> None:
    m = model(KNOWN, 17)
    assert made(m, "rms_norm") == ops(m)


def test_without_a_scale() -> None:
    assert made(model(f"{HEAD}; y = Div(x, r)", 23), "rms_norm") == ["RMSNormalization"]


@pytest.mark.parametrize("tail", ["y = Div(x, r)", "i = Reciprocal(r); y = Mul(x, i)"])
def test_before_opset_23_ones_make_it_known(tail: str, tmp_path: Path) -> None:
    m = model(f"{HEAD}; {tail}", 17)
    made(m, "rms_norm")
    fused = optimized(m, target="ort-cpu").model  # with the rule that takes ones away
    assert ops(fused) == ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]
    onnx.save(fused, tmp_path / "fused.onnx")
    assert executed(tmp_path / "fused.onnx") == 1


def test_a_shift_stays_behind() -> None:
    assert made(model(f"{HEAD}; q = Div(x, r); p = Mul(q, w); y = Add(p, b)", 23), "rms_norm") == [
        "RMSNormalization",
        "Add",
    ]


def test_over_two_axes() -> None:
    body = "s = Mul(x, x); v = ReduceMean(s, both); a = Add(v, e); r = Sqrt(a); y = Div(x, r)"
    m = model(body, 23)
    assert made(m, "rms_norm") == ["RMSNormalization"]
    fused = optimized(m, rules=["rms_norm"], target="ort-cpu").model
    x = random_feeds(m)["x"]
    np.testing.assert_allclose(run(fused, {"x": x})[0], normalized(x, (1, 2), centred=False), rtol=1e-5, atol=1e-6)


NEAR_MISSES = {
    "another axis": "s = Mul(x, x); v = ReduceMean(s, first); a = Add(v, e); r = Sqrt(a); y = Div(x, r)",
    "ε outside the root": "s = Mul(x, x); v = Mean(s); r = Sqrt(v); a = Add(r, e); y = Div(x, a)",
    "ε taken away": "s = Mul(x, x); k = Add(s, two); v = Mean(k); a = Sub(v, e); r = Sqrt(a); y = Div(x, r)",
    "the sum of the squares": "s = Mul(x, x); v = Sum(s); a = Add(v, e); r = Sqrt(a); y = Div(x, r)",
    "another divisor": "s = Mul(x, x); t = Sum(s); v = Div(t, off); a = Add(v, e); r = Sqrt(a); y = Div(x, r)",
    "the root over x": f"{HEAD}; y = Div(r, x)",
    "the mean of x": "v = Mean(x); s = Mul(v, v); a = Add(s, e); r = Sqrt(a); y = Div(x, r)",
    "another value": f"{HEAD}; k = Abs(x); y = Div(k, r)",
    "ε along the axis": "s = Mul(x, x); v = Mean(s); k = Abs(w); a = Add(v, k); r = Sqrt(a); y = Div(x, r)",
    "of a centred value": "m = Mean(x); d = Sub(x, m); s = Mul(d, d); v = Mean(s); a = Add(v, e); r = Sqrt(a);"
    "y = Div(d, r)",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay(name: str) -> None:
    m = model(NEAR_MISSES[name], 23)
    assert made(m, "rms_norm") == ops(m)


def test_no_layer_norm_is_made_of_a_mean_without_its_axis() -> None:
    """onnxruntime takes it for one, whatever `keepdims` is, once the square is a Pow."""
    m = model(
        "m = ReduceMean <axes = [-1], keepdims = 0> (x); d = Sub(x, m); s = Mul(d, d); v = Mean(s); a = Add(v, e);"
        "r = Sqrt(a); q = Div(d, r); p = Mul(q, w); y = Add(p, b)",
        shape="1,4,4",
    )
    assert made(m, "rms_norm") == ops(m)


@pytest.mark.parametrize("name", ["s", "v", "r"])
def test_a_value_that_is_needed_elsewhere(name: str) -> None:
    m = model(SPELLINGS["reciprocal"], shape="2,3,4")
    size = 4 if name == "s" else 1
    m.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3, size]))
    assert made(m, "rms_norm") == ops(m)


@pytest.mark.parametrize("dtype", [onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16])
def test_other_dtypes_stay(dtype: int) -> None:
    m = of_dtype(model(SPELLINGS["reciprocal"]), dtype)
    assert made(m, "rms_norm") == ops(m)


@pytest.mark.parametrize("opset", [17, 23])
def test_special_values(opset: int) -> None:
    m = model(SPELLINGS["reciprocal"], opset, "6,4")
    fused = optimized(m, rules=["rms_norm"], target="ort-cpu").model
    assert "Reciprocal" not in ops(fused)
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    x[0], x[1, 1], x[2, 2], x[3, 3], x[4, 0] = 0, np.nan, np.inf, -np.inf, 1e30
    np.testing.assert_allclose(run(fused, {"x": x})[0], run(m, {"x": x})[0], rtol=1e-5)


def test_of_a_constant_nothing_is_made() -> None:
    """Its scale of ones would not be told from it, and be added again and again."""
    body = "m = Mul(k, k) r = ReduceMean <axes = [0]> (m) a = Add(r, e) q = Sqrt(a) n = Div(k, q) y = Add(x, n)"
    given = parse(
        '<ir_version: 8, opset_import: ["" : 13]> g (float[2] x) => (float[2] y)'
        f" <float[1] e = {{0.1}}, float[2] w = {{1, 2}}> {{ k = Tanh(w) {body} }}"
    )
    result = optimized(given, rules=["rms_norm"], target="ort-cpu")
    assert not result.fusions


def test_a_difference_from_a_mean_in_other_words_is_none() -> None:
    """The mean is a sum times 1/n. A second run, which may add as much to the file again, once found a layer norm."""
    m = graph(
        """n = Constant <value_float = 0.25> () two = Constant <value_float = 2.0> ()
        e = Constant <value_float = 0.1> () a = Constant <value_ints = [-1]> ()
        t = ReduceSum(x, a) m = Mul(n, t) d = Sub(x, m) p = Pow(d, two) v = ReduceMean <axes = [-1]> (p)
        s = Add(e, v) r = Sqrt(s) i = Reciprocal(r) y = Mul(i, d)""",
        inputs="float[2,3,4] x",
        outputs="float[2,3,4] y",
    )
    assert not optimized(m, rules=["rms_norm"], target="ort-cpu").fusions
