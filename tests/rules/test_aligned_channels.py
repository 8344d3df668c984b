"""Channels rounded up around a depthwise convolution: what may stand between, and what stays."""

from __future__ import annotations

import onnx
import pytest
from support import assert_same, graph, ops, optimized, random_feeds, with_weights

BRANCH = "a = Conv (x, w, b) r = Relu (a) d = Conv <group = 18, pads = [1,1,1,1]> (r, u, c) y = Conv (d, z)"
WEIGHTS = "float[18,6,1,1] w, float[18] b, float[18,1,3,3] u, float[18] c, float[6,18,1,1] z"


PAIR = "a = Conv (x, w, b) r = HardSwish (a) y = Conv (r, z)"
PAIR_WEIGHTS = "float[12,6,1,1] w, float[12] b, float[24,12,1,1] z"


def model(body: str = BRANCH, weights: str = WEIGHTS, dtype: str = "float", opset: int = 17) -> onnx.ModelProto:
    inputs = f"float[N,6,H,W] x, {weights}".replace("float[", f"{dtype}[")
    return with_weights(graph(body, inputs=inputs, outputs=f"{dtype}[N,M,P,Q] y", opset=opset))


def padded(m: onnx.ModelProto, target: str = "ort-cpu") -> list[int]:
    """Output channels of the convolutions afterwards."""
    result = optimized(m, rules=["aligned_channels"], target=target)
    assert ops(result.model) == ops(m)
    for size in (5, 8):
        assert_same(m, result.model, random_feeds(m, dims={"N": 2, "H": size, "W": 6}))
    shapes = {t.name: t.dims[0] for t in result.model.graph.initializer}
    return [shapes[n.input[1]] for n in result.model.graph.node if n.op_type == "Conv" and n.input[1] in shapes]


@pytest.mark.parametrize("opset", [7, 11, 13, 18, 21])
def test_a_branch_of_shufflenet(opset: int) -> None:
    assert padded(model(opset=opset)) == [20, 20, 6]


@pytest.mark.parametrize(
    "between",
    ["Relu (a)", "LeakyRelu (a)", "Sigmoid (a)", "HardSwish (a)", "MaxPool <kernel_shape = [2,2]> (a)",
     "AveragePool <kernel_shape = [3,3], pads = [1,1,1,1]> (a)"],
)  # fmt: skip
def test_what_may_stand_between(between: str) -> None:
    assert padded(model(BRANCH.replace("Relu (a)", between))) == [20, 20, 6]


def test_less_than_a_block_becomes_one_where_a_1x1_convolution_reads_it() -> None:
    assert padded(model(PAIR, PAIR_WEIGHTS)) == [16, 24]
    assert padded(model(PAIR.replace("HardSwish (a)", "MaxPool <kernel_shape = [2,2]> (a)"), PAIR_WEIGHTS)) == [16, 24]
    assert padded(model(BRANCH.replace("18", "10"), WEIGHTS.replace("18", "10"))) == [16, 16, 6]


def test_several_depthwise_convolutions_and_no_biases() -> None:
    body = "a = Conv (x, w) d = Conv <group = 18> (a, u) e = Conv <group = 18> (d, u) y = Conv <strides = [2,2]> (e, z)"
    assert padded(model(body, "float[18,6,3,3] w, float[18,1,1,1] u, float[6,18,3,3] z")) == [20, 20, 20, 6]


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        ("a = Conv (x, w, b) r = Relu (a) y = Conv (r, z)", WEIGHTS),  # no depthwise convolution: it does not pay
        (BRANCH, WEIGHTS.replace("18", "20")),
        (BRANCH.replace("18", "8"), WEIGHTS.replace("18", "8")),
        (PAIR, PAIR_WEIGHTS.replace("12", "8")),  # a block of the smaller size
        (PAIR, PAIR_WEIGHTS.replace("12", "16")),
        (PAIR, PAIR_WEIGHTS.replace("[24,12,1,1]", "[24,12,3,3]")),  # it does not pay
        (BRANCH.replace("(x, w, b)", "(x, w, b) k = Tanh (a)"), WEIGHTS),
        (BRANCH.replace("Relu (a)", "Softmax <axis = 1> (a)"), WEIGHTS),
        (BRANCH.replace("Relu (a)", "Reciprocal (a)"), WEIGHTS),  # of 0
        (BRANCH.replace("Conv (x, w, b)", "Conv <group = 2> (x, w, b)"), WEIGHTS.replace("[18,6,", "[18,3,")),
        (BRANCH.replace("Conv (d, z)", "Conv <group = 2> (d, z)"), WEIGHTS.replace("[6,18,", "[6,9,")),
    ],
)  # fmt: skip
def test_what_stays(body: str, weights: str) -> None:
    m = model(body.replace("18", "20") if "[20,6," in weights else body, weights)
    if "k = Tanh" in body:
        m.graph.output.append(onnx.helper.make_tensor_value_info("k", 1, ["N", 18, "H", "W"]))
    widths = [
        t.dims[0] for n in m.graph.node for t in m.graph.initializer if n.op_type == "Conv" and n.input[1] == t.name
    ]
    assert padded(m) == widths


def test_weights_that_a_caller_can_change_and_other_dtypes_stay() -> None:
    assert padded(model(dtype="float16")) == [18, 18, 6]
    m = model()
    m.graph.input.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [6, 18, 1, 1]))
    assert padded(m) == [18, 18, 6]


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_other_targets(target: str) -> None:
    assert padded(model(), target) == [18, 18, 6]
