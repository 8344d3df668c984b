"""GELU from its parts: every spelling, what the runtime makes of it, and near misses that stay."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import examples
import numpy as np
import onnx
import pytest
from norms import of_dtype
from support import ops, optimized, parse, run
from test_executed_graph import executed

from onnxfuse import targets
from onnxfuse.targets import MICROSOFT, FusedKernel

CONSTANTS = f"""<float two = {{2}}, float three = {{3}}, int64 whole = {{3}}, float one = {{1}}, float half = {{0.5}},
float[1,1] half2 = {{0.5}}, float root = {{{math.sqrt(2)}}}, float over = {{{math.sqrt(0.5)}}},
float c = {{0.044715}}, float near = {{0.044714}}, float k = {{{math.sqrt(2 / math.pi)}}},
float kc = {{{0.044715 * math.sqrt(2 / math.pi)}}}>"""
KNOWN = {
    "half behind": "d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    "half of x": "d = Div(x, root) e = Erf(d) a = Add(one, e) h = Mul(half, x) y = Mul(a, h)",
}
EXACT = {
    "factor": "d = Mul(over, x) e = Erf(d) a = Add(e, one) m = Mul(a, x) y = Mul(half, m)",
    "half of the sum": "d = Div(x, root) e = Erf(d) a = Add(e, one) h = Mul(a, half2) y = Mul(x, h)",
    "half of erf": "d = Mul(x, over) e = Erf(d) h = Mul(e, half) a = Add(h, half) y = Mul(x, a)",
    "divided by two": "d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Div(m, two)",
    "half of x, by two": "d = Mul(x, over) e = Erf(d) a = Add(e, one) h = Div(x, two) y = Mul(h, a)",
}
END = "t = Tanh(z) a = Add(t, one) h = Mul(x, half) y = Mul(h, a)"
TANH = {
    "cube": f"p = Pow(x, three) q = Mul(p, c) i = Add(x, q) z = Mul(i, k) {END}",
    "integer exponent": f"p = Pow(x, whole) q = Mul(c, p) i = Add(q, x) z = Mul(k, i) {END}",
    "products": f"o = Mul(x, x) p = Mul(x, o) q = Mul(p, c) i = Add(x, q) z = Mul(i, k) {END}",
    "factor first": f"o = Mul(c, x) p = Mul(x, o) q = Mul(x, p) i = Add(x, q) z = Mul(i, k) {END}",
    "x outside": f"o = Pow(x, two) q = Mul(o, c) i = Add(q, one) j = Mul(x, i) z = Mul(j, k) {END}",
    "two terms": f"p = Pow(x, three) q = Mul(p, kc) i = Mul(x, k) z = Add(q, i) {END}",
    "half of the sum": "p = Pow(x, three) q = Mul(p, c) i = Add(x, q) z = Mul(i, k) t = Tanh(z) a = Add(one, t) "
    "h = Mul(half, a) y = Mul(x, h)",
}
EVERY = {f"exact, {n}": b for n, b in (KNOWN | EXACT).items()} | {f"tanh, {n}": b for n, b in TANH.items()}


def model(body: str, opset: int = 20, shape: str = "N,5") -> onnx.ModelProto:
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> g (float[{shape}] x) => (float[{shape}] y)'
    return parse(f"{head} {CONSTANTS} {{ {body} }}")


made = partial(examples.made, rule="gelu")


def gelu(x: np.ndarray, tanh: bool) -> np.ndarray:
    x = x.astype(np.float64)
    if tanh:
        return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


@pytest.mark.parametrize("name", EVERY)
def test_every_spelling_becomes_the_operator(name: str) -> None:
    m = model(EVERY[name])
    for target in ("ort-cpu", "ort-cuda", "portable"):
        assert made(m, target) == ["Gelu"]
    fused = optimized(m, rules=["gelu"], target="ort-cpu").model
    x = np.linspace(-8, 8, 200, dtype=np.float32).reshape(-1, 5)
    np.testing.assert_allclose(run(fused, {"x": x})[0], gelu(x, name.startswith("tanh")), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("name", EXACT)
def test_before_opset_20_the_runtime_makes_one_node_of_it(name: str, opset: int, tmp_path: Path) -> None:
    m = model(EXACT[name], opset)
    assert made(m) == ["Div", "Erf", "Add", "Mul", "Mul"]
    onnx.save(optimized(m, rules=["gelu"], target="ort-cpu").model, tmp_path / "fused.onnx")
    assert executed(tmp_path / "fused.onnx") == 1


@pytest.mark.parametrize("name", KNOWN)
def test_what_the_runtime_knows_stays_before_opset_20(name: str, tmp_path: Path) -> None:
    m = model(KNOWN[name], 17)
    onnx.save(m, tmp_path / "known.onnx")
    assert executed(tmp_path / "known.onnx") == 1
    assert made(m) == ops(m)


@pytest.mark.parametrize("name", TANH)
def test_before_opset_20_tanh_takes_a_kernel_of_the_target(name: str) -> None:
    m, cpu = model(TANH[name], 17), targets.find("ort-cpu")
    kernel = {(MICROSOFT, "FastGelu"): FusedKernel(frozenset({onnx.TensorProto.FLOAT}), frozenset())}
    assert made(m, replace(cpu, kernels=kernel)) == ["com.microsoft::FastGelu"]
    assert made(m, replace(cpu, kernels={})) == ops(m)


NEAR_MISSES = {
    "constant of the cube": TANH["cube"].replace("Mul(p, c)", "Mul(p, near)"),
    "square": TANH["cube"].replace("Pow(x, three)", "Pow(x, two)"),
    "minus the cube": TANH["cube"].replace("Add(x, q)", "Sub(x, q)"),
    "factor": TANH["cube"].replace("Mul(i, k)", "Mul(i, over)"),
    "erf of x": "e = Erf(x) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    "times root": "d = Mul(x, root) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    "no half": "d = Div(x, root) e = Erf(d) a = Add(e, one) y = Mul(x, a)",
    "two": "d = Div(x, root) e = Erf(d) a = Add(e, two) m = Mul(x, a) y = Mul(m, half)",
    "one minus erf": "d = Div(x, root) e = Erf(d) a = Sub(one, e) m = Mul(x, a) y = Mul(m, half)",
    "another value": "z = Abs(x) d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(z, a) y = Mul(m, half)",
    "tanh of erf's": "d = Div(x, root) e = Tanh(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    "added": "d = Div(x, root) e = Erf(d) a = Add(e, one) m = Add(x, a) y = Mul(m, half)",
    "a constant in front": TANH["cube"].replace("Add(x, q)", "Add(q, one)"),
    "the square twice": "o = Mul(x, x) p = Mul(o, o) q = Mul(p, c) i = Add(x, q) z = Mul(i, k) " + END,
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay(name: str) -> None:
    m = model(NEAR_MISSES[name])
    assert made(m) == ops(m)


@pytest.mark.parametrize("name", ["d", "e"])
def test_a_value_that_is_needed_elsewhere(name: str) -> None:
    m = model(EXACT["factor"], shape="2,5")
    m.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 5]))
    assert made(m) == ops(m)


def test_a_constant_that_a_caller_may_change_stays() -> None:
    m = model(EXACT["factor"])
    m.graph.input.append(onnx.helper.make_tensor_value_info("over", onnx.TensorProto.FLOAT, []))
    assert made(m) == ops(m)


@pytest.mark.parametrize("dtype", [onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16])
def test_other_dtypes_stay(dtype: int) -> None:
    assert not optimized(of_dtype(model(TANH["cube"]), dtype), rules=["gelu"], target="ort-cpu", verify=False).fusions


@pytest.mark.parametrize("name", EVERY)
def test_special_values(name: str) -> None:
    m = model(EVERY[name], shape="N,1")
    fused = optimized(m, rules=["gelu"], target="ort-cpu").model
    assert ops(fused) == ["Gelu"]
    x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e37, -1e37, 1e-41, 12, -12], np.float32)
    x = np.repeat(x, 3).reshape(-1, 1)
    np.testing.assert_allclose(run(fused, {"x": x})[0], run(m, {"x": x})[0], rtol=1e-6, atol=1e-6)


def test_a_scalar_is_none_of_a_kernel_that_takes_none() -> None:
    m = parse(f'<ir_version: 9, opset_import: ["" : 17]> g (float x) => (float y) {CONSTANTS} {{ {TANH["cube"]} }}')
    result = optimized(m, target="ort-cpu", verify=False)
    feeds = {"x": np.array(0.7, np.float32)}
    np.testing.assert_allclose(run(result.model, feeds)[0], gelu(feeds["x"], True), rtol=1e-6)
