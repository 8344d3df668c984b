"""LayerNormalization from its parts: every spelling, what the runtime makes of it, and near misses that stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from norms import B, W, made, model, normalized, of_dtype
from support import ops, optimized, random_feeds, run
from test_executed_graph import executed

HEAD = "m = Mean(x); d = Sub(x, m); s = Mul(d, d); v = Mean(s); a = Add(v, e)"
SCALED = "p = Mul(q, w); y = Add(p, b)"
KNOWN = f"m = Mean(x); d = Sub(x, m); s = Pow(d, two); v = Mean(s); a = Add(v, e); r = Sqrt(a); q = Div(d, r); {SCALED}"
TF = f"{HEAD}; r = Sqrt(a); i = Reciprocal(r); f = Mul(i, w); p = Mul(x, f); o = Mul(m, f)"
SPELLINGS = {
    "known": KNOWN,
    "square as a product": f"{HEAD}; r = Sqrt(a); q = Div(d, r); {SCALED}",
    "integer exponent": KNOWN.replace("Pow(d, two)", "Pow(d, whole)"),
    "reciprocal": f"{HEAD}; r = Sqrt(a); i = Reciprocal(r); q = Mul(d, i); {SCALED}",
    "one over the root": f"{HEAD}; r = Sqrt(a); i = Div(one, r); q = Mul(i, d); {SCALED}",
    "root of the reciprocal": f"{HEAD}; i = Reciprocal(a); r = Sqrt(i); q = Mul(d, r); {SCALED}",
    "power": f"{HEAD}; i = Pow(a, minus); q = Mul(d, i); {SCALED}",
    "divided by a power": f"{HEAD}; r = Pow(a, half); q = Div(d, r); {SCALED}",
    "sums": "t = Sum(x); m = Div(t, n); d = Sub(x, m); s = Mul(d, d); u = Sum(s); v = Mul(rn, u); a = Add(e, v);"
    f"r = Sqrt(a); q = Div(d, r); {SCALED}",
    "negated mean": f"m = Mean(x); k = Neg(m); d = Add(k, x); s = Mul(d, d); v = Mean(s); a = Add(v, e2); r = Sqrt(a);"
    f"q = Div(d, r); {SCALED}",
    "two differences": f"{HEAD}; r = Sqrt(a); m2 = Mean(x); d2 = Sub(x, m2); q = Div(d2, r); {SCALED}",
    "constants with more axes": f"{HEAD}; r = Sqrt(a); q = Div(d, r); p = Mul(w3, q); y = Add(b2, p)",
    "TensorFlow": f"{TF}; t = Sub(b, o); y = Add(p, t)",
    "TensorFlow, sum the other way round": f"{TF}; t = Sub(b, o); y = Add(t, p)",
}


@pytest.mark.parametrize("opset", [17, 18, 23])
@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_becomes_the_operator(name: str, opset: int) -> None:
    m = model(SPELLINGS[name], opset)
    assert made(m, "layer_norm") == ["LayerNormalization"]
    fused = optimized(m, rules=["layer_norm"], target="ort-cpu").model
    x = random_feeds(m)["x"]
    np.testing.assert_allclose(run(fused, {"x": x})[0], normalized(x, (-1,)) * W + B, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [12, 13, 16])
@pytest.mark.parametrize("name", [n for n in SPELLINGS if n != "known"])
def test_before_opset_17_the_runtime_makes_one_node_of_it(name: str, opset: int, tmp_path: Path) -> None:
    fused = optimized(model(SPELLINGS[name], opset), rules=["layer_norm"], target="ort-cpu").model
    assert ops(fused) == ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]
    onnx.save(fused, tmp_path / "fused.onnx")
    assert executed(tmp_path / "fused.onnx") == 1


def test_what_the_runtime_knows_stays_before_opset_17() -> None:
    m = model(KNOWN, 13)
    assert made(m, "layer_norm") == ops(m)


BARE = f"{HEAD}; r = Sqrt(a); "


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (f"{BARE} y = Div(d, r)", 2),
        (f"{BARE} q = Div(d, r); y = Mul(q, w)", 2),
        (f"{BARE} q = Div(d, r); y = Add(q, b)", 3),
        (f"{BARE} i = Reciprocal(r); p = Mul(x, i); o = Mul(m, i); y = Sub(p, o)", 2),
        (f"{TF}; y = Sub(p, o)", 2),
    ],
)
def test_without_scale_or_shift(body: str, inputs: int) -> None:
    m = model(body)
    assert made(m, "layer_norm") == ["LayerNormalization"]
    (node,) = optimized(m, rules=["layer_norm"], target="ort-cpu").model.graph.node
    assert len(node.input) == inputs


@pytest.mark.parametrize(
    "tail", ["y = Div(d, r)", "q = Div(d, r); y = Mul(q, w)", "i = Reciprocal(r); q = Mul(d, i); y = Add(q, b)"]
)
def test_before_opset_17_ones_and_zeros_make_it_known(tail: str, tmp_path: Path) -> None:
    m = model(f"{BARE} {tail}", 13)
    made(m, "layer_norm")
    fused = optimized(m, target="ort-cpu").model  # with the rule that takes ones and zeros away
    assert ops(fused) == ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]
    onnx.save(fused, tmp_path / "fused.onnx")
    assert executed(tmp_path / "fused.onnx") == 1


def test_before_opset_17_behind_a_cast_it_stays() -> None:
    """onnxruntime 1.32 takes the Cast for one from float16, and then refuses its own LayerNormalization of integers."""
    body = SPELLINGS["square as a product"].replace("Mean(x)", "Mean(f)").replace("Sub(x,", "Sub(f,")
    m = model(f"f = Cast <to = 1> (x); {body}", 15)
    m.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    result = optimized(m, rules=["layer_norm"], target="ort-cpu")
    assert ops(result.model) == ops(m) and any("Cast" in r.reason for r in result.refused)
    data = {"x": np.arange(24).reshape(2, 3, 4)}
    np.testing.assert_array_equal(run(result.model, data, plain=False)[0], run(m, data)[0])


def test_over_two_axes() -> None:
    m = model(
        "m = ReduceMean <axes = [2, 1]> (x); d = Sub(x, m); s = Mul(d, d); v = ReduceMean <axes = [-1, -2]> (s);"
        "a = Add(v, e); r = Sqrt(a); y = Div(d, r)"
    )
    assert made(m, "layer_norm") == ["LayerNormalization"]
    fused = optimized(m, rules=["layer_norm"], target="ort-cpu").model
    assert onnx.helper.get_node_attr_value(fused.graph.node[0], "axis") == -2
    x = random_feeds(m)["x"]
    np.testing.assert_allclose(run(fused, {"x": x})[0], normalized(x, (1, 2)), rtol=1e-5, atol=1e-5)


def test_a_scale_that_is_computed_is_read() -> None:
    m = model(f"{BARE} q = Div(d, r); p = Mul(q, x_w); y = Add(p, b)", extra=", float[4] x_w")
    assert made(m, "layer_norm") == ["LayerNormalization"]


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        ("q = Div(d, r); p = Mul(q, c); y = Add(p, b)", ["Mul", "Add"]),  # along another axis
        ("q = Div(d, r); p = Mul(q, off); y = Add(p, b)", ["Mul", "Add"]),  # one number
        ("q = Div(d, r); p = Mul(q, w); y = Add(p, x)", ["Add"]),  # a residual
        ("q = Div(d, r); p = Mul(q, q); y = Add(p, b)", ["Mul", "Add"]),
        ("q = Div(d, r); p = Mul(q, w); k = Add(p, b); y = Mul(k, w)", ["Mul"]),
    ],
)
def test_what_is_no_scale_or_shift_stays_behind(tail: str, left: list[str]) -> None:
    assert made(model(f"{BARE} {tail}"), "layer_norm") == ["LayerNormalization", *left]


MEAN, ROOT = "m = Mean(x); d = Sub(x, m)", "a = Add(v, e); r = Sqrt(a)"
FIRST = "ReduceMean <axes = [1]>"
NEAR_MISSES = {
    "variance of another axis": f"{MEAN}; s = Mul(d, d); v = {FIRST} (s); {ROOT}; y = Div(d, r)",
    "mean of another axis": f"m = {FIRST} (x); d = Sub(x, m); s = Mul(d, d); v = Mean(s); {ROOT}; y = Div(d, r)",
    "not the last axis": f"m = {FIRST} (x); d = Sub(x, m); s = Mul(d, d); v = {FIRST} (s); {ROOT}; y = Div(d, r)",
    "not the trailing axes": "m = ReduceMean <axes = [0, 2]> (x); d = Sub(x, m); s = Mul(d, d);"
    f"v = ReduceMean <axes = [0, 2]> (s); {ROOT}; y = Div(d, r)",
    "all axes by default": f"m = ReduceMean(x); d = Sub(x, m); s = Mul(d, d); v = ReduceMean(s); {ROOT}; y = Div(d, r)",
    "ε outside the root": f"{MEAN}; s = Mul(d, d); v = Mean(s); r = Sqrt(v); a = Add(r, e); y = Div(d, a)",
    "no ε": f"{MEAN}; s = Mul(d, d); v = Mean(s); r = Sqrt(v); k = Abs(x); l = Add(r, k); y = Div(d, l)",
    "fourth power": f"{MEAN}; s = Pow(d, n); v = Mean(s); {ROOT}; y = Div(d, r)",
    "variance of x itself": f"{MEAN}; s = Mul(x, x); v = Mean(s); {ROOT}; y = Div(d, r)",
    "x over the deviation": f"{BARE} y = Div(x, r)",
    "another divisor": f"t = Sum(x); m = Div(t, off); d = Sub(x, m); s = Mul(d, d); v = Mean(s); {ROOT}; y = Div(d, r)",
    "the fourth root": f"{BARE} k = Sqrt(r); y = Div(d, k)",
    "mean minus x": f"{MEAN}; s = Mul(d, d); v = Mean(s); {ROOT}; k = Sub(m, x); y = Div(k, r)",
    "TensorFlow with two factors": f"{HEAD}; r = Sqrt(a); i = Reciprocal(r); f = Mul(i, w); p = Mul(x, f);"
    "o = Mul(m, i); t = Sub(b, o); y = Add(p, t)",
    "TensorFlow with a sum": f"{TF}; t = Add(b, o); y = Add(p, t)",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay(name: str) -> None:
    m = model(NEAR_MISSES[name])
    assert made(m, "layer_norm") == ops(m)


def test_a_mean_that_drops_its_axis_stays() -> None:
    m = model(
        "m = ReduceMean <axes = [-1], keepdims = 0> (x); d = Sub(x, m); s = Mul(d, d);"
        "v = ReduceMean <axes = [-1], keepdims = 0> (s); a = Add(v, e); r = Sqrt(a); y = Div(d, r)",
        shape="4,4",
    )
    assert made(m, "layer_norm") == ops(m)


@pytest.mark.parametrize("name", ["d", "m", "v", "q"])
@pytest.mark.parametrize("exported", [True, False])
def test_a_value_that_is_needed_elsewhere(name: str, exported: bool) -> None:
    m = model(SPELLINGS["square as a product"], shape="2,3,4")
    if not exported:
        m.graph.node.append(onnx.helper.make_node("Abs", [name], ["seen"]))
    size = 4 if name in "dq" else 1
    seen = onnx.helper.make_tensor_value_info(name if exported else "seen", onnx.TensorProto.FLOAT, [2, 3, size])
    m.graph.output.append(seen)
    kept = made(m, "layer_norm")
    if name == "q":  # the scale and the shift are left behind
        assert kept.count("LayerNormalization") == 1 and kept.count("Sqrt") == 0 and "Mul" in kept
    else:
        assert kept == ops(m)


def test_an_epsilon_that_a_caller_may_change_stays() -> None:
    m = model(KNOWN)
    m.graph.input.append(onnx.helper.make_tensor_value_info("e", onnx.TensorProto.FLOAT, []))
    assert made(m, "layer_norm") == ops(m)


def test_a_free_axis_stays() -> None:
    m = model(BARE + "y = Div(d, r)", shape="2,3,L")
    assert not optimized(m, rules=["layer_norm"], target="ort-cpu").fusions


@pytest.mark.parametrize("dtype", [onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16])
def test_other_dtypes_stay(dtype: int) -> None:
    m = of_dtype(model(KNOWN), dtype)
    assert made(m, "layer_norm") == ops(m)


@pytest.mark.parametrize("opset", [13, 17])
def test_far_from_zero_and_special_values(opset: int) -> None:
    m = model(SPELLINGS["reciprocal"], opset, "7,4")
    fused = optimized(m, rules=["layer_norm"], target="ort-cpu").model
    assert "Reciprocal" not in ops(fused)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 4)).astype(np.float32)
    x[1] += 1000
    x[2] = 3.25  # no variance at all
    x[3, 1], x[4, 2], x[5, 3], x[6, 0] = np.nan, np.inf, -np.inf, 1e30
    before, after = run(m, {"x": x})[0], run(fused, {"x": x})[0]
    np.testing.assert_allclose(after[1], normalized(x[1], (-1,)) * W + B, atol=2e-3)
    np.testing.assert_array_equal(after[2], B.astype(np.float32))
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-3)
