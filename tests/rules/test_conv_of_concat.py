"""A convolution of two concatenated values: where it becomes a sum, and what stays."""

from __future__ import annotations

from functools import partial

import examples
import onnx
import pytest
from support import graph, ops, optimized, with_weights

FRONT = "a = Conv <pads = [1,1,1,1]> (x, u) b = Conv (x, v)"
WEIGHTS = "float[16,3,3,3] u, float[32,3,1,1] v, float[8,48,3,3] w, float[8] k"
SUM = ["Conv", "Conv", "Conv", "Conv", "Add"]


def network(tail: str, weights: str = WEIGHTS, out: str = "N,8,P,Q") -> onnx.ModelProto:
    return with_weights(graph(f"{FRONT} {tail}", inputs=f"float[N,3,64,64] x, {weights}", outputs=f"float[{out}] y"))


made = partial(examples.made, rule="conv_of_concat")


@pytest.mark.parametrize("axis", [1, -3])
@pytest.mark.parametrize("attrs", ["", "<pads = [1,1,1,1], strides = [2,2]>", '<auto_pad = "SAME_UPPER">'])
def test_a_sum_of_two(axis: int, attrs: str) -> None:
    assert made(network(f"c = Concat <axis = {axis}> (a, b) y = Conv {attrs} (c, w, k)")) == SUM


def test_the_order_of_the_channels_counts() -> None:
    assert made(network("c = Concat <axis = 1> (b, a) y = Conv (c, w)")) == SUM


def test_one_value_in_the_layout_is_enough() -> None:
    text = "t = Tanh (b) e = Exp (t) c = Concat <axis = 1> (a, e) y = Conv (c, w)"
    assert made(network(text)) == ["Conv", "Conv", "Tanh", "Exp", "Conv", "Conv", "Add"]


@pytest.mark.parametrize(
    ("tail", "weights", "out"),
    [
        ("c = Concat <axis = 1> (a, b) z = Relu (c) y0 = Conv (c, w) z0 = ReduceMax (z) y = Add (y0, z0)", WEIGHTS,
         "N,8,P,Q"),
        ("c = Concat <axis = 1> (a, b, a) y = Conv (c, w)", WEIGHTS.replace("8,48", "8,64"), "N,8,P,Q"),
        ("c = Concat <axis = 1> (a, b) y = Conv <group = 2> (c, w)", WEIGHTS.replace("8,48", "8,24"), "N,8,P,Q"),
        ("c = Concat <axis = 1> (a, b) y = Conv (c, w)", WEIGHTS.replace("16,3,3,3", "20,3,3,3").replace("48", "52"),
         "N,8,P,Q"),
        ("c = Concat <axis = 0> (b, b) y = Conv (c, w)", WEIGHTS.replace("8,48", "8,32"), "M,8,P,Q"),
    ],
    ids=["another reader", "three", "groups", "no whole blocks", "batch"],
)  # fmt: skip
def test_what_stays(tail: str, weights: str, out: str) -> None:
    model = network(tail, weights, out)
    assert made(model) == ops(model)


def test_weights_that_a_caller_may_change_stay() -> None:
    model = network("c = Concat <axis = 1> (a, b) y = Conv (c, w)")
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [8, 48, 3, 3]))
    assert made(model) == ops(model)


def test_images_of_unknown_size_stay() -> None:
    model = network("c = Concat <axis = 1> (a, b) y = Conv (c, w)")
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "W"
    result = optimized(model, rules=["conv_of_concat"], target="ort-cpu")
    assert ops(result.model) == ops(model)


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_elsewhere_the_sum_is_a_kernel_of_its_own(target: str) -> None:
    model = network("c = Concat <axis = 1> (a, b) y = Conv (c, w)")
    assert made(model, target) == ops(model)
