"""Conv + residual + Relu: the residual must have exactly the result's shape, in every binding."""

from __future__ import annotations

import pytest
from support import assert_same, graph, ops, optimized, random_feeds

X = "float[2,3,8,8] x, float[4,3,3,3] w, float[4] b"
FUSED = "com.microsoft::FusedConv"


@pytest.mark.parametrize("add", ["Add(t, r)", "Add(r, t)", "Sum(t, r)", "Sum(r, t)"])
@pytest.mark.parametrize("conv", ["Conv(x, w, b)", "Conv(x, w)"])
def test_either_order_with_and_without_bias(add: str, conv: str) -> None:
    model = graph(f"t = {conv} s = {add} y = Relu(s)", inputs=X + ", float[2,4,6,6] r", outputs="float[2,4,6,6] y")
    result = optimized(model)
    assert ops(result.model) == [FUSED] and list(result.model.graph.node[0].input)[-1] == "r"
    assert_same(model, result.model, random_feeds(model))


@pytest.mark.parametrize("shape", ["1,4,1,1", "1,4,6,6", "2,4,6,1", "4,6,6", "1", "2,1,6,6"])
def test_a_residual_that_broadcasts_is_refused(shape: str) -> None:
    model = graph(
        "t = Conv(x, w, b) s = Add(t, r) y = Relu(s)", inputs=f"{X}, float[{shape}] r", outputs="float[2,4,6,6] y"
    )
    result = optimized(model, rules=["conv_add_relu"])
    assert not result.fusions and "not surely of the shape" in result.refused[0].reason


def test_a_residual_that_grows_the_result_is_refused() -> None:
    model = graph(
        "t = Conv(x, w, b) s = Add(t, r) y = Relu(s)",
        inputs="float[1,3,8,8] x, float[4,3,3,3] w, float[4] b, float[3,4,6,6] r",
        outputs="float[3,4,6,6] y",
    )
    assert not optimized(model, rules=["conv_add_relu"]).fusions


@pytest.mark.parametrize(("symbol", "fused"), [("N", True), ("M", False)])
def test_free_dims_must_be_the_same_symbol(symbol: str, fused: bool) -> None:
    inputs = f"float[N,3,8,8] x, float[4,3,3,3] w, float[{symbol},4,6,6] r"
    model = graph("t = Conv(x, w) s = Add(t, r) y = Relu(s)", inputs=inputs, outputs="float[K,4,6,6] y")
    result = optimized(model, dims={"N": 3} | ({} if fused else {"M": 3}))
    assert bool(result.fusions) is fused
    assert_same(model, result.model, random_feeds(model, dims={"N": 3, "M": 3}))


def test_free_spatial_dims_through_the_convolution() -> None:
    conv = "Conv <pads = [1, 1, 1, 1]>"
    inputs = "float[N,4,H,W] x, float[4,4,3,3] w"
    model = graph(f"t = {conv} (x, w) s = Add(t, x) y = Relu(s)", inputs=inputs, outputs="float[N,4,H,W] y")
    result = optimized(model)
    assert ops(result.model) == [FUSED]
    assert_same(model, result.model, random_feeds(model, dims={"N": 2, "H": 5, "W": 7}))
    strided = "Conv <pads = [1, 1, 1, 1], strides = [2, 2]>"
    body = f"t = {strided} (x, w) u = {strided} (x, v) s = Add(t, u) y = Relu(s)"
    model = graph(body, inputs=inputs + ", float[4,4,3,3] v", outputs="float[N,4,A,B] y")
    result = optimized(model)
    assert sorted(ops(result.model)) == ["Conv", FUSED]
    assert_same(model, result.model, random_feeds(model, dims={"N": 2, "H": 5, "W": 7}))


def test_two_convolutions_in_one_add_become_one_fused_and_one_plain() -> None:
    body = "t = Conv(x, w, b) u = Conv(x, v) s = Add(t, u) y = Relu(s)"
    model = graph(body, inputs=X + ", float[4,3,3,3] v", outputs="float[2,4,6,6] y")
    result = optimized(model)
    assert ops(result.model) == ["Conv", FUSED] and len(result.fusions) == 1
    assert [r for r in result.refused if "takes a node of it" in r.reason]
    assert_same(model, result.model, random_feeds(model))


def test_a_value_added_to_itself_is_left() -> None:
    model = graph("t = Conv(x, w, b) s = Add(t, t) y = Relu(s)", inputs=X, outputs="float[2,4,6,6] y")
    assert not optimized(model).fusions


def test_without_a_relu_behind_the_add_nothing_is_made() -> None:
    model = graph("t = Conv(x, w, b) y = Add(t, r)", inputs=X + ", float[2,4,6,6] r", outputs="float[2,4,6,6] y")
    assert not optimized(model).fusions


def test_relu_before_the_add_is_the_other_rule() -> None:
    body = "t = Conv(x, w, b) u = Relu(t) y = Add(u, r)"
    model = graph(body, inputs=X + ", float[2,4,6,6] r", outputs="float[2,4,6,6] y")
    result = optimized(model)
    assert [f.rule for f in result.fusions] == ["conv_relu"]
    assert_same(model, result.model, random_feeds(model))


def test_a_residual_made_between_conv_and_add_keeps_the_order() -> None:
    body = "t = Conv(x, w, b) q = Abs(r) z = Neg(q) s = Add(t, z) y = Relu(s)"
    model = graph(body, inputs=X + ", float[2,4,6,6] r", outputs="float[2,4,6,6] y")
    result = optimized(model)
    assert ops(result.model) == ["Abs", "Neg", FUSED]
    assert_same(model, result.model, random_feeds(model))


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_dtypes_without_a_kernel_are_left(dtype: str) -> None:
    inputs = f"{dtype}[2,3,8,8] x, {dtype}[4,3,3,3] w, {dtype}[2,4,6,6] r"
    model = graph("t = Conv(x, w) s = Add(t, r) y = Relu(s)", inputs=inputs, outputs=f"{dtype}[2,4,6,6] y")
    assert not optimized(model).fusions


@pytest.mark.parametrize(("pads", "y"), [("pads = [0, 0, 1, 1]", "2,4,7,7"), ('auto_pad = "SAME_UPPER"', "2,4,8,8")])
def test_pads_that_may_be_asymmetric_are_refused(pads: str, y: str) -> None:
    body = f"t = Conv <{pads}> (x, w, b) s = Add(t, r) u = Relu(s)"
    model = graph(body, inputs=f"{X}, float[{y}] r", outputs=f"float[{y}] u")
    result = optimized(model, rules=["conv_add_relu"])
    assert not result.fusions and "symmetric" in result.refused[0].reason
