"""Pools in front of 1x1 convolutions and of concatenations: what commutes, and what padding spoils."""

from __future__ import annotations

import examples
import onnx
import pytest
from support import graph, ops, optimized, with_weights

HALF = "kernel_shape = [2, 2], strides = [2, 2]"


def conv_pool(
    pool: str, conv: str = "Conv (x, w, b)", weights: str = "float[6,8,1,1] w, float[6] b"
) -> onnx.ModelProto:
    body, inputs = f"c = {conv} y = {pool} (c)", f"float[N,8,H,W] x, {weights}"
    return with_weights(graph(body, inputs=inputs, outputs="float[N,6,P,Q] y"))


def made(model: onnx.ModelProto, rule: str, target: str = "ort-cpu") -> list[str]:
    sizes = [{"N": 2, "H": size, "W": size + 3} for size in (12, 13)]
    return examples.made(model, target, rule=rule, dims=sizes, planned={"N": 1, "H": 64, "W": 64})


@pytest.mark.parametrize(
    "pool",
    [
        f"AveragePool <{HALF}>",
        "AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>",
        "AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [0, 1, 1, 0], ceil_mode = 1>",
        'AveragePool <kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER">',
        f"AveragePool <{HALF}, count_include_pad = 1>",
        "GlobalAveragePool",
    ],
)
def test_an_average_commutes_with_a_mix_of_channels(pool: str) -> None:
    kind = pool.partition(" ")[0]
    assert made(conv_pool(pool), "pool_before_conv") == [kind, "Conv"]
    grouped = conv_pool(pool, "Conv <group = 2> (x, w, b)", "float[6,4,1,1] w, float[6] b")
    assert made(grouped, "pool_before_conv") == [kind, "Conv"]


def test_zeros_that_are_counted_have_no_bias() -> None:
    pool = "AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], count_include_pad = 1>"
    assert made(conv_pool(pool), "pool_before_conv") == ["Conv", "AveragePool"]
    unbiased = conv_pool(pool, "Conv (x, w)", "float[6,8,1,1] w")
    assert made(unbiased, "pool_before_conv") == ["AveragePool", "Conv"]


def test_weights_need_not_be_constant() -> None:
    model = graph(
        f"c = Conv (x, xw) y = AveragePool <{HALF}> (c)",
        inputs="float[N,8,H,W] x, float[6,8,1,1] xw",
        outputs="float[N,6,P,Q] y",
    )
    assert made(model, "pool_before_conv") == ["AveragePool", "Conv"]


@pytest.mark.parametrize(
    ("conv", "weights"),
    [
        ("Conv <pads = [1, 1, 1, 1]> (x, w)", "float[6,8,3,3] w"),
        ("Conv <pads = [1, 1, 1, 1]> (x, w)", "float[6,8,1,1] w"),
        ("Conv <strides = [2, 2]> (x, w)", "float[6,8,1,1] w"),
    ],
)
def test_convolutions_that_see_neighbours_or_padding_stay(conv: str, weights: str) -> None:
    assert made(conv_pool(f"AveragePool <{HALF}>", conv, weights), "pool_before_conv") == ["Conv", "AveragePool"]


def test_a_maximum_does_not_commute_with_a_mix() -> None:
    assert made(conv_pool(f"MaxPool <{HALF}>"), "pool_before_conv") == ["Conv", "MaxPool"]


def test_nothing_is_left_of_what_is_smaller_than_the_window() -> None:
    """onnxruntime runs the pool, but no convolution of a picture without width."""
    model = with_weights(
        graph(
            "c = Conv (x, w) y = AveragePool <kernel_shape = [3, 3]> (c)",
            inputs="float[1,4,4,2] x, float[2,4,1,1] w",
            outputs="float[1,2,2,0] y",
        )
    )
    result = optimized(model, rules=["pool_before_conv"], target="ort-cpu", verify=False)
    assert ops(result.model) == ["Conv", "AveragePool"]
    assert any("without elements" in r.reason for r in result.refused)


def test_no_gain_where_the_pool_makes_nothing_smaller() -> None:
    wider = conv_pool(
        "AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>", weights="float[2,8,1,1] w, float[2] b"
    )
    del wider.graph.output[0].type.tensor_type.shape.dim[:]
    wider.graph.output[0].type.tensor_type.ClearField("shape")
    assert made(wider, "pool_before_conv") == ["Conv", "AveragePool"]


def test_others_who_need_the_whole() -> None:
    model = with_weights(
        graph(
            f"a = Conv (x, w) c = Concat <axis = 1> (a, x) z = GlobalMaxPool (c) p = AveragePool <{HALF}> (c) "
            f"q = AveragePool <{HALF}> (a) r = Relu (a) y = Mul (p, z)",
            inputs="float[N,8,H,W] x, float[6,8,1,1] w",
            outputs="float[N,14,P,Q] y, float[N,6,P,Q] q, float[N,6,H,W] r",
        )
    )
    assert made(model, "pool_before_conv") == ops(model)


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_other_targets(target: str) -> None:
    assert made(conv_pool(f"AveragePool <{HALF}>"), "pool_before_conv", target) == ["AveragePool", "Conv"]
