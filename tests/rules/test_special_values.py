"""NaN, infinities, zeros with a sign and numbers at the ends of float32, through every rewrite."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from examples import example, target
from support import optimized, parse, random_feeds
from test_every_rewrite import NAMES

from onnxfuse import targets
from onnxfuse.rules import all_rules

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 1e37, -1e37, 1e-41)
LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
# Written in the rule: what overflows in the parts, and is NaN there, is a number where one kernel does it.
OVERFLOWS = {"group_norm": (1e37, -1e37)}
MOST = 12  # places of an input that are tried


def opened(model: onnx.ModelProto, level: ort.GraphOptimizationLevel) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def check(before: list[np.ndarray], after: list[np.ndarray], number: float) -> None:
    """NaN stays NaN; without an infinity in the input, what was finite stays so."""
    for a, b in zip(before, after, strict=True):
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        assert not (np.isnan(a) & ~np.isnan(b)).any(), f"{number}: NaN became a number"
        if not np.isinf(number):
            assert not (np.isfinite(a) & ~np.isfinite(b)).any(), f"{number}: a number became infinite or NaN"
            both = np.isfinite(a) & np.isfinite(b)
            scale = np.max(np.abs(a[both]), initial=1e-6)
            assert np.max(np.abs(a[both].astype(float) - b[both]), initial=0) <= 1e-5 * scale


@pytest.mark.parametrize("rule", NAMES)
def test_every_rewrite_keeps_special_values(rule: str) -> None:
    before = example(rule, "BEFORE")
    after = optimized(before, rules=[rule], target=target(rule), verify=False).model
    rng = np.random.default_rng(0)
    for level in LEVELS:
        first, second = opened(before, level), opened(after, level)
        for number in (n for n in SPECIAL if n not in OVERFLOWS.get(rule, ())):
            given = random_feeds(before, 3, {"N": 2})
            for name, data in given.items():
                if data.dtype.kind != "f":
                    continue
                for place in rng.permutation(data.size)[:MOST]:
                    changed = data.copy()
                    changed.reshape(-1)[place] = number
                    feeds = given | {name: changed}
                    check(first.run(None, feeds), second.run(None, feeds), number)


ELEMENTWISE = {
    "hard_swish": "<float c = {3}, float z = {0}, float s = {6}>"
    " { a = Add(x, c)  b = Clip(a, z, s)  m = Mul(x, b)  y = Div(m, s) }",
    "hard_sigmoid": "<float c = {3}, float z = {0}, float s = {6}> { a = Add(x, c)  b = Clip(a, z, s)  y = Div(b, s) }",
    "leaky_relu": "<float c = {0.25}> { t = Mul(x, c)  y = Max(x, t) }",
    "limits": "<float z = {0}, float s = {6}> { r = Max(x, z)  y = Min(r, s) }",
    "relu": "<float z = {0}> { y = Max(x, z) }",
    "mish": "{ s = Softplus(x)  t = Tanh(s)  y = Mul(x, t) }",
    "prelu_equal_slopes": "<float[1] s = {0.25}> { y = PRelu(x, s) }",
    "factored_sum": "<float[1] g = {0.5}> { m = Mul(x, g)  y = Add(x, m) }",
    "affine_chain": "<float a = {2}, float b = {3}> { m = Mul(x, a)  n = Add(m, b)  y = Mul(n, a) }",
}


@pytest.mark.parametrize("kind", ELEMENTWISE)
@pytest.mark.parametrize("aim", targets.names())
def test_elementwise_ones_give_the_same_of_infinities(kind: str, aim: str) -> None:
    """Wide enough for vectors and what is left of them; some kernels differ there."""
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> g (float[67] x) => (float[67] y) {ELEMENTWISE[kind]}')
    made = optimized(model, target=aim, verify=False).model
    normal = np.random.default_rng(0).standard_normal(67).astype(np.float32)
    for level in LEVELS:
        first, second = opened(model, level), opened(made, level)
        for number in SPECIAL:
            for places in (slice(None), slice(0, None, 3), slice(66, None)):
                x = normal.copy()
                x[places] = number
                a, b = (s.run(None, {"x": x})[0] for s in (first, second))
                scale = np.max(np.abs(a[np.isfinite(a)]), initial=1e-6)
                np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6 * scale, equal_nan=True, err_msg=str(number))


def test_maxpool_of_nothing_but_nan_is_the_same_behind_relu() -> None:
    model = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,4,16] x) => (float[1,1,2,8] y)'
        " { t = Relu(x)  y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t) }"
    )
    made = optimized(model, target="portable", verify=False)
    assert made.fusions
    for number in SPECIAL:
        for places in (slice(None), slice(0, None, 3)):
            x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
            x[places] = number
            feeds = {"x": x.reshape(1, 1, 4, 16)}
            for level in LEVELS:
                a, b = (opened(m, level).run(None, feeds)[0] for m in (model, made.model))
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rule", all_rules())
def test_the_docstring_says_what_becomes_of_special_values(rule: str) -> None:
    assert re.search(r"NaN|same\s+bits|bit\s+for\s+bit|infinit", all_rules()[rule].doc)
